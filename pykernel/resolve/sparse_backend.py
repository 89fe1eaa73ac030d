"""Which kernel runs sparse latent attention of the DeepSeek-V3.2 family, and how its cache is laid out.

The engine tries its backends in an order that depends on the part, takes the first that accepts the cache and the
layout of ranks, and lets that backend rewrite the cache format (vllm/platforms/cuda.py and
vllm/v1/attention/backends/mla at v0.31.0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykernel.documents import Chip, Engine
from pykernel.resolve.engine import data_center_blackwell
from pykernel.resolve.layout import Layout


@dataclass(frozen=True, slots=True)
class Backend:
    """A sparse attention backend: the cache types it lists and the rank layouts it runs under."""

    name: str
    caches: frozenset[str]
    caches_on_blackwell: frozenset[str]
    accepts: Callable[[Layout], bool]

    def takes(self, cache: str, layout: Layout, blackwell: bool) -> bool:
        listed = self.caches | (self.caches_on_blackwell if blackwell else frozenset())
        return cache in listed and self.accepts(layout)


FLASH_ATTN = Backend(
    "FLASH_ATTN_MLA_SPARSE",
    frozenset({"auto", "float16", "bfloat16"}),
    frozenset(),
    lambda layout: layout.dcp == 1,
)
FLASHMLA = Backend(
    "FLASHMLA_SPARSE",
    frozenset({"auto", "bfloat16", "fp8_ds_mla", "fp8"}),
    frozenset({"nvfp4_ds_mla"}),
    lambda layout: True,
)
FLASHINFER = Backend(
    "FLASHINFER_MLA_SPARSE",
    frozenset({"auto", "float16", "bfloat16", "fp8", "fp8_e4m3"}),
    frozenset(),
    lambda layout: not (layout.pcp > 1 and layout.dcp > 1),
)
FLASHINFER_SM90 = Backend(
    "FLASHINFER_MLA_SPARSE_SM90",
    frozenset({"auto", "bfloat16", "fp8", "fp8_e4m3"}),
    frozenset(),
    lambda layout: layout.dcp == 1,
)


@dataclass(frozen=True, slots=True)
class SparseChoice:
    """The backend that the engine takes and the cache format that it allocates."""

    backend: Backend
    cache_format: str


def choose_sparse_backend(engine: Engine, chip: Chip, layout: Layout, heads: int) -> SparseChoice | None:
    """The first candidate that accepts the cache and the layout of ranks; None where none does.

    `heads` are the query heads of one rank.
    """
    cache = engine.cache_dtype or "auto"
    blackwell = data_center_blackwell(chip)
    for backend in candidates(cache, blackwell, heads):
        if backend.takes(cache, layout, blackwell):
            repacks = backend is FLASHMLA and quantized(cache) and cache != "nvfp4_ds_mla"
            return SparseChoice(backend, "fp8_ds_mla" if repacks else cache)
    return None


def candidates(cache: str, blackwell: bool, heads: int) -> tuple[Backend, ...]:
    """The backends in the order in which the engine tries them."""
    if not blackwell:
        return (FLASH_ATTN, FLASHMLA, FLASHINFER_SM90)
    if quantized(cache) or heads <= 16:
        return (FLASHINFER, FLASHMLA)
    return (FLASHMLA, FLASHINFER)


def quantized(cache: str) -> bool:
    """Whether a cache format stores less than 16 bits an element."""
    return cache.startswith(("fp8", "nvfp4")) or cache.endswith("per_token_head")


def gathered_heads(layout: Layout, heads: int) -> int:
    """Query heads that meet at a rank once the context ranks have exchanged theirs, with `heads` of its own."""
    if layout.pcp == 1:
        return heads * layout.dcp
    return heads * layout.tp if layout.dcp > layout.pcp else heads


def padded_heads(heads: int) -> int:
    """The width that FlashMLA pads query heads to."""
    return 64 if heads <= 64 else 128
