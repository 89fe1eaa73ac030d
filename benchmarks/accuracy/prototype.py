"""The measured laws over arrays of steps, in numpy: one deployment, many batches given by their sums.

It evaluates the forms of `pykernel.fit.forms` over the kernels of `pykernel.measured.plan`, so it shares no code with
the C core but the coefficients. The serving constants are fitted through it, because a step's price is linear in them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pykernel.documents import Inputs
from pykernel.fit import forms
from pykernel.fit.families import VOLUMES, peak_flops
from pykernel.fit.forms import Array, Columns, Form, Part
from pykernel.measured.formats import STORED_BYTES
from pykernel.measured.laws import Law, experts_primitive, measured_laws
from pykernel.measured.operations import operations_of
from pykernel.measured.plan import MeasuredAttention, MeasuredLayer
from pykernel.plan import LayerPlan
from pykernel.resolve.record import Record
from pykernel.switches import CALIBRATED

FORMS = {
    "gemm": forms.GEMM,
    "decode": forms.DECODE,
    "latent_decode": forms.STREAM,
    "sparse": forms.STREAM,
    "indexer": forms.STREAM,
    "prefill": forms.PREFILL,
    "latent_prefill": forms.PREFILL,
    "experts": forms.EXPERTS,
}


BUSIEST = {2: 0.564, 4: 1.029, 8: 1.424, 16: 1.766}
"""Expected maximum of so many standard normal variables: how far the busiest of the ranks lies above their mean."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Sums of a batch of one rank, an entry a step. `context` is the mean of a decoding request's."""

    decodes: Array
    context: Array
    prefills: Array
    prefill_tokens: Array
    prefill_length: Array
    """Mean tokens of one prefill chunk; without earlier context."""
    graph: Array
    """1 where the step runs as a graph and is padded."""

    @property
    def tokens(self) -> Array:
        return self.decodes + self.prefill_tokens

    @property
    def rows(self) -> Array:
        return self.decodes + self.prefills


@dataclass(slots=True)
class Prices:
    """Seconds by kind of work, and what the host constants multiply."""

    gemm: Array
    attention: Array
    experts: Array
    collectives: Array
    recurrent: Array
    elementwise: Array
    head: Array
    layers: float
    kernels: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def kernel_sum(self) -> Array:
        return self.gemm + self.attention + self.experts + self.collectives + self.recurrent + self.head


class Prototype:
    """The step of one deployment."""

    def __init__(self, inputs: Inputs, shape: float = 4.0) -> None:
        self.shape = shape
        operations = operations_of(inputs, CALIBRATED)
        self.resolved, self.plan, self.measured = operations.resolved, operations.plan, operations.measured
        self.chip = inputs.chip
        self.laws = measured_laws(inputs.chip, Record())
        self.vocabulary = inputs.model.global_.vocab_size

    def _part(self, number_format: str) -> Part:
        chip = self.chip
        return Part(peak_flops(chip, number_format), chip.bw_peak_tbs * 1e12, chip.sm_count)

    def _evaluate(self, form: Form, law: Law, columns: Columns, part: Part) -> Array:
        return form.seconds(np.array([law[name] for name in form.names]), columns, part)

    def gemm(self, m: Array, matrix: object) -> Array:
        law, found = self.laws.law("gemm", matrix.format)  # type: ignore[attr-defined]
        columns = {
            "m": np.maximum(m, 1),
            "n": np.asarray(matrix.n),  # type: ignore[attr-defined]
            "k": np.asarray(matrix.k),  # type: ignore[attr-defined]
            "weight_bytes": np.asarray(matrix.weight_bytes),  # type: ignore[attr-defined]
        }
        return np.where(m > 0, self._evaluate(forms.GEMM, law, columns, self._part(found)), 0)

    def attention(self, s: Steps, a: MeasuredAttention, layer: LayerPlan) -> Array:
        assert layer.attention is not None
        read, window = layer.attention.read, layer.attention.prefill_window
        entries = s.context
        if read.law == "window":
            entries = np.minimum(entries, read.window)
        elif read.law == "selected":
            entries = np.minimum(entries, read.top_k / read.compress_ratio + read.window)
        law, _ = self.laws.law(a.decode, a.format)
        columns = {
            "rows": s.decodes,
            "tokens": s.decodes * entries,
            "streams": np.asarray(a.streams),
            "head_dim": np.asarray(a.head_dim),
            "regroups": (s.decodes > 1) & a.regroups,
            "bytes_per_token": np.asarray(a.decode_bytes),
            "flops_per_token": np.asarray(a.decode_flops),
        }
        part = self._part("bf16")
        with np.errstate(invalid="ignore", divide="ignore"):
            decode = np.where(s.decodes > 0, self._evaluate(FORMS[a.decode], law, columns, part), 0)
        length = s.prefill_length
        if a.prefill == "sparse":
            columns["rows"] = s.prefill_tokens
            columns["tokens"] = s.prefill_tokens * np.minimum(length / 2, read.top_k)
            with np.errstate(invalid="ignore", divide="ignore"):
                return decode + np.where(s.prefill_tokens > 0, self._evaluate(forms.STREAM, law, columns, part), 0)
        inside = np.minimum(window, length) if window else length
        law, _ = self.laws.law(a.prefill, a.format)
        columns = {
            "requests": s.prefills,
            "tokens": s.prefill_tokens,
            "pairs": s.prefills * (inside * inside / 2 + (length - inside) * inside),
            "heads": np.asarray(a.heads),
            "head_dim": np.asarray(a.head_dim),
            "flops_per_pair": np.asarray(a.prefill_flops),
            "query_bytes": s.prefill_tokens * a.query_bytes,
            "kv_bytes": s.prefill_tokens * a.kv_bytes,
        }
        return decode + np.where(s.prefill_tokens > 0, self._evaluate(forms.PREFILL, law, columns, part), 0)

    def scorer(self, s: Steps, flops: float) -> Array:
        law, _ = self.laws.law("indexer", "fp8")
        total = np.zeros_like(s.decodes)
        for rows, tokens in (
            (s.decodes, s.decodes * s.context),
            (s.prefill_tokens, s.prefill_tokens * s.prefill_length / 2),
        ):
            columns = {
                "rows": rows,
                "tokens": tokens,
                "streams": np.asarray(1.0),
                "bytes_per_token": np.asarray(0.0),
                "flops_per_token": np.asarray(flops),
            }
            with np.errstate(invalid="ignore", divide="ignore"):
                total = total + np.where(rows > 0, self._evaluate(forms.STREAM, law, columns, self._part("fp8")), 0)
        return total

    def experts(self, m: Array, layer: MeasuredLayer, plan: LayerPlan) -> Array:
        total = np.zeros_like(m)
        placement = self.resolved.experts
        for own, routed in zip(layer.experts, plan.experts, strict=True):
            assert placement is not None
            law, found = self.laws.law(experts_primitive(placement.ranks), own.format)
            tokens = m * placement.funnel / placement.token_slices
            physical, local = placement.physical(routed.experts), placement.local(routed.experts)
            ranks = physical / local
            spread = (BUSIEST.get(round(ranks), 1.5) if ranks > 1 else 0) / np.sqrt(self.shape * local)
            rows = tokens * routed.top_k * local / physical * (1 + spread)
            columns = {
                "tokens": tokens,
                "rows": rows,
                "active": local * (1 - (1 + routed.top_k * tokens / (routed.experts * self.shape)) ** -self.shape),
                "width": np.asarray(own.width),
                "flops_per_row": np.asarray(2.0 * own.matrices * own.hidden * own.width),
                "bytes_per_expert": np.asarray(own.matrices * own.hidden * own.width * STORED_BYTES[own.format]),
                "row_bytes": 4 * rows * (own.hidden + own.width),
                "slot_bytes": 2 * tokens * routed.top_k * own.hidden,
            }
            part = self._part(found)
            total = total + np.where(m > 0, self._evaluate(forms.EXPERTS, law, columns, part), 0)
        return total

    def collective(self, operation: str, ranks: int, tensor_bytes: Array) -> Array:
        kind = "graph" if operation == "all_reduce" else "nccl"
        law, _ = self.laws.law(operation, kind)
        form = forms.BRIDGED if "bridge_efficiency" in law else forms.COLLECTIVE
        columns = {
            "ranks": np.asarray(float(ranks)),
            "link_bytes": VOLUMES[operation] * (ranks - 1) / ranks * tensor_bytes,
        }
        part = Part(1.0, self.chip.intra_node_bw_gbps * 1e9, self.chip.sm_count)
        return np.where(tensor_bytes > 0, self._evaluate(form, law, columns, part), 0)

    def padded(self, tokens: Array, graph: Array) -> Array:
        grid = np.array([1, 2, 4, *range(8, 257, 8), *range(272, 1025, 16)], dtype=float)
        index = np.minimum(np.searchsorted(grid, tokens), len(grid) - 1)
        return np.where((graph > 0) & (tokens <= self.resolved.settings.graphs.capture_tokens), grid[index], tokens)

    def prices(self, s: Steps) -> Prices:
        zero = np.zeros_like(s.tokens)
        p = Prices(zero, zero, zero, zero, zero, zero, zero, self.measured.whole_layers(self.plan))
        m = self.padded(s.tokens, s.graph)
        layout = self.resolved.layout
        for layer, plan in zip(self.measured.layers, self.plan.layers, strict=True):
            for matrix in layer.matrices:
                p.gemm = p.gemm + plan.count * self.gemm(m, matrix)
            if layer.attention:
                p.attention = p.attention + plan.count * self.attention(s, layer.attention, plan)
            for scorer in layer.scorers:
                p.attention = p.attention + plan.count * self.scorer(s, scorer.flops_per_pair)
            p.experts = p.experts + plan.count * self.experts(s.tokens, layer, plan)
            for one in plan.collectives:
                ranks = layout.groups[one.group].width
                if ranks > 1 and one.operation in VOLUMES:
                    seconds = self.collective(one.operation, ranks, m * one.bytes_per_unit)
                    p.collectives = p.collectives + plan.count * seconds
            if layer.recurrent:
                r = layer.recurrent
                for phase, rows, tokens in (
                    ("decode", s.decodes, s.decodes),
                    ("prefill", s.prefills, s.prefill_tokens),
                ):
                    law, _ = self.laws.law(f"{r.kind}_{phase}", "bf16")
                    columns = {
                        "state_bytes": rows * r.state_bytes,
                        "token_bytes": tokens * r.token_bytes,
                        "flops": tokens * r.flops,
                    }
                    seconds = self._evaluate(forms.RECURRENT, law, columns, self._part("bf16"))
                    p.recurrent = p.recurrent + plan.count * np.where(tokens > 0, seconds, 0)
            p.elementwise = p.elementwise + plan.count * m * plan.elementwise_bytes_per_token / (
                self.chip.bw_peak_tbs * 1e12
            )
        if self.measured.head:
            p.head = self.gemm(s.rows, self.measured.head)
            if layout.tp > 1:
                p.head = p.head + self.collective("all_gather", layout.tp, s.rows * self.vocabulary * 2)
        return p
