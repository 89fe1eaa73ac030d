"""`Kernel`: the built-in cost model, the C core behind the interface of a cost model."""

from __future__ import annotations

import copy
import operator
from typing import Any

from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.batch import Batch
from pykernel.documents import Inputs, Pool
from pykernel.errors import ArgumentError, BatchError, PykernelError, RefusedError
from pykernel.explain import Explanation, read_terms
from pykernel.flatten import Spec
from pykernel.interface import (
    INT64_MAX,
    RESOURCES,
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
        self._tiers = {tier.name: index for index, tier in enumerate(resolved.links.tiers)}

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

    def fixed_bytes(self) -> MemoryBreakdown:
        out, error = _out("pk_memory_breakdown"), error_struct()
        raise_for(lib.pk_fixed_bytes(self._handle, out, error), error, PykernelError)
        return MemoryBreakdown(out.weights, out.activation_peak, out.cuda_graph, out.eplb_redundant, out.comm_buffers)

    def pre_snapshot_bytes(self) -> int:
        return int(lib.pk_pre_snapshot_bytes(self._handle))

    def sequence_variable_bytes(self, tokens: int) -> int:
        return int(lib.pk_sequence_variable_bytes(self._handle, _int64("tokens", tokens)))

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
        admission = self.sequence_admission_bytes()
        return KVCapacity(
            bytes=out.bytes,
            block_bytes=out.block_bytes,
            block_tokens=out.block_tokens,
            blocks=out.blocks,
            tokens=out.tokens,
            device_bytes=out.device_bytes,
            budget_bytes=out.budget_bytes,
            pre_snapshot_fits=bool(out.pre_snapshot_fits),
            charge=lambda tokens: min(self.sequence_variable_bytes(tokens) + admission, INT64_MAX),
        )

    def tier_time_ns(self, tier: str, direction: str, bytes: int, queue_depth: int) -> int:
        way = lib.PK_TO_TIER if direction == Direction.TO_TIER else lib.PK_FROM_TIER
        size, depth = _int64("bytes", bytes), _int64("queue_depth", queue_depth)
        return int(lib.pk_tier_time_ns(self._handle, self._tiers.get(tier, -1), way, size, depth))

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        out, error = _out("pk_transfer_demand"), error_struct()
        ends = _place("source", source), _place("target", target)
        status = lib.pk_pd_transfer_demand(self._handle, _int64("tokens", tokens), *ends, out, error)
        raise_for(status, error, PykernelError)
        links = [out.links[index] for index in range(out.link_count)]
        return TransferDemand(
            out.bytes,
            out.floor_ns,
            tuple(LinkUse(f"{_LINKS[link.kind]} {link.place}", link.bytes_per_second) for link in links),
        )

    def pd_transfer_time_ns(self, tokens: int, source: Placement, target: Placement) -> int:
        ends = _place("source", source), _place("target", target)
        return int(lib.pk_pd_transfer_time_ns(self._handle, _int64("tokens", tokens), *ends))

    def admission_overhead_ns(self, prompt_tokens: int) -> int:
        return int(lib.pk_admission_overhead_ns(self._handle, _int64("prompt_tokens", prompt_tokens)))

    def output_token_overhead_ns(self) -> int:
        return int(lib.pk_output_token_overhead_ns(self._handle))

    def completion_overhead_ns(self) -> int:
        return int(lib.pk_completion_overhead_ns(self._handle))

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


def _out(kind: str) -> Any:
    """A fresh struct of the core, for one call to fill."""
    return ffi.new(f"{kind} *", {"struct_size": ffi.sizeof(kind)})


def _new_handle(spec: Spec) -> Any:
    made, error = ffi.new("pk_kernel **"), error_struct()
    raise_for(lib.pk_kernel_new(spec.struct, made, error), error, RefusedError)
    return ffi.gc(made[0], lib.pk_kernel_free, lib.pk_kernel_size(made[0]))


def _explain(handle: Any, batch: Batch, out: Any) -> None:
    """Raise for a batch that the core refused, with its words; only then is a message worth its cost."""
    error = error_struct()
    raise_for(lib.pk_step_time(handle, batch.struct, out, error), error, BatchError)
    raise PykernelError("the batch changed while it was priced")
