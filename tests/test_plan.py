"""The plan of a step: what each node of a graph adds to its layer, and what exists under a layout.

Plans are made of hand-written graphs that hold only what a test is about, under the layouts of bundled scenarios.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import pykernel
from pykernel import Batch, Inputs, Kernel, Request
from pykernel.documents import Engine, LayerKind, Node, Speculative, Stack, list_scenarios
from pykernel.plan import EMIT, LayerPlan, Plan, make_plan
from pykernel.resolve import resolve
from pykernel.switches import NEWEST, REFERENCE, LawSwitches

DEEPSEEK, MINIMAX, EP16 = "deepseek-v3-h200-fp8-tp8", "minimax-m2.5-h200-tp8", "minimax-m2.5-h200-ep16"
DENSE, WINDOWED = "llama-3.1-8b-h100-tp1", "gpt-oss-120b-h100-fp4-tp2"


@cache
def loaded(scenario: str) -> Inputs:
    """The documents of a scenario, without the coefficients of other parts, which would only be validated again."""
    documents = pykernel.open_inputs(scenario)
    for entries in documents.coefficients:
        entries.coefficients = [
            entry
            for entry in entries.coefficients
            if not entry.scope.hardware or documents.chip.name in entry.scope.hardware
        ]
    documents.coefficients = [entries for entries in documents.coefficients if entries.coefficients]
    return documents


def fresh(scenario: str) -> Inputs:
    documents = copy.copy(loaded(scenario))
    for name in ("scenario", "deployment", "model", "chip"):
        setattr(documents, name, copy.deepcopy(getattr(documents, name)))
    return documents


def plan_of(documents: Inputs, switches: LawSwitches = NEWEST) -> Plan:
    return make_plan(documents.model, resolve(documents), switches)


def planned(scenario: str, *nodes: Node, hidden: int = 0, engine: dict[str, Any] | None = None) -> LayerPlan:
    """The plan of a layer of these nodes, under the layout of a scenario."""
    documents = fresh(scenario)
    settings: Engine = documents.deployment.pools[0].engine
    for name, value in (engine or {}).items():
        setattr(settings, name, value)
    documents.model.global_.hidden_size = hidden or documents.model.global_.hidden_size
    documents.model.layer_kinds = [LayerKind("only", list(nodes))]
    documents.model.stack = Stack(pattern=["only"], repeat=2)
    documents.model.speculator = None
    (layer,) = plan_of(documents).layers
    assert layer.count == 2
    return layer


def gemm(n: int, k: int, **fields: Any) -> Node:
    return Node("GEMM", n=n, k=k, **fields)


def attention(kind: str = "gqa", **fields: Any) -> Node:
    return Node("Attention", **({"kind": kind, "n_q": 32, "n_kv": 8, "d_h": 128} | fields))


def experts(**fields: Any) -> Node:
    return Node("GroupedGEMM", **({"n": 512, "k": 2_048, "experts": 64, "top_k": 4} | fields))


# ---- the stack -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", list_scenarios())
def test_every_layer_of_the_stack_is_in_one_kind(scenario: str) -> None:
    """Law 20."""
    documents = loaded(scenario)
    plan = plan_of(documents)
    layers = documents.model.stack.layers()
    assert [layer.id for layer in plan.layers] == list(dict.fromkeys(layers))
    assert {layer.id: layer.count for layer in plan.layers} == {id_: layers.count(id_) for id_ in layers}
    assert plan.depth == len(layers)
    # One more piece where an indexer runs on its own before sparse latent attention.
    indexed = {
        kind.id
        for kind in documents.model.layer_kinds
        if any(node.role == "block_index_scores" for node in kind.nodes)
        and any(node.kind == "sparse_mla" and not node.role for node in kind.nodes)
    }
    assert plan.segments == plan.depth + 1 + sum(id_ in indexed for id_ in layers)


def test_a_scorer_before_sparse_attention_splits_the_graph_once_more() -> None:
    documents = fresh(DEEPSEEK)
    documents.deployment.pools[0].engine.block_size = 64
    for kind in documents.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "Attention":
                node.kind, node.index_topk = "sparse_mla", 2_048
    assert plan_of(documents).segments == 61 + 1
    for kind in documents.model.layer_kinds:
        kind.nodes.append(Node("Attention", role="indexer", kind="mla", n_q=64, n_kv=1, d_h=128))
    assert plan_of(documents).segments == 2 * 61 + 1


def test_two_spellings_of_one_stack_are_one_plan() -> None:
    """Law 20."""
    pattern, literal = fresh(DEEPSEEK), fresh(DEEPSEEK)
    literal.model.stack = Stack(prologue=pattern.model.stack.layers())
    assert plan_of(literal) == plan_of(pattern)


def test_the_published_example() -> None:
    plan = plan_of(loaded(DEEPSEEK))
    dense, moe = plan.layers
    assert (plan.depth, plan.segments, plan.kernels) == (61, 62, 972)
    assert (dense.count, dense.kernels, moe.count, moe.kernels, plan.head.kernels) == (3, 14, 58, 16, 2)
    attention_parameters = 187_105_280
    assert dense.gemm_flops_per_token == 2 * (attention_parameters + 36_864 * 7_168 + 7_168 * 18_432)
    assert moe.dense_bytes == attention_parameters + 3 * 2_048 * 7_168
    assert dense.elementwise_bytes_per_token == moe.elementwise_bytes_per_token == 2 * 28_672 + 6_144 + 2_048
    assert moe.attention is not None and moe.attention.cache_bytes_per_token == 576
    assert sum(layer.count * len(layer.collectives) for layer in plan.layers) == 122
    assert {collective.bytes_per_unit for layer in plan.layers for collective in layer.collectives} == {2 * 7_168}


@pytest.mark.parametrize("scenario", [name for name in list_scenarios() if "llama" not in name])
def test_a_layer_of_experts_launches_a_plausible_number_of_kernels(scenario: str) -> None:
    """Law 39."""
    for layer in plan_of(loaded(scenario)).layers:
        if layer.experts and (layer.attention or layer.recurrent_kind):
            assert 9 <= layer.kernels <= 30


# ---- nodes ---------------------------------------------------------------------------------------------------------


def test_a_matrix_adds_its_work_and_its_weights() -> None:
    layer = planned(DENSE, gemm(300, 500))
    assert (layer.gemm_flops_per_token, layer.dense_bytes, layer.kernels) == (2 * 300 * 500, 2 * 300 * 500, 1)
    served = planned(DENSE, gemm(300, 500), engine={"quantization": "fp8"})
    assert (served.gemm_flops_per_token, served.dense_bytes) == (2 * 300 * 500, 300 * 500)


@pytest.mark.parametrize(("dtype", "width"), [("bf16", 2), ("fp8", 1), ("nvfp4", 0.5), ("fp32", 4)])
def test_a_format_of_its_own_moves_the_weights_of_that_node_alone(dtype: str, width: float) -> None:
    """Law 24."""
    plain = planned(DENSE, gemm(300, 500), gemm(70, 80), experts(), engine={"quantization": "fp8"})
    stated = planned(DENSE, gemm(300, 500, weight_dtype=dtype), gemm(70, 80), experts(), engine={"quantization": "fp8"})
    assert stated.dense_bytes - plain.dense_bytes == (width - 1) * 300 * 500
    assert stated.experts == plain.experts
    assert stated.gemm_flops_per_token == plain.gemm_flops_per_token and stated.kernels == plain.kernels
    routed = planned(DENSE, gemm(300, 500), experts(weight_dtype=dtype), engine={"quantization": "fp8"})
    assert routed.experts[0].bytes_per_expert == width * 3 * 512 * 2_048
    assert routed.experts[0].flops_per_token_and_expert == plain.experts[0].flops_per_token_and_expert


def test_an_expert_is_three_matrices_or_two() -> None:
    """Law 25."""
    gated, plain = planned(DENSE, experts()), planned(DENSE, experts(gated=False))
    for layer, matrices in ((gated, 3), (plain, 2)):
        (routed,) = layer.experts
        parameters = matrices * 512 * 2_048
        assert (routed.experts, routed.top_k) == (64, 4)
        assert (routed.flops_per_token_and_expert, routed.bytes_per_expert) == (2 * parameters, 2 * parameters)
        assert (layer.dense_bytes, layer.shared_flops_per_token, layer.kernels) == (0, 0, 4)


@pytest.mark.parametrize(
    ("fields", "width"), [({"shared_experts": 2}, 512), ({"shared_experts": 2, "shared_intermediate_size": 700}, 700)]
)
def test_shared_experts_are_dense_work(fields: dict[str, int], width: int) -> None:
    layer, without = planned(DENSE, experts(**fields)), planned(DENSE, experts())
    parameters = 3 * width * 2_048 * 2
    assert (layer.shared_flops_per_token, layer.dense_bytes) == (2 * parameters, 2 * parameters)
    assert (layer.experts, layer.kernels) == (without.experts, without.kernels)


def test_experts_that_every_token_visits_are_dense_work() -> None:
    always = experts(role="shared_experts", experts=2, top_k=2, latent_size=256)
    layer = planned(DENSE, experts(), always)
    assert layer.experts == planned(DENSE, experts()).experts
    assert layer.shared_flops_per_token == 2 * 2 * 3 * 512 * 2_048
    assert layer.kernels == 8
    assert len(planned(DENSE, experts(), experts(role="shared_experts", experts=3, top_k=2)).experts) == 2


def test_latent_experts_are_as_wide_as_their_latent() -> None:
    (routed,) = planned(DENSE, experts(latent_size=256)).experts
    assert routed.bytes_per_expert == 2 * 3 * 512 * 256


def test_several_sets_of_experts_stay_apart() -> None:
    layer = planned(DENSE, experts(), experts(experts=8, top_k=1, n=64))
    assert [(routed.experts, routed.top_k) for routed in layer.experts] == [(64, 4), (8, 1)]


def test_norms_move_what_they_state_or_the_hidden_state_twice() -> None:
    layer = planned(DENSE, Node("Elementwise"), Node("Elementwise", bytes_per_token=100))
    assert layer.elementwise_bytes_per_token == 2 * 4_096 * 2 + 100
    assert layer.kernels == 2


@pytest.mark.parametrize(
    ("scenario", "node", "expected"),
    [
        (DENSE, attention(), 2 * 8 * 128 * 2),
        (MINIMAX, attention(n_q=48), 2 * 1 * 128 * 1),  # 8 heads over 8 ranks
        (MINIMAX, attention(n_q=48, n_kv=4), 2 * 1 * 128 * 1),  # a head is never split
        (MINIMAX, attention(n_q=48, n_kv=48), 2 * 6 * 128 * 1),
        (MINIMAX, attention("swa", n_q=48, n_kv=48, window=64), 2 * 6 * 128 * 1),
        (DEEPSEEK, attention("mla", n_q=128, n_kv=1, d_h=576), 576 * 1),  # one vector, whole on every rank
    ],
)
def test_a_rank_keeps_whole_heads_of_keys_and_values_or_one_latent_vector(
    scenario: str, node: Node, expected: int
) -> None:
    layer = planned(scenario, node)
    assert layer.attention is not None
    assert layer.attention.cache_bytes_per_token == expected
    assert layer.kernels == 2


@pytest.mark.parametrize(
    ("node", "law", "window", "prefill_window"),
    [
        (attention(), "all", 0, 0),
        (attention(window=64), "all", 0, 64),
        (attention("swa", window=64), "window", 64, 64),
        (attention("mla", n_kv=1, d_h=576), "all", 0, 0),
        (attention("mla", n_kv=1, d_h=576, window=64), "window", 64, 64),
    ],
)
def test_a_window_bounds_reads_of_the_kinds_that_slide(node: Node, law: str, window: int, prefill_window: int) -> None:
    found = planned(DENSE, node).attention
    assert found is not None
    assert (found.read.law, found.read.window, found.prefill_window) == (law, window, prefill_window)


def test_the_attention_without_a_role_holds_the_cache_whichever_comes_first() -> None:
    """Law 23."""
    main, scorer = attention(), attention(role="indexer", n_q=4, n_kv=2, d_h=64)
    for nodes in ((main, scorer), (scorer, main)):
        layer = planned(DENSE, *nodes)
        assert layer.attention is not None and layer.attention.head_dim == 128
        (found,) = layer.scorers
        assert found.cache_bytes_per_token == layer.attention.cache_bytes_per_token * (2 * 64) / (8 * 128)
        assert layer.kernels == 4


# ---- matrices by shape ---------------------------------------------------------------------------------------------

HIDDEN = 4_096


@pytest.mark.parametrize(
    ("n", "k", "column"), [(9_216, HIDDEN, True), (640, HIDDEN, True), (HIDDEN, 8_192, False), (HIDDEN, HIDDEN, False)]
)
def test_a_matrix_that_reads_the_hidden_state_is_split_by_columns(n: int, k: int, column: bool) -> None:
    """Law 26."""
    (shape,) = planned(DENSE, gemm(n, k)).gemms
    assert (shape.n, shape.k, shape.column_parallel) == (n, k, column)


DROPPED = Node("AllReduce", emit="tensor_parallel")  # on one GPU


@pytest.mark.parametrize(
    ("nodes", "shapes"),
    [
        ([gemm(9_216, HIDDEN), gemm(640, HIDDEN)], [9_856]),
        ([gemm(9_216, HIDDEN), gemm(640, HIDDEN), gemm(64, HIDDEN)], [9_920]),
        ([gemm(9_216, HIDDEN), DROPPED, gemm(640, HIDDEN)], [9_856]),
        ([gemm(9_216, HIDDEN), attention(), gemm(640, HIDDEN)], [9_216, 640]),
        ([gemm(9_216, HIDDEN), gemm(HIDDEN, HIDDEN)], [9_216, HIDDEN]),
        ([gemm(HIDDEN, HIDDEN), gemm(9_216, HIDDEN)], [HIDDEN, 9_216]),
        ([gemm(HIDDEN, 8_192), gemm(HIDDEN, 8_192)], [HIDDEN, HIDDEN]),
        ([gemm(HIDDEN, 8_192), gemm(9_216, HIDDEN)], [HIDDEN, 9_216]),
    ],
)
def test_neighbours_of_one_input_are_one_launch_by_shape_alone(nodes: list[Node], shapes: list[int]) -> None:
    """Law 27."""
    layer = planned(DENSE, *nodes)
    assert [shape.n for shape in layer.gemms] == shapes
    matrices = [node for node in nodes if node.op == "GEMM"]
    assert layer.gemm_flops_per_token == sum(2 * node.n * node.k for node in matrices)
    assert sum(2 * shape.n * shape.k for shape in layer.gemms) == layer.gemm_flops_per_token
    assert layer.kernels == len(matrices) + 2 * any(node.op == "Attention" for node in nodes)


# ---- collectives ---------------------------------------------------------------------------------------------------

COLLECTIVES = [
    Node("AllReduce", emit="tensor_parallel"),
    Node("All2All", emit="expert_parallel"),
    Node("AllReduce", emit="tensor_parallel_unless_sp_moe"),
]


def launched(layer: LayerPlan) -> list[tuple[str, str]]:
    return [(collective.operation, collective.group) for collective in layer.collectives]


REDUCE, DISPATCH = ("all_reduce", "tensor"), ("alltoall", "expert")
REPLACED = [("reduce_scatter", "tensor"), ("all_gather", "tensor")]


def test_conditions_are_those_of_the_graph_format() -> None:
    """Law 22."""
    assert set(EMIT) == {"", "tensor_parallel", "expert_parallel", "tensor_parallel_unless_sp_moe"}


@pytest.mark.parametrize(
    ("scenario", "backend", "expected"),
    [
        (DENSE, "", []),
        (MINIMAX, "", [REDUCE, REDUCE]),
        ("qwen3-30b-a3b-h200-ep8", "", [DISPATCH]),
        ("qwen3-30b-a3b-h200-dp4", "", [DISPATCH]),  # replicas meet at the experts without expert parallelism
        (EP16, "", [REDUCE, DISPATCH, REDUCE]),
        (EP16, "pplx", [REDUCE, DISPATCH, REDUCE]),
        (EP16, "allgather_reducescatter", [REDUCE, DISPATCH, *REPLACED]),
        ("minimax-m2.5-h200-ep8", "allgather_reducescatter", [REDUCE, DISPATCH, REDUCE]),
    ],
)
def test_collectives_exist_under_the_layouts_that_need_them(
    scenario: str, backend: str, expected: list[tuple[str, str]]
) -> None:
    """Law 21."""
    heads = attention(n_q=48)
    layer = planned(scenario, heads, experts(), *COLLECTIVES, engine={"all2all_backend": backend})
    assert launched(layer) == expected
    without = planned(scenario, heads, experts(), engine={"all2all_backend": backend})
    assert layer.kernels - without.kernels == sum(2 if one == DISPATCH else 1 for one in expected)
    for name in ("dense_flops_per_token", "dense_bytes", "elementwise_bytes_per_token", "experts"):
        assert getattr(layer, name) == getattr(without, name)


@pytest.mark.parametrize(
    ("backend", "copies", "routed"),
    [
        ("", 1, False),
        ("naive", 1, False),
        ("allgather_reducescatter", 1, False),
        ("pplx", 4, True),
        ("nixl_ep", 4, True),
    ],
)
def test_a_routed_dispatch_sends_a_token_once_for_each_expert_it_visits(
    backend: str, copies: int, routed: bool
) -> None:
    always = experts(role="shared_experts", experts=9, top_k=9)
    layer = planned(
        EP16, attention(n_q=48), experts(), always, *COLLECTIVES, hidden=1_000, engine={"all2all_backend": backend}
    )
    (dispatch,) = [collective for collective in layer.collectives if collective.operation == "alltoall"]
    assert (dispatch.bytes_per_unit, dispatch.all_to_all) == (2 * 1_000 * copies, routed)


@pytest.mark.parametrize("op", ["AllReduce", "AllGather", "ReduceScatter"])
def test_a_collective_counts_16_bits_of_the_hidden_state_whatever_is_served(op: str) -> None:
    for quantization in ("", "fp8", "nvfp4"):
        node = Node(op, emit="tensor_parallel")
        layer = planned(MINIMAX, attention(n_q=48), node, hidden=1_000, engine={"quantization": quantization})
        (collective,) = layer.collectives
        assert (collective.bytes_per_unit, collective.group, collective.units) == (2_000, "tensor", "tokens")


# ---- the head ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "switches", "width"),
    [("", NEWEST, 2), ("", REFERENCE, 1), ("fp8", NEWEST, 1), ("nvfp4", NEWEST, 0.5), ("fp32", REFERENCE, 4)],
)
def test_the_output_projection_keeps_16_bits_unless_the_graph_says_otherwise(
    stated: str, switches: LawSwitches, width: float
) -> None:
    documents = fresh(DEEPSEEK)
    documents.model.head[-1].weight_dtype = stated
    plan = plan_of(documents, switches)
    assert plan.head.dense_bytes == width * 129_280 * 7_168
    assert plan.head.dense_flops_per_token == 2 * 129_280 * 7_168
    assert plan.gathered_row_bytes == 2 * 129_280


def test_a_model_without_a_head_gathers_no_logits() -> None:
    documents, batch = fresh(MINIMAX), Batch([Request(1, 99, 1)])
    with_head = Kernel(documents).step_time(batch).per_resource_ns
    documents.model.head = []
    without = Kernel(documents).step_time(batch).per_resource_ns
    assert all(without[name] < with_head[name] for name in ("sm", "hbm", "nvlink", "host"))


# ---- drafts --------------------------------------------------------------------------------------------------------


def test_a_speculator_runs_only_for_a_deployment_that_drafts() -> None:
    documents = fresh(DEEPSEEK)
    assert documents.model.speculator is not None
    quiet = plan_of(documents)
    assert (quiet.draft_passes, quiet.draft_layers) == (0, [])
    documents.deployment.pools[0].engine.speculative = Speculative("mtp", 3)
    drafting = plan_of(documents)
    assert drafting.draft_passes == 3
    assert [layer.id for layer in drafting.draft_layers] == ["attn_moe"]
    assert (drafting.layers, drafting.segments) == (quiet.layers, quiet.segments)
    assert drafting.kernels - quiet.kernels == 3 * (16 + 2)
    documents.model.speculator = None
    assert plan_of(documents).draft_passes == 0


@pytest.mark.parametrize("method", ["ngram", "suffix", "eagle3", "draft_model"])
def test_drafts_from_elsewhere_do_not_run_the_module_of_the_graph(method: str) -> None:
    documents = fresh(DEEPSEEK)
    quiet = plan_of(documents)
    documents.deployment.pools[0].engine.speculative = Speculative(method, 3)
    assert plan_of(documents) == quiet
    assert documents.model.speculator is not None
    documents.model.speculator = replace(documents.model.speculator, method=method)
    assert plan_of(documents).draft_passes == 3
