"""The per-step estimate of aiconfigurator-core beside ours, on the same models and steps, in one process.

Its compiled engine (`EngineHandle`, Apache-2.0) answers for a step of equal requests: `decode_step_latency` for
decodes, `mixed_step_latency` for prefill tokens beside decodes. It keeps the answers of some steps, so it is timed on
a pass through steps that it has not seen, and on steps repeated in a row. Both are handed prepared arguments.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate
from statistics import median
from typing import Any

import numpy as np
from measures import best_ns

import pykernel
from pykernel import Batch, Request, StepEstimate

STEPS = 400
MODELS = (
    ("Qwen3-32B", "H100", "Qwen/Qwen3-32B", "h100_sxm", "h100"),
    ("Llama-3.1-70B", "H200", "meta-llama/Meta-Llama-3.1-70B", "h200_sxm", "h200"),
)
BACKENDS = ("vllm", "sglang", "trtllm")
TENSOR_PARALLEL = 4


@dataclass(frozen=True)
class Row:
    """What was found for one model and kind of step; times of a step in ns."""

    what: str
    peer_new: float
    peer_again: float
    into_new: float
    into_again: float
    core: float


def engines() -> Iterator[tuple[str, str, Any, Any]]:
    """Model, backend, the peer's engine, and our kernel, built from the config that the peer ships."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    configs = resources.files("aiconfigurator_core") / "model_configs"
    for model, part, path, system, chip in MODELS:
        config = str(configs / f"{path.replace('/', '--')}_config.json")
        ours = pykernel.new(pykernel.inputs_from_config(config, chip, tp=TENSOR_PARALLEL))
        for backend in BACKENDS:
            peer = EngineHandle.compile(path, system, backend, tp_size=TENSOR_PARALLEL)
            yield f"{model} on {part}", backend, peer, ours


def one_pass(calls: list[Callable[[], Any]]) -> float:
    """The mean time of calls made one after another."""
    start = time.perf_counter_ns()
    for call in calls:
        call()
    return (time.perf_counter_ns() - start) / len(calls)


def again(calls: list[Callable[[], Any]]) -> float:
    """The median over the calls of the best of a few repetitions right after the first."""
    now, found = time.perf_counter_ns, list[int]()
    for call in calls:
        call()
        laps = []
        for _ in range(5):
            start = now()
            call()
            laps.append(now() - start)
        found.append(min(laps))
    return median(found)


def compare(what: str, peer_call: Callable[..., Any], ours: Any, steps: list[tuple[int, int, int]]) -> Row:
    """Time steps of (prefill tokens, decodes, context) with both."""
    nothing, estimate = [lambda: None] * len(steps), StepEstimate()
    mine = [_bound(ours.step_time_into, (Batch(_requests(*step)), estimate)) for step in steps]
    theirs = [_bound(peer_call, step) for step in steps]
    peer_new = one_pass(theirs) - min(one_pass(nothing) for _ in range(10))
    into_new = min(one_pass(mine) for _ in range(10)) - min(one_pass(nothing) for _ in range(10))
    clock = again(nothing)
    core = best_ns(_many(ours, steps), seconds=0.5) / len(steps)
    return Row(what, peer_new, again(theirs) - clock, into_new, again(mine) - clock, core)


def _bound(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: call(*arguments)


def _requests(prefill: int, decodes: int, context: int) -> list[Request]:
    rows = [Request(1, context - 1, context)] * decodes
    return [Request(prefill, 0, prefill), *rows] if prefill else rows


def _many(ours: Any, steps: list[tuple[int, int, int]]) -> Callable[[], Any]:
    """All steps in one call: next to nothing but the core."""
    rows = [_requests(*step) for step in steps]
    offsets = np.array([0, *accumulate(map(len, rows))], np.int64)
    scheduled = np.array([request.scheduled for row in rows for request in row], np.int64)
    computed = np.array([request.computed for row in rows for request in row], np.int64)
    return lambda: ours.step_time_many(offsets, scheduled, computed)


def rows() -> Iterator[Row]:
    """Every comparison. The first steps of an engine, which load its tables, are not timed."""
    for where, backend, peer, ours in engines():
        rng = random.Random(where)
        decoding = [(0, rng.randint(1, 512), rng.randint(100, 30_000)) for _ in range(STEPS)]
        mixed = [(rng.randint(1, 8_000), rng.randint(1, 256), rng.randint(100, 8_000)) for _ in range(STEPS)]
        peer.decode_step_latency(3, 777, 2)
        peer.mixed_step_latency(100, 3, 777, 2)

        def decode(prefill: int, decodes: int, context: int, peer: Any = peer) -> float:
            return float(peer.decode_step_latency(decodes, context - 2, 2))

        def mix(prefill: int, decodes: int, context: int, peer: Any = peer) -> float:
            return float(peer.mixed_step_latency(prefill, decodes, context - 2, 2))

        yield compare(f"{where}, {backend}: decodes", decode, ours, decoding)
        yield compare(f"{where}, {backend}: a prefill and decodes", mix, ours, mixed)
