"""`Kernel`: the built-in cost model, the C core behind the interface of a cost model."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from pykernel import about
from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.batch import Batch
from pykernel.batch_state import BatchState
from pykernel.c_methods import CMethods, encoded, functions, held_int64, out_struct, place
from pykernel.documents import Inputs, Pool
from pykernel.documents.inputs import beyond_32_bits
from pykernel.errors import ArgumentError, BatchError, ImageError, PykernelError, RefusedError
from pykernel.estimates import StepEstimates, Steps
from pykernel.explain import Explanation, read_terms
from pykernel.flatten import Spec
from pykernel.interface import CoefficientOrigin, Direction, Placement, Resolution, StepEstimate
from pykernel.many import each, price_many
from pykernel.plan import make_plan
from pykernel.resolve import resolve
from pykernel.switches import NEWEST, LawSwitches
from pykernel.whole_files import write_whole

if not lib.pk_arithmetic_is_exact():
    raise ImportError("pykernel._native was built with fused multiply-add; build it with -ffp-contract=off")

# Looked up once: a step is priced in less time than a few attributes are found in.
_new, _bare, _NULL = ffi.new, StepEstimate.__new__, ffi.NULL
_price, _price_batch = lib.pykernel_price, lib.pykernel_price_batch
_VALUES, _CALL = ffi.typeof("int64_t[10]"), ffi.typeof("pykernel_call *")


class Kernel(CMethods):
    """Prices one pool of one deployment with the BLIS laws.

    Built from `Inputs`, of which it keeps nothing: editing them afterwards changes no answer. `switches` chooses
    between published generations of the laws; leave it out for the newest.

    Raises `ArgumentError`, `DocumentError` or `RefusedError`, as `pykernel.resolve.resolve` does.
    """

    _c = functions("pk_")

    def __init__(self, inputs: Inputs, *, switches: LawSwitches = NEWEST) -> None:
        if not isinstance(inputs, Inputs):
            raise ArgumentError(f"inputs is a {type(inputs).__name__}, accepted is what pykernel.open_inputs returns")
        try:
            build = _measured if switches.measured else _plain
            spec = build(inputs, switches)
        except OverflowError as error:
            # Documents hold any 64-bit integer and any finite number; the core counts heads and the like in 32 bits.
            raise _too_large(inputs, error) from None
        self._handle = _new_handle(spec)
        self._about = about.read(self._handle)

    @classmethod
    def from_bytes(cls, image: bytes) -> Kernel:
        """The kernel that `to_bytes` of any machine's pykernel, or C's `pk_kernel_save`, made an image of.

        It equals the one saved in every answer. Raises `ImageError` for bytes that are no whole and sound image of a
        kernel that a resolver has described.
        """
        made, error = ffi.new("pk_kernel **"), error_struct()
        raise_for(lib.pk_kernel_load(ffi.from_buffer(image), len(image), made, error), error, ImageError)
        kernel = cls.__new__(cls)
        kernel._handle = _owned(made[0])
        kernel._about = about.read(kernel._handle)
        return kernel

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Kernel:
        """The kernel of an image in a file. Raises `ImageError`, also for a file that cannot be read."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise ImageError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None
        except ImageError as error:
            raise ImageError(f"{os.fspath(path)}: {error}") from None

    def to_bytes(self) -> bytes:
        """The image of this kernel, the same bytes on every machine."""
        size, error = lib.pk_image_size(self._handle), error_struct()
        image = bytearray(size)
        status = lib.pk_kernel_save(self._handle, ffi.from_buffer(image), size, ffi.NULL, error)
        raise_for(status, error, ImageError)
        return bytes(image)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the image to a file, for `load` or for C; the file appears whole or not at all.

        Raises `ImageError` for a file that cannot be written.
        """
        try:
            write_whole(Path(path), self.to_bytes())
        except OSError as error:
            raise ImageError(f"{os.fspath(path)} cannot be written: {error.strerror or error}") from None

    def __repr__(self) -> str:
        return f"<Kernel of {about.title(self._handle)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).from_bytes, (self.to_bytes(),))

    def step_time(self, batch: Batch | BatchState) -> StepEstimate:
        estimate = _bare(StepEstimate)
        estimate.call = estimate.model = estimate.batch = None
        estimate.record = record = _new(_VALUES)
        try:
            refused = _price_batch(self._handle, batch.struct, record)
        except (AttributeError, TypeError):
            refused = True  # no batch, or a running one
        if refused:
            self._bind(batch, estimate)
        return estimate

    def step_time_into(self, batch: Batch | BatchState, estimate: StepEstimate) -> None:
        """As `CostModel.step_time_into`; a `BatchState` is priced without looking at its requests where it can be."""
        try:
            if estimate.model is self:
                if estimate.batch is batch:
                    if not _price(estimate.call):
                        return
                elif batch.__class__ is estimate.batch.__class__ is Batch:
                    estimate.call.batch = batch.struct
                    estimate.batch = batch
                    if not _price(estimate.call):
                        return
        except AttributeError:
            pass  # no estimate, which is said below
        self._bind(batch, estimate)

    def _bind(self, batch: Batch | BatchState, estimate: StepEstimate) -> None:
        """Price a batch into an estimate that did not hold its price before, or raise for what is wrong with it."""
        if not isinstance(estimate, StepEstimate):
            raise ArgumentError(f"estimate is a {type(estimate).__name__}, accepted is a pykernel.StepEstimate")
        call = estimate.call or _new(_CALL)
        if isinstance(batch, Batch):
            call.batch, call.state = batch.struct, _NULL
        elif isinstance(batch, BatchState):
            call.state = batch.struct
        else:
            raise ArgumentError(f"batch is a {type(batch).__name__}, accepted is a pykernel.Batch")
        call.kernel = self._handle
        # Until it is filled, the estimate is bound to nothing: the call may have been made for another batch.
        estimate.model = estimate.batch = None
        if _price(call):
            self._refuse(batch)
        estimate.model, estimate.batch = self, batch
        estimate.call, estimate.record = call, call.values

    def _refuse(self, batch: Batch | BatchState) -> None:
        """Raise for a batch that cannot be priced, in the core's words."""
        record, error = out_struct("pk_estimate"), error_struct()
        price = lib.pk_step_time if isinstance(batch, Batch) else lib.pk_batch_state_step_time
        raise_for(price(self._handle, batch.struct, record, error), error, BatchError)
        raise PykernelError("the batch changed while it was priced")

    def step_time_many(
        self,
        offsets: Any,
        scheduled: Any,
        computed: Any,
        prompt_len: Any = None,
        cached_tokens: Any = None,
        *,
        decode_threshold: int = 1,
        sm_budget: int = 0,
        pad_tokens: int = 0,
        threads: int = 1,
    ) -> StepEstimates:
        settings = {"decode_threshold": decode_threshold, "sm_budget": sm_budget, "pad_tokens": pad_tokens}
        steps = Steps(offsets, scheduled, computed, prompt_len, cached_tokens, **settings)
        return price_many(self._handle, steps, threads)

    def explain(self, batch: Batch) -> Explanation:
        """The terms of one step with the work behind each, and the coefficients that each used.

        Raises `BatchError` as `step_time` does.
        """
        if not isinstance(batch, Batch):
            raise ArgumentError(f"batch is a {type(batch).__name__}, accepted is a Batch, as a BatchState's batch() is")
        estimate, terms = self.step_time(batch), read_terms(self._handle, batch)
        origins = {origin.name: origin for origin in self._about.provenance}
        return Explanation(estimate, self._about.labels.terms(terms, origins))

    def sequence_variable_bytes_many(self, tokens: Any) -> memoryview[int]:
        return each(lib.pk_sequence_variable_bytes_many, self._handle, tokens)

    def tier_time_ns(self, tier: str, direction: str, bytes: int, queue_depth: int) -> int:
        way = lib.PK_TO_TIER if direction == Direction.TO_TIER else lib.PK_FROM_TIER
        size, depth = held_int64("bytes", bytes), held_int64("queue_depth", queue_depth)
        index = lib.pk_find_tier(self._handle, encoded("tier", tier))
        return int(lib.pk_tier_time_ns(self._handle, index, way, size, depth))

    def pd_transfer_time_ns(self, tokens: int, source: Placement, target: Placement) -> int:
        ends = place("source", source), place("target", target)
        return int(lib.pk_pd_transfer_time_ns(self._handle, held_int64("tokens", tokens), *ends))

    def pd_transfer_time_many(self, tokens: Any, source: Placement, target: Placement) -> memoryview[int]:
        ends = place("source", source), place("target", target)
        return each(lib.pk_pd_transfer_time_many, self._handle, tokens, *ends)

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        return self._about.provenance

    def resolved(self) -> Resolution:
        return self._about.resolution

    def deployment(self) -> Pool:
        return copy.deepcopy(self._about.pool)


def _too_large(inputs: Inputs, error: OverflowError) -> RefusedError:
    large = beyond_32_bits(inputs)
    named = "; ".join(f"{path} is {number}" for path, number in large.items())
    message = f"{named or 'a number of the documents'}: larger than can be priced ({error})"
    return RefusedError(message, field=next(iter(large), ""))


def _plain(inputs: Inputs, switches: LawSwitches) -> Spec:
    resolved = resolve(inputs)
    plan = make_plan(inputs.model, resolved, switches)
    if switches.engine_weights:
        from pykernel.measured.operations import operations_of
        from pykernel.measured.weights import holding

        engine = operations_of(inputs, switches)
        plan = holding(plan, engine.measured, engine.resolved.experts)
        resolved = replace(resolved, caches=engine.resolved.caches)
    return Spec(plan, resolved, switches, _names(inputs))


def _measured(inputs: Inputs, switches: LawSwitches) -> Spec:
    from pykernel.measured.flattening import measured_spec

    return measured_spec(inputs, switches, _names(inputs))


def _new_handle(spec: Spec) -> Any:
    made, error = ffi.new("pk_kernel **"), error_struct()
    raise_for(lib.pk_kernel_new(spec.struct, made, error), error, RefusedError)
    return _owned(made[0])


def _owned(handle: Any) -> Any:
    """A kernel of the core that goes away with its last reference."""
    return ffi.gc(handle, lib.pk_kernel_free, lib.pk_kernel_size(handle))


def _names(inputs: Inputs) -> dict[str, str]:
    """The documents that a kernel was built from, by name."""
    return {"scenario": inputs.scenario.name, "model": inputs.model.name, "chip": inputs.chip.name}
