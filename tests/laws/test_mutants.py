"""Every broken model is caught by the laws meant for it, and every contract law catches one."""

from __future__ import annotations

import copy
from functools import lru_cache

import pytest

import pykernel
from pykernel.documents import Inputs
from pykernel.laws import check_model

from .mutants import MUTANTS, Mutant


@lru_cache(maxsize=8)
def documents(scenario: str) -> Inputs:
    inputs = pykernel.open_inputs(scenario)
    if len(inputs.deployment.pools) > 1:
        inputs.pool = 1
    return inputs


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_law_meant_for_a_mutant_kills_it(mutant: Mutant) -> None:
    inputs = copy.deepcopy(documents(mutant.scenario))  # some mutants spoil the documents
    report = check_model(mutant.build(inputs), factory=mutant.build, inputs=inputs, laws=mutant.laws)
    survived = set(mutant.laws) - {violation.law for violation in report.violations}
    assert survived == set(), [str(skip) for skip in report.skipped]
