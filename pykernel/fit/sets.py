"""Coefficient sets of what was fitted: one set a part, in the ecosystem's format.

A coefficient is named calibrated.<law>.<parameter>, where a law is a primitive in a number format. Values have six
significant digits; an interval is given where the fit determines the coefficient, and left out where it hit a bound.
"""

from __future__ import annotations

import math

from pykernel.documents import CoefficientSet, Scope
from pykernel.documents.coefficients import Coefficient, CoefficientSource
from pykernel.fit.families import Target
from pykernel.fit.robust import Fit

PREFIX = "calibrated"
DIGITS = 6


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def entries(target: Target, chip: str, fitted: Fit, source: str) -> list[Coefficient]:
    """The coefficients of one law on one part."""
    found = []
    for index, parameter in enumerate(target.form.parameters):
        value = float(fitted.values[index])
        low, high = rounded(float(fitted.low[index])), rounded(float(fitted.high[index]))
        known = parameter.low * 1.01 < value < parameter.high * 0.99 and math.isfinite(high) and high < 10 * value
        known = known and low <= value <= high and parameter.name != target.form.exponent
        found.append(
            Coefficient(
                name=f"{PREFIX}.{target.name}.{parameter.name}",
                value=value,
                units=parameter.units,
                method="measured",
                fitted=True,
                scope=Scope(hardware=[chip]),
                ci95=(low, high) if known else None,
                sources=[CoefficientSource("discussion", source, "primary")],
            )
        )
    return found


def set_of(part: str, coefficients: list[Coefficient]) -> CoefficientSet:
    return CoefficientSet(kind=CoefficientSet.KIND, name=f"{PREFIX}-{part}", coefficients=coefficients)
