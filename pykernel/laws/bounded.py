"""Laws G: what a sequence holds beside what grows: recurrent state, and rings of windows, which are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykernel.documents import Speculative
from pykernel.laws.law import MODEL, Skipped
from pykernel.laws.sequences import has_window, of_sequences
from pykernel.laws.subject import Subject, rising

_IN_FLIGHT = (0, 1, 2, 15, 16, 17, 100, 1000, 2048, 8192, 8193, 16384, 65536, 1 << 20)


@of_sequences(
    "G1", "Bounded bytes with one step in flight are the fixed bytes.", "as deployed, and with 0, 1 and 3 draft tokens"
)
def fixed(subject: Subject) -> Iterator[str]:
    for drafts, model in _drafting(subject):
        bounded, whole_step = model.sequence_bounded_bytes(1 + drafts), model.sequence_fixed_bytes()
        if bounded != whole_step:
            yield f"sequence_bounded_bytes({1 + drafts}) is {bounded}, sequence_fixed_bytes is {whole_step}"


def _drafting(subject: Subject) -> Iterator[tuple[int, Any]]:
    """The model as deployed, and with other counts of draft tokens where it has a draft."""
    yield subject.drafts, subject.model
    if subject.build is None or subject.inputs is None or subject.inputs.model.speculator is None:
        return
    method = subject.inputs.model.speculator.method
    for drafts in (0, 1, 3):
        try:
            yield drafts, subject.settings(speculative=Speculative(method, drafts) if drafts else None)
        except Skipped:
            continue


@of_sequences("G2", "Admission sets aside the bounded bytes of the most tokens in flight.", "all counts up to 2^20")
def admission(subject: Subject) -> Iterator[str]:
    aside, bounded = subject.model.sequence_admission_bytes(), subject.model.sequence_bounded_bytes
    low, high = 0, 1 << 20
    if bounded(high) < aside:
        yield f"sequence_admission_bytes is {aside}, the most that is bounded {bounded(high)}"
        return
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bounded(middle) >= aside else (middle, high)
    if aside not in (bounded(high), bounded(low)):
        yield f"sequence_admission_bytes is {aside}; {low} tokens in flight are {bounded(low)}, {high} {bounded(high)}"
    if aside < subject.model.sequence_fixed_bytes():
        yield f"sequence_admission_bytes is {aside}, less than the fixed {subject.model.sequence_fixed_bytes()}"


@of_sequences("G3", "More tokens in flight hold no less.", "0 to 2^20")
def in_flight(subject: Subject) -> Iterator[str]:
    yield from rising((f"{count} in flight", subject.model.sequence_bounded_bytes(count)) for count in _IN_FLIGHT)


@of_sequences(
    "G4",
    "Admission does not fall with the token budget, and rises where a ring is not bound otherwise.",
    "2,048 to 8,192",
)
def budget(subject: Subject) -> Iterator[str]:
    made = [(count, subject.settings(max_num_batched_tokens=count)) for count in (2048, 4096, 8192)]
    yield from rising((f"a budget of {count}", model.sequence_admission_bytes()) for count, model in made)
    if subject.model.sequence_bounded_bytes(4096) > subject.model.sequence_bounded_bytes(2048):
        first, last = made[0][1].sequence_admission_bytes(), made[-1][1].sequence_admission_bytes()
        if last <= first:
            yield f"a budget of 8,192 sets aside {last} bytes, one of 2,048 {first}"


_COMPUTED = (0, 1, 15, 16, 17, 512, 1024, 4096, 4112, 8192, 32768, 131072, 1 << 20)


def _windows(subject: Subject) -> list[int]:
    """Windows of the model, in tokens."""
    if subject.inputs is None:
        return []
    graph = subject.inputs.model
    nodes = [node.window for kind in graph.layer_kinds for node in kind.nodes]
    return sorted({window for window in (*nodes, *(cache.window for cache in graph.caches)) if window})


@of_sequences(
    "G5", "A young sequence holds no more than is bounded, and no less as it ages.", "every block around each window"
)
def ages(subject: Subject) -> Iterator[str]:
    around = {done for window in _windows(subject)[:2] for done in range(0, window + 200, 7)}
    for count in (1, 1 + subject.drafts, 100):
        bound = subject.model.sequence_bounded_bytes(count)
        grid = sorted({*_COMPUTED, *around})
        held = [(f"{done} computed", subject.model.sequence_bounded_bytes_at(done, count)) for done in grid]
        yield from rising(held)
        for name, value in held:
            if value > bound:
                yield f"{name}, {count} in flight hold {value} bytes, bounded are {bound}"


@of_sequences(
    "G6", "A sequence past its window and one block holds what is bounded.", "the window's end, and 131,072 tokens"
)
def old(subject: Subject) -> Iterator[str]:
    longest, blocks = max(_windows(subject), default=1), [subject.page_tokens, subject.pool.engine.block_size]
    if subject.inputs is not None:
        blocks += [cache.block for cache in subject.inputs.model.caches]
    if longest + 128 > (subject.pool.engine.max_model_len or 1 << 20):
        raise Skipped("the longest sequence does not fill the window")
    for count in (1, 1 + subject.drafts, 16):
        bound = subject.model.sequence_bounded_bytes(count)
        for done in (longest + min(max(blocks), 4096) - 1, longest + 4096, 131072):
            held = subject.model.sequence_bounded_bytes_at(done, count)
            if held != bound:
                yield f"{done} computed and {count} in flight hold {held} bytes, bounded are {bound}"


@of_sequences(
    "G7",
    "Without a ring, fixed, admission and bounded bytes are one, at any age.",
    "models without windows and stated caches",
)
def no_ring(subject: Subject) -> Iterator[str]:
    graph = subject.given.model
    if graph.caches or has_window(subject):
        raise Skipped("the model has windows or stated caches")
    aside = subject.model.sequence_fixed_bytes()
    found = {subject.model.sequence_admission_bytes()}
    found |= {subject.model.sequence_bounded_bytes(count) for count in (1, 100, 8192)}
    found |= {subject.model.sequence_bounded_bytes_at(done, 1) for done in (0, 100, 8192)}
    if found != {aside}:
        yield f"sequence_fixed_bytes is {aside}, the others {sorted(found)}"


@of_sequences("G8", "Fixed bytes of a sequence do not depend on the token budget.", "2,048 and 16,384")
def fixed_of_budget(subject: Subject) -> Iterator[str]:
    made = [subject.settings(max_num_batched_tokens=count).sequence_fixed_bytes() for count in (2048, 16384)]
    if made[0] != made[1]:
        yield f"sequence_fixed_bytes is {made[0]} with a budget of 2,048 and {made[1]} with 16,384"


@of_sequences(
    "G9",
    "A block more in flight adds one page of each ring, as a block more of a young sequence does.",
    "blocks of 16 tokens up to 1,024 in flight, on graphs that state rings of one block",
    standing=MODEL,
)
def ring_pages(subject: Subject) -> Iterator[str]:
    rings = [cache for cache in subject.given.model.caches if cache.window]
    blocks = {cache.block or subject.pool.engine.block_size for cache in rings}
    if len(blocks) != 1:
        raise Skipped("the graph states no rings, or rings of several blocks")
    block, model = blocks.pop(), subject.model
    page = model.sequence_bounded_bytes_at(block, 1) - model.sequence_bounded_bytes_at(0, 1)
    for count in range(1, 1024, block):
        more = model.sequence_bounded_bytes(count + block) - model.sequence_bounded_bytes(count)
        if more != page or page <= 0:
            yield f"{block} tokens more than {count} in flight add {more} bytes, a page of each ring is {page}"


@of_sequences("G10", "What is bounded does not hold caches that grow.", "2^40 computed tokens")
def bounded(subject: Subject) -> Iterator[str]:
    for count in (1, 100):
        held = subject.model.sequence_bounded_bytes_at(1 << 40, count)
        if held > subject.model.sequence_bounded_bytes(count):
            yield f"2^40 computed tokens hold {held} bytes, bounded are {subject.model.sequence_bounded_bytes(count)}"
