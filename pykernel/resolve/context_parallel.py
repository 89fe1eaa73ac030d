"""Context parallelism: how ranks share the context of a sequence, and how its decodes are put together again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pykernel.documents import Deployment, Engine
from pykernel.resolve.layout import Layout

WIDEST_CONTEXT_CHUNK = 65536
"""Tokens of prefix that the engine gathers at once at most (vllm/v1/attention/backends/mla at v0.31.0)."""

COMBINES = ("ag_rs", "a2a")


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """How decode-context ranks work together: the combine collectives, and the tokens one rank keeps in a row."""

    combine: str
    interleave: int


def resolve_decode_context(deployment: Deployment, engine: Engine, layout: Layout, block_size: int) -> DecodeContext:
    """Combine backend and interleave of decode-context ranks."""
    combine = engine.dcp_comm_backend or "ag_rs"
    if layout.dcp == 1:
        return DecodeContext(combine, 1)
    interleave = engine.cp_kv_cache_interleave_size or (block_size if pins_interleave(deployment) else 1)
    return DecodeContext(combine, interleave)


def pins_interleave(deployment: Deployment) -> bool:
    """Whether a KV connector that moves whole blocks raises an unstated interleave to the block size.

    vllm/config/vllm.py at v0.31.0, which asks for this connector by its exact name.
    """
    return any(part and part.connector == "NixlConnector" for part in (deployment.pd_transfer, deployment.offload))


def combining_operation(layout: Layout, combine: str) -> str:
    """The collective that puts the partial results of decode-context ranks together."""
    if combine == "a2a":
        return "alltoall"
    return "all_reduce" if layout.pcp > 1 else "reduce_scatter"


def context_chunk(engine: Engine, sequences: int, block_size: int, layout: Layout, interleave: int) -> int:
    """Tokens of prefix that latent attention gathers at once, a whole number of blocks on every rank."""
    chunk = WIDEST_CONTEXT_CHUNK
    if engine.max_model_len:
        chunk = min(max(8 * engine.max_model_len, 4 * sequences * block_size), WIDEST_CONTEXT_CHUNK)
    align = block_size if layout.dcp == 1 else math.lcm(block_size, layout.dcp * interleave)
    return -(-max(chunk, align) // align) * align
