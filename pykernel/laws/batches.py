"""The batches that laws sweep over: a fixed list and seeded random draws, the same in every run."""

from __future__ import annotations

import random

from pykernel.batch import Batch
from pykernel.interface import Request

THRESHOLD = 8


def equal(n: int, q: int, ctx: int, *, threshold: int = THRESHOLD, sm_budget: int = 0) -> Batch:
    """`n` requests that schedule `q` tokens each and end at a context of `ctx`."""
    return Batch([Request(q, ctx - q, ctx)] * n, decode_threshold=threshold, sm_budget=sm_budget)


def mixed(*parts: tuple[int, int, int], threshold: int = THRESHOLD, sm_budget: int = 0) -> Batch:
    """Several such groups in one batch."""
    requests = [Request(q, ctx - q, ctx) for n, q, ctx in parts for _ in range(n)]
    return Batch(requests, decode_threshold=threshold, sm_budget=sm_budget)


_EQUAL = (
    (1, 1, 1),
    (8, 1, 1024),
    (256, 1, 8192),
    (512, 1, 32768),
    (1, 2048, 2048),
    (4, 8192, 8192),
    (64, 2, 4096),
    (256, 4, 16384),
)


def standard_batches() -> list[tuple[str, Batch]]:
    """Decodes, prefills, speculative widths, a mixed batch, a chunk far into a prompt, and the empty batch."""
    named = [("an empty batch", Batch((), decode_threshold=THRESHOLD))]
    named += [(f"{n} x {q} tokens at {ctx}", equal(n, q, ctx)) for n, q, ctx in _EQUAL]
    named.append(("2 decodes at 32768 and a prefill of 2048", mixed((2, 1, 32768), (1, 2048, 2048))))
    named.append(("a chunk of 1025 after 203760", Batch([Request(1025, 203760, 204785)], decode_threshold=THRESHOLD)))
    return named


def random_batches(count: int = 200, seed: int = 20260) -> list[tuple[str, Batch]]:
    """`count` batches of equal requests and as many mixed ones."""
    draw = random.Random(seed)
    named = []
    for index in range(count):
        n, q = draw.randint(1, 512), draw.randint(1, 8)
        named.append((f"random batch {index}", equal(n, q, draw.randint(q, q + 131071))))
    for index in range(count):
        requests = [random_request(draw) for _ in range(draw.randint(0, 64))]
        named.append((f"random mixed batch {index}", Batch(requests, decode_threshold=THRESHOLD)))
    return named


def random_request(draw: random.Random) -> Request:
    """A chunk inside a prompt, or a decode up to 4,096 tokens past it."""
    prompt = draw.randint(1, 8192)
    if draw.random() < 0.3:
        computed = draw.randint(0, prompt - 1)
        return Request(draw.randint(1, prompt - computed), computed, prompt)
    return Request(1, prompt + draw.randint(0, 4095), prompt)


def rebuilt(batch: Batch, **changes: int) -> Batch:
    """The same requests with another threshold, budget or padding."""
    settings = {
        "decode_threshold": batch.decode_threshold,
        "sm_budget": batch.sm_budget,
        "pad_tokens": batch.pad_tokens,
    }
    return Batch(list(batch), **{**settings, **changes})
