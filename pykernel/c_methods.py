"""The methods that C answers in the same way for a kernel (`pk_...`) and for a model in a library (`pk_model_...`).

Each C function has one name in both families, and a first argument of the family. Here is what lies between it and the
method of the interface: arguments held to their range, structs turned into values, statuses into exceptions.
"""

from __future__ import annotations

import operator
from functools import partial
from numbers import Real
from types import SimpleNamespace
from typing import Any, ClassVar

from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.errors import ArgumentError, PluginError, PykernelError, RefusedError
from pykernel.interface import (
    INT64_MAX,
    CostModel,
    KVCapacity,
    LinkUse,
    MemoryBreakdown,
    Placement,
    TransferDemand,
)

_NAMES = [
    "fixed_bytes",
    "pre_snapshot_bytes",
    "sequence_variable_bytes",
    "sequence_fixed_bytes",
    "sequence_admission_bytes",
    "sequence_bounded_bytes",
    "sequence_bounded_bytes_at",
    "max_tokens_for",
    "kv_capacity",
    "pd_transfer_demand",
    "admission_overhead_ns",
    "output_token_overhead_ns",
    "completion_overhead_ns",
    "capture_tokens",
    "uniform_graph_mode",
    "other_graph_mode",
    "decode_threshold",
    "decode_context_ranks",
    "prefill_context_ranks",
]
_GRAPH_MODES = {lib.PK_GRAPH_NONE: "NONE", lib.PK_GRAPH_PIECEWISE: "PIECEWISE", lib.PK_GRAPH_FULL: "FULL"}
_LINKS = {lib.PK_LINK_NODE: "nvlink of node", lib.PK_LINK_RACK: "nvlink of rack", lib.PK_LINK_NIC: "nic of node"}


def functions(prefix: str) -> SimpleNamespace:
    """The C functions of a family by the names that they share."""
    return SimpleNamespace(**{name: getattr(lib, prefix + name) for name in _NAMES})


class CMethods(CostModel):
    """A cost model most of whose methods are C functions."""

    _c: ClassVar[SimpleNamespace]
    """The functions, of `functions`."""
    _handle: Any
    """Their first argument."""

    def fixed_bytes(self) -> MemoryBreakdown:
        out, error = out_struct("pk_memory_breakdown"), error_struct()
        raise_for(self._c.fixed_bytes(self._handle, out, error), error, PykernelError)
        return MemoryBreakdown(out.weights, out.activation_peak, out.cuda_graph, out.eplb_redundant, out.comm_buffers)

    def pre_snapshot_bytes(self) -> int:
        return int(self._c.pre_snapshot_bytes(self._handle))

    def sequence_variable_bytes(self, tokens: int) -> int:
        return int(self._c.sequence_variable_bytes(self._handle, held_int64("tokens", tokens)))

    def sequence_fixed_bytes(self) -> int:
        return int(self._c.sequence_fixed_bytes(self._handle))

    def sequence_admission_bytes(self) -> int:
        return int(self._c.sequence_admission_bytes(self._handle))

    def sequence_bounded_bytes(self, in_flight: int) -> int:
        return int(self._c.sequence_bounded_bytes(self._handle, held_int64("in_flight", in_flight)))

    def sequence_bounded_bytes_at(self, computed: int, in_flight: int) -> int:
        arguments = held_int64("computed", computed), held_int64("in_flight", in_flight)
        return int(self._c.sequence_bounded_bytes_at(self._handle, *arguments))

    def max_tokens_for(self, bytes: int) -> int:
        return int(self._c.max_tokens_for(self._handle, held_int64("bytes", bytes)))

    def kv_capacity(
        self,
        *,
        gpu_memory_bytes: int | None = None,
        gpu_memory_utilization: float | None = None,
        block_size: int | None = None,
    ) -> KVCapacity:
        device = _positive("gpu_memory_bytes", gpu_memory_bytes)
        block = _positive("block_size", block_size)
        out, error = out_struct("pk_capacity"), error_struct()
        status = self._c.kv_capacity(self._handle, device, _share(gpu_memory_utilization), block, out, error)
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
            charge=partial(_charge, self, admission),
        )

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        out, error = out_struct("pk_transfer_demand"), error_struct()
        ends = place("source", source), place("target", target)
        raise_for(
            self._c.pd_transfer_demand(self._handle, held_int64("tokens", tokens), *ends, out, error),
            error,
            PykernelError,
        )
        if not 0 <= out.link_count <= len(out.links):
            raise PluginError(f"the model's handoff crosses {out.link_count} links, must be 0 to {len(out.links)}")
        links = [out.links[index] for index in range(out.link_count)]
        return TransferDemand(
            out.bytes,
            out.floor_ns,
            tuple(LinkUse(f"{_named(_LINKS, link.kind)} {link.place}", link.bytes_per_second) for link in links),
        )

    def admission_overhead_ns(self, prompt_tokens: int) -> int:
        return int(self._c.admission_overhead_ns(self._handle, held_int64("prompt_tokens", prompt_tokens)))

    def output_token_overhead_ns(self) -> int:
        return int(self._c.output_token_overhead_ns(self._handle))

    def completion_overhead_ns(self) -> int:
        return int(self._c.completion_overhead_ns(self._handle))

    def capture_tokens(self) -> int:
        return int(self._c.capture_tokens(self._handle))

    def graph_modes(self) -> tuple[str, str]:
        modes = self._c.uniform_graph_mode(self._handle), self._c.other_graph_mode(self._handle)
        return _named(_GRAPH_MODES, modes[0]), _named(_GRAPH_MODES, modes[1])

    def decode_threshold(self) -> int:
        return int(self._c.decode_threshold(self._handle))

    def decode_context_parallel_width(self) -> int:
        return int(self._c.decode_context_ranks(self._handle))

    def prefill_context_parallel_width(self) -> int:
        return int(self._c.prefill_context_ranks(self._handle))


def out_struct(kind: str) -> Any:
    """A fresh struct of the core, for one call to fill."""
    return ffi.new(f"{kind} *", {"struct_size": ffi.sizeof(kind)})


def held_int64(name: str, value: int) -> int:
    """An argument as the core takes it: whole, and held at the ends of its range."""
    try:
        return max(min(operator.index(value), INT64_MAX), -INT64_MAX - 1)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}, accepted is a whole number") from None


def encoded(name: str, text: str) -> bytes:
    """A name as the core takes it. One with a NUL, at which C would stop reading, becomes "", which names nothing."""
    if not isinstance(text, str):
        raise ArgumentError(f"{name} is {text!r}, accepted is a string")
    return b"" if "\0" in text else text.encode(errors="surrogatepass")


def place(name: str, placement: Placement) -> Any:
    """A placement as the core takes it."""
    if not isinstance(placement, Placement):
        raise ArgumentError(f"{name} is a {type(placement).__name__}, accepted is a pykernel.Placement")
    return ffi.new(
        "pk_placement *",
        {"node": held_int64(f"{name}.node", placement.node), "rack": held_int64(f"{name}.rack", placement.rack)},
    )


def _named(names: dict[int, str], number: int) -> str:
    """What a number of the core stands for; a model in a library may answer with one that stands for nothing."""
    if number not in names:
        raise PluginError(f"the model answers {number}, accepted is one of {', '.join(map(str, names))}")
    return names[number]


def _positive(name: str, value: int | None) -> int:
    """An argument that replaces a setting; 0 tells the core to keep it."""
    if value is None:
        return 0
    whole = held_int64(name, value)
    if whole < 1:
        raise ArgumentError(f"{name} is {value}, must be 1 or more")
    return whole


def _share(value: float | None) -> float:
    if value is None:
        return 0.0
    if not isinstance(value, Real) or not 0 < value <= 1:
        raise ArgumentError(f"gpu_memory_utilization is {value!r}, must be above 0 and at most 1")
    return float(value)


def _charge(model: CostModel, admission: int, tokens: int) -> int:
    """The bytes that a sequence of so many tokens is charged."""
    return min(model.sequence_variable_bytes(tokens) + admission, INT64_MAX)
