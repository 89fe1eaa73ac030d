"""The oracle's single laws, held to counts by brute force, to values worked out by hand, and to relations of steps.

The vectors beside (`test_oracle_selfcheck.py`) reach neither context parallelism nor every kind of layer; these do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from pykernel_python_reference.oracle import NEWEST, REFERENCE, Batch, Oracle, Request, Settings, plan
from pykernel_python_reference.oracle.batch import split_prefill, walk, windowed_pairs4, zigzag
from pykernel_python_reference.oracle.coefficients import choose_width
from pykernel_python_reference.oracle.formats import WIDTHS
from pykernel_python_reference.oracle.graphs import Limits, capture_sizes, default_capture_sizes, limits_of
from pykernel_python_reference.oracle.laws import Ramp, context_chunk, decode_read, shard, touched_experts
from pykernel_python_reference.oracle.layer import context_collectives
from pykernel_python_reference.oracle.layout import (
    DECODE_CONTEXT,
    EXPERT,
    PREFILL_CONTEXT,
    all_to_all_span,
    flat_span,
    layout_of,
    ring_span,
    span,
)
from pykernel_python_reference.oracle.plan import AttentionShape, gemm_shape

from pykernel.documents import Inputs, Node, Scope, Speculative
from pykernel.errors import RefusedError
from tests.published.fixtures import scenario
from tests.published.vectors import (
    CAPTURES,
    DECODES,
    DEEPSEEK,
    DISAGG,
    EP16,
    GLM,
    PROMPT,
    QWEN,
    SMALL_MIX,
    V4,
)


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
    assert split_prefill(8, 5, 2, 1)[2] == [(2, 5), (2, 11)] and split_prefill(1, 5, 2, 1)[2] == [(1, 5)]


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
    every_row, wide = 32 + 100, 64 // 4 * 2
    full = launches(decode_context(scenario("llama-3.1-70b-h100-fp8-tp4"), 2), [*DECODES, Request(100, 7)])
    assert [payload for _, _, payload in full] == [every_row * wide * size for size in (256, 8, 256)]


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


def test_a_windowed_scorer_scans_no_more_than_its_windows() -> None:
    inputs = scenario(GLM)
    for kind in inputs.model.layer_kinds:
        for node in kind.nodes:
            if node.role == "block_index_scores":
                node.window = 1000
    requests = [Request(1, 99), Request(1, 4999), Request(1, 1899)]
    oracle = Oracle(inputs)
    entry = Fraction(656 * 128, 576) / oracle.coefficients.rate("attention_decode_rate")
    expected = oracle.coefficients.floor("attention_decode_floor") + 3000 * entry
    assert oracle.terms(_batch(requests))[0].parts["scorer"] == expected


def test_decode_context_ranks_divide_the_whole_scan_of_a_scorer() -> None:
    requests = [Request(1, 99), Request(1, 4999), Request(1, 1897)]
    for dcp, scanned in ((1, 6998), (2, 3499), (4, 1750)):
        oracle = decode_context(scenario(GLM), dcp)
        entry = Fraction(656 * 128, 576) / oracle.coefficients.rate("attention_decode_rate")
        floor = oracle.coefficients.floor("attention_decode_floor")
        assert oracle.terms(_batch(requests))[0].parts["scorer"] == floor + scanned * entry


def test_a_width_counts_as_measured_with_all_three_figures_only() -> None:
    inputs = scenario(DEEPSEEK)
    assert Oracle(inputs).coefficients.measured_widths("all_gather") == [2, 4, 8, 16]
    for entries in inputs.coefficients:
        gone = "collective_peak_rate_all_gather_fp16_8rank_h200"
        entries.coefficients = [entry for entry in entries.coefficients if entry.name != gone]
    with pytest.raises(RefusedError, match="width 8"):
        Oracle(inputs)


def test_routing_dispatch_sends_a_token_to_each_of_its_experts() -> None:
    inputs = scenario(EP16)
    inputs.deployment.pools[0].engine.all2all_backend = "flashinfer_nvlink_two_sided"
    oracle = Oracle(inputs)
    triple = oracle.part.triples["alltoall", EXPERT]
    payload = 32 * 3072 * 2 * 8 * Fraction(79, 15)  # 1 + (9 - 1) x 8 / 15
    assert oracle.terms(_batch(DECODES))[0].nic == triple.floor + payload / triple.transition_rate


def test_neither_mixers_nor_later_draft_passes_are_padded() -> None:
    oracle = Oracle(scenario(QWEN))
    plain, padded = (oracle.terms(replace(_batch(DECODES), pad_tokens=pad))[0] for pad in (0, 96))
    assert plain.parts["recurrent"] == padded.parts["recurrent"] > 0 and padded.nvlink > plain.nvlink
    inputs = scenario(DEEPSEEK)
    inputs.deployment.pools[0].engine.speculative = Speculative("deepseek_mtp", 2)
    drafting = Oracle(inputs)
    target = len(drafting.stack) + 1
    passes = [drafting.terms(replace(_batch(DECODES), pad_tokens=pad)) for pad in (0, 96)]
    same = [without == with_pad for without, with_pad in zip(*passes, strict=True)]
    assert same == [False, False, True, False, True, True, True] and len(passes[0]) == target + 4


def planned(inputs: Inputs, nodes: list[Node], settings: Settings = NEWEST) -> plan.KindPlan:
    planner = plan.Planner(inputs.model, layout_of(inputs), settings, "bf16", WIDTHS)
    return planner.plan("layer", nodes, WIDTHS["bf16"])


def test_neighbouring_column_parallel_products_are_one_launch() -> None:
    inputs = scenario(DEEPSEEK)
    wide, narrow, square = (Node("GEMM", n=n, k=7168) for n in (9216, 640, 7168))
    between, dropped = Node("Elementwise"), Node("All2All", emit="expert_parallel")
    together = planned(inputs, [wide, dropped, narrow])
    assert [(shape.n, shape.flops) for shape in together.shapes] == [(9856, 2 * 9856 * 7168)]
    assert together.kernels == 2 and together.dense_bytes == 2 * 9856 * 7168
    apart = planned(inputs, [wide, between, narrow])
    assert [shape.n for shape in apart.shapes] == [9216, 640]
    assert [shape.split for shape in planned(inputs, [wide, square]).shapes] == ["n", "k"]


def test_expert_nodes_by_what_they_hold() -> None:
    inputs = scenario(DEEPSEEK)
    routed = Node("GroupedGEMM", n=100, k=7168, experts=64, top_k=4, latent_size=512, shared_experts=2)
    always = Node("GroupedGEMM", role="shared_experts", n=300, k=7168, experts=2, top_k=2, latent_size=9)
    kind = planned(inputs, [routed, always])
    assert kind.experts == [plan.Experts(6 * 100 * 512, Fraction(6 * 100 * 512), 64, 4)]
    assert kind.shared_flops == 6 * 7168 * (2 * 100 + 2 * 300) and kind.kernels == 8
    older = planned(inputs, [routed, always], REFERENCE)
    assert older.experts == [plan.Experts(6 * 7168 * 400, Fraction(6 * 7168 * 400), 64, 2)]
    assert older.shared_flops == 6 * 7168 * 200
    plain = planned(inputs, [replace(routed, gated=False)])
    assert plain.experts[0].flops == 4 * 100 * 512 and plain.shared_bytes == 4 * 7168 * 200


def test_several_routed_nodes_add_up_each_by_its_own_count() -> None:
    def spent(*nodes: Node) -> tuple[Fraction, Fraction]:
        inputs = scenario(DEEPSEEK)
        inputs.model.layer_kinds[0].nodes += nodes
        inputs.model.layer_kinds[1].nodes = [node for node in inputs.model.layer_kinds[1].nodes if not node.experts]
        parts = Oracle(inputs).terms(_batch(DECODES))[0].parts
        return parts["routed arithmetic"], parts["routed weights"]

    first = Node("GroupedGEMM", n=256, k=7168, experts=64, top_k=2)
    second = Node("GroupedGEMM", n=512, k=7168, experts=16, top_k=1)
    each = [spent(first), spent(second)]
    assert spent(first, second) == (each[0][0] + each[1][0], each[0][1] + each[1][1])


def test_nodes_spanned_by_the_widest_block() -> None:
    for tp, dp, pcp, experts, nodes in (
        (8, 1, 1, False, 1), (16, 1, 1, False, 2), (1, 16, 1, True, 2), (8, 1, 2, False, 2), (2, 1, 4, False, 1),
        (1, 24, 1, False, 3),
    ):  # fmt: skip
        inputs = scenario(DEEPSEEK)
        parallel = inputs.deployment.pools[0].parallel
        parallel.tp, parallel.dp, parallel.pcp, parallel.enable_expert_parallel = tp, dp, pcp, experts
        assert layout_of(inputs).nodes_spanned == nodes
    inputs = scenario("minimax-m2.5-gb300-tp4")
    parallel, cluster = inputs.deployment.pools[0].parallel, inputs.scenario.cluster
    parallel.tp, parallel.dp, parallel.enable_expert_parallel = 1, 72, True
    assert layout_of(inputs).nodes_spanned == 18
    cluster.gpus_per_rack = 72
    assert layout_of(inputs).nodes_spanned == 1


def test_a_decode_crosses_nodes_where_its_context_ranks_lie_apart() -> None:
    inputs = scenario(GLM)
    assert decode_context(inputs, 2, "ag_rs", 2).price(DECODES).nic > 0
    inputs.deployment.pools[0].parallel.tp = 4
    assert decode_context(inputs, 2, "ag_rs", 2).price(DECODES).nic == 0


def test_a_later_narrower_entry_replaces_an_earlier_one() -> None:
    inputs = scenario(DEEPSEEK)
    entries = inputs.coefficients[0].coefficients
    own = next(entry for entry in entries if entry.name == "hbm_derate" and "h200" in entry.scope.hardware)
    for scope, applies in ((Scope(["H200"], tp=[4, 8]), True), (Scope(["h200"], ep=[8]), False)):
        entries.append(replace(own, value=0.5, scope=scope))
        assert (Oracle(inputs).part.hbm_rate == 2400 * 10**9) == applies
        entries.pop()


def test_unstated_settings_of_the_engine() -> None:
    assert limits_of(scenario(DISAGG, 0), layout_of(scenario(DISAGG, 0)), NEWEST) == Limits(1024, 8192, 1, 512)
    inputs = scenario("qwen3-30b-a3b-h200-ep8")
    engine = inputs.deployment.pools[0].engine
    engine.max_num_seqs = engine.max_num_batched_tokens = 0
    for backend, budget in (("deepep_low_latency", 256), ("nixl_ep", 256), ("deepep_high_throughput", 8192)):
        engine.all2all_backend = backend
        assert limits_of(inputs, layout_of(inputs), NEWEST) == Limits(min(1024, budget), budget, 1, 512)
    engine.max_num_seqs, engine.max_model_len = 4, 1000
    assert limits_of(inputs, layout_of(inputs), NEWEST) == Limits(4, 4000, 1, 512)
    assert limits_of(scenario(V4), layout_of(scenario(V4)), NEWEST).largest_graph == 1024


def test_unstated_block_sizes_follow_the_attention_backend() -> None:
    for chip, cache, block in (("h200", "auto", 16), ("h200", "fp8", 64), ("b200", "fp8", 32)):
        inputs = scenario(DEEPSEEK if chip == "h200" else "deepseek-v3-b200-fp4-tp4")
        engine = inputs.deployment.pools[0].engine
        engine.block_size, engine.cache_dtype = 0, cache
        assert Oracle(inputs).part.cache.block_size == block
        assert Oracle(inputs, REFERENCE).part.cache.block_size == 16
    for name, block in ((GLM, 64), (V4, 256), (QWEN, 16)):
        inputs = scenario(name)
        inputs.deployment.pools[0].engine.block_size = 0
        assert Oracle(inputs).part.cache.block_size == block


def test_packed_cells_of_sparse_latent_attention() -> None:
    inputs = scenario(GLM)
    engine, primary = inputs.deployment.pools[0].engine, Oracle(inputs).stack[0].primary
    assert primary is not None
    for dtype, cell in (("fp8", 656), ("fp8_ds_mla", 656), ("fp8_e4m3", 576), ("auto", 1152)):
        engine.cache_dtype = dtype
        assert Oracle(inputs).part.cache.bytes_per_token(primary, True) == cell
    engine.cache_dtype = "nvfp4_ds_mla"
    with pytest.raises(RefusedError, match="backend"):
        Oracle(inputs)
