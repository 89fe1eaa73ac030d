"""A batch in the counts that kernels are loaded with. Sums are integers, so that the order of requests is nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pykernel.batch import Batch
from pykernel.plan import ReadPlan

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Work:
    """One pass over some requests, on one rank.

    rows : tokens of the requests, pad rows left out. contexts : of decodes, with the tokens scheduled.
    new, done : of prefills, tokens scheduled and computed; `prefill_rows` are those of this rank.
    """

    rows: int
    pad_rows: int
    decode_rows: int
    prefill_rows: int
    contexts: Integers
    new: Integers
    done: Integers

    @property
    def decodes(self) -> int:
        return len(self.contexts)

    @property
    def prefills(self) -> int:
        return len(self.new)

    @property
    def sampled_rows(self) -> int:
        """Rows of the output projection: every token of a decode, one of a prefill."""
        return self.decode_rows + self.prefills

    def entries(self, read: ReadPlan) -> int:
        """Cache entries that all decodes read together."""
        contexts = self.contexts
        if read.law == "window":
            return int(np.minimum(contexts, read.window).sum())
        if read.law == "selected":
            chosen = contexts // read.compress_ratio
            if read.top_k:
                chosen = np.minimum(chosen, read.top_k)
            return int(np.minimum(contexts, chosen + np.minimum(contexts, read.window)).sum())
        return int(contexts.sum())

    def pairs(self, window: int = 0) -> int:
        """Pairs of a prefill's query and a key at or before it, at most `window` keys a query."""
        new, done = self.new, self.done
        whole = new * done + new * (new + 1) // 2
        if not window:
            return int(whole.sum())
        short = np.minimum(new, np.maximum(window - done, 0))  # queries that see less than a window
        return int((short * done + short * (short + 1) // 2 + (new - short) * window).sum())


def work_of(scheduled: Integers, computed: Integers, threshold: int, pad_rows: int, prefill_ranks: int) -> Work:
    """The work of requests that schedule so many tokens after so many computed ones."""
    running = scheduled + computed > 0
    scheduled, computed = scheduled[running], computed[running]
    prefill = scheduled > threshold
    new, done = scheduled[prefill], computed[prefill]
    decode_rows = int(scheduled[~prefill].sum())
    prefill_rows = -(-int(new.sum()) // prefill_ranks)
    contexts = (scheduled + computed)[~prefill]
    return Work(decode_rows + prefill_rows, pad_rows, decode_rows, prefill_rows, contexts, new, done)


def columns_of(batch: Batch) -> tuple[Integers, Integers]:
    """Tokens scheduled and computed, of every request."""
    return np.asarray(batch.column("scheduled"), dtype=np.int64), np.asarray(batch.column("computed"), dtype=np.int64)
