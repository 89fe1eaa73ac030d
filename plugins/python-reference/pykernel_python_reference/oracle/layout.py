"""Widths, groups of ranks, where they lie, and by how much leaving a node inflates what they send.

Ranks are numbered data > prefill-context > tensor, tensor innermost, consecutive ranks fill a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from pykernel.documents import Chip, Fabric, Inputs, Pool
from pykernel.errors import RefusedError

from .exact import cdiv, exact

TENSOR = "tensor"
EXPERT = "expert"
PREFILL_CONTEXT = "prefill-context"
DECODE_CONTEXT = "decode-context"

# blis-schemas v0.2.2, rules pack 0.29.0: with these dispatch backends the experts' input is split over tensor ranks.
SEQUENCE_PARALLEL_BACKENDS = (
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "flashinfer_nvlink_one_sided",
    "mori_high_throughput",
    "mori_low_latency",
    "nixl_ep",
)
GATHERING_BACKENDS = ("", "naive", "allgather_reducescatter")


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: how many, their distance in the numbering, members a node has (0: unlimited)."""

    width: int
    stride: int
    per_node: int
    crosses: bool


@dataclass(frozen=True)
class Layout:
    """The resolved widths of one pool and the groups they make."""

    tp: int
    dp: int
    pcp: int
    dcp: int
    expert_parallel: bool
    expert_width: int
    moe_group: int
    backend: str
    groups: dict[str, Group]
    ratio: Fraction
    nodes_spanned: int

    @property
    def routed_dispatch(self) -> bool:
        """Whether the dispatch sends each token to the ranks of its experts only."""
        return self.expert_parallel and self.backend not in GATHERING_BACKENDS

    @property
    def sequence_parallel_moe(self) -> bool:
        return self.expert_parallel and self.tp > 1 and self.dp > 1 and self.backend in SEQUENCE_PARALLEL_BACKENDS

    @property
    def expert_shards(self) -> int:
        """Over how many ranks one expert is sliced."""
        return 1 if self.expert_width > 1 else self.tp * self.dp

    @property
    def data_slice(self) -> int:
        """The part of the slicing that is not tensor parallelism."""
        return self.dp if self.expert_width <= 1 else 1

    @property
    def funnel(self) -> int:
        """How many ranks' tokens meet at the experts of one rank."""
        return self.dp if self.moe_group > 1 and self.dp > 1 else 1

    def span(self, group: str, all_to_all: bool) -> Fraction:
        """By what the bytes of a crossing collective are multiplied."""
        where = self.groups[group]
        law = all_to_all_span if all_to_all else ring_span
        return law(where.width, where.per_node, self.ratio)

    def emitted(self, condition: str, where: str) -> bool:
        """Whether a node with this emit condition exists. Raises RefusedError for an unknown condition."""
        conditions = {
            "": True,
            "tensor_parallel": self.tp > 1,
            "expert_parallel": self.moe_group > 1,
            "tensor_parallel_unless_sp_moe": self.tp > 1 and not self.sequence_parallel_moe,
        }
        if condition not in conditions:
            raise RefusedError(f"{where}: unknown emit condition {condition!r}", "emit")
        return conditions[condition]


def layout_of(inputs: Inputs) -> Layout:
    """The layout of the pool that is priced. Raises RefusedError."""
    pool: Pool = inputs.deployment.pools[inputs.pool]
    parallel, cluster = pool.parallel, inputs.scenario.cluster
    tp, dp = parallel.tp, parallel.dp
    if tp < 1 or dp < 1:
        raise RefusedError("tp and dp must be at least 1", "parallel.tp")
    if parallel.pp > 1:
        raise RefusedError("pipeline parallelism is not priced", "parallel.pp")
    pcp, dcp = max(parallel.pcp, 1), max(parallel.dcp, 1)
    together = tp * pcp * dp
    expert_width = together if parallel.enable_expert_parallel else 1
    moe_group = together if not parallel.enable_expert_parallel and dp > 1 else expert_width
    place = _Place(cluster.gpus_per_node, cluster.gpus_per_rack, inputs.chip)
    groups = {
        TENSOR: place.group(tp, 1),
        EXPERT: place.group(moe_group, 1),
        PREFILL_CONTEXT: place.group(pcp, tp),
        DECODE_CONTEXT: place.group(dcp, tp if pcp > 1 and dcp <= pcp else 1),
    }
    return Layout(
        tp,
        dp,
        pcp,
        dcp,
        parallel.enable_expert_parallel,
        expert_width,
        moe_group,
        pool.engine.all2all_backend,
        groups,
        bandwidth_ratio(inputs.chip, inputs.fabric),
        place.nodes_spanned(max(tp, moe_group, tp * pcp)),
    )


@dataclass(frozen=True)
class _Place:
    gpus_per_node: int
    gpus_per_rack: int
    chip: Chip

    @property
    def rack_domain(self) -> bool:
        return self.chip.gpus_per_rack > 0 and self.chip.intra_rack_bw_gbps > 0

    def group(self, width: int, stride: int) -> Group:
        per_node = max(self.gpus_per_node // stride, 1) if self.gpus_per_node > 0 else 0
        return Group(width, stride, per_node, self._crosses(width, stride, per_node))

    def _crosses(self, width: int, stride: int, per_node: int) -> bool:
        if self.gpus_per_node <= 0 or width <= per_node:
            return False
        rack = self.gpus_per_rack if self.gpus_per_rack > 0 else self.chip.gpus_per_rack
        return not (self.rack_domain and 0 < width * stride <= rack)

    def nodes_spanned(self, widest: int) -> int:
        """Nodes of the widest block, the dimension that coefficients are scoped by."""
        if self.gpus_per_node <= 0 or (self.rack_domain and 0 < widest <= self.gpus_per_rack):
            return 1
        return cdiv(widest, self.gpus_per_node)


def bandwidth_ratio(chip: Chip, fabric: Fabric | None) -> Fraction:
    """How many times faster a GPU's link inside the node is than its link out of it; 1 where either is unknown."""
    inside, outside = chip.intra_node_bw_gbps, fabric.inter_node_bw_gbps if fabric else 0.0
    return exact(inside) / exact(outside) if inside > 0 and outside > 0 else Fraction(1)


def span(crossing: int, total: int, ratio: Fraction | float) -> Fraction:
    """The cost of hops of which some cross, in units of a hop that does not."""
    if crossing <= 0 or total <= 0 or not math.isfinite(ratio) or ratio <= 1:
        return Fraction(1)
    return 1 + (Fraction(ratio) - 1) * crossing / total


def flat_span(width: int, per_node: int, ratio: Fraction | float) -> Fraction:
    """Every hop at the speed of the slow link, unless the group fits a node."""
    if width <= 1 or per_node <= 0 or width <= per_node:
        return Fraction(1)
    return span(width - 1, width - 1, ratio)


def ring_span(width: int, per_node: int, ratio: Fraction | float) -> Fraction:
    """A hierarchical ring; one that does not divide into whole nodes is flat."""
    if width <= 1 or per_node <= 0:
        return Fraction(1)
    if width % per_node:
        return flat_span(width, per_node, ratio)
    return span(width // per_node - 1, width - 1, ratio)


def all_to_all_span(width: int, per_node: int, ratio: Fraction | float) -> Fraction:
    """Point to point: the peers outside the node among all peers."""
    return span(width - per_node, width - 1, ratio) if width > 1 and per_node > 0 else Fraction(1)
