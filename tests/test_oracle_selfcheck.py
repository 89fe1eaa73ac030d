"""The oracle held to figures that were published or computed elsewhere, so that it may judge the kernel.

A wrong oracle is worse than none: every number here was worked out without it. Times are in nanoseconds and may
differ by 2, since others add up in doubles what the oracle adds up exactly. Published figures: the documentation of
inference-sim/blis-latency-kernel (example, sweep, prefills) and figures in its tests; the other vectors come from a
second implementation of the same laws.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from pykernel.documents import Inputs, Speculative, list_scenarios
from pykernel.errors import RefusedError
from tests.oracle import NEWEST, REFERENCE, Batch, Oracle, Price, Request, Settings, plan, random_batch
from tests.oracle.batch import split_prefill, walk, windowed_pairs4, zigzag
from tests.oracle.coefficients import choose_width
from tests.oracle.fixtures import TESTDATA, scenario, without_latent_norm_bytes
from tests.oracle.formats import CacheFormat
from tests.oracle.graphs import Limits, capture_sizes, default_capture_sizes
from tests.oracle.laws import Ramp, context_chunk, decode_read, shard, touched_experts
from tests.oracle.layer import context_collectives
from tests.oracle.layout import (
    DECODE_CONTEXT,
    EXPERT,
    PREFILL_CONTEXT,
    all_to_all_span,
    flat_span,
    layout_of,
    ring_span,
    span,
)
from tests.oracle.plan import AttentionShape, gemm_shape
from tests.oracle.vectors import (
    CAPTURES,
    DECODES,
    DEEPSEEK,
    EP16,
    GLM,
    NEWER,
    OLDER,
    PROMPT,
    RECOMPUTED,
    ROWS,
    SMALL_MIX,
    SWEEP,
    UNDRAFTED,
)

THRESHOLD = 8
KEPT = sorted(path.stem for path in (TESTDATA / "scenarios").glob("*.yaml"))


def older_deepseek() -> Inputs:
    return without_latent_norm_bytes(scenario(DEEPSEEK))


def columns(price: Price) -> tuple[int, ...]:
    parts = (price.sm, price.hbm, price.nvlink, price.nic, price.host)
    return (*parts, price.overlap_ns, price.no_overlap_ns)


def assert_close(price: Price, expected: tuple[int, ...]) -> None:
    assert len(expected) == 7
    assert all(abs(a - b) <= 2 for a, b in zip(columns(price), expected, strict=True)), (columns(price), expected)


@pytest.mark.parametrize("name", OLDER)
def test_reference_settings_reproduce_the_older_deepseek_vectors(name: str) -> None:
    requests, expected = OLDER[name]
    assert_close(Oracle(older_deepseek(), REFERENCE).price(requests, THRESHOLD), expected)


@pytest.mark.parametrize("name", NEWER)
def test_newest_settings_reproduce_the_newer_deepseek_vectors(name: str) -> None:
    requests, expected = NEWER[name]
    assert_close(Oracle(scenario(DEEPSEEK)).price(requests, THRESHOLD), expected)


def test_head_width_and_gather_are_separate_choices() -> None:
    price = Oracle(scenario(DEEPSEEK), replace(NEWEST, head_16_bit=False)).price(DECODES, THRESHOLD)
    assert_close(price, (4464780, 16503430, 1177497, 0, 3544399, 24148180, 25690106))


def test_sweep_over_decodes_follows_the_published_plot() -> None:
    oracle = Oracle(older_deepseek(), REFERENCE)
    for count, plotted in SWEEP.items():
        price = oracle.price([Request(1, 4095)] * count, THRESHOLD)
        found = [value / 1e6 for value in columns(price)[:3] + columns(price)[5:]]
        assert found == pytest.approx(RECOMPUTED[count], abs=0.0006), count
        assert found == pytest.approx(plotted, abs=0.035), count
        assert price.bottleneck == ("host" if count <= 2 else "hbm")


@pytest.mark.parametrize(
    ("pcp", "published"), [(1, 38.39), (2, 40.63), (4, 45.13)], ids=["one rank", "two ranks", "four ranks"]
)
def test_prefills_of_equal_local_tokens_reproduce_the_published_arithmetic(pcp: int, published: float) -> None:
    inputs = older_deepseek()
    inputs.deployment.pools[0].parallel.pcp = pcp
    price = Oracle(inputs, REFERENCE).price([Request(1024 * pcp)], THRESHOLD)
    assert price.sm / 1e6 == pytest.approx(published, abs=0.006)
    assert (price.nic > 0) == (pcp > 1)


def test_host_time_by_graph_mode() -> None:
    for mode, host in {"FULL": 3117399, "PIECEWISE": 3544399, "NONE": 3537399}.items():
        inputs = scenario(DEEPSEEK)
        inputs.deployment.pools[0].engine.cudagraph_mode = mode
        assert Oracle(inputs).price(DECODES, THRESHOLD).host == host


SKIPPED = [Request(2, -2), Request(4, 0)]


def test_tokens_of_a_skipped_request_count() -> None:
    oracle = Oracle(older_deepseek(), REFERENCE)
    found = [oracle.price(batch, THRESHOLD).no_overlap_ns / 1e6 for batch in (SKIPPED, SKIPPED[1:])]
    assert found == pytest.approx([12.924, 11.675], abs=0.0006)


def test_recorded_figures_of_the_oldest_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """12.87 and 11.64 ms, recorded when activations had one byte and a latent cache two tensors."""
    monkeypatch.setattr(plan, "ACTIVATION_BYTES", 1)
    own = CacheFormat.bytes_per_token
    monkeypatch.setattr(CacheFormat, "bytes_per_token", lambda *args: 2 * own(*args))
    oracle = Oracle(older_deepseek(), REFERENCE)
    found = [oracle.price(batch, THRESHOLD).no_overlap_ns / 1e6 for batch in (SKIPPED, SKIPPED[1:])]
    assert found == pytest.approx([12.873, 11.641], abs=0.0006)


@pytest.mark.parametrize(("name", "pool", "settings", "requests_", "expected"), ROWS)
def test_scenario_vectors(
    name: str, pool: int, settings: Settings, requests_: list[Request], expected: tuple[int, ...]
) -> None:
    assert_close(Oracle(scenario(name, pool), settings).price(requests_, THRESHOLD), expected)


def test_draft_passes_of_deepseek() -> None:
    inputs = scenario(DEEPSEEK)
    engine = inputs.deployment.pools[0].engine
    engine.speculative, engine.cudagraph_mode = Speculative("deepseek_mtp", 3), "FULL_AND_PIECEWISE"
    for settings, expected in ((UNDRAFTED, 37380472), (NEWEST, 39330069)):
        price = Oracle(inputs, settings).price([Request(4, 4092)] * 32, THRESHOLD)
        assert abs(price.no_overlap_ns - expected) <= 2


def test_spans_of_groups_that_leave_their_nodes() -> None:
    assert ring_span(16, 8, 9) == Fraction(23, 15) and flat_span(16, 8, 9) == 9
    assert float(ring_span(32, 8, 9)) == pytest.approx(1.77419, abs=1e-5)
    found = [float(all_to_all_span(width, 8, 9)) for width in (16, 32, 72)]
    assert found == pytest.approx([5.26667, 7.19355, 8.2113], abs=1e-4)
    assert ring_span(12, 8, 9) == flat_span(12, 8, 9) and ring_span(8, 8, 9) == all_to_all_span(8, 8, 9) == 1
    assert all(span(3, 7, ratio) == 1 for ratio in (0, 0.5, 1, math.nan, math.inf, -math.inf))
    for per_node, nodes, ratio in ((8, 2, 9), (4, 3, 18), (8, 9, 2)):
        width = per_node * nodes
        steps = Fraction(per_node - 1, per_node) + Fraction(nodes - 1, nodes * per_node) * ratio
        assert ring_span(width, per_node, ratio) == steps / Fraction(width - 1, width)


def test_windowed_pairs_equal_a_count_query_by_query() -> None:
    for new, prefix, window in ((7, 0, 3), (7, 2, 4), (5, 9, 3), (1, 0, 1), (6, 3, 9), (6, 3, 8), (40, 17, 33)):
        positions = [prefix + index for index in range(new)]
        keys = sum(min(p + 1, window) - (Fraction(1, 2) if p + 1 <= window else 0) for p in positions)
        assert windowed_pairs4([(new, prefix)], window) == 4 * keys, (new, prefix, window)


def test_a_decode_context_shard_is_the_fullest_rank() -> None:
    for ranks in (2, 4, 8):
        for turn in (1, 16, 32):
            for length in range(600):
                held = [sum(length > i for i in _stored(length, ranks, turn, rank)) for rank in range(ranks)]
                assert sum(held) == length and shard(length, ranks, turn) == max(held)
    assert shard(1000, 8, 32) == 128 and shard(100, 8, 64) == 64 and shard(100, 8, 1) == 13
    assert 4 * shard(1000, 3, 1) == 1336 and shard(4000, 3, 1) == 1334


def _stored(length: int, ranks: int, turn: int, rank: int) -> Iterator[int]:
    """Positions that a rank stores when ranks take turns."""
    for first in range(rank * turn, length, ranks * turn):
        yield from range(first, min(first + turn, length))


def test_local_prefill_tokens_are_those_of_the_busiest_rank() -> None:
    for pcp in (2, 4, 8):
        for length in range(1, 600):
            held = [sum(high - low for low, high in chunks) for chunks in zigzag(length, pcp)]
            assert sum(held) == length and split_prefill(length, 0, pcp, 1)[0] == max(held)
    assert split_prefill(17, 0, 8, 2)[0] == 17 and split_prefill(16, 0, 8, 2)[0] == 2


@pytest.mark.parametrize(
    ("length", "prefix", "pcp", "ratio"),
    [(4096, 0, 8, 1.0), (1001, 0, 8, 1.014035), (1001, 8192, 4, 1.007398), (100, 0, 8, 1.2544)],
)
def test_pairs_of_the_busiest_rank_over_an_equal_share(length: int, prefix: int, pcp: int, ratio: float) -> None:
    share = Fraction(split_prefill(length, prefix, 1, 1)[1], pcp)
    assert float(split_prefill(length, prefix, pcp, 1)[1] / share) == pytest.approx(ratio, abs=5e-7)


def test_expert_coverage_at_counts_worked_out_by_hand() -> None:
    assert [touched_experts(tokens, 8, 2, 8) for tokens in (1, 3)] == [2, Fraction(37, 8)]
    assert float(8 - touched_experts(100, 8, 2, 8)) == pytest.approx(2.6e-12, rel=0.02)
    assert float(touched_experts(64, 256, 8, 256)) == pytest.approx(222.4425, abs=1e-4)
    assert float(touched_experts(32, 256, 8, 256)) == pytest.approx(163.31, abs=5e-3)
    assert touched_experts(5, 4, 4, 2) == 2 and touched_experts(10**7, 256, 8, 32) == pytest.approx(32)


def test_efficiency_has_half_its_asymptote_at_the_half_point() -> None:
    ramp = Ramp(Fraction("0.736"), Fraction(113), Fraction(512), Fraction(256))
    assert ramp.at(0) == 0 and ramp.at(113) == Fraction("0.368") and ramp.at(10**9) < Fraction("0.736")
    shape = gemm_shape(4096, 2048, 2048)
    assert ramp.at_shape(113, shape, 8) == Fraction("0.368") * Fraction(512, 1024) * Fraction(2048, 2304)
    assert Ramp(ramp.eps_max, ramp.m_half).at_shape(7, shape, 8) == ramp.at(7)


def test_split_axis_of_a_product() -> None:
    hidden = 6144
    found = [gemm_shape(n, k, hidden).split for n, k in ((9216, hidden), (hidden, 8192), (640, hidden))]
    assert found == ["n", "k", "n"]
    assert gemm_shape(hidden, hidden, hidden).split == gemm_shape(9216, hidden, 0).split == "k"


def test_sparse_reads_by_both_readings() -> None:
    both = AttentionShape("sparse_mla", 128, 1, 512, 0, 128, 1024, 4)
    for context, older in ((4096, 1792), (131072, 33536)):
        assert decode_read(context, both, NEWEST) == 1152 and decode_read(context, both, REFERENCE) == older
    selected = replace(both, index_topk=2048, compress_ratio=0, window=0)
    assert all(decode_read(3298, selected, settings) == 2048 for settings in (NEWEST, REFERENCE))
    windowed = AttentionShape("swa", 64, 8, 64, 0, 128, 0, 0)
    assert decode_read(4096, windowed, NEWEST) == 128 and decode_read(4096, windowed, REFERENCE) == 4096


def test_measured_widths_that_stand_for_a_group() -> None:
    assert [choose_width(width, [2, 4, 8]) for width in (1, 4, 8, 16, 32)] == [2, 4, 8, None, 8]
    assert choose_width(32, [2, 4, 8, 32]) == 32 and choose_width(2, []) is None


def test_capture_size_lists() -> None:
    for (sequences, budget, width, largest), expected in CAPTURES.items():
        sizes = default_capture_sizes(Limits(sequences, budget, width, largest))
        assert (len(sizes), sizes[-1]) == expected
    limits = Limits(18, 8192, 1, 512)
    assert default_capture_sizes(limits) == [1, 2, 4, 8, 16, 18, 24, 32]
    assert capture_sizes(limits, [], 100)[-1] == 96 and capture_sizes(limits, [700, 9000, 3, 3], 0) == [3, 700]
    with pytest.raises(RefusedError, match="largest"):
        capture_sizes(limits, [8, 16], 32)


def test_graphs_end_above_the_largest_captured_size() -> None:
    prices = {}
    for mode in ("FULL_AND_PIECEWISE", "NONE"):
        inputs = scenario(DEEPSEEK)
        inputs.deployment.pools[0].engine.cudagraph_mode = mode
        prices[mode] = [Oracle(inputs).price([Request(1, 63)] * count) for count in (512, 513)]
    assert prices["FULL_AND_PIECEWISE"][1] == prices["NONE"][1]
    assert prices["FULL_AND_PIECEWISE"][0].host + 60 * 7000 == prices["NONE"][0].host


def test_high_throughput_dispatch_turns_graphs_off_over_data_parallel_ranks() -> None:
    for backend, host in (("deepep_low_latency", 0), ("deepep_high_throughput", -7000)):
        inputs = scenario(EP16)
        inputs.deployment.pools[0].engine.all2all_backend = backend
        priced = Oracle(inputs)
        assert priced.price(DECODES).host - priced.host.dispatch_ns(priced.host.kernels) == 63 * 7000 + host


def test_chunks_of_gathered_context_are_whole_stripes() -> None:
    assert context_chunk(0, 256, 16, 1, 1) == 65536 and context_chunk(1000, 64, 16, 1, 1) == 8000
    assert context_chunk(1000, 16, 64, 8, 64) == 8192


def test_prefill_context_group_leaves_the_node_where_members_are_far_apart() -> None:
    for tp, pcp, crosses in ((8, 2, True), (8, 4, True), (4, 2, False), (2, 4, False)):
        inputs = scenario(DEEPSEEK)
        parallel = inputs.deployment.pools[0].parallel
        parallel.tp, parallel.pcp = tp, pcp
        assert layout_of(inputs).groups[PREFILL_CONTEXT].crosses == crosses


def test_a_group_inside_a_rack_stays_on_nvlink() -> None:
    inputs = scenario("minimax-m2.5-gb300-tp4")
    parallel = inputs.deployment.pools[0].parallel
    parallel.enable_expert_parallel = True
    for dp, crosses in ((18, False), (19, True)):
        parallel.dp = dp
        assert layout_of(inputs).groups[EXPERT].crosses == crosses
    inputs.chip.intra_rack_bw_gbps, parallel.dp = 0, 18
    assert layout_of(inputs).groups[EXPERT].crosses


def decode_context(inputs: Inputs, dcp: int, combine: str = "", pcp: int = 0) -> Oracle:
    pool = inputs.deployment.pools[0]
    pool.parallel.dcp, pool.parallel.pcp, pool.engine.dcp_comm_backend = dcp, pcp, combine
    return Oracle(inputs)


def test_decode_context_ranks_divide_what_is_read_and_nothing_else() -> None:
    hbm = {dcp: decode_context(scenario(DEEPSEEK), dcp).terms(_batch(DECODES))[1].hbm for dcp in (1, 2, 4)}
    assert (hbm[1] - hbm[2]) == 2 * (hbm[2] - hbm[4]) > 0
    fresh = [decode_context(scenario(DEEPSEEK), dcp).price(PROMPT) for dcp in (1, 2, 8)]
    assert fresh[0] == fresh[1] == fresh[2]


def _batch(requests: list[Request]) -> Batch:
    return Batch(tuple(requests))


def test_decode_context_launches_the_collectives_of_its_combine() -> None:
    expected = {
        ("ag_rs", 0): {"decode-context all_gather", "decode-context reduce_scatter"},
        ("a2a", 0): {"decode-context all_gather", "decode-context alltoall"},
    }
    for (combine, pcp), names in expected.items():
        terms = decode_context(scenario(DEEPSEEK), 4, combine, pcp).terms(_batch(DECODES))[1]
        assert {name for name in terms.parts if name.startswith("decode-context")} == names
    inputs = scenario(GLM)
    pool = inputs.deployment.pools[0]
    pool.parallel.tp = 2
    pool.parallel.dp = 1
    for dcp, query in ((4, set()), (8, {"tensor all_gather"})):
        terms = decode_context(inputs, dcp, "ag_rs", 4).terms(_batch(DECODES))[1]
        parts = {name for name in terms.parts if "all_" in name}
        assert parts == {"decode-context all_gather", "decode-context all_reduce", "tensor all_reduce"} | query


def launches(oracle: Oracle, requests: list[Request]) -> list[tuple[str, str, Fraction | int]]:
    kind, layout = oracle.stack[0], oracle.layout
    assert kind.primary is not None
    walked = walk(requests, 1, layout.pcp, layout.dcp)
    return list(context_collectives(oracle.part, kind, kind.primary, walked))


def test_context_collectives_move_what_is_worked_out_by_hand() -> None:
    heads, gather, group = 128 // 8 * 4, "all_gather", DECODE_CONTEXT
    prefixed = [*DECODES, Request(100, 5000), Request(50, 3000), Request(60, 0)]
    query, exponents = (gather, group, 32 * heads * 576 * 2), (gather, group, 4 * 32 * heads * 4)
    contexts = [(gather, group, 3000 * 576 * 2), (gather, group, 5000 * 576 * 2)]
    outputs = [exponents, ("reduce_scatter", group, 32 * heads * 512 * 2)]
    assert launches(decode_context(scenario(DEEPSEEK), 4), prefixed) == [query, *outputs, *contexts]
    direct = [query, ("alltoall", group, 32 * heads * 514 * 2)]
    assert launches(decode_context(scenario(DEEPSEEK), 4, "a2a"), DECODES) == direct
    rows = [(gather, PREFILL_CONTEXT, 2 * 32 * width * 2) for width in (512, 64)]
    assert launches(decode_context(scenario(DEEPSEEK), 1, "", 2), [*DECODES, Request(64)]) == rows
    llama = scenario("llama-3.1-70b-h100-fp8-tp4")
    every_row = 32 + 100
    assert launches(decode_context(llama, 2), [*DECODES, Request(100)])[0] == (gather, group, every_row * 32 * 128 * 2)


def test_long_context_is_gathered_in_equal_chunks() -> None:
    found = launches(decode_context(scenario(DEEPSEEK), 4), [Request(9, 65000), Request(9, 70000)])
    assert found == [("all_gather", DECODE_CONTEXT, 135000 * 576 * 2 / Fraction(3))] * 3


def test_a_pooled_scorer_scans_its_share_of_the_context() -> None:
    spent = {}
    for ratio in (0, 1, 2, 4):
        inputs = scenario(GLM)
        for kind in inputs.model.layer_kinds:
            for node in kind.nodes:
                if node.role == "block_index_scores":
                    node.compress_ratio = ratio
        spent[ratio] = Oracle(inputs).terms(_batch(DECODES))[0].parts["scorer"]
    assert spent[0] == spent[1] and spent[1] - spent[2] == 2 * (spent[2] - spent[4]) > 0


def test_a_longer_prefix_adds_the_same_arithmetic_each_time() -> None:
    oracle = Oracle(scenario(DEEPSEEK))
    spent = [oracle.terms(_batch([Request(2048, prefix)]))[0].sm for prefix in (0, 2048, 4096)]
    slope = Fraction(4 * 2048 * 2048 * 128 * 576, 8) / (1979 * 10**12 * oracle.part.ramp.at(2048) * Fraction("0.4"))
    assert spent[1] - spent[0] == spent[2] - spent[1] == slope


def test_half_points_of_zero_leave_the_token_ramp() -> None:
    inputs = scenario(DEEPSEEK)
    plain = Oracle(inputs).price(SMALL_MIX)
    entries = inputs.coefficients[0].coefficients
    half = next(entry for entry in entries if entry.name == "gemm_m_half_fp8" and "h200" in entry.scope.hardware)
    for axis, value in (("n", 0.0), ("k", 0.0)):
        entries.append(replace(half, name=f"gemm_{axis}_half_fp8", value=value))
    shaped = Oracle(inputs)
    assert shaped.part.shape_aware and shaped.price(SMALL_MIX) == plain
    entries[-1].value = 512.0
    assert Oracle(inputs).price(SMALL_MIX).sm > plain.sm
    entries.pop()
    with pytest.raises(RefusedError, match="gemm_k_half_fp8"):
        Oracle(inputs)


def test_padding_runs_the_forward_but_neither_head_nor_attention() -> None:
    oracle = Oracle(scenario("qwen3-30b-a3b-h200-dp4"))
    idle = oracle.price([], pad_tokens=32)
    layer, head = oracle.terms(replace(_batch([]), pad_tokens=32))
    assert head.sm == head.hbm == head.nvlink == 0 and "attention decode" not in layer.parts
    busy = oracle.terms(_batch([Request(1, 4095)] * 32))[0]
    assert layer.parts["routed weights"] == busy.parts["routed weights"] and layer.nvlink == busy.nvlink
    assert idle.sm > 0 and oracle.price([]).sm == 0 and oracle.price([]).bottleneck == "host"


def test_withheld_sms_slow_arithmetic_only() -> None:
    oracle = Oracle(scenario(DEEPSEEK))
    whole, half = oracle.price(DECODES), oracle.price(DECODES, sm_budget=66)
    assert half.sm == pytest.approx(2 * whole.sm, abs=2)
    assert (half.hbm, half.nvlink, half.host) == (whole.hbm, whole.nvlink, whole.host)
    assert oracle.price(DECODES, sm_budget=132) == oracle.price(DECODES, sm_budget=500) == whole


def test_one_launch_for_both_regimes_refunds_the_smaller_floor() -> None:
    def floors(name: str) -> tuple[Fraction, Fraction]:
        oracle = Oracle(scenario(name))
        mixed, *alone = (oracle.terms(_batch(part))[0] for part in (SMALL_MIX, SMALL_MIX[:-1], SMALL_MIX[-1:]))
        hbm = mixed.parts["attention decode"] - alone[0].parts["attention decode"]
        ramps = oracle.part.ramp.at(480) / oracle.part.ramp.at(512)
        floor = oracle.coefficients.floor("attention_prefill_floor")
        work = (alone[1].parts["attention prefill"] - floor) * ramps
        return hbm, mixed.parts["attention prefill"] - work - floor

    assert floors("llama-3.1-70b-h100-fp8-tp4") == (Fraction(-14500, 10**9), Fraction(0))
    both = (Fraction(0), Fraction(0))
    assert floors(DEEPSEEK) == floors("minimax-m2.5-gb300-tp4") == both


def test_sequence_parallel_experts_replace_one_reduction_by_two_collectives() -> None:
    inputs = scenario(EP16)
    inputs.deployment.pools[0].engine.all2all_backend = "nixl_ep"
    paired, bare = Oracle(inputs), Oracle(inputs, replace(NEWEST, sp_moe_pair=False))
    assert paired.stack[0].kernels == bare.stack[0].kernels + 2
    parts = [set(oracle.terms(_batch(DECODES))[0].parts) for oracle in (paired, bare)]
    assert parts[0] - parts[1] == {"tensor reduce_scatter", "tensor all_gather"}


@pytest.mark.parametrize("name", [*list_scenarios(), *KEPT])
def test_random_batches_keep_the_shape_of_an_estimate(name: str) -> None:
    inputs = scenario(name)
    rng = random.Random(name)
    for settings in (NEWEST, REFERENCE):
        oracle = Oracle(inputs, settings)
        for _ in range(12):
            batch = random_batch(rng, inputs)
            price = oracle.price_batch(batch)
            parts = {resource: getattr(price, resource) for resource in ("sm", "hbm", "nvlink", "nic", "host")}
            assert sum(parts.values()) == price.no_overlap_ns >= price.overlap_ns > 0, batch
            assert max(parts.values()) == parts[price.bottleneck] <= price.overlap_ns, batch
            longer = [Request(request.scheduled, request.computed + 1) for request in batch.requests]
            assert oracle.price_batch(replace(batch, requests=tuple(longer))).hbm >= price.hbm, batch
