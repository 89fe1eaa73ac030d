"""Laws F: what a rank holds. Laws Q: what a sequence holds that grows with it. Laws G: what it holds beside that."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from pykernel.documents import Eplb, Inputs
from pykernel.interface import MemoryBreakdown
from pykernel.laws.law import MODEL, Skipped, Subject, law, rising
from pykernel.laws.observations import HANDOFF_TOKENS, PLACEMENTS
from pykernel.laws.step import whole

_FIELDS = tuple(MemoryBreakdown.__dataclass_fields__)


def _f(id: str, statement: str, sweep: str, **more: Any) -> Callable[[Any], Any]:
    return law(id, statement, sweep=sweep, needs="memory", **more)


def _q(id: str, statement: str, sweep: str, **more: Any) -> Callable[[Any], Any]:
    return law(id, statement, sweep=sweep, needs="sequences", **more)


# ---- fixed bytes -----------------------------------------------------------------------------------------------


@_f("F1", "Every part of the fixed bytes is at least 0, and `total` is their sum.", "one call")
def parts(subject: Subject) -> Iterator[str]:
    fixed = subject.model.fixed_bytes()
    values = [getattr(fixed, name) for name in _FIELDS]
    if not all(whole(value) and value >= 0 for value in values) or fixed.total != sum(values):
        yield f"{fixed} with a total of {fixed.total}"


@_f("F2", "A rank holds less than the part's memory, where the deployment fits.", "the chip's memory")
def fits(subject: Subject) -> Iterator[str]:
    chip, total = subject.documents().chip, subject.model.fixed_bytes().total
    if total >= chip.memory_gib * 2**30:
        yield f"a rank holds {total} bytes on a part of {chip.memory_gib} GiB"


@_f("F3", "Nothing is held for expert load balancing that is off, or for graphs that are not captured.", "as deployed")
def nothing_for_nothing(subject: Subject) -> Iterator[str]:
    fixed, engine = subject.model.fixed_bytes(), subject.pool.engine
    if not (engine.eplb and engine.eplb.enable_eplb) and fixed.eplb_redundant:
        yield f"eplb_redundant is {fixed.eplb_redundant} without expert load balancing"
    if set(subject.model.graph_modes()) == {"NONE"} and fixed.cuda_graph:
        yield f"cuda_graph is {fixed.cuda_graph} without graphs"


@_f("F4", "What is held before the budget is not counted within it again.", "one call")
def before_the_budget(subject: Subject) -> Iterator[str]:
    before, inside = subject.model.pre_snapshot_bytes(), subject.model.fixed_bytes().comm_buffers
    if not whole(before) or before < 0:
        yield f"pre_snapshot_bytes is {before!r}"
    elif before > 0 and inside:
        yield f"pre_snapshot_bytes is {before}, and comm_buffers {inside} as well"


@_f("F5", "Weights do not rise with tensor parallelism.", "tp 1, 2, 4 and 8")
def weights_fall(subject: Subject) -> Iterator[str]:
    widths = []
    for tp in (1, 2, 4, 8):
        try:
            widths.append((f"weights at tp {tp}", -subject.settings(tp=tp).fixed_bytes().weights))
        except Skipped:
            continue
    if len(widths) < 2:
        raise Skipped("fewer than two widths of tensor parallelism can be made")
    yield from rising(widths)
    parameters = 0.45 * _stored_parameters(subject)
    held = subject.model.fixed_bytes().weights * _ranks(subject)
    if held < parameters:
        yield f"all ranks hold {held} bytes, of {parameters:.0f} at half a byte a parameter"


def _stored_parameters(subject: Subject) -> int:
    from pykernel.summary import summarize

    return summarize(subject.documents().model).parameters


def _ranks(subject: Subject) -> int:
    parallel = subject.pool.parallel
    return parallel.tp * max(parallel.dp, 1) * max(parallel.pcp, 1)


@_f(
    "F6", "Replicas of experts raise the total by `eplb_redundant` and leave the weights.", "as many as there are ranks"
)
def replicas(subject: Subject) -> Iterator[str]:
    width = subject.model.resolved().expert_parallel()
    if width < 2:
        raise Skipped("experts are not divided over ranks")
    without = subject.settings(eplb=None).fixed_bytes()
    fixed = subject.settings(eplb=Eplb(True, width, 1000, 3000)).fixed_bytes()
    if fixed.weights != without.weights or fixed.total - without.total != fixed.eplb_redundant:
        yield f"{width} replicas: {fixed}, without: {without}"
    if fixed.eplb_redundant <= 0:
        yield f"{width} replicas take {fixed.eplb_redundant} bytes"


@_f("F7", "What memory costs prices no time.", "every memory coefficient tripled")
def no_time(subject: Subject) -> Iterator[str]:
    def triple(documents: Inputs) -> None:
        for entries in documents.coefficients:
            for entry in entries.coefficients:
                if entry.name.startswith(_MEMORY):
                    entry.value, entry.ci95 = entry.value * 3, None

    twin = subject.twin(triple)
    for name, batch in subject.standard:
        before, after = subject.model.step_time(batch).no_overlap_ns, twin.step_time(batch).no_overlap_ns
        if before != after:
            yield f"{name}: {after} ns, and {before} ns before memory cost three times as much"


_MEMORY = ("activation_", "cudagraph_capture_bytes", "nccl_communicator_bytes", "engine_workspace_bytes")


@_f("F8", "A wider expert group holds no more on the fullest rank.", "data parallelism doubled")
def wider_experts(subject: Subject) -> Iterator[str]:
    if subject.model.resolved().expert_parallel() < 2:
        raise Skipped("experts are not divided over ranks")

    def change(documents: Inputs) -> None:
        pool = documents.deployment.pools[documents.pool]
        pool.parallel.dp *= 2
        pool.nodes *= 2
        documents.scenario.cluster.nodes *= 2
        if documents.fabric is None:
            raise Skipped("one node, and no fabric for a second")

    before, after = subject.model.fixed_bytes().weights, subject.twin(change).fixed_bytes().weights
    if after > before:
        yield f"weights are {after} bytes with twice the ranks, and {before} before"


@_f("F9", "An unset graph mode is FULL_AND_PIECEWISE.", "unset and stated", standing=MODEL)
def default_mode(subject: Subject) -> Iterator[str]:
    if subject.pool.engine.cudagraph_mode:
        raise Skipped("the graph mode is stated")
    if subject.model.graph_modes() != ("FULL", "PIECEWISE"):
        raise Skipped("the deployment cannot run the default mode")
    stated = subject.settings(cudagraph_mode="FULL_AND_PIECEWISE")
    if stated.fixed_bytes() != subject.model.fixed_bytes():
        yield f"stated: {stated.fixed_bytes()}, unset: {subject.model.fixed_bytes()}"


@_f("F10", "Activations and links do not follow the width of the weights.", "fp8 in place of 16 bits", standing=MODEL)
def activations_stay(subject: Subject) -> Iterator[str]:
    if subject.documents().model.global_.weight_dtype != "bf16" or subject.pool.engine.quantization:
        raise Skipped("the checkpoint is not one of 16 bits served so")
    served = subject.settings(quantization="fp8")
    before, after = subject.model.fixed_bytes(), served.fixed_bytes()
    if after.weights >= before.weights or after.activation_peak != before.activation_peak:
        yield f"served in fp8: {after}, in 16 bits: {before}"


# ---- bytes of a sequence ---------------------------------------------------------------------------------------


@_q("Q1", "No tokens hold nothing, and nothing holds less.", "-5 and 0, and the token grid")
def none(subject: Subject) -> Iterator[str]:
    for tokens in (-5, 0, 1, 17, 131072):
        held = subject.model.sequence_variable_bytes(tokens)
        if not whole(held) or held < 0 or (tokens <= 0 and held):
            yield f"{tokens} tokens hold {held!r} bytes"


@_q("Q2", "More tokens hold no less.", "the token grid, and 1 to 260")
def grows(subject: Subject) -> Iterator[str]:
    grid = sorted({*range(1, 261), 1000, 4096, 8192, 32768, 131072})
    yield from rising((f"{tokens} tokens", subject.model.sequence_variable_bytes(tokens)) for tokens in grid)


@_q("Q3", "Bytes come in whole pages.", "1 to 4 pages, token by token")
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


@_q("Q4", "A page more holds more.", "the first page and one token")
def next_page(subject: Subject) -> Iterator[str]:
    page = _page(subject)
    one, two = (subject.model.sequence_variable_bytes(tokens) for tokens in (page, page + 1))
    if two <= one:
        yield f"{page} tokens hold {one} bytes, {page + 1} hold {two}"


@_q("Q5", "Bytes are affine in pages, but for windows that are full.", "1 to 64 pages", tolerance="1 byte a page")
def linear(subject: Subject) -> Iterator[str]:
    page = _page(subject)
    held = [subject.model.sequence_variable_bytes(page * pages) for pages in range(1, 65)]
    growth = [later - earlier for earlier, later in pairwise(held)]
    slack = 2
    if any(later > earlier + slack for earlier, later in pairwise(growth)):
        yield f"a later page adds more than one before: {sorted(set(growth))}"
    if len({value // (slack + 1) for value in growth}) > 3 and not _has_window(subject):
        yield f"pages add {sorted(set(growth))[:6]} bytes"


def _has_window(subject: Subject) -> bool:
    if subject.inputs is None:
        return True
    return any(node.window for kind in subject.inputs.model.layer_kinds for node in kind.nodes)


@_q("Q6", "Two sequences hold at least what one of both lengths does.", "100 random pairs", tolerance="1 byte a page")
def subadditive(subject: Subject) -> Iterator[str]:
    draw, held = random.Random(2), subject.model.sequence_variable_bytes
    for _ in range(100):
        s, t = draw.randint(1, 20000), draw.randint(1, 20000)
        if held(s) + held(t) + 2 < held(s + t):
            yield f"{s} and {t} tokens hold {held(s)} and {held(t)} bytes, {s + t} hold {held(s + t)}"


@_q("Q7", "Bytes do not rise with tensor parallelism, and stop falling at one KV head a rank.", "tp 1 to 16")
def per_head(subject: Subject) -> Iterator[str]:
    nodes = [node for kind in subject.documents().model.layer_kinds for node in kind.nodes if node.op == "Attention"]
    heads = max((1 if node.kind in ("mla", "sparse_mla") else node.n_kv for node in nodes), default=1)
    held = []
    for tp in (1, 2, 4, 8, 16):
        try:
            held.append((tp, subject.settings(tp=tp, block_size=16).sequence_variable_bytes(1 << 16)))
        except Skipped:
            continue
    if len(held) < 2:
        raise Skipped("fewer than two widths of tensor parallelism can be made")
    yield from rising((f"bytes at tp {tp}", -value) for tp, value in held)
    beyond = {value for tp, value in held if tp >= heads}
    if len(beyond) > 1:
        yield f"{heads} KV heads: bytes by tp are {dict(held)}"


@_q("Q8", "A cache of half the width holds half.", "fp8 in place of 16 bits, on models of full attention")
def half_width(subject: Subject) -> Iterator[str]:
    graph = subject.documents().model
    if graph.caches or any(node.kind not in ("", "gqa", "mha") for kind in graph.layer_kinds for node in kind.nodes):
        raise Skipped("the cache is packed")
    wide = subject.settings(cache_dtype="bfloat16", block_size=16).sequence_variable_bytes(4096)
    narrow = subject.settings(cache_dtype="fp8", block_size=16).sequence_variable_bytes(4096)
    if wide != 2 * narrow:
        yield f"4,096 tokens hold {wide} bytes at 16 bits and {narrow} at 8"


@_q("Q9", "Decode-context ranks divide tokens before pages are counted.", "dcp as deployed", standing=MODEL)
def shards(subject: Subject) -> Iterator[str]:
    width = subject.model.decode_context_parallel_width()
    if width < 2:
        raise Skipped("there are no decode-context ranks")
    alone = subject.settings(dcp=1, block_size=16)
    shared = subject.settings(block_size=16)
    for tokens in (1, 17, 1000, 4096, 131072):
        expected = alone.sequence_variable_bytes(16 * -(-tokens // (16 * width)))
        if shared.sequence_variable_bytes(tokens) != expected:
            yield f"{tokens} tokens over {width} ranks hold {shared.sequence_variable_bytes(tokens)}, not {expected}"


@_q("Q10", "What a sequence holds beside is whole and at least 0.", "fixed and admission bytes")
def beside(subject: Subject) -> Iterator[str]:
    for name in ("sequence_fixed_bytes", "sequence_admission_bytes"):
        held = getattr(subject.model, name)()
        if not whole(held) or held < 0:
            yield f"{name} is {held!r}"
    if subject.inputs is not None and not subject.inputs.model.caches and not _has_window(subject):
        recurrent = any(
            node.op == "RecurrentUpdate" for kind in subject.inputs.model.layer_kinds for node in kind.nodes
        )
        if not recurrent and subject.model.sequence_fixed_bytes():
            yield f"sequence_fixed_bytes is {subject.model.sequence_fixed_bytes()} on a model of full attention alone"


@_q("Q13", "A handoff moves what the sequence holds, without the rest of its last page.", "handoffs of one geometry")
def handoff_is_cache(subject: Subject) -> Iterator[str]:
    graph = subject.documents().model
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


# ---- bounded bytes ---------------------------------------------------------------------------------------------

_IN_FLIGHT = (0, 1, 2, 15, 16, 17, 100, 1000, 2048, 8192, 8193, 16384, 65536, 1 << 20)


@_q("G1", "Bounded bytes with one step in flight are the fixed bytes.", "a token and its drafts")
def fixed(subject: Subject) -> Iterator[str]:
    bounded, whole_step = subject.model.sequence_bounded_bytes(1 + subject.drafts), subject.model.sequence_fixed_bytes()
    if bounded != whole_step:
        yield f"sequence_bounded_bytes({1 + subject.drafts}) is {bounded}, sequence_fixed_bytes is {whole_step}"


@_q("G2", "Admission sets aside the bounded bytes of the most tokens in flight.", "all counts up to 2^20")
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


@_q("G3", "More tokens in flight hold no less.", "0 to 2^20")
def in_flight(subject: Subject) -> Iterator[str]:
    yield from rising((f"{count} in flight", subject.model.sequence_bounded_bytes(count)) for count in _IN_FLIGHT)


@_q(
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


_COMPUTED = (0, 1, 15, 16, 17, 127, 128, 129, 512, 1024, 4096, 4112, 8192, 32768, 131072, 1 << 20)


@_q("G5", "A young sequence holds no more than is bounded, and no less as it ages.", "0 to 2^20 computed tokens")
def ages(subject: Subject) -> Iterator[str]:
    for count in (1, 1 + subject.drafts, 100):
        bound = subject.model.sequence_bounded_bytes(count)
        held = [(f"{done} computed", subject.model.sequence_bounded_bytes_at(done, count)) for done in _COMPUTED]
        yield from rising(held)
        for name, value in held:
            if value > bound:
                yield f"{name}, {count} in flight hold {value} bytes, bounded are {bound}"


@_q("G6", "An old sequence holds what is bounded.", "131,072 computed tokens")
def old(subject: Subject) -> Iterator[str]:
    for count in (1, 1 + subject.drafts, 16):
        held = subject.model.sequence_bounded_bytes_at(131072, count)
        if held != subject.model.sequence_bounded_bytes(count):
            bound = subject.model.sequence_bounded_bytes(count)
            yield f"131,072 computed and {count} in flight hold {held} bytes, bounded are {bound}"


@_q("G7", "Without a ring, all four are one.", "models without windows and stated caches")
def no_ring(subject: Subject) -> Iterator[str]:
    graph = subject.documents().model
    if graph.caches or _has_window(subject):
        raise Skipped("the model has windows or stated caches")
    aside = subject.model.sequence_fixed_bytes()
    found = {subject.model.sequence_admission_bytes()}
    found |= {subject.model.sequence_bounded_bytes(count) for count in (1, 100, 8192)}
    found |= {subject.model.sequence_bounded_bytes_at(done, 1) for done in (0, 100, 8192)}
    if found != {aside}:
        yield f"sequence_fixed_bytes is {aside}, the others {sorted(found)}"


@_q("G8", "Fixed bytes of a sequence do not depend on the token budget.", "2,048 and 16,384")
def fixed_of_budget(subject: Subject) -> Iterator[str]:
    made = [subject.settings(max_num_batched_tokens=count).sequence_fixed_bytes() for count in (2048, 16384)]
    if made[0] != made[1]:
        yield f"sequence_fixed_bytes is {made[0]} with a budget of 2,048 and {made[1]} with 16,384"


@_q("G10", "What is bounded does not hold caches that grow.", "2^40 computed tokens")
def bounded(subject: Subject) -> Iterator[str]:
    for count in (1, 100):
        held = subject.model.sequence_bounded_bytes_at(1 << 40, count)
        if held > subject.model.sequence_bounded_bytes(count):
            yield f"2^40 computed tokens hold {held} bytes, bounded are {subject.model.sequence_bounded_bytes(count)}"
