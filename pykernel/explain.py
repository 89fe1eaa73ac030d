"""Why a step costs what it does: its terms, the work behind each, and the coefficients that each used.

The core gives the terms as numbers; here they get the names of the layer kinds, operations and coefficients that they
stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.batch import Batch
from pykernel.errors import BatchError, ImageError
from pykernel.interface import RESOURCES, CoefficientOrigin, StepEstimate


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a step.

    layer : the layer kind, or `head` or `host`; `layers` of it are in the stack.
    what : what is done, for example `decode attention (mla)` or `all_reduce over tensor`.
    resource : what it is charged to.
    ns : time of one layer, ns, of which `floor_ns` does not depend on the amount of work.
    total_ns : time of all its layers, ns. Each is rounded for itself; the step rounds sums.
    flops, bytes : work of one layer on one rank; 0 where it does not apply. Bytes of a collective include what crossing
        nodes makes of them.
    efficiency : fraction of the part's peak FLOP/s; 0 where it does not apply.
    launches : of a collective, in one layer.
    draft_pass : 0 for the step itself, 1, 2, ... for passes of the speculator.
    coefficients : what the term was priced with.
    """

    layer: str
    layers: int
    what: str
    resource: str
    ns: int
    total_ns: int
    flops: float
    bytes: float
    efficiency: float
    floor_ns: int
    launches: int
    draft_pass: int
    coefficients: tuple[CoefficientOrigin, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A step's estimate and its terms, in the order in which they are added up."""

    estimate: StepEstimate
    terms: tuple[Term, ...]


_WHAT = {
    lib.PK_TERM_DENSE: "dense arithmetic",
    lib.PK_TERM_PREFILL: "prefill attention",
    lib.PK_TERM_DECODE: "decode attention",
    lib.PK_TERM_SCORER: "indexer scan",
    lib.PK_TERM_RECURRENT: "recurrent mixer",
    lib.PK_TERM_WEIGHTS: "weights read",
    lib.PK_TERM_ELEMENTWISE: "norms and elementwise",
    lib.PK_TERM_EXPERT_WORK: "routed experts, arithmetic",
    lib.PK_TERM_EXPERT_WEIGHTS: "routed experts, weights read",
    lib.PK_TERM_GATHER: "all_gather of the logits",
    lib.PK_TERM_GRAPH: "launching the step",
    lib.PK_TERM_DISPATCH: "dispatching kernels",
}

_MEMORY = ("hbm_derate",)
_IMBALANCE = "moe_routing_imbalance_median"


@dataclass
class Labels:
    """What each row of a spec's arrays stands for, and the coefficients behind it. Filled while a plan is flattened."""

    gemm: tuple[str, ...]
    host: tuple[str, ...]
    peak_flops: float
    gather: tuple[str, ...] = ()
    layers: list[str] = field(default_factory=list)
    recurrent: list[tuple[str, ...]] = field(default_factory=list)
    attentions: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    scorers: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    collectives: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    dense: list[tuple[str, ...]] = field(default_factory=list)
    """Of each layer's matrices under measured laws; published laws price them all by `gemm`. Likewise what follows."""
    experts: list[tuple[str, ...]] = field(default_factory=list)
    head: tuple[str, ...] = ()
    launch: tuple[str, ...] = ()

    @property
    def token_ramp(self) -> tuple[str, ...]:
        """The coefficients of arithmetic that no shape-aware ramp reaches: all but that of a layer's own matrices."""
        return tuple(name for name in self.gemm if "_n_half_" not in name and "_k_half_" not in name)

    def terms(self, rows: Any, origins: Mapping[str, CoefficientOrigin]) -> tuple[Term, ...]:
        """The terms of a step; `rows` are the core's, `origins` the coefficients in scope by name."""
        try:
            return tuple(self._term(row, origins) for row in rows)
        except (IndexError, TypeError, ValueError) as error:
            raise ImageError(f"the labels of the image are not those of its kernel: {error}") from None

    def _term(self, row: Any, origins: Mapping[str, CoefficientOrigin]) -> Term:
        what, names = self._describe(row)
        return Term(
            layer={lib.PK_PART_HEAD: "head", lib.PK_PART_HOST: "host"}.get(row.part) or self.layers[row.part],
            layers=int(row.times),
            what=what,
            resource=RESOURCES[row.resource],
            ns=lib.pk_nanoseconds(row.seconds),
            total_ns=lib.pk_nanoseconds(row.seconds * row.times),
            flops=row.flops,
            bytes=row.bytes,
            efficiency=row.flop_rate / self.peak_flops if row.flops else 0.0,
            floor_ns=lib.pk_nanoseconds(row.floor_s),
            launches=row.launches,
            draft_pass=row.draft_pass,
            coefficients=tuple(origins[name] for name in names if name in origins),
        )

    def _describe(self, row: Any) -> tuple[str, tuple[str, ...]]:
        """What a term is, and the names of its coefficients."""
        kind: int = row.kind
        if kind == lib.PK_TERM_COLLECTIVE:
            label, names = self.collectives[row.index]
            return label, names
        what = _WHAT[kind]
        if kind in (lib.PK_TERM_PREFILL, lib.PK_TERM_DECODE):
            attention, decode, prefill = self.attentions[row.index]
            names = (*prefill, *self.token_ramp) if kind == lib.PK_TERM_PREFILL else decode
            return f"{what} ({attention})", names
        if kind == lib.PK_TERM_SCORER:
            scorer, names = self.scorers[row.index]
            return f"{what} ({scorer})", names
        if kind == lib.PK_TERM_RECURRENT:
            return what, self.recurrent[row.part]
        if self.dense:
            return what, self._measured(row)
        names_by_kind: dict[int, tuple[str, ...]] = {
            lib.PK_TERM_DENSE: self.token_ramp if row.part == lib.PK_PART_HEAD else self.gemm,
            lib.PK_TERM_WEIGHTS: _MEMORY,
            lib.PK_TERM_ELEMENTWISE: _MEMORY,
            lib.PK_TERM_EXPERT_WORK: (*self.token_ramp, _IMBALANCE),
            lib.PK_TERM_EXPERT_WEIGHTS: _MEMORY,
            lib.PK_TERM_GATHER: self.gather,
            lib.PK_TERM_GRAPH: self._launch(row.index),
            lib.PK_TERM_DISPATCH: tuple(name for name in self.host if "per_kernel" in name),
        }
        return what, names_by_kind[kind]

    def _measured(self, row: Any) -> tuple[str, ...]:
        """The coefficients of a measured kernel: its arithmetic and its reading are one law."""
        if row.kind == lib.PK_TERM_GATHER:
            return self.gather
        index, part = int(row.index), int(row.part)
        if row.kind in (lib.PK_TERM_EXPERT_WORK, lib.PK_TERM_EXPERT_WEIGHTS):
            return self.experts[index]
        if part == lib.PK_PART_HOST:
            return self.launch
        return self.head if part == lib.PK_PART_HEAD else self.dense[part]

    def _launch(self, graph_mode: int) -> tuple[str, ...]:
        """The coefficient of launching a step: replaying graphs, or layer by layer where there is none."""
        wanted = "eager" if graph_mode == lib.PK_GRAPH_NONE else "replay"
        return tuple(name for name in self.host if wanted in name)


def read_terms(handle: Any, batch: Batch) -> Any:
    """The core's terms of a step. Raises `BatchError` for a batch it refuses."""
    count, error = ffi.new("size_t *"), error_struct()
    raise_for(lib.pk_step_explain(handle, batch.struct, ffi.NULL, 0, count, error), error, BatchError)
    terms = ffi.new("pk_term[]", count[0])
    raise_for(lib.pk_step_explain(handle, batch.struct, terms, count[0], count, error), error, BatchError)
    return terms
