"""Laws Q: what a sequence holds that grows with it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from pykernel.interface import INT64_MAX
from pykernel.laws.law import MODEL, Skipped, law
from pykernel.laws.observations import HANDOFF_TOKENS, PLACEMENTS, TOKENS
from pykernel.laws.step import whole
from pykernel.laws.subject import Subject, rising


def of_sequences(id: str, statement: str, sweep: str, **more: Any) -> Callable[[Any], Any]:
    return law(id, statement, sweep=sweep, needs="sequences", **more)


@of_sequences(
    "Q1", "No tokens hold nothing, and no count of tokens holds less than nothing.", "-5 and 0, and the token grid"
)
def none(subject: Subject) -> Iterator[str]:
    for tokens in (-5, *TOKENS):
        held = subject.model.sequence_variable_bytes(tokens)
        if not whole(held) or held < 0 or (tokens <= 0 and held):
            yield f"{tokens} tokens hold {held!r} bytes"


@of_sequences("Q2", "More tokens hold no less.", "the token grid, and 1 to 260")
def grows(subject: Subject) -> Iterator[str]:
    grid = sorted({*range(1, 261), 1000, 4096, 8192, 32768, 131072})
    yield from rising((f"{tokens} tokens", subject.model.sequence_variable_bytes(tokens)) for tokens in grid)


@of_sequences("Q3", "Bytes come in whole pages.", "1 to 4 pages, token by token")
def pages(subject: Subject) -> Iterator[str]:
    page = _page(subject)
    for tokens in _page_grid(page):
        rounded = -(-tokens // page) * page
        exact, whole_pages = (subject.model.sequence_variable_bytes(count) for count in (tokens, rounded))
        if exact != whole_pages:
            yield f"{tokens} tokens hold {exact} bytes, {rounded} in whole pages {whole_pages}"


def _page(subject: Subject) -> int:
    """Tokens of a page: as deployed where that is stated, else discovered."""
    if subject.model.sequence_variable_bytes(1 << 20) == 0:
        raise Skipped("nothing grows with a sequence")
    page: int = subject.pool.engine.block_size * max(subject.model.decode_context_parallel_width(), 1)
    page = max(page, subject.page_tokens)
    if page >= 1 << 20:
        raise Skipped("nothing grows with a sequence")
    if page < 4 and not subject.pool.engine.block_size:
        return 16
    return page


def _page_grid(page: int) -> list[int]:
    every = range(1, 4 * page + 1)
    return (
        list(every) if page <= 256 else sorted({*every[:: max(page // 64, 1)], page, page + 1, 2 * page, 2 * page + 1})
    )


@of_sequences("Q4", "A page more holds more.", "the first page and one token")
def next_page(subject: Subject) -> Iterator[str]:
    page = _page(subject)
    one, two = (subject.model.sequence_variable_bytes(tokens) for tokens in (page, page + 1))
    if two <= one:
        yield f"{page} tokens hold {one} bytes, {page + 1} hold {two}"


@of_sequences(
    "Q5", "Bytes are affine in pages, but for windows that are full.", "1 to 64 pages", tolerance="2 bytes a page"
)
def linear(subject: Subject) -> Iterator[str]:
    page = _page(subject)
    held = [subject.model.sequence_variable_bytes(page * pages) for pages in range(1, 65)]
    growth = [later - earlier for earlier, later in pairwise(held)]
    if any(later > earlier + 2 for earlier, later in pairwise(growth)) and not _stated(subject):
        yield f"a later page adds more than one before: {sorted(set(growth))}"
    if max(growth) - min(growth) > 2 and not has_window(subject) and not _stated(subject):
        yield f"pages add {sorted(set(growth))[:6]} bytes"


def _stated(subject: Subject) -> bool:
    """Whether the graph states its caches, whose blocks need not be the engine's."""
    return subject.inputs is not None and bool(subject.inputs.model.caches)


def _states_grow(subject: Subject) -> bool:
    """Whether states of recurrent layers are kept with each block of a sequence."""
    return _recurrent(subject) and subject.pool.engine.mamba_cache_mode == "all"


def has_window(subject: Subject) -> bool:
    if subject.inputs is None:
        return True
    return any(node.window for kind in subject.inputs.model.layer_kinds for node in kind.nodes)


@of_sequences(
    "Q6", "Two sequences hold at least what one of both lengths does.", "100 random pairs", tolerance="1 byte a page"
)
def subadditive(subject: Subject) -> Iterator[str]:
    draw, held = random.Random(2), subject.model.sequence_variable_bytes
    for _ in range(100):
        s, t = draw.randint(1, 20000), draw.randint(1, 20000)
        if held(s) + held(t) + 2 < held(s + t):
            yield f"{s} and {t} tokens hold {held(s)} and {held(t)} bytes, {s + t} hold {held(s + t)}"


@of_sequences("Q7", "Bytes do not rise with tensor parallelism, and stop falling at one KV head a rank.", "tp 1 to 16")
def per_head(subject: Subject) -> Iterator[str]:
    nodes = [node for kind in subject.given.model.layer_kinds for node in kind.nodes if node.op == "Attention"]
    heads = max((1 if node.kind in ("mla", "sparse_mla") else node.n_kv for node in nodes), default=1)
    made = subject.each("tp", (1, 2, 4, 8, 16), block_size=16)
    held = [(tp, model.sequence_variable_bytes(1 << 16)) for tp, model in made]
    yield from rising((f"bytes at tp {tp}", -value) for tp, value in held)
    beyond = {value for tp, value in held if tp >= heads}
    if len(beyond) > 1 and not _states_grow(subject):
        yield f"{heads} KV heads: bytes by tp are {dict(held)}"


@of_sequences("Q8", "A cache of half the width holds half.", "fp8 in place of 16 bits, on models of full attention")
def half_width(subject: Subject) -> Iterator[str]:
    graph = subject.given.model
    nodes = [node for kind in graph.layer_kinds for node in kind.nodes if node.op == "Attention"]
    if graph.caches or _states_grow(subject) or any(node.kind not in ("gqa", "mha", "mqa", "mla") for node in nodes):
        raise Skipped("not all that grows is a plain cache of full attention")
    wide = subject.settings(cache_dtype="bfloat16", block_size=16).sequence_variable_bytes(4096)
    narrow = subject.settings(cache_dtype="fp8", block_size=16).sequence_variable_bytes(4096)
    if wide != 2 * narrow:
        yield f"4,096 tokens hold {wide} bytes at 16 bits and {narrow} at 8"


@of_sequences(
    "Q9",
    "Decode-context ranks divide tokens before pages are counted; one token is a page on any number of ranks.",
    "1, 2, 4 and 8 ranks",
    standing=MODEL,
)
def shards(subject: Subject) -> Iterator[str]:
    if has_window(subject) or _states_grow(subject):
        raise Skipped("the model has windows or states, which are not shared")
    widths = subject.each("dcp", (1, 2, 4, 8), block_size=16)
    if widths[0][0] != 1:
        raise Skipped("the model cannot be made without decode-context ranks")
    alone = widths[0][1]
    for width, shared in widths[1:]:
        for tokens in (1, 17, 1000, 4096, 131072):
            expected = alone.sequence_variable_bytes(16 * -(-tokens // (16 * width)))
            if (held := shared.sequence_variable_bytes(tokens)) != expected:
                yield f"{tokens} tokens over {width} ranks hold {held} bytes, not {expected}"


@of_sequences("Q10", "What a sequence holds beside is whole and at least 0.", "fixed and admission bytes")
def beside(subject: Subject) -> Iterator[str]:
    for name in ("sequence_fixed_bytes", "sequence_admission_bytes"):
        held = getattr(subject.model, name)()
        if not whole(held) or held < 0:
            yield f"{name} is {held!r}"
    held = subject.model.sequence_fixed_bytes()
    if held and subject.inputs is not None and not (_stated(subject) or has_window(subject) or _recurrent(subject)):
        yield f"sequence_fixed_bytes is {held} on a model of full attention alone"


@of_sequences(
    "Q11",
    "State of a recurrent layer is kept twice with prefix caching, once without, or with each block of the sequence.",
    "modes align, none and all, and unset with and without prefix caching",
    standing=MODEL,
)
def recurrent_modes(subject: Subject) -> Iterator[str]:
    if not _recurrent(subject):
        raise Skipped("the model has no recurrent layers")
    align, none, whole_sequence, unset, uncached = (
        subject.settings(mamba_cache_mode=mode, enable_prefix_caching=caching)
        for mode, caching in (("align", True), ("none", False), ("all", True), ("", True), ("", False))
    )
    states = [model.sequence_fixed_bytes() for model in (align, none, whole_sequence)]
    if not states[0] > states[1] > states[2] == 0:
        yield f"sequence_fixed_bytes in modes align, none and all is {states}"
    grown = [model.sequence_variable_bytes(4096) for model in (align, whole_sequence)]
    if grown[1] <= grown[0]:
        yield f"sequence_variable_bytes(4096) in modes align and all is {grown}"
    for name, model, expected in (("with", unset, states[0]), ("without", uncached, states[1])):
        if model.sequence_fixed_bytes() != expected:
            yield f"unset {name} prefix caching, sequence_fixed_bytes is {model.sequence_fixed_bytes()}, not {expected}"


def _recurrent(subject: Subject) -> bool:
    graph = subject.given.model
    return any(node.op == "RecurrentUpdate" for kind in graph.layer_kinds for node in kind.nodes)


@of_sequences(
    "Q12",
    "Stated caches take whole blocks of the pool that they share.",
    "the first 4,096 tokens, and the token grid",
    standing=MODEL,
)
def shared_blocks(subject: Subject) -> Iterator[str]:
    if not subject.given.model.caches:
        raise Skipped("the graph states no caches")
    held = [subject.model.sequence_variable_bytes(tokens) for tokens in (*range(4097), *HANDOFF_TOKENS[4:])]
    block = min((later - earlier for earlier, later in pairwise(held) if later != earlier), default=0)
    if block <= 0:
        raise Skipped("nothing grows with a sequence")
    for value in sorted({value for value in held if value % block}):
        yield f"{value} bytes are no whole blocks of {block}"


@of_sequences(
    "Q13", "A handoff moves what the sequence holds, without the rest of its last page.", "handoffs of one geometry"
)
def handoff_is_cache(subject: Subject) -> Iterator[str]:
    graph = subject.given.model
    if graph.caches or any(
        node.op == "RecurrentUpdate" or node.window or node.role
        for kind in graph.layer_kinds
        for node in kind.nodes
        if node.op in ("RecurrentUpdate", "Attention")
    ):
        raise Skipped("the model has caches of several geometries")
    if subject.model.decode_context_parallel_width() > 1 or subject.drafts:
        raise Skipped("the cache is sharded or a draft has its own")
    page, held = subject.model.sequence_variable_bytes(1), subject.model.sequence_variable_bytes
    for tokens in (count for count in HANDOFF_TOKENS if count >= 1):
        moved = subject.model.pd_transfer_demand(tokens, *PLACEMENTS["two racks"]).bytes
        if not held(tokens) - page < moved <= held(tokens):
            yield f"{tokens} tokens hold {held(tokens)} bytes and move {moved}"


@of_sequences(
    "Q14",
    "`max_tokens_for` is the longest sequence that fits, as its growing part counts.",
    "no bytes, and those of 1 to 131,072 tokens, with a byte less and more",
)
def longest(subject: Subject) -> Iterator[str]:
    held = subject.model.sequence_variable_bytes
    for room in sorted({0, *(held(tokens) + more for tokens in (1, 1000, 131072) for more in (-1, 0, 1))} - {-1}):
        most = subject.model.max_tokens_for(room)
        if not whole(most) or not 0 <= most <= INT64_MAX:
            yield f"max_tokens_for({room}) is {most!r}"
        elif held(most) > room:
            yield f"max_tokens_for({room}) is {most}, which hold {held(most)}"
        elif most < INT64_MAX and held(most + 1) <= room:
            yield f"max_tokens_for({room}) is {most}, and {most + 1} hold {held(most + 1)}"
