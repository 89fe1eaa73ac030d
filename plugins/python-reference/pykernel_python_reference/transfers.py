"""Transfers to storage tiers and between pools, and host work around the steps.

The last digits of a duration depend on the order of a few operations in doubles, so these are done in doubles, in the
order that the published descriptions state.
"""

from __future__ import annotations

import math

from pykernel.interface import Direction, LinkUse, Placement, TransferDemand

from .caches import Caches, whole
from .oracle import Oracle
from .oracle.exact import INT64_MAX, nanoseconds
from .oracle.layout import EXPERT


class Transfers:
    """The links and tiers of the oracle's deployment."""

    def __init__(self, oracle: Oracle, caches: Caches) -> None:
        inputs = oracle.inputs
        chip = inputs.chip
        self.caches = caches
        self.host_rate = max(oracle.coefficients.values.get("host_link_bandwidth", 0.0) * 1e6, 0.0)
        self.tiers = {tier.name: tier for tier in inputs.storage if tier is not None}
        self.node_rate = chip.intra_node_bw_gbps * 1e9
        between = inputs.fabric.inter_node_bw_gbps * 1e9 if inputs.fabric else 0.0
        self.fabric_rate = between if between > 0 else self.node_rate
        self.one_rack = chip.gpus_per_rack > 0 and chip.intra_rack_bw_gbps > 0
        # The least time of a handoff is that of the expert group's all-to-all.
        self.floor_ns = int(oracle.part.triples["alltoall", EXPERT].floor * 10**9)

    def tier_ns(self, name: str, direction: str, bytes: int, depth: int) -> int:
        """One of `depth` equal transfers at once."""
        tier = self.tiers.get(name)
        if tier is None:
            return INT64_MAX
        written = direction == Direction.TO_TIER
        rate = (tier.write_bandwidth_mb_s if written else tier.read_bandwidth_mb_s) * 1e6
        if 0 < self.host_rate < rate:
            rate = self.host_rate
        if depth > 1:
            rate = rate / depth
        seconds = tier.base_latency_us * 1e-6
        if bytes > 0:
            seconds = max(seconds, bytes / rate) if rate > 0 else math.inf
        return nanoseconds(seconds)

    def demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        """What the handoff of a request of `tokens` tokens asks of the links between two ranks."""
        if tokens <= 0:
            return TransferDemand(0, 0, self._links(source, target))
        return TransferDemand(self.caches.moved(tokens), self.floor_ns, self._links(source, target))

    def _links(self, source: Placement, target: Placement) -> tuple[LinkUse, ...]:
        if source.node == target.node:
            return (LinkUse(f"nvlink of node {source.node}", self.node_rate),)
        if self.one_rack and source.rack == target.rack:
            return (LinkUse(f"nvlink of rack {source.rack}", self.node_rate),)
        return tuple(LinkUse(f"nic of node {end.node}", self.fabric_rate) for end in (source, target))


class HostWork:
    """Host work around the steps, whole nanoseconds."""

    def __init__(self, oracle: Oracle) -> None:
        self.request, self.token, self.output, self.completion = (
            oracle.coefficients.whole_nanoseconds(f"host_{name}")
            for name in ("admission_per_request", "admission_per_token", "output_token", "completion")
        )

    def admission_ns(self, tokens: int) -> int:
        return whole(self.request + int(float(self.token) * tokens)) if tokens > 0 else 0
