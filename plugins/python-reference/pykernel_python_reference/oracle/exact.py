"""Exact numbers: decimals of a document as fractions, and the one conversion of seconds to nanoseconds.

Where the laws fix a rounding in doubles (whole nanoseconds of a coefficient, the launch term of the host), the
calculation is done in doubles on purpose; everywhere else fractions stand.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

INT64_MAX = 2**63 - 1
GIGA = 10**9
TERA = 10**12

Exact = Fraction | int

_WIDE = decimal.Context(prec=60, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
_MOST_EXACT_POWER = 48


def exact(value: float) -> Fraction:
    """The decimal that a document writes, not the double nearest to it."""
    return Fraction(repr(value))


def cdiv(numerator: int, denominator: int) -> int:
    """Integer ceiling division."""
    return -(-numerator // denominator)


def nanoseconds(seconds: Exact | float) -> int:
    """Whole nanoseconds: truncated, never negative, saturated at the largest 64-bit integer; NaN is 0."""
    if isinstance(seconds, float):
        if math.isnan(seconds):
            return 0
        if math.isinf(seconds):
            return INT64_MAX if seconds > 0 else 0
    return min(max(math.trunc(seconds * GIGA), 0), INT64_MAX)


def float_nanoseconds(seconds: float) -> int:
    """The same conversion of a value computed in doubles, where the last digit depends on that."""
    return max(int(seconds * 1e9), 0)


def power(base: Fraction, exponent: int) -> Fraction:
    """base to a whole power: exactly while small, else to 60 decimal places of a number between 0 and 1."""
    if exponent <= _MOST_EXACT_POWER:
        return base**exponent
    quotient = _WIDE.divide(decimal.Decimal(base.numerator), decimal.Decimal(base.denominator))
    value = _WIDE.power(quotient, exponent)
    return Fraction(value.quantize(decimal.Decimal(1).scaleb(-60), context=_WIDE))
