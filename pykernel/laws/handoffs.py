"""Checks of handoffs, to be called from a test of one's own: the cases, one demand, and two models on one link.

Each raises `AssertionError` with all that is wrong. They use what a model returns and trust none of its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pykernel.interface import INT64_MAX, Placement
from pykernel.laws.observations import HANDOFF_TOKENS, PLACEMENTS


@dataclass(frozen=True, slots=True)
class PDCase:
    """One handoff: so many tokens from one placement to another."""

    tokens: int
    source: Placement
    target: Placement
    name: str = ""

    def __str__(self) -> str:
        return f"{self.tokens} tokens, {self.name}"


def pd_cases(placements: Iterable[str] = tuple(PLACEMENTS)) -> list[PDCase]:
    """The cases of a sweep: within a node, a rack, and between racks; 0, 1, a block's and up to 131,072 tokens."""
    return [PDCase(tokens, *PLACEMENTS[name], name) for name in placements for tokens in HANDOFF_TOKENS]


def alone_time_ns(demand: Any) -> int:
    """Time of a demand on idle links, ns: the floor or the bytes at the slowest rate, whichever is longer."""
    if not demand.links:
        return int(demand.floor_ns)
    seconds = demand.floor_ns // 10**9 + (demand.floor_ns % 10**9) / 1e9
    if demand.bytes > 0:
        rate = min(use.bytes_per_second for use in demand.links)
        seconds = max(seconds, demand.bytes / rate if rate > 0 else math.inf)
    ns = seconds * 1e9
    return int(ns) if ns < 2.0**63 else INT64_MAX


def complaints(demand: Any) -> Iterator[str]:
    """What is wrong with the form of a demand."""
    for name in ("bytes", "floor_ns"):
        value = getattr(demand, name)
        if not isinstance(value, int) or value < 0:
            yield f"{name} is {value!r}"
    if demand.bytes > 0 and not demand.links:
        yield f"{demand.bytes} bytes cross no link"
    names = [use.link for use in demand.links]
    if len(set(names)) < len(names) or not all(names):
        yield f"links are {names}"
    for use in demand.links:
        if not (math.isfinite(use.bytes_per_second) and use.bytes_per_second > 0):
            yield f"the rate of link {use.link} is {use.bytes_per_second}"


def check_pd_transfer(model: Any, case: PDCase) -> None:
    """Raise unless one handoff is well formed, repeats, and takes the time of its demand."""
    demands = [model.pd_transfer_demand(case.tokens, case.source, case.target) for _ in range(2)]
    found = list(complaints(demands[0]))
    if demands[0] != demands[1]:
        found.append(f"two calls differ: {demands[0]} and {demands[1]}")
    ns, expected = model.pd_transfer_time_ns(case.tokens, case.source, case.target), alone_time_ns(demands[0])
    if ns != expected:
        found.append(f"it takes {ns} ns, its demand {expected} ns")
    _fail(f"{case}: {one}" for one in found)


def check_links_agree(first: Any, second: Any, tokens: int, source: Placement, target: Placement) -> None:
    """Raise unless two models of one deployment name the links of a handoff alike, at the same rates."""
    demands = [model.pd_transfer_demand(tokens, source, target) for model in (first, second)]
    found = [complaint for demand in demands for complaint in complaints(demand)]
    links = [{(use.link, use.bytes_per_second) for use in demand.links} for demand in demands]
    if links[0] != links[1]:
        found.append(f"links differ: {sorted(links[0])} and {sorted(links[1])}")
    _fail(found)


def test_pd_transfer(model: Any, cases: Iterable[PDCase]) -> None:
    """Raise unless every handoff is sound, and those of one placement move no fewer bytes with more tokens."""
    listed = list(cases)
    if not listed:
        raise AssertionError("there are no cases")
    for case in listed:
        check_pd_transfer(model, case)
    pairs: dict[tuple[Placement, Placement], list[PDCase]] = {}
    for case in listed:
        pairs.setdefault((case.source, case.target), []).append(case)
    for ends, group in pairs.items():
        before = 0
        for case in sorted(group, key=lambda one: one.tokens):
            moved = model.pd_transfer_demand(case.tokens, *ends).bytes
            if moved < before:
                raise AssertionError(f"{case}: {moved} bytes, and {before} with fewer tokens")
            before = moved


test_pd_transfer.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test where it is imported


def _fail(found: Iterable[str]) -> None:
    listed = list(found)
    if listed:
        raise AssertionError("\n".join(listed))
