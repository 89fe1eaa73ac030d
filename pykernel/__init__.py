"""pykernel: how long one step of an LLM-serving engine takes, and what it holds in memory.

>>> import pykernel
>>> kernel = pykernel.open("deepseek-v3-h200-fp8-tp8")
>>> batch = pykernel.Batch([pykernel.Request(scheduled=1, computed=4095, prompt_len=1024)] * 32)
>>> kernel.step_time(batch).bottleneck
'hbm'

See the README for the command and docs/price-a-batch.md for a tour.
"""

from __future__ import annotations

from os import PathLike

from pykernel._status import library_version
from pykernel.batch import Batch
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
from pykernel.models import new
from pykernel.resolve import ENGINE_BEHAVIOUR_COMMIT, ENGINE_BEHAVIOUR_VERSION, KERNEL_ASSUMPTION_SET
from pykernel.summary import ModelSummary, summarize
from pykernel.switches import LawSwitches

__version__ = library_version()

__all__ = [
    "ENGINE_BEHAVIOUR_COMMIT",
    "ENGINE_BEHAVIOUR_VERSION",
    "KERNEL_ASSUMPTION_SET",
    "RESOURCES",
    "ArgumentError",
    "Batch",
    "BatchError",
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
    "Term",
    "TransferDemand",
    "derive",
    "inputs_from_config",
    "inputs_from_graph",
    "load_bundle",
    "new",
    "open",
    "open_inputs",
    "open_pool",
    "parameter_inventory",
    "rules",
    "summarize",
]


def open(scenario: str | PathLike[str], repos: Repos | None = None, *, model: str = "blis") -> CostModel:
    """The cost model of a scenario's first pool.

    `scenario` is a path, else a name in `repos`, else the name of a bundled scenario; ".yaml" may be left out.
    `model` names the cost model. Raises `DocumentError` or `RefusedError` with what is at fault.
    """
    return open_pool(scenario, 0, repos, model=model)


def open_pool(
    scenario: str | PathLike[str], index: int, repos: Repos | None = None, *, model: str = "blis"
) -> CostModel:
    """The cost model of one pool of a scenario, counted from 0; otherwise as `open`."""
    return new(open_inputs(scenario, repos, index), model=model)
