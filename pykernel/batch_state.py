"""A running batch: the requests of an engine from step to step, priced without looking at each of them again.

Where a `Batch` is one step's requests, written down anew for every step, a `BatchState` is told what changes. It keeps
the sums that prices are made of, so that the next step of a large batch costs what a small one does.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.batch import Batch
from pykernel.errors import ArgumentError, BatchError, PykernelError
from pykernel.integers import int64
from pykernel.interface import Request

_NULL = ffi.NULL


class BatchState:
    """Requests that come, grow and leave.

    Parameters
    ----------
    requests : those it starts with; their ids are 0, 1, 2 and so on.
    decode_threshold : a request that schedules more tokens than this is a prefill; `kernel.decode_threshold()`.
    sm_budget : SMs left to the step; 0 or less means all.
    pad_tokens : rows added so that data-parallel ranks run alike.

    `kernel.step_time(state)` prices the next step, to the bit as `kernel.step_time(state.batch())` does. On a kernel
    whose laws bound what a request counts for (a window, a selection, context parallelism) the requests are looked at
    again, by the core. Raises `BatchError` for values that no scheduler could have produced.

    Not for use from several threads at once.
    """

    __slots__ = ("_id", "_settings", "struct")

    def __init__(
        self,
        requests: Iterable[Request] = (),
        *,
        decode_threshold: int = 1,
        sm_budget: int = 0,
        pad_tokens: int = 0,
    ) -> None:
        made, error = ffi.new("pk_batch_state **"), error_struct()
        threshold = int64(decode_threshold, "decode_threshold")
        raise_for(lib.pk_batch_state_new(threshold, made, error), error, ArgumentError)
        self.struct: Any = ffi.gc(made[0], lib.pk_batch_state_free)
        self._id = ffi.new("int64_t *")
        self._settings = (threshold, 0, 0)
        self.set(sm_budget=sm_budget, pad_tokens=pad_tokens)
        try:
            for request in requests:
                self.add(request.scheduled, request.computed)
        except (AttributeError, TypeError) as error:
            raise ArgumentError(f"requests are no iterable of pykernel.Request: {error}") from None

    def add(self, scheduled: int, computed: int) -> int:
        """Add a request that schedules tokens in every step after those computed already; its id."""
        self._call(lib.pk_batch_state_add, scheduled, computed, self._id)
        return int(self._id[0])

    def update(self, id: int, scheduled: int, computed: int) -> None:
        """Change a request, as when it has prefilled and starts to decode."""
        self._call(lib.pk_batch_state_set, id, scheduled, computed)

    def remove(self, id: int) -> None:
        """Take a request out. Its id may be given to another."""
        self._call(lib.pk_batch_state_remove, id)

    def advance(self, steps: int = 1) -> None:
        """Let every request compute what it schedules, `steps` times."""
        self._call(lib.pk_batch_state_advance, steps)

    def set(self, *, sm_budget: int | None = None, pad_tokens: int | None = None) -> None:
        """Change what the steps have beside requests; what is left out stays."""
        threshold, budget, pads = self._settings
        budget = budget if sm_budget is None else int64(sm_budget, "sm_budget")
        pads = pads if pad_tokens is None else int64(pad_tokens, "pad_tokens")
        self._call(lib.pk_batch_state_settings, budget, pads)
        self._settings = (threshold, budget, pads)

    def request(self, id: int) -> tuple[int, int]:
        """Tokens that a request schedules, and those it has computed by now."""
        found = ffi.new("int64_t[2]")
        self._call(lib.pk_batch_state_get, id, found, found + 1)
        return int(found[0]), int(found[1])

    def batch(self) -> Batch:
        """The next step as a `Batch` of its own, in no particular order. Lengths of prompts are those computed."""
        view, error = ffi.new("pk_batch *"), error_struct()
        view.struct_size = ffi.sizeof("pk_batch")
        raise_for(lib.pk_batch_state_view(self.struct, view, error), error, PykernelError)
        columns = [array("q") for _ in range(2)]
        for column, values in zip(columns, (view.scheduled, view.computed), strict=True):
            if view.count:
                column.frombytes(ffi.buffer(values, view.count * 8))
        scheduled, computed = columns
        threshold, budget, pads = self._settings
        return Batch.from_arrays(
            scheduled, computed, computed, decode_threshold=threshold, sm_budget=budget, pad_tokens=pads
        )

    def __len__(self) -> int:
        view = ffi.new("pk_batch *")
        view.struct_size = ffi.sizeof("pk_batch")
        lib.pk_batch_state_view(self.struct, view, ffi.NULL)
        return int(view.count)

    def __repr__(self) -> str:
        return f"<BatchState of {len(self)} requests>"

    def _call(self, function: Any, *arguments: Any) -> None:
        """Call the core; where it refuses, again with room for its words, which changes nothing either."""
        try:
            if function(self.struct, *arguments, _NULL):
                error = error_struct()
                status = function(self.struct, *arguments, error)
                raise_for(status, error, ArgumentError if status == lib.PK_ARGUMENT else BatchError)
        except (TypeError, OverflowError) as error:
            raise ArgumentError(f"accepted are integers of 64 bits: {error}") from None
