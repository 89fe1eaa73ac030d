"""Laws B: what a batch means."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pykernel.batch import Batch
from pykernel.errors import PykernelError
from pykernel.interface import Request
from pykernel.laws.batches import THRESHOLD, equal, mixed, random_request, rebuilt
from pykernel.laws.law import ADVICE, MODEL, Skipped, law
from pykernel.laws.step import unsound
from pykernel.laws.subject import Priced, Subject, rising, unbounded


@law(
    "B1",
    "The order of requests does not matter. With decode-context ranks, prefills that have a prefix are left out.",
    tolerance="1 ns for each resource",
    sweep="random mixed batches of 2 to 41 requests, 5 shuffles each",
)
def permutation(subject: Subject) -> Iterator[str]:
    draw = random.Random(3)
    for count in range(2, 42):  # the fewest that show it are told of first
        requests = [random_request(draw) for _ in range(count)]
        if subject.model.decode_context_parallel_width() > 1:
            requests = [request for request in requests if request.scheduled <= THRESHOLD or not request.computed]
        before = subject.price(Batch(requests, decode_threshold=THRESHOLD))
        for _ in range(5):
            draw.shuffle(requests)
            after = subject.price(Batch(requests, decode_threshold=THRESHOLD))
            yield from _differ(f"{len(requests)} requests in another order, {_listed(requests)}", before, after)


def _listed(requests: list[Request]) -> str:
    shown = ", ".join(f"{one.scheduled} after {one.computed}" for one in requests[:3])
    return shown + (", ..." if len(requests) > 3 else "")


def _differ(name: str, before: Priced, after: Priced, tolerance: int = 1) -> Iterator[str]:
    """Violations of two estimates that must be equal."""
    for resource in sorted({*before.resources, *after.resources}):
        if abs(before.get(resource) - after.get(resource)) > tolerance:
            yield f"{name}: {resource} is {after.get(resource)} ns, not {before.get(resource)} ns"
    for part in ("overlap", "no_overlap"):
        if abs(getattr(before, part) - getattr(after, part)) > tolerance * 7:
            yield f"{name}: {part} is {getattr(after, part)} ns, not {getattr(before, part)} ns"


@law(
    "B1x",
    "With decode-context ranks, prefills that have a prefix may come in any order as well.",
    standing=ADVICE,
    tolerance="1 ns for each resource",
    sweep="20 batches of prefills of equal lengths and other prefixes, on 2 decode-context ranks",
)
def permutation_of_prefixes(subject: Subject) -> Iterator[str]:
    model, draw = subject.settings(dcp=2), random.Random(4)
    for _ in range(20):
        requests = [Request(512, 64 * draw.randint(0, 2048), 200_000) for _ in range(8)]
        before = Priced.of(model.step_time(Batch(requests, decode_threshold=THRESHOLD)))
        draw.shuffle(requests)
        after = Priced.of(model.step_time(Batch(requests, decode_threshold=THRESHOLD)))
        yield from _differ("shuffled prefills", before, after)


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


@law(
    "B4",
    "An SM budget of 0, below 0, or above the chip's SMs is the whole chip.",
    sweep="0, -1, -2^20, 2^20 and the chip's count",
)
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
    "Withheld SMs scale only `sm`, and overlap grows by no more; by little where a step waits for memory.",
    standing=MODEL,
    tolerance="2 ns; a tenth of the share of SMs withheld",
    sweep="32 decodes of 2 tokens at 8,192, on 64 SMs and on 12 fewer",
)
def sms_only(subject: Subject) -> Iterator[str]:
    batch = equal(32, 2, 8192)
    whole, less = subject.price(batch), subject.price(rebuilt(batch, sm_budget=64))
    for resource in sorted({*whole.resources, *less.resources} - {"sm"}):
        if whole.get(resource) != less.get(resource):
            yield f"64 SMs: {resource} is {less.get(resource)} ns, not {whole.get(resource)} ns"
    if less.overlap - whole.overlap > less.get("sm") - whole.get("sm") + 2:
        yield f"64 SMs: overlap grows by {less.overlap - whole.overlap} ns, sm by {less.get('sm') - whole.get('sm')} ns"
    if subject.inputs is not None and whole.bottleneck == "hbm" and not _whole_experts(subject):
        sms = subject.inputs.chip.sm_count
        grown = subject.price(rebuilt(batch, sm_budget=sms - 12)).overlap / whole.overlap - 1
        if grown > 0.1 * 12 / sms:
            yield f"{sms - 12} of {sms} SMs: overlap grows by {grown:.2%}, though the step waits for memory"


def _whole_experts(subject: Subject) -> bool:
    """Whether the work of experts stands outside the longest of a stage: they are whole on every rank."""
    nodes = [node for kind in subject.given.model.layer_kinds for node in kind.nodes]
    return any(node.experts for node in nodes) and not subject.pool.parallel.enable_expert_parallel


@law("B7", "Raising `cached_tokens` never lowers a price.", sweep="0, 1, half and all of a prompt")
def cached(subject: Subject) -> Iterator[str]:
    for scheduled, computed, prompt in ((1, 4095, 2048), (512, 1024, 1536), (4, 100, 50)):
        prices = [_cached_price(subject, scheduled, computed, prompt, tokens) for tokens in (0, 1, prompt // 2, prompt)]
        yield from rising((f"{tokens} cached", price.no_overlap) for tokens, price in enumerate(prices))


def _cached_price(subject: Subject, scheduled: int, computed: int, prompt: int, tokens: int) -> Priced:
    request = Request(scheduled, computed, prompt, tokens)
    return subject.price(Batch([request] * 8, decode_threshold=THRESHOLD))


@law("B7b", "`cached_tokens` is not read.", standing=MODEL, sweep="0 and a whole prompt, of decodes and chunks")
def cached_unread(subject: Subject) -> Iterator[str]:
    for scheduled, computed, prompt in ((1, 4095, 2048), (512, 1024, 1536), (4, 100, 50)):
        before, after = (_cached_price(subject, scheduled, computed, prompt, tokens) for tokens in (0, prompt))
        yield from _differ(f"{scheduled} tokens of a cached prompt", before, after, 0)


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


@law(
    "B10",
    "A batch counts its tokens, and is a uniform decode only where every request has that width.",
    sweep="batches of 0, 4 and 5 requests",
)
def counting(subject: Subject) -> Iterator[str]:
    batch = mixed((3, 1, 10), (1, 4, 20))
    if batch.tokens() != 7 or batch.uniform_decode(1) or Batch(()).uniform_decode(1):
        yield "a batch of 3 requests of 1 token and one of 4 miscounts"
    if not equal(5, 2, 10).uniform_decode(2) or equal(5, 2, 10).uniform_decode(1):
        yield "5 requests of 2 tokens are no uniform decode of width 2"


@law(
    "B11",
    "`prompt_len` alone changes no price.",
    standing=ADVICE,
    sweep="a decode, a chunk and a fresh prefill with prompts from 1 token to ten times as long",
)
def prompt_unread(subject: Subject) -> Iterator[str]:
    for scheduled, computed in ((1, 4095), (512, 1024), (1024, 0)):
        end = scheduled + computed
        before, *others = (_prompted(subject, scheduled, computed, prompt) for prompt in (end, 1, end - 1, 10 * end))
        for price in others:
            yield from _differ(f"{scheduled} tokens after {computed}, of another prompt", before, price, 0)


def _prompted(subject: Subject, scheduled: int, computed: int, prompt: int) -> Priced:
    return subject.price(Batch([Request(scheduled, computed, prompt)] * 4, decode_threshold=THRESHOLD))


# ---- the BLIS model --------------------------------------------------------------------------------------------


@law(
    "B2",
    "Context moves freely between decodes where each reads all of its own.",
    standing=MODEL,
    sweep="4,096 twice, and 1,024 with 7,168",
)
def exchange(subject: Subject) -> Iterator[str]:
    unbounded(subject)
    before, after = subject.price(equal(2, 1, 4096)), subject.price(mixed((1, 1, 1024), (1, 1, 7168)))
    yield from _differ("1,024 and 7,168 in place of 4,096 twice", before, after, 0)


@law(
    "B2a",
    "`hbm` is affine in the total context of decodes, however it is split.",
    standing=MODEL,
    tolerance="2 ns",
    sweep="64 decodes at five equal steps of context; the same totals split 1 to 3",
)
def affine_reads(subject: Subject) -> Iterator[str]:
    unbounded(subject)
    hbm = [subject.price(equal(64, 1, 4096 * step)).get("hbm") for step in (1, 2, 3, 4, 5)]
    split = [subject.price(mixed((32, 1, 2048 * step), (32, 1, 6144 * step))).get("hbm") for step in (1, 2, 3, 4, 5)]
    for one, two, three in zip(hbm, hbm[1:], hbm[2:], strict=False):
        if abs(one - 2 * two + three) > 2:
            yield f"64 decodes: hbm in equal steps of context is {hbm}"
            break
    if any(abs(one - two) > 2 for one, two in zip(hbm, split, strict=True)):
        yield f"64 decodes: hbm of totals split equally is {hbm}, split 1 to 3 {split}"


@law(
    "B2x",
    "What a decode reads is bounded and rounded for each by itself, whatever the batch.",
    standing=MODEL,
    tolerance="2 ns for each batch",
    sweep="512 decodes of two contexts, half and half; at 1,000 to 1,004 on 4 decode-context ranks",
)
def bounded_each(subject: Subject) -> Iterator[str]:
    def reads(model: object, *parts: tuple[int, int]) -> int:
        batch = mixed(*((n, 1, context) for n, context in parts))
        return Priced.of(model.step_time(batch)).get("hbm")  # type: ignore[attr-defined]

    if not _bounded_scorer(subject):
        for near, far in ((64, 1024), (1024, 32768), (512, 131072)):
            one, two = (reads(subject.model, (512, context)) for context in (near, far))
            both = reads(subject.model, (256, near), (256, far))
            if abs(2 * both - one - two) > 6:
                yield f"hbm of 512 decodes at {near} is {one} ns, at {far} {two} ns, half and half {both} ns"
    try:
        shared = subject.settings(dcp=4, cp_kv_cache_interleave_size=1)
    except Skipped:
        return
    if _has_scorer(subject) or subject.drafts:
        return
    less, whole, more = (reads(shared, (512, context)) for context in (1000, 1001, 1004))
    both = reads(shared, (256, 1000), (256, 1002))
    if not less < whole == more or abs(2 * both - less - more) > 6:
        contexts = f"at 1,000 {less} ns, 1,001 {whole} ns, 1,004 {more} ns, half at 1,000 and half at 1,002 {both} ns"
        yield f"hbm of 512 decodes on 4 ranks: {contexts}"


def _has_scorer(subject: Subject) -> bool:
    """Whether scorers beside attention read the context too: they round the total of a batch."""
    if subject.inputs is None:
        return False
    return any(node.role for kind in subject.inputs.model.layer_kinds for node in kind.nodes if node.op == "Attention")


def _bounded_scorer(subject: Subject) -> bool:
    """Whether one of them has a window, which bounds the total of a batch."""
    if subject.inputs is None:
        return False
    nodes = [node for kind in subject.inputs.model.layer_kinds for node in kind.nodes if node.op == "Attention"]
    return any(node.role and node.window for node in nodes)


@law(
    "B12",
    "Decode-context ranks do not change a step of fresh prefills.",
    standing=MODEL,
    sweep="three batches on 1, 2, 4 and 8 ranks",
)
def prefills_unshared(subject: Subject) -> Iterator[str]:
    if subject.drafts:
        raise Skipped("a draft decodes after a prefill")
    models = subject.each("dcp", (1, 2, 4, 8))
    for batch in (equal(1, 2048, 2048), equal(4, 8192, 8192), mixed((2, 100, 100), (1, 4096, 4096))):
        prices = [(width, Priced.of(model.step_time(batch))) for width, model in models]
        for width, price in prices[1:]:
            name = f"{len(batch)} prefills on {width} ranks, not {prices[0][0]}"
            yield from _differ(name, prices[0][1], price, 0)
