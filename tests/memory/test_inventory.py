"""Weights and caches against an inventory that is made independently: the fullest rank, and the sum over all ranks."""

from __future__ import annotations

from fractions import Fraction

import pytest

import pykernel
from pykernel.documents import Eplb
from pykernel.switches import NEWEST, LawSwitches
from tests.memory.graphs import fresh, spread, stating
from tests.memory.inventory import Ranks, by_rank, cache_tensors, held, weight_tensors

SCENARIOS = {  # one for each bundled model of attention heads and MLPs, and some others
    "deepseek-v3-h200-fp8-tp8": (1, 2, 4, 8, 16),
    "deepseek-v3-b200-fp4-tp4": (4, 8),
    "gpt-oss-120b-h100-fp4-tp2": (1, 2, 4, 8, 16),
    "llama-3.1-70b-h100-fp8-tp4": (1, 2, 4, 8, 16),
    "llama-3.1-8b-h100-tp1": (1, 2, 4, 8, 16),
    "minimax-m2.5-h200-tp8": (1, 2, 4, 8, 16),
    "mixtral-8x7b-h100-tp4": (1, 2, 4, 8),
    "qwen3-30b-a3b-h100-tp2": (1, 2, 4, 8),
    "codellama-34b-h100-tp2": (2, 8),
    "granite-5.0-h200-ep16": (4, 8),
    "inkling-b300-fp8-tp8": (4, 8),
    "llama-2-70b-a100-80-tp4": (4, 8),
    "llama-2-7b-a100-80-tp1": (1, 4),
    "llama-4-scout-h100-fp8-tp4": (4,),
    "minimax-m2.7-h200-tp4": (4, 8),
    "mistral-nemo-l40s-tp2": (2, 8),
    "mixtral-8x22b-h100-tp8": (4, 8),
    "nemotron-3.5-lightning-bf16-h100-tp2": (2, 8),
    "nemotron-3.5-lightning-nvfp4-b200-tp1": (1, 8),
    "qwen2.5-7b-l40s-tp1": (1, 4),
    "qwen3-14b-h100-tp1": (1, 8),
    "qwen3.5-397b-a17b-b300-fp4-tp4": (4,),
    "yi-34b-h100-tp2": (2, 8),
}
ENGINE = LawSwitches(embedding_width="sixteen_bit", engine_weights=True)
WIDTHS = [(scenario, tp) for scenario, widths in SCENARIOS.items() for tp in widths]


def has_heads_alone(inputs: pykernel.Inputs) -> bool:
    """Whether all that mixes tokens is attention with heads: no latent vector, no indexer, no recurrent state."""
    nodes = [node for kind in inputs.model.layer_kinds for node in kind.nodes]
    attentions = [node for node in nodes if node.op == "Attention"]
    return all(node.kind in ("gqa", "swa") and not node.role for node in attentions) and not any(
        node.op == "RecurrentUpdate" for node in nodes
    )


def test_every_bundled_model_with_heads_alone_is_in_the_table() -> None:
    known = {fresh(scenario).model.name for scenario in SCENARIOS}
    bundled = [fresh(scenario) for scenario in pykernel.documents.list_scenarios()]
    assert {inputs.model.name for inputs in bundled if has_heads_alone(inputs)} <= known
    assert len(known) > 20


def layouts(inputs: pykernel.Inputs, tp: int) -> list[Ranks]:
    ranks = [Ranks(tp)]
    if any(node.op == "GroupedGEMM" for kind in inputs.model.layer_kinds for node in kind.nodes):
        ranks.append(Ranks(tp, experts_whole=True))
        if tp < 16:
            ranks += [Ranks(tp, 2), Ranks(tp, 2, experts_whole=True)]
            ranks += [Ranks(tp, 2, experts_whole=True, redundant=3)]  # uneven on any of these widths but 1
    return ranks


def deployed(scenario: str, ranks: Ranks) -> pykernel.Inputs:
    inputs = spread(fresh(scenario), tp=ranks.tp, dp=ranks.dp, enable_expert_parallel=ranks.experts_whole)
    return stating(inputs, eplb=Eplb(True, ranks.redundant) if ranks.redundant else None)


@pytest.mark.parametrize("engine", [False, True], ids=["published", "engine"])
@pytest.mark.parametrize(("scenario", "tp"), WIDTHS)
def test_the_fullest_rank_holds_what_the_inventory_says(scenario: str, tp: int, engine: bool) -> None:
    for ranks in layouts(fresh(scenario), tp):
        inputs = deployed(scenario, ranks)
        if ranks.experts_whole and inputs.model.name.startswith("mixtral") and ranks.count > 8:
            continue  # refused: some rank would hold none of the 8 experts
        quantization = inputs.deployment.pools[0].engine.quantization
        tensors = weight_tensors(inputs.model, quantization, ranks, engine)
        sums = by_rank(tensors)
        kernel = pykernel.Kernel(inputs, switches=ENGINE if engine else NEWEST)
        fixed = kernel.fixed_bytes()
        found = fixed.weights + fixed.eplb_redundant
        assert abs(found - max(sums)) <= 1, ranks  # two truncations where replicas are told apart
        assert found <= max(sums)
        everything = sum(tensor.bytes * tensor.copies for tensor in tensors)
        assert sum(sums) == everything
        if min(sums) == max(sums):
            assert abs(found * ranks.count - everything) <= ranks.count


def test_uneven_experts_count_on_the_fullest_rank() -> None:
    # 259 experts on 16 ranks: three ranks hold 17, the others 16, and an expert of minimax-m2.5 is counted in fp8.
    ranks = Ranks(8, 2, experts_whole=True, redundant=3)
    assert [held(259, 16, rank) for rank in range(16)] == [17] * 3 + [16] * 13
    inputs = deployed("minimax-m2.5-h200-tp8", ranks)
    sums = by_rank(weight_tensors(inputs.model, "fp8", ranks, False))
    assert max(sums) - min(sums) == 62 * 3 * 1536 * 3072
    fixed = pykernel.new(inputs).fixed_bytes()
    assert abs(fixed.weights + fixed.eplb_redundant - max(sums)) <= 1


@pytest.mark.parametrize(("scenario", "tp"), WIDTHS)
def test_the_caches_of_all_ranks_add_up_to_the_inventory(scenario: str, tp: int) -> None:
    element = {"fp8": Fraction(1), "": Fraction(2), "auto": Fraction(2)}
    inputs = stating(spread(fresh(scenario), tp=tp), block_size=1)
    kernel = pykernel.new(inputs)
    width = element[inputs.deployment.pools[0].engine.cache_dtype]
    for tokens in (1, 127, 128, 129, 4097):
        tensors = cache_tensors(inputs.model, width, tokens, Ranks(tp))
        sums = by_rank(tensors)
        assert kernel.sequence_variable_bytes(tokens) == max(sums)
        assert tp * kernel.sequence_variable_bytes(tokens) == sum(tensor.bytes * tensor.copies for tensor in tensors)
