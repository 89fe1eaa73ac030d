"""What a model may do breaks no law: each oddity is a model of its own, and holds every law that could object."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

import pykernel
from pykernel import Batch, Placement, StepEstimate, TransferDemand
from pykernel.documents import Inputs
from pykernel.interface import RESOURCES, CostModel
from pykernel.laws import LAWS, check_model

from .mutants.making import DENSE, Wrapper, made, taken, totalled


class Odd(Wrapper):
    """A correct model with something allowed about it, which makes it another than the BLIS model."""

    lacks = frozenset({"blis"})
    step_time_many = CostModel.step_time_many

    def step_time(self, batch: Batch) -> Any:
        return made(self.change(taken(self.kernel.step_time(batch)), batch))

    def change(self, values: dict[str, Any], batch: Batch) -> dict[str, Any]:
        return values


class Ties(Odd):
    """A second resource is as long as the longest, and is called the bottleneck."""

    def change(self, values: dict[str, Any], batch: Batch) -> dict[str, Any]:
        values["copy_engine"] = max(values[name] for name in RESOURCES)
        totalled(values)
        return {**values, "most": "copy_engine"}


class Estimate:
    """An estimate whose map is what it was given."""

    def __init__(self, right: StepEstimate, resources: dict[str, int]) -> None:
        self.overlap_ns, self.no_overlap_ns, self.bottleneck = right.overlap_ns, right.no_overlap_ns, right.bottleneck
        self.per_resource_ns = resources


class LeavesZerosOut(Odd):
    def step_time(self, batch: Batch) -> Any:
        right = self.kernel.step_time(batch)
        return Estimate(right, {name: ns for name, ns in right.per_resource_ns.items() if ns})

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        self.kernel.step_time_into(batch, estimate)


class KeepsZeros(LeavesZerosOut):
    def step_time(self, batch: Batch) -> Any:
        right = self.kernel.step_time(batch)
        return Estimate(right, {name: right.per_resource_ns.get(name, 0) for name in RESOURCES})


class HostDropsAtTheCeiling(Odd):
    """Below 100 tokens the host takes 50 ms longer, so that one more request or token may cost less."""

    def change(self, values: dict[str, Any], batch: Batch) -> dict[str, Any]:
        if batch.tokens() <= 100:
            values["host"] += 50_000_000
            values["overlap"] += 50_000_000
        return totalled(values)


class ShufflesItsProvenance(Odd):
    draws = itertools.count()

    def provenance(self) -> Any:
        rows = list(self.kernel.provenance())
        random.Random(next(self.draws)).shuffle(rows)
        return tuple(rows)


class FloorFallsWithTokens(Odd):
    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        return replace(right, floor_ns=10**12 // (tokens + 1)) if tokens > 0 else right


class FlatUnderAFloor(Odd):
    """No step is shorter than 50 ms of memory, nor a transfer than 10 ms."""

    def change(self, values: dict[str, Any], batch: Batch) -> dict[str, Any]:
        values["hbm"] = max(values["hbm"], 50_000_000)
        return totalled(values)

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        return replace(right, floor_ns=10_000_000) if tokens > 0 else right


class OddInEveryWay(FloorFallsWithTokens, ShufflesItsProvenance, HostDropsAtTheCeiling):
    def change(self, values: dict[str, Any], batch: Batch) -> dict[str, Any]:
        return FlatUnderAFloor.change(self, HostDropsAtTheCeiling.change(self, values, batch), batch)  # type: ignore[arg-type]


ODDITIES: list[tuple[type[Odd], str]] = [
    (Ties, "SBM"),
    (LeavesZerosOut, "PSBM"),
    (KeepsZeros, "PSBM"),
    (HostDropsAtTheCeiling, "SBM"),
    (ShufflesItsProvenance, "V"),
    (FloorFallsWithTokens, "X"),
    (FlatUnderAFloor, "SBMX"),
]
"""Each with the families of laws that look at where it is odd."""


def held(model: type[Odd], laws: list[str]) -> str:
    inputs: Inputs = pykernel.open_inputs(DENSE)
    report = check_model(model(inputs), factory=model, inputs=inputs, laws=laws)
    return "" if report.ok else str(report)


@pytest.mark.parametrize(("model", "families"), ODDITIES, ids=lambda value: getattr(value, "__name__", ""))
def test_what_a_model_may_do_breaks_no_law(model: type[Odd], families: str) -> None:
    assert held(model, [id for id in LAWS if id[0] in families]) == ""


def test_all_of_it_together_breaks_none_of_all_laws() -> None:
    assert held(OddInEveryWay, list(LAWS)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("model", [model for model, _ in ODDITIES])
def test_each_breaks_none_of_all_laws(model: type[Odd]) -> None:
    assert held(model, list(LAWS)) == ""


def decodes(count: int, context: int = 100) -> Batch:
    return Batch([pykernel.Request(1, context - 1, 1)] * count)


def test_each_is_as_odd_as_it_says() -> None:
    inputs, one = pykernel.open_inputs(DENSE), decodes(1)
    tied = Ties(inputs).step_time(one)
    shares = sorted(tied.per_resource_ns.values())
    assert tied.bottleneck == "copy_engine" and shares[-1] == shares[-2]
    kept, left = (model(inputs).step_time(one).per_resource_ns for model in (KeepsZeros, LeavesZerosOut))
    assert len(kept) == 7 and 0 in kept.values() and 0 not in left.values()
    drops = [HostDropsAtTheCeiling(inputs).step_time(decodes(n)).no_overlap_ns for n in (100, 101)]
    assert drops[1] < drops[0]
    shuffled = ShufflesItsProvenance(inputs)
    assert len({shuffled.provenance() for _ in range(5)}) > 1
    ends = Placement(0, 0), Placement(1, 1)
    floors = [FloorFallsWithTokens(inputs).pd_transfer_demand(tokens, *ends).floor_ns for tokens in (1, 10)]
    assert floors[1] < floors[0]
    flat = FlatUnderAFloor(inputs)
    assert flat.step_time(one).no_overlap_ns == flat.step_time(decodes(1, 1000)).no_overlap_ns
