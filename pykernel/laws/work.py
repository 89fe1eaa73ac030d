"""Laws M: what more work does to a price."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

from pykernel.batch import Batch
from pykernel.laws.batches import THRESHOLD, equal, random_request
from pykernel.laws.law import ADVICE, MODEL, law
from pykernel.laws.subject import Subject, rising, unbounded


def _rises(subject: Subject, batches: list[tuple[str, Batch]]) -> Iterator[str]:
    """`no_overlap_ns` does not fall, but for what the host saves when graphs replay otherwise."""
    prices = [(name, subject.price(batch)) for name, batch in batches]

    def host_drop(index: int) -> int:
        return max(prices[index - 1][1].get("host") - prices[index][1].get("host"), 0)

    yield from rising(((name, price.no_overlap) for name, price in prices), host_drop)


def _m(id: str, statement: str, sweep: str) -> Callable[[Callable[[Subject], Iterator[str]]], object]:
    return law(id, statement, sweep=sweep, needs="monotone", tolerance="but for what the host entry drops by")


@_m("M1", "More equal decodes never cost less.", "1 to 512 decodes at 4,096")
def more_requests(subject: Subject) -> Iterator[str]:
    yield from _rises(subject, [(f"{n} decodes", equal(n, 1, 4096)) for n in (1, 2, 8, 32, 128, 512)])


@law(
    "M2",
    "More context of a decode lowers neither `no_overlap_ns` nor `hbm`.",
    sweep="64 decodes at 1,024 to 131,072",
    needs="monotone",
)
def more_context(subject: Subject) -> Iterator[str]:
    prices = [(f"context {ctx}", subject.price(equal(64, 1, ctx))) for ctx in _CONTEXTS]
    yield from rising((name, price.no_overlap) for name, price in prices)
    yield from rising((f"hbm at {name}", price.get("hbm")) for name, price in prices)


_CONTEXTS = (1024, 2048, 4096, 16384, 65536, 131072)


@law(
    "M2s", "`hbm` rises strictly with context where a layer reads all of it.", standing=MODEL, sweep="1,024 to 131,072"
)
def strictly_more(subject: Subject) -> Iterator[str]:
    unbounded(subject)
    hbm = [subject.price(equal(64, 1, ctx)).get("hbm") for ctx in _CONTEXTS]
    if any(later <= earlier for earlier, later in pairwise(hbm)):
        yield f"64 decodes at {_CONTEXTS}: hbm is {hbm}"


@_m("M3", "A longer speculative width never costs less.", "32 requests of 1, 2, 3, 5 and 8 tokens at 8,192")
def wider(subject: Subject) -> Iterator[str]:
    yield from _rises(subject, [(f"width {q}", equal(32, q, 8192)) for q in (1, 2, 3, 5, 8)])


@law("M4", "A longer prefix under a chunk never costs less.", sweep="1,024 tokens after 0 to 131,072", needs="monotone")
def longer_prefix(subject: Subject) -> Iterator[str]:
    prices = [(f"prefix {done}", subject.price(equal(1, 1024, done + 1024))) for done in _PREFIXES]
    yield from rising((name, price.no_overlap) for name, price in prices)


_PREFIXES = (0, 1024, 8192, 32768, 131072)


@_m("M5", "A longer fresh prefill never costs less.", "16 to 8,192 tokens")
def longer_prefill(subject: Subject) -> Iterator[str]:
    yield from _rises(subject, [(f"{s} tokens", equal(1, s, s)) for s in (16, 32, 64, 256, 1024, 2048, 8192)])


@law(
    "M7",
    "Another request does not lower a price, in whole microseconds.",
    standing=ADVICE,
    sweep="60 random mixed batches",
)
def another_request(subject: Subject) -> Iterator[str]:
    for requests in _drawn(60):
        fewer, more = (subject.price(Batch(some, decode_threshold=8)) for some in (requests[:-1], requests))
        if more.no_overlap // 1000 < fewer.no_overlap // 1000:
            share = 1 - more.no_overlap / fewer.no_overlap
            yield f"{len(requests)} requests take {more.no_overlap} ns, {share:.2%} less than without the last"


def _drawn(count: int) -> Iterator[list]:  # type: ignore[type-arg]
    draw = random.Random(5)
    for _ in range(count):
        yield [random_request(draw) for _ in range(draw.randint(2, 40))]


@law(
    "M8",
    "Twice the decodes cost less than twice as much.",
    standing=ADVICE,
    sweep="16 and 32 decodes at 4,096",
)
def doubled(subject: Subject) -> Iterator[str]:
    one, two = (subject.price(equal(n, 1, 4096)).no_overlap for n in (16, 32))
    if two >= 2 * one:
        yield f"16 decodes take {one} ns, 32 take {two} ns, {two / one:.3f} times as long"


@law(
    "M9",
    "One step of two batches costs no more than two steps.",
    standing=ADVICE,
    sweep="60 random mixed batches, each cut in two",
)
def together(subject: Subject) -> Iterator[str]:
    for requests in _drawn(60):
        half = len(requests) // 2
        parts = (requests, requests[:half], requests[half:])
        whole, first, second = (subject.price(Batch(some, decode_threshold=THRESHOLD)).no_overlap for some in parts)
        if whole > first + second:
            excess = whole / (first + second) - 1
            yield f"{len(requests)} requests take {whole} ns, in two steps {first} and {second} ns: {excess:.2%} more"
