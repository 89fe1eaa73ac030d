"""Every model of the catalog, derived from a config, is the bundled graph node by node, but for what is listed here.

The lists are the deviations that docs/decisions.md explains: what a published graph has no way to say or leaves out
although the config states it. Undone one by one, nothing else may differ.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

import pykernel
from pykernel.documents import ModelGraph, Node, Repos, list_models
from pykernel.documents.repos import load_model

CONFIGS = Path(__file__).resolve().parents[2] / "testdata" / "configs"
MODELS = Repos().catalog_root() / "models"

TWO_MATRICES = {name for name in list_models() if name.startswith("nemotron-3")}
MIXED_FORMATS = {"kimi-k2.5", "kimi-k3"}
UNSTATED_SHARED_EXPERT = {"llama-4-scout-17b-16e-instruct-fp8-dynamic"}
STRAY_LATENT_SIZE = {"nemotron-3-ultra-550b-a55b-nvfp4"}
DEVIATING = TWO_MATRICES | MIXED_FORMATS | UNSTATED_SHARED_EXPERT


def as_published(graph: ModelGraph) -> ModelGraph:
    """A derived graph with the deviations of its model undone."""
    graph, name = copy.deepcopy(graph), graph.name
    for kind in graph.layer_kinds:
        if name in TWO_MATRICES:
            assert {node.gated for node in kind.nodes if node.op == "GroupedGEMM"} <= {False}
            kind.nodes = [replace(node, gated=True) for node in kind.nodes]
        if name in UNSTATED_SHARED_EXPERT:
            kind.nodes = [replace(node, shared_experts=0) for node in kind.nodes]
        if name in STRAY_LATENT_SIZE:
            kind.nodes = [
                replace(node, latent_size=2048) if node.role == "shared_experts" else node for node in kind.nodes
            ]
        if name in MIXED_FORMATS:
            kind.nodes = without_mixed_formats(kind.nodes)
    return graph


def without_mixed_formats(nodes: list[Node]) -> list[Node]:
    """Shared experts and dense MLPs in the format of the routed experts, as the published Kimi graphs have them."""
    shared = next((node for node in nodes if node.role == "shared_experts"), None)
    kept = [node for node in nodes if node is not shared]
    for node in kept:
        if shared is not None and node.role == "experts":
            assert (shared.weight_dtype, shared.n, shared.k) == ("bf16", node.n, node.k)
            node.shared_experts = shared.experts
        if node.role in ("mlp_gate_up", "mlp_down"):
            assert node.weight_dtype == "bf16"
            node.weight_dtype = ""
    return kept


@pytest.mark.parametrize("name", list_models())
def test_a_derived_graph_is_the_bundled_one(name: str) -> None:
    derived = as_published(pykernel.derive(CONFIGS / name))
    bundled = load_model(MODELS / name / "graph.yaml")
    assert {kind.id: kind.nodes for kind in derived.layer_kinds} == {
        kind.id: kind.nodes for kind in bundled.layer_kinds
    }
    assert derived.stack.layers() == bundled.stack.layers()
    assert (derived.name, derived.global_, derived.modality) == (bundled.name, bundled.global_, bundled.modality)
    assert (derived.head, derived.speculator) == (bundled.head, bundled.speculator)


@pytest.mark.parametrize("name", sorted(set(list_models()) - DEVIATING))
def test_a_derived_model_prices_as_the_bundled_one(name: str) -> None:
    derived, bundled = pykernel.derive(CONFIGS / name), load_model(MODELS / name / "graph.yaml")
    batch = pykernel.Batch([pykernel.Request(1, 4095, 1024)] * 32 + [pykernel.Request(512, 0, 512)])
    prices = [
        pykernel.new(pykernel.inputs_from_graph(graph, "b300", tp=4, cache_dtype="auto")).step_time(batch)
        for graph in (derived, bundled)
    ]
    assert prices[0] == prices[1]


@pytest.mark.parametrize("name", sorted(DEVIATING))
def test_what_deviates_does_so_in_its_price(name: str) -> None:
    """Otherwise the model belongs in no list above."""
    batch = pykernel.Batch([pykernel.Request(1, 4095, 1024)] * 32)
    derived, bundled = pykernel.derive(CONFIGS / name), load_model(MODELS / name / "graph.yaml")
    prices = [
        pykernel.new(pykernel.inputs_from_graph(graph, "b300", tp=2)).step_time(batch) for graph in (derived, bundled)
    ]
    assert prices[0] != prices[1]


def test_the_digest_is_that_of_the_file() -> None:
    import hashlib

    path = CONFIGS / "qwen3-14b" / "config.json"
    origin = pykernel.derive(path).derived_from
    assert (origin.format, origin.path) == ("hf_config_json", "config.json")
    assert origin.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
