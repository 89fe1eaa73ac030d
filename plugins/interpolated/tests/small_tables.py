"""Small tables of measurements, made from formulas, in the layout that the plug-in reads."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

Row = dict[str, Any]
PARTS = ("h100_sxm", "h200_sxm")
HBM, FLOPS, LINK = 3e12, 5e14, 3e11


def write(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def milliseconds(flops: float, moved: float, launch: float = 4e-6) -> float:
    return (launch + max(flops / FLOPS, moved / HBM)) * 1e3


def gemm() -> Iterator[Row]:
    for word, size in (("bfloat16", 2), ("fp8", 1)):
        for m, n, k in product((1, 16, 256, 4096), (64, 1024, 16384, 65536), (64, 1024, 16384, 65536)):
            yield {"gemm_dtype": word, "m": m, "n": n, "k": k, "latency": milliseconds(2 * m * n * k, n * k * size)}


def decodes() -> Iterator[Row]:
    shapes = product(("bfloat16", "fp8"), ((32, 4), (32, 8), (16, 1), (64, 8)), (64, 128))
    for (word, (heads, kv), width), rows, step in product(shapes, (1, 16, 256), (0, 127, 4095, 131071)):
        moved = rows * (step + 1) * 4 * kv * width
        yield {
            "kv_cache_dtype": word, "num_heads": heads, "num_key_value_heads": kv, "head_dim": width,
            "batch_size": rows, "step": step, "window_size": 0, "latency": milliseconds(0, moved),
        }  # fmt: skip


def prefills() -> Iterator[Row]:
    shapes = product(("bfloat16", "fp8"), ((32, 4), (32, 8), (16, 1), (64, 8)), (64, 128))
    for (word, (heads, kv), width), rows, length in product(shapes, (1, 8), (16, 1024, 16384)):
        flops = 2 * rows * length * length * heads * width
        yield {
            "kv_cache_dtype": word, "num_heads": heads, "num_key_value_heads": kv, "head_dim": width,
            "batch_size": rows, "isl": length, "window_size": 0, "latency": milliseconds(flops, 0),
        }  # fmt: skip


def latent_decodes() -> Iterator[Row]:
    for word, heads, rows, step in product(("bfloat16", "fp8"), (16, 128), (1, 16, 256), (0, 4095, 131071)):
        yield {
            "kv_cache_dtype": word, "num_heads": heads, "batch_size": rows, "step": step,
            "latency": milliseconds(2 * rows * step * heads * 1088, rows * (step + 1) * 576),
        }  # fmt: skip


def latent_prefills() -> Iterator[Row]:
    for word, heads, rows, length in product(("bfloat16", "fp8"), (16, 128), (1, 8), (16, 1024, 16384)):
        yield {
            "kv_cache_dtype": word, "num_heads": heads, "batch_size": rows, "isl": length,
            "latency": milliseconds(2 * rows * length * length * heads * 160, 0),
        }  # fmt: skip


def experts() -> Iterator[Row]:
    shapes = (
        (7168, 2048, 8, 256, 8, 1),
        (3072, 1536, 8, 256, 1, 16),
        (2880, 2880, 4, 128, 2, 1),
        (2688, 1856, 6, 128, 2, 1),
    )
    for word, size in (("bfloat16", 2), ("fp8_block", 1), ("w4a16_mxfp4", 0.5)):
        for (hidden, width, top_k, count, tp, ep), tokens in product(shapes, (1, 16, 256, 4096, 16384)):
            rows, weight = tokens * top_k / ep, 3 * hidden * width / tp
            moved = min(rows, count / ep) * weight * size
            yield {
                "moe_dtype": word, "distribution": "balanced", "num_tokens": tokens, "hidden_size": hidden,
                "inter_size": width, "topk": top_k, "num_experts": count, "moe_tp_size": tp, "moe_ep_size": ep,
                "latency": milliseconds(2 * rows * weight, moved),
            }  # fmt: skip


def collectives() -> Iterator[Row]:
    operations = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
    for name, ranks, size in product(operations, (2, 8), (128, 65536, 2**27)):
        yield {
            "op_name": name, "nccl_dtype": "half", "num_gpus": ranks, "message_size": size,
            "latency": (1e-5 + 2 * size / LINK) * 1e3,
        }  # fmt: skip


def reductions() -> Iterator[Row]:
    for ranks, size in product((2, 8), (128, 65536, 2**27)):
        yield {
            "backend": "vllm_graph",
            "num_gpus": ranks,
            "message_size": size,
            "latency": (5e-6 + 4 * size / LINK) * 1e3,
        }


def mixers() -> Iterator[Row]:
    kernels = {"generation": "packed_decode", "context": "chunk_gated"}
    for (phase, update), kernel, rows in product(kernels.items(), ("update", "conv"), (1, 16, 256)):
        for length in (1,) if phase == "generation" else (16, 1024, 16384):
            yield {
                "phase": phase, "kernel_source": update if kernel == "update" else "causal_conv1d", "batch_size": rows,
                "seq_len": length, "num_v_heads": 32, "num_k_heads": 16, "d_model": 4096, "head_k_dim": 128,
                "head_v_dim": 128, "latency": milliseconds(0, rows * (4 + length / 64) * 32 * 128 * 128),
            }  # fmt: skip


TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "gemm/vllm/0.24.0/gemm": gemm,
    "attention/vllm/0.24.0/generation_attention": decodes,
    "attention/vllm/0.24.0/context_attention": prefills,
    "mla/trtllm/1.3.0/generation_mla": latent_decodes,
    "mla/trtllm/1.3.0/context_mla": latent_prefills,
    "moe/vllm/0.24.0/moe": experts,
    "comm/nccl/2.29.2/nccl": collectives,
    "comm/vllm/0.24.0/custom_allreduce": reductions,
    "linear_attention/vllm/0.24.0/gdn": mixers,
}
