"""One pass over one kind of layer: its share of each resource and the time of its stage, all in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from .batch import Walk, windowed_pairs4
from .coefficients import Coefficients, Triple
from .exact import Exact, cdiv
from .formats import LATENT, CacheFormat
from .laws import (
    SHARDED_KINDS,
    Ramp,
    collective_seconds,
    context_runs,
    decode_read,
    half_up,
    shard,
    touched_experts,
)
from .layout import DECODE_CONTEXT, EXPERT, PREFILL_CONTEXT, TENSOR, Layout
from .plan import ACTIVATION_BYTES, AttentionShape, Experts, KindPlan
from .settings import Settings

LOG_SUM_EXP_BYTES = 4


@dataclass(frozen=True)
class Part:
    """What every layer of a deployment shares: rates, ramp, formats, collectives, and the redundant experts."""

    layout: Layout
    coefficients: Coefficients
    settings: Settings
    peak: Fraction
    hbm_rate: Fraction
    ramp: Ramp
    shape_aware: bool
    cache: CacheFormat
    interleave: int
    chunk: int
    combine: str
    two_launches: bool
    redundant: int
    triples: dict[tuple[str, str], Triple]

    def launch(self, operation: str, group: str, payload: Exact) -> tuple[str, Any]:
        """The resource and the seconds of one collective of so many bytes."""
        triple = self.triples[operation, group]
        if not self.layout.groups[group].crosses:
            return "nvlink", collective_seconds(payload, triple)
        direct = operation == "alltoall" and (group == DECODE_CONTEXT or self.layout.routed_dispatch)
        return "nic", collective_seconds(payload * self.layout.span(group, direct), triple)


@dataclass(frozen=True)
class Pass:
    """One forward pass: the walked batch, its padding, and by how much withheld SMs slow arithmetic down."""

    walk: Walk
    pad: int
    derate: Fraction

    @property
    def tokens(self) -> int:
        """Tokens of the whole forward, padding included."""
        return self.walk.tokens + self.pad


@dataclass
class Terms:
    """The seconds of one layer by resource, and named parts of them; `routed` stands outside the stage's maximum."""

    name: str
    count: int
    sm: Any = 0
    hbm: Any = 0
    nvlink: Any = 0
    nic: Any = 0
    stage: Any = 0
    parts: dict[str, Any] = field(default_factory=dict)

    def add(self, resource: str, part: str, seconds: Any) -> None:
        setattr(self, resource, getattr(self, resource) + seconds)
        self.parts[part] = self.parts.get(part, 0) + seconds


def layer_terms(part: Part, kind: KindPlan, step: Pass, physical_experts: int) -> Terms:
    """All terms of one layer of a kind.

    Parameters: `physical_experts`, experts of the model with redundant ones, that a single expert node divides by.
    """
    terms = Terms(kind.name, kind.count)
    fallback = _attention(part, kind, step, terms)
    _dense(part, kind, step, fallback, terms)
    _recurrent(part, kind, step, terms)
    _graph_collectives(part, kind, step, terms)
    if kind.primary is not None:
        for operation, group, payload in context_collectives(part, kind, kind.primary, step.walk):
            resource, seconds = part.launch(operation, group, payload)
            terms.add(resource, f"{group} {operation}", seconds)
    routed_sm, routed_hbm = _routed(part, kind, step, physical_experts)
    terms.stage = max(terms.sm, terms.hbm, terms.nvlink, terms.nic) + routed_sm + routed_hbm
    terms.add("sm", "routed arithmetic", routed_sm)
    terms.add("hbm", "routed weights", routed_hbm)
    return terms


def _dense(part: Part, kind: KindPlan, step: Pass, fallback: Exact, terms: Terms) -> None:
    tp, tokens = part.layout.tp, step.tokens
    flops = Fraction(tokens * kind.shared_flops, tp) + fallback
    if part.shape_aware:
        for shape in kind.shapes:
            efficiency = part.ramp.at_shape(tokens, shape, tp)
            if efficiency > 0:
                seconds = Fraction(tokens * shape.flops, tp) / (part.peak * efficiency)
                terms.add("sm", "dense arithmetic", seconds * step.derate)
    else:
        flops += Fraction(tokens * kind.dense_flops, tp)
    if flops:
        terms.add("sm", "dense arithmetic", flops / (part.peak * part.ramp.at(tokens)) * step.derate)
    weights = (kind.dense_bytes + kind.shared_bytes) / tp
    terms.add("hbm", "dense weights", weights / part.hbm_rate)
    terms.add("hbm", "elementwise", Fraction(tokens * kind.elementwise_bytes, tp) / part.hbm_rate)


def _recurrent(part: Part, kind: KindPlan, step: Pass, terms: Terms) -> None:
    if not kind.recurrent_kind:
        return
    floor = part.coefficients.floor(f"recurrent_decode_floor_{kind.recurrent_kind}")
    rate = part.coefficients.rate(f"recurrent_decode_rate_{kind.recurrent_kind}")
    if floor > 0 and rate > 0:
        terms.add("sm", "recurrent", floor + step.walk.tokens / rate)


def _routed(part: Part, kind: KindPlan, step: Pass, physical_experts: int) -> tuple[Exact, Exact]:
    """Arithmetic and weight reads of the routed experts; every node by its own count unless nodes are summed."""
    arithmetic: Exact = 0
    reads: Exact = 0
    for node in kind.experts:
        apart = part.settings.grouped_nodes_apart
        total = node.experts + part.redundant if apart else physical_experts
        flops, weight_bytes = routed_work(part, node, step.tokens, total)
        if flops:
            arithmetic += flops / (part.peak * part.ramp.at(step.tokens)) * step.derate
        reads += weight_bytes / part.hbm_rate
    return arithmetic, reads


def routed_work(part: Part, node: Experts, tokens: int, physical_experts: int) -> tuple[Exact, Exact]:
    """FLOPs and bytes of one rank's experts in one layer."""
    layout = part.layout
    gathered = tokens * layout.funnel
    local = cdiv(physical_experts, layout.expert_width)
    share = Fraction(local, physical_experts)
    flops = gathered * node.top_k * share * node.flops * part.coefficients.imbalance() / layout.data_slice
    touched = touched_experts(gathered, physical_experts, node.top_k, local)
    return flops, node.weight_bytes / layout.expert_shards * touched


def _attention(part: Part, kind: KindPlan, step: Pass, terms: Terms) -> Exact:
    """Attention of the layer; returns FLOPs that have no law of their own and count as dense work."""
    shape, walk = kind.primary, step.walk
    if shape is None or shape.n_q <= 0:
        return 0
    own_bytes = part.cache.bytes_per_token(shape, part.settings.kv_per_kind)
    decode_floor, decode_rate = part.coefficients.decode_pair(shape.kind)
    prefill_floor = part.coefficients.floor("attention_prefill_floor")
    work_scale = part.coefficients.optional("attention_prefill_work_scale")
    if walk.decodes:
        read = decode_tokens(part, shape, walk) * own_bytes
        if decode_rate > 0:
            terms.add("hbm", "attention decode", decode_floor + read / decode_rate)
        else:
            terms.add("hbm", "attention decode", read / part.hbm_rate)
        _scorers(part, kind, shape, own_bytes, walk, terms)
    fallback: Exact = 0
    if walk.prefills:
        pairs4 = windowed_pairs4(walk.runs, shape.window) if shape.window > 0 else walk.pairs4
        flops = Fraction(pairs4 * shape.n_q * shape.d_h, part.layout.tp)
        if work_scale > 0:
            seconds = flops / (part.peak * part.ramp.at(walk.tokens) * work_scale) if flops else 0
            terms.add("sm", "attention prefill", prefill_floor + seconds * step.derate)
        else:
            fallback = flops
    mixed = walk.decodes and walk.prefills and decode_rate > 0 and work_scale > 0
    if mixed and shape.kind not in LATENT and part.layout.dcp <= 1 and not part.two_launches:
        if decode_floor < prefill_floor:
            terms.add("hbm", "attention decode", -decode_floor)
        else:
            terms.add("sm", "attention prefill", -prefill_floor)
    return fallback


def decode_tokens(part: Part, shape: AttentionShape, walk: Walk) -> Exact:
    """Cache entries that one layer's decodes read on one rank, bounded and sharded request by request."""
    reads = [decode_read(context, shape, part.settings) for context in walk.decodes]
    if part.layout.dcp > 1 and shape.kind in SHARDED_KINDS:
        reads = [shard(read, part.layout.dcp, part.interleave) for read in reads]
    return sum(reads)


def _scorers(
    part: Part, kind: KindPlan, primary: AttentionShape, primary_bytes: Fraction, walk: Walk, terms: Terms
) -> None:
    for scorer in kind.scorers:
        floor, rate = part.coefficients.decode_pair(scorer.kind)
        width = primary.n_kv * primary.d_h
        if rate <= 0 or width <= 0:
            continue
        scanned: Exact = walk.context_sum
        if scorer.window > 0:
            scanned = min(scanned, scorer.window * len(walk.decodes))
        if scorer.compress_ratio > 1:
            scanned = Fraction(scanned, scorer.compress_ratio)
        if part.layout.dcp > 1 and scorer.kind in SHARDED_KINDS:
            scanned = shard(half_up(scanned), part.layout.dcp, part.interleave)
        entry = primary_bytes * scorer.n_kv * scorer.d_h / width
        terms.add("hbm", "scorer", floor + scanned * entry / rate)


def _graph_collectives(part: Part, kind: KindPlan, step: Pass, terms: Terms) -> None:
    for collective in kind.collectives:
        payload = step.tokens * collective.bytes_per_token
        if collective.routed and part.layout.routed_dispatch:
            payload *= kind.top_k
        resource, seconds = part.launch(collective.operation, collective.group, payload)
        terms.add(resource, f"{collective.group} {collective.operation}", seconds)


def context_collectives(
    part: Part, kind: KindPlan, shape: AttentionShape, walk: Walk
) -> Iterator[tuple[str, str, Exact]]:
    """Operation, group and bytes of every launch that context parallelism adds to a layer."""
    if part.layout.dcp > 1 and shape.kind in SHARDED_KINDS:
        yield from _decode_context(part, shape, walk)
        if shape.kind in LATENT and walk.prefills:
            yield from _context_gather(part, shape, walk)
    if part.layout.pcp > 1 and walk.prefill_tokens > 0:
        yield from _prefill_context(part, kind, shape, walk)


def _decode_context(part: Part, shape: AttentionShape, walk: Walk) -> Iterator[tuple[str, str, Exact]]:
    layout = part.layout
    every_row = walk.batch_tokens if walk.any_context else 0
    rows = walk.decode_rows if shape.kind in LATENT else every_row
    if rows <= 0:
        return
    out = shape.kv_lora_rank if shape.kind in LATENT and shape.kv_lora_rank > 0 else shape.d_h
    heads = Fraction(shape.n_q, layout.tp)
    query = rows * shape.d_h * ACTIVATION_BYTES
    if layout.pcp <= 1:
        heads *= layout.dcp
        yield "all_gather", DECODE_CONTEXT, query * heads
    elif layout.dcp > layout.pcp:
        heads = Fraction(shape.n_q)
        yield "all_gather", TENSOR, query * heads
    if part.combine == "a2a":
        yield "alltoall", DECODE_CONTEXT, rows * heads * (out + 2) * ACTIVATION_BYTES
        return
    yield "all_gather", DECODE_CONTEXT, layout.dcp * rows * heads * LOG_SUM_EXP_BYTES
    yield combine_operation(layout), DECODE_CONTEXT, rows * heads * out * ACTIVATION_BYTES


def combine_operation(layout: Layout) -> str:
    """The collective that adds the ranks' outputs up under the gathering combine."""
    return "all_reduce" if layout.pcp > 1 else "reduce_scatter"


def _context_gather(part: Part, shape: AttentionShape, walk: Walk) -> Iterator[tuple[str, str, Exact]]:
    for total in context_runs(walk.prefills):
        count = cdiv(total, part.chunk)
        for _ in range(count):
            yield "all_gather", DECODE_CONTEXT, Fraction(total * shape.d_h * ACTIVATION_BYTES, count)


def _prefill_context(part: Part, kind: KindPlan, shape: AttentionShape, walk: Walk) -> Iterator[tuple[str, str, Exact]]:
    rank, width = shape.kv_lora_rank, shape.d_h
    widths = [rank, width - rank] if 0 < rank < width else [width]
    widths += [scorer.n_kv * scorer.d_h for scorer in kind.scorers if scorer.n_kv > 0 and scorer.d_h > 0]
    for columns in widths:
        yield "all_gather", PREFILL_CONTEXT, part.layout.pcp * walk.prefill_tokens * columns * ACTIVATION_BYTES


def needed_triples(layout: Layout, combine: str) -> list[tuple[str, str]]:
    """The (operation, group) pairs that a layout resolves at construction."""
    pairs = [(name, TENSOR) for name in ("all_reduce", "all_gather", "reduce_scatter")] + [("alltoall", EXPERT)]
    if layout.dcp > 1:
        combining = "alltoall" if combine == "a2a" else combine_operation(layout)
        pairs += [("all_gather", DECODE_CONTEXT), (combining, DECODE_CONTEXT)]
    if layout.pcp > 1:
        pairs.append(("all_gather", PREFILL_CONTEXT))
    return pairs
