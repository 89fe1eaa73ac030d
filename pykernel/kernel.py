"""`Kernel`: the built-in cost model, the C core behind the interface of a cost model."""

from __future__ import annotations

import copy
import operator
import os
from functools import partial
from pathlib import Path
from typing import Any

from pykernel import about
from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.batch import Batch
from pykernel.batch_state import BatchState
from pykernel.documents import Inputs, Pool
from pykernel.documents.inputs import beyond_32_bits
from pykernel.errors import ArgumentError, BatchError, ImageError, PykernelError, RefusedError
from pykernel.estimates import StepEstimates, Steps
from pykernel.explain import Explanation, read_terms
from pykernel.flatten import Spec
from pykernel.interface import (
    INT64_MAX,
    CoefficientOrigin,
    CostModel,
    Direction,
    KVCapacity,
    LinkUse,
    MemoryBreakdown,
    Placement,
    Resolution,
    StepEstimate,
    TransferDemand,
)
from pykernel.many import each, price_many
from pykernel.plan import make_plan
from pykernel.resolve import resolve
from pykernel.switches import NEWEST, LawSwitches

if not lib.pk_arithmetic_is_exact():
    raise ImportError("pykernel._native was built with fused multiply-add; build it with -ffp-contract=off")

# Looked up once: a step is priced in less time than a few attributes are found in.
_new, _bare, _NULL = ffi.new, StepEstimate.__new__, ffi.NULL
_price, _price_batch = lib.pykernel_price, lib.pykernel_price_batch
_VALUES, _CALL = ffi.typeof("int64_t[10]"), ffi.typeof("pykernel_call *")


class Kernel(CostModel):
    """Prices one pool of one deployment with the BLIS laws.

    Built from `Inputs`, of which it keeps nothing: editing them afterwards changes no answer. `switches` chooses
    between published generations of the laws; leave it out for the newest.

    Raises `ArgumentError`, `DocumentError` or `RefusedError`, as `pykernel.resolve.resolve` does.
    """

    def __init__(self, inputs: Inputs, *, switches: LawSwitches = NEWEST) -> None:
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
        target = Path(path)
        unfinished = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            unfinished.write_bytes(self.to_bytes())
            unfinished.replace(target)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise ImageError(f"{os.fspath(path)} cannot be written: {error.strerror or error}") from None

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
        record, error = _out("pk_estimate"), error_struct()
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
        columns = {
            "scheduled": scheduled,
            "computed": computed,
            "prompt_len": prompt_len,
            "cached_tokens": cached_tokens,
        }
        settings = {"decode_threshold": decode_threshold, "sm_budget": sm_budget, "pad_tokens": pad_tokens}
        return price_many(self._handle, Steps(offsets, columns, settings), threads)

    def explain(self, batch: Batch) -> Explanation:
        """The terms of one step with the work behind each, and the coefficients that each used.

        Raises `BatchError` as `step_time` does.
        """
        estimate, terms = self.step_time(batch), read_terms(self._handle, batch)
        origins = {origin.name: origin for origin in self._about.provenance}
        return Explanation(estimate, self._about.labels.terms(terms, origins))

    def fixed_bytes(self) -> MemoryBreakdown:
        out, error = _out("pk_memory_breakdown"), error_struct()
        raise_for(lib.pk_fixed_bytes(self._handle, out, error), error, PykernelError)
        return MemoryBreakdown(out.weights, out.activation_peak, out.cuda_graph, out.eplb_redundant, out.comm_buffers)

    def pre_snapshot_bytes(self) -> int:
        return int(lib.pk_pre_snapshot_bytes(self._handle))

    def sequence_variable_bytes(self, tokens: int) -> int:
        return int(lib.pk_sequence_variable_bytes(self._handle, _int64("tokens", tokens)))

    def sequence_variable_bytes_many(self, tokens: Any) -> memoryview[int]:
        return each(lib.pk_sequence_variable_bytes_many, self._handle, tokens)

    def sequence_fixed_bytes(self) -> int:
        return int(lib.pk_sequence_fixed_bytes(self._handle))

    def sequence_admission_bytes(self) -> int:
        return int(lib.pk_sequence_admission_bytes(self._handle))

    def sequence_bounded_bytes(self, in_flight: int) -> int:
        return int(lib.pk_sequence_bounded_bytes(self._handle, _int64("in_flight", in_flight)))

    def sequence_bounded_bytes_at(self, computed: int, in_flight: int) -> int:
        arguments = _int64("computed", computed), _int64("in_flight", in_flight)
        return int(lib.pk_sequence_bounded_bytes_at(self._handle, *arguments))

    def max_tokens_for(self, bytes: int) -> int:
        return int(lib.pk_max_tokens_for(self._handle, _int64("bytes", bytes)))

    def kv_capacity(
        self,
        *,
        gpu_memory_bytes: int | None = None,
        gpu_memory_utilization: float | None = None,
        block_size: int | None = None,
    ) -> KVCapacity:
        device = _positive("gpu_memory_bytes", gpu_memory_bytes)
        block = _positive("block_size", block_size)
        out, error = _out("pk_capacity"), error_struct()
        status = lib.pk_kv_capacity(self._handle, device, _share(gpu_memory_utilization), block, out, error)
        if status == lib.PK_NO_ROOM:
            raise RefusedError(ffi.string(error.message).decode(), "engine.gpu_memory_utilization")
        raise_for(status, error, ArgumentError)
        return _capacity(out, self)

    def tier_time_ns(self, tier: str, direction: str, bytes: int, queue_depth: int) -> int:
        way = lib.PK_TO_TIER if direction == Direction.TO_TIER else lib.PK_FROM_TIER
        size, depth = _int64("bytes", bytes), _int64("queue_depth", queue_depth)
        index = lib.pk_find_tier(self._handle, tier.encode(errors="replace"))
        return int(lib.pk_tier_time_ns(self._handle, index, way, size, depth))

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        out, error = _out("pk_transfer_demand"), error_struct()
        ends = _place("source", source), _place("target", target)
        status = lib.pk_pd_transfer_demand(self._handle, _int64("tokens", tokens), *ends, out, error)
        raise_for(status, error, PykernelError)
        return _demand(out)

    def pd_transfer_time_ns(self, tokens: int, source: Placement, target: Placement) -> int:
        ends = _place("source", source), _place("target", target)
        return int(lib.pk_pd_transfer_time_ns(self._handle, _int64("tokens", tokens), *ends))

    def pd_transfer_time_many(self, tokens: Any, source: Placement, target: Placement) -> memoryview[int]:
        ends = _place("source", source), _place("target", target)
        return each(lib.pk_pd_transfer_time_many, self._handle, tokens, *ends)

    def admission_overhead_ns(self, prompt_tokens: int) -> int:
        return int(lib.pk_admission_overhead_ns(self._handle, _int64("prompt_tokens", prompt_tokens)))

    def output_token_overhead_ns(self) -> int:
        return int(lib.pk_output_token_overhead_ns(self._handle))

    def completion_overhead_ns(self) -> int:
        return int(lib.pk_completion_overhead_ns(self._handle))

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        return self._about.provenance

    def resolved(self) -> Resolution:
        return self._about.resolution

    def deployment(self) -> Pool:
        return copy.deepcopy(self._about.pool)

    def capture_tokens(self) -> int:
        return int(lib.pk_capture_tokens(self._handle))

    def graph_modes(self) -> tuple[str, str]:
        modes = lib.pk_uniform_graph_mode(self._handle), lib.pk_other_graph_mode(self._handle)
        return _GRAPH_MODES[modes[0]], _GRAPH_MODES[modes[1]]

    def decode_threshold(self) -> int:
        return int(lib.pk_decode_threshold(self._handle))

    def decode_context_parallel_width(self) -> int:
        return int(lib.pk_decode_context_ranks(self._handle))

    def prefill_context_parallel_width(self) -> int:
        return int(lib.pk_prefill_context_ranks(self._handle))


def _too_large(inputs: Inputs, error: OverflowError) -> RefusedError:
    large = beyond_32_bits(inputs)
    named = "; ".join(f"{path} is {number}" for path, number in large.items())
    message = f"{named or 'a number of the documents'}: larger than can be priced ({error})"
    return RefusedError(message, field=next(iter(large), ""))


def _plain(inputs: Inputs, switches: LawSwitches) -> Spec:
    resolved = resolve(inputs)
    return Spec(make_plan(inputs.model, resolved, switches), resolved, switches, _names(inputs))


def _measured(inputs: Inputs, switches: LawSwitches) -> Spec:
    from pykernel.measured.flattening import measured_spec

    return measured_spec(inputs, switches, _names(inputs))


_GRAPH_MODES = {lib.PK_GRAPH_NONE: "NONE", lib.PK_GRAPH_PIECEWISE: "PIECEWISE", lib.PK_GRAPH_FULL: "FULL"}
_LINKS = {lib.PK_LINK_NODE: "nvlink of node", lib.PK_LINK_RACK: "nvlink of rack", lib.PK_LINK_NIC: "nic of node"}


def _int64(name: str, value: int) -> int:
    """An argument as the core takes it: whole, and held at the ends of its range."""
    try:
        return max(min(operator.index(value), INT64_MAX), -INT64_MAX - 1)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}, accepted is a whole number") from None


def _positive(name: str, value: int | None) -> int:
    """An argument that replaces a setting; 0 tells the core to keep it."""
    if value is None:
        return 0
    whole = _int64(name, value)
    if whole < 1:
        raise ArgumentError(f"{name} is {value}, must be 1 or more")
    return whole


def _share(value: float | None) -> float:
    if value is None:
        return 0.0
    if not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ArgumentError(f"gpu_memory_utilization is {value!r}, must be above 0 and at most 1")
    return float(value)


def _place(name: str, placement: Placement) -> Any:
    if not isinstance(placement, Placement):
        raise ArgumentError(f"{name} is a {type(placement).__name__}, accepted is a pykernel.Placement")
    return ffi.new(
        "pk_placement *",
        {"node": _int64(f"{name}.node", placement.node), "rack": _int64(f"{name}.rack", placement.rack)},
    )


def _capacity(out: Any, model: CostModel) -> KVCapacity:
    """A `pk_capacity` as a value; `model` says what a sequence takes of it."""
    admission = model.sequence_admission_bytes()
    return KVCapacity(
        bytes=out.bytes,
        block_bytes=out.block_bytes,
        block_tokens=out.block_tokens,
        blocks=out.blocks,
        tokens=out.tokens,
        device_bytes=out.device_bytes,
        budget_bytes=out.budget_bytes,
        pre_snapshot_fits=bool(out.pre_snapshot_fits),
        charge=partial(_charge, model, admission),
    )


def _charge(model: CostModel, admission: int, tokens: int) -> int:
    """The bytes that a sequence of so many tokens is charged."""
    return min(model.sequence_variable_bytes(tokens) + admission, INT64_MAX)


def _demand(out: Any) -> TransferDemand:
    """A `pk_transfer_demand` as a value."""
    links = [out.links[index] for index in range(out.link_count)]
    return TransferDemand(
        out.bytes,
        out.floor_ns,
        tuple(LinkUse(f"{_LINKS[link.kind]} {link.place}", link.bytes_per_second) for link in links),
    )


def _out(kind: str) -> Any:
    """A fresh struct of the core, for one call to fill."""
    return ffi.new(f"{kind} *", {"struct_size": ffi.sizeof(kind)})


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
