"""Context parallelism: which models may share a sequence, how ranks combine what they found, what they keep in a row.

Which sparse latent backend runs under those widths is tested in test_sparse.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from pykernel import Batch, Inputs, Kernel, RefusedError, Request, rules
from pykernel.documents import Offload, OffloadTier, PdTransfer
from pykernel.resolve import Resolved, resolve

Fresh = Callable[..., Inputs]

DECODE = Batch([Request(1, 999, 1)] * 4 + [Request(1, 99, 1)])


def shared(documents: Inputs, *, engine: dict[str, Any] | None = None, connector: str = "", **widths: int) -> Inputs:
    """The documents with other widths and settings."""
    pool = documents.deployment.pools[0]
    for name, value in widths.items():
        setattr(pool.parallel, name, value)
    for name, value in (engine or {}).items():
        setattr(pool.engine, name, value)
    if connector:
        documents.deployment.pd_transfer = PdTransfer(connector)
    return documents


def sparse(documents: Inputs) -> Inputs:
    """The same model with sparse latent attention and an 8-bit packed cache."""
    for kind in documents.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "Attention":
                node.kind, node.index_topk = "sparse_mla", 2_048
    documents.deployment.pools[0].engine.block_size = 64
    return documents


def assumptions(resolved: Resolved) -> dict[str, str]:
    return {origin.name: origin.scope for origin in resolved.provenance if origin.set == "pykernel"}


# ---- combining -----------------------------------------------------------------------------------------------------


def test_an_unstated_combine_is_ag_rs_and_disclosed_only_where_ranks_share_a_cache(fresh: Fresh) -> None:
    alone, together = resolve(fresh()), resolve(shared(fresh(), dcp=8))
    assert alone.context.combine == together.context.combine == "ag_rs"
    assert "dcp_comm_backend" not in assumptions(alone)
    assert assumptions(together)["dcp_comm_backend"].startswith("ag_rs: ")
    stated = shared(fresh(), dcp=8, engine={"dcp_comm_backend": "ag_rs"})
    assert Kernel(stated).step_time(DECODE) == Kernel(shared(fresh(), dcp=8)).step_time(DECODE)
    assert "dcp_comm_backend" not in assumptions(resolve(stated))


def test_a_release_decides_which_combines_it_knows(fresh: Fresh) -> None:
    stated = shared(fresh(), dcp=8, engine={"dcp_comm_backend": "a2a"})
    assert resolve(stated).context.combine == "a2a"
    stated.rules = dataclasses.replace(rules("0.29.0"), dcp_comm_backends=("ag_rs",))
    with pytest.raises(RefusedError, match=r"'a2a'.*ag_rs"):
        resolve(stated)
    stated.rules = dataclasses.replace(rules("0.29.0"), dcp_comm_backends=None)
    resolved = resolve(stated)
    assert resolved.context.combine == "a2a"
    assert assumptions(resolved)["dcp_comm_backend"].startswith("a2a: ")
    unknown = shared(fresh(), engine={"dcp_comm_backend": "ring"})
    unknown.rules = stated.rules
    with pytest.raises(RefusedError, match="'ring'"):
        resolve(unknown)


def test_one_exchange_does_not_run_beside_a_shared_prefill(fresh: Fresh) -> None:
    widths = {"tp": 2, "pcp": 4, "dcp": 4}
    refused = shared(sparse(fresh()), engine={"dcp_comm_backend": "a2a"}, **widths)
    with pytest.raises(RefusedError, match=r"a2a.*pcp 4") as caught:
        resolve(refused)
    assert caught.value.field == "engine.dcp_comm_backend"
    accepted = shared(sparse(fresh()), engine={"dcp_comm_backend": "ag_rs"}, **widths)
    assert resolve(accepted).context.combine == "ag_rs"


@pytest.mark.parametrize(
    ("engine", "widths", "operations"),
    [
        ({}, {}, set()),
        ({}, {"dcp": 8}, {"all_gather", "reduce_scatter"}),
        ({"dcp_comm_backend": "a2a"}, {"dcp": 8}, {"all_gather", "alltoall"}),
    ],
)
def test_only_the_collectives_of_the_combine_are_looked_up(
    engine: dict[str, str], widths: dict[str, int], operations: set[str], fresh: Fresh
) -> None:
    """Law 46."""
    found = resolve(shared(fresh(), engine=engine, **widths)).laws.collectives
    assert {operation for operation, group in found if group == "decode_context"} == operations


@pytest.mark.parametrize(
    ("scenario", "widths"), [("deepseek-v3-h200-fp8-tp8", {"dcp": 2}), ("minimax-m2.5-h200-tp8", {"dcp": 2})]
)
def test_a_shared_cache_is_read_by_its_ranks_together(scenario: str, widths: dict[str, int], fresh: Fresh) -> None:
    alone, together = (Kernel(shared(fresh(scenario), **given)) for given in ({}, widths))
    long, short = Batch([Request(1, 80_000, 1)] * 8), Batch([Request(1, 16, 1)] * 8)
    found = [kernel.step_time(batch).per_resource_ns for kernel in (alone, together) for batch in (long, short)]
    assert (found[0]["hbm"] - found[1]["hbm"]) == pytest.approx(2 * (found[2]["hbm"] - found[3]["hbm"]), rel=1e-3)
    assert found[2]["nvlink"] > found[0]["nvlink"]
    assert found[2]["sm"] == found[0]["sm"]


# ---- interleave ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "block", "connector", "interleave"),
    [
        (0, 64, "", 1),
        (0, 64, "MooncakeConnector", 1),
        (0, 64, "NixlConnector", 64),
        (0, 1, "NixlConnector", 1),
        (0, 64, "NixlPullConnector", 1),
        (16, 64, "", 16),
        (16, 64, "NixlConnector", 16),
        (16, 64, "MultiConnector", 16),
        (48, 64, "NixlConnector", 48),
        (128, 64, "NixlConnector", 128),
        (48, 64, "", None),
        (128, 64, "", None),
        (48, 64, "MultiConnector", None),
        (0, 64, "MultiConnector", None),
    ],
)
@pytest.mark.parametrize("carrier", ["pd_transfer", "offload"])
def test_how_many_tokens_a_rank_keeps_in_a_row(
    stated: int, block: int, connector: str, interleave: int | None, carrier: str, fresh: Fresh
) -> None:
    documents = shared(fresh(), dcp=4, engine={"block_size": block, "cp_kv_cache_interleave_size": stated})
    if connector and carrier == "pd_transfer":
        documents.deployment.pd_transfer = PdTransfer(connector)
    elif connector:
        documents.deployment.offload = Offload([OffloadTier("cpu_dram", 2**30)], connector=connector)
    if interleave is None:
        with pytest.raises(RefusedError) as caught:
            resolve(documents)
        assert caught.value.field == "engine.cp_kv_cache_interleave_size"
        assert (connector or str(stated)) in str(caught.value)
        return
    resolved = resolve(documents)
    assert resolved.context.interleave == interleave
    pinned = [
        (override.requested != "", override.resolved)
        for override in resolved.resolution.overrides
        if override.field == "cp_kv_cache_interleave_size"
    ]
    assert pinned == ([(True, str(interleave))] if interleave != (stated or 1) else [])


def test_interleave_moves_short_contexts_and_not_whole_stripes(fresh: Fresh) -> None:
    """Law 47."""
    one, block = (
        Kernel(shared(fresh(), dcp=8, engine={"block_size": 64, "cp_kv_cache_interleave_size": size}))
        for size in (1, 64)
    )
    short, whole = Batch([Request(1, 99, 1)]), Batch([Request(1, 4_095, 1)])
    grown = block.step_time(short).per_resource_ns["hbm"] - one.step_time(short).per_resource_ns["hbm"]
    assert grown == pytest.approx(61 * (64 - 13) * 576 / 2.928e12 * 1e9, abs=2)
    assert one.step_time(whole) == block.step_time(whole)


@pytest.mark.parametrize(
    ("engine", "dcp", "chunk"),
    [
        ({"max_model_len": 0}, 1, 65_536),
        ({"max_model_len": 1_000, "max_num_seqs": 100}, 1, 8_000),
        ({"max_model_len": 100, "max_num_seqs": 100}, 1, 6_400),
        ({"max_model_len": 1_001, "max_num_seqs": 100}, 1, 8_016),
        ({"max_model_len": 1_001, "max_num_seqs": 100}, 4, 8_064),
        ({"max_model_len": 10**6}, 8, 65_536),
    ],
)
def test_prefixes_are_gathered_in_whole_blocks_of_every_rank(
    engine: dict[str, int], dcp: int, chunk: int, fresh: Fresh
) -> None:
    resolved = resolve(shared(fresh(), dcp=dcp, engine=engine | {"cp_kv_cache_interleave_size": 16 if dcp > 1 else 0}))
    assert resolved.context_chunk == chunk
    assert ("mla_context_chunk" in assumptions(resolved)) is (dcp > 1 and not engine["max_model_len"])


# ---- sparse latent attention ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "dcp", "accepted"), [("NONE", 1, True), ("PIECEWISE", 1, False), ("", 1, False), ("PIECEWISE", 2, True)]
)
def test_a_shared_sparse_prefill_needs_a_shared_cache_or_no_graphs(
    mode: str, dcp: int, accepted: bool, fresh: Fresh
) -> None:
    documents = shared(sparse(fresh()), tp=4, pcp=2, dcp=dcp, engine={"cudagraph_mode": mode})
    if accepted:
        assert resolve(documents).layout.pcp == 2
        return
    with pytest.raises(RefusedError, match="NONE") as caught:
        resolve(documents)
    assert caught.value.field == "engine.cudagraph_mode"


@pytest.mark.parametrize(("block", "accepted"), [(16, False), (32, False), (64, True), (128, True), (0, True)])
def test_sparse_pages_are_multiples_of_64(block: int, accepted: bool, fresh: Fresh) -> None:
    documents = sparse(fresh())
    documents.deployment.pools[0].engine.block_size = block
    if not accepted:
        with pytest.raises(RefusedError, match=f"block_size is {block}.*64"):
            resolve(documents)
        return
    resolved = resolve(documents)
    assert resolved.settings.block_size == (block or 64)
    assert ("block_size" in assumptions(resolved)) is (block == 0)


HOPPER, BLACKWELL = "deepseek-v3-h200-fp8-tp8", "deepseek-v3-b200-fp4-tp4"


def test_a_cache_stored_otherwise_than_stated_is_an_override(fresh: Fresh) -> None:
    resolved = resolve(sparse(fresh()))
    (override,) = resolved.resolution.overrides
    assert (override.field, override.requested, override.resolved) == ("cache_dtype", "fp8", "fp8_ds_mla")
    documents = sparse(fresh())
    documents.deployment.pools[0].engine.cache_dtype = "fp8_e4m3"
    resolved = resolve(documents)
    assert resolved.resolution.overrides == ()
    assert assumptions(resolved)["sparse_mla_backend"].startswith("FLASHINFER_MLA_SPARSE_SM90: ")


@pytest.mark.parametrize(
    ("scenario", "cache", "cell"),
    [
        (HOPPER, "fp8", 656),
        (HOPPER, "fp8_e4m3", 576),
        (HOPPER, "bfloat16", 1_152),
        (BLACKWELL, "fp8", 576),
        (BLACKWELL, "nvfp4_ds_mla", 352),
    ],
)
def test_a_sparse_cell_takes_the_bytes_of_its_format(scenario: str, cache: str, cell: int, fresh: Fresh) -> None:
    documents = sparse(fresh(scenario))
    documents.deployment.pools[0].engine.cache_dtype = cache
    kernel, rate = Kernel(documents), resolve(documents).laws.decode["sparse_mla"].bytes_per_second
    near, far = (kernel.step_time(Batch([Request(1, context, 1)])).per_resource_ns["hbm"] for context in (0, 1_000))
    assert far - near == pytest.approx(61 * 1_000 * cell / rate * 1e9, abs=2)
