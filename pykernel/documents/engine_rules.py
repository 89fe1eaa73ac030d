"""The rules that a pack of an engine release can switch on, each a small function in one table.

They look at documents that passed their field checks and report what the release would reject, ignore or decide
differently. A rule finding is advice: it never stops a price, since the pack may be behind the document.
Names, conditions and severities follow the 0.29.0 pack of inference-sim/blis-schemas v0.2.2; those that only a later
pack names come last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykernel.documents.fieldtypes import did_you_mean
from pykernel.documents.nodes import Document, shown
from pykernel.errors import Problem

if TYPE_CHECKING:
    from pykernel.documents.deployment import Deployment, Pool
    from pykernel.documents.graph import ModelGraph
    from pykernel.documents.rules import Rules
    from pykernel.documents.scenario import Scenario


@dataclass(frozen=True)
class Context:
    """What the rules of one report look at."""

    rules: Rules
    scenario: Scenario | None
    deployment: Deployment | None
    model: ModelGraph | None

    def pools(self) -> Iterator[tuple[str, Pool]]:
        """Each pool with its path."""
        for index, pool in enumerate(self.deployment.pools if self.deployment else ()):
            yield f"deployment.pools[{index}]", pool

    def experts(self) -> int:
        """The largest expert count of the model's layers, 0 without experts or without a model."""
        kinds = self.model.layer_kinds if self.model else ()
        return max((node.experts for kind in kinds for node in kind.nodes), default=0)

    def recurrent(self) -> bool:
        """Whether a layer of the model keeps a recurrent state."""
        kinds = self.model.layer_kinds if self.model else ()
        return any(node.recurrent_kind for kind in kinds for node in kind.nodes)


@dataclass(frozen=True)
class Found:
    """One finding of a rule; a severity only where it differs from the rule's."""

    path: str
    message: str
    severity: str = ""


@dataclass(frozen=True)
class Rule:
    """A rule's usual severity and the function that finds."""

    severity: str
    find: Callable[[Context], Iterator[Found]]


def findings(
    rules: Rules, scenario: Scenario | None, deployment: Deployment | None, model: ModelGraph | None
) -> list[Problem]:
    """What the rules of a pack find, in the order the pack names them."""
    context = Context(rules, scenario, deployment, model)
    documents: dict[str, Document | None] = {"scenario": scenario, "deployment": deployment, "model": model}
    problems = []
    for name in rules.rules:
        rule = RULES[name]
        for found in rule.find(context):
            document, _, path = found.path.partition(".")
            origin = documents[document]
            source = origin.source if origin is not None else None
            file, line = (source.file, source.line(path)) if source else ("", 0)
            severity = found.severity or rule.severity
            problems.append(Problem(severity, found.path, found.message, file, line, name))
    return problems


def _unknown(path: str, value: str, known: Collection[str]) -> Iterator[Found]:
    """A finding where a stated value is not one the release lists."""
    if value and value not in known:
        yield Found(path, f"found {shown(value)}{did_you_mean(value, known)}; accepted: {', '.join(known)}")


def _all2all_backend(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        yield from _unknown(f"{at}.engine.all2all_backend", pool.engine.all2all_backend, context.rules.all2all_backends)


def _allreduce_backend(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        value = pool.engine.allreduce_backend
        yield from _unknown(f"{at}.engine.allreduce_backend", value, context.rules.allreduce_backends)


def _enum_values(context: Context) -> Iterator[Found]:
    rules = context.rules
    lists = {
        "cudagraph_mode": rules.cudagraph_modes,
        "cache_dtype": rules.cache_dtypes,
        "mamba_cache_dtype": rules.cache_dtypes,
        "mamba_ssm_cache_dtype": rules.cache_dtypes,
        "mamba_cache_mode": rules.mamba_cache_modes,
        "scheduling_policy": rules.scheduling_policies,
    }
    for at, pool in context.pools():
        for name, known in lists.items():
            yield from _unknown(f"{at}.engine.{name}", getattr(pool.engine, name), known)


def _speculative_method(context: Context) -> Iterator[Found]:
    known = context.rules.speculative_methods
    for at, pool in context.pools():
        if pool.engine.speculative is not None:
            yield from _unknown(f"{at}.engine.speculative.method", pool.engine.speculative.method, known)
    if context.model is not None and context.model.speculator is not None:
        yield from _unknown("model.speculator.method", context.model.speculator.method, known)


def _dcp_comm_backend(context: Context) -> Iterator[Found]:
    known = context.rules.dcp_comm_backends
    for at, pool in context.pools() if known is not None else ():
        yield from _unknown(f"{at}.engine.dcp_comm_backend", pool.engine.dcp_comm_backend, known or ())


def _interleave(context: Context) -> Iterator[Found]:
    deployment = context.deployment
    if deployment is None or deployment.pd_transfer is not None or deployment.offload is not None:
        return  # a connector may change the size, so the stated one proves nothing
    if context.model is None or context.recurrent():
        return
    for at, pool in context.pools():
        block, size = pool.engine.block_size, pool.engine.cp_kv_cache_interleave_size
        if pool.parallel.dcp > 1 and size >= 1 and block >= 1 and block % size:
            message = f"found {size}; accepted: a divisor of block_size, which is {block}"
            yield Found(f"{at}.engine.cp_kv_cache_interleave_size", message)


def _pcp_with_dp(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        if pool.parallel.pcp > 1 and pool.parallel.dp > 1:
            message = f"found pcp {pool.parallel.pcp} with dp {pool.parallel.dp}; accepted: only one of them above 1"
            yield Found(f"{at}.parallel.pcp", message)


def _balances(pool: Pool) -> bool:
    return pool.engine.eplb is not None and pool.engine.eplb.enable_eplb


def _expert_divisibility(context: Context) -> Iterator[Found]:
    experts = context.experts()
    for at, pool in context.pools() if experts else ():
        width = pool.parallel.expert_width()
        if _balances(pool) and pool.engine.eplb is not None and width >= 2:
            total = experts + pool.engine.eplb.num_redundant_experts
            if total % width:
                message = f"{total} experts with the redundant ones do not divide over {width} ranks; "
                message += f"accepted: for example {-total % width} more redundant experts"
                yield Found(f"{at}.engine.eplb.num_redundant_experts", message)


def _expert_imbalance(context: Context) -> Iterator[Found]:
    experts = context.experts()
    for at, pool in context.pools() if experts else ():
        width = pool.parallel.expert_width()
        if _balances(pool) or width < 2 or experts % width == 0:
            continue
        path = f"{at}.parallel.enable_expert_parallel"
        if width > experts:
            yield Found(path, f"{experts} experts over {width} ranks leave ranks without any", "error")
        else:
            fewest = experts // width
            message = f"{experts} experts over {width} ranks: the fullest rank has {fewest + 1}, others {fewest}, "
            yield Found(path, message + f"a ratio of {(fewest + 1) / fewest:.3f}", "warning")


def _custom_allreduce(context: Context) -> Iterator[Found]:
    widths = context.rules.custom_allreduce_widths
    for at, pool in context.pools():
        if pool.engine.allreduce_backend != "custom":
            continue
        path, tp = f"{at}.engine.allreduce_backend", pool.parallel.tp
        if tp not in widths:
            listed = ", ".join(str(width) for width in widths)
            yield Found(path, f"no custom all-reduce exists for tp {tp}, so nccl runs; it exists for {listed}")
        if context.scenario is not None and tp > context.scenario.cluster.gpus_per_node:
            node = context.scenario.cluster.gpus_per_node
            yield Found(path, f"the custom all-reduce stays on a node, and tp {tp} is wider than its {node} GPUs")


def _offload_spec(context: Context) -> Iterator[Found]:
    if context.deployment is not None and context.deployment.offload is not None:
        yield from _unknown("deployment.offload.spec", context.deployment.offload.spec, context.rules.offload_specs)


def _quantization(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        yield from _unknown(f"{at}.engine.quantization", pool.engine.quantization, context.rules.quantizations)


def _connector(context: Context) -> Iterator[Found]:
    deployment, known = context.deployment, context.rules.connectors
    if deployment is not None and deployment.offload is not None:
        yield from _unknown("deployment.offload.connector", deployment.offload.connector, known)
    if deployment is not None and deployment.pd_transfer is not None:
        yield from _unknown("deployment.pd_transfer.connector", deployment.pd_transfer.connector, known)


def _eviction_policy(context: Context) -> Iterator[Found]:
    if context.deployment is not None and context.deployment.offload is not None:
        value = context.deployment.offload.eviction_policy
        yield from _unknown("deployment.offload.eviction_policy", value, context.rules.eviction_policies)


def _mamba_cache_mode(context: Context) -> Iterator[Found]:
    if context.model is None:
        return
    recurrent = context.recurrent()
    for at, pool in context.pools():
        mode = pool.engine.mamba_cache_mode
        if mode and not recurrent:
            yield Found(f"{at}.engine.mamba_cache_mode", f"found {shown(mode)} on a model without recurrent state")
        elif not mode and recurrent:
            modes = ", ".join(context.rules.mamba_cache_modes)
            message = f"unstated on a model with recurrent state; accepted: {modes}"
            yield Found(f"{at}.engine.mamba_cache_mode", message)


def _cascade_attention(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        engine = pool.engine
        if engine.disable_cascade_attn is False and engine.speculative is not None and engine.async_scheduling is None:
            message = "cascade attention is asked for with speculation while async_scheduling is unstated"
            yield Found(f"{at}.engine.disable_cascade_attn", message + "; state async_scheduling")


def _dbo_thresholds(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        dbo = pool.engine.dbo
        if dbo is None or not dbo.enable_dbo:
            continue
        if dbo.dbo_decode_token_threshold == 0 and dbo.dbo_prefill_token_threshold == 0:
            decode, other = context.rules.dbo_decode_token_threshold, context.rules.dbo_prefill_token_threshold
            message = f"both thresholds are unstated; the engine takes {decode} tokens for decodes, else {other}"
            yield Found(f"{at}.engine.dbo", message)


def _sequence_parallel_moe(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        backend, parallel = pool.engine.all2all_backend, pool.parallel
        on = parallel.enable_expert_parallel
        if backend and context.rules.sequence_parallel_moe(backend, on, parallel.tp, parallel.dp):
            message = f"{backend} with expert parallelism, tp {parallel.tp} and dp {parallel.dp} splits the input of "
            yield Found(f"{at}.engine.all2all_backend", message + "the experts over the tensor-parallel ranks")


# ---- of later packs ------------------------------------------------------------------------------------------------


def _replaced_backend(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        backend = pool.engine.all2all_backend
        if backend in context.rules.replaced_all2all_backends:
            message = f"{backend} was removed; the engine runs allgather_reducescatter in its place"
            yield Found(f"{at}.engine.all2all_backend", message)


def _decode_context_heads(context: Context) -> Iterator[Found]:
    """Ranks that share a cache must hold copies of its heads, and query heads that divide (vllm/config/model.py)."""
    nodes = [node for kind in context.model.layer_kinds for node in kind.nodes] if context.model else []
    full = [node for node in nodes if node.op == "Attention" and node.kind == "gqa" and not node.role]
    for at, pool in context.pools():
        tp, dcp = pool.parallel.tp, pool.parallel.dcp
        for node in full if dcp > 1 and pool.parallel.pcp <= 1 else ():
            if dcp * node.n_kv > tp or (node.n_q // node.n_kv) % dcp:
                message = f"found {dcp} with tp {tp}, {node.n_q} query and {node.n_kv} KV heads; accepted: up to "
                message += "tp / KV heads, and a divisor of the query heads of each KV head"
                yield Found(f"{at}.parallel.dcp", message)
                break


def _redundant_experts(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        eplb = pool.engine.eplb
        if eplb is not None and eplb.num_redundant_experts > 0 and not eplb.enable_eplb:
            message = f"found {eplb.num_redundant_experts} without enable_eplb; accepted: 0, or enable_eplb with them"
            yield Found(f"{at}.engine.eplb.num_redundant_experts", message)


def _async_scheduling(context: Context) -> Iterator[Found]:
    for at, pool in context.pools():
        drafts = pool.engine.speculative
        known = context.rules.async_speculative_methods
        if pool.engine.async_scheduling and drafts is not None and drafts.method not in known:
            message = f"found true with method {shown(drafts.method)}; accepted: false, or one of {', '.join(known)}"
            yield Found(f"{at}.engine.async_scheduling", message)


def _dbo_backend(context: Context) -> Iterator[Found]:
    known = context.rules.dbo_backends
    for at, pool in context.pools():
        backend = pool.engine.all2all_backend
        if pool.engine.dbo is not None and pool.engine.dbo.enable_dbo and backend not in known:
            message = f"found {shown(backend)} with dual-batch overlap; accepted: {', '.join(known)}"
            yield Found(f"{at}.engine.all2all_backend", message)


def _prefill_context_drafts(context: Context) -> Iterator[Found]:
    known = context.rules.pcp_speculative_methods
    for at, pool in context.pools():
        drafts = pool.engine.speculative
        if pool.parallel.pcp > 1 and drafts is not None and drafts.method not in known:
            message = f"found {shown(drafts.method)} with pcp {pool.parallel.pcp}; accepted: {', '.join(known)}"
            yield Found(f"{at}.engine.speculative.method", message)


RULES = {
    "all2all-backend-known": Rule("error", _all2all_backend),
    "allreduce-backend-known": Rule("error", _allreduce_backend),
    "enum-values-known": Rule("error", _enum_values),
    "speculative-method-known": Rule("error", _speculative_method),
    "dcp-comm-backend-known": Rule("error", _dcp_comm_backend),
    "cp-kv-cache-interleave-fits-block": Rule("error", _interleave),
    "pcp-excludes-data-parallelism": Rule("error", _pcp_with_dp),
    "expert-divisibility-under-eplb": Rule("error", _expert_divisibility),
    "expert-imbalance-without-eplb": Rule("warning", _expert_imbalance),
    "custom-allreduce-reachable": Rule("warning", _custom_allreduce),
    "offload-spec-known": Rule("error", _offload_spec),
    "quantization-known": Rule("warning", _quantization),
    "connector-known": Rule("warning", _connector),
    "eviction-policy-known": Rule("warning", _eviction_policy),
    "mamba-cache-mode-matches-model": Rule("warning", _mamba_cache_mode),
    "cascade-attention-is-opt-in": Rule("warning", _cascade_attention),
    "dbo-thresholds-stated-when-enabled": Rule("warning", _dbo_thresholds),
    "sequence-parallel-moe-implied": Rule("warning", _sequence_parallel_moe),
    "all2all-backend-replaced": Rule("warning", _replaced_backend),
    "dcp-fits-heads": Rule("error", _decode_context_heads),
    "redundant-experts-need-eplb": Rule("error", _redundant_experts),
    "async-scheduling-fits-method": Rule("error", _async_scheduling),
    "dbo-backend-supported": Rule("error", _dbo_backend),
    "pcp-fits-speculation": Rule("error", _prefill_context_drafts),
}
