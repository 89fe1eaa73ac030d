"""Context parallelism: which models may share a sequence over ranks, and how decodes are put together again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pykernel.documents import Deployment, Engine, Rules
from pykernel.errors import RefusedError
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import LATENT_KINDS, ModelFacts
from pykernel.resolve.record import Record

WIDEST_CONTEXT_CHUNK = 65536
"""Tokens of prefix that the engine gathers at once at most (vllm/v1/attention/backends/mla at v0.31.0)."""

COMBINES = ("ag_rs", "a2a")


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """How decode-context ranks work together: the combine collectives, and the tokens one rank keeps in a row."""

    combine: str
    interleave: int


def check_context_parallel(facts: ModelFacts, engine: Engine, layout: Layout, graph_mode: str) -> None:
    """Raise `RefusedError` for a model that the engine does not run under these context-parallel widths."""
    if layout.pcp > 1:
        _check_prefill_context(facts, layout, graph_mode)
    if engine.dcp_q_replicate and layout.dcp > 1 and layout.pcp == 1 and facts.attention_kinds & LATENT_KINDS:
        raise RefusedError(
            f"dcp_q_replicate is true with dcp {layout.dcp}: the replicated query projection of latent attention is "
            "not priced; leave it out or state false",
            "engine.dcp_q_replicate",
        )


def _check_prefill_context(facts: ModelFacts, layout: Layout, graph_mode: str) -> None:
    for kind in facts.kinds:
        others = [node.recurrent_kind for node in kind.nodes("RecurrentUpdate")]
        if kind.primary and kind.primary.kind not in LATENT_KINDS:
            others.append(kind.primary.kind)
        if others:
            raise RefusedError(
                f"pcp is {layout.pcp}, but layer kind {kind.kind.id} has {others[0]}; prefill-context parallelism "
                "needs latent attention in every layer",
                "parallel.pcp",
            )
    others = sorted(facts.attention_kinds - {"sparse_mla"})
    if layout.dcp > 1 and others:
        kind_id = next(kind.kind.id for kind in facts.kinds if kind.primary and kind.primary.kind in others)
        raise RefusedError(
            f"pcp {layout.pcp} together with dcp {layout.dcp} needs sparse latent attention in every layer; layer kind "
            f"{kind_id} has {others[0]}",
            "parallel.dcp",
        )
    if layout.dcp == 1 and "sparse_mla" in facts.attention_kinds and graph_mode != "NONE":
        # vllm/config/vllm.py at v0.31.0
        raise RefusedError(
            f"pcp is {layout.pcp} on sparse latent attention without dcp: the engine starts only with cudagraph_mode "
            f"NONE, found {graph_mode}",
            "engine.cudagraph_mode",
        )


def resolve_decode_context(
    deployment: Deployment,
    engine: Engine,
    layout: Layout,
    rules: Rules,
    block_size: int,
    block_is_final: bool,
    record: Record,
) -> DecodeContext:
    """Combine backend and interleave. Raises `RefusedError` for names and sizes the engine would not start with."""
    combine = _combine(engine, layout, rules, record)
    if layout.dcp == 1:
        return DecodeContext(combine, 1)
    connectors = {part.connector for part in (deployment.pd_transfer, deployment.offload) if part and part.connector}
    stated = engine.cp_kv_cache_interleave_size
    if stated:
        if stated > block_size or block_size % stated:
            _check_misfit(stated, block_size, block_is_final, connectors)
        return DecodeContext(combine, stated)
    if "MultiConnector" in connectors:
        raise RefusedError(
            "cp_kv_cache_interleave_size must be stated under MultiConnector, whose inner connectors decide it",
            "engine.cp_kv_cache_interleave_size",
        )
    if "NixlConnector" in connectors and block_size > 1:
        record.override(
            "cp_kv_cache_interleave_size",
            "not stated (engine default 1)",
            block_size,
            "NixlConnector moves whole blocks, so the engine pins the interleave to the block size",
        )
        return DecodeContext(combine, block_size)
    return DecodeContext(combine, 1)


def _combine(engine: Engine, layout: Layout, rules: Rules, record: Record) -> str:
    stated = engine.dcp_comm_backend
    listed = rules.dcp_comm_backends
    if stated:
        accepted = [name for name in COMBINES if listed is None or name in listed]
        if stated not in accepted:
            raise RefusedError(
                f"dcp_comm_backend is {stated!r}, accepted are {', '.join(accepted)}", "engine.dcp_comm_backend"
            )
        if layout.dcp > 1 and layout.pcp > 1 and stated == "a2a":
            raise RefusedError(
                f"dcp_comm_backend a2a does not run with pcp {layout.pcp}; ag_rs does", "engine.dcp_comm_backend"
            )
        if layout.dcp > 1 and listed is None:
            record.assume(
                "dcp_comm_backend", stated, "stated, but the release's rules list no names to check it against"
            )
        return stated
    if layout.dcp > 1:
        record.assume("dcp_comm_backend", "ag_rs", "not stated; the engine's default")
    return "ag_rs"


def combining_operation(layout: Layout, combine: str) -> str:
    """The collective that puts the partial results of decode-context ranks together."""
    if combine == "a2a":
        return "alltoall"
    return "all_reduce" if layout.pcp > 1 else "reduce_scatter"


def _check_misfit(stated: int, block_size: int, block_is_final: bool, connectors: set[str]) -> None:
    """A stated interleave that does not divide the block: only a NIXL worker repairs it."""
    if "NixlConnector" in connectors and "MultiConnector" not in connectors:
        return
    if "MultiConnector" in connectors:
        why = "the inner connectors of MultiConnector are not known"
    elif block_is_final:
        why = "it must divide block_size"
    else:
        why = "the engine may still raise the block of this model; state a block_size that it divides"
    raise RefusedError(
        f"cp_kv_cache_interleave_size is {stated} with block_size {block_size}: {why}",
        "engine.cp_kv_cache_interleave_size",
    )


def context_chunk(engine: Engine, sequences: int, block_size: int, layout: Layout, interleave: int) -> int:
    """Tokens of prefix that latent attention gathers at once, a whole number of blocks on every rank."""
    chunk = WIDEST_CONTEXT_CHUNK
    if engine.max_model_len:
        chunk = min(max(8 * engine.max_model_len, 4 * sequences * block_size), WIDEST_CONTEXT_CHUNK)
    align = block_size if layout.dcp == 1 else math.lcm(block_size, layout.dcp * interleave)
    return -(-max(chunk, align) // align) * align
