"""What is fitted: each primitive in each number format, the table it is measured in, and that table's columns as the
columns of a law.

Sources are chosen for being clean. GEMMs, attention, experts and the all-reduce of graphs come from vLLM; block-scaled
FP8 GEMMs from SGLang, because vLLM's table of them carries the host's launch; experts in MXFP4 with FP8 activations
from SGLang too, which runs the same FlashInfer kernel and measured it in more shapes, gpt-oss's among them; bare latent
kernels from TensorRT-LLM, because vLLM's are modules with projections that a graph prices as GEMMs; indexers and sparse
latent kernels from SGLang, which has them bare. SGLang's tables also stand in for experts and recurrent updates that
vLLM's lack, as on A100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pykernel.documents import Chip
from pykernel.fit.forms import (
    BRIDGED,
    COLLECTIVE,
    DECODE,
    EXPERTS,
    GEMM,
    PREFILL,
    RECURRENT,
    STREAM,
    Array,
    Columns,
    Form,
    Part,
)
from pykernel.fit.robust import Sample
from pykernel.fit.tables import Table, Tables, dominant_kernel, kernel_of, read, select
from pykernel.measured.laws import DEALT, EXPERT_PRIMITIVES, PCIE_GBPS, experts_primitive

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 9 / 16, "mxfp4": 17 / 32, "int4": 17 / 32}
"""Bytes that one weight takes in memory, its share of the scales included: 16 weights share a byte in NVFP4, 32 in
MXFP4 and in the int4 checkpoints (group size 32)."""

LATENT_WIDTH, LATENT_RANK, LATENT_HEAD, LATENT_ROPE = 576, 512, 128, 64
"""Latent attention of the DeepSeek-V3 family, the one that was measured (config.json of deepseek-ai/DeepSeek-V3)."""
INDEX_WIDTH, INDEX_HEADS, INDEX_BYTES = 128, 32, 132
"""The indexer of DeepSeek-V3.2 and GLM-5: one key a token, 128 FP8 elements and a 4-byte scale."""


CACHES = {"l40s": (96e6, 3.2e12)}
"""Bytes and bytes/s of the L2 where it shows in the tables: 96 MB (NVIDIA L40S datasheet), nearly four times as fast as
the memory by the slope of its own decode table between 33 and 67 MB. On parts with HBM the term earns nothing on the
half that is not fitted. Latent kernels before Hopper walk a context on one SM, far below either rate."""
FLASH_ATTENTION_2 = {"vllm_flash_attn", "vllm_flash_attn_fa2"}
"""Its names in the tables. With a window it runs each query head for itself instead of a group together."""


@dataclass(frozen=True, slots=True)
class Target:
    """One law to fit: its set, the coefficients' prefix and suffix, its form, the part's peak, and its sample.

    `peak` names the number format whose peak the law's arithmetic is measured against. A sample of fewer than `least`
    launches is not fitted.
    """

    set: str
    primitive: str
    suffix: str
    form: Form
    peak: str
    sample: Callable[[Tables, str], Sample | None]
    group: str = ""
    least: int = 60

    @property
    def name(self) -> str:
        return f"{self.primitive}_{self.suffix}"

    def on(self, chip: Chip) -> Target:
        """The target with the form that a part's links call for."""
        bridged = self.form is COLLECTIVE and chip.intra_node_bw_gbps <= PCIE_GBPS
        return replace(self, form=BRIDGED) if bridged else self

    def part(self, chip: Chip) -> Part:
        peak = peak_flops(chip, self.peak)
        if self.form in (COLLECTIVE, BRIDGED):
            return Part(peak, chip.intra_node_bw_gbps * 1e9, chip.sm_count)
        cache = (0.0, 0.0) if self.form is STREAM else CACHES.get(chip.name, (0.0, 0.0))
        return Part(peak, chip.bw_peak_tbs * 1e12, chip.sm_count, *cache)


def peak_flops(chip: Chip, number_format: str) -> float:
    """FLOP/s of the format, 0 where the part has no such arithmetic."""
    tera = {
        "bf16": chip.tflops_peak,
        "fp8": chip.tflops_fp8,
        "fp8_block": chip.tflops_fp8,
        "nvfp4": chip.tflops_nvfp4,
        "int4": chip.tflops_peak,
        # Blackwell multiplies MXFP4 weights by FP8 activations, other parts widen them to 16 bits.
        "mxfp4": chip.tflops_fp8 if chip.tflops_nvfp4 > 0 else chip.tflops_peak,
    }
    return tera[number_format] * 1e12


def targets() -> Iterator[Target]:
    """Everything that is fitted, in the order of the sets' files."""
    for suffix, engine, word in (
        ("bf16", "vllm", "bfloat16"),
        ("fp8", "vllm", "fp8"),
        ("fp8_block", "sglang", "fp8_block"),
        ("nvfp4", "vllm", "nvfp4"),
    ):
        yield Target("calibrated-gemm", "gemm", suffix, GEMM, suffix, _gemm(engine, word, suffix), f"GEMM {suffix}")
    for suffix, word in (("bf16", "bfloat16"), ("fp8", "fp8")):
        set_ = "calibrated-attention"
        yield Target(set_, "decode", suffix, DECODE, "bf16", _decode(word), "decode attention")
        yield Target(set_, "prefill", suffix, PREFILL, "bf16", _prefill(word), "prefill attention")
        yield Target(set_, "latent_decode", suffix, STREAM, "bf16", _latent_decode(word), "latent decode")
        yield Target(set_, "latent_prefill", suffix, PREFILL, "bf16", _latent_prefill(word), "latent prefill")
    yield Target("calibrated-attention", "sparse", "fp8", STREAM, "bf16", _sparse, "sparse latent")
    yield Target("calibrated-attention", "indexer", "fp8", STREAM, "fp8", _indexer, "indexer")
    for suffix in EXPERT_FORMATS:
        for primitive in EXPERT_PRIMITIVES:
            sample = expert_sampler(suffix, "balanced", primitive)
            yield Target("calibrated-experts", primitive, suffix, EXPERTS, suffix, sample, "experts")
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        nccl = _nccl(operation)
        yield Target("calibrated-collectives", operation, "nccl", COLLECTIVE, "bf16", nccl, f"NCCL {operation}", 20)
    for mode, group in (("graph", "all-reduce"), ("eager", "all-reduce eager")):
        yield Target("calibrated-collectives", "all_reduce", mode, COLLECTIVE, "bf16", _custom(mode), group, 20)
    for kind, family in (("gdn", "linear_attention"), ("kda", "kda")):
        for phase, word in (("decode", "generation"), ("prefill", "context")):
            sample = _recurrent(family, kind, word)
            yield Target(
                "calibrated-recurrent", f"{kind}_{phase}", "bf16", RECURRENT, "bf16", sample, f"{kind} {phase}", 30
            )


# ---- one sample a family ---------------------------------------------------------------------------------------


def _sample(columns: Columns, table: Table, source: str) -> Sample | None:
    seconds = table["latency"].astype(float) * 1e-3
    if not len(seconds):
        return None
    return Sample(
        {name: np.broadcast_to(np.asarray(c, float), seconds.shape) for name, c in columns.items()}, seconds, source
    )


def _load(
    tables: Tables,
    part: str,
    family: str,
    engine: str,
    operation: str,
    before: tuple[int, ...] = (),
    **wanted: str,
) -> tuple[Table, str] | None:
    path = tables.latest(part, family, engine, operation, before)
    if path is None:
        return None
    table = select(read(path), **wanted)
    return table if tables.every_kernel else dominant_kernel(table), tables.cite(path)


def _floats(table: Table, *names: str) -> list[Array]:
    return [table[name].astype(float) for name in names]


def _gemm(engine: str, word: str, suffix: str) -> Callable[[Tables, str], Sample | None]:
    def sample(tables: Tables, part: str) -> Sample | None:
        loaded = _load(tables, part, "gemm", engine, "gemm", gemm_dtype=word)
        if loaded is None:
            return None
        table, source = loaded
        m, n, k = _floats(table, "m", "n", "k")
        return _sample({"m": m, "n": n, "k": k, "weight_bytes": np.asarray(WEIGHT_BYTES[suffix])}, table, source)

    return sample


def _heads(table: Table) -> tuple[Array, Array, Array, Array]:
    heads, kv_heads, width = _floats(table, "num_heads", "num_key_value_heads", "head_dim")
    window = table["window_size"].astype(float) if "window_size" in table else np.zeros_like(heads)
    return heads, np.where(kv_heads > 0, kv_heads, heads), width, window


def _decode(word: str) -> Callable[[Tables, str], Sample | None]:
    def sample(tables: Tables, part: str) -> Sample | None:
        loaded = _load(tables, part, "attention", "vllm", "generation_attention", kv_cache_dtype=word)
        if loaded is None:
            return None
        table, source = loaded
        heads, kv_heads, width, window = _heads(table)
        rows, context = _floats(table, "batch_size", "step")
        context = context + 1
        context = np.where(window > 0, np.minimum(context, window), context)
        alone = (window > 0) & (kernel_of(table) in FLASH_ATTENTION_2)
        element = 1.0 if word == "fp8" else 2.0
        columns = {
            "rows": rows,
            "tokens": rows * context,
            "kv_heads": kv_heads,
            "streams": np.where(alone, heads, kv_heads),
            "head_dim": width,
            "regroups": (rows > 1) & (kv_heads > 1) & (heads > kv_heads) & ~alone,
            "bytes_per_token": 2 * kv_heads * width * element,
            "flops_per_token": 4 * heads * width,
        }
        return _sample(columns, table, source)

    return sample


def _prefill(word: str) -> Callable[[Tables, str], Sample | None]:
    def sample(tables: Tables, part: str) -> Sample | None:
        loaded = _load(tables, part, "attention", "vllm", "context_attention", kv_cache_dtype=word)
        if loaded is None:
            return None
        table, source = loaded
        heads, kv_heads, width, window = _heads(table)
        requests, length = _floats(table, "batch_size", "isl")
        window = np.where(window > 0, np.minimum(window, length), length)
        tokens = requests * length
        columns = {
            "requests": requests,
            "tokens": tokens,
            "pairs": requests * (window * window / 2 + (length - window) * window),
            "heads": heads,
            "head_dim": width,
            "flops_per_pair": 4 * heads * width,
            "query_bytes": 4 * tokens * heads * width,
            "kv_bytes": 4 * tokens * kv_heads * width,
        }
        return _sample(columns, table, source)

    return sample


def _latent_decode(word: str) -> Callable[[Tables, str], Sample | None]:
    def sample(tables: Tables, part: str) -> Sample | None:
        loaded = _load(tables, part, "mla", "trtllm", "generation_mla", kv_cache_dtype=word)
        if loaded is None:
            return None
        table, source = loaded
        rows, context, heads = _floats(table, "batch_size", "step", "num_heads")
        columns = {
            "rows": rows,
            "tokens": rows * (context + 1),
            "kv_heads": np.asarray(1.0),
            "streams": np.asarray(1.0),
            "bytes_per_token": np.asarray(LATENT_WIDTH * (1.0 if word == "fp8" else 2.0)),
            "flops_per_token": 2 * heads * (LATENT_WIDTH + LATENT_RANK),
        }
        return _sample(columns, table, source)

    return sample


def _latent_prefill(word: str) -> Callable[[Tables, str], Sample | None]:
    def sample(tables: Tables, part: str) -> Sample | None:
        loaded = _load(tables, part, "mla", "trtllm", "context_mla", kv_cache_dtype=word)
        if loaded is None:
            return None
        table, source = loaded
        requests, length, heads = _floats(table, "batch_size", "isl", "num_heads")
        tokens, width = requests * length, (2 * LATENT_HEAD + LATENT_ROPE) / 2
        columns = {
            "requests": requests,
            "tokens": tokens,
            "pairs": tokens * length / 2,
            "heads": heads,
            "head_dim": np.asarray(width),
            "flops_per_pair": 4 * heads * width,
            "query_bytes": 4 * tokens * heads * width,
            "kv_bytes": 4 * tokens * heads * width,
        }
        return _sample(columns, table, source)

    return sample


def _queries(table: Table) -> tuple[Array, Array]:
    """Query rows, and the tokens before and with each of them, on average over its chunk."""
    requests, length, before = _floats(table, "batch_size", "isl", "step")
    return requests * length, before + (length + 1) / 2


def _sparse(tables: Tables, part: str) -> Sample | None:
    loaded = _load(tables, part, "sparse_attention", "sglang", "glm5_dsa_attn_module")
    if loaded is None:
        return None
    table, source = loaded
    rows, context = _queries(table)
    heads, top_k = table["num_heads"].astype(float), 2048.0
    columns = {
        "rows": rows,
        "tokens": rows * np.minimum(context, top_k),
        "kv_heads": np.asarray(1.0),
        "streams": np.asarray(1.0),
        "bytes_per_token": np.asarray(float(LATENT_WIDTH)),
        "flops_per_token": 2 * heads * (LATENT_WIDTH + LATENT_RANK),
    }
    return _sample(columns, table, source)


def _indexer(tables: Tables, part: str) -> Sample | None:
    scored = _load(tables, part, "sparse_attention", "sglang", "glm5_mqa_logits_module")
    chosen = _load(tables, part, "sparse_attention", "sglang", "glm5_topk_module", score_mode="flat")
    if scored is None or chosen is None:
        return None
    table, source = _joined(scored[0], chosen[0], ("batch_size", "isl", "step")), scored[1]
    rows, context = _queries(table)
    columns = {
        "rows": rows,
        "tokens": rows * context,
        "kv_heads": np.asarray(1.0),
        "streams": np.asarray(1.0),
        "bytes_per_token": np.asarray(0.0),
        "flops_per_token": np.asarray(2.0 * INDEX_WIDTH * INDEX_HEADS),
    }
    return _sample(columns, table, source)


def _joined(first: Table, second: Table, keys: tuple[str, ...]) -> Table:
    """The rows of `first` whose keys `second` has too, their latencies added: two launches of one operation."""
    other = {
        key: latency
        for *key_, latency in zip(*(second[k] for k in keys), second["latency"], strict=True)
        for key in [tuple(key_)]
    }
    own = [tuple(key) for key in zip(*(first[k] for k in keys), strict=True)]
    keep = np.array([key in other for key in own], dtype=bool)
    joined = {name: values[keep] for name, values in first.items()}
    joined["latency"] = joined["latency"] + np.array([other[key] for key in own if key in other])
    return joined


EXPERT_FORMATS = {
    "bf16": (("vllm", "bfloat16"), ("sglang", "bfloat16")),
    "fp8": (("vllm", "fp8"),),
    "fp8_block": (("vllm", "fp8_block"),),
    "nvfp4": (("vllm", "nvfp4"),),
    "mxfp4": (("sglang", "w4a8_mxfp4_mxfp8"), ("vllm", "w4a16_mxfp4")),
    "int4": (("vllm", "int4_wo"), ("sglang", "int4_wo")),
}
"""Whose table measures each format and what it is called there, best first. On A100 vLLM's has skewed routing alone;
SGLang runs the same kernels there, Triton's and Marlin."""
SLICED_ALONE = (("sglang", "bfloat16"), ("sglang", "int4_wo"))
"""Tables that say nothing of whole experts: a rank takes as long with an eighth of them as with a half."""


def expert_sampler(suffix: str, distribution: str, primitive: str = "") -> Callable[[Tables, str], Sample | None]:
    """The sample of experts of a format under a distribution of the routing, with the shape of each row beside: those
    of one primitive, or all."""

    def sample(tables: Tables, part: str) -> Sample | None:
        loaded = _routed(tables, part, suffix, distribution, primitive)
        if loaded is None:
            return None
        table, source = loaded
        tokens, hidden, width, top_k, experts, tp, ep = _floats(
            table, "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"
        )
        columns = expert_columns(tokens, hidden, width / tp, top_k, experts, ep, WEIGHT_BYTES[suffix])
        shape = {"hidden": hidden, "top_k": top_k, "experts": experts, "ranks": ep}
        return _sample({**columns, **shape}, table, source)

    return sample


def _routed(tables: Tables, part: str, suffix: str, distribution: str, primitive: str) -> tuple[Table, str] | None:
    """The launches of experts. The kernel that most of them ran is looked for among those of the primitive alone,
    because the engine's choice depends on it."""
    for engine, word in EXPERT_FORMATS[suffix]:
        if primitive == DEALT and (engine, word) in SLICED_ALONE:
            continue
        every = replace(tables, every_kernel=True)
        loaded = _load(every, part, "moe", engine, "moe", moe_dtype=word, distribution=distribution)
        if loaded is None:
            continue
        table, source = loaded
        if primitive:
            own = [experts_primitive(int(ranks)) == primitive for ranks in table["moe_ep_size"]]
            table = {name: values[np.array(own, dtype=bool)] for name, values in table.items()}
        if len(table["latency"]):
            return table if tables.every_kernel else dominant_kernel(table), source
    return None


def expert_columns(
    tokens: Array, hidden: Array, width: Array, top_k: Array, experts: Array, ep: Array, weight_bytes: float
) -> Columns:
    """Columns of the experts' law for evenly routed `tokens`: the rank holds `experts / ep` of them, `width` wide."""
    rows = tokens * top_k / ep
    return {
        "tokens": tokens,
        "rows": rows,
        "active": np.minimum(experts / ep, rows),
        "width": width,
        "flops_per_row": 6 * hidden * width,
        "bytes_per_expert": 3 * hidden * width * weight_bytes,
        "row_bytes": 4 * rows * (hidden + width),
        "slot_bytes": 2 * tokens * top_k * hidden,
    }


VOLUMES: dict[str, float] = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
"""Bytes that cross one rank's link for one byte of the tensor, before the factor (n - 1) / n."""


def _collective_columns(operation: str, table: Table) -> Columns:
    ranks, elements = _floats(table, "num_gpus", "message_size")
    return {"ranks": ranks, "link_bytes": VOLUMES[operation] * (ranks - 1) / ranks * elements * 2}


def _nccl(operation: str) -> Callable[[Tables, str], Sample | None]:
    def sample(tables: Tables, part: str) -> Sample | None:
        loaded = _load(tables, part, "comm", "nccl", "nccl", op_name=operation, nccl_dtype="half")
        return None if loaded is None else _sample(_collective_columns(operation, loaded[0]), *loaded)

    return sample


def _custom(mode: str) -> Callable[[Tables, str], Sample | None]:
    def sample(tables: Tables, part: str) -> Sample | None:
        # The tables of 0.27 mix in a kernel for groups across nodes.
        loaded = _load(tables, part, "comm", "vllm", "custom_allreduce", (0, 25), backend=f"vllm_{mode}")
        return None if loaded is None else _sample(_collective_columns("all_reduce", loaded[0]), *loaded)

    return sample


UPDATES = {"vllm": ("packed_decode", "chunk_gated", "flashkda"), "sglang": ("fused_recurrent_gated_delta_rule",)}
"""Kernels that update a recurrent state; the others of their tables are convolutions and variants not run."""


def _recurrent(family: str, operation: str, phase: str) -> Callable[[Tables, str], Sample | None]:
    def sample(tables: Tables, part: str) -> Sample | None:
        found = ((engine, tables.latest(part, family, engine, operation)) for engine in UPDATES)
        engine, path = next(((engine, path) for engine, path in found if path), ("", None))
        if path is None:
            return None
        table = select(read(path), phase=phase)
        names = table["kernel_source"].astype(str)
        update = np.array([any(word in name for word in UPDATES[engine]) for name in names], dtype=bool)
        convolution = np.array(["conv" in name for name in names], dtype=bool)
        launches = {name: values[update] for name, values in table.items()}
        if not (operation == "kda" and phase == "context"):  # that convolution's table carries the host's launch
            other = {name: values[convolution] for name, values in table.items()}
            launches = _joined(launches, other, ("batch_size", "seq_len", "num_v_heads", "num_k_heads", "d_model"))
        table = launches
        requests, length, heads, key_heads, k, v = _floats(
            table, "batch_size", "seq_len", "num_v_heads", "num_k_heads", "head_k_dim", "head_v_dim"
        )
        columns = {
            "state_bytes": 4 * requests * heads * k * v,
            "token_bytes": 2 * requests * length * (heads * v + 2 * key_heads * k),
            "flops": 8 * requests * length * heads * k * v,
        }
        return _sample(columns, table, tables.cite(path))

    return sample
