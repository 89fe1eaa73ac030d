"""Number formats: what the weights are served in, how wide a cache entry is, and which sparse layout it gets.

The block size and the interleave of decode-context parallelism are here as well, because the first follows from the
cache's layout and the second from the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pykernel.documents import Chip, Inputs
from pykernel.errors import RefusedError

from .exact import TERA, exact
from .layout import Layout
from .plan import AttentionShape, KindPlan
from .settings import Settings

WIDTHS = {
    "fp32": Fraction(4),
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "fp8": Fraction(1),
    "int8": Fraction(1),
    "nvfp4": Fraction(1, 2),
    "mxfp4": Fraction(1, 2),
    "int4": Fraction(1, 2),
}

SERVED = {
    **dict.fromkeys(("fp8", "ptpc_fp8", "fbgemm_fp8", "modelopt"), "fp8"),
    **dict.fromkeys(("modelopt_fp4", "nvfp4"), "nvfp4"),
    "mxfp4": "mxfp4",
    **dict.fromkeys(("", "compressed-tensors", "bitsandbytes"), "as stored"),
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin"), "as stored"),
}

# Which of the chip's peaks a served format runs at, first one that the chip has; int8 has no second choice.
PEAKS = {
    "fp8": ("fp8", "bf16"),
    "nvfp4": ("nvfp4", "fp8", "bf16"),
    "mxfp4": ("nvfp4", "fp8", "bf16"),
    "int8": ("fp8",),
}

LATENT = ("mla", "sparse_mla")

# Bytes of an element; nvfp4 has a scale byte for each 16.
CACHE_WIDTHS = {
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"), Fraction(1)),
    **dict.fromkeys(("bfloat16", "float16"), Fraction(2)),
    **dict.fromkeys(("nvfp4", "nvfp4_4over6"), Fraction(9, 16)),
    "nvfp4_ds_mla": Fraction(1, 2),
}
PACKED_CELLS = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}

PRE_HOPPER = ("a100-80", "a100-sxm", "l40s")


def served_format(inputs: Inputs) -> str:
    """The format the weights are served in. Raises RefusedError for a quantization that is not known."""
    name = inputs.deployment.pools[inputs.pool].engine.quantization
    if name not in SERVED:
        raise RefusedError(f"unknown quantization {name!r}", "engine.quantization")
    return inputs.model.global_.weight_dtype if SERVED[name] == "as stored" else SERVED[name]


def peak_of(served: str, chip: Chip) -> tuple[str, Fraction]:
    """Coefficient suffix and FLOP/s of a served format. Raises RefusedError where the chip has none."""
    peaks = {"bf16": chip.tflops_peak, "fp8": chip.tflops_fp8, "nvfp4": chip.tflops_nvfp4}
    choices = PEAKS.get(served, ("bf16",))
    suffix = next((choice for choice in choices if peaks[choice] > 0), choices[-1])
    if peaks[suffix] <= 0:
        raise RefusedError(f"{chip.name} has no peak for {served}", "quantization")
    return suffix, exact(peaks[suffix]) * TERA


def is_sm100(chip: Chip) -> bool:
    """Whether the chip computes 4-bit floats natively, as data-center Blackwell does."""
    return chip.tflops_nvfp4 > 0


@dataclass(frozen=True)
class CacheFormat:
    """How a cached token is stored: `latent_cell` replaces the formula where the layout is packed."""

    element_bytes: Fraction
    latent_cell: int
    last_declared: AttentionShape | None
    heads_divided_by: int
    block_size: int

    def bytes_per_token(self, own: AttentionShape, per_kind: bool) -> Fraction:
        """Bytes of one token in one layer on one rank."""
        shape = own if per_kind or self.last_declared is None else self.last_declared
        if self.latent_cell and shape.kind in LATENT:
            return Fraction(self.latent_cell)
        heads = shape.n_kv if self.heads_divided_by <= 1 else max(1, shape.n_kv // self.heads_divided_by)
        return (1 if shape.kind in LATENT else 2) * heads * shape.d_h * self.element_bytes


def cache_format_of(
    inputs: Inputs, layout: Layout, served: str, declared: list[KindPlan], settings: Settings
) -> CacheFormat:
    """The cache of the pool that is priced. Raises RefusedError where the engine would not start or store it.

    Parameters: `declared`, the layer kinds in declaration order, each with its number of appearances in the stack.
    """
    engine = inputs.deployment.pools[inputs.pool].engine
    holders = [kind for kind in declared if kind.primary is not None and (kind.count or not settings.kv_per_kind)]
    model = holders[-1].primary if holders else None
    kind = model.kind if model else ""
    dtype = engine.cache_dtype or "auto"
    _check_cache_dtype(dtype, kind)
    dsa = model is not None and model.kind == "sparse_mla" and model.d_h == 576
    stored = dtype
    if dsa:
        sparse = [k.primary.n_q for k in declared if k.count and k.primary and k.primary.kind == "sparse_mla"]
        heads, combine = max(sparse, default=0) // layout.tp, engine.dcp_comm_backend or "ag_rs"
        stored = sparse_layout(dtype, heads, inputs.chip, layout, combine)
    width = CACHE_WIDTHS.get(dtype) or max(WIDTHS[served], Fraction(2))
    block = engine.block_size or _unstated_block(dsa, holders, dtype, inputs.chip, settings)
    if dsa and block % 64:
        raise RefusedError("the sparse latent cache needs blocks of a multiple of 64", "engine.block_size")
    cell = PACKED_CELLS.get(stored, 0) if kind in LATENT else 0
    return CacheFormat(width, cell, model, layout.tp, block)


def _check_cache_dtype(dtype: str, kind: str) -> None:
    packed = dtype.endswith("_ds_mla")
    if dtype != "auto" and dtype not in CACHE_WIDTHS:
        raise RefusedError(f"cache type {dtype!r} is not stored", "engine.cache_dtype")
    if packed and kind != "sparse_mla":
        raise RefusedError(f"{dtype} needs sparse latent attention, found {kind!r}", "engine.cache_dtype")
    if dtype.startswith("nvfp4") and not packed and kind in LATENT:
        raise RefusedError(f"{dtype} does not store a latent cache", "engine.cache_dtype")


def sparse_layout(dtype: str, heads: int, chip: Chip, layout: Layout, combine: str) -> str:
    """The layout that the first sparse latent backend which takes the cache allocates. Raises RefusedError."""
    if chip.name.lower() in PRE_HOPPER:
        raise RefusedError("sparse latent attention does not run before Hopper", "cluster.hardware")
    sm100 = is_sm100(chip)
    quantized = dtype.startswith(("fp8", "nvfp4"))
    dcp, pcp = layout.dcp > 1, layout.pcp > 1
    flashmla = ("auto", "bfloat16", "fp8_ds_mla", "fp8") + (("nvfp4_ds_mla",) if sm100 else ())
    flashinfer = dtype in ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3") and not (pcp and dcp)
    takes = {
        "flash_attn": dtype in ("auto", "float16", "bfloat16") and not dcp,
        "flashmla": dtype in flashmla,
        "flashinfer": flashinfer,
        "flashinfer_sm90": dtype in ("auto", "bfloat16", "fp8", "fp8_e4m3") and not dcp,
    }
    if not sm100:
        order = ["flash_attn", "flashmla", "flashinfer_sm90"]
    elif quantized or heads <= 16:
        order = ["flashinfer", "flashmla"]
    else:
        order = ["flashmla", "flashinfer"]
    chosen = next((backend for backend in order if takes[backend]), None)
    if chosen is None:
        raise RefusedError(f"no sparse latent backend stores {dtype} at dcp {layout.dcp}", "engine.cache_dtype")
    if chosen != "flashmla":
        return dtype
    stored = "fp8_ds_mla" if quantized and dtype != "nvfp4_ds_mla" else dtype
    if dcp:
        _check_flashmla_dcp(quantized, combine, stored, heads, layout)
    return stored


def _check_flashmla_dcp(quantized: bool, combine: str, stored: str, heads: int, layout: Layout) -> None:
    def padded(count: int) -> int:
        return 64 if count <= 64 else 128

    under_pcp = heads * layout.tp if layout.dcp > layout.pcp else heads
    gathered = under_pcp if layout.pcp > 1 else heads * layout.dcp
    reasons = {
        "the cache is not quantized": not quantized,
        "the combine is not ag_rs": combine != "ag_rs",
        "the layout is not fp8_ds_mla under pcp": layout.pcp > 1 and stored != "fp8_ds_mla",
        "a rank has 32 heads or more": layout.pcp <= 1 and heads >= 32,
        "own and gathered heads pad differently": padded(heads) != padded(gathered),
    }
    for reason, holds in reasons.items():
        if holds:
            raise RefusedError(f"sparse FlashMLA under dcp: {reason}", "parallel.dcp")


def _unstated_block(dsa: bool, holders: list[KindPlan], dtype: str, chip: Chip, settings: Settings) -> int:
    """Tokens of a cache block when none is stated: vllm v0.31.0 picks the smallest its backend takes, from 16."""
    if dsa:
        return 64
    model = holders[-1].primary if holders else None
    if not settings.engine_defaults or model is None or model.kind not in LATENT:
        return 16
    if model.kind == "sparse_mla":
        compressed = any(kind.primary is not None and kind.primary.compress_ratio > 1 for kind in holders)
        return 256 if compressed else 64
    if is_sm100(chip):
        return 32
    return 64 if dtype.startswith("fp8") and chip.name.lower() not in PRE_HOPPER else 16


def interleave_of(inputs: Inputs, layout: Layout, block: int) -> int:
    """Consecutive tokens that a decode-context rank stores. Raises RefusedError where they do not fit the block."""
    if layout.dcp <= 1:
        return 1
    deployment = inputs.deployment
    stated = deployment.pools[inputs.pool].engine.cp_kv_cache_interleave_size
    connectors = {part.connector for part in (deployment.pd_transfer, deployment.offload) if part is not None}
    if stated > 0:
        if block % stated and ("MultiConnector" in connectors or "NixlConnector" not in connectors):
            raise RefusedError(f"{stated} does not divide the block of {block}", "engine.cp_kv_cache_interleave_size")
        return stated
    if "MultiConnector" in connectors:
        raise RefusedError("under MultiConnector it must be stated", "engine.cp_kv_cache_interleave_size")
    return block if "NixlConnector" in connectors and block > 1 else 1
