"""What a resolved deployment has to disclose: settings filled in, requests overridden, coefficients that are missing.

Three tables, walked once over the finished case. A `Default` is a setting that the deployment leaves open; those that a
price or a size may depend on are recorded in the provenance, the others show in a report only. An `Overriding` is a
request that the engine does not honour. A `Missing` is a coefficient that may be absent, and what then is not priced.
docs/assumptions.md is written from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pykernel.interface import CoefficientOrigin
from pykernel.resolve.case import Case
from pykernel.resolve.engine import (
    DEFAULT_GRAPH_MODE,
    ENGINE_BEHAVIOUR_VERSION,
    GRAPH_MODES,
    dispatch_forbids_graphs,
)
from pykernel.resolve.laws import ATTENTION_KINDS, RECURRENT_KINDS, own_attention_rate
from pykernel.resolve.layout import wants_custom_all_reduce
from pykernel.resolve.memory import DEFAULT_UTILIZATION
from pykernel.resolve.record import KERNEL_ASSUMPTION_SET, Record
from pykernel.resolve.sparse_backend import FLASHINFER_SM90

REFERENCE = "inference-sim/blis-latency-kernel"


@dataclass(frozen=True, slots=True)
class Default:
    """A setting that the engine fills in.

    when : the condition in words, beside that the setting is not stated.
    value_is : the value in words, for the documentation.
    origin : a source file of the engine at v0.31.0 unless it says otherwise.
    open : whether this deployment leaves the setting open, so that the row applies.
    value, reason : what it becomes, and why.
    """

    name: str
    when: str
    value_is: str
    origin: str
    open: Callable[[Case], bool]
    value: Callable[[Case], object]
    reason: Callable[[Case], str]


@dataclass(frozen=True, slots=True)
class Overriding:
    """A request that the engine does not honour; `id` names the row, `field` the setting."""

    id: str
    field: str
    when: str
    origin: str
    applies: Callable[[Case], bool]
    requested: Callable[[Case], object]
    resolved: Callable[[Case], object]
    reason: Callable[[Case], str]


@dataclass(frozen=True, slots=True)
class Missing:
    """An optional coefficient: whether a deployment needs it, and what its absence means."""

    name: str
    when: str
    consequence: str
    needed: Callable[[Case], bool]


# ---- defaults that are recorded ------------------------------------------------------------------------------------


def _sizes_stated(case: Case) -> bool:
    return bool(case.engine.max_cudagraph_capture_size or case.engine.cudagraph_capture_sizes)


def _mode_reason(case: Case) -> str:
    if case.settings.graphs.mode == "NONE":
        return "not stated; deepep_high_throughput with data parallelism turns CUDA graphs off"
    return "not stated; the engine's default where the backend allows"


RECORDED = (
    Default(
        "mamba_cache_mode",
        "the model has recurrent layers",
        "`align` with prefix caching, `none` without",
        "vllm/model_executor/models/config.py",
        lambda case: bool(case.facts.recurrent_kinds) and not case.engine.mamba_cache_mode,
        lambda case: case.settings.recurrent_cache_mode,
        lambda case: f"not stated; prefix caching is {'off' if case.engine.enable_prefix_caching is False else 'on'}",
    ),
    Default(
        "block_size",
        "",
        "what the attention backend takes, raised until it holds a page of recurrent state: 16; for "
        "dense latent attention 32 on data-center Blackwell, and 64 on "
        "Hopper with an 8-bit cache; 64 for the DeepSeek-V3.2 family; 256 for compressed latent caches",
        "vllm/platforms/interface.py, vllm/platforms/cuda.py",
        lambda case: not case.engine.block_size,
        lambda case: case.settings.block_size,
        lambda case: f"not stated; {case.settings.block_reason}",
    ),
    Default(
        "dcp_comm_backend",
        "`dcp` above 1; also where it is stated and the release's rules list no names to check it against",
        "`ag_rs`",
        "vllm/config/parallel.py",
        lambda case: case.layout.dcp > 1 and (not case.engine.dcp_comm_backend or case.rules.dcp_comm_backends is None),
        lambda case: case.context.combine,
        lambda case: (
            "stated, but the release's rules list no names to check it against"
            if case.engine.dcp_comm_backend
            else "not stated; the engine's default"
        ),
    ),
    Default(
        "cudagraph_mode",
        "",
        f"`{DEFAULT_GRAPH_MODE}`; `NONE` under deepep_high_throughput with data parallelism",
        "vllm/config/vllm.py",
        lambda case: not case.engine.cudagraph_mode,
        lambda case: case.settings.graphs.mode,
        _mode_reason,
    ),
    Default(
        "max_num_seqs",
        "",
        "1,024 for parts of 70 GiB and more other than A100, else 256; never above the token budget",
        "vllm/engine/arg_utils.py",
        lambda case: not case.engine.max_num_seqs,
        lambda case: case.settings.max_num_seqs,
        lambda case: "not stated; the API server's default for a part of this memory",
    ),
    Default(
        "max_cudagraph_capture_size",
        "a graph is captured and `cudagraph_capture_sizes` is unstated too",
        "the widest entry of the engine's default capture sizes",
        "vllm/config/vllm.py",
        lambda case: case.settings.graphs.capture_tokens > 0 and not _sizes_stated(case),
        lambda case: case.settings.graphs.capture_tokens,
        lambda case: "not stated; the widest entry of the engine's default capture sizes",
    ),
    Default(
        "mla_context_chunk",
        "`dcp` above 1, latent attention, and `max_model_len` is unstated, which would bound it",
        "65,536 tokens, rounded up to whole blocks on every rank",
        "vllm/v1/attention/backends/mla",
        lambda case: case.layout.dcp > 1 and case.facts.latent and not case.engine.max_model_len,
        lambda case: case.context_chunk,
        lambda case: "max_model_len is not stated, which would bound it",
    ),
    Default(
        "sparse_mla_backend",
        "the engine takes FlashInfer's sparse backend of Hopper",
        f"`{FLASHINFER_SM90.name}`",
        "vllm/platforms/cuda.py",
        lambda case: case.sparse is not None and case.sparse.backend is FLASHINFER_SM90,
        lambda case: FLASHINFER_SM90.name,
        lambda case: "chosen by the engine; needs FlashInfer 0.6.18 or newer",
    ),
    Default(
        "max_num_batched_tokens",
        "",
        "16,384 for parts of 160 GiB and more, 8,192 from 70 GiB other than A100, else 2,048; 256 under a low-latency "
        "all-to-all with expert and data parallelism; never above what the sequences can fill",
        "vllm/engine/arg_utils.py",
        lambda case: not case.engine.max_num_batched_tokens,
        lambda case: case.settings.max_num_batched_tokens,
        lambda case: "not stated; the API server's default for this part and all-to-all backend",
    ),
    Default(
        "engine_version",
        "the scenario states another release",
        f"{ENGINE_BEHAVIOUR_VERSION}, the release whose behaviour is encoded",
        "pykernel",
        lambda case: case.inputs.scenario.engine_version != ENGINE_BEHAVIOUR_VERSION,
        lambda case: ENGINE_BEHAVIOUR_VERSION,
        lambda case: (
            f"the scenario states {case.inputs.scenario.engine_version}; engine behaviour is encoded for this release"
        ),
    ),
)
"""In the order of the provenance; `dcp_comm_backend` is the last before the coefficients."""

# ---- defaults that are not recorded --------------------------------------------------------------------------------


def _plain(
    name: str, value: object, origin: str, when: str = "", open: Callable[[Case], bool] | None = None
) -> Default:
    """A default that is the same for every deployment."""
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return Default(
        name,
        when,
        f"`{shown}`",
        origin,
        open or (lambda case: not getattr(case.engine, name) and getattr(case.engine, name) is not False),
        lambda case: shown,
        lambda case: "not stated; the engine's default",
    )


UNRECORDED = (
    _plain("enable_prefix_caching", True, "vllm/config/cache.py"),
    _plain("cache_dtype", "auto", "vllm/config/cache.py"),
    Default(
        "mamba_cache_dtype",
        "the model has recurrent layers",
        "`auto`",
        "vllm/config/cache.py",
        lambda case: bool(case.facts.recurrent_kinds) and not case.engine.mamba_cache_dtype,
        lambda case: "auto",
        lambda case: "not stated; the engine's default",
    ),
    Default(
        "quantization",
        "",
        "the checkpoint's format",
        "vllm/config/model.py",
        lambda case: not case.engine.quantization,
        lambda case: case.precision.served,
        lambda case: "not stated; the checkpoint's format",
    ),
    _plain("async_scheduling", True, "vllm/config/vllm.py"),
    _plain("disable_cascade_attn", True, "vllm/config/model.py"),
    _plain("disable_custom_all_reduce", False, "vllm/config/parallel.py"),
    Default(
        "all2all_backend",
        "tokens meet at experts of other ranks",
        "dense tokens are gathered, and sequence-parallel MoE is off",
        REFERENCE,
        lambda case: case.layout.moe_width > 1 and not case.engine.all2all_backend,
        lambda case: "allgather_reducescatter, without sequence-parallel MoE",
        lambda case: "not stated; dense tokens are gathered, as in the published model",
    ),
    _plain(
        "cp_kv_cache_interleave_size",
        1,
        "vllm/config/parallel.py",
        "`dcp` above 1 and no NIXL connector pins it",
        lambda case: (
            case.layout.dcp > 1 and not case.engine.cp_kv_cache_interleave_size and case.context.interleave == 1
        ),
    ),
    _plain("gpu_memory_utilization", DEFAULT_UTILIZATION, "vllm/config/cache.py"),
    _plain("scheduling_policy", "fcfs", "vllm/config/scheduler.py"),
    _plain("speculative", "off", "vllm/config/speculative.py"),
    _plain("eplb", "off", "vllm/config/parallel.py", open=lambda case: case.facts.experts > 0 and not case.engine.eplb),
    _plain("dbo", "off", "vllm/config/parallel.py"),
)

DEFAULTS = RECORDED + UNRECORDED

# ---- overrides -----------------------------------------------------------------------------------------------------


def _wanted_mode(case: Case) -> str:
    """The graph mode that is stated, else the engine's default."""
    mode = case.engine.cudagraph_mode.upper()
    return mode if mode in GRAPH_MODES else DEFAULT_GRAPH_MODE


OVERRIDES = (
    Overriding(
        "custom-all-reduce-ranks",
        "allreduce_backend",
        "the custom all-reduce is asked for, as it is by default, at a width the kernel does not exist for",
        "rules pack of the release",
        lambda case: wants_custom_all_reduce(case.engine) and not case.rules.supports_custom_all_reduce(case.layout.tp),
        lambda case: "custom",
        lambda case: "nccl",
        lambda case: f"unsupported rank count: the custom all-reduce kernel does not exist for {case.layout.tp} ranks",
    ),
    Overriding(
        "custom-all-reduce-node",
        "allreduce_backend",
        "the custom all-reduce is asked for by more ranks than a node has, on a part without multi-node NVLink",
        "vllm/distributed/device_communicators/custom_all_reduce.py",
        lambda case: (
            wants_custom_all_reduce(case.engine)
            and case.rules.supports_custom_all_reduce(case.layout.tp)
            and case.layout.tp > case.cluster.gpus_per_node
            and not case.layout.rack_domain
        ),
        lambda case: "custom",
        lambda case: "nccl",
        lambda case: (
            f"{case.layout.tp} ranks exceed the {case.cluster.gpus_per_node} GPUs of a node and no multi-node "
            "NVLink joins them"
        ),
    ),
    Overriding(
        "mamba-mode",
        "mamba_cache_mode",
        "`none` is stated for a model with recurrent layers while prefix caching is on",
        "vllm/model_executor/models/config.py",
        lambda case: (
            bool(case.facts.recurrent_kinds)
            and case.engine.mamba_cache_mode == "none"
            and case.settings.recurrent_cache_mode == "align"
        ),
        lambda case: "none",
        lambda case: "align",
        lambda case: "prefix caching is on",
    ),
    Overriding(
        "interleave-pinned",
        "cp_kv_cache_interleave_size",
        "it is unstated with `dcp` above 1 under NixlConnector",
        "vllm/config/vllm.py",
        lambda case: (
            case.layout.dcp > 1 and not case.engine.cp_kv_cache_interleave_size and case.context.interleave > 1
        ),
        lambda case: "not stated (engine default 1)",
        lambda case: case.context.interleave,
        lambda case: "NixlConnector moves whole blocks, so the engine pins the interleave to the block size",
    ),
    Overriding(
        "cache-layout",
        "cache_dtype",
        "a stated cache type is stored in another layout by the sparse attention backend",
        "vllm/v1/attention/backends/mla/flashmla_sparse.py",
        lambda case: (
            case.sparse is not None
            and bool(case.engine.cache_dtype)
            and case.sparse.cache_format != case.engine.cache_dtype
        ),
        lambda case: case.engine.cache_dtype,
        lambda case: case.sparse.cache_format if case.sparse else "",
        lambda case: f"{case.sparse.backend.name if case.sparse else ''} stores a quantized latent cache packed",
    ),
    Overriding(
        "graphs-off",
        "cudagraph_mode",
        "any other mode is stated or left to the default, for a compiled MoE model under deepep_high_throughput with "
        "data parallelism",
        "vllm/config/vllm.py",
        lambda case: _wanted_mode(case) != "NONE" and dispatch_forbids_graphs(case.engine, case.layout, case.facts),
        _wanted_mode,
        lambda case: "NONE",
        lambda case: "deepep_high_throughput with data parallelism turns CUDA graphs off",
    ),
    Overriding(
        "no-cascade",
        "disable_cascade_attn",
        "cascade attention is asked for",
        "vllm/v1/worker/gpu/attn_utils.py",
        lambda case: case.engine.disable_cascade_attn is False,
        lambda case: "false",
        lambda case: "true",
        lambda case: "the default model runner has no cascade attention path",
    ),
)

# ---- coefficients that may be absent -------------------------------------------------------------------------------


def _floor_is_used(case: Case) -> bool:
    """Whether some attention takes the part-wide floor: with the part-wide rate, or for want of one of its own."""
    held = case.coefficients
    return any(
        own_attention_rate(held, kind) <= 0 or held.get(f"attention_decode_floor_{kind}", 0.0) <= 0
        for kind in case.priced_attentions
    )


def _rate_is_used(case: Case) -> bool:
    return any(own_attention_rate(case.coefficients, kind) <= 0 for kind in case.priced_attentions)


def _mixer(kind: str) -> Callable[[Case], bool]:
    return lambda case: kind in case.priced_mixers


def _kind(kind: str) -> Callable[[Case], bool]:
    return lambda case: kind in case.priced_attentions


def _attends(case: Case) -> bool:
    return bool(case.priced_attentions)


def _always(case: Case) -> bool:
    return True


_OWN_KINDS = tuple(kind for kind in ATTENTION_KINDS if kind != "gqa")
_HOST = (
    *("host_admission_per_token", "host_admission_per_request", "host_output_token", "host_completion"),
    *("host_launch_eager_per_layer", "host_launch_per_kernel"),
)

MISSING = (
    *(
        Missing(f"recurrent_decode_{part}_{kind}", f"a {kind} mixer", f"{kind} mixers are not charged", _mixer(kind))
        for kind in RECURRENT_KINDS
        for part in ("floor", "rate")
    ),
    Missing(
        "attention_decode_floor",
        "an attention that has no pair of its own",
        "no floor is charged for decode attention",
        _floor_is_used,
    ),
    Missing(
        "attention_decode_rate",
        "an attention that has no rate of its own",
        "decode attention reads at the memory rate, no floor",
        _rate_is_used,
    ),
    *(
        Missing(
            f"attention_decode_rate_{kind}",
            f"a {kind} attention",
            f"{kind} layers use the part-wide floor and rate",
            _kind(kind),
        )
        for kind in _OWN_KINDS
    ),
    # Not for the latent kinds: the registry's floors of those are themselves assumed to be the part's.
    Missing(
        "attention_decode_floor_swa",
        "a swa attention with a rate of its own",
        "swa layers use the part-wide floor",
        lambda case: "swa" in case.priced_attentions and own_attention_rate(case.coefficients, "swa") > 0,
    ),
    Missing("attention_prefill_floor", "an attention", "no floor is charged for prefill attention", _attends),
    Missing("attention_prefill_work_scale", "an attention", "prefill attention runs as dense work, no floor", _attends),
    Missing(
        "moe_routing_imbalance_median",
        "routed experts",
        "routing is taken as even",
        lambda case: any(kind.routed_experts for kind in case.facts.priced_kinds),
    ),
    Missing("host_link_bandwidth", "always", "transfers to storage are not bounded by the host link", _always),
    *(Missing(name, "always", "this host cost is zero", _always) for name in _HOST),
    Missing(
        "host_replay_graph_per_step",
        "a graph is captured",
        "this host cost is zero",
        lambda case: case.settings.graphs.capture_tokens > 0,
    ),
)


def record_disclosures(case: Case, record: Record) -> None:
    """Note every assumption and override of a resolved case."""
    for row in RECORDED:
        if row.open(case):
            record.assume(row.name, row.value(case), row.reason(case))
        if row.name == "dcp_comm_backend":
            _record_missing(case, record)
    for rule in OVERRIDES:
        if rule.applies(case):
            record.override(rule.field, rule.requested(case), rule.resolved(case), rule.reason(case))


def _record_missing(case: Case, record: Record) -> None:
    for row in MISSING:
        if row.name not in case.coefficients and row.needed(case):
            record.assume(row.name, "absent", row.consequence)


_STEP_LAWS = ("attention_", "recurrent_decode_", "moe_routing_imbalance", "host_launch_", "host_replay_")


def without_step_laws(rows: Iterable[CoefficientOrigin]) -> tuple[CoefficientOrigin, ...]:
    """The provenance of a model with its own laws of a step: it assumes nothing that only the published ones lack."""

    def concerns_them(row: CoefficientOrigin) -> bool:
        absent = row.set == KERNEL_ASSUMPTION_SET and row.scope.startswith("absent: ")
        return absent and row.name.startswith(_STEP_LAWS)

    return tuple(row for row in rows if not concerns_them(row))
