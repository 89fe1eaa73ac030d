"""Which kernel runs sparse latent attention of the DeepSeek-V3.2 family, and how its cache is laid out.

The engine tries its backends in an order that depends on the part, takes the first that accepts the cache and the
layout of ranks, and lets that backend rewrite the cache format (vllm/platforms/cuda.py and
vllm/v1/attention/backends/mla at v0.31.0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykernel.documents import Chip, Engine
from pykernel.errors import RefusedError
from pykernel.resolve.engine import PRE_HOPPER, data_center_blackwell
from pykernel.resolve.layout import Layout
from pykernel.resolve.record import Record


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
class FlashMlaRule:
    """What FlashMLA refuses when ranks share its cache."""

    why: str
    field: str
    refuses: Callable[[_Candidate], bool]


@dataclass(frozen=True, slots=True)
class _Candidate:
    cache: str
    layout_name: str
    heads: int
    layout: Layout
    combine: str

    @property
    def gathered_heads(self) -> int:
        """Query heads that meet at a rank once the context ranks have exchanged theirs."""
        if self.layout.pcp <= 1:
            return self.heads * self.layout.dcp
        return self.heads * self.layout.tp if self.layout.dcp > self.layout.pcp else self.heads


FLASHMLA_UNDER_DCP = (
    FlashMlaRule(
        "a 16-bit cache cannot be shared between ranks", "engine.cache_dtype", lambda c: not _quantized(c.cache)
    ),
    FlashMlaRule(
        "it combines partial results by ag_rs only", "engine.dcp_comm_backend", lambda c: c.combine != "ag_rs"
    ),
    FlashMlaRule(
        "with prefill-context parallelism the cache must be fp8_ds_mla",
        "engine.cache_dtype",
        lambda c: c.layout.pcp > 1 and c.layout_name != "fp8_ds_mla",
    ),
    FlashMlaRule(
        "32 query heads or more on a rank are not supported; a wider tp leaves fewer",
        "parallel.tp",
        lambda c: c.layout.pcp <= 1 and c.heads >= 32,
    ),
    FlashMlaRule(
        "own heads and gathered heads of a rank pad to different widths (64, 128); a narrower dcp keeps them equal",
        "parallel.dcp",
        lambda c: _padded(c.heads) != _padded(c.gathered_heads),
    ),
)


def resolve_sparse_cache(
    engine: Engine, chip: Chip, layout: Layout, query_heads: int, combine: str, record: Record
) -> str:
    """The cache format that the chosen backend allocates. Raises `RefusedError` where none accepts the deployment."""
    if chip.name in PRE_HOPPER:
        raise RefusedError(
            f"sparse-MLA attention needs compute capability 9.0 or newer, which {chip.name} has not", "cluster.hardware"
        )
    cache = engine.cache_dtype or "auto"
    blackwell = data_center_blackwell(chip)
    heads = query_heads // layout.tp
    candidates = _candidates(cache, blackwell, heads)
    chosen = next((backend for backend in candidates if backend.takes(cache, layout, blackwell)), None)
    if chosen is None:
        names = ", ".join(backend.name for backend in candidates)
        raise RefusedError(
            f"cache_dtype {cache} with dcp {layout.dcp} and pcp {layout.pcp}: no sparse attention backend takes it; "
            f"tried {names}",
            "engine.cache_dtype",
        )
    allocated = cache
    if chosen is FLASHMLA and _quantized(cache) and cache != "nvfp4_ds_mla":
        allocated = "fp8_ds_mla"
    if chosen is FLASHMLA and layout.dcp > 1:
        _check_flashmla(_Candidate(cache, allocated, heads, layout, combine))
    if chosen is FLASHINFER_SM90:
        record.assume("sparse_mla_backend", chosen.name, "chosen by the engine; needs FlashInfer 0.6.18 or newer")
    if engine.cache_dtype and allocated != cache:
        record.override("cache_dtype", cache, allocated, f"{chosen.name} stores a quantized latent cache packed")
    return allocated


def _candidates(cache: str, blackwell: bool, heads: int) -> tuple[Backend, ...]:
    if not blackwell:
        return (FLASH_ATTN, FLASHMLA, FLASHINFER_SM90)
    if _quantized(cache) or heads <= 16:
        return (FLASHINFER, FLASHMLA)
    return (FLASHMLA, FLASHINFER)


def _check_flashmla(candidate: _Candidate) -> None:
    for rule in FLASHMLA_UNDER_DCP:
        if rule.refuses(candidate):
            raise RefusedError(
                f"{FLASHMLA.name} under dcp {candidate.layout.dcp}: {rule.why} (cache {candidate.cache}, combine "
                f"{candidate.combine}, {candidate.heads} heads a rank, {candidate.gathered_heads} gathered)",
                rule.field,
            )


def _quantized(cache: str) -> bool:
    return cache.startswith(("fp8", "nvfp4")) or cache.endswith("per_token_head")


def _padded(heads: int) -> int:
    return 64 if heads <= 64 else 128
