"""The steady state of a closed loop in one formula: the time of a step with its share of prefill.

With n requests in flight and o tokens each, n / o prompts arrive a step on average. Arrivals are taken as independent,
so that a step has none with probability exp(-n / o); those that have some share the prompts. A step-time model is asked
for two steps, or three where an engine runs prompts apart.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.accuracy.models import Pricer
from benchmarks.accuracy.rows import Row
from benchmarks.accuracy.simulator import Step


def steady_tpot(row: Row, price: Pricer) -> float:
    """Seconds per output token of a row's rank under a model."""
    fraction, prompts, tokens = _loaded_steps(row)
    n = row.rank_concurrency
    context = round(row.isl_mean + row.osl_mean / 2)
    separate = row.backend == "sglang"
    decodes = 0 if separate else max(n - round(prompts), 0)
    plain = Step(np.ones(n, dtype=np.int64), np.full(n, context - 1, dtype=np.int64))
    count = max(math.ceil(prompts), 1)
    shares = np.full(count, max(round(tokens / count), 1), dtype=np.int64)
    loaded = Step(
        np.concatenate([np.ones(decodes, dtype=np.int64), shares]),
        np.concatenate([np.full(decodes, context - 1, dtype=np.int64), np.zeros(count, dtype=np.int64)]),
    )
    decode, prefill = price([plain, loaded])
    return float(decode + fraction * prefill if separate else (1 - fraction) * decode + fraction * prefill)


def _loaded_steps(row: Row) -> tuple[float, float, float]:
    """Steps with prompts for each step that decodes, and the prompts and tokens of one of them."""
    n, prompt, output = row.rank_concurrency, row.isl_mean, row.osl_mean
    room = max(row.budget - (0 if row.backend == "sglang" else n), 1)
    if row.isl == row.isl_mean and row.osl == row.osl_mean:
        # Equal requests stay in step with each other: each round's prompts follow one another in full steps.
        passes = math.ceil(n * prompt / room)
        return min(passes / output, 1.0), n / passes, n * prompt / passes
    arrivals = n / output
    mixed = 1 - math.exp(-arrivals)
    tokens = arrivals / mixed * prompt
    steps = max(1.0, tokens / room)
    return min(mixed * steps, 1.0), max(arrivals / mixed / steps, 1.0), min(tokens, room)
