"""Documents for the tests of resolution: those of bundled scenarios, to be edited at will."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pykernel import Inputs, Repos, load_bundle, open_inputs, rules
from pykernel.documents import coefficients, graph, hardware

Fresh = Callable[..., Inputs]


TESTDATA = Path(__file__).resolve().parents[2] / "testdata"


@cache
def _loaded(scenario: str, pool: int) -> Inputs:
    """A bundled scenario, or one of testdata, whose model may be there too; all else is bundled.

    Without the entries of other parts, which would only be validated again for every test.
    """
    kept = [path for folder in ("scenarios", "corpus") if (path := TESTDATA / folder / f"{scenario}.yaml").is_file()]
    documents = _kept(kept[0], pool) if kept else open_inputs(scenario, pool=pool)
    for entries in documents.coefficients:
        entries.coefficients = [
            entry
            for entry in entries.coefficients
            if not entry.scope.hardware or documents.chip.name in entry.scope.hardware
        ]
    documents.coefficients = [entries for entries in documents.coefficients if entries.coefficients]
    return documents


def _kept(path: Path, pool: int) -> Inputs:
    scenario, deployment = load_bundle(path)
    catalog, registry = Repos().catalog_root(), Repos().registry_root()
    own = TESTDATA / "models" / scenario.model / "graph.yaml"
    fabric = scenario.cluster.fabric
    return Inputs(
        scenario,
        deployment,
        pool,
        graph.load(own if own.is_file() else catalog / "models" / scenario.model / "graph.yaml"),
        hardware.load_chip(catalog / "hardware" / f"{scenario.cluster.hardware}.yaml"),
        hardware.load_fabric(catalog / "networks" / f"{fabric}.yaml") if fabric else None,
        coefficients=[coefficients.load(registry / "coefficients" / f"{name}.yaml") for name in scenario.coefficients],
        rules=rules(scenario.engine_version),
    )


def _fresh(scenario: str = "deepseek-v3-h200-fp8-tp8", pool: int = 0) -> Inputs:
    documents = copy.copy(_loaded(scenario, pool))
    for name in ("scenario", "deployment", "model", "chip", "fabric"):
        setattr(documents, name, copy.deepcopy(getattr(documents, name)))
    # A copy of every entry would take longer than most tests; the lists are new, the entries are shared.
    documents.coefficients = [copy.copy(entries) for entries in documents.coefficients]
    for entries in documents.coefficients:
        entries.coefficients = list(entries.coefficients)
    return documents


@pytest.fixture
def fresh() -> Fresh:
    """Makes the documents of a scenario anew; a coefficient entry is replaced, never edited."""
    return _fresh
