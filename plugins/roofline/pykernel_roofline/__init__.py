"""The plug-in: what it registers with pykernel. The model itself is in `model`, imported when it is built."""

from __future__ import annotations

from pykernel.documents import Inputs
from pykernel.hooks import CostModelEntry, hookimpl
from pykernel.interface import CostModel


def _build(inputs: Inputs) -> CostModel:
    from pykernel_roofline.model import Roofline

    return Roofline(inputs)


@hookimpl
def pykernel_cost_models() -> list[CostModelEntry]:
    summary = "datasheet peaks and bandwidth, no fitted coefficient"
    return [CostModelEntry("roofline", _build, summary, "the chip and fabric documents", frozenset({"blis"}))]
