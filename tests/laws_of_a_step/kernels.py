"""Kernels for tests of laws: any pool of any scenario, its documents edited by name, under any setting of the switches.

Apart from the tests because several files share them, and because a kernel is worth keeping: most tests price a few
batches on one of a few hundred.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from pykernel import Batch, Inputs, Kernel, Request, load_bundle
from pykernel.documents import find_scenario, list_scenarios
from pykernel.switches import NEWEST, REFERENCE, LawSwitches
from tests.published.fixtures import scenario
from tests.published.vectors import NEMOTRON, QWEN, V4

DEEPSEEK, GLM, EP16 = "deepseek-v3-h200-fp8-tp8", "glm-5-h200-tp8", "minimax-m2.5-h200-ep16"
CONTEXT = 4_096

SWITCHES: dict[str, LawSwitches] = {
    "newest": NEWEST,
    "reference": REFERENCE,
    "head_on_sampled_rows off": replace(NEWEST, head_on_sampled_rows=False),
    "vocabulary_gather off": replace(NEWEST, vocabulary_gather=False),
    "unquantized_head off": replace(NEWEST, unquantized_head=False),
}
"""Both published generations of the laws, and the newest with one of the switches that reach a step turned off."""

BY_SETTING = pytest.mark.parametrize("setting", SWITCHES)

BUNDLED = [(name, pool) for name in list_scenarios() for pool in range(len(load_bundle(find_scenario(name))[1].pools))]
POOLS = pytest.mark.parametrize(("scenario", "pool"), BUNDLED)
"""Every pool of every bundled scenario."""

KINDS = [
    *((name, 0) for name in (DEEPSEEK, GLM, EP16, NEMOTRON, V4, QWEN, "gpt-oss-120b-h100-fp4-tp2")),
    *(("minimax-m2.5-h200-disagg", pool) for pool in (0, 1)),
    *((name, 0) for name in ("minimax-m2.5-gb300-tp4", "minimax-m2.5-b200-fp4-tp2-ep4-dp2", "qwen3-30b-a3b-h200-dp4")),
    *(
        (name, 0)
        for name in (
            "llama-3.1-70b-h100-fp8-tp4",
            "llama-3.1-8b-h100-tp1",
            "kimi-k3-b300-tp8",
            "glm-5.3-flash-h200-tp4",
        )
    ),
]
EVERY_KIND = pytest.mark.parametrize(("scenario", "pool"), KINDS)
"""Pools that have every kind of layer, layout and part between them."""

POOLS_AND_SETTINGS = pytest.mark.parametrize(
    ("scenario", "pool", "setting"),
    [(*pool, "newest") for pool in BUNDLED] + [(*pool, setting) for setting in list(SWITCHES)[1:] for pool in KINDS],
)
"""Every pool at the newest setting; at the others, pools of every kind."""


@cache
def loaded(name: str, pool: int = 0) -> Inputs:
    """The documents of a pool without the coefficients of other parts; shared by the tests, so never edited."""
    inputs = scenario(name, pool)
    for entries in inputs.coefficients:
        entries.coefficients = [
            entry
            for entry in entries.coefficients
            if not entry.scope.hardware or inputs.chip.name in entry.scope.hardware
        ]
    inputs.coefficients = [entries for entries in inputs.coefficients if entries.coefficients]
    return inputs


def fresh(name: str, pool: int = 0) -> Inputs:
    """The same documents, to be edited at will."""
    return copy.deepcopy(loaded(name, pool))


@cache
def kernel_of(name: str, pool: int = 0, setting: str = "newest") -> Kernel:
    return Kernel(loaded(name, pool), switches=SWITCHES[setting])


def widened(name: str, **widths: int) -> Inputs:
    """The documents with other parallel widths, on as many nodes as those need."""
    inputs = fresh(name)
    pool, cluster = inputs.deployment.pools[0], inputs.scenario.cluster
    for axis, width in widths.items():
        setattr(pool.parallel, axis, width)
    ranks = pool.parallel.tp * pool.parallel.dp * max(pool.parallel.pcp, 1)
    pool.nodes = cluster.nodes = -(-ranks // cluster.gpus_per_node)
    inputs.fabric, cluster.fabric = loaded(EP16).fabric, "ib-400g"
    return inputs


def edited(name: str, edit: Callable[[Inputs], object], setting: str = "newest") -> Kernel:
    inputs = fresh(name)
    edit(inputs)
    return Kernel(inputs, switches=SWITCHES[setting])


def decodes(count: int, context: int = CONTEXT, tokens: int = 1) -> Batch:
    return Batch([Request(tokens, context - tokens, context)] * count, decode_threshold=8)


def prefill(tokens: int, computed: int = 0, **settings: int) -> Batch:
    return Batch([Request(tokens, computed, tokens + computed)], **settings)


def resource(kernel: Kernel, batch: Batch, name: str) -> int:
    """Its share of a step, ns; 0 where it has none."""
    return kernel.step_time(batch).per_resource_ns.get(name, 0)


def no_overlap(kernel: Kernel, batch: Batch) -> int:
    return kernel.step_time(batch).no_overlap_ns


def kernel_terms(kernel: Kernel, batch: Batch, *words: str) -> list[tuple[str, float]]:
    """What the step does that has all of the words in its name, each with its bytes in all layers of its kind."""
    return [
        (term.what, term.bytes * term.layers)
        for term in kernel.explain(batch).terms
        if all(word in term.what for word in words)
    ]
