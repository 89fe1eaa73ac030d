"""Cost models written in C or C++: a shared library with the table of functions `pk_model` of pykernel.h.

The table answers through the same C calls that a C simulator makes, so a model behaves alike in all languages.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

from pykernel import about
from pykernel._native import ffi, lib
from pykernel._status import error_struct, raise_for
from pykernel.batch import Batch
from pykernel.documents import Inputs, Pool
from pykernel.errors import ArgumentError, BatchError, ImageError, PluginError, PykernelError, RefusedError
from pykernel.interface import (
    RESOURCES,
    CoefficientOrigin,
    CostModel,
    Direction,
    KVCapacity,
    MemoryBreakdown,
    Placement,
    Resolution,
    StepEstimate,
    TransferDemand,
)
from pykernel.kernel import _GRAPH_MODES, Kernel, _capacity, _demand, _int64, _out, _place, _positive, _share

SHARED_LIBRARY = (".so", ".dylib")
"""How the name of a shared library ends."""


def load_c_model(path: str | os.PathLike[str], kernel: Kernel | None = None) -> CModel:
    """The cost model in a shared library.

    `kernel` is of the deployment to price; the model may ask it, and what the model leaves out it answers. A model
    that stands on its own needs none.

    Raises `PluginError` for a library that cannot be loaded, has no `pk_model_open`, or whose model is incomplete or
    refuses. Loading runs the library's code: load only what you trust.
    """
    return CModel(os.fspath(path), kernel)


def c_model_factory(path: str | os.PathLike[str]) -> Callable[[Inputs], CostModel]:
    """A maker of cost models from documents, which is what a plug-in registers: the library's model over a `Kernel`."""
    return lambda inputs: load_c_model(path, Kernel(inputs))


class CModel(CostModel):
    """A cost model in C. Made by `load_c_model`."""

    def __init__(self, path: str, kernel: Kernel | None) -> None:
        self._path, self._kernel = path, kernel
        entry = _open_library(path)
        base, error = ffi.NULL, error_struct()
        if kernel is not None:
            base = _out("pk_model")
            raise_for(lib.pk_model_of_kernel(kernel._handle, base, error), error, PluginError)
        model = _out("pk_model")
        status = entry(base, model, error)
        if status != lib.PK_OK:
            raise PluginError(f"{path}: {_words(status, error)}")
        self._base = base
        self._model = ffi.gc(model, lib.pk_model_close)
        if model.base == ffi.NULL and kernel is not None:
            model.base = base
        status = lib.pk_model_check(model, error)
        if status != lib.PK_OK:
            raise PluginError(f"{path}: {_words(status, error)}")
        self._tell = about.tell_of_model(self._model)
        self._provenance = self._described(about.provenance)
        self._resolution = self._described(about.resolution)

    def __reduce__(self) -> tuple[Any, ...]:
        return (load_c_model, (self._path, self._kernel))

    def _described(self, what: Callable[[about.Tell], Any]) -> Any:
        try:
            return what(self._tell)
        except ValueError as error:
            raise PluginError(f"{self._path}: the model describes itself in what is no UTF-8 text: {error}") from None

    def step_time(self, batch: Batch) -> StepEstimate:
        estimate = StepEstimate()
        self.step_time_into(batch, estimate)
        return estimate

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        if not isinstance(batch, Batch):
            raise ArgumentError(f"batch is a {type(batch).__name__}, accepted is a pykernel.Batch")
        out, error = _out("pk_estimate"), error_struct()
        raise_for(lib.pk_model_step_time(self._model, batch.struct, out, error), error, BatchError)
        if not 0 <= out.bottleneck < len(RESOURCES):
            raise PluginError(f"{self._path}: the bottleneck of a step is {out.bottleneck}, which is no resource")
        estimate.fill(out.overlap_ns, out.no_overlap_ns, RESOURCES[out.bottleneck], out.per_resource_ns)

    def fixed_bytes(self) -> MemoryBreakdown:
        out, error = _out("pk_memory_breakdown"), error_struct()
        raise_for(lib.pk_model_fixed_bytes(self._model, out, error), error, PykernelError)
        return MemoryBreakdown(out.weights, out.activation_peak, out.cuda_graph, out.eplb_redundant, out.comm_buffers)

    def pre_snapshot_bytes(self) -> int:
        return int(lib.pk_model_pre_snapshot_bytes(self._model))

    def sequence_variable_bytes(self, tokens: int) -> int:
        return int(lib.pk_model_sequence_variable_bytes(self._model, _int64("tokens", tokens)))

    def sequence_fixed_bytes(self) -> int:
        return int(lib.pk_model_sequence_fixed_bytes(self._model))

    def sequence_admission_bytes(self) -> int:
        return int(lib.pk_model_sequence_admission_bytes(self._model))

    def sequence_bounded_bytes(self, in_flight: int) -> int:
        return int(lib.pk_model_sequence_bounded_bytes(self._model, _int64("in_flight", in_flight)))

    def sequence_bounded_bytes_at(self, computed: int, in_flight: int) -> int:
        arguments = _int64("computed", computed), _int64("in_flight", in_flight)
        return int(lib.pk_model_sequence_bounded_bytes_at(self._model, *arguments))

    def max_tokens_for(self, bytes: int) -> int:
        return int(lib.pk_model_max_tokens_for(self._model, _int64("bytes", bytes)))

    def kv_capacity(
        self,
        *,
        gpu_memory_bytes: int | None = None,
        gpu_memory_utilization: float | None = None,
        block_size: int | None = None,
    ) -> KVCapacity:
        settings = (
            _positive("gpu_memory_bytes", gpu_memory_bytes),
            _share(gpu_memory_utilization),
            _positive("block_size", block_size),
        )
        out, error = _out("pk_capacity"), error_struct()
        raise_for(lib.pk_model_kv_capacity(self._model, *settings, out, error), error, RefusedError)
        return _capacity(out, self)

    def tier_time_ns(self, tier: str, direction: str, bytes: int, queue_depth: int) -> int:
        way = lib.PK_TO_TIER if direction == Direction.TO_TIER else lib.PK_FROM_TIER
        size, depth = _int64("bytes", bytes), _int64("queue_depth", queue_depth)
        return int(lib.pk_model_tier_time_ns(self._model, tier.encode(errors="replace"), way, size, depth))

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        out, error = _out("pk_transfer_demand"), error_struct()
        ends = _place("source", source), _place("target", target)
        status = lib.pk_model_pd_transfer_demand(self._model, _int64("tokens", tokens), *ends, out, error)
        raise_for(status, error, PykernelError)
        return _demand(out)

    def admission_overhead_ns(self, prompt_tokens: int) -> int:
        return int(lib.pk_model_admission_overhead_ns(self._model, _int64("prompt_tokens", prompt_tokens)))

    def output_token_overhead_ns(self) -> int:
        return int(lib.pk_model_output_token_overhead_ns(self._model))

    def completion_overhead_ns(self) -> int:
        return int(lib.pk_model_completion_overhead_ns(self._model))

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        provenance: tuple[CoefficientOrigin, ...] = self._provenance
        return provenance

    def resolved(self) -> Resolution:
        resolution: Resolution = self._resolution
        return resolution

    def deployment(self) -> Pool:
        """The priced pool, where the model tells one (a text `deployment`). Raises `PluginError` where it does not."""
        try:
            return copy.deepcopy(about.pool(self._tell))
        except (ImageError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise PluginError(f"{self._path}: the model tells no deployment: {error}") from None

    def capture_tokens(self) -> int:
        return int(lib.pk_model_capture_tokens(self._model))

    def graph_modes(self) -> tuple[str, str]:
        uniform = lib.pk_model_uniform_graph_mode(self._model)
        other = lib.pk_model_other_graph_mode(self._model)
        return _GRAPH_MODES[uniform], _GRAPH_MODES[other]

    def decode_threshold(self) -> int:
        return int(lib.pk_model_decode_threshold(self._model))

    def decode_context_parallel_width(self) -> int:
        return int(lib.pk_model_decode_context_ranks(self._model))

    def prefill_context_parallel_width(self) -> int:
        return int(lib.pk_model_prefill_context_ranks(self._model))


def _open_library(path: str) -> Any:
    """The `pk_model_open` of a shared library."""
    said = ffi.new("char[1024]")
    entry = lib.pykernel_open_library(os.fsencode(os.path.abspath(path)), said, len(said))
    if entry == ffi.NULL:
        raise PluginError(f"{path} {ffi.string(said).decode(errors='replace')}")
    return entry


def _words(status: int, error: Any) -> str:
    """What a model said when it refused, or the sentence of its status."""
    said = str(ffi.string(error.message).decode(errors="replace"))
    return said or str(ffi.string(lib.pk_status_text(status)).decode())
