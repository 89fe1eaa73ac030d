"""The ModelGraph: layer order, edges, what each op demands of a node, and the caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykernel.documents import Cache, LayerKind, ModelGraph, Node, Speculator, Stack, graph
from pykernel.documents.graph_checks import OP_RULES
from pykernel.documents.vocabulary import COLLECTIVES, OPS

GRAPH = Path(__file__).resolve().parents[2] / "testdata/bad/repo/catalog/models/tiny-moe/graph.yaml"

SOUND_NODES = {
    "GEMM": Node("GEMM", n=8, k=8, weight_dtype="int4"),
    "GroupedGEMM": Node("GroupedGEMM", n=8, k=8, experts=4, top_k=4, shared_experts=1, shared_intermediate_size=16),
    "Attention": Node("Attention", kind="sparse_mla", n_q=8, n_kv=1, d_h=512, window=128, compress_ratio=4),
    "RecurrentUpdate": Node("RecurrentUpdate", recurrent_kind="gdn", n_heads=8, state_size=128, state_dtype="fp32"),
    "Elementwise": Node("Elementwise", bytes_per_token=4096),
    **{op: Node(op, emit="tensor_parallel") for op in COLLECTIVES},
}


@pytest.fixture
def model() -> ModelGraph:
    return graph.load(GRAPH)


def _errors(model: ModelGraph) -> list[str]:
    return [problem.path for problem in graph.check(model) if problem.severity == "error"]


def _node_errors(model: ModelGraph, node: Node) -> list[str]:
    model.layer_kinds[0].nodes.append(node)
    at = f"model.layer_kinds[0].nodes[{len(model.layer_kinds[0].nodes) - 1}]."
    return [path.removeprefix(at) for path in _errors(model)]


def test_the_stack_expands_in_order() -> None:
    stack = Stack(prologue=["a"], pattern=["b", "c"], repeat=2, epilogue=["d"])
    assert stack.layers() == ["a", "b", "c", "b", "c", "d"]
    assert stack.layer_count() == 6


@pytest.mark.parametrize("op", OPS)
def test_a_sound_node_of_each_op_passes(model: ModelGraph, op: str) -> None:
    assert _node_errors(model, SOUND_NODES[op]) == []


@pytest.mark.parametrize(("op", "name"), [(op, name) for op in OPS for name in OP_RULES[op].positive])
@pytest.mark.parametrize("size", [0, -1])
def test_a_size_that_an_op_needs_is_stated_and_positive(model: ModelGraph, op: str, name: str, size: int) -> None:
    node = SOUND_NODES[op].__class__(**vars(SOUND_NODES[op]))
    setattr(node, name, size)
    assert name in _node_errors(model, node)


@pytest.mark.parametrize(("op", "name"), [(op, name) for op in OPS for name in OP_RULES[op].unused])
def test_a_key_of_another_op_is_refused(model: ModelGraph, op: str, name: str) -> None:
    node = SOUND_NODES[op].__class__(**vars(SOUND_NODES[op]))
    setattr(node, name, "fp8" if name == "weight_dtype" else 2)
    assert name in _node_errors(model, node)


@pytest.mark.parametrize("name", ["index_topk", "compress_ratio"])
@pytest.mark.parametrize("kind", ["gqa", "mla", "swa", "sparse_mla"])
def test_selection_belongs_to_sparse_latent_attention(model: ModelGraph, kind: str, name: str) -> None:
    node = Node("Attention", kind=kind, n_q=8, n_kv=1, d_h=64, window=128)
    setattr(node, name, 4)
    assert _node_errors(model, node) == ([] if kind == "sparse_mla" else [name])


def test_windows_on_other_nodes_are_not_refused(model: ModelGraph) -> None:
    assert _node_errors(model, Node("GEMM", n=8, k=8, window=128)) == []


def test_a_condition_on_a_plain_node_is_a_warning(model: ModelGraph) -> None:
    model.head[0].emit = "tensor_parallel"
    [problem] = graph.check(model)
    assert (problem.severity, problem.path, problem.line) == ("warning", "model.head[0].emit", 27)


@pytest.mark.parametrize(
    ("edges", "path"),
    [
        ([[0, 1], [1, 2]], ""),
        ([[0, 1], [0, 1]], ""),
        ([[2, 1], [1, 0]], ""),
        ([[0, 1], [1, 2], [2, 0]], ".edges"),
        ([[3, 2], [2, 3]], ".edges"),
        ([[0, 7]], ".edges[0]"),
        ([[0, 1], [-1, 1]], ".edges[1]"),
        ([[0]], ".edges[0]"),
    ],
)
def test_edges_are_pairs_without_a_cycle(model: ModelGraph, edges: list[list[int]], path: str) -> None:
    model.layer_kinds[0].edges = edges
    assert _errors(model) == ([f"model.layer_kinds[0]{path}"] if path else [])


def test_a_long_chain_of_edges_needs_no_recursion(model: ModelGraph) -> None:
    count = 5000
    model.layer_kinds[0].nodes = [Node("Elementwise")] * count
    model.layer_kinds[0].edges = [[index, index + 1] for index in range(count - 1)]
    assert _errors(model) == []
    model.layer_kinds[0].edges.append([count - 1, 0])
    assert _errors(model) == ["model.layer_kinds[0].edges"]


def test_an_unused_layer_kind_is_a_warning_unless_the_speculator_uses_it(model: ModelGraph) -> None:
    model.layer_kinds.append(LayerKind("draft", [Node("Elementwise")]))
    [problem] = graph.check(model)
    assert (problem.severity, problem.path) == ("warning", "model.layer_kinds[1]")
    model.speculator = Speculator("mtp", 1, Stack(pattern=["draft"], repeat=1))
    assert graph.check(model) == []


def test_a_draft_layer_that_does_not_exist_is_a_warning(model: ModelGraph) -> None:
    model.speculator = Speculator("mtp", 1, Stack(pattern=["nowhere"], repeat=1))
    [problem] = graph.check(model)
    assert (problem.severity, problem.path) == ("warning", "model.speculator.stack.pattern[0]")


def test_a_stack_too_long_to_expand_is_refused_without_expanding_it(model: ModelGraph) -> None:
    model.stack.repeat = 2**62
    model.speculator = Speculator("mtp", 1, Stack(pattern=["moe"], repeat=2**62))
    assert _errors(model) == ["model.stack.repeat", "model.speculator.stack.repeat"]


def test_a_digest_of_other_characters_is_a_warning(model: ModelGraph) -> None:
    model.derived_from.sha256 = "x" * 64
    [problem] = graph.check(model)
    assert (problem.severity, problem.path) == ("warning", "model.derived_from.sha256")


def test_gated_is_true_unless_written(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(GRAPH.read_text().replace("top_k: 2}", "top_k: 2, gated: false}"))
    experts = [node for node in graph.load(path).layer_kinds[0].nodes if node.op == "GroupedGEMM"]
    assert [node.gated for node in experts] == [False]
    assert Node("GroupedGEMM").gated is True
    assert "gated: false" in graph.dump(graph.load(path))


def test_caches_shard_by_tp_where_they_have_heads() -> None:
    assert Cache("kv", "growing", 4, entry_bytes=2048, heads=8).sharded_by() == ["tp"]
    assert Cache("latent", "growing", 4, entry_bytes=576).sharded_by() == []
    assert Cache("latent", "growing", 4, entry_bytes=576, shards=["dcp"]).sharded_by() == ["dcp"]
    assert Cache("whole", "growing", 4, entry_bytes=576, heads=8, shards=[]).sharded_by() == []


@pytest.mark.parametrize(
    ("cache", "fields"),
    [
        (Cache("a", "growing", 1, entry_bytes=1.5), []),
        (Cache("a", "ring", 1, entry_bytes=8, window=128), []),
        (Cache("a", "fixed", 1, page_bytes=4096), []),
        (Cache("a", "growing", 1), ["entry_bytes"]),
        (Cache("a", "growing", 1, entry_bytes=-1), ["entry_bytes"]),
        (Cache("a", "ring", 1, entry_bytes=8), ["window"]),
        (Cache("a", "fixed", 1), ["page_bytes"]),
        (Cache("a", "fixed", 1, page_bytes=64, entry_bytes=8), ["entry_bytes"]),
        (Cache("a", "growing", 1, entry_bytes=8, tokens_per_entry=0), ["tokens_per_entry"]),
        (Cache("", "paged", 0, owner="me"), ["id", "layers", "owner", "class"]),
        (Cache("a", "fixed", 1, page_bytes=64, dtype="fp9", shards=["ep"]), ["dtype", "shards[0]"]),
    ],
)
def test_each_class_of_cache_states_its_sizes(model: ModelGraph, cache: Cache, fields: list[str]) -> None:
    model.caches = [cache]
    assert _errors(model) == [f"model.caches[0].{name}" for name in fields]


def test_a_page_on_a_growing_cache_is_a_warning(model: ModelGraph) -> None:
    model.caches = [Cache("a", "growing", 1, entry_bytes=8, page_bytes=64, window=16)]
    assert [(problem.severity, problem.path) for problem in graph.check(model)] == [
        ("warning", "model.caches[0].page_bytes"),
        ("warning", "model.caches[0].window"),
    ]
