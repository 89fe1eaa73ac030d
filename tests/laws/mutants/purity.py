"""Models that remember, share, or look around: broken against laws P."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable
from typing import Any

from pykernel import Batch, Placement, StepEstimate
from pykernel.documents import Inputs
from pykernel.interface import RESOURCES

from .making import Wrapper, answering, mutant


@mutant("P1")
class AddsANanosecondToEveryThirdCall(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.count = itertools.count(1)

    def step_time(self, batch: Batch) -> StepEstimate:
        right = self.kernel.step_time(batch)
        if next(self.count) % 3 == 0:
            extra = {**right.per_resource_ns, "pcie": 1}
            return StepEstimate(right.overlap_ns, right.no_overlap_ns + 1, right.bottleneck, extra)
        return right


@mutant("P2", "M2s")
class RemembersByTokensAlone(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.seen: dict[int, StepEstimate] = {}

    def step_time(self, batch: Batch) -> StepEstimate:
        return self.seen.setdefault(batch.tokens(), self.kernel.step_time(batch))


@mutant("P3", "P6")
class SharesOneEstimate(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.shared = StepEstimate()

    def step_time(self, batch: Batch) -> StepEstimate:
        right = self.kernel.step_time(batch)
        values = [right.per_resource_ns.get(name, 0) for name in RESOURCES]
        self.shared.fill(right.overlap_ns, right.no_overlap_ns, right.bottleneck, values)
        time.sleep(1e-5)
        return self.shared


@mutant("P6")
class HandsOutItsOwnMap(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.maps: dict[str, Any] = {}

    def step_time(self, batch: Batch) -> Any:
        right = self.kernel.step_time(batch)

        class Shared:
            overlap_ns, no_overlap_ns, bottleneck = right.overlap_ns, right.no_overlap_ns, right.bottleneck
            per_resource_ns = self.maps.setdefault(repr(list(batch)), right.per_resource_ns)

        return Shared()


@mutant("P7", "D2")
class KeepsTheCallersPool(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.pool = inputs.deployment.pools[inputs.pool]

    def deployment(self) -> Any:
        return self.pool


@mutant("P4")
class SeedsFromACounter(Wrapper):
    made = itertools.count(1)

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.seed = next(SeedsFromACounter.made)

    def completion_overhead_ns(self) -> int:
        return self.kernel.completion_overhead_ns() + self.seed


@answering("completion_overhead_ns", "P8")
def reads_the_environment(kernel: Any) -> int:
    return int(kernel.completion_overhead_ns()) + (os.environ.get("TZ") == "Asia/Kolkata")


@mutant("P5")
class SortsTheCallersRequests(Wrapper):
    def step_time(self, batch: Batch) -> StepEstimate:
        scheduled = batch._arrays[0]
        for index, value in enumerate(sorted(scheduled)):
            scheduled[index] = value
        return self.kernel.step_time(batch)


@mutant("P5")
class SortsTheCallersCoefficients(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        inputs.coefficients[0].coefficients.sort(key=lambda entry: entry.value)


@mutant("P5")
class FillsTheCallersDefaultsIn(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        engine = inputs.deployment.pools[inputs.pool].engine
        engine.max_num_seqs = engine.max_num_seqs or 256


@mutant("P9")
class LeavesWhatTheEstimateHeld(Wrapper):
    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        right = self.kernel.step_time(batch)
        held = {**estimate.per_resource_ns, **right.per_resource_ns}
        values = [held.get(name, 0) for name in RESOURCES]
        estimate.fill(right.overlap_ns, right.no_overlap_ns, right.bottleneck, values)


@mutant("P11")
class ForgetsItsManySteps(Wrapper):
    def step_time(self, batch: Batch) -> StepEstimate:
        right = self.kernel.step_time(batch)
        extra = {**right.per_resource_ns, "pcie": 5}
        return StepEstimate(right.overlap_ns, right.no_overlap_ns + 5, right.bottleneck, extra)


@mutant("P10")
class LendsItsOwnList(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.rows = list(self.kernel.provenance())

    def provenance(self) -> Any:
        return self.rows


@mutant("P11")
class PadsNothingAmongMany(Wrapper):
    def step_time_many(self, *arrays: Any, pad_tokens: int = 0, **settings: Any) -> Any:
        return self.kernel.step_time_many(*arrays, **settings)


@mutant("P11")
class GivesManyTheWholeChip(Wrapper):
    def step_time_many(self, *arrays: Any, sm_budget: int = 0, **settings: Any) -> Any:
        return self.kernel.step_time_many(*arrays, **settings)


@mutant("P12")
class HandsManyOverInProportion(Wrapper):
    def pd_transfer_time_many(self, tokens: Iterable[int], source: Placement, target: Placement) -> list[int]:
        one = self.pd_transfer_time_ns(1024, source, target)
        return [one * count // 1024 for count in tokens]


@mutant("P12")
class RoundsManyDown(Wrapper):
    def sequence_variable_bytes_many(self, tokens: Any) -> Any:
        return [self.kernel.sequence_variable_bytes(count // 16 * 16) for count in tokens]
