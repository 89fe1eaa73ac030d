"""`Roofline`: prices a step by the peaks of the data sheet, and leaves everything but the step to the blis kernel.

The work of a step (FLOP, bytes, collectives of each layer under the layout) is pykernel's plan; only the time that it
takes is this model's own. Sums over requests are integers, so that their order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykernel.batch import Batch
from pykernel.documents import Inputs
from pykernel.interface import RESOURCES, CoefficientOrigin, StepEstimate
from pykernel.kernel import Kernel
from pykernel.own_step import OwnStep
from pykernel.plan import LayerPlan, ReadPlan, make_plan
from pykernel.resolve import Resolved, resolve
from pykernel.resolve.disclosures import without_step_laws
from pykernel.switches import NEWEST

Times = dict[str, float]
"""Seconds by resource."""

_PASSES = {"all_reduce": 2.0}
"""Times that a ring moves the tensor; other collectives move it once."""


@dataclass(frozen=True)
class _Rates:
    """Of one rank: FLOP/s of the served format, bytes/s of memory and links, streaming multiprocessors."""

    flops: float
    hbm: float
    node: float
    fabric: float
    sm_count: int


@dataclass(frozen=True)
class _Work:
    """A batch in the counts that a roofline needs. `contexts` are those of decodes, `spans` (new, computed) of
    prefills."""

    tokens: int
    decode_rows: int
    prefill_rows: int
    sampled_rows: int
    requests: tuple[tuple[int, int], ...]
    """Of decodes: tokens scheduled, and context with them."""
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, batch: Batch, prefill_ranks: int) -> _Work:
        rows = [(request.scheduled, request.computed) for request in batch if request.scheduled > 0]
        decodes = tuple((new, new + done) for new, done in rows if new <= batch.decode_threshold)
        spans = tuple((new, done) for new, done in rows if new > batch.decode_threshold)
        decode_rows = sum(new for new, _ in decodes)
        prefill_rows = -(-sum(new for new, _ in spans) // prefill_ranks)
        tokens = decode_rows + prefill_rows + max(batch.pad_tokens, 0)
        return cls(tokens, decode_rows, prefill_rows, decode_rows + len(spans), decodes, spans)


class Roofline(OwnStep):
    """Prices one pool of one deployment by datasheet peaks. Raises as the blis kernel does for what it refuses."""

    lacks = frozenset({"blis"})

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(Kernel(inputs))
        self._resolved: Resolved = resolve(inputs)
        self._plan = make_plan(inputs.model, self._resolved, NEWEST)
        links, chip = self._resolved.links, inputs.chip
        self._rates = _Rates(
            self._resolved.precision.peak_flops,
            chip.bw_peak_tbs * 1e12,
            links.node_bytes_per_second,
            links.fabric_bytes_per_second,
            chip.sm_count,
        )

    # ---- the step ----------------------------------------------------------------------------------------------

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        batch.validate()
        total: Times = dict.fromkeys(RESOURCES, 0.0)
        overlap = 0.0
        for times, count in self._layers(_Work.of(batch, self._resolved.layout.pcp), self._sm_share(batch)):
            for name, seconds in times.items():
                total[name] += seconds * count
            overlap += max(times.values(), default=0.0) * count
        ns = [int(total[name] * 1e9) for name in RESOURCES]
        if not any(ns):
            ns[RESOURCES.index("host")] = 1
        longest = max(ns)
        bound = min(max(int(overlap * 1e9), longest), sum(ns))
        estimate.fill(bound, sum(ns), RESOURCES[ns.index(longest)], ns)

    def _sm_share(self, batch: Batch) -> float:
        """How much longer arithmetic takes on the SMs that are left to the step."""
        whole = self._rates.sm_count
        return whole / batch.sm_budget if 0 < batch.sm_budget < whole else 1.0

    def _layers(self, work: _Work, slower: float) -> Iterable[tuple[Times, int]]:
        """The time of each kind of layer, and how often it runs."""
        if not work.tokens:
            return
        plan = self._plan
        passes = [(plan.layers, 1)] + ([(plan.draft_layers, plan.draft_passes)] if plan.draft_passes else [])
        for layers, times in passes:
            for layer in layers:
                yield self._layer(layer, work, slower), layer.count * times
        yield self._head(work, slower), 1 + plan.draft_passes

    def _layer(self, layer: LayerPlan, work: _Work, slower: float) -> Times:
        layout, rates = self._resolved.layout, self._rates
        flops = layer.dense_flops_per_token * work.tokens / layout.tp
        read = layer.dense_bytes / layout.tp + layer.elementwise_bytes_per_token * work.tokens
        for experts in layer.experts:
            placement = self._resolved.experts
            assert placement is not None
            tokens = work.tokens * placement.funnel
            visits = tokens * experts.top_k
            untouched = (1 - experts.top_k / experts.experts) ** tokens
            touched = placement.local(experts.experts) * (1 - untouched)
            slices = placement.shards * placement.ranks
            flops += experts.flops_per_token_and_expert * visits / slices
            read += experts.bytes_per_expert * touched / placement.shards
        attention_flops, attention_bytes = self._attention(layer, work)
        times = {
            "sm": (flops + attention_flops) / rates.flops * slower,
            "hbm": (read + attention_bytes) / rates.hbm,
        }
        for resource, seconds in self._collectives(layer, work):
            times[resource] = times.get(resource, 0.0) + seconds
        return times

    def _attention(self, layer: LayerPlan, work: _Work) -> tuple[float, float]:
        """FLOP and cache bytes of a layer's attention and of the scorers beside it, on one rank."""
        layout, attention = self._resolved.layout, layer.attention
        if attention is None:
            return 0.0, 0.0
        held = layout.dcp if attention.read.sharded else 1
        positions = [(new, _entries(attention.read, context)) for new, context in work.requests]
        window = attention.prefill_window
        pairs = sum(new * entries for new, entries in positions) // held
        pairs += sum(_pairs(new, done, window) for new, done in work.spans) // layout.pcp
        flops = 4.0 * pairs * attention.query_heads * attention.head_dim / layout.tp
        read = sum(entries for _, entries in positions) // held * attention.cache_bytes_per_token
        for scorer in layer.scorers:
            scanned = sum(_windowed(context, scorer.window) for _, context in work.requests)
            ranks = (layout.dcp if scorer.sharded else 1) * max(scorer.compress_ratio, 1)
            read += scanned // ranks * scorer.cache_bytes_per_token
        return flops, read

    def _collectives(self, layer: LayerPlan, work: _Work) -> Iterable[tuple[str, float]]:
        """The link and the time of each collective of a layer: a ring at the rate of the slowest link it crosses."""
        counts = {
            "tokens": work.tokens,
            "decode_rows": work.decode_rows,
            "context_rows": sum(new for new, done in work.spans if done > 0),
            "prefill_rows": work.prefill_rows * self._resolved.layout.pcp,
        }
        for collective in layer.collectives:
            group = self._resolved.layout.groups[collective.group]
            if group.width <= 1:
                continue
            moved = collective.bytes_per_unit * counts.get(collective.units, 0) * (group.width - 1) / group.width
            moved *= _PASSES.get(collective.operation, 1.0)
            link = ("nic", self._rates.fabric) if group.crosses_nodes else ("nvlink", self._rates.node)
            yield link[0], moved / link[1] if link[1] > 0 else 0.0

    def _head(self, work: _Work, slower: float) -> Times:
        head, layout, rates = self._plan.head, self._resolved.layout, self._rates
        return {
            "sm": head.dense_flops_per_token * work.sampled_rows / layout.tp / rates.flops * slower,
            "hbm": head.dense_bytes / layout.tp / rates.hbm,
        }

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        return without_step_laws(self.base.provenance())


def _windowed(context: int, window: int) -> int:
    return min(context, window) if window else context


def _entries(read: ReadPlan, context: int) -> int:
    """Cache entries that one decode reads."""
    if read.law == "window":
        return _windowed(context, read.window)
    if read.law == "selected":
        selected = min(context // read.compress_ratio, read.top_k)
        return selected + min(context, read.window)
    return context


def _pairs(new: int, done: int, window: int) -> int:
    """Pairs of a query and a key before or at it: `new` queries after `done` tokens, each seeing at most `window`."""
    whole = new * done + new * (new + 1) // 2
    if not window or done + new <= window:
        return whole
    full = max(new - max(window - done, 0), 0)  # queries that see a full window
    short = new - full
    return short * done + short * (short + 1) // 2 + full * window
