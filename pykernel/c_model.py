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
from pykernel.c_methods import CMethods, encoded, functions, held_int64, out_struct
from pykernel.documents import Inputs, Pool
from pykernel.errors import ArgumentError, BatchError, ImageError, PluginError
from pykernel.interface import RESOURCES, CoefficientOrigin, CostModel, Direction, Resolution, StepEstimate
from pykernel.kernel import Kernel

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


class CModel(CMethods):
    """A cost model in C. Made by `load_c_model`."""

    _c = functions("pk_model_")

    def __init__(self, path: str, kernel: Kernel | None) -> None:
        if not isinstance(kernel, Kernel | None):
            raise ArgumentError(f"kernel is a {type(kernel).__name__}, accepted is a pykernel.Kernel")
        self._path, self._kernel = path, kernel
        entry = _open_library(path)
        base, error = ffi.NULL, error_struct()
        if kernel is not None:
            base = out_struct("pk_model")
            raise_for(lib.pk_model_of_kernel(kernel._handle, base, error), error, PluginError)
        model = out_struct("pk_model")
        status = entry(base, model, error)
        if status != lib.PK_OK:
            raise PluginError(f"{path}: {_words(status, error)}")
        self._base = base
        self._handle = ffi.gc(model, lib.pk_model_close)
        if model.base == ffi.NULL and kernel is not None:
            model.base = base
        status = lib.pk_model_check(model, error)
        if status != lib.PK_OK:
            raise PluginError(f"{path}: {_words(status, error)}")
        self._tell = about.tell_of_model(self._handle)
        self._provenance = self._described(about.provenance)
        self._resolution = self._described(about.resolution)

    def __repr__(self) -> str:
        return f"<CModel of {self._path}{f' over {self._kernel}' if self._kernel else ''}>"

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
        out, error = out_struct("pk_estimate"), error_struct()
        raise_for(lib.pk_model_step_time(self._handle, batch.struct, out, error), error, BatchError)
        if not 0 <= out.bottleneck < len(RESOURCES):
            raise PluginError(f"{self._path}: the bottleneck of a step is {out.bottleneck}, which is no resource")
        estimate.fill(out.overlap_ns, out.no_overlap_ns, RESOURCES[out.bottleneck], out.per_resource_ns)

    def tier_time_ns(self, tier: str, direction: str, bytes: int, queue_depth: int) -> int:
        way = lib.PK_TO_TIER if direction == Direction.TO_TIER else lib.PK_FROM_TIER
        size, depth = held_int64("bytes", bytes), held_int64("queue_depth", queue_depth)
        return int(lib.pk_model_tier_time_ns(self._handle, encoded("tier", tier), way, size, depth))

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
