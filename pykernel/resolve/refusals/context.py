"""Refusals of context parallelism: which models run under it, and what its ranks must agree on."""

from __future__ import annotations

from pykernel.resolve.case import Case
from pykernel.resolve.context_parallel import COMBINES
from pykernel.resolve.model_facts import LATENT_KINDS
from pykernel.resolve.refusals.row import ENGINE, PRICE, REFERENCE, Refusal, listed, when


def _not_latent(case: Case) -> str:
    for kind in case.facts.kinds if case.layout.pcp > 1 else ():
        others = [node.recurrent_kind for node in kind.nodes("RecurrentUpdate")]
        if kind.primary and kind.primary.kind not in LATENT_KINDS:
            others.append(kind.primary.kind)
        if others:
            return f"pcp is {case.layout.pcp}, and layer kind {kind.kind.id} has {others[0]}"
    return ""


def _not_sparse(case: Case) -> str:
    both = case.layout.pcp > 1 and case.layout.dcp > 1
    for kind in case.facts.kinds if both else ():
        if kind.primary and kind.primary.kind != "sparse_mla":
            widths = f"pcp {case.layout.pcp} with dcp {case.layout.dcp}"
            return f"{widths}, and layer kind {kind.kind.id} has {kind.primary.kind}"
    return ""


def _combine(case: Case, fault: bool) -> str:
    return when(fault and bool(case.engine.dcp_comm_backend), f"dcp_comm_backend is {case.engine.dcp_comm_backend!r}")


def _misfit(case: Case) -> bool:
    """Whether a stated interleave does not divide the block and no worker repairs it."""
    stated, block = case.engine.cp_kv_cache_interleave_size, case.settings.block_size
    if case.layout.dcp == 1 or not stated or block % stated == 0:
        return False
    return "NixlConnector" not in case.connectors or "MultiConnector" in case.connectors


def _interleave(case: Case, fault: bool) -> str:
    stated, block = case.engine.cp_kv_cache_interleave_size, case.settings.block_size
    return when(fault and _misfit(case), f"cp_kv_cache_interleave_size is {stated} with block_size {block}")


def _divisors(case: Case) -> str:
    block, stated = case.settings.block_size, case.engine.cp_kv_cache_interleave_size
    fitting = max(width for width in range(1, min(stated, block) + 1) if block % width == 0)
    return f"the nearest that does: {fitting}"


_INTERLEAVE = "engine.cp_kv_cache_interleave_size"

CONTEXT = (
    Refusal(
        "prefill-context-latent",
        "parallel.pcp",
        ENGINE,
        "`pcp` above 1 with a layer that is not latent attention, or has a recurrent mixer",
        "prefill-context parallelism runs latent attention only",
        "pcp 1 runs; a wider tp takes its ranks",
        "vllm/v1/worker/gpu/pcp_manager.py",
        _not_latent,
    ),
    Refusal(
        "prefill-and-decode-context",
        "parallel.dcp",
        ENGINE,
        "`pcp` and `dcp` above 1 with an attention that is not sparse latent",
        "both together run sparse latent attention only",
        "dcp 1 runs",
        "vllm/config/parallel.py",
        _not_sparse,
    ),
    Refusal(
        "query-replication",
        "engine.dcp_q_replicate",
        PRICE,
        "`dcp_q_replicate` is true with `dcp` above 1, without `pcp`, on a model with latent attention",
        "the wider query projection of each rank has no law",
        "leave it out or state false",
        "vllm/model_executor/layers/attention/mla_attention.py",
        lambda case: when(
            bool(case.engine.dcp_q_replicate) and case.layout.dcp > 1 and case.layout.pcp == 1 and case.facts.latent,
            f"dcp_q_replicate is true with dcp {case.layout.dcp}",
        ),
    ),
    Refusal(
        "combine-unlisted",
        "engine.dcp_comm_backend",
        ENGINE,
        "`dcp_comm_backend` is not in the release's list",
        "this release of the engine has no such combine",
        "state a name of the list",
        "rules pack of the release",
        lambda case: _combine(
            case,
            case.rules.dcp_comm_backends is not None
            and case.engine.dcp_comm_backend not in case.rules.dcp_comm_backends,
        ),
        lambda case: f"accepted are {listed(name for name in case.rules.dcp_comm_backends or () if name in COMBINES)}",
    ),
    Refusal(
        "combine-unknown",
        "engine.dcp_comm_backend",
        PRICE,
        f"`dcp_comm_backend` is none of {listed(COMBINES)}",
        "its collectives have no law",
        f"accepted are {listed(COMBINES)}",
        REFERENCE,
        lambda case: _combine(case, case.engine.dcp_comm_backend not in COMBINES),
    ),
    Refusal(
        "combine-under-pcp",
        "engine.dcp_comm_backend",
        ENGINE,
        "`dcp_comm_backend` is `a2a` with `pcp` and `dcp` above 1",
        "it does not run with prefill-context parallelism",
        "ag_rs does",
        "vllm/v1/attention/ops/dcp.py",
        lambda case: when(
            case.engine.dcp_comm_backend == "a2a" and case.layout.pcp > 1 and case.layout.dcp > 1,
            f"dcp_comm_backend is 'a2a' with pcp {case.layout.pcp}",
        ),
    ),
    Refusal(
        "interleave-inner-connectors",
        _INTERLEAVE,
        ENGINE,
        "a stated `cp_kv_cache_interleave_size` does not divide the block under MultiConnector",
        "the inner connectors of MultiConnector are not known to repair it",
        "state a size that divides the block",
        "vllm/config/vllm.py",
        lambda case: _interleave(case, "MultiConnector" in case.connectors),
        _divisors,
    ),
    Refusal(
        "interleave",
        _INTERLEAVE,
        ENGINE,
        "a stated `cp_kv_cache_interleave_size` does not divide the block, with no NIXL connector to pin it",
        "the size must divide the block",
        "state a size that divides the block",
        "vllm/config/vllm.py",
        lambda case: _interleave(case, "MultiConnector" not in case.connectors and case.settings.block_is_final),
        _divisors,
    ),
    Refusal(
        "interleave-open-block",
        _INTERLEAVE,
        ENGINE,
        "the same where the engine may still choose or raise the block",
        "the size must divide the block, which the engine may still change",
        "state a block_size that the size divides",
        "vllm/platforms/interface.py",
        lambda case: _interleave(case, "MultiConnector" not in case.connectors and not case.settings.block_is_final),
        lambda case: f"state a block_size that the size divides, or a size that divides the block; {_divisors(case)}",
    ),
    Refusal(
        "interleave-unstated",
        _INTERLEAVE,
        ENGINE,
        "`cp_kv_cache_interleave_size` is unstated with `dcp` above 1 under MultiConnector",
        "the inner connectors of MultiConnector decide it, and they are not known",
        "state the size",
        "vllm/config/vllm.py",
        lambda case: when(
            case.layout.dcp > 1 and not case.engine.cp_kv_cache_interleave_size and "MultiConnector" in case.connectors,
            "cp_kv_cache_interleave_size is not stated under MultiConnector",
        ),
        lambda case: f"state one that divides the block of {case.settings.block_size}",
    ),
)
