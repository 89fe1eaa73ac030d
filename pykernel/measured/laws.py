"""The coefficients of the measured laws: found in the bundled sets of a part, with a stated fallback where it has none.

A law is the values of one form's parameters by name, in the units of the registry; `csrc/pykernel.h` says what each
does. The sets come with the package, one for a part, and are used beside those that a scenario lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pykernel.documents import Chip
from pykernel.documents.coefficients import Coefficient, load
from pykernel.documents.repos import Repos
from pykernel.errors import RefusedError
from pykernel.interface import CoefficientOrigin
from pykernel.resolve.record import Record

PREFIX = "calibrated"
HOST_SET = "calibrated-host"

NEAREST_PARTS = {"a100-80": "a100-sxm"}
"""Parts without tables of their own, and the part of the same architecture whose fractions of peak they take."""

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
    "sparse": ("latent_decode", "fp8"),
    "indexer": ("decode", "fp8"),
    "mamba2_decode": ("gdn_decode", "bf16"),
    "mamba2_prefill": ("gdn_prefill", "bf16"),
    "kda_decode": ("gdn_decode", "bf16"),
    "kda_prefill": ("gdn_prefill", "bf16"),
}
"""The primitive that stands in where one is not measured on a part at all."""

PCIE_GBPS = 64.0
"""One direction of PCIe Gen5 x16; links of a part that are no faster are PCIe."""
SWITCH_RANKS = 2
"""Parts that hang from one PCIe switch of a server without NVLink."""

Law = Mapping[str, float]


@dataclass(slots=True)
class MeasuredLaws:
    """The laws of one part. Asking for one records where it came from, once."""

    chip: str
    part: str
    entries: dict[str, dict[str, Coefficient]]
    """By law ("gemm_bf16"), then by parameter."""
    set_name: str
    record: Record
    used: dict[str, str] = field(default_factory=dict)

    def law(self, primitive: str, suffix: str) -> tuple[Law, str]:
        """The coefficients of a primitive in a format, and the format they were fitted in.

        Raises `RefusedError` where neither the format nor any that could stand in was measured on the part.
        """
        for stand_in, other in ((primitive, suffix), OTHER_PRIMITIVES.get(primitive, ("", ""))):
            for candidate in (other, *FALLBACKS.get((stand_in, other), ())):
                entries = self.entries.get(f"{stand_in}_{candidate}")
                if entries:
                    self._note(f"{primitive}_{suffix}", f"{stand_in}_{candidate}")
                    return {name: entry.value for name, entry in entries.items()}, candidate
        raise RefusedError(
            f"the model calibrated has no coefficients of {primitive} in {suffix} for {self.part}; the cost model blis "
            "prices this deployment",
            "cluster.hardware",
        )

    def _note(self, asked: str, found: str) -> None:
        if asked in self.used:
            return
        self.used[asked] = found
        if asked != found:
            self.record.assume(
                f"{PREFIX}_{asked}", found, f"{asked} is not measured on {self.part}; the nearest that is"
            )

    def names(self, primitive: str, suffix: str) -> list[str]:
        """The coefficients behind a law that was asked for."""
        return [entry.name for entry in self.entries.get(self.used.get(f"{primitive}_{suffix}", ""), {}).values()]

    def origins(self) -> list[CoefficientOrigin]:
        """Every coefficient of the laws that were asked for, by name."""
        found = []
        for law in sorted(set(self.used.values())):
            for entry in self.entries[law].values():
                scope = f"hardware: {', '.join(entry.scope.hardware)}" if entry.scope.hardware else "unscoped"
                found.append(CoefficientOrigin(entry.name, self.set_name, entry.method, scope))
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
    """The laws of a part. Raises `RefusedError` for one that was never measured and has no neighbour that was."""
    part = NEAREST_PARTS.get(chip.name, chip.name)
    path = Repos().registry_root() / "coefficients" / f"{PREFIX}-{part}.yaml"
    if not path.is_file():
        known = sorted(p.stem.removeprefix(f"{PREFIX}-") for p in path.parent.glob(f"{PREFIX}-*.yaml"))
        known.remove(HOST_SET.removeprefix(f"{PREFIX}-"))
        raise RefusedError(
            f"the model calibrated has no coefficients for {chip.name}; it has them for {', '.join(known)}",
            "cluster.hardware",
        )
    if part != chip.name:
        record.assume(f"{PREFIX}_part", part, f"{chip.name} has no tables; fractions of peak are those of {part}")
    entries: dict[str, dict[str, Coefficient]] = {}
    for entry in load(path).coefficients:
        law, parameter = _split(entry.name)
        entries.setdefault(law, {})[parameter] = entry
    return MeasuredLaws(chip.name, part, entries, path.stem, record)


def _split(name: str) -> tuple[str, str]:
    """`calibrated.gemm_bf16.floor` names the parameter `floor` of the law `gemm_bf16`."""
    _, law, parameter = name.split(".")
    return law, parameter


def host_constants(engine: str) -> HostConstants:
    """The serving constants of an engine, the same for every part."""
    path = Repos().registry_root() / "coefficients" / f"{HOST_SET}.yaml"
    laws = ("routing", f"host_{engine}")
    entries = {name: entry for entry in load(path).coefficients for law, name in [_split(entry.name)] if law in laws}
    origins = tuple(CoefficientOrigin(entry.name, path.stem, entry.method, "unscoped") for entry in entries.values())
    return HostConstants({name: entry.value for name, entry in entries.items()}, origins)
