"""Tables of measured kernels that were never measured: shapes on a grid, and the times that a law gives for them.

A table is written twice. The first has no times worth anything, and the fit's own reading of it turns shapes into the
columns of its law; the law's times at known coefficients then replace them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from pykernel.fit.families import Target, targets
from pykernel.fit.forms import Array
from pykernel.fit.tables import Tables, chip_of

PART = "h100_sxm"
Values = dict[str, list[object]]


@dataclass(frozen=True)
class Shapes:
    """Where a table goes, what is the same in all of its rows, and the values that its rows combine."""

    family: str
    engine: str
    operation: str
    same: dict[str, object] = field(default_factory=dict)
    grid: dict[str, list[int]] = field(default_factory=dict)

    def columns(self) -> Values:
        rows = list(itertools.product(*self.grid.values()))
        values: Values = {name: [row[i] for row in rows] for i, name in enumerate(self.grid)}
        return values | {name: [value] * len(rows) for name, value in self.same.items()}

    def write(self, root: Path, milliseconds: Array | float, version: str = "0.24.0") -> Path:
        values = self.columns()
        rows = len(next(iter(values.values())))
        values["latency"] = list(np.broadcast_to(milliseconds, rows))
        folder = root / PART / self.family / self.engine / version
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.operation}_perf.parquet"
        pyarrow.parquet.write_table(pyarrow.table(values), path)
        return path


MATRICES = {"m": [1, 8, 64, 512, 4096], "n": [512, 2048, 8192, 28672], "k": [512, 1024, 4096, 7168, 16384]}
HEADS = {"num_heads": [8, 32, 64], "num_key_value_heads": [1, 4, 8], "head_dim": [64, 128], "window_size": [0]}
BATCHES = {"batch_size": [1, 4, 16, 64, 256]}
CONTEXTS = {"step": [63, 511, 2047, 8191, 32767]}
PROMPTS = {"isl": [16, 128, 512, 2048, 8192]}
RANKS = {"num_gpus": [2, 4, 8], "message_size": [2**power for power in range(6, 29)]}
STATES = {"num_v_heads": [16, 32], "num_k_heads": [16], "d_model": [4096], "head_k_dim": [128], "head_v_dim": [128]}
QUERIES = {"batch_size": [1, 2, 8, 32], "isl": [1, 64, 1024], "step": [0, 1024, 8192, 65536]}
EXPERTS = {
    "num_tokens": [1, 4, 16, 64, 256, 1024, 4096],
    "hidden_size": [2880, 7168],
    "inter_size": [1024, 4096],
    "topk": [4, 8],
    "num_experts": [128, 256],
}
SLICED = {"moe_tp_size": [1, 2, 4], "moe_ep_size": [1]}
DEALT = {"moe_tp_size": [1], "moe_ep_size": [2, 4, 8]}
ROUTED = {"moe_dtype": "bfloat16", "distribution": "balanced"}
KERNEL = {"kernel_source": "flash_attention"}
SPARSE = {"num_heads": [16, 128], **QUERIES}


def _recurrent(phase: str, source: str, lengths: list[int]) -> Shapes:
    same = {"phase": phase, "kernel_source": source}
    return Shapes("linear_attention", "vllm", "gdn", same, {**BATCHES, "seq_len": lengths, **STATES})


SHAPES = {
    "gemm_bf16": Shapes("gemm", "vllm", "gemm", {"gemm_dtype": "bfloat16"}, MATRICES),
    "decode_bf16": Shapes(
        "attention",
        "vllm",
        "generation_attention",
        {"kv_cache_dtype": "bfloat16", **KERNEL},
        {**BATCHES, **CONTEXTS, **HEADS},
    ),
    "prefill_bf16": Shapes(
        "attention",
        "vllm",
        "context_attention",
        {"kv_cache_dtype": "bfloat16", **KERNEL},
        {"batch_size": [1, 4, 16], **PROMPTS, **HEADS},
    ),
    "latent_decode_bf16": Shapes(
        "mla",
        "trtllm",
        "generation_mla",
        {"kv_cache_dtype": "bfloat16"},
        {**BATCHES, **CONTEXTS, "num_heads": [16, 64, 128]},
    ),
    "latent_prefill_bf16": Shapes(
        "mla",
        "trtllm",
        "context_mla",
        {"kv_cache_dtype": "bfloat16"},
        {"batch_size": [1, 2, 4, 8], **PROMPTS, "num_heads": [16, 64, 128]},
    ),
    "sparse_fp8": Shapes("sparse_attention", "sglang", "glm5_dsa_attn_module", {}, SPARSE),
    "sliced_experts_bf16": Shapes("moe", "vllm", "moe", ROUTED, {**EXPERTS, **SLICED}),
    "dealt_experts_bf16": Shapes("moe", "vllm", "moe", ROUTED, {**EXPERTS, **DEALT}),
    "all_reduce_nccl": Shapes("comm", "nccl", "nccl", {"op_name": "all_reduce", "nccl_dtype": "half"}, RANKS),
    "all_reduce_graph": Shapes("comm", "vllm", "custom_allreduce", {"backend": "vllm_graph"}, RANKS),
}
"""A table for each primitive that one table measures, by the law's name."""


def target(name: str) -> Target:
    return next(one for one in targets() if one.name == name)


def truth(one: Target) -> Array:
    """Coefficients unlike the fit's first guess, within their bounds; exponents are whole sixteenths."""
    values = np.array([np.clip(1.6 * p.start, 1.1 * p.low, 0.8 * p.high) for p in one.form.parameters])
    if one.form.exponent:
        at = one.form.names.index(one.form.exponent)
        values[at] = round(values[at] * 16) / 16
    return values


def write_by_law(root: Path, name: str) -> Path:
    """The table of a law, with its own times at `truth`."""
    one, shapes = target(name), SHAPES[name]
    shapes.write(root, 1.0)
    read = one.sample(Tables(root, "synthetic"), PART)
    assert read is not None
    seconds = one.form.seconds(truth(one), read.columns, one.part(chip_of(PART)))
    return shapes.write(root, seconds * 1e3)
