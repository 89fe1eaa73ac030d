"""Many answers in one call of the core, or in one for each of several threads.

The core prices a part of an array as it prices the whole, and cffi lets go of the interpreter while it does, so
threads need nothing but their parts.
"""

from __future__ import annotations

from itertools import pairwise
from threading import Thread
from typing import Any

from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.errors import ArgumentError, BatchError
from pykernel.estimates import StepEstimates, Steps
from pykernel.integers import column, int64


def price_many(handle: Any, steps: Steps, threads: int) -> StepEstimates:
    """The prices of the steps. Raises as `CostModel.step_time_many`."""
    threads = int64(threads, "threads")
    if threads < 1:
        raise ArgumentError(f"threads is {threads}, must be 1 or more")
    estimates = StepEstimates(len(steps))
    parts = min(threads, max(len(steps), 1))
    cuts = [len(steps) * part // parts for part in range(parts + 1)]
    calls = [_Call(handle, steps, estimates, first, end) for first, end in pairwise(cuts)]
    workers = [Thread(target=call.run) for call in calls[1:]]
    for worker in workers:
        worker.start()
    calls[0].run()
    for worker in workers:
        worker.join()
    if any(call.status for call in calls):
        # One call over everything names the step by its place in the whole.
        whole, error = _Call(handle, steps, estimates, 0, len(steps)), error_struct()
        status = whole.run(error)
        raise_for(status, error, ArgumentError if status == lib.PK_ARGUMENT else BatchError)
    return estimates


def each(function: Any, handle: Any, tokens: Any, *arguments: Any) -> memoryview[int]:
    """What a function of the core makes of each count of tokens: int64, an entry for each."""
    given = memoryview(column(tokens, "tokens"))
    results, error = memoryview(bytearray(8 * len(given))).cast("q"), error_struct()
    ends = [ffi.cast("int64_t *", ffi.from_buffer(view)) if len(view) else ffi.NULL for view in (given, results)]
    status = function(handle, len(given), ends[0], *arguments, ends[1], error)
    raise_for(status, error, ArgumentError)
    return results


class _Call:
    """One call of the core on the steps from `first` to before `end`, with the structs that it takes."""

    def __init__(self, handle: Any, steps: Steps, estimates: StepEstimates, first: int, end: int) -> None:
        self.status = 0
        self._handle = handle
        self._keep: list[Any] = []
        batches, results = ffi.new("pk_batches *", steps.settings), ffi.new("pk_estimates *")
        batches.struct_size, results.struct_size = ffi.sizeof("pk_batches"), ffi.sizeof("pk_estimates")
        batches.count = end - first
        batches.offsets = self._pointer(steps.offsets) + first
        if len(steps.columns["scheduled"]):
            batches.scheduled = self._pointer(steps.columns["scheduled"])
            batches.computed = self._pointer(steps.columns["computed"])
        elif end > first:
            batches.scheduled = batches.computed = self._pointer(steps.offsets)  # of empty steps, so never read
        if end > first:
            results.overlap_ns = self._pointer(estimates.overlap_ns) + first
            results.no_overlap_ns = self._pointer(estimates.no_overlap_ns) + first
            results.bottleneck = self._pointer(estimates.bottleneck, "int8_t *") + first
            results.per_resource_ns = self._pointer(estimates.per_resource_ns) + first * lib.PK_RESOURCE_COUNT
        self._batches, self._results = batches, results

    def _pointer(self, buffer: Any, kind: str = "int64_t *") -> Any:
        """Where a buffer begins. The view keeps its memory in place, as in `Batch`."""
        view = memoryview(buffer)
        self._keep.append(view)
        return ffi.cast(kind, ffi.from_buffer(view))

    def run(self, error: Any = ffi.NULL) -> int:
        """The status of the call, which is kept as well."""
        self.status = lib.pk_step_time_many(self._handle, self._batches, self._results, error)
        return self.status
