"""The registry: everything that pykernel and its plug-ins offer by name, and who offers it.

Plug-ins are found once a process, when a name is first asked for that is not pykernel's own. A plug-in that cannot be
imported, misspells a hook, or returns something else than a hook promises is left out whole and reported; so is the
later of two that offer one name. What is left works.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from typing import Any

import pluggy

from pykernel import builtin
from pykernel.errors import PluginError
from pykernel.hooks import KINDS, PROJECT, CostModelEntry, DocumentEntry, Hooks

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

    def find(self, kind: str, name: str) -> Offer:
        """The offer of a name. Raises `PluginError` with the nearest names and the plug-ins that failed."""
        offer = self.offers[kind].get(name)
        if offer is None:
            raise PluginError(_unknown(kind, name, self))
        return offer

    def document(self, kind: str, name: str) -> Any:
        """The document of a name. Raises `PluginError` when its plug-in cannot load it or loads something else."""
        offer = self.find(kind, name)
        try:
            loaded = offer.entry.load()
        except Exception as error:
            raise PluginError(f"plug-in {offer.origin}: {kind} {name} cannot be loaded: {_brief(error)}") from error
        if not isinstance(loaded, KINDS[kind]):
            raise PluginError(
                f"plug-in {offer.origin}: {kind} {name} loads a {type(loaded).__name__}, accepted is a "
                f"{KINDS[kind].__name__}"
            )
        return loaded


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
    for origin, point in _entry_points():
        try:
            plugin = point.load()
        except Exception as error:
            registry.failures.append(Failure(origin, f"importing {point.value} failed: {_brief(error)}"))
            continue
        _register(registry, origin, plugin)
    return registry


def _entry_points() -> Iterator[tuple[Origin, metadata.EntryPoint]]:
    """Entry points in the order of their distributions' and their own names, as PYKERNEL_PLUGINS allows."""
    wanted = os.environ.get(ENVIRONMENT)
    names = None if wanted is None else {name.strip() for name in wanted.split(",") if name.strip()}
    if names is not None and not names:
        return
    found = []
    for point in metadata.entry_points(group=PROJECT):
        distribution = point.dist
        origin = Origin(
            point.name, distribution.name if distribution else "", distribution.version if distribution else ""
        )
        if names is None or point.name in names:
            found.append((origin, point))
    yield from sorted(found, key=lambda pair: (pair[0].distribution.lower(), pair[0].plugin))


def _register(registry: Registry, origin: Origin, plugin: Any) -> None:
    """Add what one plug-in offers; all of it or, when a hook misbehaves, none."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    try:
        manager.register(plugin, name=origin.plugin)
        manager.check_pending()
        offers = [Offer(kind, entry, origin) for kind in KINDS for entry in _entries(manager, kind)]
    except Exception as error:
        registry.failures.append(Failure(origin, _misbehaviour(plugin, error)))
        return
    registry.loaded.append(origin)
    for offer in offers:
        taken = registry.offers[offer.kind].setdefault(offer.entry.name, offer)
        if taken is not offer:
            reason = f"{offer.kind} {offer.entry.name} is offered by {taken.origin} already; the earlier one is kept"
            registry.failures.append(Failure(origin, reason))


def _entries(manager: pluggy.PluginManager, kind: str) -> Iterator[Any]:
    record = CostModelEntry if kind == "cost_models" else DocumentEntry
    for result in getattr(manager.hook, f"pykernel_{kind}")():
        for entry in result:
            if not isinstance(entry, record):
                raise TypeError(f"pykernel_{kind} returns a {type(entry).__name__}, accepted is a {record.__name__}")
            if not entry.name:
                raise ValueError(f"pykernel_{kind} returns an entry without a name")
            yield entry


def _misbehaviour(plugin: Any, error: Exception) -> str:
    """Why a plug-in was left out; a misspelt hook gets the nearest real one."""
    known = [f"pykernel_{kind}" for kind in KINDS]
    if isinstance(error, pluggy.PluginValidationError):
        named = [name for name in dir(plugin) if name.startswith("pykernel_") and name not in known]
        for name in named:
            near = difflib.get_close_matches(name, known, n=1)
            return f"there is no hook {name}" + (f"; did you mean {near[0]}" if near else f"; hooks: {', '.join(known)}")
    return _brief(error)


def _unknown(kind: str, name: str, registry: Registry) -> str:
    names = registry.names(kind)
    near = difflib.get_close_matches(name, names, n=1)
    message = f"there is no {kind.replace('_', ' ').removesuffix('s')} {name!r}"
    message += f"; did you mean {near[0]}" if near else ""
    message += f"; known are {', '.join(names)}" if names else ""
    return message + "".join(f"; {failure}" for failure in registry.failures)


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
