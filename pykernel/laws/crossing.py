"""Laws K: what several methods say of one thing, and what a price says of collectives. All of the BLIS model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pykernel.batch import Batch
from pykernel.documents import Inputs
from pykernel.documents.graph import LayerKind, Node, Stack
from pykernel.laws.batches import equal
from pykernel.laws.law import MODEL, Skipped, law
from pykernel.laws.subject import Priced, Subject, settle, unbounded


def _k(id: str, statement: str, sweep: str, tolerance: str = "exact") -> Callable[[Any], Any]:
    return law(id, statement, standing=MODEL, sweep=sweep, tolerance=tolerance)


def _hbm(model: Any, batch: Batch) -> int:
    return Priced.of(model.step_time(batch)).get("hbm")


@_k(
    "K1",
    "A longer decode reads what its cache has grown by, at the rate of attention.",
    "one decode at 4,096 and 8,192",
    "2 ns",
)
def cache_is_read(subject: Subject) -> Iterator[str]:
    unbounded(subject)
    if subject.drafts or subject.given.model.caches:
        raise Skipped("a draft has a cache of its own, or the graph states other caches than it reads")
    rate = _attention_rate(subject.given)
    near, far = (_hbm(subject.model, equal(1, 1, context)) for context in (4096, 8192))
    grown = subject.model.sequence_variable_bytes(8192) - subject.model.sequence_variable_bytes(4096)
    if abs(far - near - grown / rate * 1e9) > 2:
        yield f"hbm grows by {far - near} ns, the cache by {grown} bytes: {grown / rate * 1e9:.0f} ns at its rate"


def _attention_rate(documents: Inputs) -> float:
    """Bytes a second at which decodes read the cache."""
    kinds = {node.kind for kind in documents.model.layer_kinds for node in kind.nodes if node.op == "Attention"}
    names = {
        entry.name: entry.value
        for entries in documents.coefficients
        for entry in entries.coefficients
        if documents.chip.name in entry.scope.hardware
    }
    rates = {names.get(f"attention_decode_rate_{kind}") or names.get("attention_decode_rate", 0.0) for kind in kinds}
    if len(rates) != 1 or not min(rates):
        raise Skipped("the rate of attention is not known, or not one")
    return rates.pop() * 1e6


@_k(
    "K2",
    "Decode-context ranks divide what decodes read, and leave what is paid once a launch.",
    "32 decodes at 16,384 and 32,768 on 1, 2 and 4 ranks",
    "4 ns",
)
def reads_divided(subject: Subject) -> Iterator[str]:
    unbounded(subject)
    models = subject.each("dcp", (1, 2, 4))
    if len(models) < 3:
        raise Skipped("not all of these widths can be made")
    near, far = ([_hbm(model, equal(32, 1, context)) for _, model in models] for context in (16384, 32768))
    if abs((far[0] - far[1]) - 2 * (far[1] - far[2])) > 4 or far[0] <= far[1]:
        yield f"hbm of 32 decodes at 32,768 on 1, 2 and 4 ranks is {far}"
    once = [2 * one - two for one, two in zip(near, far, strict=True)]
    if max(once) - min(once) > 4:
        yield f"what hbm holds whatever the context is {once} ns on 1, 2 and 4 ranks"


@_k(
    "K3",
    "A collective's floor ten times as high adds nine floors for each of its launches, to links alone.",
    "each floor in the documents; decodes, a prefill, and no requests",
    "2 ns, and 1 ns for each launch",
)
def floors_by_launches(subject: Subject) -> Iterator[str]:
    batches = {"32 decodes": equal(32, 1, 4096), "a prefill": equal(1, 2048, 2048), "the empty batch": Batch(())}
    before = {name: subject.price(batch) for name, batch in batches.items()}
    for name, floor in _floors(subject):
        twin = subject.twin(_times_ten(name))
        for what, batch in batches.items():
            old, new = before[what], Priced.of(twin.step_time(batch))
            added = new.no_overlap - old.no_overlap
            launches = round(added / (9 * floor))
            if abs(added - 9 * floor * launches) > 2 + launches or (launches and not len(batch)):
                yield f"{name}: {what} takes {added} ns more, which is no whole number of 9 x {floor:g} ns"
            elsewhere = [key for key in {*old.resources, *new.resources} - _LINKS if old.get(key) != new.get(key)]
            if elsewhere or not 0 <= new.overlap - old.overlap <= added + 2:
                yield f"{name}: {what} differs beyond its links: {old}, {new}"


_LINKS = {"nvlink", "nic"}


def _floors(subject: Subject) -> list[tuple[str, float]]:
    """Floors of collectives that have a price on this part, ns."""
    documents = subject.given
    found = [
        (entry.name, entry.value * 1000)
        for entries in documents.coefficients
        for entry in entries.coefficients
        if entry.name.startswith("collective_floor_") and documents.chip.name in entry.scope.hardware and entry.value
    ]
    if not found:
        raise Skipped("the documents have no floors of collectives")
    return found


def _times_ten(name: str) -> Callable[[Inputs], None]:
    def change(documents: Inputs) -> None:
        for entries in documents.coefficients:
            for entry in entries.coefficients:
                if entry.name == name and documents.chip.name in entry.scope.hardware:
                    entry.value, entry.ci95 = entry.value * 10, None

    return change


@_k(
    "K5",
    "A cached token takes its heads, keys and values, at the cache's width, in each layer; a latent one no values.",
    "20,000 random geometries of the model's attention, each in a layer of its own, at 8 and 16 bits",
    "1 byte a page",
)
def cached_token(subject: Subject) -> Iterator[str]:
    nodes = [node for kind in subject.given.model.layer_kinds for node in kind.nodes]
    plain = [node for node in nodes if node.op == "Attention" and node.kind in ("gqa", "mha", "mqa", "mla")]
    if not plain:
        raise Skipped("the model has no full attention")
    draw, first = random.Random(9), replace(plain[0], window=0, role="")
    latent, tp = first.kind == "mla", max(subject.pool.parallel.tp, 1)
    divided = [heads for heads in range(1, 65) if heads % tp == 0 or tp % heads == 0]
    for cache, element in (("bfloat16", 2), ("fp8", 1)) * 25:
        drawn = [(1 if latent else draw.choice(divided), draw.randint(33, 600)) for _ in range(400)]
        elements = sum(width if latent else 2 * max(heads // tp, 1) * width for heads, width in drawn)
        held = subject.twin(_geometries(first, drawn, cache)).sequence_variable_bytes(16)
        if abs(held - 16 * elements * element) > 1:
            shown = ", ".join(f"{heads} of {width}" for heads, width in drawn[:3])
            expected = 16 * elements * element
            yield f"{len(drawn)} layers with heads {shown} ... in {cache}: 16 tokens hold {held} bytes, not {expected}"


def _geometries(first: Node, drawn: list[tuple[int, int]], cache: str) -> Callable[[Inputs], None]:
    """Layers of `first`, one for each number of KV heads and width of one; of latent attention, the latent's width."""

    def change(documents: Inputs) -> None:
        graph = documents.model
        graph.layer_kinds, graph.caches = [], []
        for index, (heads, width) in enumerate(drawn):
            node = replace(first, n_kv=heads, d_h=width, n_q=max(first.n_q, heads))
            if node.kind == "mla":
                node.kv_lora_rank, node.qk_rope_head_dim = width - 32, 32
            graph.layer_kinds.append(LayerKind(f"layer_{index}", [node]))
        graph.stack = Stack(prologue=[kind.id for kind in graph.layer_kinds])
        settle(documents, cache_dtype=cache, block_size=16, dcp=1, speculative=None)

    return change
