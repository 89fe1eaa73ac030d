"""The links and storage tiers that cache blocks travel over, in bytes per second.

Storage files say megabytes (powers of ten) per second, hardware files gigabytes per second, one direction and GPU
(inference-sim/blis-catalog 0.2.1); the registry says bytes per microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Chip, Fabric, StorageTier
from pykernel.resolve.coefficients import Coefficients
from pykernel.resolve.laws import CollectiveLaw
from pykernel.resolve.layout import Layout

LONGEST_TIER_NAME = 63  # bytes of UTF-8


@dataclass(frozen=True, slots=True)
class Tier:
    """A storage tier; `latency_us` is the least time of a transfer."""

    name: str
    read_bytes_per_second: float
    write_bytes_per_second: float
    latency_us: float


@dataclass(frozen=True, slots=True)
class Links:
    """What caches move over. `host_bytes_per_second` is 0 where nothing bounds a tier but itself."""

    tiers: tuple[Tier, ...]
    host_bytes_per_second: float
    node_bytes_per_second: float
    fabric_bytes_per_second: float
    handoff_floor_ns: int
    rack_is_one_domain: bool


def resolve_links(
    storage: list[StorageTier],
    chip: Chip,
    fabric: Fabric | None,
    layout: Layout,
    dispatch: CollectiveLaw,
    coefficients: Coefficients,
) -> Links:
    """The links of a deployment; every storage class counts, whether or not the deployment offloads to it.

    `dispatch` is the all-to-all of the expert group, whose floor is the least time of a handoff.
    """
    tiers = {tier.name: tier for tier in storage if tier is not None}
    node = chip.intra_node_bw_gbps * 1e9
    between = fabric.inter_node_bw_gbps * 1e9 if fabric is not None else 0.0
    host = coefficients.get("host_link_bandwidth", 0.0) * 1e6
    return Links(
        tiers=tuple(
            Tier(
                name,
                tier.read_bandwidth_mb_s * 1e6,
                tier.write_bandwidth_mb_s * 1e6,
                tier.base_latency_us,
            )
            for name, tier in tiers.items()
        ),
        host_bytes_per_second=max(host, 0.0),
        node_bytes_per_second=node,
        fabric_bytes_per_second=between if between > 0 else node,
        handoff_floor_ns=dispatch.floor_ns,
        rack_is_one_domain=layout.rack_domain,
    )
