"""The coefficients of the measured laws: found in the bundled sets of a part, with a stated fallback where it has none.

A law is the values of one form's parameters by name, in the units of the registry; `csrc/pykernel.h` says what each
does. The sets come with the package, one for a part, and are used beside those that a scenario lists. What a part was
not measured for, it takes from the measured part most like it: efficiencies are fractions of a part's own peaks, so
that is how well a kernel uses them, and the microseconds that it starts with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pykernel.documents import Chip
from pykernel.documents.coefficients import Coefficient
from pykernel.documents.hardware import load_chip
from pykernel.documents.recent import load_set
from pykernel.documents.repos import Repos
from pykernel.errors import RefusedError
from pykernel.interface import CoefficientOrigin
from pykernel.resolve.record import Record

PREFIX = "calibrated"
HOST_SET = "calibrated-host"

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")

SLICED, DEALT = "sliced_experts", "dealt_experts"
EXPERT_PRIMITIVES = (SLICED, DEALT)
"""Experts of a rank: a slice of every one, or some of them whole. Engines choose a kernel by that (block FP8 on Hopper
runs Triton's for slices and FlashInfer's for whole ones: vllm fused_moe/oracle/fp8.py), and one that runs for both has
more to do where tokens may belong to other ranks."""
_EXPERT_FALLBACKS: dict[str, tuple[str, ...]] = {
    "fp8_block": ("fp8", "bf16"),
    "fp8": ("fp8_block", "bf16"),
    "nvfp4": ("mxfp4", "int4", "bf16"),
    "mxfp4": ("int4", "bf16"),
    "int4": ("mxfp4", "bf16"),
    "int8": ("int4", "bf16"),
}

FALLBACKS: dict[tuple[str, str], tuple[str, ...]] = {
    ("gemm", "fp8_block"): ("fp8", "bf16"),
    ("gemm", "fp8"): ("fp8_block", "bf16"),
    ("gemm", "nvfp4"): ("fp8", "bf16"),
    **{(primitive, own): other for primitive in EXPERT_PRIMITIVES for own, other in _EXPERT_FALLBACKS.items()},
    ("decode", "fp8"): ("bf16",),
    ("prefill", "fp8"): ("bf16",),
    ("latent_decode", "fp8"): ("bf16",),
    ("latent_prefill", "fp8"): ("bf16",),
    ("sparse", "fp8"): (),
    ("indexer", "fp8"): (),
    ("all_reduce", "graph"): ("nccl",),
}
"""For a primitive in one format: the formats whose coefficients stand in, best first."""

OTHER_PRIMITIVES = {
    DEALT: (SLICED, ""),
    "sparse": ("latent_decode", "fp8"),
    "indexer": ("decode", "fp8"),
    "mamba2_decode": ("gdn_decode", "bf16"),
    "mamba2_prefill": ("gdn_prefill", "bf16"),
    "kda_decode": ("gdn_decode", "bf16"),
    "kda_prefill": ("gdn_prefill", "bf16"),
}
"""The primitive and format that stand in where one is not measured on a part at all; "" for its own format."""

PCIE_GBPS = 64.0
"""One direction of PCIe Gen5 x16; links of a part that are no faster are PCIe."""
SWITCH_RANKS = 2
"""Parts that hang from one PCIe switch of a server without NVLink."""

Law = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PartLaws:
    """What one part was measured for."""

    part: str
    set_name: str
    entries: dict[str, dict[str, Coefficient]]
    """By law ("gemm_bf16"), then by parameter."""

    def nearest(self, primitive: str, suffix: str) -> tuple[str, str]:
        """The law of a primitive in a format or of the nearest that stands in for it, and its format; "" for none."""
        for stand_in, other in ((primitive, suffix), OTHER_PRIMITIVES.get(primitive, ("", ""))):
            for candidate in (other or suffix, *FALLBACKS.get((stand_in, other or suffix), ())):
                if f"{stand_in}_{candidate}" in self.entries:
                    return f"{stand_in}_{candidate}", candidate
        return "", ""


@dataclass(slots=True)
class MeasuredLaws:
    """The laws of one chip. Asking for one records where it came from, once."""

    chip: Chip
    record: Record
    parts: dict[str, PartLaws] = field(default_factory=dict)
    """Those that were looked at."""
    used: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """By what was asked for: the part, its law, and the format of that."""

    def law(self, primitive: str, suffix: str) -> tuple[Law, str]:
        """The coefficients of a primitive in a format, and the format they were fitted in.

        Raises `RefusedError` where neither the format nor any that could stand in was measured on any part.
        """
        asked = f"{primitive}_{suffix}"
        if asked not in self.used:
            self.used[asked] = self._find(primitive, suffix)
        part, found, number_format = self.used[asked]
        return {name: entry.value for name, entry in self.parts[part].entries[found].items()}, number_format

    def _find(self, primitive: str, suffix: str) -> tuple[str, str, str]:
        asked, likest = f"{primitive}_{suffix}", likest_parts(self.chip, links=primitive in COLLECTIVES)
        for part in likest:
            found, number_format = self.of(part).nearest(primitive, suffix)
            if not found:
                continue
            if part != likest[0]:
                reason = f"{asked} and what is near it are not measured on {likest[0]}; the likest part where they are"
                self.record.assume(f"{PREFIX}_{asked}", f"{found} of {part}", reason)
            elif found != asked:
                reason = f"{asked} is not measured on {part}; the nearest that is"
                self.record.assume(f"{PREFIX}_{asked}", found, reason)
            return part, found, number_format
        raise RefusedError(
            f"the model calibrated has no coefficients of {primitive} in {suffix}; the cost model blis prices this "
            "deployment",
            "cluster.hardware",
        )

    def of(self, part: str) -> PartLaws:
        """What a measured part was measured for."""
        if part not in self.parts:
            self.parts[part] = _load_part(part)
        return self.parts[part]

    def names(self, primitive: str, suffix: str) -> list[str]:
        """The coefficients behind a law that was asked for."""
        part, found, _ = self.used.get(f"{primitive}_{suffix}", ("", "", ""))
        return [entry.name for entry in self.parts[part].entries[found].values()] if part else []

    def origins(self) -> list[CoefficientOrigin]:
        """Every coefficient of the laws that were asked for, by name."""
        found = []
        for part, law in sorted({(part, law) for part, law, _ in self.used.values()}, key=lambda used: used[::-1]):
            laws = self.parts[part]
            for entry in laws.entries[law].values():
                scope = f"hardware: {', '.join(entry.scope.hardware)}" if entry.scope.hardware else "unscoped"
                found.append(CoefficientOrigin(entry.name, laws.set_name, entry.method, scope))
        return found


def experts_primitive(ranks: int) -> str:
    """The primitive of experts that are dealt to so many ranks."""
    return DEALT if ranks > 1 else SLICED


def over_heads(values: Law, width: float, regroups: bool) -> Law:
    """A law of streams at one width of head; `regroups` where the heads of a group are copied together first."""
    own = dict(values)
    own["floor"] += own.pop("per_width", 0.0) * width
    own["per_stream"] += own.pop("per_stream_width", 0.0) * width
    if not regroups:
        own.pop("regroup", None)
    return own


def over_links(values: Law, ranks: int) -> tuple[Law, float]:
    """A law of links among so many ranks, and the fraction of its link that each gets: those that no PCIe switch holds
    together share the bridge of their host."""
    own = dict(values)
    share, bridge = own.pop("link_efficiency"), own.pop("bridge_efficiency", None)
    return own, share if bridge is None or ranks <= SWITCH_RANKS else bridge / ranks


@dataclass(frozen=True, slots=True)
class HostConstants:
    """What no kernel table holds, fitted to served rows: microseconds, and the share of the kernels' sum."""

    values: Mapping[str, float]
    origins: tuple[CoefficientOrigin, ...]

    def names(self, *wanted: str) -> tuple[str, ...]:
        """The full names of these constants."""
        return tuple(one.name for one in self.origins if one.name.rsplit(".", 1)[1] in wanted)


def measured_laws(chip: Chip, record: Record) -> MeasuredLaws:
    """The laws of a chip; of one without tables those of the parts most like it, which the record says."""
    if chip.name.lower() not in measured_parts():
        kernels, links = likest_parts(chip)[0], likest_parts(chip, links=True)[0]
        reason = f"{chip.name} has no tables; its own peaks are used as well as by the part most like it"
        record.assume(f"{PREFIX}_part", kernels if kernels == links else f"{kernels}, links of {links}", reason)
    return MeasuredLaws(chip, record)


def likest_parts(chip: Chip, *, links: bool = False) -> list[str]:
    """The measured parts, those most like a chip first: itself, then by the ratios of FLOP/s, memory rate and SMs; with
    `links` by PCIe or NVLink and the ratio of rates before that."""

    def unlike(part: str) -> tuple[bool, bool, float, float]:
        other = measured_parts()[part]
        bridged = (chip.intra_node_bw_gbps <= PCIE_GBPS) != (other.intra_node_bw_gbps <= PCIE_GBPS)
        link = abs(math.log(chip.intra_node_bw_gbps / other.intra_node_bw_gbps))
        ratios = (
            chip.tflops_peak / other.tflops_peak,
            chip.bw_peak_tbs / other.bw_peak_tbs,
            chip.sm_count / other.sm_count,
        )
        kernels = math.hypot(*map(math.log, ratios))
        return part != chip.name.lower(), links and bridged, link if links else 0, kernels

    return sorted(measured_parts(), key=unlike)


@cache
def measured_parts() -> Mapping[str, Chip]:
    """The parts that have tables, by name."""
    hardware = Repos().catalog_root() / "hardware"
    stems = sorted(path.stem for path in _set_path("").parent.glob(f"{PREFIX}-*.yaml"))
    names = [stem.removeprefix(f"{PREFIX}-") for stem in stems if stem != HOST_SET]
    return {name: load_chip(hardware / f"{name}.yaml") for name in names}


def _set_path(part: str) -> Path:
    return Repos().registry_root() / "coefficients" / f"{PREFIX}-{part}.yaml"


def _load_part(part: str) -> PartLaws:
    entries: dict[str, dict[str, Coefficient]] = {}
    for entry in load_set(_set_path(part)).coefficients:
        law, parameter = _split(entry.name)
        entries.setdefault(law, {})[parameter] = entry
    return PartLaws(part, _set_path(part).stem, entries)


def _split(name: str) -> tuple[str, str]:
    """`calibrated.gemm_bf16.floor` names the parameter `floor` of the law `gemm_bf16`."""
    _, law, parameter = name.split(".")
    return law, parameter


def host_constants(engine: str) -> HostConstants:
    """The serving constants of an engine, the same for every part. Raises `RefusedError` for an engine without any."""
    path = Repos().registry_root() / "coefficients" / f"{HOST_SET}.yaml"
    laws: dict[str, dict[str, Coefficient]] = {}
    for entry in load_set(path).coefficients:
        law, name = _split(entry.name)
        laws.setdefault(law, {})[name] = entry
    if f"host_{engine}" not in laws:
        engines = sorted(law.removeprefix("host_") for law in laws if law.startswith("host_"))
        raise RefusedError(f"no host constants of the engine {engine}; there are those of {', '.join(engines)}")
    entries = laws["routing"] | laws[f"host_{engine}"]
    origins = tuple(CoefficientOrigin(entry.name, path.stem, entry.method, "unscoped") for entry in entries.values())
    return HostConstants({name: entry.value for name, entry in entries.items()}, origins)
