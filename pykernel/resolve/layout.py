"""Where the ranks of an engine are: parallel widths, the groups that talk to each other, and what leaves a node.

Ranks are numbered data > prefill-context > tensor, tensor innermost, and a node holds consecutive ranks
(vllm/distributed/parallel_state.py at v0.31.0).
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Chip, Cluster, Engine, Fabric, Parallel, Rules

GATHER_BACKENDS = frozenset({"", "naive", "allgather_reducescatter"})
"""All-to-all backends that gather dense tokens; with expert parallelism every other one routes the selected ones."""

SM_COLLECTIVES = frozenset({"flashinfer", "symm_mem"})
"""All-reduce backends charged to the SMs that their kernels occupy.

Custom and NCCL all-reduces, the two that resolve here, are charged to their link although they run on SMs too: the
published example resolves to the custom kernel and shows its all-reduces under nvlink (blis-latency-kernel docs). The
others are kernels of vllm/distributed/device_communicators/cuda_communicator.py at v0.31.0.
"""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that take part in one collective.

    `stride` is the distance between neighbouring members, `per_node` the most members one node can hold.
    """

    width: int
    stride: int
    per_node: int
    crosses_nodes: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The parallel layout of one pool. Widths that are not used are 1."""

    tp: int
    dp: int
    pcp: int
    dcp: int
    ep: int
    moe_width: int
    expert_parallel: bool
    sequence_parallel_moe: bool
    routed_dispatch: bool
    all_reduce_backend: str
    nodes_spanned: int
    rack_domain: bool
    link_ratio: float
    groups: dict[str, Group]
    """By name: tensor, expert, prefill_context, decode_context."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What of the cluster decides whether a group stays on its node."""

    gpus_per_node: int
    rack_size: int

    def group(self, width: int, stride: int) -> Group:
        per_node = max(self.gpus_per_node // stride, 1)
        in_one_rack = 0 < width * stride <= self.rack_size
        crosses = width > per_node and not in_one_rack
        return Group(width, stride, per_node, crosses)


def resolve_layout(
    cluster: Cluster,
    parallel: Parallel,
    engine: Engine,
    chip: Chip,
    fabric: Fabric | None,
    rules: Rules,
) -> Layout:
    """The layout of a pool; its pipeline stages are not part of it, since more than one is refused."""
    tp, dp, pcp, dcp = parallel.tp, parallel.dp, max(parallel.pcp, 1), max(parallel.dcp, 1)
    block = tp * pcp * dp
    expert_parallel = parallel.enable_expert_parallel
    ep = block if expert_parallel else 1
    # Without expert parallelism the data-parallel replicas still share the experts, each expert sliced over all ranks.
    moe_width = block if expert_parallel or dp > 1 else 1
    rack_domain = chip.gpus_per_rack > 0 and chip.intra_rack_bw_gbps > 0
    rack_size = (cluster.gpus_per_rack or chip.gpus_per_rack) if rack_domain else 0
    place = _Place(cluster.gpus_per_node, rack_size)
    return Layout(
        tp=tp,
        dp=dp,
        pcp=pcp,
        dcp=dcp,
        ep=ep,
        moe_width=moe_width,
        expert_parallel=expert_parallel,
        sequence_parallel_moe=rules.sequence_parallel_moe(engine.all2all_backend, expert_parallel, tp, dp),
        routed_dispatch=expert_parallel and engine.all2all_backend not in GATHER_BACKENDS,
        all_reduce_backend=_all_reduce_backend(cluster, parallel, engine, rules, rack_domain),
        nodes_spanned=_nodes_spanned(cluster, max(tp, moe_width, tp * pcp), rack_domain),
        rack_domain=rack_domain,
        link_ratio=_link_ratio(chip, fabric),
        groups={
            "tensor": place.group(tp, 1),
            "expert": place.group(moe_width, 1),
            "prefill_context": place.group(pcp, tp),
            # Along the prefill-context axis where both are on and equal, in consecutive ranks otherwise.
            "decode_context": place.group(dcp, tp if 1 < dcp <= pcp else 1),
        },
    )


def _nodes_spanned(cluster: Cluster, widest: int, rack_domain: bool) -> int:
    """Nodes that the widest group covers; the `nodes_spanned` dimension of a coefficient's scope."""
    if rack_domain and cluster.gpus_per_rack > 0 and widest <= cluster.gpus_per_rack:
        return 1
    return -(-widest // cluster.gpus_per_node)


def _link_ratio(chip: Chip, fabric: Fabric | None) -> float:
    if fabric is None or fabric.inter_node_bw_gbps <= 0 or chip.intra_node_bw_gbps <= 0:
        return 1.0
    return chip.intra_node_bw_gbps / fabric.inter_node_bw_gbps


def wants_custom_all_reduce(engine: Engine) -> bool:
    """Whether a deployment asks for the engine's own all-reduce kernel, which it does unless it opts out."""
    return not engine.disable_custom_all_reduce and engine.allreduce_backend != "nccl"


def _all_reduce_backend(cluster: Cluster, parallel: Parallel, engine: Engine, rules: Rules, rack_domain: bool) -> str:
    """`custom` where it is asked for, exists for the width and has a link to every rank; else `nccl`."""
    in_reach = parallel.tp <= cluster.gpus_per_node or rack_domain
    honoured = wants_custom_all_reduce(engine) and rules.supports_custom_all_reduce(parallel.tp) and in_reach
    return "custom" if honoured else "nccl"
