"""What pykernel itself registers, through the door that plug-ins use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pykernel import models
from pykernel.documents import (
    StorageTier,
    coefficients,
    hardware,
    list_chips,
    list_coefficient_sets,
    list_fabrics,
    list_models,
)
from pykernel.documents import storage as storage_documents
from pykernel.documents.repos import Repos, load_model
from pykernel.documents.rules import rules, versions
from pykernel.hooks import CostModelEntry, DocumentEntry, hookimpl

_BUNDLED = "bundled with pykernel"
_LAWS = "inference-sim/blis-latency-kernel"
_OTHERS = {"calibrated": ("kernels measured by aiconfigurator-core", frozenset({"blis"}))}
"""Of a cost model that is not the BLIS one: where its laws come from, and what it does not claim."""


def _files(names: Sequence[str], load: Callable[[Path], Any], path: Callable[[str], Path]) -> list[DocumentEntry]:
    return [DocumentEntry(name, partial(load, path(name)), _BUNDLED) for name in names]


def _same(tier: StorageTier) -> StorageTier:
    return tier


@hookimpl
def pykernel_cost_models() -> list[CostModelEntry]:
    return [
        CostModelEntry(name, factory, models.SUMMARIES[name], *_OTHERS.get(name, (_LAWS, frozenset())))
        for name, factory in models.MODELS.items()
    ]


@hookimpl
def pykernel_chips() -> list[DocumentEntry]:
    root = Repos().catalog_root() / "hardware"
    return _files(list_chips(), hardware.load_chip, lambda name: root / f"{name}.yaml")


@hookimpl
def pykernel_fabrics() -> list[DocumentEntry]:
    root = Repos().catalog_root() / "networks"
    return _files(list_fabrics(), hardware.load_fabric, lambda name: root / f"{name}.yaml")


@hookimpl
def pykernel_storage_tiers() -> list[DocumentEntry]:
    tiers = storage_documents.load(Repos().catalog_root() / "devices" / "storage.yaml")
    return [DocumentEntry(tier.name, partial(_same, tier), _BUNDLED) for tier in tiers]


@hookimpl
def pykernel_coefficient_sets() -> list[DocumentEntry]:
    root = Repos().registry_root() / "coefficients"
    return _files(list_coefficient_sets(), coefficients.load, lambda name: root / f"{name}.yaml")


@hookimpl
def pykernel_model_graphs() -> list[DocumentEntry]:
    root = Repos().catalog_root() / "models"
    return _files(list_models(), load_model, lambda name: root / name / "graph.yaml")


@hookimpl
def pykernel_rules_packs() -> list[DocumentEntry]:
    return [DocumentEntry(version, partial(rules, version), _BUNDLED) for version in versions()]
