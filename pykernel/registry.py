"""The registry: everything that pykernel and its plug-ins offer by name, and who offers it.

Plug-ins are found once a process, when a name is first asked for that is not pykernel's own. A plug-in that cannot be
imported, misspells a hook, or returns something else than a hook promises is left out whole and reported; so is the
later of two that offer one name. What is left works.
"""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from typing import Any

import pluggy

from pykernel import builtin
from pykernel.documents import Inputs, Rules
from pykernel.documents.inputs import document_problems, require_valid
from pykernel.errors import ArgumentError, PluginError, PykernelError
from pykernel.hooks import KINDS, PROJECT, CostModelEntry, DocumentEntry, Hooks
from pykernel.interface import CostModel

ENVIRONMENT = "PYKERNEL_PLUGINS"
"""Names of the plug-ins to load, separated by commas; empty for none; unset for all that are installed."""

BUILTIN = "pykernel"
"""Name of the plug-in that pykernel itself is."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A plug-in: the name of its entry point, and the distribution that brings it."""

    plugin: str
    distribution: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.plugin} ({self.distribution} {self.version})" if self.distribution else self.plugin


@dataclass(frozen=True, slots=True)
class Failure:
    """A plug-in, or one name of it, that was left out, and why."""

    origin: Origin
    reason: str

    def __str__(self) -> str:
        return f"plug-in {self.origin}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Offer:
    """One name that somebody offers."""

    kind: str
    entry: Any
    origin: Origin


@dataclass
class Registry:
    """What is offered by name, by kind; who was loaded; who was left out."""

    offers: dict[str, dict[str, Offer]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    loaded: list[Origin] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def names(self, kind: str) -> list[str]:
        """Every name of a kind, sorted."""
        return sorted(self.offers[kind])

    def from_plugin(self, kind: str, name: str) -> bool:
        """Whether a plug-in, and not pykernel itself, offers a name."""
        offer = self.offers[kind].get(name)
        return offer is not None and offer.origin.plugin != BUILTIN

    def plugged_in(self, kind: str) -> list[str]:
        """The names of a kind that only plug-ins offer, sorted."""
        return [name for name in self.names(kind) if self.from_plugin(kind, name)]

    def find(self, kind: str, name: str) -> Offer:
        """The offer of a name. Raises `ArgumentError` with the nearest names and the plug-ins that failed."""
        offer = self.offers[kind].get(name) if isinstance(name, str) else None
        if offer is None:
            raise ArgumentError(_unknown(kind, name, self))
        return offer

    def new(self, name: str, inputs: Inputs) -> CostModel:
        """A cost model of a name. Raises `ArgumentError` for one that nobody offers, `PluginError` for one that fails.

        What it raises of pykernel's own errors, such as `RefusedError`, passes as it is. Documents with errors are a
        `DocumentError`, and reach no factory.
        """
        offer = self.find("cost_models", name)
        require_valid(inputs)
        try:
            model = offer.entry.factory(inputs)
        except PykernelError:
            raise
        except Exception as error:
            message = f"plug-in {offer.origin}: cost model {name} cannot be built: {_brief(error)}"
            raise PluginError(message) from error
        lacking = [method for method in _METHODS if not callable(getattr(model, method, None))]
        if lacking:
            found = f"{type(model).__name__}, which has no {', '.join(lacking)}"
            raise PluginError(f"plug-in {offer.origin}: cost model {name} builds a {found}; accepted is a CostModel")
        built: CostModel = model
        return built

    def document(self, kind: str, name: str) -> Any:
        """A copy of the document of a name, the caller's to edit.

        Raises `ArgumentError` for a name that nobody offers, `PluginError` when its plug-in cannot load it, or loads
        something else or a document with errors.
        """
        offer = self.find(kind, name)
        what = f"plug-in {offer.origin}: {_singular(kind)} {name}"
        try:
            loaded = copy.deepcopy(offer.entry.load())
        except Exception as error:
            raise PluginError(f"{what} cannot be loaded: {_brief(error)}") from error
        if not isinstance(loaded, KINDS[kind]):
            accepted = KINDS[kind].__name__
            raise PluginError(f"{what} loads a {type(loaded).__name__}; accepted is a {accepted}")
        own = loaded.engine_version if isinstance(loaded, Rules) else getattr(loaded, "name", "")
        if own != name:
            raise PluginError(f"{what} loads a document that names itself {own!r}; accepted is its name here")
        errors = [problem for problem in document_problems(loaded) if problem.severity == "error"]
        if errors:
            raise PluginError(f"{what}: " + "; ".join(f"{problem.path}: {problem.message}" for problem in errors))
        return loaded


_METHODS = sorted(CostModel.__abstractmethods__)
"""What any cost model must answer."""


def build(plugins: Mapping[Origin, Any]) -> Registry:
    """The registry of these plug-ins, in the order given; pykernel's own come first."""
    registry = Registry()
    for origin, plugin in {Origin(BUILTIN): builtin, **plugins}.items():
        _register(registry, origin, plugin)
    return registry


@lru_cache(maxsize=1)
def installed() -> Registry:
    """The registry of what is installed in this environment. Looked up once a process."""
    registry = Registry()
    _register(registry, Origin(BUILTIN), builtin)
    points, missing = _entry_points(os.environ.get(ENVIRONMENT))
    for name in missing:
        registry.failures.append(
            Failure(Origin(name), f"no installed plug-in has this name, which {ENVIRONMENT} holds")
        )
    for origin, point in points:
        try:
            plugin = point.load()
        except (Exception, SystemExit) as error:
            registry.failures.append(Failure(origin, f"importing {point.value} failed: {_brief(error)}"))
            continue
        _register(registry, origin, plugin)
    return registry


def _entry_points(wanted: str | None) -> tuple[list[tuple[Origin, metadata.EntryPoint]], list[str]]:
    """Entry points in the order of their distributions' and their own names, and the wanted names that none has.

    `wanted` names plug-ins, separated by commas; None stands for all.
    """
    names = None if wanted is None else list(dict.fromkeys(name.strip() for name in wanted.split(",") if name.strip()))
    if names is not None and not names:
        return [], []
    found = []
    for point in metadata.entry_points(group=PROJECT):
        if names is None or point.name in names:
            by = point.dist
            found.append((Origin(point.name, by.name if by else "", by.version if by else ""), point))
    present = {origin.plugin for origin, _ in found}
    order = sorted(found, key=lambda pair: (pair[0].distribution.lower(), pair[0].plugin, pair[1].value))
    return order, [name for name in names or () if name not in present]


def _register(registry: Registry, origin: Origin, plugin: Any) -> None:
    """Add what one plug-in offers; all of it or, when a hook misbehaves, none."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    try:
        manager.register(plugin, name=origin.plugin)
        manager.check_pending()
        _check_marked(plugin)
        offers = [Offer(kind, entry, origin) for kind in KINDS for entry in _entries(manager, kind)]
    except (Exception, SystemExit) as error:
        registry.failures.append(Failure(origin, _misbehaviour(plugin, error)))
        return
    registry.loaded.append(origin)
    for offer in offers:
        taken = registry.offers[offer.kind].setdefault(offer.entry.name, offer)
        if taken is not offer:
            reason = f"{_singular(offer.kind)} {offer.entry.name} is offered by {taken.origin} already, which is kept"
            registry.failures.append(Failure(origin, reason))


def _check_marked(plugin: Any) -> None:
    """Raise for a hook without its mark, which pluggy would pass over in silence."""
    for kind in KINDS:
        function = getattr(plugin, f"pykernel_{kind}", None)
        if callable(function) and not hasattr(function, f"{PROJECT}_impl"):
            raise TypeError(f"pykernel_{kind} is not marked; put @pykernel.hooks.hookimpl in front of it")


def _entries(manager: pluggy.PluginManager, kind: str) -> Iterator[Any]:
    record = CostModelEntry if kind == "cost_models" else DocumentEntry
    for result in getattr(manager.hook, f"pykernel_{kind}")():
        for entry in result:
            if not isinstance(entry, record):
                raise TypeError(f"pykernel_{kind} returns a {type(entry).__name__}, accepted is a {record.__name__}")
            if not entry.name:
                raise ValueError(f"pykernel_{kind} returns an entry without a name")
            yield entry


def _misbehaviour(plugin: Any, error: BaseException) -> str:
    """Why a plug-in was left out; a misspelt hook gets the nearest real one."""
    known = [f"pykernel_{kind}" for kind in KINDS]
    if isinstance(error, pluggy.PluginValidationError):
        for name in (name for name in dir(plugin) if name not in known):
            if hasattr(getattr(plugin, name), f"{PROJECT}_impl"):
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}" if near else f"hooks are {', '.join(known)}"
                return f"there is no hook {name}; {hint}"
    return _brief(error)


def _unknown(kind: str, name: object, registry: Registry) -> str:
    """What is wrong with a name that nobody offers."""
    names = registry.names(kind)
    near = difflib.get_close_matches(str(name), names, n=1)
    message = f"there is no {_singular(kind)} {name!r}"
    message += f"; known are {', '.join(names)}" if names else ""
    message += f"; did you mean {near[0]}" if near else ""
    return message + "".join(f"; {failure}" for failure in registry.failures)


def _singular(kind: str) -> str:
    return kind.replace("_", " ").removesuffix("s")


def _brief(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
