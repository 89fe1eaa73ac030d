"""The coefficient set `other-vendors`: the least that lets a cost model open these chips, and what each entry rests on.

Nobody has published the sweeps that the registry has for NVIDIA parts. So there are four kinds of entries: matmul
efficiency from the literature, the host link from data sheets, what belongs to the engine more than to the part copied
from a part that the registry knows, and collectives assumed from link rates. Everything else is left out, and a kernel
discloses what it does not charge for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pykernel.documents import Chip, Coefficient, CoefficientSet, CoefficientSource, Scope
from pykernel.registry import build

NAME = "other-vendors"

DONOR = "h200"
"""The part whose engine figures are copied: as new, on the same host link, and with the most entries measured."""

COPIED = {
    "cost-model-memory": "",
    "cost-model-host-overheads": "",
    "cost-model-primitives": "gemm_m_half_bf16 gemm_m_half_fp8 hbm_derate engine_workspace_bytes "
    "nccl_communicator_bytes_2rank nccl_communicator_bytes_4rank nccl_communicator_bytes_8rank",
}
"""By set of the registry: the entries that are copied, all where none is named."""

MATMUL_TFLOPS = {"mi300x": 668.4, "mi325x": 784.9, "mi355x": 1565.0, "gaudi3": 1243.0}
"""The most that a BF16 matmul was seen to reach on the part, TFLOP/s."""

MATMUL_SOURCE = CoefficientSource(
    "publication",
    "stas00/ml-engineering at 744d01e1, compute/accelerator/README.md, table of maximum achievable matmul FLOPS",
    "primary",
)

HOST_LINK = {
    **dict.fromkeys(("mi300x", "mi325x", "mi355x"), "AMD Instinct product pages, bus interface PCIe 5.0 x16"),
    "gaudi3": "Intel Gaudi 3 at Hot Chips 2024, host interface PCIe Gen5 x16, 128 GB/s bidirectional",
}
HOST_LINK_BYTES_PER_US = 64_000.0

PEERS = 7
"""Other accelerators of a node. Each pair is joined by links of its own, so a group of n has n - 1 of 7 shares."""

LINK_SHARE = 0.698
"""Of the link rate in an all-reduce of 4 GiB over 8 MI300X: 312.9 of 448 GB/s (network/README.md, same commit)."""

WIDTHS = (2, 4, 8)
PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
"""How often a collective moves (n - 1) / n of its bytes over the links of a rank."""


def other_vendors(chips: list[Chip]) -> CoefficientSet:
    """The set for these chips."""
    entries = [*_copied([chip.name for chip in chips])]
    for chip in chips:
        entries += [*_efficiency(chip), _host_link(chip), *_collectives(chip)]
    return CoefficientSet(CoefficientSet.KIND, NAME, entries)


@cache
def _donated(set_name: str) -> tuple[Coefficient, ...]:
    """What a set of the registry has for the donor."""
    found = build({}).document("coefficient_sets", set_name).coefficients
    return tuple(entry for entry in found if DONOR in entry.scope.hardware)


def _copied(names: list[str]) -> Iterator[Coefficient]:
    for set_name, wanted in COPIED.items():
        for entry in _donated(set_name):
            if not wanted or entry.name in wanted.split():
                copied = Coefficient(entry.name, entry.value, entry.units, "copied", False, Scope(hardware=names))
                copied.copied_from = f"{set_name}, hardware: {DONOR}"
                copied.rationale = "Nothing is published for the part; the engine's figure on another is kept."
                if entry.method == "not_charged":
                    copied.method, copied.copied_from = "not_charged", ""
                yield copied


def _efficiency(chip: Chip) -> Iterator[Coefficient]:
    share = round(MATMUL_TFLOPS[chip.name] / chip.tflops_peak, 3)
    scope = Scope(hardware=[chip.name])
    yield Coefficient(
        "gemm_eps_max_bf16",
        share,
        "dimensionless",
        "literature",
        False,
        scope,
        sources=[MATMUL_SOURCE],
        rationale=f"{MATMUL_TFLOPS[chip.name]} TFLOP/s over the chip document's peak; plain matmul of PyTorch.",
    )
    if chip.tflops_fp8:
        rationale = "No FP8 matmul is published for the part; its 16-bit share of the peak is kept."
        yield Coefficient("gemm_eps_max_fp8", share, "dimensionless", "assumed", False, scope, rationale=rationale)


def _host_link(chip: Chip) -> Coefficient:
    return Coefficient(
        "host_link_bandwidth",
        HOST_LINK_BYTES_PER_US,
        "bytes_per_us",
        "vendor_spec",
        False,
        Scope(hardware=[chip.name]),
        sources=[CoefficientSource("datasheet", HOST_LINK[chip.name], "primary")],
        rationale="32 GT/s on 16 lanes, one way, before encoding: an upper limit, as the registry states other parts.",
    )


def _collectives(chip: Chip) -> Iterator[Coefficient]:
    """Floors of the donor, and one rate at any size: the share of the links that a group of this width has."""
    donor = {entry.name: entry.value for entry in _donated("cost-model-collectives")}
    for operation, passes in PASSES.items():
        for width in WIDTHS:
            links = chip.intra_node_bw_gbps / PEERS * (width - 1)
            rate = round(LINK_SHARE * links * 1e3 / (passes * (width - 1) / width), 1)
            name = f"{operation}_fp16_{width}rank"
            rationale = (
                f"{LINK_SHARE} of {width - 1} of {PEERS} shares of the node's links, as 8 MI300X reach at 4 GiB."
            )
            yield _of_collective(chip, f"floor_{name}", donor[f"collective_floor_{name}_{DONOR}"], "")
            yield _of_collective(chip, f"transition_rate_{name}", rate, rationale)
            yield _of_collective(chip, f"peak_rate_{name}", rate, rationale)


def _of_collective(chip: Chip, name: str, value: float, rationale: str) -> Coefficient:
    full, scope = f"collective_{name}_{chip.name}", Scope(hardware=[chip.name])
    if rationale:
        return Coefficient(full, value, "bytes_per_us", "assumed", False, scope, rationale=rationale)
    entry = Coefficient(full, value, "us_per_transfer", "copied", False, scope)
    entry.copied_from = f"cost-model-collectives, hardware: {DONOR}"
    entry.rationale = "No latency of small collectives is published for the part; another's is kept."
    return entry
