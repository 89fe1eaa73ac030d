"""Laws B: what a batch means. Laws M: what more work does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

from pykernel.batch import Batch
from pykernel.errors import PykernelError
from pykernel.interface import Request
from pykernel.laws.batches import THRESHOLD, equal, mixed, random_request, rebuilt
from pykernel.laws.law import ADVICE, MODEL, Priced, Skipped, Subject, law, rising
from pykernel.laws.step import unsound


@law(
    "B1",
    "The order of requests does not matter. With decode-context ranks, prefills that have a prefix are left out.",
    tolerance="1 ns for each resource",
    sweep="40 random mixed batches, 5 shuffles each",
)
def permutation(subject: Subject) -> Iterator[str]:
    draw = random.Random(3)
    for _ in range(40):
        requests = [random_request(draw) for _ in range(draw.randint(2, 48))]
        if subject.model.decode_context_parallel_width() > 1:
            requests = [request for request in requests if request.scheduled <= THRESHOLD or not request.computed]
        before = subject.price(Batch(requests, decode_threshold=THRESHOLD))
        for _ in range(5):
            draw.shuffle(requests)
            yield from _differ("a shuffled batch", before, subject.price(Batch(requests, decode_threshold=THRESHOLD)))


def _differ(name: str, before: Priced, after: Priced, tolerance: int = 1) -> Iterator[str]:
    """Violations of two estimates that must be equal."""
    for resource in sorted({*before.resources, *after.resources}):
        if abs(before.get(resource) - after.get(resource)) > tolerance:
            yield f"{name}: {resource} is {after.get(resource)} ns, not {before.get(resource)} ns"
    for part in ("overlap", "no_overlap"):
        if abs(getattr(before, part) - getattr(after, part)) > tolerance * 7:
            yield f"{name}: {part} is {getattr(after, part)} ns, not {getattr(before, part)} ns"


@law(
    "B3",
    "`decode_threshold` acts by comparison with the scheduled tokens only.",
    sweep="thresholds from 0 past the longest request of mixed batches",
)
def threshold(subject: Subject) -> Iterator[str]:
    for parts in ([(3, 1, 900), (2, 4, 2000), (1, 9, 500)], [(4, 2, 4096), (1, 6, 6)]):
        batch = mixed(*parts)
        edges = sorted({q for _, q, _ in parts})
        prices = {level: subject.price(rebuilt(batch, decode_threshold=level)) for level in range(edges[-1] + 3)}
        for level in range(1, edges[-1] + 3):
            if level not in edges:
                yield from _differ(f"threshold {level} in place of {level - 1}", prices[level - 1], prices[level], 0)
        few = mixed(*[part for part in parts if part[1] <= 4])
        near, far = (subject.price(rebuilt(few, decode_threshold=level)) for level in (4, 1 << 20))
        yield from _differ("a threshold of 2^20 in place of 4", near, far, 0)


@law("B4", "An SM budget of 0, below 0, or above the chip's SMs is the whole chip.", sweep="0, -1, 2^20")
def whole_chip(subject: Subject) -> Iterator[str]:
    counts = [0, -1, -(1 << 20), 1 << 20] + ([subject.inputs.chip.sm_count] if subject.inputs else [])
    for name, batch in subject.standard:
        before = subject.price(batch)
        for count in counts[1:]:
            yield from _differ(f"{name}, budget {count}", before, subject.price(rebuilt(batch, sm_budget=count)), 0)
    busy = subject.price(equal(4, 8192, 8192))
    if busy.get("sm") <= 0:
        yield "4 prefills of 8192 tokens take no time of the SMs"


@law("B5", "A smaller SM budget never makes a step cheaper.", sweep="132, 120, 66, 8 and 1 SMs")
def fewer_sms(subject: Subject) -> Iterator[str]:
    for name, batch in subject.standard:
        prices = [(f"{name}, {count} SMs", subject.price(rebuilt(batch, sm_budget=count))) for count in _BUDGETS]
        for part in ("overlap", "no_overlap"):
            yield from rising((label, getattr(price, part)) for label, price in prices)
    batch = equal(4, 8192, 8192)
    if subject.price(rebuilt(batch, sm_budget=1)).no_overlap <= subject.price(batch).no_overlap:
        yield "4 prefills of 8192 tokens take no longer on one SM"


_BUDGETS = (0, 132, 120, 66, 8, 1)


@law(
    "B6",
    "Withheld SMs scale only `sm`, and overlap grows by no more.",
    standing=MODEL,
    tolerance="2 ns",
    sweep="32 decodes of 2 tokens at 8,192 on fewer SMs",
)
def sms_only(subject: Subject) -> Iterator[str]:
    batch = equal(32, 2, 8192)
    whole, less = subject.price(batch), subject.price(rebuilt(batch, sm_budget=64))
    for resource in sorted({*whole.resources, *less.resources} - {"sm"}):
        if whole.get(resource) != less.get(resource):
            yield f"64 SMs: {resource} is {less.get(resource)} ns, not {whole.get(resource)} ns"
    if less.overlap - whole.overlap > less.get("sm") - whole.get("sm") + 2:
        yield f"64 SMs: overlap grows by {less.overlap - whole.overlap} ns, sm by {less.get('sm') - whole.get('sm')} ns"


@law("B7", "Raising `cached_tokens` never lowers a price.", sweep="0, 1, half and all of a prompt")
def cached(subject: Subject) -> Iterator[str]:
    for scheduled, computed, prompt in ((1, 4095, 2048), (512, 1024, 1536), (4, 100, 50)):
        prices = [_cached_price(subject, scheduled, computed, prompt, tokens) for tokens in (0, 1, prompt // 2, prompt)]
        yield from rising((f"{tokens} cached", price.no_overlap) for tokens, price in enumerate(prices))


def _cached_price(subject: Subject, scheduled: int, computed: int, prompt: int, tokens: int) -> Priced:
    request = Request(scheduled, computed, prompt, tokens)
    return subject.price(Batch([request] * 8, decode_threshold=THRESHOLD))


@law("B7b", "`cached_tokens` is not read.", standing=MODEL, sweep="0 and a whole prompt")
def cached_unread(subject: Subject) -> Iterator[str]:
    before, after = (_cached_price(subject, 512, 1024, 1536, tokens) for tokens in (0, 1536))
    yield from _differ("a cached prompt", before, after, 0)


@law("B8", "A batch beyond the engine's limits is answered.", sweep="262,144 tokens at once; 4,096 requests")
def beyond_limits(subject: Subject) -> Iterator[str]:
    for name, batch in (("262,144 tokens", equal(32, 8192, 8192)), ("4,096 requests", equal(4096, 1, 100))):
        price = subject.price(batch)
        yield from unsound(name, price)
        if not 0 < price.overlap <= price.no_overlap:
            yield f"{name}: {price}"


@law(
    "B9",
    "A malformed batch is refused with an error of pykernel's, or priced with a sound estimate, and changes no later "
    "answer.",
    sweep="-1, 0 and the least 32-bit and 64-bit integers for each count",
)
def malformed(subject: Subject) -> Iterator[str]:
    sound = equal(8, 1, 1024)
    before = subject.price(sound)
    for value in (-1, 0, -(1 << 31), -(1 << 63)):
        for request in (Request(value, 10, 10), Request(1, value, 10), Request(1, 10, value), Request(value, value, 0)):
            try:
                price = subject.price(Batch([request, Request(1, 9, 10)], decode_threshold=THRESHOLD))
            except PykernelError:
                continue
            yield from unsound(str(request), price)
            if price.no_overlap > 1 << 60:
                yield f"{request}: no overlap is {price.no_overlap} ns"
    yield from _differ("after malformed batches", before, subject.price(sound), 0)


@law("B10", "A batch counts its tokens, and is a uniform decode only where every request has that width.", sweep="unit")
def counting(subject: Subject) -> Iterator[str]:
    batch = mixed((3, 1, 10), (1, 4, 20))
    if batch.tokens() != 7 or batch.uniform_decode(1) or Batch(()).uniform_decode(1):
        yield "a batch of 3 requests of 1 token and one of 4 miscounts"
    if not equal(5, 2, 10).uniform_decode(2) or equal(5, 2, 10).uniform_decode(1):
        yield "5 requests of 2 tokens are no uniform decode of width 2"


# ---- more work -------------------------------------------------------------------------------------------------


def _rises(subject: Subject, batches: list[tuple[str, Batch]]) -> Iterator[str]:
    """`no_overlap_ns` does not fall, but for what the host saves when graphs replay otherwise."""
    prices = [(name, subject.price(batch)) for name, batch in batches]

    def host_drop(index: int) -> int:
        return max(prices[index - 1][1].get("host") - prices[index][1].get("host"), 0)

    yield from rising(((name, price.no_overlap) for name, price in prices), host_drop)


def _m(id: str, statement: str, sweep: str) -> Callable[[Callable[[Subject], Iterator[str]]], object]:
    return law(id, statement, sweep=sweep, needs="monotone", tolerance="exact; what the host entry drops by is allowed")


@_m("M1", "More equal decodes never cost less.", "1 to 512 decodes at 4,096")
def more_requests(subject: Subject) -> Iterator[str]:
    yield from _rises(subject, [(f"{n} decodes", equal(n, 1, 4096)) for n in (1, 2, 8, 32, 128, 512)])


@_m("M2", "More context of a decode lowers neither `no_overlap_ns` nor `hbm`.", "64 decodes at 1,024 to 131,072")
def more_context(subject: Subject) -> Iterator[str]:
    prices = [(f"context {ctx}", subject.price(equal(64, 1, ctx))) for ctx in _CONTEXTS]
    yield from rising((name, price.no_overlap) for name, price in prices)
    yield from rising((f"hbm at {name}", price.get("hbm")) for name, price in prices)


_CONTEXTS = (1024, 2048, 4096, 16384, 65536, 131072)


@_m("M3", "A longer speculative width never costs less.", "32 requests of 1, 2, 3, 5 and 8 tokens at 8,192")
def wider(subject: Subject) -> Iterator[str]:
    yield from _rises(subject, [(f"width {q}", equal(32, q, 8192)) for q in (1, 2, 3, 5, 8)])


@_m("M4", "A longer prefix under a chunk never costs less.", "1,024 tokens after 0 to 131,072")
def longer_prefix(subject: Subject) -> Iterator[str]:
    prefixes = (0, 1024, 8192, 32768, 131072)
    yield from _rises(subject, [(f"prefix {done}", equal(1, 1024, done + 1024)) for done in prefixes])


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
    draw = random.Random(5)
    for _ in range(60):
        requests = [random_request(draw) for _ in range(draw.randint(1, 40))]
        fewer, more = (subject.price(Batch(some, decode_threshold=8)) for some in (requests[:-1], requests))
        if more.no_overlap // 1000 < fewer.no_overlap // 1000:
            yield f"{len(requests)} requests take {more.no_overlap} ns, without the last {fewer.no_overlap} ns"


# ---- the BLIS model --------------------------------------------------------------------------------------------


def _unbounded(subject: Subject) -> None:
    """Go on only for models whose every decode reads its whole context, on one rank."""
    graph = subject.documents().model
    kinds = {node.kind for kind in graph.layer_kinds for node in kind.nodes if node.op == "Attention"}
    if kinds - {"gqa", "mha", "mqa"} or any(node.window for kind in graph.layer_kinds for node in kind.nodes):
        raise Skipped("the model has attention that bounds its reads")
    if any(node.op == "RecurrentUpdate" for kind in graph.layer_kinds for node in kind.nodes):
        raise Skipped("the model has recurrent layers")
    if subject.model.decode_context_parallel_width() > 1:
        raise Skipped("decode-context ranks round each request")


@law("B2", "Context moves freely between decodes.", standing=MODEL, sweep="4,096 twice, and 1,024 with 7,168")
def exchange(subject: Subject) -> Iterator[str]:
    _unbounded(subject)
    before, after = subject.price(equal(2, 1, 4096)), subject.price(mixed((1, 1, 1024), (1, 1, 7168)))
    yield from _differ("1,024 and 7,168 in place of 4,096 twice", before, after, 0)


@law("B2a", "`hbm` is affine in the total context of decodes.", standing=MODEL, tolerance="2 ns", sweep="equal steps")
def affine_reads(subject: Subject) -> Iterator[str]:
    _unbounded(subject)
    hbm = [subject.price(equal(64, 1, 4096 * step)).get("hbm") for step in (1, 2, 3, 4, 5)]
    for one, two, three in zip(hbm, hbm[1:], hbm[2:], strict=False):
        if abs(one - 2 * two + three) > 2:
            yield f"64 decodes: hbm in equal steps of context is {hbm}"
            return


@law("B2x", "A bound on what is read holds for each decode by itself.", standing=MODEL, sweep="short and long decodes")
def bounded_each(subject: Subject) -> Iterator[str]:
    one = subject.price(equal(1, 1, 1 << 15)).get("hbm")
    eight, spread = subject.price(equal(8, 1, 1 << 15)).get("hbm"), subject.price(equal(8, 1, 1 << 10)).get("hbm")
    if not one <= eight or spread > eight:
        yield f"hbm of a decode at 32,768 is {one} ns, of eight {eight} ns, of eight at 1,024 {spread} ns"
    if eight == one:
        yield f"eight decodes at 32,768 read what one does: {eight} ns"


@law(
    "M2s", "`hbm` rises strictly with context where a layer reads all of it.", standing=MODEL, sweep="1,024 to 131,072"
)
def strictly_more(subject: Subject) -> Iterator[str]:
    _unbounded(subject)
    hbm = [subject.price(equal(64, 1, ctx)).get("hbm") for ctx in _CONTEXTS]
    if any(later <= earlier for earlier, later in pairwise(hbm)):
        yield f"64 decodes at {_CONTEXTS}: hbm is {hbm}"
