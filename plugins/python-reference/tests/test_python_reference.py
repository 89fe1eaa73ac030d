"""The reference model against the built-in kernel on five scenarios, in every method, and pykernel's laws on it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from pykernel_python_reference.model import PythonReference

import pykernel
from pykernel import Batch, CostModel, Inputs, Placement, Request
from pykernel.documents import Cache, list_scenarios
from pykernel.laws import REPRESENTATIVE, check_model

TOLERANCE_NS = 2
"""The core adds up doubles, the reference fractions."""


@pytest.fixture(params=REPRESENTATIVE)
def inputs(request: pytest.FixtureRequest) -> Inputs:
    return pykernel.open_inputs(request.param)


def drawn(draw: random.Random, threshold: int) -> Batch:
    """Some decodes and chunks of prefills, with pad tokens or withheld SMs now and then."""
    work = [(1, draw.randint(0, 40_000)) for _ in range(draw.choice((0, 1, 7, 64)))]
    work += [(draw.randint(2, 3000), draw.choice((0, 5000))) for _ in range(draw.randint(0, 3))]
    return Batch(
        [Request(scheduled, computed, scheduled + computed) for scheduled, computed in work],
        decode_threshold=threshold,
        sm_budget=draw.choice((0, 0, 100)),
        pad_tokens=draw.choice((0, 0, 16)),
    )


def test_steps_are_those_of_the_kernel(inputs: Inputs) -> None:
    kernel, reference, draw = pykernel.new(inputs), PythonReference(inputs), random.Random(1)
    for _ in range(40):
        batch = drawn(draw, kernel.decode_threshold())
        ours, theirs = reference.step_time(batch), kernel.step_time(batch)
        for name in {*ours.per_resource_ns, *theirs.per_resource_ns}:
            assert abs(ours.per_resource_ns.get(name, 0) - theirs.per_resource_ns.get(name, 0)) <= TOLERANCE_NS
        assert abs(ours.overlap_ns - theirs.overlap_ns) <= 2 * TOLERANCE_NS
        assert abs(ours.no_overlap_ns - theirs.no_overlap_ns) <= 4 * TOLERANCE_NS
        assert ours.bottleneck == theirs.bottleneck


def answers(model: CostModel) -> dict[str, object]:
    """Everything but the steps."""
    here, there = Placement(0, 0), [Placement(0, 0), Placement(1, 0), Placement(4, 2)]
    tokens = (-1, 0, 1, 15, 16, 17, 127, 128, 129, 4096, 131_072, 2**62)
    capacity = model.kv_capacity()
    return {
        "fixed": model.fixed_bytes(),
        "outside": model.pre_snapshot_bytes(),
        "growing": [model.sequence_variable_bytes(count) for count in tokens],
        "bounded": [model.sequence_bounded_bytes_at(count, 9) for count in tokens],
        "kept": (model.sequence_fixed_bytes(), model.sequence_admission_bytes(), model.sequence_bounded_bytes(64)),
        "longest": [model.max_tokens_for(size) for size in (0, 10**6, 10**9, 10**12)],
        "capacity": (capacity, capacity.sequences(5000)),
        "tiers": [
            model.tier_time_ns(tier, way, size, depth)
            for tier in ("cpu_dram", "nvme_gen4", "nowhere")
            for way in ("to_tier", "from_tier")
            for size in (0, 4096, 67_108_864)
            for depth in (1, 8)
        ],
        "handoffs": [model.pd_transfer_demand(count, here, place) for count in tokens for place in there],
        "handoff times": [model.pd_transfer_time_ns(count, here, place) for count in tokens for place in there],
        "host": [model.admission_overhead_ns(count) for count in tokens],
        "after": (model.output_token_overhead_ns(), model.completion_overhead_ns()),
        "about": (model.provenance(), model.resolved(), model.deployment(), model.evidence()),
        "graphs": (model.capture_tokens(), model.graph_modes(), model.decode_threshold()),
        "context": (model.decode_context_parallel_width(), model.prefill_context_parallel_width()),
    }


def test_everything_else_is_that_of_the_kernel(inputs: Inputs) -> None:
    ours, theirs = answers(PythonReference(inputs)), answers(pykernel.new(inputs))
    for name, expected in theirs.items():
        assert ours[name] == expected, name


def with_stated_caches() -> Inputs:
    """Entries that grow, a ring and a page of state, of which tensor-parallel ranks divide the first."""
    inputs = pykernel.open_inputs("gpt-oss-120b-h100-fp4-tp2")
    inputs.model.caches = [
        Cache("all", "growing", layers=18, entry_bytes=1001.5, heads=8),
        Cache("window", "ring", layers=18, entry_bytes=513, window=1000, block=32, shards=[]),
        Cache("state", "fixed", layers=18, page_bytes=12_345, shards=[]),
    ]
    return inputs


def with_a_fast_tier() -> Inputs:
    """A tier that the host's link bounds."""
    inputs = pykernel.open_inputs("qwen3-14b-h100-tp1")
    for tier in inputs.storage:
        tier.read_bandwidth_mb_s *= 100
    return inputs


def with_an_open_block() -> Inputs:
    """A hybrid of latent attention and recurrent mixers whose block the engine chooses."""
    inputs = pykernel.open_inputs("kimi-k3-b300-tp8")
    inputs.deployment.pools[inputs.pool].engine.block_size = 0
    return inputs


@pytest.mark.parametrize("made", [with_stated_caches, with_a_fast_tier, with_an_open_block])
def test_so_it_is_for_what_those_scenarios_do_not_have(made: Callable[[], Inputs]) -> None:
    ours, theirs = answers(PythonReference(made())), answers(pykernel.new(made()))
    for name, expected in theirs.items():
        assert ours[name] == expected, name


def test_a_model_that_does_not_fit_has_no_capacity(inputs: Inputs) -> None:
    reference, kernel = PythonReference(inputs), pykernel.new(inputs)
    fixed = kernel.fixed_bytes().total
    for model in (reference, kernel):
        with pytest.raises(pykernel.RefusedError):
            model.kv_capacity(gpu_memory_bytes=fixed)
        with pytest.raises(pykernel.ArgumentError):
            model.kv_capacity(gpu_memory_utilization=1.5)


def test_it_is_found_by_name() -> None:
    inputs = pykernel.open_inputs("qwen3-14b-h100-tp1")
    assert isinstance(pykernel.new(inputs, model="python-reference"), PythonReference)


def test_it_holds_the_laws(inputs: Inputs) -> None:
    report = check_model(PythonReference(inputs), factory=PythonReference, inputs=inputs)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted({*list_scenarios()} - {*REPRESENTATIVE}))
def test_it_holds_the_laws_everywhere(scenario: str) -> None:
    inputs = pykernel.open_inputs(scenario)
    report = check_model(PythonReference(inputs), factory=PythonReference, inputs=inputs)
    assert report.ok, str(report)
