"""Edits of documents for the tests of the tables: a dotted path and the value to set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from pykernel import Inputs, Repos
from pykernel.documents import (
    Coefficient,
    CoefficientSet,
    Offload,
    OffloadTier,
    Scope,
    StorageTier,
    coefficients,
    hardware,
)

Settings = Mapping[str, Any]


def apply(documents: Inputs, settings: Settings) -> Inputs:
    """Set each field; `parallel.` and `engine.` are the pool's, other paths begin at the inputs. A path that is the
    name of a function below is that change."""
    for path, value in settings.items():
        if path in CHANGES:
            CHANGES[path](documents, value)
            continue
        inner: Any = (
            documents.deployment.pools[documents.pool] if path.startswith(("parallel.", "engine.")) else documents
        )
        *parts, last = path.split(".")
        for part in parts:
            inner = getattr(inner, part)
        setattr(inner, last, value)
    return documents


def _drop(documents: Inputs, names: list[str]) -> None:
    for entries in documents.coefficients:
        entries.coefficients = [entry for entry in entries.coefficients if entry.name not in names]


def _value(documents: Inputs, values: dict[str, float]) -> None:
    for entries in documents.coefficients:
        entries.coefficients = [
            dataclasses.replace(entry, value=values[entry.name], ci95=None) if entry.name in values else entry
            for entry in entries.coefficients
        ]


def _add(documents: Inputs, names: list[str]) -> None:
    scope = Scope(hardware=[documents.chip.name])
    documents.coefficients[0].coefficients += [
        Coefficient(name, 64.0, "dimensionless", "measured", False, scope) for name in names
    ]


def _heads(documents: Inputs, heads: dict[str, int]) -> None:
    for kind in documents.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "Attention" and not node.role:
                node.n_q = heads.get("query", node.n_q)
            node.n_heads = heads.get("mixer", node.n_heads) if node.op == "RecurrentUpdate" else node.n_heads


def _experts(documents: Inputs, count: int) -> None:
    for kind in documents.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "GroupedGEMM":
                node.experts, node.top_k = count, 1


def _chip(documents: Inputs, name: str) -> None:
    """Another part, with the coefficients of that part."""
    documents.chip = hardware.load_chip(Repos().catalog_root() / "hardware" / f"{name}.yaml")
    documents.coefficients = [
        dataclasses.replace(entries, coefficients=[one for one in entries.coefficients if name in one.scope.hardware])
        for entries in _all_sets(tuple(documents.scenario.coefficients))
    ]
    documents.coefficients = [entries for entries in documents.coefficients if entries.coefficients]


@cache
def _all_sets(names: tuple[str, ...]) -> list[CoefficientSet]:
    return [coefficients.load(Repos().registry_root() / "coefficients" / f"{name}.yaml") for name in names]


def _connector(documents: Inputs, name: str) -> None:
    documents.deployment.offload = Offload([OffloadTier("cpu_dram", 1 << 40)], connector=name)


def _combines(documents: Inputs, names: tuple[str, ...] | None) -> None:
    assert documents.rules is not None
    documents.rules = dataclasses.replace(documents.rules, dcp_comm_backends=names)


def _storage_name(documents: Inputs, name: str) -> None:
    documents.storage = [StorageTier(name, 1e3, 1e3, 10.0)]


def _draft(documents: Inputs, kinds: list[str]) -> None:
    assert documents.model.speculator is not None
    documents.model.speculator.stack.pattern = kinds


CHANGES = {
    "drop": _drop,
    "value": _value,
    "add": _add,
    "heads": _heads,
    "experts": _experts,
    "chip": _chip,
    "connector": _connector,
    "combines": _combines,
    "storage-name": _storage_name,
    "draft": _draft,
}
