"""Which measured collective prices which group: widths that the registry has complete, and the one that is taken.

A width is measured where floor, transition rate and peak rate are all in scope, so the widths of a part are found in
the registry and not listed here (inference-sim/blis-registry, cost-model-collectives).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pykernel.resolve.context_parallel import combining_operation
from pykernel.resolve.layout import Layout

WIDEST_SWEPT_GROUP = 16
"""Collectives were measured at 2, 4, 8 and 16 ranks; a wider group uses the widest that its part has."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One collective over one group: its width, the widths measured, and the one that prices it (0 for none)."""

    operation: str
    group: str
    width: int
    measured: tuple[int, ...]

    @property
    def chosen(self) -> int:
        if not self.measured:
            return 0
        if self.width <= self.measured[0]:
            return self.measured[0]
        if self.width in self.measured:
            return self.width
        return self.measured[-1] if self.width > WIDEST_SWEPT_GROUP else 0


def part_in_names(names: Iterable[str], chip: str) -> str:
    """The chip as the names of its collectives end: an underscore for each hyphen, and in the names' own letter case
    where they are not written like the chip, since scopes compare parts without case too."""
    suffix = chip.replace("-", "_")
    ending = f"rank_{suffix}".lower()
    spellings = {
        name[-len(suffix) :] for name in names if name.startswith("collective_") and name.lower().endswith(ending)
    }
    return suffix if suffix in spellings or not spellings else min(spellings)


def find_sweeps(names: Collection[str], layout: Layout, combine: str, chip: str) -> list[Sweep]:
    """The collectives that this layout may launch, with the widths that `names` measure."""
    measured: dict[str, tuple[int, ...]] = {}
    found = []
    for operation, group in _collectives(layout, combine):
        if operation not in measured:
            measured[operation] = tuple(measured_widths(names, operation, chip))
        found.append(Sweep(operation, group, layout.groups[group].width, measured[operation]))
    return found


def _collectives(layout: Layout, combine: str) -> list[tuple[str, str]]:
    """Operations and groups; the first four are looked up even on one GPU."""
    wanted = [("all_reduce", "tensor"), ("all_gather", "tensor"), ("reduce_scatter", "tensor"), ("alltoall", "expert")]
    if layout.dcp > 1:
        wanted += [("all_gather", "decode_context"), (combining_operation(layout, combine), "decode_context")]
    if layout.pcp > 1:
        wanted.append(("all_gather", "prefill_context"))
    return wanted


def measured_widths(names: Collection[str], operation: str, chip: str) -> list[int]:
    """Group widths for which floor, transition rate and peak rate of an operation are all in scope, ascending."""
    suffix = part_in_names(names, chip)
    floor = re.compile(rf"collective_floor_{operation}_fp16_([1-9]\d*)rank_{re.escape(suffix)}")
    prefix = f"collective_floor_{operation}_"  # looked at first, since most names are of other things
    widths = [int(match[1]) for name in names if name.startswith(prefix) and (match := floor.fullmatch(name))]
    return sorted(
        width
        for width in widths
        if all(
            f"collective_{part}_{operation}_fp16_{width}rank_{suffix}" in names
            for part in ("peak_rate", "transition_rate")
        )
    )
