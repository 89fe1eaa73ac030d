"""Laws K: what several methods say of one thing, and what a price says of where ranks are. All of the BLIS model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from pykernel.batch import Batch
from pykernel.documents import Inputs
from pykernel.laws.batches import equal
from pykernel.laws.law import MODEL, Refused, Skipped, law
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
    "K4",
    "The network between nodes is used just where a group of ranks leaves its node, ranks counted tensor first, then "
    "prefill context, then data.",
    "nodes of 4 and 8 GPUs, tp 1 to 8, pcp 1 to 4, dp 1 and 2, every dcp that these admit",
)
def groups_leave_nodes(subject: Subject) -> Iterator[str]:
    documents = subject.given
    if documents.chip.gpus_per_rack and documents.chip.intra_rack_bw_gbps:
        raise Skipped("nodes of a rack share links of their own")
    routed = any(node.experts for kind in documents.model.layer_kinds for node in kind.nodes)
    for node, tp, pcp, dp in product((4, 8), (1, 2, 4, 8), (1, 2, 4), (1, 2)):
        for dcp in sorted({1, pcp, tp * pcp}):
            try:
                model = subject.twin(_laid_out(node, tp=tp, pcp=pcp, dp=dp, dcp=dcp))
            except Refused:
                continue
            everywhere, prefill = _crossings(node, tp, pcp, dp, dcp, routed and _exchanges(model))
            for batch, leaves in ((equal(4, 1, 1024), everywhere), (equal(1, 4096, 4096), everywhere or prefill)):
                if (Priced.of(model.step_time(batch)).get("nic") > 0) != leaves:
                    where, name = ("leave" if leaves else "stay on"), ("decodes" if len(batch) > 1 else "a prefill")
                    widths = f"tp {tp}, pcp {pcp}, dp {dp}, dcp {dcp}"
                    yield f"{widths}: groups {where} nodes of {node}, {name} say otherwise"


def _exchanges(model: Any) -> bool:
    parallel = model.deployment().parallel
    return bool(parallel.enable_expert_parallel) or parallel.dp > 1


def _crossings(node: int, tp: int, pcp: int, dp: int, dcp: int, experts: bool) -> tuple[bool, bool]:
    """Whether a group that decodes use leaves a node of so many GPUs, and whether one of prefills alone does."""
    ranks = range(tp * pcp * dp)
    tensor = [ranks[first : first + tp] for first in ranks[::tp]]
    block = [ranks[first : first + tp * pcp] for first in ranks[:: tp * pcp]]
    context = [group[first::tp] for group in block for first in range(tp)]
    shared = context if dcp == pcp else block if pcp > 1 else [ranks[first : first + dcp] for first in ranks[::dcp]]
    groups = tensor + (shared if dcp > 1 else []) + ([ranks] if experts else [])
    return _leave(groups, node), _leave(context, node)


def _leave(groups: list[range], node: int) -> bool:
    return any(group[0] // node != group[-1] // node for group in groups)


def _laid_out(gpus_per_node: int, **widths: int) -> Callable[[Inputs], None]:
    def change(documents: Inputs) -> None:
        documents.scenario.cluster.gpus_per_node = gpus_per_node
        settle(documents, **widths, dp_local=0, eplb=None)

    return change


@_k(
    "K5",
    "A cached token takes its heads, keys and values, at the cache's width, in each layer; a latent one no values.",
    "12 random geometries of the model's attention, at 8 and 16 bits",
    "1 byte a page",
)
def cached_token(subject: Subject) -> Iterator[str]:
    graph, draw = subject.given.model, random.Random(9)
    nodes = [node for kind in graph.layer_kinds for node in kind.nodes]
    attention = [node for node in nodes if node.op == "Attention"]
    plain = all(node.kind in ("gqa", "mha", "mqa", "mla") and not (node.window or node.role) for node in attention)
    if graph.caches or subject.drafts or not attention or not plain:
        raise Skipped("the model has caches of several geometries")
    if any(node.op == "RecurrentUpdate" for node in nodes):
        raise Skipped("the model has recurrent layers")
    counts = Counter(graph.stack.layers())
    kinds = {kind.id: sum(node.op == "Attention" for node in kind.nodes) for kind in graph.layer_kinds}
    layers = sum(counts[id] * held for id, held in kinds.items())
    latent = attention[0].kind == "mla"
    for _ in range(6):
        heads, width = draw.choice((1, 2, 4, 8, 16)), draw.choice((64, 96, 128, 192, 256))
        own = 1 if latent else max(heads // max(subject.pool.parallel.tp, 1), 1)
        for cache, element in (("bfloat16", 2), ("fp8", 1)):
            model = subject.twin(_geometry(heads, width, cache))
            expected = 16 * layers * own * (width if latent else 2 * width) * element
            if abs((held := model.sequence_variable_bytes(16)) - expected) > 1:
                what = f"{layers} latents" if latent else f"{layers} layers of {heads} heads"
                yield f"{what} of {width} in {cache}: 16 tokens hold {held} bytes, not {expected}"


def _geometry(heads: int, width: int, cache: str) -> Callable[[Inputs], None]:
    """Every attention of so many KV heads and such a head width; of latent ones, the width of the latent."""

    def change(documents: Inputs) -> None:
        for node in (node for kind in documents.model.layer_kinds for node in kind.nodes if node.op == "Attention"):
            if node.kind == "mla":
                node.n_kv, node.d_h, node.kv_lora_rank, node.qk_rope_head_dim = 1, width, width - 32, 32
            else:
                node.n_kv, node.d_h, node.n_q = heads, width, max(node.n_q, heads)
        settle(documents, cache_dtype=cache, block_size=16, dcp=1)

    return change
