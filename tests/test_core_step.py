"""How the laws of the C core add up to a step, on specs of one layer where every term can be counted by hand.

Each test states the whole spec that matters to it; what it leaves out costs nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pykernel._native import ffi, lib

INT64_MAX = 2**63 - 1
RESOURCES = ("sm", "hbm", "nvlink", "nic", "pcie", "copy_engine", "host")
HBM_RATE, PEAK, HALF = 1e12, 1e15, 100.0  # bytes/s, FLOP/s at an efficiency of 1, tokens

MEMORY = {  # no step depends on it
    "device_bytes": 2**30,
    "utilization": 0.9,
    "activation_tokens": 1,
    "activation_width": 1,
    "block": 16,
    "in_flight_tokens": 1,
}
SETTINGS = {"decode_threshold": 1, "sm_budget": 0, "pad_tokens": 0}
DECODE, PREFILL = (1, 999), (512, 64)  # scheduled and computed


def price(batch: list[tuple[int, int]], layer: dict[str, Any] | None = None, **spec: Any) -> dict[str, int]:
    """Price a batch on one layer; arrays are given by their names, the rest of the spec has neutral values."""
    arrays = {
        "layers": ("pk_layer", [{"count": 1} | (layer or {})]),
        "attentions": ("pk_attention", spec.pop("attentions", [])),
        "experts": ("pk_experts", spec.pop("experts", [])),
        "collectives": ("pk_collective", spec.pop("collectives", [])),
        "collective_laws": ("pk_collective_law", spec.pop("collective_laws", [])),
        "groups": ("pk_group", spec.pop("groups", [])),
    }
    settings = {name: spec.pop(name, usual) for name, usual in SETTINGS.items()}
    neutral = {
        **dict.fromkeys(("tensor_parallel", "prefill_context_parallel", "decode_context_parallel"), 1),
        **dict.fromkeys(("interleave", "context_chunk"), 1),
        "peak_flops": PEAK,
        "hbm_bytes_per_second": HBM_RATE,
        "link_ratio": 1.0,
        "gemm": {"law": lib.PK_GEMM_TOKEN_RAMP, "eps_max": 1.0, "m_half": HALF},
        "host": {"uniform_width": 1, "decode_threshold": 1, "segments": 1, "layers": 1},
        "head": {"rows": lib.PK_HEAD_SAMPLED_ROWS},
        "memory": MEMORY,
    }
    struct = ffi.new("pk_spec *", {"struct_size": ffi.sizeof("pk_spec")} | neutral | spec)
    keep = []
    for name, (kind, rows) in arrays.items():
        keep.append(ffi.new(f"{kind}[]", rows))
        setattr(struct, name, keep[-1])
        setattr(struct, "experts_count" if name == "experts" else f"{name[:-1]}_count", len(rows))
    made, error = ffi.new("pk_kernel **"), ffi.new("pk_error *", {"struct_size": ffi.sizeof("pk_error")})
    assert lib.pk_kernel_new(struct, made, error) == lib.PK_OK, (ffi.string(error.field), ffi.string(error.message))
    kernel = ffi.gc(made[0], lib.pk_kernel_free)
    estimate = step(kernel, batch, **settings)
    found = {name: estimate.per_resource_ns[index] for index, name in enumerate(RESOURCES)}
    return found | {
        "overlap": estimate.overlap_ns,
        "no_overlap": estimate.no_overlap_ns,
        "bottleneck": RESOURCES[estimate.bottleneck],
    }


def step(kernel: Any, batch: list[tuple[int, int]], **settings: int) -> Any:
    scheduled, computed = (ffi.new("int64_t[]", [row[index] for row in batch]) for index in (0, 1))
    struct = ffi.new("pk_batch *", {"struct_size": ffi.sizeof("pk_batch"), "count": len(batch), **settings})
    struct.scheduled, struct.computed = scheduled, computed
    estimate = ffi.new("pk_estimate *", {"struct_size": ffi.sizeof("pk_estimate")})
    assert lib.pk_step_time(kernel, struct, estimate, ffi.NULL) == lib.PK_OK
    return estimate


def attention(**changes: Any) -> dict[str, Any]:
    return {
        "query_heads": 4,
        "head_dim": 100,
        "read": {"law": lib.PK_READ_ALL},
        "decode": {"law": lib.PK_DECODE_HBM},
        "prefill": {"law": lib.PK_PREFILL_DENSE},
    } | changes


def with_floors(decode_ns: int, prefill_ns: int, one_launch: bool) -> dict[str, Any]:
    """An attention that costs its floors and next to nothing beside them."""
    return attention(
        one_mixed_launch=int(one_launch),
        decode={"law": lib.PK_DECODE_FLOOR_RATE, "floor_ns": decode_ns, "bytes_per_second": 1e12},
        prefill={"law": lib.PK_PREFILL_FLOOR_RAMP, "floor_ns": prefill_ns, "work_scale": 1e30},
    )


EXPERTS: dict[str, Any] = {
    "experts": 8,
    "local": 4,
    "top_k": 2,
    "shards": 1,
    "funnel": 2,
    "token_slices": 1,
    "flops_per_token_and_expert": 1e9,
    "bytes_per_expert": 1e9,
    "imbalance": 1.25,
    "ranks": 1,
}


def ramp(tokens: int) -> float:
    return tokens / (tokens + HALF)


# ---- one layer -----------------------------------------------------------------------------------------------------


def test_dense_work_and_weights_are_shared_by_the_tensor_parallel_ranks() -> None:
    layer = {"count": 3, "dense_flops_per_token": 8e9, "dense_bytes": 4e9, "elementwise_bytes_per_token": 1e6}
    found = price([(60, 0)], layer, tensor_parallel=4)
    assert found["sm"] == pytest.approx(3 * 60 * 2e9 / (PEAK * ramp(60)) * 1e9, abs=1)
    assert found["hbm"] == pytest.approx(3 * (1e9 + 60 * 0.25e6) / HBM_RATE * 1e9, abs=1)
    assert found["overlap"] == max(found["sm"], found["hbm"])


def test_the_cache_of_a_layer_without_a_rate_is_read_with_the_weights() -> None:
    found = price([DECODE, (1, 1999)], {"attention_count": 1}, attentions=[attention(cache_bytes_per_token=5e5)])
    assert found["hbm"] == pytest.approx(3000 * 5e5 / HBM_RATE * 1e9, abs=1)


def test_the_cache_of_a_layer_with_a_rate_is_read_at_it_after_one_floor() -> None:
    law = {"law": lib.PK_DECODE_FLOOR_RATE, "floor_ns": 7_000, "bytes_per_second": 2e12}
    reads = attention(cache_bytes_per_token=5e5, decode=law)
    found = price([DECODE, (1, 1999)], {"attention_count": 1, "count": 2}, attentions=[reads])
    assert found["hbm"] == pytest.approx(2 * (7_000 + 3000 * 5e5 / 2e12 * 1e9), abs=1)


READS = list(itertools.product([0, 1, 64, 1024, 2**30], [1, 2, 3, 4, 128], [0, 1, 128, 5000, 2**40]))


@pytest.mark.parametrize(("top_k", "ratio", "window"), READS)
def test_a_batch_reads_what_its_requests_read(top_k: int, ratio: int, window: int) -> None:
    law = {"law": lib.PK_READ_SELECTED, "top_k": top_k, "compress_ratio": ratio, "window": window}
    knots = {0, 1, window, top_k * ratio, window * ratio // max(ratio - 1, 1), top_k + window, 1000, 131_072, 2**30 - 1}
    contexts = sorted({min(max(k + d, 1), 2**30) for k in knots for d in (-2, -1, 0, 1, 2)})
    entries = sum(lib.pk_read_entries(ffi.new("pk_read_law *", law), context) for context in contexts) / ratio
    found = price(
        [(1, context - 1) for context in contexts],
        {"attention_count": 1},
        attentions=[attention(cache_bytes_per_token=10.0, read=law)],
    )
    assert found["hbm"] == pytest.approx(entries * 10 / HBM_RATE * 1e9, rel=1e-12, abs=1)


def test_prefill_attention_without_a_scale_is_dense_work() -> None:
    found = price([(512, 64)], {"attention_count": 1, "dense_flops_per_token": 1e9}, attentions=[attention()])
    flops = 512 * 1e9 + 4 * (512 * 64 + 512**2 / 2) * 4 * 100
    assert found["sm"] == pytest.approx(flops / (PEAK * ramp(512)) * 1e9, abs=1)


def test_prefill_attention_with_a_scale_has_a_floor_and_an_efficiency_of_its_own() -> None:
    law = {"law": lib.PK_PREFILL_FLOOR_RAMP, "floor_ns": 9_000, "work_scale": 0.25}
    found = price([(512, 64)], {"attention_count": 1}, attentions=[attention(prefill=law)], tensor_parallel=2)
    flops = 4 * (512 * 64 + 512**2 / 2) * 4 * 100 / 2
    assert found["sm"] == pytest.approx(9_000 + flops / (PEAK * ramp(512) * 0.25) * 1e9, abs=1)


ARITHMETIC: dict[str, dict[str, Any]] = {
    "dense": {"layer": {"dense_flops_per_token": 1e12}},
    "attention with the dense work": {"layer": {"attention_count": 1}, "attentions": [attention(query_heads=4_000)]},
    "experts": {"layer": {"experts_count": 1}, "experts": [EXPERTS]},
    "head": {"head": {"rows": lib.PK_HEAD_SAMPLED_ROWS, "flops_per_row": 1e12}},
}


@pytest.mark.parametrize("work", ARITHMETIC)
def test_half_the_sms_take_twice_as_long_for_any_arithmetic(work: str) -> None:
    full, half = (price([(512, 64)], sm_count=100, sm_budget=budget, **ARITHMETIC[work]) for budget in (0, 50))
    assert half["sm"] == pytest.approx(2 * full["sm"], abs=2) and full["sm"] > 1_000
    assert {name for name in RESOURCES if half[name] != full[name]} == {"sm"}


def test_withheld_sms_slow_work_and_leave_floors_alone() -> None:
    law = {"law": lib.PK_PREFILL_FLOOR_RAMP, "floor_ns": 9_000, "work_scale": 0.25}
    setup = {"layer": {"attention_count": 1}, "attentions": [attention(prefill=law)], "sm_count": 100}
    full, half = (price([(512, 64)], sm_budget=budget, **setup)["sm"] for budget in (0, 50))
    assert half - 9_000 == pytest.approx(2 * (full - 9_000), abs=2)


@pytest.mark.parametrize(("decode_ns", "prefill_ns"), [(5_000, 9_000), (9_000, 5_000), (7_000, 7_000)])
def test_one_launch_of_both_regimes_pays_the_larger_floor(decode_ns: int, prefill_ns: int) -> None:
    both, one = (
        price([DECODE, PREFILL], {"attention_count": 1}, attentions=[with_floors(decode_ns, prefill_ns, merged)])
        for merged in (False, True)
    )
    assert both["no_overlap"] - one["no_overlap"] == pytest.approx(min(decode_ns, prefill_ns), abs=1)
    spared = "hbm" if decode_ns < prefill_ns else "sm"
    assert both[spared] - one[spared] == pytest.approx(min(decode_ns, prefill_ns), abs=1)


def test_a_request_with_nothing_to_attend_costs_its_rows_alone() -> None:
    setup = {"layer": {"attention_count": 1}, "attentions": [with_floors(5_000, 9_000, one_launch=False)]}
    assert price([(0, 0), PREFILL, (0, 0)], **setup) == price([PREFILL], **setup)
    assert price([(0, 1), PREFILL], **setup)["hbm"] == 5_000


def test_a_window_wider_than_any_context_bounds_nothing() -> None:
    none, wide, narrow = (
        price([PREFILL], {"attention_count": 1}, attentions=[attention(prefill_window=window)])
        for window in (0, 2**40, 100)
    )
    assert none == wide
    assert narrow["sm"] < none["sm"]


@pytest.mark.parametrize("batch", [[DECODE], [PREFILL], [DECODE, DECODE]])
def test_a_step_of_one_regime_pays_its_floor_however_it_is_launched(batch: list[tuple[int, int]]) -> None:
    setup = {"layer": {"attention_count": 1}}
    both, one = (price(batch, attentions=[with_floors(5_000, 9_000, merged)], **setup) for merged in (False, True))
    assert both == one
    assert both["no_overlap"] == pytest.approx(9_000 if PREFILL in batch else 5_000, abs=2)


def test_routed_experts_run_after_the_rest_of_their_layer() -> None:
    layer = {"experts_count": 1, "dense_bytes": 2e9, "dense_flops_per_token": 1e6}
    rest = price([(3, 0)], {**layer, "experts_count": 0})
    found = price([(3, 0)], layer, experts=[EXPERTS])
    arithmetic = 3 * 2 * 2 * 0.5 * 1e9 * 1.25 / (PEAK * ramp(3)) * 1e9
    reads = 4 * (1 - 0.75**6) * 1e9 / HBM_RATE * 1e9
    assert found["sm"] - rest["sm"] == pytest.approx(arithmetic, abs=2)
    assert found["hbm"] - rest["hbm"] == pytest.approx(reads, abs=2)
    assert found["overlap"] == pytest.approx(max(rest["sm"], rest["hbm"]) + arithmetic + reads, abs=3)


def test_sliced_experts_divide_bytes_by_shards_and_work_by_token_slices() -> None:
    whole, sliced = (
        price([(3, 0)], {"experts_count": 1}, experts=[EXPERTS | {"shards": shards, "token_slices": slices}])
        for shards, slices in ((1, 1), (8, 2))
    )
    assert whole["hbm"] == pytest.approx(8 * sliced["hbm"], abs=9)
    assert whole["sm"] == pytest.approx(2 * sliced["sm"], abs=3)


LAW = {
    "law": lib.PK_COLLECTIVE_TWO_RATES,
    "floor_ns": 5_000,
    "transition_bytes_per_second": 1e11,
    "peak_bytes_per_second": 2e11,
}
GROUPS = [{"width": 8, "per_node": 8}, {"width": 16, "per_node": 8, "crosses_nodes": 1}]


def collective(**changes: Any) -> dict[str, Any]:
    return {"span": lib.PK_SPAN_RING, "units": lib.PK_UNITS_TOKENS, "bytes_per_unit": 1e6} | changes


def price_collectives(*collectives: dict[str, Any], batch: list[tuple[int, int]] | None = None) -> dict[str, int]:
    return price(
        batch or [(1, 9)] * 10,
        {"collective_count": len(collectives)},
        collectives=list(collectives),
        collective_laws=[LAW],
        groups=GROUPS,
        link_ratio=9.0,
    )


def test_a_collective_is_charged_to_the_link_its_group_uses() -> None:
    inside, across = price_collectives(collective()), price_collectives(collective(group=1))
    assert inside["nvlink"] == pytest.approx(5_000 + 1e7 / 1e11 * 1e9, abs=1)
    assert across["nic"] == pytest.approx(5_000 + 1e7 * (1 + 8 * 1 / 15) / 1e11 * 1e9, abs=1)
    assert (inside["nic"], across["nvlink"]) == (0, 0)


@pytest.mark.parametrize(("group", "link"), [(0, "nvlink"), (1, "nic")])
def test_each_layer_waits_for_its_collectives_beside_its_work(group: int, link: str) -> None:
    setup = {"collectives": [collective(group=group)], "collective_laws": [LAW], "groups": GROUPS}
    layer = {"collective_count": 1, "dense_bytes": 1e3}
    one, three = (price([DECODE], layer | {"count": count}, **setup) for count in (1, 3))
    assert three[link] == pytest.approx(3 * one[link], abs=3)
    assert one["overlap"] == max(one["hbm"], one[link]) == one[link] == one["no_overlap"] - one["hbm"]
    assert three["overlap"] == pytest.approx(3 * one["overlap"], abs=3)


def test_a_collective_that_takes_sms_is_charged_to_them() -> None:
    on_link, on_sm = price_collectives(collective()), price_collectives(collective(on_sm=1))
    assert (on_sm["sm"], on_sm["nvlink"]) == (on_link["nvlink"], on_link["sm"])


def test_each_launch_pays_its_floor() -> None:
    one, two = price_collectives(collective()), price_collectives(collective(), collective())
    assert two["nvlink"] == pytest.approx(2 * one["nvlink"], abs=1)


@pytest.mark.parametrize(
    ("units", "batch", "counted"),
    [
        (lib.PK_UNITS_TOKENS, [DECODE, PREFILL], 513),
        (lib.PK_UNITS_DECODE_ROWS, [DECODE, DECODE, PREFILL], 2),
        (lib.PK_UNITS_DECODE_ROWS, [PREFILL], None),
        (lib.PK_UNITS_CONTEXT_ROWS, [DECODE, PREFILL], 513),
        (lib.PK_UNITS_CONTEXT_ROWS, [(512, 0)], None),
        (lib.PK_UNITS_PREFILL_ROWS, [DECODE, PREFILL], 512),
        (lib.PK_UNITS_PREFILL_ROWS, [DECODE], None),
    ],
)
def test_a_collective_counts_its_units_and_is_not_launched_without_any(
    units: int, batch: list[tuple[int, int]], counted: int | None
) -> None:
    found = price_collectives(collective(units=units), batch=batch)["nvlink"]
    expected = 0 if counted is None else 5_000 + counted * 1e6 / 1e11 * 1e9
    assert found == pytest.approx(expected, abs=1)


# ---- the whole step ------------------------------------------------------------------------------------------------


def test_the_earlier_resource_is_the_bottleneck_of_a_tie() -> None:
    tie = [with_floors(5_000, 5_000, one_launch=False) | {"cache_bytes_per_token": 0.0, "query_heads": 1}]
    found = price([DECODE, (2, 0)], {"attention_count": 1}, attentions=tie)
    assert found["sm"] == found["hbm"]
    assert found["bottleneck"] == "sm"


def test_launches_are_dispatched_kernel_by_kernel_and_truncated() -> None:
    host = {"uniform_width": 1, "decode_threshold": 1, "segments": 62, "layers": 61, "kernels": 972, "kernel_ns": 3_200}
    assert price([DECODE], host=host)["host"] == 3_110_399  # the published example's, not 3,110,400
    assert price([], host=host)["host"] == 0


@pytest.mark.parametrize(
    ("batch", "pad_tokens", "expected"),
    [
        ([DECODE] * 8, 0, 7_000),  # a full graph
        ([DECODE] * 8, 1, 500 * 61),  # one row beyond the widest graph
        ([DECODE, (2, 5)], 0, 7_000 * 62),  # piecewise
        ([DECODE, (8, 5)], 0, 500 * 61),
        ([], 0, 7_000),
        ([], 8, 7_000),
        ([(0, 5)], 0, 7_000 * 62),  # requests without tokens are no uniform decode
    ],
)
def test_a_step_runs_as_the_graph_of_its_kind_up_to_the_widest(
    batch: list[tuple[int, int]], pad_tokens: int, expected: int
) -> None:
    host = {
        "uniform_mode": lib.PK_GRAPH_FULL,
        "other_mode": lib.PK_GRAPH_PIECEWISE,
        "uniform_width": 1,
        "decode_threshold": 1,
        "segments": 62,
        "layers": 61,
        "capture_tokens": 8,
        "replay_ns": 7_000,
        "eager_layer_ns": 500,
    }
    assert price(batch, host=host, pad_tokens=pad_tokens)["host"] == expected


@pytest.mark.parametrize("ns", [3_544_399, 1_000_000_007, 123_456_789_123, 999_999_999_999])
def test_the_host_keeps_its_last_nanosecond(ns: int) -> None:
    host = {
        "uniform_width": 1,
        "decode_threshold": 1,
        "segments": 1,
        "layers": 1,
        "replay_ns": ns,
        "capture_tokens": 9,
        "uniform_mode": 2,
    }
    assert price([DECODE], host=host)["host"] == ns


HEAD = {"flops_per_row": 1e12, "bytes": 3e9}


@pytest.mark.parametrize(("rows", "counted"), [(lib.PK_HEAD_SAMPLED_ROWS, 1 + 4 + 1), (lib.PK_HEAD_ALL_TOKENS, 517)])
def test_the_head_runs_once_on_the_rows_it_is_told(rows: int, counted: int) -> None:
    found = price([DECODE, (4, 9), PREFILL], {"count": 3}, head=HEAD | {"rows": rows}, decode_threshold=4)
    assert found["sm"] == pytest.approx(counted * 1e12 / (PEAK * ramp(counted)) * 1e9, abs=1)
    assert found["hbm"] == 3_000_000
    assert found["overlap"] == max(found["sm"], found["hbm"])


def test_logits_are_gathered_with_the_head() -> None:
    gather = {"has_gather": 1, "gather_bytes_per_row": 1e6, "rows": lib.PK_HEAD_SAMPLED_ROWS}
    setup = {"collective_laws": [LAW], "groups": GROUPS}
    found = price([DECODE, PREFILL], head=HEAD | gather, **setup)
    assert found["nvlink"] == pytest.approx(5_000 + 2e6 / 1e11 * 1e9, abs=1)
    assert found["overlap"] == max(found[name] for name in ("sm", "hbm", "nvlink"))
    assert price([], head=HEAD | gather, pad_tokens=9, **setup)["nvlink"] == 0


def test_a_step_longer_than_the_clock_stops_at_its_end() -> None:
    layer = {"count": 2**31 - 1, "dense_flops_per_token": 1e30, "dense_bytes": 1e30}
    found = price([(2**30 - 1, 1)], layer, peak_flops=1e-30, hbm_bytes_per_second=1e-30)
    assert [found[name] for name in ("sm", "hbm", "overlap", "no_overlap")] == [INT64_MAX] * 4
    assert found["bottleneck"] == "sm"


# ---- arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"struct_size": 4}, "STRUCT_SIZE", "estimate"),
        ({"flags": 1}, "RESERVED", "estimate"),
    ],
)
def test_an_estimate_must_be_prepared(change: dict[str, int], status: str, field: str) -> None:
    spec_error = ffi.new("pk_error *", {"struct_size": ffi.sizeof("pk_error")})
    batch = ffi.new("pk_batch *", {"struct_size": ffi.sizeof("pk_batch")})
    estimate = ffi.new("pk_estimate *", {"struct_size": ffi.sizeof("pk_estimate"), "overlap_ns": 77} | change)
    kernel = ffi.cast("pk_kernel *", 0x1000)  # not looked at before the estimate is
    found = lib.pk_step_time(kernel, batch, estimate, spec_error)
    assert ffi.string(lib.pk_status_name(found)).decode() == status
    assert ffi.string(spec_error.field).decode() == field
    assert estimate.overlap_ns == 77


def test_missing_arguments_are_named() -> None:
    estimate = ffi.new("pk_estimate *", {"struct_size": ffi.sizeof("pk_estimate"), "overlap_ns": 77})
    batch = ffi.new("pk_batch *", {"struct_size": ffi.sizeof("pk_batch")})
    kernel = ffi.cast("pk_kernel *", 0x1000)
    for arguments, missing in (
        ((ffi.NULL, batch, estimate), b"kernel"),
        ((kernel, batch, ffi.NULL), b"estimate"),
        ((kernel, ffi.NULL, estimate), b"batch"),
    ):
        error = ffi.new("pk_error *", {"struct_size": ffi.sizeof("pk_error")})
        assert lib.pk_step_time(*arguments, error) == lib.PK_NULL_ARGUMENT
        assert ffi.string(error.field) == missing
    assert estimate.overlap_ns == 77
