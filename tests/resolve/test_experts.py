"""Where routed experts are: the fullest rank, how each expert is sliced, whose tokens meet at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykernel import Batch, Inputs, Kernel, RefusedError, Request
from pykernel.documents import Eplb
from pykernel.resolve import resolve
from pykernel.resolve.experts import ExpertPlacement

Fresh = Callable[..., Inputs]

MINIMAX, EP16 = "minimax-m2.5-h200-tp8", "minimax-m2.5-h200-ep16"


def placed(documents: Inputs, **parallel: Any) -> ExpertPlacement:
    pool = documents.deployment.pools[0]
    for name, value in parallel.items():
        setattr(pool.parallel, name, value)
    ranks = pool.parallel.tp * pool.parallel.dp * max(pool.parallel.pcp, 1)
    documents.scenario.cluster.nodes = pool.nodes = -(-ranks // documents.scenario.cluster.gpus_per_node)
    documents.scenario.cluster.fabric = documents.scenario.cluster.fabric or "ib-400g"
    found = resolve(documents).experts
    assert found is not None
    return found


def test_a_dense_model_places_no_experts(fresh: Fresh) -> None:
    assert resolve(fresh("llama-3.1-8b-h100-tp1")).experts is None


@pytest.mark.parametrize(("dp", "ranks", "fullest"), [(1, 8, 32), (2, 16, 16), (9, 72, 4), (32, 256, 1)])
def test_whole_experts_are_dealt_to_the_ranks_and_the_fullest_counts(
    dp: int, ranks: int, fullest: int, fresh: Fresh
) -> None:
    found = placed(fresh(EP16), dp=dp)
    assert (found.ranks, found.physical(256), found.local(256)) == (ranks, 256, fullest)
    assert (found.shards, found.token_slices) == (1, 1)
    assert found.funnel == dp
    dealt = [256 // ranks + (rank < 256 % ranks) for rank in range(ranks)]
    assert sum(dealt) == 256 and max(dealt) == fullest


@pytest.mark.parametrize("dp", [1, 2, 4])
def test_without_expert_parallelism_every_rank_has_a_slice_of_every_expert(dp: int, fresh: Fresh) -> None:
    found = placed(fresh(EP16), dp=dp, enable_expert_parallel=False)
    assert (found.ranks, found.local(256)) == (1, 256)
    assert (found.shards, found.token_slices, found.funnel) == (8 * dp, dp, dp)


def test_slicing_over_more_replicas_halves_the_weights_and_leaves_the_work(fresh: Fresh) -> None:
    def expert_terms(dp: int) -> tuple[float, float]:
        """Weight bytes a rank reads of one expert, and its share of one token's work."""
        found = placed(fresh(EP16), dp=dp, enable_expert_parallel=False)
        return 1 / found.shards, found.funnel / found.token_slices

    terms = [expert_terms(dp) for dp in (1, 2, 4)]
    assert [weights * 8 for weights, _ in terms] == [1, 1 / 2, 1 / 4]
    assert {work for _, work in terms} == {1}


@pytest.mark.parametrize("backend", ["", "deepep_low_latency"])
def test_tokens_are_dispatched_only_between_replicas_whatever_the_backend(backend: str, fresh: Fresh) -> None:
    batch = Batch([Request(1, 4_095, 1)] * 32)
    for dp, dispatched in ((1, False), (2, True)):
        documents = fresh(EP16)
        documents.deployment.pools[0].engine.all2all_backend = backend
        placed(documents, tp=4, dp=dp, enable_expert_parallel=False)
        resources = Kernel(documents).step_time(batch).per_resource_ns
        plain = fresh(EP16)
        placed(plain, tp=4, dp=dp, enable_expert_parallel=False)
        for kind in plain.model.layer_kinds:
            kind.nodes = [node for node in kind.nodes if node.op != "All2All"]
            kind.edges = []
        without = Kernel(plain).step_time(batch).per_resource_ns
        assert (resources["nvlink"] > without["nvlink"]) is dispatched
        assert "nic" not in resources


def test_a_routed_backend_without_expert_parallelism_changes_nothing(fresh: Fresh) -> None:
    named, unnamed = fresh("minimax-m2.5-h200-disagg", 1), fresh("minimax-m2.5-h200-disagg", 1)
    named.deployment.pools[1].engine.all2all_backend = "pplx"
    batch = Batch([Request(1, 4_095, 1)] * 32)
    assert Kernel(named).step_time(batch) == Kernel(unnamed).step_time(batch)


@pytest.mark.parametrize(
    ("eplb", "physical", "fullest"),
    [
        (None, 256, 32),
        (Eplb(False, 8), 256, 32),
        (Eplb(True, 8), 264, 33),
        (Eplb(True, 0), 256, 32),
        (Eplb(True, 9), 265, 34),
    ],
)
def test_replicas_of_the_load_balancer_count_where_it_is_on(
    eplb: Eplb | None, physical: int, fullest: int, fresh: Fresh
) -> None:
    documents = fresh("minimax-m2.5-h200-ep8")
    documents.deployment.pools[0].engine.eplb = eplb
    found = placed(documents)
    assert (found.physical(256), found.local(256)) == (physical, fullest)


@pytest.mark.parametrize(
    ("experts", "replicas", "accepted"), [(16, 0, True), (15, 0, False), (15, 1, True), (8, 8, True)]
)
def test_every_rank_must_hold_an_expert(experts: int, replicas: int, accepted: bool, fresh: Fresh) -> None:
    documents = fresh(EP16)
    documents.deployment.pools[0].engine.eplb = Eplb(True, replicas)
    for kind in documents.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "GroupedGEMM":
                node.experts = experts
    if accepted:
        assert placed(documents).local(experts) == 1
        return
    with pytest.raises(RefusedError) as caught:
        placed(documents)
    assert "16" in str(caught.value) and f"{experts + replicas} experts" in str(caught.value)
