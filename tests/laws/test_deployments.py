"""The laws hold on deployments that no bundled scenario has: shared caches, drafts, modes of state, stated caches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import pykernel
from pykernel.documents import Eplb, Inputs, Speculative
from pykernel.laws import LAWS, check_model
from pykernel.laws.subject import settle

from .mutants.making import DENSE, DRAFTS, EXPERTS, LATENT, PAIR, RECURRENT, states_rings


def drafting(inputs: Inputs, tokens: int) -> None:
    assert inputs.model is not None and inputs.model.speculator is not None
    settle(inputs, speculative=Speculative(inputs.model.speculator.method, tokens) if tokens else None)


def second_pool(inputs: Inputs) -> None:
    inputs.pool = 1


UNSET: dict[str, Any] = {
    "block_size": 0,
    "cudagraph_mode": "",
    "max_num_batched_tokens": 0,
    "max_num_seqs": 0,
    "max_model_len": 0,
}

DEPLOYMENTS: dict[str, tuple[str, Callable[[Inputs], None], str]] = {
    "stated caches": (DENSE, states_rings, "QG"),
    "no drafts": (DRAFTS, partial(drafting, tokens=0), "G"),
    "three drafts": (DRAFTS, partial(drafting, tokens=3), "BG"),
    "two decode-context ranks": ("minimax-m2.5-h200-tp8", partial(settle, dcp=2), "Q"),
    "eight decode-context ranks": (LATENT, partial(settle, dcp=8), "BQ"),
    "scorers on eight": ("glm-5.3-b200-tp8", partial(settle, dcp=8), "B"),
    "two prefill-context ranks": (LATENT, partial(settle, pcp=2), "B"),
    "a cache of 16 bits": (LATENT, partial(settle, cache_dtype="auto"), "Q"),
    "states with each block": (RECURRENT, partial(settle, mamba_cache_mode="all"), "QG"),
    "one state": (RECURRENT, partial(settle, mamba_cache_mode="none", enable_prefix_caching=False), "QG"),
    "replicas of experts": (EXPERTS, partial(settle, eplb=Eplb(True, 16, 1000, 3000)), "F"),
    "no expert parallelism": (EXPERTS, partial(settle, enable_expert_parallel=False), "F"),
    "no graphs": (DENSE, partial(settle, cudagraph_mode="NONE"), "SM"),
    "nothing stated": (DENSE, partial(settle, **UNSET), "FR"),
    "the second pool": (PAIR, second_pool, "XRD"),
}
"""Scenario, what is changed in it, and the families of laws that look there."""


def held(name: str, laws: list[str]) -> str:
    scenario, change, _ = DEPLOYMENTS[name]
    inputs = pykernel.open_inputs(scenario)
    change(inputs)
    report = check_model(pykernel.new(inputs), factory="blis", inputs=inputs, laws=laws)
    return "" if report.ok else str(report)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_laws_that_look_there_hold(name: str) -> None:
    assert held(name, [id for id in LAWS if id[0] in DEPLOYMENTS[name][2]]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_all_laws_hold(name: str) -> None:
    assert held(name, list(LAWS)) == ""
