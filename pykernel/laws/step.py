"""Laws S: what the parts of an estimate are to each other."""

from __future__ import annotations

from collections.abc import Iterator

from pykernel.batch import Batch
from pykernel.interface import INT64_MAX, RESOURCES, Request
from pykernel.laws.batches import THRESHOLD, equal
from pykernel.laws.law import MODEL, law
from pykernel.laws.subject import Priced, Subject


def whole(value: object) -> bool:
    """Whether a value is a whole number, as every duration and size must be."""
    return isinstance(value, int) and not isinstance(value, bool)


@law("S1", "`overlap_ns` is at most `no_overlap_ns`.", sweep="all batches")
def bounds(subject: Subject) -> Iterator[str]:
    for name, _, price in subject.prices:
        if price.overlap > price.no_overlap:
            yield f"{name}: overlap {price.overlap} ns is above no overlap {price.no_overlap} ns"


@law("S2", "`no_overlap_ns` is the sum of the resources.", tolerance="1 ns for each resource", sweep="all batches")
def sums(subject: Subject) -> Iterator[str]:
    for name, _, price in subject.prices:
        total = sum(price.resources.values())
        if abs(total - price.no_overlap) > len(price.resources):
            yield f"{name}: no overlap {price.no_overlap} ns, the resources add up to {total} ns"


@law("S3", "The bottleneck is a resource of the step, and none has a larger share.", sweep="all batches")
def bottleneck(subject: Subject) -> Iterator[str]:
    for name, _, price in subject.prices:
        most = max(price.resources.values(), default=0)
        if price.bottleneck not in price.resources or price.get(price.bottleneck) < most:
            share = price.get(price.bottleneck)
            yield f"{name}: the bottleneck {price.bottleneck} has {share} ns, the largest share is {most} ns"


@law("S4", "Durations are whole, at least 0 and finite; resources are those of the interface.", sweep="all batches")
def durations(subject: Subject) -> Iterator[str]:
    for name, _, price in subject.prices:
        yield from unsound(name, price)


def unsound(name: str, price: Priced) -> Iterator[str]:
    """What no estimate may hold."""
    values = {"overlap": price.overlap, "no overlap": price.no_overlap, **price.resources}
    for part, ns in values.items():
        if not whole(ns) or not 0 <= ns < INT64_MAX:
            yield f"{name}: {part} is {ns!r}"
    for resource in price.resources:
        if resource not in RESOURCES:
            yield f"{name}: there is no resource {resource!r}"


@law("S5", "A batch with requests takes time.", sweep="all batches with requests")
def positive(subject: Subject) -> Iterator[str]:
    for name, batch, price in subject.prices:
        if len(batch) and price.overlap <= 0:
            yield f"{name}: overlap is {price.overlap} ns"


@law("S6", "An empty step takes time.", sweep="the empty batch")
def idle(subject: Subject) -> Iterator[str]:
    price = subject.price(Batch((), decode_threshold=THRESHOLD))
    if price.no_overlap <= 0:
        yield f"the empty batch: no overlap is {price.no_overlap} ns"


@law("S6b", "A step without tokens is the host's alone.", standing=MODEL, sweep="no requests; requests of no tokens")
def idle_host(subject: Subject) -> Iterator[str]:
    batches = {"the empty batch": Batch((), decode_threshold=THRESHOLD)}
    batches["3 requests of no tokens"] = Batch([Request(0, 10, 10)] * 3, decode_threshold=THRESHOLD)
    for name, batch in batches.items():
        price = subject.price(batch)
        if not price.overlap == price.no_overlap == price.get("host") or price.bottleneck != "host":
            yield f"{name}: {price}"


@law("S7", "`overlap_ns` is at least every resource's time.", tolerance="1 ns", sweep="all batches")
def longest(subject: Subject) -> Iterator[str]:
    for name, _, price in subject.prices:
        for resource, ns in price.resources.items():
            if price.overlap < ns - 1:
                yield f"{name}: overlap {price.overlap} ns is below {resource} {ns} ns"


@law(
    "S8",
    "The host overlaps with nothing, and does not depend on the context.",
    standing=MODEL,
    tolerance="2 ns",
    sweep="all batches; 1, 64 and 513 decodes at contexts 1,024 to 131,072",
)
def host_alone(subject: Subject) -> Iterator[str]:
    for name, _, price in subject.prices:
        other = max((ns for resource, ns in price.resources.items() if resource != "host"), default=0)
        if price.overlap < price.get("host") + other - 2:
            yield f"{name}: overlap {price.overlap} ns is below host and the longest other, {price.get('host') + other}"
    for n in (1, 64, 513):
        hosts = {ctx: subject.price(equal(n, 1, ctx)).get("host") for ctx in (1024, 8192, 65536, 131072)}
        if len(set(hosts.values())) > 1:
            yield f"{n} decodes: host by context is {hosts}"


@law("S9", "No estimate overflows.", sweep="512 requests of 8,192 tokens at 131,072; one at 2^30")
def large(subject: Subject) -> Iterator[str]:
    batches = {
        "512 x 8192 tokens at 131072": equal(512, 8192, 131072),
        "a decode at 2^30": Batch([Request(1, (1 << 30) - 1, 1)], decode_threshold=THRESHOLD),
    }
    for name, batch in batches.items():
        price = subject.price(batch)
        yield from unsound(name, price)
        if price.overlap > price.no_overlap or price.overlap <= 0:
            yield f"{name}: {price}"
