"""Which number format each matrix of a deployment is stored and computed in, as serving engines load checkpoints.

The published descriptions give one width for a whole model. Real checkpoints mix: the output projection and the
router stay at 16 bits, 4-bit checkpoints of mixture models leave attention at 16 bits, and FP8 comes with one scale a
tensor or one a block of 128 x 128.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import ModelGraph, Node
from pykernel.resolve.model_facts import ModelFacts
from pykernel.resolve.precision import Precision

STORED_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "int8": 1.0,
    "nvfp4": 9 / 16,
    "mxfp4": 17 / 32,
    "int4": 17 / 32,
}
"""Bytes of one weight with its share of the scales: a byte for 16 weights in NVFP4, for 32 in MXFP4, two bytes for 64
halves in the int4 checkpoints (group size 32)."""

_WEIGHT_ONLY = frozenset({"mxfp4", "int4", "int8"})
_FOUR_BIT = frozenset({"nvfp4", "mxfp4", "int4"})


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one deployment; `blocks` where its FP8 weights carry one scale a block."""

    served: str
    blocks: bool
    experts: bool

    def stored(self, node: Node, in_mixer: bool) -> str:
        """The format a node's weights are stored in; `in_mixer` for the projections around attention."""
        served = node.weight_dtype or self.served
        if not node.weight_dtype and in_mixer and self.experts and served in _FOUR_BIT:
            # nvidia/MiniMax-M2.5-NVFP4, nvidia/Kimi-K2.5-NVFP4 and nvidia/GLM-5-NVFP4 exclude self_attn.
            served = "bf16"
        if served == "fp8" and self.blocks:
            return "fp8_block"
        return "bf16" if served in ("fp16", "fp32") else served

    @staticmethod
    def computed(stored: str) -> str:
        """The format of the GEMM that reads such weights: weight-only formats multiply at 16 bits."""
        return "bf16" if stored in _WEIGHT_ONLY else stored


def formats_of(model: ModelGraph, facts: ModelFacts, precision: Precision) -> Formats:
    """The formats of a deployment. FP8 has one scale a block of 128 x 128 in checkpoints that are published in FP8
    (deepseek-ai/DeepSeek-V3, MiniMaxAI/MiniMax-M2.5) and in those of mixture models (Qwen/Qwen3-235B-A22B-FP8,
    zai-org/GLM-5-FP8); made from a dense 16-bit checkpoint it has one a tensor (nvidia/Llama-3.1-70B-Instruct-FP8)."""
    experts = facts.experts > 0
    return Formats(precision.served, model.global_.weight_dtype == "fp8" or experts, experts)
