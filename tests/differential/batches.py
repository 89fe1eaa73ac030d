"""Batches that a scheduler could form for a deployment, drawn at random."""

from __future__ import annotations

import random

from pykernel_python_reference.oracle import Batch, Request
from pykernel_python_reference.oracle.batch import Scheduled

from pykernel.documents import Inputs


def random_batch(rng: random.Random, inputs: Inputs) -> Batch:
    """A batch that a scheduler could form for the deployment: decodes and chunks of prefills within its limits."""
    engine = inputs.deployment.pools[inputs.pool].engine
    budget = engine.max_num_batched_tokens or 8192
    sequences = min(engine.max_num_seqs or 1024, 256)
    longest = engine.max_model_len or 131072
    width = 1 + (engine.speculative.num_spec_tokens if engine.speculative else 0)
    threshold = rng.choice((width, width, width, 1, 0, 8))
    style = rng.choice(("decode", "decode", "prefill", "mixed", "mixed", "ragged", "empty"))
    requests: list[Scheduled] = []
    if style in ("decode", "mixed", "ragged"):
        for _ in range(_spread(rng, 1, sequences)):
            scheduled = width if style != "ragged" else rng.randint(0, max(2 * width, 8))
            requests.append(_request(rng, scheduled, longest))
    if style in ("prefill", "mixed"):
        for _ in range(_spread(rng, 1, 8)):
            requests.append(_request(rng, _spread(rng, 1, min(budget, longest)), longest))
    kept: list[Scheduled] = []
    for request in requests:
        if request.scheduled <= budget:
            kept.append(request)
            budget -= request.scheduled
    rng.shuffle(kept)
    sms = rng.choice((0, 0, 0, inputs.chip.sm_count - 12, inputs.chip.sm_count, rng.randint(1, 200)))
    return Batch(tuple(kept), threshold, max(sms, 0), rng.choice((0, 0, 0, rng.randint(1, 512))))


def _request(rng: random.Random, scheduled: int, longest: int) -> Request:
    room = max(longest - scheduled, 0)
    computed = rng.choice((0, _spread(rng, 1, room), _spread(rng, 1, room))) if room else 0
    return Request(scheduled, computed, computed + scheduled)


def _spread(rng: random.Random, low: int, high: int) -> int:
    """A whole number between two, small ones as likely as large ones."""
    return min(max(int(low * (high / low) ** rng.random() + 0.5), low), high)
