"""What a spec may hold: every field of every struct is checked by name before a kernel is made of it.

The table of wrong values is compared with the structs themselves, so that a field added to the header without a check
is found here.
"""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import pytest

from pykernel._native import ffi, lib

NAN, INF = math.nan, math.inf
UINT32_MAX = 2**32 - 1
ARRAYS = {
    "layers": ("pk_layer", "layer_count"),
    "attentions": ("pk_attention", "attention_count"),
    "scorers": ("pk_scorer", "scorer_count"),
    "gemms": ("pk_gemm", "gemm_count"),
    "experts": ("pk_experts", "experts_count"),
    "collectives": ("pk_collective", "collective_count"),
    "collective_laws": ("pk_collective_law", "collective_law_count"),
    "groups": ("pk_group", "group_count"),
    "caches": ("pk_cache_group", "cache_count"),
    "tiers": ("pk_tier", "tier_count"),
    "origins": ("pk_origin", "origin_count"),
    "overrides": ("pk_override", "override_count"),
    "notes": ("pk_note", "note_count"),
}

ATTENTION: dict[str, Any] = {
    "query_heads": 16,
    "head_dim": 128,
    "cache_bytes_per_token": 1024.0,
    "read": {"law": lib.PK_READ_ALL},
    "decode": {"law": lib.PK_DECODE_FLOOR_RATE, "floor_ns": 5_000, "bytes_per_second": 2e12},
    "prefill": {"law": lib.PK_PREFILL_FLOOR_RAMP, "floor_ns": 9_000, "work_scale": 0.5},
}
LAYER: dict[str, Any] = {
    "count": 3,
    "attention_count": 1,
    "dense_flops_per_token": 1e9,
    "dense_bytes": 5e8,
    "elementwise_bytes_per_token": 3e4,
}
EXAMPLE: dict[str, Any] = {
    "struct_size": ffi.sizeof("pk_spec"),
    "tensor_parallel": 4,
    "prefill_context_parallel": 2,
    "decode_context_parallel": 4,
    "interleave": 16,
    "context_chunk": 65_536,
    "draft_passes": 1,
    "sm_count": 132,
    "peak_flops": 1e15,
    "hbm_bytes_per_second": 4e12,
    "link_ratio": 9.0,
    "gemm": {"law": lib.PK_GEMM_SHAPE_RAMP, "eps_max": 0.8, "m_half": 100.0, "n_half": 300.0, "k_half": 200.0},
    "host": {
        "uniform_mode": lib.PK_GRAPH_FULL,
        "other_mode": lib.PK_GRAPH_PIECEWISE,
        "uniform_width": 1,
        "decode_threshold": 1,
        "segments": 9,
        "layers": 8,
        "kernels": 99,
        "capture_tokens": 512,
        "replay_ns": 7_000,
        "eager_layer_ns": 7_000,
        "kernel_ns": 3_200,
    },
    "head": {
        "rows": lib.PK_HEAD_SAMPLED_ROWS,
        "has_gather": 1,
        "gather_law": 1,
        "gather_group": 0,
        "flops_per_row": 1e9,
        "bytes": 1e9,
        "gather_bytes_per_row": 2e5,
    },
    "memory": {
        "device_bytes": 80 * 2**30,
        "utilization": 0.9,
        "embedding_bytes": 1e9,
        "activation_buffers": 10.0,
        "activation_tokens": 8192,
        "activation_width": 7168,
        "activation_floor_bytes": 70 * 2**20,
        "graph_bytes": 8 * 10**8,
        "communicator_bytes": 4 * 10**8,
        "workspace_bytes": 3 * 10**9,
        "block": 16,
        "in_flight_tokens": 16384,
    },
    "links": {"host_bytes_per_second": 6.4e10, "node_bytes_per_second": 4.5e11, "fabric_bytes_per_second": 5e10},
    "layers": [
        LAYER,
        LAYER
        | {
            "count": 5,
            "attention_first": 1,
            "scorer_count": 1,
            "gemm_count": 2,
            "experts_count": 1,
            "collective_count": 3,
            "recurrent": {"law": lib.PK_RECURRENT_FLOOR_RATE, "floor_ns": 4_000, "tokens_per_second": 1e7},
        },
        LAYER | {"count": 1},
    ],
    "attentions": [
        ATTENTION,
        ATTENTION
        | {
            "prefill_window": 128,
            "read": {"law": lib.PK_READ_SELECTED, "top_k": 2048, "compress_ratio": 4, "window": 128},
            "decode": {"law": lib.PK_DECODE_HBM},
            "prefill": {"law": lib.PK_PREFILL_DENSE},
        },
    ],
    "scorers": [{"cache_bytes_per_token": 132.0, "compress_ratio": 4, "decode": dict(ATTENTION["decode"])}],
    "gemms": [{"flops_per_token": 1e8, "n": 2048.0, "k": 7168.0}, {"flops_per_token": 2e8, "n": 7168.0, "k": 512.0}],
    "experts": [
        {
            "experts": 128,
            "local": 32,
            "top_k": 8,
            "shards": 1,
            "funnel": 2,
            "token_slices": 1,
            "flops_per_token_and_expert": 1e7,
            "bytes_per_expert": 5e6,
            "imbalance": 1.1,
            "ranks": 4,
        }
    ],
    "collectives": [
        {"law": 0, "group": 0, "span": lib.PK_SPAN_RING, "units": lib.PK_UNITS_TOKENS, "bytes_per_unit": 8192.0},
        {"law": 1, "group": 0, "span": lib.PK_SPAN_RING, "units": lib.PK_UNITS_DECODE_ROWS, "bytes_per_unit": 8192.0},
        {"law": 1, "group": 1, "span": lib.PK_SPAN_ALL_TO_ALL, "units": lib.PK_UNITS_TOKENS, "bytes_per_unit": 65536.0},
    ],
    "collective_laws": [
        {
            "law": lib.PK_COLLECTIVE_TWO_RATES,
            "floor_ns": 4_710,
            "transition_bytes_per_second": 1e11,
            "peak_bytes_per_second": 1.3e11,
        },
        {"law": lib.PK_COLLECTIVE_TWO_RATES, "floor_ns": 9_000, "peak_bytes_per_second": 1.9e11},
    ],
    "groups": [{"width": 4, "per_node": 8}, {"width": 16, "per_node": 8, "crosses_nodes": 1}],
    "caches": [
        {"kind": lib.PK_CACHE_TOKENS, "layers": 8, "tokens_per_entry": 1, "block": 16, "entry_bytes": 576.0},
        {"kind": lib.PK_CACHE_RING, "layers": 2, "tokens_per_entry": 1, "block": 16, "window": 128, "entry_bytes": 9.0},
        {"kind": lib.PK_CACHE_STATE, "layers": 3, "tokens_per_entry": 1, "block": 1, "pages": 2, "entry_bytes": 8e5},
    ],
    "tiers": [
        {"name": b"slow", "read_bytes_per_second": 7e9, "write_bytes_per_second": 5e9, "latency_us": 80.0},
        {"name": b"fast", "read_bytes_per_second": 2e10, "write_bytes_per_second": 2e10, "latency_us": 1.0},
    ],
    "origins": [{}],  # no text is the empty text
    "overrides": [{}],
    "notes": [{}],
}

# Wrong values by field, and the family of the status that names them.
COUNT = ("SPEC_VALUE", 0, -1)
FLAG = ("SPEC_VALUE", -1, 2)
UNUSED = ("SPEC_VALUE", 1)
DURATION = ("SPEC_VALUE", -1, 10**12 + 1)
BYTES = ("SPEC_VALUE", -1, 2**60 + 1)
POSITIVE = ("SPEC_VALUE", 0.0, -1.0, NAN, INF, -INF)
NOT_NEGATIVE = ("SPEC_VALUE", -1.0, -5e-324, NAN, INF, -INF)
GRAPH_MODE = ("SPEC_VALUE", -1, 3)
OF_TWO = ("SPEC_INDEX", 2, UINT32_MAX)

WRONG: dict[str, tuple[Any, ...]] = {
    "tensor_parallel": COUNT,
    "prefill_context_parallel": (*COUNT, lib.PK_MAX_CONTEXT_RANKS + 1),
    "decode_context_parallel": (*COUNT, lib.PK_MAX_CONTEXT_RANKS + 1),
    "interleave": COUNT,
    "context_chunk": (*COUNT, 2**30 + 1),
    "draft_passes": ("SPEC_VALUE", -1, lib.PK_MAX_DRAFT_PASSES + 1),
    "sm_count": ("SPEC_VALUE", -1),
    "peak_flops": POSITIVE,
    "hbm_bytes_per_second": POSITIVE,
    "link_ratio": POSITIVE,
    "gemm.law": ("SPEC_LAW", 0, 3, UINT32_MAX),
    "gemm.reserved": UNUSED,
    "gemm.eps_max": (*POSITIVE, 1.51),
    "gemm.m_half": NOT_NEGATIVE,
    "gemm.n_half": NOT_NEGATIVE,
    "gemm.k_half": NOT_NEGATIVE,
    "host.uniform_mode": GRAPH_MODE,
    "host.other_mode": GRAPH_MODE,
    "host.uniform_width": COUNT,
    "host.segments": COUNT,
    "host.layers": COUNT,
    "host.kernels": ("SPEC_VALUE", -1),
    "host.capture_tokens": ("SPEC_VALUE", -1),
    "host.decode_threshold": ("SPEC_VALUE", 0, -1),
    "host.replay_ns": DURATION,
    "host.eager_layer_ns": DURATION,
    "host.kernel_ns": DURATION,
    "host.admission_request_ns": DURATION,
    "host.admission_token_ns": DURATION,
    "host.output_token_ns": DURATION,
    "host.completion_ns": DURATION,
    "head.rows": ("SPEC_LAW", 0, 3),
    "head.has_gather": ("SPEC_VALUE", 2, UINT32_MAX),
    "head.gather_law": OF_TWO,
    "head.gather_group": OF_TWO,
    "head.flops_per_row": NOT_NEGATIVE,
    "head.bytes": NOT_NEGATIVE,
    "head.gather_bytes_per_row": NOT_NEGATIVE,
    "head.stored_bytes": NOT_NEGATIVE,
    "memory.device_bytes": (*BYTES, 0),
    "memory.utilization": (*POSITIVE, 1.01),
    "memory.embedding_bytes": NOT_NEGATIVE,
    "memory.activation_buffers": NOT_NEGATIVE,
    "memory.activation_tokens": COUNT,
    "memory.activation_width": COUNT,
    "memory.activation_floor_bytes": BYTES,
    "memory.graph_bytes": BYTES,
    "memory.communicator_bytes": BYTES,
    "memory.workspace_bytes": BYTES,
    "memory.inside_budget": FLAG,
    "memory.draft_tokens": ("SPEC_VALUE", -1),
    "memory.block": COUNT,
    "memory.in_flight_tokens": COUNT,
    "memory.model_length": ("SPEC_VALUE", -1),
    "memory.pool_block_bytes": NOT_NEGATIVE,
    "links.host_bytes_per_second": NOT_NEGATIVE,
    "links.node_bytes_per_second": NOT_NEGATIVE,
    "links.fabric_bytes_per_second": NOT_NEGATIVE,
    "links.handoff_floor_ns": DURATION,
    "links.rack_is_one_domain": FLAG,
    "links.reserved": UNUSED,
    "resolution.tensor_parallel": ("SPEC_VALUE", -1),
    "resolution.data_parallel": ("SPEC_VALUE", -1),
    "resolution.expert_parallel": ("SPEC_VALUE", -1),
    "resolution.async_scheduling": FLAG,
    "resolution.cascade_attention": FLAG,
    "resolution.sequence_parallel_moe": FLAG,
    "layers[1].count": COUNT,
    "layers[0].attention_first": OF_TWO,
    "layers[1].attention_count": ("SPEC_INDEX", 2, UINT32_MAX),
    "layers[1].scorer_first": ("SPEC_INDEX", 1, UINT32_MAX),
    "layers[0].scorer_count": ("SPEC_INDEX", 2, UINT32_MAX),
    "layers[1].gemm_first": ("SPEC_INDEX", 1, UINT32_MAX),
    "layers[2].gemm_count": ("SPEC_INDEX", 3, UINT32_MAX),
    "layers[1].experts_first": ("SPEC_INDEX", 1, UINT32_MAX),
    "layers[0].experts_count": ("SPEC_INDEX", 2, UINT32_MAX),
    "layers[1].collective_first": ("SPEC_INDEX", 1, UINT32_MAX),
    "layers[1].collective_count": ("SPEC_INDEX", 4, UINT32_MAX),
    "layers[0].reserved": UNUSED,
    "layers[0].dense_flops_per_token": NOT_NEGATIVE,
    "layers[1].dense_bytes": NOT_NEGATIVE,
    "layers[1].elementwise_bytes_per_token": NOT_NEGATIVE,
    "layers[2].stored_bytes": NOT_NEGATIVE,
    "layers[1].replicated_bytes": NOT_NEGATIVE,
    "layers[0].recurrent.law": ("SPEC_LAW", 2, UINT32_MAX),
    "layers[1].recurrent.reserved": UNUSED,
    "layers[1].recurrent.floor_ns": DURATION,
    "layers[1].recurrent.tokens_per_second": POSITIVE,
    "attentions[0].query_heads": COUNT,
    "attentions[1].head_dim": COUNT,
    "attentions[1].prefill_window": ("SPEC_VALUE", -1),
    "attentions[0].cache_bytes_per_token": NOT_NEGATIVE,
    "attentions[0].one_mixed_launch": FLAG,
    "attentions[0].reserved": UNUSED,
    "attentions[0].read.law": ("SPEC_LAW", 0, 4),
    "attentions[0].read.sharded": FLAG,
    "attentions[1].read.top_k": ("SPEC_VALUE", -1, 2**30 + 1),
    "attentions[1].read.compress_ratio": (*COUNT, lib.PK_MAX_COMPRESS_RATIO + 1),
    "attentions[1].read.window": ("SPEC_VALUE", -1),
    "attentions[0].decode.law": ("SPEC_LAW", 0, 3),
    "attentions[1].decode.reserved": UNUSED,
    "attentions[1].decode.floor_ns": DURATION,
    "attentions[0].decode.bytes_per_second": POSITIVE,
    "attentions[1].prefill.law": ("SPEC_LAW", 0, 3),
    "attentions[0].prefill.reserved": UNUSED,
    "attentions[0].prefill.floor_ns": DURATION,
    "attentions[0].prefill.work_scale": POSITIVE,
    "scorers[0].cache_bytes_per_token": NOT_NEGATIVE,
    "scorers[0].window": ("SPEC_VALUE", -1),
    "scorers[0].compress_ratio": COUNT,
    "scorers[0].sharded": FLAG,
    "scorers[0].decode.law": ("SPEC_LAW", 0, lib.PK_DECODE_HBM),
    "scorers[0].decode.reserved": UNUSED,
    "scorers[0].decode.floor_ns": DURATION,
    "scorers[0].decode.bytes_per_second": POSITIVE,
    "gemms[0].flops_per_token": NOT_NEGATIVE,
    "gemms[1].n": NOT_NEGATIVE,
    "gemms[1].k": NOT_NEGATIVE,
    "experts[0].experts": COUNT,
    "experts[0].local": ("SPEC_VALUE", 0, -1, 129),
    "experts[0].top_k": ("SPEC_VALUE", 0, -1, 129),
    "experts[0].shards": COUNT,
    "experts[0].funnel": COUNT,
    "experts[0].token_slices": COUNT,
    "experts[0].flops_per_token_and_expert": NOT_NEGATIVE,
    "experts[0].bytes_per_expert": NOT_NEGATIVE,
    "experts[0].imbalance": POSITIVE,
    "experts[0].stored_bytes_per_expert": NOT_NEGATIVE,
    "experts[0].redundant": ("SPEC_VALUE", -1, 128),
    "experts[0].ranks": COUNT,
    "collectives[2].law": OF_TWO,
    "collectives[0].group": OF_TWO,
    "collectives[1].span": ("SPEC_LAW", 0, 3),
    "collectives[2].units": ("SPEC_LAW", 0, lib.PK_UNITS_CONTEXT_CHUNKS + 1),
    "collectives[0].on_sm": FLAG,
    "collectives[2].reserved": UNUSED,
    "collectives[2].bytes_per_unit": NOT_NEGATIVE,
    "collective_laws[0].law": ("SPEC_LAW", 0, 2),
    "collective_laws[1].reserved": UNUSED,
    "collective_laws[1].floor_ns": DURATION,
    "collective_laws[0].transition_bytes_per_second": NOT_NEGATIVE,
    "collective_laws[1].peak_bytes_per_second": POSITIVE,
    "groups[0].width": COUNT,
    "groups[1].per_node": COUNT,
    "groups[0].crosses_nodes": FLAG,
    "groups[1].reserved": UNUSED,
    "caches[0].kind": ("SPEC_LAW", 0, 5),
    "caches[1].layers": COUNT,
    "caches[0].tokens_per_entry": COUNT,
    "caches[0].sharded": FLAG,
    "caches[1].sharded": ("SPEC_VALUE", 1),  # a ring is whole on every rank
    "caches[2].pages": ("SPEC_VALUE", -1),
    "caches[0].handed_over": FLAG,
    "caches[2].block": COUNT,
    "caches[0].window": ("SPEC_VALUE", -1),
    "caches[1].window": COUNT,
    "caches[2].entry_bytes": NOT_NEGATIVE,
    "tiers[0].name": ("SPEC_VALUE", b"", b"x" * 64),
    "tiers[1].name": ("SPEC_VALUE", b"slow"),
    "tiers[0].read_bytes_per_second": POSITIVE,
    "tiers[1].write_bytes_per_second": POSITIVE,
    "tiers[0].latency_us": NOT_NEGATIVE,
}
REPORTED_AS = {  # a range of another array is reported by where it begins
    "layers[1].attention_count": "layers[1].attention_first",
    "layers[0].scorer_count": "layers[0].scorer_first",
    "layers[2].gemm_count": "layers[2].gemm_first",
    "layers[0].experts_count": "layers[0].experts_first",
    "layers[1].collective_count": "layers[1].collective_first",
}

AT_THE_LIMIT: dict[str, Any] = {
    "sm_count": 0,
    "gemm.eps_max": 1.5,
    "gemm.m_half": 0.0,
    "host.kernels": 0,
    "host.capture_tokens": 2**63 - 1,
    "host.replay_ns": 10**12,
    "head.flops_per_row": 0.0,
    "layers[0].count": 2**31 - 1,
    "layers[1].attention_count": 0,
    "attentions[0].prefill_window": 2**63 - 1,
    "attentions[1].read.top_k": 0,
    "attentions[1].read.compress_ratio": lib.PK_MAX_COMPRESS_RATIO,
    "attentions[0].read.window": -1,  # not read under the law of this attention
    "layers[0].recurrent.tokens_per_second": NAN,
    "attentions[1].decode.bytes_per_second": NAN,
    "attentions[1].prefill.work_scale": -1.0,
    "experts[0].local": 128,
    "experts[0].top_k": 128,
    "interleave": 2**31 - 1,
    "draft_passes": 0,
    "collective_laws[0].transition_bytes_per_second": 0.0,
    "link_ratio": 0.5,
    "memory.utilization": 1.0,
    "memory.graph_bytes": 2**60,
    "memory.in_flight_tokens": 2**63 - 1,
    "links.node_bytes_per_second": 0.0,
    "caches[1].window": 2**63 - 1,
    "caches[0].block": 2**63 - 1,
    "tiers[0].name": b"x" * 63,
}


class Spec:
    """A `pk_spec` made of the example with one field changed, and the arrays that keep it alive."""

    def __init__(self, field: str = "", value: Any = None) -> None:
        content = copy.deepcopy(EXAMPLE)
        if field:
            *path, last = (int(part) if part.isdigit() else part for part in re.findall(r"\w+", field))
            inner = content
            for part in path:
                inner = inner[part] if isinstance(inner, list) else inner.setdefault(part, {})
            inner[last] = value
        arrays = {name: content.pop(name) for name in ARRAYS}
        self.struct = ffi.new("pk_spec *", content)
        self.arrays = []
        for name, rows in arrays.items():
            kind, count = ARRAYS[name]
            self.arrays.append(ffi.new(f"{kind}[]", rows))
            setattr(self.struct, name, self.arrays[-1])
            setattr(self.struct, count, len(rows))
        self.struct.layer_count, self.struct.draft_layer_count = len(EXAMPLE["layers"]) - 1, 1


def fresh_error() -> Any:
    return ffi.new("pk_error *", {"struct_size": ffi.sizeof("pk_error")})


def assert_refused(spec: Spec, status: str, field: str) -> str:
    """Fails unless the spec is refused with that status and field, by every way to call; returns the message."""
    untouched = ffi.cast("pk_kernel *", 0x1000)
    made, error = ffi.new("pk_kernel **", untouched), fresh_error()
    found = lib.pk_kernel_new(spec.struct, made, error)
    message: str = ffi.string(error.message).decode()
    assert ffi.string(lib.pk_status_name(found)).decode() == status, message
    assert (error.status, ffi.string(error.field).decode()) == (found, field)
    assert made[0] == untouched
    assert lib.pk_kernel_new(spec.struct, made, ffi.NULL) == found
    return message


def assert_accepted(spec: Spec) -> None:
    made, error = ffi.new("pk_kernel **"), fresh_error()
    assert lib.pk_kernel_new(spec.struct, made, error) == lib.PK_OK, ffi.string(error.message)
    assert (error.status, ffi.string(error.field), ffi.string(error.message)) == (0, b"", b"")
    assert lib.pk_kernel_size(made[0]) > 0
    lib.pk_kernel_free(made[0])


def leaves(kind: str, prefix: str = "") -> list[str]:
    """Dotted names of the fields of a struct, with [] for any element of an array."""
    # What `measured` points to is held by tests/test_measured_spec.py.
    elsewhere = {"struct_size", "flags", "draft_layer_count", "measured", *(count for _, count in ARRAYS.values())}
    names = []
    for name, field in ffi.typeof(kind).fields:
        if kind == "pk_spec" and name in elsewhere:
            continue
        if field.type == ffi.typeof("char const *"):  # any text is right, but for its length
            continue
        if field.type.kind == "pointer":
            names += leaves(ARRAYS[name][0], f"{name}[].")
        elif field.type.kind == "struct":
            names += leaves(field.type.cname, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


def test_the_example_is_accepted() -> None:
    assert_accepted(Spec())


def test_the_table_of_wrong_values_has_every_field_of_a_spec() -> None:
    assert {re.sub(r"\d+", "", field) for field in WRONG} == set(leaves("pk_spec"))


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field: str) -> None:
    status, *values = WRONG[field]
    for value in values:
        reported = REPORTED_AS.get(field, field)
        message = assert_refused(Spec(field, value), status, reported)
        assert reported in message and message[0].islower()


@pytest.mark.parametrize(("field", "value"), AT_THE_LIMIT.items())
def test_a_value_at_its_limit_is_accepted(field: str, value: Any) -> None:
    assert_accepted(Spec(field, value))


def test_a_layer_has_one_attention_at_most() -> None:
    assert_refused(Spec("layers[0].attention_count", 2), "SPEC_VALUE", "layers[0].attention_count")


@pytest.mark.parametrize("array", ARRAYS)
def test_an_array_must_be_there(array: str) -> None:
    spec = Spec()
    setattr(spec.struct, array, ffi.NULL)
    assert_refused(spec, "NULL_ARGUMENT", array)


@pytest.mark.parametrize("array", [name for name in ARRAYS if name != "layers"])
def test_an_array_has_a_sane_length(array: str) -> None:
    spec = Spec()
    setattr(spec.struct, ARRAYS[array][1], 4_097)
    assert_refused(spec, "SPEC_LIMIT", array)


@pytest.mark.parametrize(("count", "values"), [("layer_count", (0, 4_097)), ("draft_layer_count", (4_097, UINT32_MAX))])
def test_a_stack_has_a_sane_number_of_layer_kinds(count: str, values: tuple[int, ...]) -> None:
    for value in values:
        spec = Spec()
        setattr(spec.struct, count, value)
        assert_refused(spec, "SPEC_VALUE", count)


def test_the_layers_of_the_speculator_are_checked_too() -> None:
    assert_refused(Spec("layers[2].dense_bytes", -1.0), "SPEC_VALUE", "layers[2].dense_bytes")


DIFFERENT = {
    "prefill windows": lambda number: {"prefill_window": 64 + number},
    "read windows": lambda number: {"read": {"law": lib.PK_READ_WINDOW, "window": 64 + number}},
}


@pytest.mark.parametrize("number", [lib.PK_MAX_READS, lib.PK_MAX_READS + 1])
@pytest.mark.parametrize("different", DIFFERENT)
def test_as_many_different_attentions_as_the_header_says(different: str, number: int) -> None:
    spec = Spec()
    rows = [ATTENTION, *(ATTENTION | DIFFERENT[different](index) for index in range(1, number))]  # the whole counts too
    attentions = ffi.new("pk_attention[]", rows)
    spec.struct.attentions, spec.struct.attention_count = attentions, number
    if number <= lib.PK_MAX_READS:
        assert_accepted(spec)
    else:
        assert_refused(spec, "SPEC_LIMIT", "attentions")


@pytest.mark.parametrize("size", [0, ffi.sizeof("pk_spec") - 1, ffi.sizeof("pk_spec") + 8])
def test_a_struct_of_unknown_size_is_refused(size: int) -> None:
    spec = Spec()
    spec.struct.struct_size = size
    assert_refused(spec, "STRUCT_SIZE", "spec")


def test_flags_are_reserved() -> None:
    spec = Spec()
    spec.struct.flags = 1
    assert_refused(spec, "RESERVED", "spec")


def test_missing_arguments_are_named() -> None:
    spec, error = Spec(), fresh_error()
    assert lib.pk_kernel_new(ffi.NULL, ffi.new("pk_kernel **"), error) == lib.PK_NULL_ARGUMENT
    assert ffi.string(error.field) == b"spec"
    assert lib.pk_kernel_new(spec.struct, ffi.NULL, error) == lib.PK_NULL_ARGUMENT
    assert ffi.string(error.field) == b"kernel"


def test_an_error_struct_of_another_size_is_left_alone() -> None:
    spec, error = Spec("sm_count", -1), ffi.new("pk_error *", {"struct_size": 8, "status": 77})
    assert lib.pk_kernel_new(spec.struct, ffi.new("pk_kernel **"), error) == lib.PK_SPEC_VALUE
    assert (error.status, ffi.string(error.field), ffi.string(error.message)) == (77, b"", b"")


def test_the_first_fault_is_the_one_reported() -> None:
    spec = Spec("groups[0].width", 0)
    spec.struct.tensor_parallel = 0
    assert_refused(spec, "SPEC_VALUE", "tensor_parallel")


def test_a_kernel_of_nothing_has_no_size_and_can_be_freed() -> None:
    assert lib.pk_kernel_size(ffi.NULL) == 0
    lib.pk_kernel_free(ffi.NULL)
