"""Inputs: all documents that one kernel is built of, and the field layer of their validation over all of them.

Everything here may be edited in memory with any value, so types are checked before anything is computed with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from pykernel.documents import coefficients as coefficient_sets
from pykernel.documents import deployment as deployments
from pykernel.documents import graph, hardware, placement
from pykernel.documents import scenario as scenarios
from pykernel.documents import storage as storage_tiers
from pykernel.documents.coefficients import CoefficientSet
from pykernel.documents.deployment import Deployment
from pykernel.documents.graph import ModelGraph
from pykernel.documents.hardware import Chip, Fabric
from pykernel.documents.loading import type_problems
from pykernel.documents.nodes import shown
from pykernel.documents.rules import Rules
from pykernel.documents.scenario import Scenario
from pykernel.documents.storage import StorageTier
from pykernel.errors import DocumentError, Problem


@dataclass
class Inputs:
    """What a kernel is built of; `pool` is the index of the pool it prices, `fabric` None on a single node."""

    scenario: Scenario
    deployment: Deployment
    pool: int
    model: ModelGraph
    chip: Chip
    fabric: Fabric | None
    storage: list[StorageTier] = field(default_factory=list)
    coefficients: list[CoefficientSet] = field(default_factory=list)
    rules: Rules | None = None


def validate(inputs: Inputs) -> list[Problem]:
    """Every problem of the field layer, errors and warnings, sorted by path. Raises nothing on any field's value."""
    problems: list[Problem] = []
    typed = {
        "scenario": _document(problems, inputs.scenario, Scenario, "scenario", scenarios.check),
        "deployment": _document(problems, inputs.deployment, Deployment, "deployment", deployments.check),
    }
    _document(problems, inputs.model, ModelGraph, "model", graph.check)
    _document(problems, inputs.chip, Chip, "chip", hardware.check_chip)
    if inputs.fabric is not None:
        _document(problems, inputs.fabric, Fabric, "fabric", hardware.check_fabric)
    for tier in _listed(problems, inputs.storage, "storage"):
        name = getattr(tier, "name", "?")
        _document(problems, tier, StorageTier, f"device:{name}", storage_tiers.check)
    for entries in _listed(problems, inputs.coefficients, "coefficients"):
        name = coefficient_sets.label(entries) if isinstance(entries, CoefficientSet) else "?"
        _document(problems, entries, CoefficientSet, f"coefficients:{name}", coefficient_sets.check)
    if typed["deployment"]:
        _check_pool(problems, inputs.pool, len(inputs.deployment.pools))
    if all(typed.values()):
        problems += placement.check(inputs.scenario, inputs.deployment)
    return sorted(problems, key=by_path)


def require_valid(inputs: Inputs) -> None:
    """Raise DocumentError with every error of the field layer; warnings pass."""
    errors = [problem for problem in validate(inputs) if problem.severity == "error"]
    if errors:
        raise DocumentError(errors)


def beyond_32_bits(inputs: Inputs) -> dict[str, int]:
    """The fields a price is made of, by dotted path, that hold whole numbers of more than 32 bits."""
    priced = {
        "scenario.cluster": inputs.scenario.cluster,
        f"deployment.pools[{inputs.pool}]": inputs.deployment.pools[inputs.pool],
        "model": inputs.model,
        "chip": inputs.chip,
    }
    return {path: number for name, document in priced.items() for path, number in _large(document, name)}


def _large(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, int) and abs(value) >= 1 << 31:
        yield path, value
    elif is_dataclass(value):
        for each in fields(value):
            yield from _large(getattr(value, each.name), f"{path}.{each.name.rstrip('_')}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _large(item, f"{path}[{index}]")


def by_path(problem: Problem) -> tuple[Any, ...]:
    """A sort key by dotted path, list indices as numbers."""
    parts = re.split(r"(\d+)", problem.path)
    return tuple((int(part), "") if index % 2 else (-1, part) for index, part in enumerate(parts))


def document_problems(document: Any) -> list[Problem]:
    """Problems of one document by itself, of any kind that `Inputs` names; none of others."""
    for cls, prefix, check in _NAMED:
        if isinstance(document, cls):
            problems: list[Problem] = []
            _document(problems, document, cls, prefix, check)
            return problems
    return []


_NAMED: tuple[tuple[type[Any], str, Callable[[Any, str], list[Problem]]], ...] = (
    (ModelGraph, "model", graph.check),
    (Chip, "chip", hardware.check_chip),
    (Fabric, "fabric", hardware.check_fabric),
    (StorageTier, "device", storage_tiers.check),
    (CoefficientSet, "coefficients", coefficient_sets.check),
)


def _document(
    problems: list[Problem], document: Any, cls: type[Any], prefix: str, check: Callable[[Any, str], list[Problem]]
) -> bool:
    """Check one document, its values only where its types hold; returns whether they do."""
    if document is None:
        problems.append(Problem("error", prefix, f"the document is missing; accepted: a {cls.__name__}"))
        return False
    faults = type_problems(document, cls, prefix)
    problems += faults or check(document, prefix)
    return not faults


def _check_pool(problems: list[Problem], pool: Any, count: int) -> None:
    if count and (not isinstance(pool, int) or isinstance(pool, bool) or not 0 <= pool < count):
        problems.append(Problem("error", "pool", f"found {shown(pool)}; accepted: an index from 0 to {count - 1}"))


def _listed(problems: list[Problem], documents: Any, name: str) -> list[Any]:
    """The documents of a list in which None counts as absent."""
    if not isinstance(documents, (list, tuple)):
        problems.append(Problem("error", name, f"found {shown(documents)}; accepted: a list"))
        return []
    return [document for document in documents if document is not None]
