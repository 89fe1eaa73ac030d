"""pykernel: how long one step of an LLM-serving engine takes, and what it holds in memory.

>>> import pykernel
>>> kernel = pykernel.open("deepseek-v3-h200-fp8-tp8")
>>> batch = pykernel.Batch([pykernel.Request(scheduled=1, computed=4095, prompt_len=1024)] * 32)
>>> kernel.step_time(batch).bottleneck
'hbm'

See the README for the command and docs/price-a-batch.md for a tour.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from os import PathLike

    from pykernel.batch import Batch
    from pykernel.batch_state import BatchState
    from pykernel.c_model import load_c_model
    from pykernel.derive import ParameterInventory, derive, parameter_inventory
    from pykernel.documents import Inputs, Repos, Rules, load_bundle, open_inputs
    from pykernel.documents.rules import rules
    from pykernel.errors import (
        ArgumentError,
        BatchError,
        DocumentError,
        ImageError,
        PluginError,
        Problem,
        PykernelError,
        RefusedError,
    )
    from pykernel.estimates import StepEstimates
    from pykernel.explain import Explanation, Term
    from pykernel.from_config import inputs_from_config, inputs_from_graph
    from pykernel.interface import (
        RESOURCES,
        CoefficientOrigin,
        CostModel,
        Direction,
        Evidence,
        KVCapacity,
        LinkUse,
        MemoryBreakdown,
        Override,
        Placement,
        Request,
        Resolution,
        StepEstimate,
        TransferDemand,
    )
    from pykernel.kernel import Kernel
    from pykernel.models import OwnModel, new
    from pykernel.own_step import OwnStep
    from pykernel.resolve import ENGINE_BEHAVIOUR_COMMIT, ENGINE_BEHAVIOUR_VERSION, KERNEL_ASSUMPTION_SET
    from pykernel.summary import ModelSummary, summarize
    from pykernel.switches import LawSwitches

    __version__: str

# Where each name lives. A name is imported when it is first asked for, so that importing the package takes no longer
# than what is used of it.
_HOMES = {
    "pykernel.batch": "Batch",
    "pykernel.batch_state": "BatchState",
    "pykernel.c_model": "load_c_model",
    "pykernel.derive": "ParameterInventory derive parameter_inventory",
    "pykernel.documents": "Inputs Repos Rules load_bundle open_inputs",
    "pykernel.documents.rules": "rules",
    "pykernel.errors": (
        "ArgumentError BatchError DocumentError ImageError PluginError Problem PykernelError RefusedError"
    ),
    "pykernel.estimates": "StepEstimates",
    "pykernel.explain": "Explanation Term",
    "pykernel.from_config": "inputs_from_config inputs_from_graph",
    "pykernel.interface": (
        "CoefficientOrigin CostModel Direction Evidence KVCapacity LinkUse MemoryBreakdown Override "
        "Placement RESOURCES Request Resolution StepEstimate TransferDemand"
    ),
    "pykernel.kernel": "Kernel",
    "pykernel.models": "new",
    "pykernel.own_step": "OwnStep",
    "pykernel.resolve": "ENGINE_BEHAVIOUR_COMMIT ENGINE_BEHAVIOUR_VERSION KERNEL_ASSUMPTION_SET",
    "pykernel.summary": "ModelSummary summarize",
    "pykernel.switches": "LawSwitches",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ENGINE_BEHAVIOUR_COMMIT",
    "ENGINE_BEHAVIOUR_VERSION",
    "KERNEL_ASSUMPTION_SET",
    "RESOURCES",
    "ArgumentError",
    "Batch",
    "BatchError",
    "BatchState",
    "CoefficientOrigin",
    "CostModel",
    "Direction",
    "DocumentError",
    "Evidence",
    "Explanation",
    "ImageError",
    "Inputs",
    "KVCapacity",
    "Kernel",
    "LawSwitches",
    "LinkUse",
    "MemoryBreakdown",
    "ModelSummary",
    "Override",
    "OwnStep",
    "ParameterInventory",
    "Placement",
    "PluginError",
    "Problem",
    "PykernelError",
    "RefusedError",
    "Repos",
    "Request",
    "Resolution",
    "Rules",
    "StepEstimate",
    "StepEstimates",
    "Term",
    "TransferDemand",
    "derive",
    "inputs_from_config",
    "inputs_from_graph",
    "load_bundle",
    "load_c_model",
    "new",
    "open",
    "open_inputs",
    "open_pool",
    "parameter_inventory",
    "rules",
    "summarize",
]


class _Package(ModuleType):
    """This module. Importing the package `pykernel.derive` would put it in the place of the function of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "derive" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        value: Any = import_module("pykernel._status").library_version()
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'pykernel' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


@overload
def open(
    scenario: str | PathLike[str],
    repos: Repos | None = None,
    *,
    model: OwnModel = "blis",
    cache: str | PathLike[str] | None = None,
) -> Kernel: ...


@overload
def open(
    scenario: str | PathLike[str],
    repos: Repos | None = None,
    *,
    model: str,
    cache: str | PathLike[str] | None = None,
) -> CostModel: ...


def open(
    scenario: str | PathLike[str],
    repos: Repos | None = None,
    *,
    model: str = "blis",
    cache: str | PathLike[str] | None = None,
) -> CostModel:
    """The cost model of a scenario's first pool.

    `scenario` is a path, else a name in `repos`, else the name of a bundled scenario; ".yaml" may be left out.
    `model` names the cost model: one of pykernel's own, which is a `Kernel`, one of a plug-in, or the path of a shared
    library with a model in C. `cache` is a folder for images of kernels: what was opened once is loaded from there
    while every file that it was made from holds the same bytes.

    Raises `DocumentError` or `RefusedError` with what is at fault, `ArgumentError` for an unknown model and for a cache
    that cannot be written, `PluginError` for a model whose plug-in or library fails.
    """
    return open_pool(scenario, 0, repos, model=model, cache=cache)


@overload
def open_pool(
    scenario: str | PathLike[str],
    index: int,
    repos: Repos | None = None,
    *,
    model: OwnModel = "blis",
    cache: str | PathLike[str] | None = None,
) -> Kernel: ...


@overload
def open_pool(
    scenario: str | PathLike[str],
    index: int,
    repos: Repos | None = None,
    *,
    model: str,
    cache: str | PathLike[str] | None = None,
) -> CostModel: ...


def open_pool(
    scenario: str | PathLike[str],
    index: int,
    repos: Repos | None = None,
    *,
    model: str = "blis",
    cache: str | PathLike[str] | None = None,
) -> CostModel:
    """The cost model of one pool of a scenario, counted from 0; otherwise as `open`.

    Raises `ArgumentError` for a pool that does not exist as well.
    """
    if cache is not None:
        from pykernel.image_cache import open_cached

        return open_cached(scenario, index, repos, model, cache)
    from pykernel.documents import open_inputs
    from pykernel.models import new

    return new(open_inputs(scenario, repos, index), model=model)
