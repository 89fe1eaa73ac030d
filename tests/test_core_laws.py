"""The laws of the C core, each called as the C function it is and compared with numbers worked out here.

Expected values come from brute force, exact fractions or published figures, never from another call of the core.
How the laws add up to a step is tested in test_step_properties.py and test_golden.py, what a spec may hold in
test_core_spec.py.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest

from pykernel._native import ffi, lib

INT64_MAX = 2**63 - 1


# ---- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "ns"),
    [
        (0.0, 0),
        (-0.0, 0),
        (5e-324, 0),
        (0.999e-9, 0),
        (1e-9, 1),
        (1.999e-9, 1),
        (3200 / 1e9 * 972, 3_110_399),  # truncation shows: the product is a hair below 3,110,400
        (9_223_372_036.0, 9_223_372_036_000_000_000),
        (9_223_372_037.0, INT64_MAX),
        (1e300, INT64_MAX),
        (math.inf, INT64_MAX),
        (-1e-9, 0),
        (-1e300, 0),
        (-math.inf, 0),
        (math.nan, 0),
    ],
)
def test_seconds_are_truncated_to_nanoseconds_and_saturate(seconds: float, ns: int) -> None:
    assert lib.pk_nanoseconds(seconds) == ns


def test_the_build_rounds_every_product_on_its_own() -> None:
    assert lib.pk_arithmetic_is_exact() == 1


STATUSES = {
    0: "OK",
    10: "NULL_ARGUMENT",
    11: "STRUCT_SIZE",
    12: "RESERVED",
    13: "ARGUMENT",
    20: "NO_MEMORY",
    30: "SPEC_VALUE",
    31: "SPEC_INDEX",
    32: "SPEC_LAW",
    33: "SPEC_LIMIT",
    40: "BATCH_VALUE",
    41: "BATCH_LIMIT",
    50: "NO_ROOM",
}


@pytest.mark.parametrize(("value", "name"), STATUSES.items())
def test_a_status_keeps_its_value_name_and_has_a_sentence(value: int, name: str) -> None:
    assert getattr(lib, f"PK_{name}") == value
    assert ffi.string(lib.pk_status_name(value)).decode() == name
    sentence = ffi.string(lib.pk_status_text(value)).decode()
    assert len(sentence.split()) > 1 or name == "OK"


@pytest.mark.parametrize("value", sorted({*range(-1, 60), 2**31 - 1} - set(STATUSES)))
def test_no_other_value_is_a_status(value: int) -> None:
    assert ffi.string(lib.pk_status_name(value)) == b"UNKNOWN"


# ---- dense arithmetic ----------------------------------------------------------------------------------------------

H200_FP8 = (0.736, 113.0)  # gemm_eps_max_fp8 and gemm_m_half_fp8 of h200, inference-sim/blis-registry v0.1.1


def gemm(eps_max: float, m_half: float) -> Any:
    return ffi.new("pk_gemm_law *", {"law": lib.PK_GEMM_TOKEN_RAMP, "eps_max": eps_max, "m_half": m_half})


def test_half_the_peak_efficiency_is_reached_at_the_half_point() -> None:
    """Law 14."""
    assert lib.pk_gemm_efficiency(gemm(*H200_FP8), 113.0) == pytest.approx(0.736 / 2, rel=1e-15)


def test_efficiency_of_the_published_example() -> None:
    assert lib.pk_gemm_efficiency(gemm(*H200_FP8), 32.0) == pytest.approx(0.736 * 32 / 145, rel=1e-15)


def test_efficiency_rises_with_tokens_and_stays_below_its_ceiling() -> None:
    """Law 14."""
    law = gemm(*H200_FP8)
    found = [lib.pk_gemm_efficiency(law, float(2**power)) for power in range(31)]
    assert all(low < high for low, high in itertools.pairwise(found))
    assert found[0] > 0 and found[-1] < 0.736


@pytest.mark.parametrize("tokens", [0.0, -1.0, -math.inf, math.nan])
def test_no_tokens_reach_no_efficiency(tokens: float) -> None:
    """Law 14."""
    assert lib.pk_gemm_efficiency(gemm(*H200_FP8), tokens) == 0


@pytest.mark.parametrize("tokens", [1.0, 7.0, 2.0**31])
def test_without_a_half_point_the_ceiling_is_reached_at_once(tokens: float) -> None:
    assert lib.pk_gemm_efficiency(gemm(0.9, 0.0), tokens) == pytest.approx(0.9, rel=1e-15)


def shaped(n_half: float, k_half: float, law: int = lib.PK_GEMM_SHAPE_RAMP) -> Any:
    return ffi.new("pk_gemm_law *", {"law": law, "eps_max": 0.8, "m_half": 100.0, "n_half": n_half, "k_half": k_half})


@pytest.mark.parametrize(("n", "k"), [(64.0, 7168.0), (7168.0, 64.0), (1e9, 1e9)])
def test_a_shape_costs_the_half_of_each_width_it_states(n: float, k: float) -> None:
    """Law 15."""
    expected = k / (k + 200) * n / (n + 300)
    assert lib.pk_gemm_shape_factor(shaped(300, 200), n, k) == pytest.approx(expected, rel=1e-15)
    assert lib.pk_gemm_shape_factor(shaped(300, 0), n, k) == pytest.approx(n / (n + 300), rel=1e-15)
    assert lib.pk_gemm_shape_factor(shaped(0, 200), n, k) == pytest.approx(k / (k + 200), rel=1e-15)
    assert lib.pk_gemm_shape_factor(shaped(0, 0), n, k) == 1
    assert lib.pk_gemm_shape_factor(shaped(300, 200, lib.PK_GEMM_TOKEN_RAMP), n, k) == 1


@pytest.mark.parametrize(("n", "k"), [(0.0, 0.0), (0.0, 7168.0), (7168.0, 0.0)])
def test_a_width_of_nothing_is_left_out(n: float, k: float) -> None:
    """Law 15."""
    expected = (n / (n + 300) if n else 1) * (k / (k + 200) if k else 1)
    assert lib.pk_gemm_shape_factor(shaped(300, 200), n, k) == pytest.approx(expected, rel=1e-15)


# ---- prefill attention ---------------------------------------------------------------------------------------------


def pairs4_by_query(scheduled: int, computed: int, window: int) -> int:
    """Four times the keys that the queries read, one query after the other.

    The query at position p reads what precedes it and itself, p + 1 keys, or a full window. The diagonal counts half:
    half a key less for every query whose own first key is still in sight.
    """
    total = 0
    for position in range(computed, computed + scheduled):
        if window <= 0 or position + 1 <= window:
            total += 4 * (position + 1) - 2
        else:
            total += 4 * window
    return total


@pytest.mark.parametrize("window", [0, -3, *range(1, 16), 20, 31, 10**6])
def test_prefill_pairs_are_those_of_each_query(window: int) -> None:
    """Law 28."""
    for scheduled, computed in itertools.product(range(16), range(16)):
        expected = pairs4_by_query(scheduled, computed, window)
        assert lib.pk_prefill_pairs4(scheduled, computed, window) == expected, (scheduled, computed)


@pytest.mark.parametrize(
    ("scheduled", "computed", "window"), [(2048, 0, 128), (2048, 8192, 128), (512, 100, 512), (333, 7777, 8192)]
)
def test_prefill_pairs_of_serving_sizes(scheduled: int, computed: int, window: int) -> None:
    """Law 28."""
    for bound in (0, window):
        expected = pairs4_by_query(scheduled, computed, bound)
        assert lib.pk_prefill_pairs4(scheduled, computed, bound) == expected


def test_the_longest_request_does_not_overflow() -> None:
    longest = lib.PK_MAX_REQUEST_TOKENS
    assert longest == 2**30
    assert lib.pk_prefill_pairs4(longest, 0, 0) == 2 * longest**2
    assert lib.pk_prefill_pairs4(longest // 2, longest // 2, 0) == 6 * (longest // 2) ** 2
    assert lib.pk_prefill_pairs4(longest, 0, longest) == 2 * longest**2
    assert lib.pk_prefill_pairs4(longest // 2, longest // 2, 4096) == 4 * (longest // 2) * 4096


# ---- context parallelism -------------------------------------------------------------------------------------------


def chunks_of_rank(scheduled: int, ranks: int, rank: int) -> list[tuple[int, int]]:
    """The (first, last + 1) tokens of a rank: its chunk from the front and its chunk from the back."""
    size = -(-scheduled // (2 * ranks))
    cut = [min(index * size, scheduled) for index in range(2 * ranks + 1)]
    return [(cut[index], cut[index + 1]) for index in (rank, 2 * ranks - 1 - rank)]


def pairs4_of_rank(scheduled: int, computed: int, ranks: int, rank: int) -> int:
    return sum(
        4 * (computed + position + 1) - 2
        for first, end in chunks_of_rank(scheduled, ranks, rank)
        for position in range(first, end)
    )


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_the_busiest_rank_of_a_shared_prefill_counts(ranks: int) -> None:
    """Law 49."""
    for scheduled, computed in itertools.product(range(1, 140), [0, 77]):
        share = lib.pk_share_prefill(scheduled, computed, ranks, 0)
        tokens = [sum(end - first for first, end in chunks_of_rank(scheduled, ranks, rank)) for rank in range(ranks)]
        assert sum(tokens) == scheduled
        assert share.tokens == max(tokens), scheduled
        if share.tokens < scheduled:
            pairs = [pairs4_of_rank(scheduled, computed, ranks, rank) for rank in range(ranks)]
            assert share.pairs4 == max(pairs), scheduled
        else:
            assert share.pairs4 == lib.pk_prefill_pairs4(scheduled, computed, 0)
        busiest = chunks_of_rank(scheduled, ranks, tokens.index(max(tokens)))
        runs = [(share.run_tokens[run], share.run_computed[run]) for run in (0, 1)]
        expected = [(end - first, computed + first) for first, end in busiest if end > first]
        assert [run for run in runs if run[0]] == (expected if share.tokens < scheduled else [(scheduled, computed)])


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_busiest_rank_takes_as_many_tokens_as_its_two_chunks_hold(ranks: int) -> None:
    """Law 49."""
    for scheduled in range(600):
        chunks = [chunks_of_rank(scheduled, ranks, rank) for rank in range(ranks)]
        tokens = [sum(end - first for first, end in chunk) for chunk in chunks]
        assert sum(tokens) == scheduled
        assert lib.pk_share_prefill(scheduled, 0, ranks, 0).tokens == max(tokens), scheduled


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_prefill_that_divides_evenly_is_shared_evenly(ranks: int) -> None:
    """Law 51."""
    share = lib.pk_share_prefill(4096, 8192, ranks, 0)
    assert share.tokens * ranks == 4096
    assert share.pairs4 * ranks == lib.pk_prefill_pairs4(4096, 8192, 0)


@pytest.mark.parametrize(
    ("scheduled", "computed", "ranks", "over_even"),
    [(4096, 0, 8, 1.0), (1001, 0, 8, 1.014035), (1001, 8192, 4, 1.007398), (100, 0, 8, 1.254400)],
)
def test_an_uneven_prefill_costs_more_than_its_share(
    scheduled: int, computed: int, ranks: int, over_even: float
) -> None:
    """Law 51."""
    even = lib.pk_prefill_pairs4(scheduled, computed, 0) / ranks
    found = lib.pk_share_prefill(scheduled, computed, ranks, 0).pairs4 / even
    assert found == pytest.approx(over_even, abs=5e-7)


@pytest.mark.parametrize(("scheduled", "ranks", "tokens"), [(17, 8, 17), (16, 8, 2), (15, 8, 15), (2, 2, 2), (4, 2, 2)])
def test_a_prefill_too_short_to_fill_every_chunk_may_be_done_whole(scheduled: int, ranks: int, tokens: int) -> None:
    """Law 50."""
    assert lib.pk_share_prefill(scheduled, 0, ranks, 1).tokens == tokens


def test_one_rank_does_all_of_a_prefill() -> None:
    share = lib.pk_share_prefill(333, 77, 1, 0)
    assert (share.tokens, share.pairs4) == (333, lib.pk_prefill_pairs4(333, 77, 0))
    assert (share.run_tokens[0], share.run_computed[0], share.run_tokens[1]) == (333, 77, 0)


@pytest.mark.parametrize(("ranks", "interleave"), list(itertools.product([2, 3, 4, 8], [1, 16, 32])))
def test_the_fullest_rank_of_a_dealt_cache_counts(ranks: int, interleave: int) -> None:
    """Law 42."""
    for tokens in range(600):
        dealt = [0] * ranks
        for token in range(tokens):
            dealt[token // interleave % ranks] += 1
        assert lib.pk_decode_shard(tokens, ranks, interleave) == max(dealt), tokens


@pytest.mark.parametrize(
    ("tokens", "ranks", "interleave", "expected"),
    [(1000, 8, 32, 128), (1000, 3, 1, 334), (4000, 3, 1, 1334), (100, 8, 64, 64), (100, 8, 1, 13), (4096, 8, 64, 512)],
)
def test_shards_of_known_contexts(tokens: int, ranks: int, interleave: int, expected: int) -> None:
    """Laws 42 and 47."""
    assert lib.pk_decode_shard(tokens, ranks, interleave) == expected


def read(law: int, **fields: int) -> Any:
    return ffi.new("pk_read_law *", {"law": law, **fields})


@pytest.mark.parametrize("context", [0, 1, 127, 128, 129, 4096, 2**30])
def test_a_decode_reads_its_context_or_its_window(context: int) -> None:
    assert lib.pk_read_entries(read(lib.PK_READ_ALL), context) == context
    assert lib.pk_read_entries(read(lib.PK_READ_WINDOW, window=128), context) == min(context, 128)


@pytest.mark.parametrize(("top_k", "ratio", "window"), list(itertools.product([0, 64, 1024], [1, 4, 128], [0, 128])))
def test_a_selecting_layer_reads_what_it_selects_and_its_window(top_k: int, ratio: int, window: int) -> None:
    law = read(lib.PK_READ_SELECTED, top_k=top_k, compress_ratio=ratio, window=window)
    for context in (0, 1, 63, 64, 65, 127, 129, 1000, 4096, 131_072):
        compressed = Fraction(context, ratio)
        selected = min(Fraction(top_k), compressed) if top_k else compressed
        expected = min(Fraction(context), selected + (min(context, window) if window else 0))
        assert lib.pk_read_entries(law, context) == expected * ratio, context


@pytest.mark.parametrize("context", [4_096, 131_072])
def test_a_compressed_read_of_the_published_shape(context: int) -> None:
    law = read(lib.PK_READ_SELECTED, top_k=1024, compress_ratio=4, window=128)
    assert lib.pk_read_entries(law, context) == 1_152 * 4


# ---- routed experts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "untouched"),
    [(8, 2, 1, 6.0), (8, 2, 3, 8 - 4.625), (8, 2, 100, 2.566e-12), (256, 8, 64, 256 - 222.4425)],
)
def test_touched_experts_of_reported_cases(experts: int, top_k: int, tokens: int, untouched: float) -> None:
    # Figures of inference-sim issues 764 and 790; the difference shows the third one, which is all but 8.
    found = experts - lib.pk_experts_touched(tokens, experts, top_k, experts)
    assert found == pytest.approx(untouched, rel=1e-3)


@pytest.mark.parametrize(
    ("experts", "top_k", "local"), [(8, 2, 8), (256, 8, 256), (256, 8, 16), (128, 8, 16), (7, 3, 2), (384, 1, 4)]
)
def test_touched_experts_are_the_exact_expectation(experts: int, top_k: int, local: int) -> None:
    for tokens in (1, 2, 3, 5, 8, 17, 64, 255, 1000):
        exact = local * (1 - Fraction(experts - top_k, experts) ** tokens)
        assert lib.pk_experts_touched(tokens, experts, top_k, local) == pytest.approx(float(exact), rel=1e-13)


def test_one_token_touches_its_share_of_a_rank() -> None:
    assert lib.pk_experts_touched(1, 256, 8, 16) == pytest.approx(8 * 16 / 256, rel=1e-15)


@pytest.mark.parametrize(("tokens", "local"), [(0, 8), (-5, 8), (10, 0), (10, -1)])
def test_no_tokens_or_no_experts_touch_nothing(tokens: int, local: int) -> None:
    assert lib.pk_experts_touched(tokens, 8, 2, local) == 0


@pytest.mark.parametrize("top_k", [8, 9])
def test_a_token_that_visits_every_expert_touches_all(top_k: int) -> None:
    assert lib.pk_experts_touched(1, 8, top_k, 4) == 4


def test_touched_experts_rise_to_all_and_not_beyond() -> None:
    found = [lib.pk_experts_touched(2**power, 256, 8, 32) for power in range(32)]
    assert all(low <= high for low, high in itertools.pairwise(found))
    assert found[-1] == 32


# ---- collectives ---------------------------------------------------------------------------------------------------

# Floor in ns, transition and peak rate in bytes/s of inference-sim/blis-registry v0.1.1, fp16, h200.
MEASURED = {
    "all_reduce over 8": (4_710, 104_250e6, 134_260e6),
    "all_gather over 8": (10_300, 148_500e6, 192_431e6),
}


def collective(floor_ns: int, transition: float, peak: float) -> Any:
    return ffi.new(
        "pk_collective_law *",
        {
            "law": lib.PK_COLLECTIVE_TWO_RATES,
            "floor_ns": floor_ns,
            "transition_bytes_per_second": transition,
            "peak_bytes_per_second": peak,
        },
    )


@pytest.mark.parametrize("triple", MEASURED.values(), ids=MEASURED)
def test_a_collective_is_bound_by_its_floor_and_its_peak_rate(triple: tuple[int, float, float]) -> None:
    """Law 19."""
    floor_ns, transition, peak = triple
    law = collective(*triple)
    for size in (2.0**power for power in range(41)):
        found = lib.pk_collective_seconds(law, size)
        assert found >= size / peak
        assert found == pytest.approx(max(floor_ns / 1e9 + size / transition, size / peak), rel=1e-14)


@pytest.mark.parametrize("triple", MEASURED.values(), ids=MEASURED)
def test_a_small_collective_costs_its_floor(triple: tuple[int, float, float]) -> None:
    """Law 19."""
    assert lib.pk_collective_seconds(collective(*triple), 256.0) == pytest.approx(triple[0] / 1e9, rel=0.01)


def test_an_all_reduce_of_the_published_example() -> None:
    law = collective(*MEASURED["all_reduce over 8"])
    assert 2 * lib.pk_collective_seconds(law, 458_752.0) == pytest.approx(18.2210e-6, abs=5e-11)


@pytest.mark.parametrize("size", [1.0, 1e5, 1e6, 1e9])
def test_without_a_transition_rate_two_terms_remain(size: float) -> None:
    """Law 19."""
    assert lib.pk_collective_seconds(collective(5_000, 0.0, 1e11), size) == max(5e-6, size / 1e11)


@pytest.mark.parametrize("size", [0.0, -1.0, math.nan])
def test_nothing_to_send_costs_the_floor(size: float) -> None:
    assert lib.pk_collective_seconds(collective(5_000, 1e11, 1e11), size) == 5e-6


# ---- leaving the node ----------------------------------------------------------------------------------------------

RATIOS = [1.5, 9.0, 18.0, 64.0]


def span(kind: int, width: int, per_node: int, ratio: float, crosses: bool = True) -> float:
    group = ffi.new("pk_group *", {"width": width, "per_node": per_node, "crosses_nodes": int(crosses)})
    return float(lib.pk_span_factor(group, kind, ratio))


@pytest.mark.parametrize(
    ("kind", "width", "per_node", "expected"),
    [
        (lib.PK_SPAN_RING, 16, 8, 1.5333333),
        (lib.PK_SPAN_RING, 12, 8, 9.0),  # not whole nodes: the slowest link throughout
        (lib.PK_SPAN_ALL_TO_ALL, 16, 8, 5.2666667),
        (lib.PK_SPAN_ALL_TO_ALL, 72, 8, 8.2112676),
    ],
)
def test_span_factors_of_a_network_nine_times_slower(kind: int, width: int, per_node: int, expected: float) -> None:
    """Law 18."""
    assert span(kind, width, per_node, 9.0) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(("per_node", "nodes"), list(itertools.product([2, 4, 8], [2, 3, 4, 9])))
def test_a_ring_over_whole_nodes_is_its_two_level_decomposition(per_node: int, nodes: int, ratio: float) -> None:
    """Law 17."""
    width = per_node * nodes
    inside, between = Fraction(2 * (per_node - 1), per_node), Fraction(2 * (nodes - 1), nodes * per_node)
    flat = Fraction(2 * (width - 1), width)
    expected = (inside + between * Fraction(ratio)) / flat
    assert span(lib.PK_SPAN_RING, width, per_node, ratio) == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(("width", "per_node"), list(itertools.product([2, 3, 8, 12, 16, 72], [1, 2, 4, 8])))
def test_point_to_point_never_crosses_more_cheaply_than_whole_node_rings(
    width: int, per_node: int, ratio: float
) -> None:
    """Laws 16 and 18."""
    ring = span(lib.PK_SPAN_RING, width, per_node, ratio)
    routed = span(lib.PK_SPAN_ALL_TO_ALL, width, per_node, ratio)
    assert 1 <= routed <= ratio * (1 + 1e-15) and 1 <= ring <= ratio * (1 + 1e-15)
    if width <= per_node:
        assert ring == routed == 1
    elif width % per_node == 0:
        assert routed >= ring
    else:
        assert ring == ratio


@pytest.mark.parametrize("kind", [lib.PK_SPAN_RING, lib.PK_SPAN_ALL_TO_ALL])
def test_a_slower_network_never_costs_less(kind: int) -> None:
    """Law 16."""
    found = [span(kind, 16, 8, ratio) for ratio in (0.1, 0.5, 1.0, 1.1, 2.0, 9.0, 100.0)]
    assert all(low <= high for low, high in itertools.pairwise(found))
    assert found[2] == 1 < found[3]


@pytest.mark.parametrize("kind", [lib.PK_SPAN_RING, lib.PK_SPAN_ALL_TO_ALL])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, -9.0, math.nan, math.inf, -math.inf])
def test_a_network_that_is_no_slower_adds_nothing(kind: int, ratio: float) -> None:
    """Law 16."""
    assert span(kind, 16, 8, ratio) == 1


@pytest.mark.parametrize("kind", [lib.PK_SPAN_RING, lib.PK_SPAN_ALL_TO_ALL])
def test_a_group_that_stays_inside_adds_nothing(kind: int) -> None:
    """Law 16."""
    assert span(kind, 16, 4, 9.0, crosses=False) == 1  # one rack-scale domain
    assert span(kind, 8, 8, 9.0) == 1
    assert span(kind, 1, 8, 9.0) == 1
