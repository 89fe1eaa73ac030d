"""Fitting everything: each target on each part, held-out errors, and the sets that come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pykernel.documents import CoefficientSet
from pykernel.errors import ArgumentError
from pykernel.fit.families import Target, targets
from pykernel.fit.robust import Fit, Sample, fit
from pykernel.fit.sets import entries, set_of
from pykernel.fit.tables import PARTS, Tables, chip_of


@dataclass(frozen=True, slots=True)
class Result:
    """One law fitted on one part."""

    target: Target
    part: str
    fit: Fit
    source: str

    @property
    def name(self) -> str:
        return f"{self.target.name} {self.part}"


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A primitive over the parts: the median of their held-out medians, and the part that is worst."""

    group: str
    median: float
    p90: float
    worst: float
    worst_part: str
    parts: int


def fit_all(
    tables: Tables, parts: Iterable[str] = (), only: str = "", progress: Callable[[str], None] = lambda line: None
) -> list[Result]:
    """Fit every target that the tables hold, for every part or those named. `only` keeps the laws that contain it."""
    wanted = set(parts)
    folders = [folder for folder, part in PARTS.items() if not wanted or part in wanted]
    jobs = [(target, folder) for target in targets() if only in target.name for folder in folders]
    return list(_fitted(tables, jobs, progress))


def _fitted(tables: Tables, jobs: list[tuple[Target, str]], progress: Callable[[str], None]) -> Iterator[Result]:
    for number, (target, folder) in enumerate(jobs, 1):
        chip = chip_of(folder)
        target = target.on(chip)
        part = target.part(chip)
        sample = _sample(target, tables, folder) if part.peak_flops > 0 else None
        if sample is None or len(sample) < target.least:
            progress(f"[{number}/{len(jobs)}] {target.name} {chip.name}: no table")
            continue
        found = fit(f"{target.name} {chip.name}", target.form, sample, part)
        progress(
            f"[{number}/{len(jobs)}] {target.name} {chip.name}: {found.points} shapes fitted, "
            f"{len(found.held_out)} held out, median {found.median:.1%}, p90 {found.p90:.1%}"
        )
        yield Result(target, chip.name, found, sample.source)


def _sample(target: Target, tables: Tables, folder: str) -> Sample | None:
    try:
        return target.sample(tables, folder)
    except KeyError as column:
        raise ArgumentError(f"the table of {target.name} in {tables.root / folder} has no column {column}") from None


def sets(results: list[Result]) -> list[CoefficientSet]:
    """One set a part, laws in the order in which they were fitted."""
    made = []
    for part in PARTS.values():
        own = [entry for r in results if r.part == part for entry in entries(r.target, part, r.fit, r.source)]
        if own:
            made.append(set_of(part, own))
    return made


def summaries(results: list[Result]) -> list[GroupSummary]:
    """Each group's held-out errors: a part counts once, by the median over its formats."""
    found = []
    for group in dict.fromkeys(r.target.group for r in results):
        own = [r for r in results if r.target.group == group]
        parts = sorted({r.part for r in own})
        medians = {part: float(np.median([r.fit.median for r in own if r.part == part])) for part in parts}
        p90s = [float(np.median([r.fit.p90 for r in own if r.part == part])) for part in parts]
        worst = max(parts, key=lambda part: medians[part])
        found.append(
            GroupSummary(
                group,
                float(np.median(list(medians.values()))),
                float(np.median(p90s)),
                medians[worst],
                worst,
                len(parts),
            )
        )
    return found
