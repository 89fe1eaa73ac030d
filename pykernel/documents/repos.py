"""Where documents are: three repositories (scenarios, catalog, registry), and the way from a name to a file.

A repository is a directory in the ecosystem's layout; what is not given is the data bundled with the package. A name
without a file is looked up among the plug-ins. One that leads nowhere is reported with the path that was looked for,
the nearest names, and what exists.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pykernel.documents import graph, hardware, older, storage
from pykernel.documents.deployment import Deployment
from pykernel.documents.fieldtypes import did_you_mean
from pykernel.documents.graph import ModelGraph
from pykernel.documents.inputs import Inputs
from pykernel.documents.loading import decode, finish
from pykernel.documents.nodes import shown
from pykernel.documents.reader import missing_document, read_file
from pykernel.documents.recent import load_set
from pykernel.documents.rules import Rules, rules, unknown_version, versions
from pykernel.documents.scenario import Scenario
from pykernel.errors import ArgumentError, DocumentError, Problem

DATA = Path(__file__).parent.parent / "data"

PathText = str | os.PathLike[str]


@dataclass(frozen=True)
class Repos:
    """The roots that names are looked up under; None stands for the bundled one."""

    scenarios: PathText | None = None
    catalog: PathText | None = None
    registry: PathText | None = None

    def scenarios_root(self) -> Path:
        return DATA / "scenarios" if self.scenarios is None else Path(self.scenarios)

    def catalog_root(self) -> Path:
        return DATA / "catalog" if self.catalog is None else Path(self.catalog)

    def registry_root(self) -> Path:
        return DATA / "registry" if self.registry is None else Path(self.registry)


def load_bundle(path: PathText) -> tuple[Scenario, Deployment]:
    """The Scenario and the Deployment of one file, in that order.

    A file is two documents, or one in the layout before schemas 0.2.0, which validation then remarks on.
    Raises: DocumentError with the problems of both.
    """
    kinds = ("scenario", "deployment")
    reading = read_file(path, kinds, least=1)
    first, remark = reading.roots[0], ""
    if len(reading.roots) == 2:
        second = reading.roots[1]
    elif older.is_one_document(first):
        first, second, remark = older.split(first)
    else:
        raise missing_document(reading.file, reading.last_line, kinds, 1)
    scenario = decode(Scenario, first, "scenario", reading, remark)
    deployment = decode(Deployment, second, "deployment", reading)
    finish(reading)
    assert scenario is not None and deployment is not None
    return scenario, deployment


def open_inputs(scenario: PathText, repos: Repos | None = None, pool: int = 0) -> Inputs:
    """All documents that pricing one pool of a scenario needs, loaded but not validated.

    Parameters: `scenario`, the path of a bundle file, or else its name under the scenarios root, then among the
    bundled ones (`.yaml` may be left out, `sub/name` looks in a sub-folder); `pool`, the index of the pool.
    Raises: DocumentError for a file or name at fault, ArgumentError for a pool that does not exist.
    """
    repos = repos or Repos()
    path = find_scenario(scenario, repos)
    problem, deployment = load_bundle(path)
    _check_pool(path, deployment, pool)
    return assemble(problem, deployment, repos, pool)


def assemble(
    problem: Scenario,
    deployment: Deployment,
    repos: Repos | None = None,
    pool: int = 0,
    model: ModelGraph | None = None,
) -> Inputs:
    """The documents that a scenario and a deployment name, loaded but not validated; `model` where it is at hand.

    Raises: DocumentError for names that lead nowhere, else for all files at fault.
    """
    repos = repos or Repos()
    lookup = _Lookup(problem)
    graph_of = (lambda: model) if model else lookup.find("model", "model", problem.model, "models", repos)
    chip_of = lookup.find("hardware", "cluster.hardware", problem.cluster.hardware, "chips", repos)
    fabric = problem.cluster.fabric
    fabric_of = lookup.find("fabric", "cluster.fabric", fabric, "fabrics", repos) if fabric else None
    sets = [
        lookup.find(f"coefficients[{index}]", f"coefficients[{index}]", name, "coefficients", repos)
        for index, name in enumerate(problem.coefficients)
    ]
    lookup.finish()
    inputs = Inputs(
        problem,
        deployment,
        pool,
        lookup.load(graph_of),
        lookup.load(chip_of),
        lookup.load(fabric_of) if fabric_of else None,
        coefficients=[lookup.load(load) for load in sets],
        storage=lookup.load(lambda: _load_storage(repos)),
        rules=lookup.load(lambda: _rules(problem)),
    )
    lookup.finish()
    _add_storage(lookup, inputs, repos)
    lookup.finish()
    return inputs


def _add_storage(lookup: _Lookup, inputs: Inputs, repos: Repos) -> None:
    """Add the storage classes that a scenario names and only a plug-in has."""
    for index, name in enumerate(inputs.scenario.cluster.storage):
        known = [tier.name for tier in inputs.storage]
        if not name or name in known:
            continue
        place = repos.catalog_root() / "devices" / "storage.yaml"
        load = lookup.plugged_in(f"storage[{index}]", f"cluster.storage[{index}]", "storage_tiers", name, place, known)
        inputs.storage += [load()] if load is not None else []


def _rules(problem: Scenario) -> Rules:
    """The rules of a scenario's engine release, pykernel's own or those of a plug-in. Raises DocumentError."""
    if problem.engine_version in versions():
        return rules(problem.engine_version)
    load = _of_plugins("rules_packs", problem.engine_version)[0]
    if load is None:
        others = _names_of_plugins("rules_packs")
        raise DocumentError([unknown_version(problem.engine_version, "error", None, problem, others)])
    pack: Rules = load()
    return pack


def _of_plugins(kind: str, name: str) -> tuple[Callable[[], Any] | None, str]:
    """What loads a name of a kind that a plug-in offers, if one does, and what to add to a complaint if none does.

    The registry is imported here, when it is needed: it builds on this room.
    """
    from pykernel.registry import installed

    registry = installed()
    if registry.from_plugin(kind, name):
        return partial(registry.document, kind, name), ""
    return None, "".join(f"; {failure}" for failure in registry.failures)


def _names_of_plugins(kind: str) -> list[str]:
    from pykernel.registry import installed

    return installed().plugged_in(kind)


def load_model(path: PathText) -> ModelGraph:
    """The graph of a model directory's file; its name must be the directory's. Raises DocumentError."""
    model = graph.load(path)
    directory = Path(path).absolute().parent.name
    if model.name != directory:
        line = model.source.line("name") if model.source else 0
        message = f"found {shown(model.name)}; accepted: the name of its directory, {directory}"
        raise DocumentError([Problem("error", "model.name", message, os.fspath(path), line)])
    return model


def find_scenario(scenario: PathText, repos: Repos | None = None) -> Path:
    """The bundle file that a path or a name stands for. Raises DocumentError with the nearest names."""
    if not isinstance(scenario, (str, os.PathLike)):
        raise ArgumentError(f"scenario is {scenario!r}, accepted is a path or a name")
    if repos is not None and not isinstance(repos, Repos):
        raise ArgumentError(f"repos is {repos!r}, accepted is pykernel.Repos(scenarios=..., catalog=..., registry=...)")
    repos = repos or Repos()
    text = os.fspath(scenario)
    if text and os.path.isfile(text):
        return Path(text)
    roots = [repos.scenarios_root()]
    if repos.scenarios is not None:
        roots.append(DATA / "scenarios")
    parts = Path(text).parts
    if parts and ".." not in parts and not os.path.isabs(text) and "\0" not in text:
        for root in roots:
            for candidate in (root / text, root / f"{text}.yaml", root / f"{text}.yml"):
                if os.path.isfile(candidate):
                    return candidate
    known = sorted({name for root in roots for name in _yaml_names(root, deep=True)})
    name = text[: -len(".yaml")] if text.endswith(".yaml") else text
    near = did_you_mean(Path(name).name if os.sep in name and not did_you_mean(name, known) else name, known)
    looked = f"looked for the file {text} and for {name}.yaml under {', '.join(str(root) for root in roots)}"
    message = f"no scenario {shown(text)}{near}; {looked}; known: {_listing(known)}"
    raise DocumentError([Problem("error", "references.scenario", message)])


def list_scenarios(repos: Repos | None = None) -> list[str]:
    """Names of the scenarios, sorted; those in sub-folders as `sub/name`."""
    return _yaml_names((repos or Repos()).scenarios_root(), deep=True)


def list_models(repos: Repos | None = None) -> list[str]:
    """Names of the models that have a graph, sorted."""
    root = (repos or Repos()).catalog_root() / "models"
    return sorted(path.parent.name for path in root.glob("*/graph.yaml"))


def list_chips(repos: Repos | None = None) -> list[str]:
    """Names of the chips, sorted."""
    return _yaml_names((repos or Repos()).catalog_root() / "hardware")


def list_fabrics(repos: Repos | None = None) -> list[str]:
    """Names of the fabrics, sorted."""
    return _yaml_names((repos or Repos()).catalog_root() / "networks")


def list_coefficient_sets(repos: Repos | None = None) -> list[str]:
    """Names of the coefficient sets, sorted."""
    return _yaml_names((repos or Repos()).registry_root() / "coefficients")


def list_storage(repos: Repos | None = None) -> list[str]:
    """Names of the storage classes, sorted."""
    return [tier.name for tier in _load_storage(repos or Repos())]


def _yaml_names(root: Path, deep: bool = False) -> list[str]:
    pattern = "**/*.yaml" if deep else "*.yaml"
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.glob(pattern) if path.is_file())


def _listing(names: list[str]) -> str:
    """Names for a message, cut where there are many."""
    if not names:
        return "none"
    return ", ".join(names) if len(names) <= 40 else ", ".join(names[:40]) + f", and {len(names) - 40} more"


def _load_storage(repos: Repos) -> list[storage.StorageTier]:
    """The storage classes of the catalog; a catalog without the file has none."""
    path = repos.catalog_root() / "devices" / "storage.yaml"
    return storage.load(path) if path.exists() else []


def _check_pool(path: Path, deployment: Deployment, pool: int) -> None:
    count = len(deployment.pools)
    if count == 0:
        line = deployment.source.line("pools") if deployment.source else 0
        message = "found no pool; accepted: at least one"
        raise DocumentError([Problem("error", "deployment.pools", message, str(path), line)])
    if not isinstance(pool, int) or isinstance(pool, bool) or not 0 <= pool < count:
        many = f"{count} pool{'s' if count > 1 else ''}"
        raise ArgumentError(f"{path}: found the pool index {shown(pool)}; accepted: 0 to {count - 1}, it has {many}")


_FILES: dict[str, tuple[str, str, Callable[[Repos], list[str]], Callable[[Path], Any]]] = {
    "models": ("model_graphs", "models/{}/graph.yaml", list_models, load_model),
    "chips": ("chips", "hardware/{}.yaml", list_chips, hardware.load_chip),
    "fabrics": ("fabrics", "networks/{}.yaml", list_fabrics, hardware.load_fabric),
    "coefficients": ("coefficient_sets", "coefficients/{}.yaml", list_coefficient_sets, load_set),
}
"""Of each group: what plug-ins call it, its files, the names there are, and what loads one."""

_WHAT = {
    "model_graphs": "model",
    "chips": "chip",
    "fabrics": "fabric",
    "coefficient_sets": "coefficient set",
    "storage_tiers": "storage class",
}


class _Lookup:
    """Finds what a scenario names, collecting every name that leads nowhere."""

    def __init__(self, scenario: Scenario) -> None:
        self.source = scenario.source
        self.problems: list[Problem] = []

    def find(self, reference: str, field: str, name: str, group: str, repos: Repos) -> Callable[[], Any]:
        """What loads a name; reports it where there is none. `field` is the scenario's field that names it."""
        kind, pattern, known, load = _FILES[group]
        root = repos.registry_root() if group == "coefficients" else repos.catalog_root()
        bare = name not in ("", ".", "..") and not any(character in name for character in "/\\\0")
        path = root / pattern.format(name)
        if not bare:
            message = f"found {shown(name)}; accepted: the name of a {_WHAT[kind]}, without a folder"
            self._add(reference, field, message)
        elif not os.path.isfile(path):
            load_plugged_in = self.plugged_in(reference, field, kind, name, path, known(repos))
            if load_plugged_in is not None:
                return load_plugged_in
        return partial(load, path)

    def plugged_in(
        self, reference: str, field: str, kind: str, name: str, path: Path, known: list[str]
    ) -> Callable[[], Any] | None:
        """What loads a name that has no file, from a plug-in; reports it where none has it."""
        load, remark = _of_plugins(kind, name)
        if load is None:
            known = sorted({*known, *_names_of_plugins(kind)})
            near = did_you_mean(name, known)
            message = f"no {_WHAT[kind]} {shown(name)}{near}; looked in {path}; known: {_listing(known)}{remark}"
            self._add(reference, field, message)
        return load

    def _add(self, reference: str, field: str, message: str) -> None:
        file, line = (self.source.file, self.source.line(field)) if self.source else ("", 0)
        self.problems.append(Problem("error", f"references.{reference}", message, file, line))

    def load(self, load: Callable[[], Any]) -> Any:
        """What a loader gives, None where its file is at fault, whose problems are kept for `finish`."""
        try:
            return load()
        except DocumentError as error:
            self.problems += error.problems
            return None

    def finish(self) -> None:
        """Raise what was collected."""
        if self.problems:
            raise DocumentError(self.problems)
