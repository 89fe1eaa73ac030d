"""Laws that every step's price obeys, over every pool of every bundled scenario.

Some hold for any batch and are tried on thousands of random ones; others compare two batches that differ in one way.
The numbers of the laws are those of laws_of_a_step/laws.csv. What only some layouts obey is tested beside that table,
prices themselves in test_golden.py.
"""

from __future__ import annotations

import copy
import itertools
import random
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest

from pykernel import RESOURCES, Batch, Inputs, Kernel, Request, StepEstimate
from tests.laws_of_a_step.kernels import (
    BUNDLED,
    BY_SETTING,
    CONTEXT,
    DEEPSEEK,
    POOLS,
    POOLS_AND_SETTINGS,
    SWITCHES,
    decodes,
    fresh,
    kernel_of,
    loaded,
    no_overlap,
    prefill,
    resource,
)

SEED = 20_31
DRAWN = 4_096
RANDOM_BATCHES = 10_000


def nodes(scenario: str, op: str) -> list[tuple[Any, int]]:
    """The nodes of one primitive in the stack, each with the number of layers that have it."""
    model = loaded(scenario).model
    layers = model.stack.layers()
    return [(node, layers.count(kind.id)) for kind in model.layer_kinds for node in kind.nodes if node.op == op]


def is_windowed(scenario: str) -> bool:
    """Whether a decode reads only part of a long context: a window, or the entries that an indexer chose."""
    return any(node.window or node.index_topk or node.kind == "swa" for node, _ in nodes(scenario, "Attention"))


def attends_plainly(scenario: str, pool: int) -> bool:
    """Whether attention reads its context by itself, no indexer before it, and no draft runs after the step."""
    attentions = [node for node, _ in nodes(scenario, "Attention")]
    speculates = loaded(scenario, pool).deployment.pools[pool].engine.speculative is not None
    return not speculates and not any(node.role or node.kind == "sparse_mla" for node in attentions)


def attends_in_every_layer(scenario: str) -> bool:
    """Whether each layer has one attention and nothing else that mixes tokens."""
    return all(
        [node.role for node in kind.nodes if node.op in ("Attention", "RecurrentUpdate")] == [""]
        and not any(node.op == "RecurrentUpdate" for node in kind.nodes)
        for kind in loaded(scenario).model.layer_kinds
    )


def is_moe(scenario: str) -> bool:
    return bool(nodes(scenario, "GroupedGEMM"))


def coefficient(scenario: str, name: str) -> float:
    """The value of an entry scoped by nothing but this scenario's chip, the last one counts; 0 without any."""
    documents = loaded(scenario)
    found = [
        entry.value
        for entries in documents.coefficients
        for entry in entries.coefficients
        if entry.name == name and documents.chip.name in entry.scope.hardware
    ]
    return found[-1] if found else 0.0


# ---- random batches ------------------------------------------------------------------------------------------------


@cache
def drawn() -> dict[str, memoryview]:
    """Columns to cut batches from: requests that all decode, and requests of which some prefill."""
    generator = random.Random(SEED)
    decoding = [generator.randint(1, 8) for _ in range(DRAWN)]
    mixed = [generator.choice((0, 1, 1, 1, 2, generator.randint(9, 512), 2_048)) for _ in range(DRAWN)]
    context = [generator.choice((0, generator.randint(0, 600), generator.randint(0, 131_072))) for _ in range(DRAWN)]
    return {
        name: memoryview(array("q", column))
        for name, column in zip(("decoding", "mixed", "context"), (decoding, mixed, context), strict=True)
    }


def random_batches(count: int, seed: int = SEED) -> Iterator[Batch]:
    """Batches of 0 to 512 requests, cut from the drawn columns."""
    columns, generator = drawn(), random.Random(seed)
    for _ in range(count):
        length = generator.choice((0, 1, 2, 8, 64, generator.randint(1, 512)))
        first, second = generator.randint(0, DRAWN - length), generator.randint(0, DRAWN - length)
        scheduled = columns[generator.choice(("decoding", "mixed"))][first : first + length]
        computed = columns["context"][second : second + length]
        yield Batch.from_arrays(
            scheduled,
            computed,
            computed,
            decode_threshold=generator.choice((0, 1, 8, 8)),
            sm_budget=generator.choice((0, 0, 8, 100)),
            pad_tokens=generator.choice((0, 0, 0, 3, 400)),
        )


@POOLS_AND_SETTINGS
def test_the_bounds_of_any_step_are_in_order(scenario: str, pool: int, setting: str) -> None:
    """Laws 1, 2, 3, 4 and 8."""
    kernel, estimate = kernel_of(scenario, pool, setting), StepEstimate()
    bottlenecks = set()
    for batch in random_batches(RANDOM_BATCHES if setting == "newest" else RANDOM_BATCHES // 50):
        kernel.step_time_into(batch, estimate)
        parts, total = estimate.per_resource_ns, estimate.no_overlap_ns
        bottlenecks.add(estimate.bottleneck)
        largest = parts[estimate.bottleneck]
        # The overlap bound is truncated once, a resource's share on its own: one nanosecond may lie between them.
        ordered = 0 < largest - 1 <= estimate.overlap_ns <= total == sum(parts.values())
        assert ordered and largest == max(parts.values()) and min(parts.values()) > 0, list(batch)
    assert len(bottlenecks) > 1, "the batches are too much alike to show anything"


@POOLS_AND_SETTINGS
def test_a_price_has_the_same_bits_again_and_in_every_thread(scenario: str, pool: int, setting: str) -> None:
    """Law 5."""
    kernel = kernel_of(scenario, pool, setting)
    batches = list(random_batches(150 if setting == "newest" else 30, seed=1))

    def prices() -> list[StepEstimate]:
        return [kernel.step_time(batch) for batch in batches]

    first = prices()
    assert prices() == first
    with ThreadPoolExecutor(8) as threads:
        for others in threads.map(lambda _: prices(), range(8)):
            assert others == first
    assert len({estimate.no_overlap_ns for estimate in first}) > len(batches) * 0.6


@POOLS
def test_the_order_of_requests_plays_no_part(scenario: str, pool: int) -> None:
    kernel, generator = kernel_of(scenario, pool), random.Random(2)
    for batch in random_batches(40, seed=2):
        requests = list(batch)
        generator.shuffle(requests)
        settings = {name: getattr(batch, name) for name in ("decode_threshold", "sm_budget", "pad_tokens")}
        assert kernel.step_time(Batch(requests, **settings)) == kernel.step_time(batch)


@POOLS
def test_only_scheduled_and_computed_are_read_of_a_request(scenario: str, pool: int) -> None:
    kernel, generator = kernel_of(scenario, pool), random.Random(3)
    for batch in random_batches(40, seed=3):
        settings = {name: getattr(batch, name) for name in ("decode_threshold", "sm_budget", "pad_tokens")}
        others = [
            Request(request.scheduled, request.computed, generator.randint(0, 10**6), generator.randint(0, 10**6))
            for request in batch
        ]
        assert kernel.step_time(Batch(others, **settings)) == kernel.step_time(batch)


@POOLS
def test_a_threshold_acts_by_comparison_alone(scenario: str, pool: int) -> None:
    kernel = kernel_of(scenario, pool)
    requests = [Request(2, 900, 1), Request(2, 90, 1), Request(64, 500, 1), Request(64, 0, 1)]
    alike = [kernel.step_time(Batch(requests, decode_threshold=threshold)) for threshold in (2, 3, 40, 63)]
    assert alike == [alike[0]] * 4
    assert kernel.step_time(Batch(requests, decode_threshold=64)) != alike[0]
    assert kernel.step_time(Batch(requests, decode_threshold=1)) != alike[0]
    assert kernel.step_time(Batch(requests, decode_threshold=64)) == kernel.step_time(
        Batch(requests, decode_threshold=10**12)
    )


@POOLS
def test_context_may_move_between_decodes_where_attention_is_full(scenario: str, pool: int) -> None:
    kernel = kernel_of(scenario, pool)
    even, ragged = ([Request(1, context, 1) for context in row] for row in ([5_000] * 4, [0, 100, 4_900, 15_000]))
    same = kernel.step_time(Batch(even)) == kernel.step_time(Batch(ragged))
    assert same is not is_windowed(scenario)


def test_some_scenario_has_windows_and_some_has_none() -> None:
    assert {is_windowed(scenario) for scenario, _ in BUNDLED} == {True, False}
    assert {is_moe(scenario) for scenario, _ in BUNDLED} == {True, False}
    assert len(PLAIN_POOLS) > 30 and len(ATTENDING_POOLS) > 25


# ---- the empty step, estimates that are used again -----------------------------------------------------------------


@POOLS_AND_SETTINGS
def test_an_idle_step_costs_the_host_alone(scenario: str, pool: int, setting: str) -> None:
    """Law 7."""
    kernel = kernel_of(scenario, pool, setting)
    idle = kernel.step_time(Batch())
    assert idle.per_resource_ns == {"host": idle.overlap_ns}
    assert idle.overlap_ns == idle.no_overlap_ns > 0
    assert idle.bottleneck == "host"
    assert idle.no_overlap_ns < resource(kernel, decodes(1), "host"), "launching kernels must cost something"
    assert kernel.step_time(Batch(pad_tokens=1)).per_resource_ns.keys() >= {"sm", "hbm", "host"}


@POOLS_AND_SETTINGS
def test_an_estimate_used_again_forgets_what_it_was(scenario: str, pool: int, setting: str) -> None:
    """Law 6."""
    kernel, estimate = kernel_of(scenario, pool, setting), StepEstimate()
    for batch in (decodes(32), Batch(), prefill(2_048), *random_batches(40, seed=4)):
        kernel.step_time_into(batch, estimate)
        assert estimate == kernel.step_time(batch)


@pytest.mark.parametrize("scenario", ["deepseek-v3-h200-fp8-tp8", "llama-3.1-8b-h100-tp1"])
@BY_SETTING
def test_an_estimate_wanders_between_kernels(scenario: str, setting: str) -> None:
    """Law 6."""
    estimate = StepEstimate()
    for kernel in (kernel_of("minimax-m2.5-h200-ep16", setting=setting), kernel_of(scenario, setting=setting)):
        kernel.step_time_into(decodes(32), estimate)
    assert estimate == kernel_of(scenario, setting=setting).step_time(decodes(32))
    assert "nic" not in estimate.per_resource_ns


# ---- more work never costs less ------------------------------------------------------------------------------------


def assert_rising(values: list[int], *, strictly: bool = False) -> None:
    assert all(low < high or (low == high and not strictly) for low, high in itertools.pairwise(values)), values


@POOLS_AND_SETTINGS
def test_more_decodes_never_cost_less(scenario: str, pool: int, setting: str) -> None:
    """Law 9."""
    kernel = kernel_of(scenario, pool, setting)
    assert_rising([no_overlap(kernel, decodes(count)) for count in (1, 2, 8, 32, 128, 512)])


@POOLS_AND_SETTINGS
def test_longer_contexts_cost_memory_time_and_no_arithmetic(scenario: str, pool: int, setting: str) -> None:
    """Laws 10 and 13."""
    kernel = kernel_of(scenario, pool, setting)
    batches = [decodes(64, context) for context in (1_024, 2_048, 8_192, 32_768, 131_072)]
    assert_rising([resource(kernel, batch, "hbm") for batch in batches], strictly=True)
    for name in ("sm", "nvlink", "nic", "host"):
        assert len({resource(kernel, batch, name) for batch in batches}) == 1, name


@POOLS_AND_SETTINGS
def test_more_tokens_of_each_request_never_cost_less(scenario: str, pool: int, setting: str) -> None:
    """Law 11."""
    kernel = kernel_of(scenario, pool, setting)
    assert_rising([no_overlap(kernel, decodes(32, tokens=tokens)) for tokens in (1, 2, 3, 5, 8)])


@POOLS_AND_SETTINGS
def test_batching_pays(scenario: str, pool: int, setting: str) -> None:
    """Law 12."""
    kernel = kernel_of(scenario, pool, setting)
    assert no_overlap(kernel, decodes(32)) < 2 * no_overlap(kernel, decodes(16))


@POOLS
def test_pad_tokens_never_cost_less_and_leave_attention_alone(scenario: str, pool: int) -> None:
    kernel = kernel_of(scenario, pool)
    requests = [Request(1, CONTEXT, 1)] * 8 + [Request(64, 128, 192)]
    padded = [kernel.step_time(Batch(requests, pad_tokens=pads)).per_resource_ns for pads in (0, 1, 7, 64, 150)]
    for name in RESOURCES:
        assert_rising([parts.get(name, 0) for parts in padded], strictly=name in ("sm", "hbm"))
    longer = [Request(1, 2 * CONTEXT, 1)] * 8 + [Request(64, 512, 576)]
    grown = [
        no_overlap(kernel, Batch(longer, pad_tokens=pads)) - no_overlap(kernel, Batch(requests, pad_tokens=pads))
        for pads in (0, 64)
    ]
    assert grown[0] == pytest.approx(grown[1], abs=4)


@POOLS
def test_pad_tokens_reach_what_tokens_reach_but_neither_head_nor_attention(scenario: str, pool: int) -> None:
    kernel = kernel_of(scenario, pool)
    real, padded = (
        kernel.step_time(batch).per_resource_ns
        for batch in (decodes(64), Batch(decodes(32), decode_threshold=8, pad_tokens=32))
    )
    assert all(padded.get(name, 0) <= ns for name, ns in real.items())
    assert padded["hbm"] < real["hbm"] and padded["sm"] <= real["sm"]


@POOLS_AND_SETTINGS
def test_withheld_sms_slow_arithmetic_alone(scenario: str, pool: int, setting: str) -> None:
    """Law 38."""
    kernel, count = kernel_of(scenario, pool, setting), loaded(scenario).chip.sm_count
    for requests in ([Request(1, CONTEXT, 1)] * 32, [Request(512, 512, 1_024)]):
        whole = kernel.step_time(Batch(requests))
        for budget in (-1, count, count + 1, 10**9):
            assert kernel.step_time(Batch(requests, sm_budget=budget)) == whole
        fewer = [kernel.step_time(Batch(requests, sm_budget=budget)) for budget in (count, count - 1, count // 2, 1)]
        assert_rising([estimate.per_resource_ns["sm"] for estimate in fewer], strictly=True)
        assert_rising([estimate.overlap_ns for estimate in fewer])
        for estimate in fewer:
            grown = {name: ns - whole.per_resource_ns[name] for name, ns in estimate.per_resource_ns.items()}
            assert {name for name, ns in grown.items() if ns} <= {"sm"}
            assert estimate.overlap_ns - whole.overlap_ns <= grown["sm"] + 1


@BY_SETTING
@pytest.mark.parametrize(("scenario", "grown"), [("minimax-m2.5-h200-ep8", 0.0091), (DEEPSEEK, 0.0160)])
def test_withholding_sms_hardly_slows_a_step_bound_by_memory(scenario: str, grown: float, setting: str) -> None:
    """Law 38. A tenth of the derate is 0.91 %; where ranks do not divide the experts' arithmetic, more of it shows."""
    kernel, batch = kernel_of(scenario, setting=setting), [Request(2, 8_190, 1)] * 32
    whole, fewer = (kernel.step_time(Batch(batch, decode_threshold=2, sm_budget=budget)) for budget in (0, 132 - 12))
    assert whole.bottleneck == "hbm"
    assert fewer.per_resource_ns["sm"] > whole.per_resource_ns["sm"]
    slower = fewer.overlap_ns / whole.overlap_ns - 1
    assert slower == pytest.approx(grown, abs=5e-4) if scenario == DEEPSEEK else slower < grown


# ---- attention -----------------------------------------------------------------------------------------------------


PLAIN_POOLS = [(scenario, pool) for scenario, pool in BUNDLED if attends_plainly(scenario, pool)]
ATTENDING_POOLS = [(scenario, pool) for scenario, pool in BUNDLED if attends_in_every_layer(scenario)]


@pytest.mark.parametrize(("scenario", "pool"), PLAIN_POOLS)
@BY_SETTING
def test_each_chunk_of_prefix_costs_the_same_arithmetic(scenario: str, pool: int, setting: str) -> None:
    """Law 29."""
    documents, kernel = loaded(scenario, pool), kernel_of(scenario, pool, setting)
    found = [resource(kernel, prefill(2_048, computed), "sm") for computed in range(2_048, 10_241, 2_048)]
    tp, chip, model = documents.deployment.pools[pool].parallel.tp, documents.chip, documents.model
    served = documents.deployment.pools[pool].engine.quantization or model.global_.weight_dtype
    suffix, tflops = next(
        (suffix, tflops)
        for suffix, tflops, formats in (
            ("nvfp4", chip.tflops_nvfp4, ("nvfp4", "mxfp4")),
            ("fp8", chip.tflops_fp8, ("nvfp4", "mxfp4", "fp8")),
            ("bf16", chip.tflops_peak, ("nvfp4", "mxfp4", "fp8", "bf16", "fp16")),
        )
        if tflops and served in formats
    )
    m_half = coefficient(scenario, f"gemm_m_half_{suffix}")
    rate = tflops * 1e12 * coefficient(scenario, f"gemm_eps_max_{suffix}") * 2_048 / (2_048 + m_half)
    rate *= coefficient(scenario, "attention_prefill_work_scale")
    flops = sum(
        4 * 2_048 * 2_048 * node.n_q * node.d_h * layers
        for node, layers in nodes(scenario, "Attention")
        if not node.window
    )
    for shorter, longer in itertools.pairwise(found):
        assert longer - shorter == pytest.approx(flops / tp / rate * 1e9, abs=2)


@pytest.mark.parametrize(("scenario", "pool"), ATTENDING_POOLS)
@BY_SETTING
def test_attention_costs_its_floor_in_every_layer(scenario: str, pool: int, setting: str) -> None:
    """Law 30."""
    kernel = kernel_of(scenario, pool, setting)
    layers = sum(count for _, count in nodes(scenario, "Attention"))
    assert layers == loaded(scenario).model.stack.layer_count()
    floor_ns = coefficient(scenario, "attention_prefill_floor") * 1_000
    assert resource(kernel, prefill(9), "sm") >= floor_ns * layers > 0
    floors = {
        node.kind: coefficient(scenario, f"attention_decode_floor_{node.kind}")
        or coefficient(scenario, "attention_decode_floor")
        for node, _ in nodes(scenario, "Attention")
    }
    floor_ns = sum(floors[node.kind] * 1_000 * count for node, count in nodes(scenario, "Attention"))
    assert resource(kernel, decodes(1), "hbm") >= floor_ns > 0


def test_a_window_bounds_what_a_decode_reads() -> None:
    scenario = "gpt-oss-120b-h100-fp4-tp2"
    kernel = kernel_of(scenario)
    window = next(node.window for node, _ in nodes(scenario, "Attention") if node.window)
    growth = [
        resource(kernel, decodes(64, context + 64), "hbm") - resource(kernel, decodes(64, context), "hbm")
        for context in (window - 64, window, 4 * window, 64 * window)
    ]
    assert growth[0] > growth[1]
    assert growth[1] == pytest.approx(growth[2], abs=2)
    assert growth[2] == pytest.approx(growth[3], abs=2)


# ---- experts -------------------------------------------------------------------------------------------------------


@POOLS_AND_SETTINGS
def test_routed_experts_stand_outside_the_overlap(scenario: str, pool: int, setting: str) -> None:
    """Law 34."""
    estimate = kernel_of(scenario, pool, setting).step_time(decodes(32))
    host = estimate.per_resource_ns["host"]
    gpu = estimate.overlap_ns - host
    largest = max(ns for name, ns in estimate.per_resource_ns.items() if name != "host")
    assert (gpu > largest + 1_000) is is_moe(scenario)
    assert gpu < estimate.no_overlap_ns - host


def unevenly_routed(documents: Inputs, factor: float, setting: str) -> Kernel:
    """A kernel of the same deployment whose routing is that uneven."""
    variant = copy.deepcopy(documents)
    for entries in variant.coefficients:
        for entry in entries.coefficients:
            if entry.name == "moe_routing_imbalance_median":
                entry.value, entry.ci95 = factor, None
    return Kernel(variant, switches=SWITCHES[setting])


def routed_arithmetic(documents: Inputs, batch: Batch, setting: str) -> float:
    """Arithmetic of the routed experts, ns: what one more of the factor on it adds."""
    even, twice = (unevenly_routed(documents, factor, setting) for factor in (1.0, 2.0))
    return resource(twice, batch, "sm") - resource(even, batch, "sm")


@BY_SETTING
@pytest.mark.parametrize("scenario", [DEEPSEEK, "minimax-m2.5-h200-ep16", "llama-3.1-70b-h100-fp8-tp4"])
def test_uneven_routing_costs_arithmetic_and_no_memory_time(scenario: str, setting: str) -> None:
    """Law 35."""
    even, uneven = (
        unevenly_routed(loaded(scenario), factor, setting).step_time(decodes(32)).per_resource_ns
        for factor in (1.0, 1.5)
    )
    assert (uneven["sm"] > even["sm"]) is is_moe(scenario)
    assert uneven | {"sm": 0} == even | {"sm": 0}
    routed = routed_arithmetic(loaded(scenario), decodes(32), setting)
    assert uneven["sm"] - even["sm"] == pytest.approx(routed / 2, abs=2)


@BY_SETTING
def test_tensor_parallelism_does_not_divide_routed_arithmetic(setting: str) -> None:
    """Law 36."""
    four = fresh(DEEPSEEK)
    four.deployment.pools[0].parallel.tp = 4
    found = [routed_arithmetic(documents, decodes(32), setting) for documents in (loaded(DEEPSEEK), four)]
    assert found[0] > 1_000_000
    assert found[0] == pytest.approx(found[1], abs=2)


@BY_SETTING
def test_expert_parallelism_divides_routed_arithmetic(setting: str) -> None:
    """Law 36, the other side."""
    sliced, whole = (
        routed_arithmetic(loaded(scenario), decodes(512), setting)
        for scenario in ("minimax-m2.5-h200-tp8", "minimax-m2.5-h200-ep8")
    )
    assert sliced == pytest.approx(8 * whole, abs=16)


# ---- host ----------------------------------------------------------------------------------------------------------


@POOLS_AND_SETTINGS
def test_dispatching_kernels_costs_the_same_in_every_step(scenario: str, pool: int, setting: str) -> None:
    """Law 39."""
    kernel = kernel_of(scenario, pool, setting)
    dispatch = resource(kernel, decodes(1), "host") - no_overlap(kernel, Batch())
    assert {resource(kernel, decodes(count, context), "host") for count in (1, 7, 99) for context in (9, 9_999)} == {
        no_overlap(kernel, Batch()) + dispatch
    }
    other = [resource(kernel, batch, "host") for batch in (prefill(2_048), prefill(4_096, 77), decodes(1_000, 17))]
    assert len(set(other)) == 1, "wider than any graph, so launched alike"


# ---- the largest batches -------------------------------------------------------------------------------------------


@POOLS
def test_the_largest_batches_have_a_price(scenario: str, pool: int) -> None:
    kernel = kernel_of(scenario, pool)
    longest = 2**30
    for requests in (
        [Request(longest, 0, 0)],
        [Request(1, longest - 1, 0)] * 1_000,
        [Request(longest // 2, longest // 2, 0)] * 2,
        [Request(longest - 1, 1, 0)],
    ):
        estimate = kernel.step_time(Batch(requests))
        assert 0 < estimate.overlap_ns <= estimate.no_overlap_ns == sum(estimate.per_resource_ns.values())
        assert estimate.no_overlap_ns < 2**62, "far from where durations saturate"
    assert no_overlap(kernel, Batch(pad_tokens=longest)) > no_overlap(kernel, Batch(pad_tokens=longest - 1_000))
