"""The prices of many steps at once, as arrays that numpy and the like take without copying."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pykernel.batch import Batch
from pykernel.errors import ArgumentError
from pykernel.integers import column, int64
from pykernel.interface import RESOURCES, StepEstimate

if TYPE_CHECKING:
    from pykernel.interface import CostModel


class StepEstimates:
    """The prices of `count` steps; entry i of each array belongs to step i.

    overlap_ns, no_overlap_ns : int64, the bounds of `StepEstimate`, ns.
    per_resource_ns : int64 with a row for each step and a column for each of `RESOURCES`, ns.
    bottleneck : int8, an index into `RESOURCES`.

    All are memoryviews: `numpy.asarray(estimates.no_overlap_ns)` is an array over the same memory. Without steps,
    `per_resource_ns` has one dimension, since no memoryview can have a row of none.
    """

    __slots__ = ("bottleneck", "no_overlap_ns", "overlap_ns", "per_resource_ns")

    def __init__(self, count: int) -> None:
        width = len(RESOURCES)
        self.overlap_ns = memoryview(bytearray(8 * count)).cast("q")
        self.no_overlap_ns = memoryview(bytearray(8 * count)).cast("q")
        self.bottleneck = memoryview(bytearray(count)).cast("b")
        resources = memoryview(bytearray(8 * width * count))
        self.per_resource_ns = resources.cast("q", (count, width)) if count else resources.cast("q")

    def __len__(self) -> int:
        return len(self.overlap_ns)

    def __getitem__(self, index: int) -> StepEstimate:
        """The price of one step."""
        step = range(len(self))[index]
        estimate = StepEstimate()
        resources = [self.per_resource_ns[step, place] for place in range(len(RESOURCES))]
        estimate.fill(self.overlap_ns[step], self.no_overlap_ns[step], RESOURCES[self.bottleneck[step]], resources)
        return estimate

    def __iter__(self) -> Iterator[StepEstimate]:
        return (self[index] for index in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, tuple(array(view.format, view.tobytes()) for view in self._views()))

    def _views(self) -> tuple[memoryview, ...]:
        return (self.overlap_ns, self.no_overlap_ns, self.per_resource_ns, self.bottleneck)

    def __repr__(self) -> str:
        return f"<StepEstimates of {len(self)} steps>"


def _restored(*columns: array[int]) -> StepEstimates:
    """Those that were pickled."""
    made = StepEstimates(len(columns[0]))
    for view, values in zip(made._views(), columns, strict=True):
        view.cast("B")[:] = memoryview(values).cast("B")
    return made


class Steps:
    """The arguments of `step_time_many`, checked: offsets, the columns of the requests, and the settings.

    Raises `ArgumentError` when a column is no buffer or sequence of 64-bit integers, lengths differ, or an offset
    lies outside the columns or before another.
    """

    __slots__ = ("columns", "offsets", "settings")

    def __init__(
        self, offsets: Any, scheduled: Any, computed: Any, prompt_len: Any, cached_tokens: Any, **settings: int
    ) -> None:
        self.offsets = column(offsets, "offsets")
        columns = {
            "scheduled": scheduled,
            "computed": computed,
            "prompt_len": prompt_len,
            "cached_tokens": cached_tokens,
        }
        self.columns = {name: column(values, name) for name, values in columns.items() if values is not None}
        self.settings = {name: int64(value, name) for name, value in settings.items()}
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            named = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ArgumentError(f"the arrays must have one length, found {named}")
        if len(self.offsets) < 1:
            raise ArgumentError("offsets is empty, accepted is one more entry than there are batches")
        last, length = int(self.offsets[-1]), len(self.columns["scheduled"])
        if last > length:
            raise ArgumentError(f"offsets ends at {last}, the arrays have {length} entries")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def batches(self) -> Iterator[Batch]:
        """The batches one by one, over the same memory where the columns are buffers."""
        views = {name: memoryview(values) for name, values in self.columns.items()}
        ends = [int(offset) for offset in self.offsets]
        for first, end in pairwise(ends):
            if not 0 <= first <= end:
                raise ArgumentError(f"offsets go from {first} to {end}, must be >= 0 and never fall")
            parts: dict[str, Any] = {name: view[first:end] for name, view in views.items()}
            parts.setdefault("prompt_len", parts["scheduled"])
            yield Batch.from_arrays(**parts, **self.settings)


def price_one_by_one(model: CostModel, steps: Steps) -> StepEstimates:
    """What `step_time_many` returns, by a model that prices single steps only."""
    estimates, one = StepEstimates(len(steps)), StepEstimate()
    for index, batch in enumerate(steps.batches()):
        model.step_time_into(batch, one)
        overlap_ns, no_overlap_ns, bottleneck, *resource_ns = one.record
        estimates.overlap_ns[index] = overlap_ns
        estimates.no_overlap_ns[index] = no_overlap_ns
        estimates.bottleneck[index] = bottleneck
        for place, ns in enumerate(resource_ns):
            estimates.per_resource_ns[index, place] = ns
    return estimates
