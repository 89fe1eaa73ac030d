"""The plug-in: what it registers with pykernel. The model itself is in `model`, imported when it is built."""

from __future__ import annotations

from pykernel.documents import Inputs
from pykernel.hooks import CostModelEntry, hookimpl
from pykernel.interface import CostModel


def _build(inputs: Inputs) -> CostModel:
    from pykernel_interpolated.model import Interpolated

    return Interpolated(inputs)


@hookimpl
def pykernel_cost_models() -> list[CostModelEntry]:
    summary = "measured launches of each operation, interpolated; the tables are the user's"
    source = "tables in PYKERNEL_TABLES, else those of aiconfigurator-core"
    return [CostModelEntry("interpolated", _build, summary, source, frozenset({"blis", "monotone"}))]
