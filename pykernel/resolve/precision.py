"""Number formats: what the weights are served in, what the part computes in, what the cache stores."""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Chip, Engine, ModelGraph
from pykernel.errors import RefusedError
from pykernel.resolve.model_facts import LATENT_KINDS, ModelFacts

WEIGHT_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5,
    "mxfp4": 0.5,
    "int4": 0.5,
}
"""Payload bytes of one weight; the scales of the 4-bit formats are memory, not something a step's law reads."""

STORED_BYTES = WEIGHT_BYTES | {
    "nvfp4": 0.5 + 1 / 16,  # one fp8 scale to 16 weights
    "mxfp4": 0.5 + 1 / 32,  # one byte to 32
}
"""Bytes of one weight as memory holds it (vllm/model_executor/layers/quantization at v0.31.0)."""

PACKED_CELL_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes of one token of one layer in the packed latent formats (flashmla_sparse.py at v0.31.0)."""

_SERVED_AS = {
    **dict.fromkeys(("fp8", "ptpc_fp8", "fbgemm_fp8", "modelopt"), "fp8"),
    **dict.fromkeys(("modelopt_fp4", "nvfp4"), "nvfp4"),
    "mxfp4": "mxfp4",
    **dict.fromkeys(
        ("", "bitsandbytes", "awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors"), "checkpoint"
    ),
}

_CACHE_BYTES = {
    "float16": 2.0,
    "bfloat16": 2.0,
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"), 1.0),
    **dict.fromkeys(("nvfp4", "nvfp4_4over6"), 0.5625),  # half a byte, and one scale byte for 16 elements
    "nvfp4_ds_mla": 0.5,
}

_UNSIZED_CACHES = frozenset(
    {
        *("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
        *("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
    }
)

_RECURRENT_CACHES = {"": 2.0, "auto": 2.0, "float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
"""Bytes of one element of recurrent state; `auto` is the 16-bit type that the model computes in."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The formats of one deployment.

    served : format of the weights where a graph node states none of its own.
    suffix : which efficiency coefficients hold (`gemm_eps_max_<suffix>`).
    peak_flops : dense FLOP/s of the part in the format it computes in.
    cache_element_bytes : bytes of one element of the KV cache.
    cache_format : name of the cache format as allocated; empty or `auto` follows the model.
    convolution_bytes : bytes of one element of a recurrent mixer's convolution.
    stated_state_bytes : bytes of one element of its state where the deployment says so, else 0.
    """

    served: str
    suffix: str
    peak_flops: float
    cache_element_bytes: float
    cache_format: str
    convolution_bytes: float = 2.0
    stated_state_bytes: float = 0.0

    def state_bytes(self, stated: str) -> float:
        """Bytes of one element of recurrent state of a node that states the format `stated`, or none."""
        if self.stated_state_bytes:
            return self.stated_state_bytes
        return WEIGHT_BYTES[stated] if stated else self.convolution_bytes

    def stored_bytes(self, stated: str) -> float:
        """Bytes that memory holds for one weight, scales included, of a node that states `stated`, or none."""
        return STORED_BYTES[stated or self.served]

    def weight_bytes(self, stated: str) -> float:
        """Bytes of one weight of a node that states the format `stated`, or none."""
        return WEIGHT_BYTES[stated or self.served]


def resolve_precision(model: ModelGraph, facts: ModelFacts, engine: Engine, chip: Chip) -> Precision:
    """The formats of a deployment. Raises `RefusedError` for one the engine or the laws do not know."""
    served = _served(model, engine)
    suffix, tflops = _compute_format(served, chip)
    if not tflops > 0:
        raise RefusedError(f"the part {chip.name} states no peak for weights served in {served}", "engine.quantization")
    _check_cache_dtype(engine, facts)
    own_state = engine.mamba_ssm_cache_dtype
    return Precision(
        served,
        suffix,
        tflops * 1e12,
        _cache_bytes(engine.cache_dtype, served),
        engine.cache_dtype,
        convolution_bytes=_RECURRENT_CACHES[engine.mamba_cache_dtype],
        stated_state_bytes=_RECURRENT_CACHES[own_state] if own_state not in ("", "auto") else 0.0,
    )


def _served(model: ModelGraph, engine: Engine) -> str:
    served = _SERVED_AS.get(engine.quantization)
    if served is None:
        known = ", ".join(sorted(name for name in _SERVED_AS if name))
        raise RefusedError(
            f"quantization is {engine.quantization!r}, whose weight width is not known; priced are {known}, "
            "or none for the checkpoint's own format",
            "engine.quantization",
        )
    return model.global_.weight_dtype if served == "checkpoint" else served


def _compute_format(served: str, chip: Chip) -> tuple[str, float]:
    """Coefficient suffix and dense TFLOP/s: the widest native format at or above the served one."""
    if served in ("nvfp4", "mxfp4") and chip.tflops_nvfp4 > 0:
        return "nvfp4", chip.tflops_nvfp4
    if served in ("nvfp4", "mxfp4", "fp8") and chip.tflops_fp8 > 0:
        return "fp8", chip.tflops_fp8
    if served == "int8":
        return "fp8", chip.tflops_fp8
    # 16-bit formats, weight-only int4, and whatever the part has no native arithmetic for.
    return "bf16", chip.tflops_peak


def _cache_bytes(cache_dtype: str, served: str) -> float:
    if cache_dtype in ("", "auto"):
        # The cache follows the model's dtype, never a quantized weight format.
        return max(WEIGHT_BYTES[served], 2.0)
    return _CACHE_BYTES[cache_dtype]


def _check_cache_dtype(engine: Engine, facts: ModelFacts) -> None:
    cache = engine.cache_dtype
    kinds = facts.attention_kinds
    packed = cache.endswith("_ds_mla")
    latent = kinds & LATENT_KINDS
    if cache == "fp8_inc":
        why = "no attention backend on an NVIDIA part takes it"
    elif packed and kinds != {"sparse_mla"}:
        why = f"the packed latent format needs sparse latent attention, this model has {_named(kinds)}"
    elif cache.startswith("nvfp4") and not packed and latent:
        why = f"no latent attention backend takes it, and this model has {_named(latent)}"
    elif cache in _UNSIZED_CACHES:
        why = "its page layout is not sized"
    elif cache not in ("", "auto") and cache not in _CACHE_BYTES:
        why = f"it is no cache type of the engine; accepted are auto, {', '.join(sorted(_CACHE_BYTES))}"
    else:
        why = ""
    if why:
        raise RefusedError(f"cache_dtype is {cache!r}: {why}", "engine.cache_dtype")
    for name in ("mamba_cache_dtype", "mamba_ssm_cache_dtype"):
        if getattr(engine, name) not in _RECURRENT_CACHES:
            accepted = ", ".join(known for known in _RECURRENT_CACHES if known)
            raise RefusedError(f"{name} is {getattr(engine, name)!r}, accepted are {accepted}", f"engine.{name}")


def _named(kinds: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(kinds)) or "no attention"
