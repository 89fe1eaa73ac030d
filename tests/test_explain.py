"""Why a step costs what it does: the terms add up to the price, and each says what it is and what it rests on.

What one coefficient may move among the terms is tested in test_inflation.py, the command's page in
cli/test_explain.py.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from pykernel import RESOURCES, Batch, BatchError, Kernel, Request
from pykernel._native import ffi, lib
from pykernel.documents import Coefficient, Inputs, Scope, Speculative
from pykernel.explain import Term
from pykernel.switches import REFERENCE
from tests.laws_of_a_step.kernels import (
    BY_SETTING,
    DEEPSEEK,
    EVERY_KIND,
    GLM,
    decodes,
    fresh,
    kernel_of,
    prefill,
)
from tests.published.fixtures import without_latent_norm_bytes

MIXED = Batch(
    [Request(1, 4_095, 1), Request(3, 5_000, 1), Request(0, 0, 0), Request(700, 0, 700), Request(512, 8_192, 512)],
    decode_threshold=8,
    sm_budget=60,
    pad_tokens=5,
)
BATCHES = [Batch(), Batch(pad_tokens=7), decodes(1), decodes(32, tokens=2), prefill(2_048), MIXED]


def drafting() -> Kernel:
    inputs = fresh(DEEPSEEK)
    inputs.deployment.pools[0].engine.speculative = Speculative("deepseek_mtp", 3)
    return Kernel(inputs)


# ---- adding up -----------------------------------------------------------------------------------------------------


@EVERY_KIND
@BY_SETTING
def test_terms_add_up_to_each_resource_of_the_price(scenario: str, pool: int, setting: str) -> None:
    kernel = kernel_of(scenario, pool, setting)
    for batch in BATCHES:
        explanation = kernel.explain(batch)
        assert explanation.estimate == kernel.step_time(batch)
        sums: dict[str, list[int]] = defaultdict(list)
        for term in explanation.terms:
            assert term.resource in RESOURCES and 0 <= term.ns <= term.total_ns > 0
            assert -1 <= term.total_ns - term.ns * term.layers <= term.layers
            sums[term.resource].append(term.total_ns)
        priced = explanation.estimate.per_resource_ns
        assert set(sums) == set(priced)
        for resource, parts in sums.items():
            # Each term is cut off for itself, the step's sum once.
            assert -1 <= priced[resource] - sum(parts) <= len(parts), resource


def raw_terms(kernel: Kernel, batch: Batch, room: int | None = None) -> tuple[Any, int]:
    """The core's own terms, in an array of `room` terms (by default as many as there are), and how many there are."""
    count = ffi.new("size_t *")
    assert lib.pk_step_explain(kernel._handle, batch.struct, ffi.NULL, 0, count, ffi.NULL) == lib.PK_OK
    room = count[0] if room is None else room
    terms = ffi.new("pk_term[]", max(room, 1))
    assert lib.pk_step_explain(kernel._handle, batch.struct, terms, room, count, ffi.NULL) == lib.PK_OK
    return terms, count[0]


@EVERY_KIND
def test_seconds_of_the_terms_sum_to_the_price_within_a_nanosecond(scenario: str, pool: int) -> None:
    kernel = kernel_of(scenario, pool)
    for batch in BATCHES:
        terms, count = raw_terms(kernel, batch)
        seconds: dict[str, float] = defaultdict(float)
        for term in terms[0:count]:
            seconds[RESOURCES[term.resource]] += term.times * term.seconds
        priced = kernel.step_time(batch).per_resource_ns
        found = {name: lib.pk_nanoseconds(total) for name, total in seconds.items()}
        assert found == pytest.approx(priced, abs=1)


@EVERY_KIND
def test_no_term_is_cheaper_than_its_floor_or_faster_than_the_part(scenario: str, pool: int) -> None:
    kernel = kernel_of(scenario, pool)
    for batch in BATCHES:
        for term in kernel.explain(batch).terms:
            assert 0 <= term.floor_ns <= term.ns, term
            assert term.flops >= 0 and term.bytes >= 0 and 0 <= term.efficiency < 1, term
            assert (term.efficiency > 0) is (term.flops > 0), term
            assert (term.launches > 0) is (" over " in term.what or "logits" in term.what), term


# ---- what a term rests on ------------------------------------------------------------------------------------------


@EVERY_KIND
@BY_SETTING
def test_every_term_names_coefficients_that_are_in_scope(scenario: str, pool: int, setting: str) -> None:
    kernel = kernel_of(scenario, pool, setting)
    known = set(kernel.provenance())
    for batch in BATCHES:
        for term in kernel.explain(batch).terms:
            assert term.coefficients, term
            assert set(term.coefficients) <= known
            assert len({origin.name for origin in term.coefficients}) == len(term.coefficients), "named twice"


GEMM = {"gemm_eps_max_fp8", "gemm_m_half_fp8"}
MEMORY = {"hbm_derate"}
RATES = {
    operation: {f"collective_{part}_{operation}_fp16_8rank_h200" for part in ("floor", "transition_rate", "peak_rate")}
    for operation in ("all_reduce", "all_gather")
}
USED = {
    "dense arithmetic": GEMM,
    "prefill attention (mla)": GEMM | {"attention_prefill_floor", "attention_prefill_work_scale"},
    "decode attention (mla)": {"attention_decode_floor_mla", "attention_decode_rate_mla"},
    "weights read": MEMORY,
    "norms and elementwise": MEMORY,
    "routed experts, arithmetic": GEMM | {"moe_routing_imbalance_median"},
    "routed experts, weights read": MEMORY,
    "all_reduce over tensor": RATES["all_reduce"],
    "all_gather of the logits": RATES["all_gather"],
    "launching the step": {"host_launch_eager_per_layer"},
    "dispatching kernels": {"host_launch_per_kernel"},
}


def test_terms_of_a_mixed_step_name_exactly_what_they_use() -> None:
    batch = Batch([*decodes(32), Request(512, 64, 1)], decode_threshold=8)
    terms = kernel_of(DEEPSEEK).explain(batch).terms
    assert {term.what for term in terms} == set(USED)
    for term in terms:
        assert {origin.name for origin in term.coefficients} == USED[term.what]


@pytest.mark.parametrize(
    ("mode", "batch", "used"),
    [
        ("FULL_AND_PIECEWISE", decodes(8), "host_replay_graph_per_step"),
        ("FULL_AND_PIECEWISE", prefill(100), "host_replay_graph_per_step"),
        ("FULL_AND_PIECEWISE", decodes(513), "host_launch_eager_per_layer"),
        ("FULL_DECODE_ONLY", prefill(100), "host_launch_eager_per_layer"),
        ("NONE", decodes(8), "host_launch_eager_per_layer"),
        ("NONE", Batch(), "host_launch_eager_per_layer"),
        ("FULL", Batch(), "host_replay_graph_per_step"),
    ],
)
def test_launching_names_the_cost_of_the_way_it_is_launched(mode: str, batch: Batch, used: str) -> None:
    inputs = fresh(DEEPSEEK)
    inputs.deployment.pools[0].engine.cudagraph_mode = mode
    [launch] = [term for term in Kernel(inputs).explain(batch).terms if term.what == "launching the step"]
    assert [origin.name for origin in launch.coefficients] == [used]


SHAPE = {"gemm_n_half_fp8", "gemm_k_half_fp8"}


def shaped(inputs: Inputs) -> Inputs:
    """The same deployment with a shape-aware ramp."""
    inputs.coefficients[0].coefficients += [
        Coefficient(name, 300.0, "dimensionless", "measured", False, Scope(hardware=[inputs.chip.name]))
        for name in SHAPE
    ]
    return inputs


def test_a_shape_aware_ramp_is_named_where_shapes_count() -> None:
    by_shape = {
        (term.layer, term.what)
        for term in Kernel(shaped(fresh(DEEPSEEK))).explain(MIXED).terms
        if SHAPE & {origin.name for origin in term.coefficients}
    }
    assert by_shape == {("attn_dense", "dense arithmetic"), ("attn_moe", "dense arithmetic")}


def test_a_shape_aware_ramp_changes_how_fast_work_runs_and_not_how_much_there_is() -> None:
    inputs = shaped(fresh(DEEPSEEK))
    plain, by_shape = kernel_of(DEEPSEEK).explain(MIXED).terms, Kernel(inputs).explain(MIXED).terms
    assert [term.flops for term in by_shape] == pytest.approx([term.flops for term in plain])
    slower = {term.layer for term, before in zip(by_shape, plain, strict=True) if term.efficiency < before.efficiency}
    assert slower == {"attn_dense", "attn_moe"}
    peak = inputs.chip.tflops_fp8 * 1e12
    for term in by_shape:
        if term.what == "dense arithmetic":
            assert term.flops / (peak * term.efficiency) == pytest.approx((term.ns - term.floor_ns) / 1e9, rel=1e-3)


def test_decodes_without_a_rate_name_the_memory_that_they_are_priced_by() -> None:
    inputs = fresh(DEEPSEEK)
    for source in inputs.coefficients:
        source.coefficients = [one for one in source.coefficients if not one.name.startswith("attention_decode_rate")]
    for term in Kernel(inputs).explain(decodes(32)).terms:
        if term.what == "decode attention (mla)":
            assert term.floor_ns == 0
            assert [origin.name for origin in term.coefficients] == ["attention_decode_rate", "hbm_derate"]


# ---- the published example -----------------------------------------------------------------------------------------

# Microseconds of one layer, as worked out by hand from the laws: dense layer, MoE layer, head. The two equal
# all-reduces of a layer are one term of two launches.
DENSE, MOE, HEAD = (
    {"dense arithmetic": 14.5211, "weights read": 18.9931, "norms and elementwise": 0.1195,
     "decode attention (mla)": 39.2847, "all_reduce over tensor": 18.2210},
    {"dense arithmetic": 5.7527, "weights read": 7.5243, "norms and elementwise": 0.1195,
     "decode attention (mla)": 39.2847, "routed experts, arithmetic": 70.0776,
     "routed experts, weights read": 234.1267, "all_reduce over tensor": 18.2210},
    {"dense arithmetic": 23.0629, "weights read": 30.1653},
)  # fmt: skip


def example_terms() -> tuple[Term, ...]:
    """Of 32 decodes at context 4,096, under the settings of the older figures."""
    inputs = without_latent_norm_bytes(fresh(DEEPSEEK))
    return Kernel(inputs, switches=REFERENCE).explain(decodes(32)).terms


def test_terms_of_the_published_example_have_their_values() -> None:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for term in example_terms():
        found[term.layer][term.what] = term.ns / 1e3
    for layer, expected in (("attn_dense", DENSE), ("attn_moe", MOE), ("head", HEAD)):
        assert found[layer] == pytest.approx(expected, abs=1.1e-3), layer
    assert found["host"] == {"launching the step": 434.0, "dispatching kernels": 3_110.399}
    assert {(term.layer, term.layers) for term in example_terms()} == {
        ("attn_dense", 3), ("attn_moe", 58), ("head", 1), ("host", 1),
    }  # fmt: skip


def test_floors_launches_and_work_of_the_published_example() -> None:
    by_name = {(term.layer, term.what): term for term in example_terms()}
    attention, reduction = by_name["attn_moe", "decode attention (mla)"], by_name["attn_moe", "all_reduce over tensor"]
    assert attention.floor_ns == 13_500 and attention.bytes == pytest.approx(32 * 4_096 * 576)
    assert (reduction.floor_ns, reduction.launches, reduction.bytes) == (2 * 4_710, 2, 2 * 32 * 7_168 * 2)
    experts = by_name["attn_moe", "routed experts, weights read"]
    assert experts.bytes == pytest.approx(256 * (1 - (248 / 256) ** 32) * 5_505_024)
    dense = by_name["attn_moe", "dense arithmetic"]
    assert dense.efficiency == pytest.approx(0.736 * 32 / 145)
    assert dense.flops == pytest.approx(32 * 2 * (187_105_280 + 3 * 2_048 * 7_168) / 8)
    assert sum(term.floor_ns for term in example_terms() if term.what == "dense arithmetic") == 0
    prompts = kernel_of(DEEPSEEK).explain(Batch([Request(512, 0, 512)] * 3)).terms
    assert {term.floor_ns for term in prompts if term.what == "prefill attention (mla)"} == {18_500}


# ---- passes of the speculator --------------------------------------------------------------------------------------


def test_passes_of_the_speculator_are_numbered_and_stand_after_the_step() -> None:
    terms = drafting().explain(decodes(32, tokens=4)).terms
    passes = [term.draft_pass for term in terms if term.layer != "host"]
    assert passes == sorted(passes) and set(passes) == {0, 1, 2, 3}
    assert {term.draft_pass for term in terms if term.layer == "host"} == {0}
    for number in (1, 2, 3):
        layers = [(term.layer, term.layers) for term in terms if term.draft_pass == number]
        assert set(layers) == {("attn_moe", 1), ("head", 1)}
    work = {
        term.draft_pass: term.flops for term in terms if term.layer == "attn_moe" and term.what == "dense arithmetic"
    }
    assert work[1] == work[0] == pytest.approx(4 * work[2]) and work[2] == work[3]
    read = {term.draft_pass: term.bytes for term in terms if term.layer == "attn_moe" and "decode" in term.what}
    assert [read[number] / (32 * 576) for number in (1, 2, 3)] == pytest.approx([4_096, 4_097, 4_098])


def test_more_launches_than_a_term_can_count_are_held_at_the_most_that_it_can() -> None:
    inputs = fresh(DEEPSEEK)
    pool = inputs.deployment.pools[0]
    pool.parallel.dcp, pool.engine.max_model_len, pool.engine.max_num_seqs = 8, 16, 1  # context in chunks of 128 tokens
    prefixes = Batch([Request(2, 2**30 - 2, 1)] * 300)
    gathers = [term for term in Kernel(inputs).explain(prefixes).terms if "decode_context" in term.what]
    assert [term.launches for term in gathers] == [2**31 - 1] * 2


# ---- how many terms fit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", [kernel_of(DEEPSEEK), kernel_of(GLM), drafting()], ids=["dense", "indexed", "drafts"]
)
def test_a_short_array_is_filled_and_not_overrun_and_every_term_is_counted(kernel: Kernel) -> None:
    size, mark = ffi.sizeof("pk_term"), 0xA5
    whole, total = raw_terms(kernel, MIXED)
    expected = bytes(ffi.buffer(whole))
    for room in (0, 1, 2, total - 1, total, total + 1):
        memory = bytearray([mark]) * (size * (total + 2))
        terms, count = ffi.from_buffer("pk_term[]", memory), ffi.new("size_t *")
        assert lib.pk_step_explain(kernel._handle, MIXED.struct, terms, room, count, ffi.NULL) == lib.PK_OK
        written = min(room, total)
        assert count[0] == total
        assert bytes(memory[: size * written]) == expected[: size * written]
        assert set(memory[size * written :]) == {mark}


def test_missing_arguments_are_named() -> None:
    kernel, count = kernel_of(DEEPSEEK)._handle, ffi.new("size_t *", 77)
    term, batch = ffi.new("pk_term *"), decodes(1).struct
    for arguments, missing in (
        ((ffi.NULL, batch, term, 1, count), b"kernel"),
        ((kernel, ffi.NULL, term, 1, count), b"batch"),
        ((kernel, batch, ffi.NULL, 1, count), b"terms"),
        ((kernel, batch, term, 1, ffi.NULL), b"count"),
    ):
        error = ffi.new("pk_error *", {"struct_size": ffi.sizeof("pk_error")})
        assert lib.pk_step_explain(*arguments, error) == lib.PK_NULL_ARGUMENT
        assert ffi.string(error.field) == missing
    assert count[0] == 77


def test_a_batch_that_is_not_priced_is_not_explained_either() -> None:
    with pytest.raises(BatchError, match=r"computed\[1\]"):
        kernel_of(DEEPSEEK).explain(Batch([Request(1, 1, 1), Request(1, -1, 1)]))
