"""Refusals of sparse latent attention of the DeepSeek-V3.2 family: parts, caches and head counts of its backends."""

from __future__ import annotations

from collections.abc import Callable

from pykernel.resolve.case import Case
from pykernel.resolve.engine import PRE_HOPPER, data_center_blackwell, pre_hopper
from pykernel.resolve.refusals.row import ENGINE, Refusal, listed, when
from pykernel.resolve.sparse_backend import FLASHMLA, candidates, gathered_heads, padded_heads, quantized


def _flashmla(case: Case, fault: Callable[[Case], bool]) -> str:
    """What FlashMLA, shared between ranks, finds at fault."""
    shared = case.layout.dcp > 1 and case.sparse is not None and case.sparse.backend is FLASHMLA
    if not (shared and fault(case)):
        return ""
    heads = case.query_heads
    return (
        f"{FLASHMLA.name} with dcp {case.layout.dcp} and pcp {case.layout.pcp}, cache "
        f"{case.engine.cache_dtype or 'auto'}, combine {case.context.combine}, {heads} heads a rank, "
        f"{gathered_heads(case.layout, heads)} gathered"
    )


def _no_backend(case: Case) -> str:
    if not case.facts.dsa or pre_hopper(case.chip) or case.sparse is not None:
        return ""
    cache = case.engine.cache_dtype or "auto"
    tried = candidates(cache, data_center_blackwell(case.chip), case.query_heads)
    widths = f"dcp {case.layout.dcp} and pcp {case.layout.pcp}"
    return f"cache_dtype {cache} with {widths}, tried {listed(backend.name for backend in tried)}"


_FLASHMLA_SPARSE = "vllm/v1/attention/backends/mla/flashmla_sparse.py"

SPARSE = (
    Refusal(
        "sparse-part",
        "cluster.hardware",
        ENGINE,
        f"sparse latent attention of the DeepSeek-V3.2 family on {listed(sorted(PRE_HOPPER))}",
        "sparse-MLA attention needs compute capability 9.0 or newer",
        "Hopper or newer",
        "vllm/platforms/cuda.py",
        lambda case: when(case.facts.dsa and pre_hopper(case.chip), f"{case.chip.name} runs no sparse-MLA backend"),
    ),
    Refusal(
        "sparse-backend",
        "engine.cache_dtype",
        ENGINE,
        "no sparse attention backend of the part takes the cache type under these context-parallel widths",
        "no sparse attention backend takes it",
        "fp8 on a part with dcp, auto without",
        "vllm/platforms/cuda.py",
        _no_backend,
    ),
    Refusal(
        "sparse-context-cache",
        "engine.cache_dtype",
        ENGINE,
        "FLASHMLA_SPARSE with `dcp` above 1 and a 16-bit cache",
        "ranks cannot share a 16-bit cache",
        "state fp8",
        _FLASHMLA_SPARSE,
        lambda case: _flashmla(case, lambda case: not quantized(case.engine.cache_dtype or "auto")),
    ),
    Refusal(
        "sparse-context-combine",
        "engine.dcp_comm_backend",
        ENGINE,
        "FLASHMLA_SPARSE with `dcp` above 1 and a combine other than `ag_rs`",
        "it combines partial results by ag_rs only",
        "state ag_rs",
        _FLASHMLA_SPARSE,
        lambda case: _flashmla(case, lambda case: case.context.combine != "ag_rs"),
    ),
    Refusal(
        "sparse-context-layout",
        "engine.cache_dtype",
        ENGINE,
        "FLASHMLA_SPARSE with `pcp` and `dcp` above 1 and a cache that is not `fp8_ds_mla`",
        "with prefill-context parallelism the cache must be fp8_ds_mla",
        "state fp8",
        _FLASHMLA_SPARSE,
        lambda case: _flashmla(
            case,
            lambda case: case.layout.pcp > 1 and case.sparse is not None and case.sparse.cache_format != "fp8_ds_mla",
        ),
    ),
    Refusal(
        "sparse-context-heads",
        "parallel.tp",
        ENGINE,
        "FLASHMLA_SPARSE with `dcp` above 1, without `pcp`, and 32 or more query heads on a rank",
        "32 query heads or more on a rank are not supported",
        "a wider tp leaves fewer",
        _FLASHMLA_SPARSE,
        lambda case: _flashmla(case, lambda case: case.layout.pcp == 1 and case.query_heads >= 32),
        lambda case: f"tp {case.query_heads * case.layout.tp // 16} leaves 16",
    ),
    Refusal(
        "sparse-context-padding",
        "parallel.dcp",
        ENGINE,
        "FLASHMLA_SPARSE with `dcp` above 1 where own and gathered heads of a rank pad to different widths (64, 128)",
        "own and gathered heads of a rank pad to different widths",
        "a narrower dcp keeps them equal",
        _FLASHMLA_SPARSE,
        lambda case: _flashmla(
            case,
            lambda case: padded_heads(case.query_heads) != padded_heads(gathered_heads(case.layout, case.query_heads)),
        ),
    ),
)
