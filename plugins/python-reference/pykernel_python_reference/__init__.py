"""The plug-in: what it registers with pykernel. The model is in `model`, the laws of a step in `oracle`."""

from __future__ import annotations

from pykernel.documents import Inputs
from pykernel.hooks import CostModelEntry, hookimpl
from pykernel.interface import CostModel


def _build(inputs: Inputs) -> CostModel:
    from pykernel_python_reference.model import PythonReference

    return PythonReference(inputs)


@hookimpl
def pykernel_cost_models() -> list[CostModelEntry]:
    summary = "the blis laws in readable Python and exact fractions, written independently of the C core"
    return [CostModelEntry("python-reference", _build, summary, "the coefficient sets in scope")]
