"""`Kernel`: the built-in cost model, the C core behind the interface of a cost model."""

from __future__ import annotations

import copy
from typing import Any

from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.batch import Batch
from pykernel.documents import Inputs, Pool
from pykernel.errors import ArgumentError, BatchError, PykernelError, RefusedError
from pykernel.explain import Explanation, read_terms
from pykernel.flatten import Spec
from pykernel.interface import RESOURCES, CoefficientOrigin, CostModel, Resolution, StepEstimate
from pykernel.plan import make_plan
from pykernel.resolve import resolve
from pykernel.switches import NEWEST, LawSwitches

if not lib.pk_arithmetic_is_exact():
    raise ImportError("pykernel._native was built with fused multiply-add; build it with -ffp-contract=off")


class Kernel(CostModel):
    """Prices one pool of one deployment with the BLIS laws.

    Built from `Inputs`, of which it keeps nothing: editing them afterwards changes no answer. `switches` chooses
    between published generations of the laws; leave it out for the newest.

    Raises `ArgumentError`, `DocumentError` or `RefusedError`, as `pykernel.resolve.resolve` does.
    """

    def __init__(self, inputs: Inputs, *, switches: LawSwitches = NEWEST) -> None:
        try:
            resolved = resolve(inputs)
            spec = Spec(make_plan(inputs.model, resolved, switches), resolved, switches)
        except OverflowError as error:
            # Documents hold any 64-bit integer and any finite number; the core counts heads and the like in 32 bits.
            raise RefusedError(f"a number of the documents is larger than can be priced: {error}") from None
        self._handle = _new_handle(spec)
        self._labels = spec.labels
        self._pool = resolved.pool
        self._resolution = resolved.resolution
        self._provenance = resolved.provenance
        self._settings = resolved.settings
        self._layout = resolved.layout
        self._decode_threshold = resolved.decode_threshold

    def step_time(self, batch: Batch) -> StepEstimate:
        estimate = StepEstimate()
        self.step_time_into(batch, estimate)
        return estimate

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        if not isinstance(batch, Batch):
            raise ArgumentError(f"batch is a {type(batch).__name__}, accepted is a pykernel.Batch")
        out = estimate.scratch
        if out is None:
            out = estimate.scratch = ffi.new("pk_estimate *")
            out.struct_size = ffi.sizeof("pk_estimate")
        status = lib.pk_step_time(self._handle, batch.struct, out, ffi.NULL)
        if status != lib.PK_OK:
            _explain(self._handle, batch, out)
        estimate.fill(out.overlap_ns, out.no_overlap_ns, RESOURCES[out.bottleneck], out.per_resource_ns)

    def explain(self, batch: Batch) -> Explanation:
        """The terms of one step with the work behind each, and the coefficients that each used.

        Raises `BatchError` as `step_time` does.
        """
        estimate, terms = self.step_time(batch), read_terms(self._handle, batch)
        return Explanation(estimate, self._labels.terms(terms, {origin.name: origin for origin in self._provenance}))

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        return self._provenance

    def resolved(self) -> Resolution:
        return self._resolution

    def deployment(self) -> Pool:
        return copy.deepcopy(self._pool)

    def capture_tokens(self) -> int:
        return self._settings.graphs.capture_tokens

    def graph_modes(self) -> tuple[str, str]:
        return self._settings.graphs.uniform, self._settings.graphs.other

    def decode_threshold(self) -> int:
        return self._decode_threshold

    def decode_context_parallel_width(self) -> int:
        return self._layout.dcp

    def prefill_context_parallel_width(self) -> int:
        return self._layout.pcp


def _new_handle(spec: Spec) -> Any:
    made, error = ffi.new("pk_kernel **"), error_struct()
    raise_for(lib.pk_kernel_new(spec.struct, made, error), error, RefusedError)
    return ffi.gc(made[0], lib.pk_kernel_free, lib.pk_kernel_size(made[0]))


def _explain(handle: Any, batch: Batch, out: Any) -> None:
    """Raise for a batch that the core refused, with its words; only then is a message worth its cost."""
    error = error_struct()
    raise_for(lib.pk_step_time(handle, batch.struct, out, error), error, BatchError)
    raise PykernelError("the batch changed while it was priced")
