"""The Deployment: the tunable half of a run. Which nodes form which pool, its layout, and its engine settings.

Types, loading, writing, and the checks that need no other document. Keys and ranges are those of
inference-sim/blis-schemas v0.2.2, with the two capture-size keys that later kernels honour. Text settings of the
engine are not checked here: what a release accepts is the business of its rules pack.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pykernel.documents import vocabulary
from pykernel.documents.fieldtypes import words
from pykernel.documents.findings import Findings, at_least, one_of, stated, within
from pykernel.documents.loading import load_document
from pykernel.documents.nodes import Document
from pykernel.documents.writing import write
from pykernel.errors import Problem


@dataclass
class Parallel:
    """The widths of one engine; 0 leaves a width to the engine, and 0 and 1 both switch context parallelism off."""

    MOVED_KEYS: ClassVar[Mapping[str, str]] = {
        "ep": "the expert-parallel width follows from tp, pcp and dp; write enable_expert_parallel",
    }

    tp: int
    pp: int
    dp: int
    dp_local: int = 0
    pcp: int = 0
    dcp: int = 0
    enable_expert_parallel: bool = False

    def replica_ranks(self) -> int:
        """Ranks of one data-parallel replica: pp x tp x max(pcp, 1)."""
        return self.pp * self.tp * max(self.pcp, 1)

    def ranks(self) -> int:
        """Ranks of one engine, one to a GPU."""
        return self.replica_ranks() * self.dp

    def expert_width(self) -> int:
        """Ranks that share the experts: tp x max(pcp, 1) x dp with expert parallelism, else 1."""
        return self.tp * max(self.pcp, 1) * self.dp if self.enable_expert_parallel else 1


@dataclass
class Dbo:
    """Dual-batch overlap; the thresholds are in tokens, 0 where unstated."""

    enable_dbo: bool = False
    dbo_decode_token_threshold: int = 0
    dbo_prefill_token_threshold: int = 0


@dataclass
class Eplb:
    """Expert load balancing."""

    enable_eplb: bool = False
    num_redundant_experts: int = 0
    window_size: int = 0
    step_interval: int = 0


@dataclass
class Speculative:
    """Speculative decoding: the drafting method and the drafts per step."""

    method: str
    num_spec_tokens: int


@dataclass
class Engine:
    """Engine settings; what is not stated is left to the engine's defaults."""

    all2all_backend: str = ""
    disable_custom_all_reduce: bool | None = None
    allreduce_backend: str = ""
    cudagraph_mode: str = ""
    async_scheduling: bool | None = None
    disable_cascade_attn: bool | None = None
    enable_prefix_caching: bool | None = None
    block_size: int = 0
    max_num_batched_tokens: int = 0
    max_num_seqs: int = 0
    max_model_len: int = 0
    quantization: str = ""
    cache_dtype: str = ""
    mamba_cache_dtype: str = ""
    mamba_ssm_cache_dtype: str = ""
    mamba_cache_mode: str = ""
    gpu_memory_utilization: float = 0.0
    scheduling_policy: str = ""
    dbo: Dbo | None = None
    eplb: Eplb | None = None
    speculative: Speculative | None = None
    dcp_comm_backend: str = ""
    dcp_q_replicate: bool | None = None
    cp_kv_cache_interleave_size: int = 0
    max_cudagraph_capture_size: int = 0
    cudagraph_capture_sizes: list[int] = field(default_factory=list)


@dataclass
class Pool:
    """Nodes of one role, all with the same layout and settings; several equal engines may fill them."""

    role: str = field(metadata=words(vocabulary.POOL_ROLES))
    nodes: int
    parallel: Parallel
    engine: Engine = field(default_factory=Engine)


@dataclass
class OffloadTier:
    """One KV-cache tier outside the GPU, by storage class, with its capacity in bytes."""

    tier: str
    bytes: int


@dataclass
class Offload:
    """KV-cache offload; `prefetch_depth` in steps."""

    tiers: list[OffloadTier]
    eviction_policy: str = ""
    prefetch_depth: int = 0
    connector: str = ""
    spec: str = ""


@dataclass
class PdTransfer:
    """The path from prefill pools to decode pools."""

    connector: str = ""


@dataclass
class Deployment(Document):
    """The configuration under study: pools, KV offload, and the prefill-to-decode path."""

    KIND: ClassVar[str] = "Deployment"
    MOVED_KEYS: ClassVar[Mapping[str, str]] = {
        "cluster": "write it in the Scenario, the first document of the file",
        "hardware": "write cluster.hardware in the Scenario, the first document of the file",
        "fabric": "write cluster.fabric in the Scenario, the first document of the file",
    }

    kind: str
    name: str
    pools: list[Pool]
    offload: Offload | None = None
    pd_transfer: PdTransfer | None = None


def load(path: str | os.PathLike[str]) -> Deployment:
    """The Deployment of a file that holds nothing else. Raises DocumentError."""
    return load_document(Deployment, path, "deployment")


def dump(deployment: Deployment) -> str:
    """The Deployment as YAML text that loads back equal."""
    return write(deployment)


def check(deployment: Deployment, prefix: str = "deployment") -> list[Problem]:
    """Problems of a well-typed Deployment by itself."""
    findings = Findings(deployment, prefix)
    one_of(findings, "kind", deployment.kind, (Deployment.KIND,))
    stated(findings, "name", deployment.name)
    if not deployment.pools:
        findings.error("pools", "found no pool; accepted: at least one")
    for index, pool in enumerate(deployment.pools):
        at = f"pools[{index}]"
        one_of(findings, f"{at}.role", pool.role, vocabulary.POOL_ROLES)
        at_least(findings, f"{at}.nodes", pool.nodes, 1)
        _check_parallel(findings, f"{at}.parallel", pool.parallel)
        _check_engine(findings, f"{at}.engine", pool.engine)
    _check_roles(findings, deployment)
    if deployment.offload is not None:
        _check_offload(findings, deployment.offload)
    return findings.problems


def _check_parallel(findings: Findings, at: str, parallel: Parallel) -> None:
    for name in ("tp", "pp", "dp"):
        at_least(findings, f"{at}.{name}", getattr(parallel, name), 1)
    for name in ("pcp", "dcp", "dp_local"):
        at_least(findings, f"{at}.{name}", getattr(parallel, name), 0)
    if parallel.dp_local > max(parallel.dp, 0):
        message = f"found {parallel.dp_local}; accepted: at most dp, which is {parallel.dp}"
        findings.error(f"{at}.dp_local", message)
    if parallel.tp >= 1 and parallel.pcp >= 0 and parallel.dcp >= 0:
        _check_dcp(findings, at, parallel)
    if parallel.enable_expert_parallel and parallel.expert_width() == 1:
        message = "expert parallelism is on while tp, pcp and dp give a width of 1, so it has no effect"
        findings.warning(f"{at}.enable_expert_parallel", message)


def _check_dcp(findings: Findings, at: str, parallel: Parallel) -> None:
    """Decode-context ranks are taken from existing ones, so only some widths exist."""
    tp, pcp, dcp = parallel.tp, parallel.pcp, max(parallel.dcp, 1)
    if pcp <= 1:
        if tp % dcp:
            widths = [str(width) for width in range(1, min(tp, 4096) + 1) if tp % width == 0]
            findings.error(f"{at}.dcp", f"found {dcp}; accepted: a divisor of tp: {', '.join(widths)}")
    elif dcp not in (1, pcp, tp * pcp):
        message = f"found {dcp}; accepted with pcp {pcp}: 1, pcp or tp x pcp: 1, {pcp}, {tp * pcp}"
        findings.error(f"{at}.dcp", message)


_COUNTS = (
    "block_size",
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_model_len",
    "cp_kv_cache_interleave_size",
    "max_cudagraph_capture_size",
)


def _check_engine(findings: Findings, at: str, engine: Engine) -> None:
    for name in _COUNTS:
        at_least(findings, f"{at}.{name}", getattr(engine, name), 0)
    for index, size in enumerate(engine.cudagraph_capture_sizes):
        at_least(findings, f"{at}.cudagraph_capture_sizes[{index}]", size, 1)
    within(findings, f"{at}.gpu_memory_utilization", engine.gpu_memory_utilization, 0, 1)
    if engine.allreduce_backend == "custom" and engine.disable_custom_all_reduce is True:
        message = "found custom while disable_custom_all_reduce is true; accepted: nccl, or the other key left out"
        findings.error(f"{at}.allreduce_backend", message)
    if engine.allreduce_backend == "nccl" and engine.disable_custom_all_reduce is False:
        message = "allreduce_backend is nccl while disable_custom_all_reduce is false; nccl is what runs"
        findings.warning(f"{at}.allreduce_backend", message)
    if engine.dbo is not None and engine.dbo.enable_dbo:
        for name in ("dbo_decode_token_threshold", "dbo_prefill_token_threshold"):
            at_least(findings, f"{at}.dbo.{name}", getattr(engine.dbo, name), 0)
    if engine.eplb is not None and engine.eplb.enable_eplb:
        at_least(findings, f"{at}.eplb.num_redundant_experts", engine.eplb.num_redundant_experts, 0)
    if engine.speculative is not None:
        stated(findings, f"{at}.speculative.method", engine.speculative.method)
        at_least(findings, f"{at}.speculative.num_spec_tokens", engine.speculative.num_spec_tokens, 1)


def _check_roles(findings: Findings, deployment: Deployment) -> None:
    roles = {pool.role for pool in deployment.pools}
    if "prefill" in roles and "decode" not in roles:
        findings.error("pools", "found a prefill pool without a decode pool; accepted: both, or colocated pools only")
    if "decode" in roles and "prefill" not in roles:
        findings.error("pools", "found a decode pool without a prefill pool; accepted: both, or colocated pools only")
    if "colocated" in roles and roles & {"prefill", "decode"}:
        message = "found a colocated pool beside prefill or decode pools; accepted: either kind alone"
        findings.error("pools", message)
    if "prefill" in roles and deployment.pd_transfer is None:
        findings.error("pd_transfer", "the key is missing while a prefill pool exists; accepted: a mapping")


def _check_offload(findings: Findings, offload: Offload) -> None:
    if not offload.tiers:
        findings.error("offload.tiers", "found no tier; accepted: at least one")
    seen: dict[str, int] = {}
    for index, tier in enumerate(offload.tiers):
        at = f"offload.tiers[{index}]"
        stated(findings, f"{at}.tier", tier.tier)
        if tier.tier in seen:
            message = f"found {tier.tier!r} again, first at tiers[{seen[tier.tier]}]; accepted: each tier once"
            findings.error(f"{at}.tier", message)
        elif tier.tier:
            seen[tier.tier] = index
        at_least(findings, f"{at}.bytes", tier.bytes, 1)
    at_least(findings, "offload.prefetch_depth", offload.prefetch_depth, 0)
