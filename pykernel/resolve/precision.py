"""Number formats: what the weights are served in, what the part computes in, what the cache stores.

A name that `refusals` turns down resolves to the checkpoint's own format here.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Chip, Engine, ModelGraph

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

SERVED_AS = {
    **dict.fromkeys(("fp8", "ptpc_fp8", "fbgemm_fp8", "modelopt"), "fp8"),
    **dict.fromkeys(("modelopt_fp4", "nvfp4"), "nvfp4"),
    "mxfp4": "mxfp4",
    **dict.fromkeys(
        ("", "bitsandbytes", "awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors"), "checkpoint"
    ),
}

CACHE_BYTES = {
    "float16": 2.0,
    "bfloat16": 2.0,
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"), 1.0),
    **dict.fromkeys(("nvfp4", "nvfp4_4over6"), 0.5625),  # half a byte, and one scale byte for 16 elements
    "nvfp4_ds_mla": 0.5,
}

UNSIZED_CACHES = frozenset(
    {
        *("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
        *("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
    }
)

RECURRENT_CACHES = {"auto": 2.0, "float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
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


def resolve_precision(model: ModelGraph, engine: Engine, chip: Chip) -> Precision:
    """The formats of a deployment; `peak_flops` is 0 for a part that cannot compute in the format served."""
    served = _served(model, engine)
    suffix, tflops = _compute_format(served, chip)
    own_state = engine.mamba_ssm_cache_dtype
    return Precision(
        served,
        suffix,
        tflops * 1e12,
        _cache_bytes(engine.cache_dtype, served),
        engine.cache_dtype,
        convolution_bytes=RECURRENT_CACHES.get(engine.mamba_cache_dtype, 2.0),
        stated_state_bytes=RECURRENT_CACHES.get(own_state, 0.0) if own_state != "auto" else 0.0,
    )


def _served(model: ModelGraph, engine: Engine) -> str:
    served = SERVED_AS.get(engine.quantization, "checkpoint")
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
    """Bytes of one element; `auto` follows the model's dtype, never a quantized weight format."""
    return CACHE_BYTES.get(cache_dtype) or max(WEIGHT_BYTES[served], 2.0)
