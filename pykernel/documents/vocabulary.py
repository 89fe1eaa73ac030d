"""The closed sets of words that documents may use, and the facts tied to a word.

They are one table because several kinds share them, and because adding a word is a deliberate change of the formats
(inference-sim/blis-schemas v0.2.2), unlike the lists of an engine release, which are data of its rules pack.
"""

from __future__ import annotations

from dataclasses import dataclass

COEFFICIENT_UNITS = (
    "dimensionless",
    "us_per_layer",
    "us_per_request",
    "us_per_step",
    "us_per_hop",
    "us_per_transfer",
    "us_per_load",
    "us_per_token",
    "bytes_per_us",
    "bytes_per_rank",
    "tokens",
    "sm_count",
)


@dataclass(frozen=True)
class Method:
    """How a coefficient was obtained: whether that is evidence, and which companions the entry must have."""

    evidence: bool
    rationale: bool = False
    sources: bool = False
    copied_from: bool = False


METHODS = {
    "measured": Method(evidence=True),
    "literature": Method(evidence=True, rationale=True, sources=True),
    "vendor_spec": Method(evidence=True, rationale=True, sources=True),
    "copied": Method(evidence=False, rationale=True, copied_from=True),
    "assumed": Method(evidence=False, rationale=True),
    "not_charged": Method(evidence=False, rationale=True),
}

SOURCE_KINDS = ("discussion", "publication", "datasheet", "model", "vendor_doc")
SOURCE_ROLES = ("primary", "supporting", "upper_bound")
PROVENANCES = ("vendor_spec", "derived")

DTYPE_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5,
    "mxfp4": 0.5,
    "int4": 0.5,
}
"""Payload bytes of one element, scales not counted."""

DTYPES = tuple(DTYPE_BYTES)

COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "All2All")
OPS = ("GEMM", "GroupedGEMM", "Attention", "RecurrentUpdate", "Elementwise", *COLLECTIVES)
ATTENTION_KINDS = ("gqa", "mla", "sparse_mla", "swa")
LATENT_KINDS = ("mla", "sparse_mla")
RECURRENT_KINDS = ("mamba2", "kda", "gdn")
EMITS = ("tensor_parallel", "expert_parallel", "tensor_parallel_unless_sp_moe")
MODALITIES = ("text_only", "text_decoder_of_multimodal")

CACHE_CLASSES = ("growing", "ring", "fixed")
CACHE_SHARDS = ("tp", "dcp")
CACHE_OWNERS = ("target", "draft")

POOL_ROLES = ("colocated", "prefill", "decode")
TRACE_MODES = ("real", "generated", "replayed")
TIME_UNITS = ("ns", "nanoseconds", "us", "microseconds", "ms", "milliseconds", "s", "seconds")

RESERVED_SET = "pykernel"
"""What the kernel's own assumptions name as their coefficient set; no set of a registry may be called so."""
