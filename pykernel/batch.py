"""The batch of a step: the requests a simulator hands to a kernel, held as the flat arrays the C core reads.

A batch is prepared once and priced as often as needed. Pricing it does not copy it: the core reads the very buffers
that the batch owns or, after `Batch.from_arrays`, those of the caller.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.errors import ArgumentError, BatchError
from pykernel.integers import column, column_of, int64
from pykernel.interface import Request

_FIELDS = ("scheduled", "computed", "prompt_len", "cached_tokens")
_fields_of = attrgetter(*_FIELDS)
_BATCH, _BATCH_SIZE, _INT64S = ffi.typeof("pk_batch *"), ffi.sizeof("pk_batch"), ffi.typeof("int64_t[]")


class Batch:
    """The requests of one step.

    Parameters
    ----------
    requests : the requests; none is legal, the step of an idle engine.
    decode_threshold : a request that schedules more tokens than this is a prefill; `kernel.decode_threshold()`.
    sm_budget : SMs left to the step; 0 or less means all.
    pad_tokens : rows added so that data-parallel ranks run alike.

    Values are checked when the batch is priced or by `validate`, not here.
    """

    __slots__ = ("_arrays", "_views", "struct")

    def __init__(
        self,
        requests: Iterable[Request] = (),
        *,
        decode_threshold: int = 1,
        sm_budget: int = 0,
        pad_tokens: int = 0,
    ) -> None:
        try:
            rows = zip(*map(_fields_of, requests), strict=True)
        except (AttributeError, TypeError) as error:
            raise ArgumentError(f"requests are no iterable of pykernel.Request: {error}") from None
        columns = [column_of(values, field) for values, field in zip(rows, _FIELDS, strict=False)]
        self._borrow(columns or [array("q") for _ in _FIELDS], decode_threshold, sm_budget, pad_tokens)

    @classmethod
    def from_arrays(
        cls,
        scheduled: Any,
        computed: Any,
        prompt_len: Any,
        cached_tokens: Any = None,
        *,
        decode_threshold: int = 1,
        sm_budget: int = 0,
        pad_tokens: int = 0,
    ) -> Batch:
        """A batch over the caller's arrays, one entry a request, all of one length.

        Each is a contiguous one-dimensional buffer of 64-bit integers (`array("q")`, numpy int64, memoryview), which
        is borrowed and kept alive, so that later edits are seen; or a Python sequence of integers, which is copied.
        Raises `ArgumentError` for a buffer of another type or unequal lengths.
        """
        given = (scheduled, computed, prompt_len, cached_tokens)
        columns = [
            column(values, field)
            for values, field in zip(given, _FIELDS, strict=True)
            if not (field == "cached_tokens" and values is None)
        ]
        batch = cls.__new__(cls)
        batch._borrow(columns, decode_threshold, sm_budget, pad_tokens)
        return batch

    def _borrow(self, columns: list[Any], decode_threshold: int, sm_budget: int, pad_tokens: int) -> None:
        lengths = {len(values) for values in columns}
        if len(lengths) > 1:
            named = ", ".join(f"{field} {len(values)}" for field, values in zip(_FIELDS, columns, strict=False))
            raise ArgumentError(f"the arrays of a batch must have one length, found {named}")
        # The views keep the memory in place and alive. A buffer object of cffi that was kept instead would crash the
        # collector when it clears a memoryview in the same cycle first. Empty buffers are left out, since from_buffer
        # refuses those of some exporters; the core takes NULL for no requests.
        self._arrays = columns
        self._views = [memoryview(values) for values in columns] if lengths != {0} else []
        struct = ffi.new(_BATCH)
        struct.struct_size = _BATCH_SIZE
        struct.count = lengths.pop()
        for field, view in zip(_FIELDS, self._views, strict=False):
            setattr(struct, field, ffi.from_buffer(_INT64S, view))
        struct.decode_threshold = int64(decode_threshold, "decode_threshold")
        struct.sm_budget = int64(sm_budget, "sm_budget")
        struct.pad_tokens = int64(pad_tokens, "pad_tokens")
        self.struct = struct

    def __len__(self) -> int:
        return int(self.struct.count)

    def __iter__(self) -> Iterator[Request]:
        columns = [*self._arrays, [0] * len(self)] if len(self._arrays) == 3 else self._arrays
        for row in zip(*columns, strict=True):
            yield Request(*(int(value) for value in row))

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} requests, {self.tokens()} tokens>"

    def __reduce__(self) -> tuple[Any, ...]:
        settings = (self.decode_threshold, self.sm_budget, self.pad_tokens)
        return (_rebuild, ([array("q", [int(v) for v in values]) for values in self._arrays], settings))

    @property
    def decode_threshold(self) -> int:
        """Most tokens a request schedules and still counts as a decode."""
        return int(self.struct.decode_threshold)

    @property
    def sm_budget(self) -> int:
        """SMs left to the step; 0 or less means all."""
        return int(self.struct.sm_budget)

    @property
    def pad_tokens(self) -> int:
        """Rows added beside the requests' own."""
        return int(self.struct.pad_tokens)

    def column(self, field: str) -> memoryview:
        """One number of every request, such as `scheduled`: the batch's own memory, read-only 64-bit integers.

        For cost models that look at many requests at once; `cached_tokens` is there only where it was given.
        """
        return self._views[_FIELDS.index(field)].toreadonly() if self._views else memoryview(array("q"))

    def tokens(self) -> int:
        """Tokens scheduled, over all requests."""
        return sum(int(value) for value in self._arrays[0])

    def padded_tokens(self) -> int:
        """Rows of the forward pass: the scheduled tokens and the pad tokens."""
        return self.tokens() + self.pad_tokens

    def uniform_decode(self, width: int) -> bool:
        """Whether every request schedules exactly `width` tokens; false for a batch without requests."""
        return len(self) > 0 and all(value == width for value in self._arrays[0])

    def validate(self) -> None:
        """Raise `BatchError`, naming the request and the field, when a number is out of range.

        Pricing makes the same checks, but for `prompt_len` and `cached_tokens`, which no price depends on.
        """
        error = error_struct()
        raise_for(lib.pk_batch_check(self.struct, error), error, BatchError)


def _rebuild(columns: list[Any], settings: tuple[int, int, int]) -> Batch:
    batch = Batch.__new__(Batch)
    batch._borrow(columns, *settings)
    return batch
