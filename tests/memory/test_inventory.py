"""Weights and caches against an inventory that is made independently: the fullest rank, and the sum over all ranks."""

from __future__ import annotations

from fractions import Fraction

import pytest

import pykernel
from pykernel import Repos
from pykernel.documents import Eplb, list_models, load_bundle
from pykernel.switches import NEWEST, LawSwitches
from tests.memory.graphs import fresh, spread, stating
from tests.memory.inventory import Ranks, by_rank, cache_tensors, held, weight_tensors

TP = (1, 2, 4, 8, 16)
ENGINE = LawSwitches(embedding_width="sixteen_bit", engine_weights=True)
SCENARIOS = {load_bundle(path)[0].model: path.stem for path in (Repos().scenarios_root()).glob("*.yaml")}
"""One scenario for each bundled model."""


def test_every_bundled_model_has_a_scenario() -> None:
    assert set(SCENARIOS) == set(list_models())


def deployed(model: str, ranks: Ranks) -> pykernel.Inputs:
    """A bundled model on H200s in one large node, as its scenario serves it but for the layout."""
    inputs = fresh(SCENARIOS[model])
    inputs.deployment.pools = [inputs.deployment.pools[0]]
    inputs.deployment.pools[0].role, inputs.deployment.pd_transfer = "colocated", None
    inputs.deployment.pools[0].nodes = inputs.scenario.cluster.nodes = 1
    inputs.chip, inputs.coefficients = fresh().chip, fresh().coefficients
    spread(inputs, tp=ranks.tp, dp=ranks.dp, dcp=0, pcp=0, dp_local=0, enable_expert_parallel=ranks.experts_whole)
    stating(inputs, speculative=None, dcp_comm_backend="", cp_kv_cache_interleave_size=0, all2all_backend="")
    return stating(inputs, eplb=Eplb(True, ranks.redundant) if ranks.redundant else None)


def widths(model: str) -> list[int]:
    """Tensor-parallel widths that divide the heads, without which the engine does not start."""
    nodes = [node for kind in fresh(SCENARIOS[model]).model.layer_kinds for node in kind.nodes if not node.role]
    heads = [node.n_q or node.n_heads for node in nodes if node.op in ("Attention", "RecurrentUpdate")]
    return [tp for tp in TP if all(count % tp == 0 for count in heads)]


def layouts(model: str) -> list[Ranks]:
    ranks = [Ranks(tp) for tp in widths(model)]
    nodes = [node for kind in fresh(SCENARIOS[model]).model.layer_kinds for node in kind.nodes]
    experts = min((node.experts for node in nodes if node.op == "GroupedGEMM" and node.role == "experts"), default=0)
    if experts:
        ranks += [Ranks(2, 2), Ranks(2, 4, experts_whole=True), Ranks(4, 1, experts_whole=True)]
        if experts > 16:
            ranks += [Ranks(4, 4, experts_whole=True, redundant=3)]  # uneven
    return ranks


@pytest.mark.parametrize("engine", [False, True], ids=["published", "engine"])
@pytest.mark.parametrize("model", SCENARIOS)
def test_the_fullest_rank_holds_what_the_inventory_says(model: str, engine: bool) -> None:
    for ranks in layouts(model):
        inputs = deployed(model, ranks)
        tensors = weight_tensors(inputs.model, inputs.deployment.pools[0].engine.quantization, ranks, engine)
        sums = by_rank(tensors)
        kernel = pykernel.Kernel(inputs, switches=ENGINE if engine else NEWEST)
        fixed = kernel.fixed_bytes()
        found = fixed.weights + fixed.eplb_redundant
        assert max(sums) - 2 < found <= max(sums), ranks  # two truncations where replicas are told apart
        everything = sum(tensor.bytes * tensor.copies for tensor in tensors)
        assert sum(sums) == everything
        if min(sums) == max(sums):
            assert 0 <= everything - found * ranks.count < 2 * ranks.count


def test_uneven_experts_count_on_the_fullest_rank() -> None:
    # 259 experts on 16 ranks: three ranks hold 17, the others 16, and an expert of minimax-m2.5 is counted in fp8.
    ranks = Ranks(8, 2, experts_whole=True, redundant=3)
    assert [held(259, 16, rank) for rank in range(16)] == [17] * 3 + [16] * 13
    inputs = deployed("minimax-m2.5", ranks)
    sums = by_rank(weight_tensors(inputs.model, "fp8", ranks, False))
    assert max(sums) - min(sums) == 62 * 3 * 1536 * 3072
    fixed = pykernel.new(inputs).fixed_bytes()
    assert abs(fixed.weights + fixed.eplb_redundant - max(sums)) <= 1


@pytest.mark.parametrize("model", SCENARIOS)
def test_the_caches_of_all_ranks_add_up_to_the_inventory(model: str) -> None:
    compressed = any(
        node.kind == "sparse_mla" for kind in fresh(SCENARIOS[model]).model.layer_kinds for node in kind.nodes
    )
    lengths = (128, 256, 4096) if compressed else (1, 127, 128, 129, 4097)  # whole entries of a compressed cache
    for tp in widths(model):
        inputs = stating(deployed(model, Ranks(tp)), block_size=64 if compressed else 1)
        dtype = inputs.deployment.pools[0].engine.cache_dtype
        element, cell = (Fraction(1), 656) if dtype.startswith("fp8") else (Fraction(2), 576 * 2)
        kernel = pykernel.new(inputs)
        for tokens in lengths:
            tensors = cache_tensors(inputs.model, element, cell, tokens, tp)
            held = kernel.sequence_variable_bytes(tokens)
            assert held == (max(by_rank(tensors)) if tensors else 0), (tp, tokens)
            assert tp * held == sum(tensor.bytes * tensor.copies for tensor in tensors)
