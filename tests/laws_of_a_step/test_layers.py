"""Laws of single layers that show in whole steps: attention by kind, indexers, selection, and what a graph may hold."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel import Batch, DocumentError, Inputs, Kernel, Request
from pykernel.documents import ModelGraph, Node, graph
from pykernel.switches import NEWEST

from .kernels import (
    BY_SETTING,
    DEEPSEEK,
    EVERY_KIND,
    GLM,
    KINDS,
    SWITCHES,
    decodes,
    edited,
    fresh,
    kernel_of,
    kernel_terms,
    loaded,
    no_overlap,
    prefill,
    resource,
    widened,
)

WINDOWED = "gpt-oss-120b-h100-fp4-tp2"


def drop(inputs: Inputs, name: str) -> None:
    for entries in inputs.coefficients:
        entries.coefficients = [entry for entry in entries.coefficients if entry.name != name]


@BY_SETTING
@pytest.mark.parametrize(("name", "kind"), [(DEEPSEEK, "mla"), (WINDOWED, "swa")])
def test_a_kind_of_attention_has_a_rate_of_its_own_or_the_parts(name: str, kind: str, setting: str) -> None:
    """Law 31."""
    without = edited(name, lambda inputs: drop(inputs, f"attention_decode_rate_{kind}"), setting)
    batch, own = decodes(32, 32_768), f"decode attention ({kind})"
    assert no_overlap(without, batch) != no_overlap(kernel_of(name, setting=setting), batch)
    named = {
        coefficient.name
        for term in without.explain(batch).terms
        if term.what == own
        for coefficient in term.coefficients
    }
    assert named == {"attention_decode_floor", "attention_decode_rate"}
    assert resource(without, prefill(2_048), "sm") == resource(kernel_of(name, setting=setting), prefill(2_048), "sm")


def scorers(inputs: Inputs) -> list[Node]:
    return [node for kind in inputs.model.layer_kinds for node in kind.nodes if node.op == "Attention" and node.role]


def pooled(ratio: int, setting: str) -> Kernel:
    def edit(inputs: Inputs) -> None:
        for node in scorers(inputs):
            # The kind that may pool; of what it would select an indexer scans everything all the same.
            node.kind, node.index_topk, node.compress_ratio = "sparse_mla", 2_048, ratio

    return edited(GLM, edit, setting)


@BY_SETTING
def test_a_pooled_indexer_scans_its_share_of_the_context(setting: str) -> None:
    """Law 32."""
    hbm = {ratio: resource(pooled(ratio, setting), decodes(32), "hbm") for ratio in (0, 1, 2, 4, 8, 16, 64)}
    assert hbm[0] == hbm[1]
    assert (hbm[1] - hbm[2]) / (hbm[2] - hbm[4]) == pytest.approx(2, abs=1e-4)
    assert len(set(hbm.values())) == 6
    assert all(hbm[low] > hbm[high] for low, high in itertools.pairwise((1, 2, 4, 8, 16, 64)))


@BY_SETTING
def test_selection_saturates_before_ranks_share_what_is_selected(setting: str) -> None:
    """Law 33: of 3,298 tokens 2,048 are selected, of which each of four ranks reads 512; 656 bytes an entry."""
    kernel = Kernel(widened(GLM, dcp=4), switches=SWITCHES[setting])
    for past, entries in ((1_250, 512), (0, 512), (100_000, 512), (-1_000, 262), (-1_001, 262), (-1_004, 261)):
        batch = Batch([Request(1, 2_048 + past - 1, 1)])
        found = kernel_terms(kernel, batch, "decode attention")
        assert [size for _, size in found] == [pytest.approx(entries * 656 * layers) for layers in (3, 75)], past


def test_a_graph_with_an_unknown_condition_or_layer_is_refused_where_it_says_so() -> None:
    """Law 22."""
    inputs = fresh(DEEPSEEK)
    inputs.model.layer_kinds[0].nodes[-1].emit = "on_tuesdays"
    inputs.model.stack.pattern[0] = "attn_mow"
    with pytest.raises(DocumentError) as caught:
        Kernel(inputs)
    at = {problem.path: problem.message for problem in caught.value.problems}
    last = len(inputs.model.layer_kinds[0].nodes) - 1
    assert "on_tuesdays" in at[f"model.layer_kinds[0].nodes[{last}].emit"]
    assert "attn_mow" in at["model.stack.pattern[0]"]


@EVERY_KIND
def test_no_switch_moves_the_host_or_prefill_attention_or_the_layers(scenario: str, pool: int) -> None:
    """Laws 7, 39 and 40 under every setting: what a switch may move is the head, and nothing on the host."""
    batches = (Batch(), decodes(32), decodes(513), prefill(2_048), Batch([Request(1, 99, 1), Request(64, 0, 64)]))
    for batch in batches:
        kernels = [kernel_of(scenario, pool, setting) for setting in SWITCHES]
        assert len({resource(kernel, batch, "host") for kernel in kernels}) == 1
        layers = [[term for term in kernel.explain(batch).terms if term.layer != "head"] for kernel in kernels]
        assert all(terms == layers[0] for terms in layers)
    heads = [tuple(term for term in kernel.explain(prefill(2_048)).terms if term.layer == "head") for kernel in kernels]
    assert len(set(heads)) >= 2, "a switch that moves nothing shows nothing"


MEMORY_SWITCHES: list[dict[str, Any]] = [
    {"embedding_width": "checkpoint"},
    {"embedding_width": "sixteen_bit"},
    {"communicator_before_snapshot": False},
]


@EVERY_KIND
def test_switches_about_memory_move_no_step(scenario: str, pool: int) -> None:
    newest = kernel_of(scenario, pool)
    for switch in MEMORY_SWITCHES:
        other = Kernel(loaded(scenario, pool), switches=replace(NEWEST, **switch))
        for batch in (Batch(), decodes(32), prefill(2_048)):
            assert other.explain(batch) == newest.explain(batch), switch


def mixers(model: ModelGraph) -> set[str]:
    return {
        node.recurrent_kind or f"{node.kind}{' with a role' if node.role else ''}"
        for kind in model.layer_kinds
        for node in kind.nodes
        if node.op in ("Attention", "RecurrentUpdate")
    }


def test_pools_of_every_kind_have_the_mixers_of_the_whole_catalog() -> None:
    catalog = Path(str(pykernel.__file__)).parent / "data" / "catalog" / "models"
    every = set().union(*(mixers(graph.load(path)) for path in sorted(catalog.glob("*/graph.yaml"))))
    assert every >= {"gqa", "swa", "mla", "sparse_mla", "mamba2", "gdn", "kda"}
    assert set().union(*(mixers(loaded(*pool).model) for pool in KINDS)) == every
