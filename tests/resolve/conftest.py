"""Documents for the tests of resolution: those of bundled scenarios, to be edited at will."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import pytest

from pykernel import Inputs, open_inputs

Fresh = Callable[..., Inputs]


@cache
def _loaded(scenario: str, pool: int) -> Inputs:
    """Without the entries of other parts, which would only be validated again for every test."""
    documents = open_inputs(scenario, pool=pool)
    for entries in documents.coefficients:
        entries.coefficients = [
            entry
            for entry in entries.coefficients
            if not entry.scope.hardware or documents.chip.name in entry.scope.hardware
        ]
    documents.coefficients = [entries for entries in documents.coefficients if entries.coefficients]
    return documents


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
