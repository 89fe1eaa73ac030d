"""What is measured from Python, each a name, a call and what it may take: shared by the suite and by the report.

Times are the best of many short runs, in nanoseconds: what a call takes when nothing else disturbs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import pykernel
from pykernel import Batch, BatchState, Kernel, Request, StepEstimate
from pykernel._native import lib

SCENARIO = "deepseek-v3-h200-fp8-tp8"
SIZES = (1, 32, 256)
MANY = 10_000


@dataclass(frozen=True)
class Measure:
    """A call, by the words of the report; `per` is how many answers one call gives.

    With `cpu`, the time is the processor's: what takes tens of milliseconds is never left alone for as long.
    """

    name: str
    call: Callable[[], Any]
    per: int = 1
    cpu: bool = False

    def ns(self) -> float:
        """The least time of one answer."""
        return (best_ns(self.call, cpu=self.cpu) - (0 if self.cpu else overhead_ns())) / self.per


def best_ns(call: Callable[[], Any], *, seconds: float = 0.3, cpu: bool = False) -> float:
    """The least time of one call over short runs."""
    timer = timeit.Timer("call()", globals={"call": call}, timer=time.process_time if cpu else time.perf_counter)
    number, taken = 1, timer.timeit(1)
    while taken < 2e-4:
        number *= 4
        taken = timer.timeit(number)
    runs = max(5, int(seconds / taken))
    return min(timer.repeat(runs, number)) / number * 1e9


@cache
def overhead_ns() -> float:
    """What calling a Python function with nothing in it takes: every measure here is wrapped in one."""
    return best_ns(lambda: None)


@cache
def kernel() -> Kernel:
    return pykernel.open(SCENARIO)


def decodes(count: int) -> list[Request]:
    return [Request(1, 4_095, 1_024)] * count


def no_op() -> Measure:
    """A call through cffi that does nothing: no argument, a constant returned."""
    call = lib.pk_version
    return Measure("a bare cffi call", lambda: call())


def scalar(count: int) -> list[Measure]:
    """Pricing one prepared batch: as often as wanted, into one estimate, and in turn with another."""
    price, into = kernel().step_time, kernel().step_time_into
    batch, other = Batch(decodes(count)), Batch(decodes(count))
    estimate, shared = StepEstimate(), StepEstimate()

    def in_turn() -> None:
        into(batch, shared)
        into(other, shared)

    return [
        Measure(f"step_time_into, {count} decodes", lambda: into(batch, estimate)),
        Measure(f"step_time_into, {count} decodes, batches in turn", in_turn, per=2),
        Measure(f"step_time, {count} decodes", lambda: price(batch)),
    ]


def running(count: int) -> list[Measure]:
    """Pricing the next step of a running batch, and going on from step to step."""
    into, state, estimate = kernel().step_time_into, BatchState(decodes(count)), StepEstimate()

    def step() -> None:
        state.advance()
        into(state, estimate)

    return [
        Measure(f"step_time_into, {count} running decodes", lambda: into(state, estimate)),
        Measure(f"advance and step_time_into, {count} running decodes", step),
    ]


def array() -> list[Measure]:
    """Pricing many batches of 32 decodes in one call."""
    offsets = np.arange(0, 32 * (MANY + 1), 32, dtype=np.int64)
    ones, contexts = np.ones(32 * MANY, np.int64), np.full(32 * MANY, 4_095, np.int64)
    price = kernel().step_time_many
    return [Measure("step_time_many, each batch of 32 decodes", lambda: price(offsets, ones, contexts), per=MANY)]


def building(count: int) -> list[Measure]:
    """Making a batch."""
    requests, ones, contexts = decodes(count), [1] * count, [4_095] * count
    buffers = np.ones(count, np.int64), np.full(count, 4_095, np.int64)
    from_arrays = Batch.from_arrays
    return [
        Measure(f"Batch of {count} requests", lambda: Batch(requests)),
        Measure(f"Batch.from_arrays of {count}, lists", lambda: from_arrays(ones, contexts, contexts)),
        Measure(f"Batch.from_arrays of {count}, numpy", lambda: from_arrays(*buffers, buffers[1])),
    ]


def opening() -> list[Measure]:
    """Building a kernel in a process that has built others."""
    inputs = pykernel.open_inputs(SCENARIO)
    return [
        Measure("open, again (CPU)", lambda: pykernel.open(SCENARIO), cpu=True),
        Measure("new, from documents in memory (CPU)", lambda: pykernel.new(inputs), cpu=True),
    ]


STARTS = {
    "import pykernel (CPU)": ("", "import pykernel", 80),
    "the first open of a process (CPU)": ("import pykernel", f"pykernel.open({SCENARIO!r})", 250),
}
"""What happens once in a process: what goes before, what is timed, and the most milliseconds it may take."""


def start_ns(name: str, processes: int = 5) -> float:
    """The least processor time over fresh processes, with the bytecode that an installation has."""
    before, timed, _ = STARTS[name]
    program = f"import time\n{before}\nstart = time.process_time_ns()\n{timed}\nprint(time.process_time_ns() - start)"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def run() -> float:
        command = [sys.executable, "-c", program]
        return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)

    return min(run() for _ in range(processes))
