"""Integers from callers: what the core counts in 64 bits, checked one by one or a column at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from pykernel.errors import ArgumentError


def int64(value: Any, name: str) -> int:
    """The value as an int. Raises `ArgumentError`, naming the argument, for another type or more than 64 bits."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{name} is {value!r}, accepted is an integer")
    number = int(value.__index__())
    if not -(2**63) <= number < 2**63:
        raise ArgumentError(f"{name} is {number}, which does not fit 64 bits")
    return number


def column(values: Any, name: str) -> Any:
    """A buffer of 64-bit integers: the given one, which is not copied, or an array made of a sequence.

    Raises `ArgumentError` for a buffer that is not contiguous, one-dimensional and of 64-bit integers, and for a
    sequence that holds anything else.
    """
    kind = type(values)
    if kind is list or kind is tuple:
        return column_of(values, name)
    try:
        view = memoryview(values)
    except TypeError:
        if not isinstance(values, Iterable):
            raise ArgumentError(f"{name} is {values!r}, accepted is a buffer or a sequence of integers") from None
        return column_of(list(values), name)
    if view.ndim != 1 or view.itemsize != 8 or view.format not in ("q", "l") or not view.c_contiguous:
        raise ArgumentError(
            f"{name} is a buffer of format {view.format!r} with {view.ndim} dimensions; "
            "accepted is a contiguous one-dimensional buffer of 64-bit integers, such as array('q') or numpy int64"
        )
    return values


def column_of(values: list[Any] | tuple[Any, ...], name: str) -> array[int]:
    """An array of the values, each an integer."""
    # Two passes in C instead of one in Python: an array would take True for 1.
    if set(map(type, values)) <= {int}:
        try:
            return array("q", values)
        except OverflowError:
            pass  # the loop names the value
    return array("q", [int64(value, name) for value in values])
