"""A closed loop of requests on one attention rank: which steps the engine runs, and what a client then measures.

The rate is infinite and a finished request is replaced at once, so the sequence of steps does not depend on how long a
step takes: `schedule` finds it first, and any step-time model prices it afterwards. A stretch of decode-only steps is
one segment, priced at its first and its last step; its length is the mean of the two times the steps, because a step's
time is close to linear in the contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from benchmarks.accuracy.rows import Row
from benchmarks.accuracy.scheduling import scheduling

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

ROUNDS = 10
"""Requests of a run for each one in flight (InferenceX and the NV runs send 10 x concurrency)."""


@dataclass(frozen=True, slots=True)
class Step:
    """A batch: tokens that each request schedules, and tokens it has computed."""

    scheduled: Integers
    computed: Integers


@dataclass(frozen=True, slots=True)
class Segment:
    """`count` equal steps in a row; `first` and `last` differ by the contexts that grew in between."""

    count: int
    first: Step
    last: Step


@dataclass(slots=True)
class Schedule:
    """The segments of a run, and for each request the segment behind which it arrived, got its first token, ended."""

    segments: list[Segment] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Means over the requests of a run, in the units that steps were priced in."""

    ttft: float
    tpot: float


class _Loop:
    """The engine's state while a schedule is made: requests on their way in, prompts not yet done, running requests."""

    def __init__(self, row: Row, seed: int) -> None:
        random = np.random.default_rng(seed)
        total = ROUNDS * row.rank_concurrency
        self.prompts = _lengths(random, row.isl, row.isl_mean, total)
        self.outputs = _lengths(random, row.osl, row.osl_mean, total)
        self.out = Schedule(outputs=[int(value) for value in self.outputs])
        self.out.arrived = [0] * total
        self.out.first = [0] * total
        self.out.ended = [0] * total
        self.rules = scheduling(row)
        self.next = 0
        self.inbox: list[int] = []  # requests that the scheduler has not looked at yet
        self.waiting: list[list[int]] = []  # request, tokens of its prompt computed
        self.held = 0  # decode steps that the waiting prompts were held back
        self.unread = 0  # decode steps since the scheduler looked
        self.ids = np.zeros(0, dtype=np.int64)
        self.context = np.zeros(0, dtype=np.int64)  # tokens in the cache
        self.left = np.zeros(0, dtype=np.int64)  # tokens still to generate

    def arrive(self) -> None:
        if self.next < len(self.prompts):
            self.out.arrived[self.next] = len(self.out.segments)
            self.inbox.append(self.next)
            self.next += 1

    def run(self, concurrency: int) -> Schedule:
        for _ in range(concurrency):
            self.arrive()
        while self.inbox or self.waiting or len(self.ids):
            self.receive()
            if self.waiting and not self.holds():
                self.prefill_step()
            else:
                self.decode_run()
            self.finish()
        return self.out

    def receive(self) -> None:
        """Takes in what has arrived. An engine without work starts on the first request that reaches it."""
        if not self.waiting and not len(self.ids):
            self.waiting = [[self.inbox.pop(0), 0]]
        elif self.unread >= self.rules.receive_steps:
            self.waiting += [[request, 0] for request in self.inbox]
            self.inbox, self.unread = [], 0

    def holds(self) -> bool:
        """Whether waiting prompts are held back to be run together."""
        if not len(self.ids) or self.held >= self.rules.hold_steps:
            return False
        tokens = sum(int(self.prompts[request]) - before for request, before in self.waiting) + len(self.ids)
        return tokens < self.rules.hold_tokens

    def prefill_step(self) -> None:
        """One step with as much of the waiting prompts as the budget takes, and the decodes unless they are apart."""
        decodes = len(self.ids) if self.rules.mixed else 0
        room = max(self.rules.budget - decodes, 1)
        scheduled: list[int] = []
        computed: list[int] = []
        done: list[int] = []
        for entry in self.waiting:
            request, before = entry
            take = min(int(self.prompts[request]) - before, room)
            partial = before + take < self.prompts[request]
            if take == 0 or (partial and scheduled and not self.rules.chunked):
                break
            scheduled.append(take)
            computed.append(before)
            room -= take
            entry[1] += take
            if not partial:
                done.append(request)
        own = self.context if decodes else self.context[:0]
        step = Step(
            np.concatenate([np.ones(len(own), dtype=np.int64), np.array(scheduled, dtype=np.int64)]),
            np.concatenate([own, np.array(computed, dtype=np.int64)]),
        )
        self.out.segments.append(Segment(1, step, step))
        if decodes:
            self.context = self.context + 1
            self.left = self.left - 1
        self.held, self.unread = 0, self.rules.receive_steps
        self.waiting = self.waiting[len(done) :]
        self.admit(done)

    def admit(self, requests: list[int]) -> None:
        """Prompts that are done have their first token and decode from now on."""
        for request in requests:
            self.out.first[request] = len(self.out.segments)
        new = np.array(requests, dtype=np.int64)
        self.ids = np.concatenate([self.ids, new])
        self.context = np.concatenate([self.context, self.prompts[new]])
        self.left = np.concatenate([self.left, self.outputs[new] - 1])

    def decode_run(self) -> None:
        """Decode steps until a request ends, or the scheduler turns to what has come in."""
        count = max(int(self.left.min()), 1)
        if self.inbox:
            count = min(count, self.rules.receive_steps - self.unread)
        if self.waiting:
            count = min(count, self.rules.hold_steps - self.held)
            self.held += count
        ones = np.ones(len(self.ids), dtype=np.int64)
        self.out.segments.append(Segment(count, Step(ones, self.context), Step(ones, self.context + (count - 1))))
        self.context = self.context + count
        self.left = self.left - count
        self.unread += count

    def finish(self) -> None:
        over = self.left <= 0
        if not over.any():
            return
        for request in self.ids[over]:
            self.out.ended[int(request)] = len(self.out.segments)
            self.arrive()
        keep = ~over
        self.ids, self.context, self.left = self.ids[keep], self.context[keep], self.left[keep]


def _lengths(random: np.random.Generator, nominal: int, mean: float, count: int) -> Integers:
    """Fixed lengths where the mean is nominal, else uniform with that mean up to the nominal length."""
    low = round(2 * mean - nominal)
    if low >= nominal:
        return np.full(count, nominal, dtype=np.int64)
    return random.integers(max(low, 1), nominal + 1, count)


def schedule(row: Row, seed: int = 0) -> Schedule:
    """The steps that a row's engine runs for its clients, on one attention rank."""
    return _Loop(row, seed).run(row.rank_concurrency)


def latencies(made: Schedule, price: Callable[[Sequence[Step]], Floats]) -> Latencies:
    """Mean time to first token and per output token of a schedule, its steps priced by a model."""
    firsts = price([segment.first for segment in made.segments])
    long = [index for index, segment in enumerate(made.segments) if segment.count > 1]
    lasts = firsts.copy()
    if long:
        lasts[long] = price([made.segments[index].last for index in long])
    counts = np.array([segment.count for segment in made.segments], dtype=float)
    times = np.concatenate([[0.0], np.cumsum(counts * (firsts + lasts) / 2)])
    return summarize(made, times)


def summarize(made: Schedule, times: Floats) -> Latencies:
    """The client's means, `times` being when each segment has ended, after a leading 0."""
    arrived, first, ended = times[made.arrived], times[made.first], times[made.ended]
    gaps = np.maximum(np.array(made.outputs, dtype=float) - 1, 1)
    return Latencies(float(np.mean(first - arrived)), float(np.mean((ended - first) / gaps)))
