"""The plug-in: chips, a fabric, and the coefficient set without which no cost model opens them.

The comments of the files under `hardware` and `networks` say where each field is from.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pykernel.documents import CoefficientSet, hardware
from pykernel.hooks import DocumentEntry, hookimpl

HERE = Path(__file__).parent

CHIPS = {
    "mi300x": "AMD: ROCm documentation and product page",
    "mi325x": "AMD: ROCm documentation and product page",
    "mi355x": "AMD: ROCm documentation and product page; peaks derived from the clock",
    "gaudi3": "Intel: Hot Chips 2024 and Gaudi documentation",
}
"""Where most fields of each chip come from, in one line."""


def chip_file(name: str) -> Path:
    return HERE / "hardware" / f"{name}.yaml"


def _coefficients() -> CoefficientSet:
    from pykernel_chips.coefficients import other_vendors

    return other_vendors([hardware.load_chip(chip_file(name)) for name in CHIPS])


@hookimpl
def pykernel_chips() -> list[DocumentEntry]:
    return [DocumentEntry(name, partial(hardware.load_chip, chip_file(name)), source) for name, source in CHIPS.items()]


@hookimpl
def pykernel_fabrics() -> list[DocumentEntry]:
    load = partial(hardware.load_fabric, HERE / "networks" / "gaudi3-scale-out.yaml")
    return [DocumentEntry("gaudi3-scale-out", load, "Intel Gaudi documentation")]


@hookimpl
def pykernel_coefficient_sets() -> list[DocumentEntry]:
    return [DocumentEntry("other-vendors", _coefficients, "literature, data sheets, copies and assumptions")]
