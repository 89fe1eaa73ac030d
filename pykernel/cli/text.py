"""How the command writes: durations that keep their digits, numbers with separators, columns and labelled lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 100
"""Columns of a page."""

_LABEL = 12
_BAR = 40


def milliseconds(ns: int) -> str:
    """A duration in ms without its unit: one decimal, and below 1 ms enough for two digits to count."""
    value = ns / 1e6
    decimals = 1
    while 0 < value < 10 ** (1 - decimals) and decimals < 6:
        decimals += 1
    return f"{value:,.{decimals}f}"


def gibibytes(size: int) -> str:
    """A size in GiB without its unit, one decimal."""
    return f"{size / 2**30:,.1f}"


def mebibytes(size: int) -> str:
    """A size in MiB without its unit, one decimal."""
    return f"{size / 2**20:,.1f}"


def integer(value: int) -> str:
    """An integer with separators of thousands."""
    return f"{value:,}"


def number(value: float) -> str:
    """A figure of a data sheet: thousands separated, no trailing zeros."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 decode`, `2 decodes`."""
    return f"{integer(count)} {noun if count == 1 else nouns or noun + 's'}"


def span(values: Sequence[int]) -> str:
    """The one value of a sequence, or its least and largest as `least to largest`."""
    least, largest = min(values), max(values)
    return integer(least) if least == largest else f"{integer(least)} to {integer(largest)}"


def labelled(label: str, line: str) -> str:
    """A label in its own column, then what it labels, wrapped to the page in a column of its own."""
    first, *others = textwrap.wrap(line, WIDTH - _LABEL, break_on_hyphens=False) or [""]
    return "\n".join([f"{label:<{_LABEL}}{first}", *(" " * _LABEL + other for other in others)])


def row(label: str, line: str) -> str:
    """A label in its own column, then a line whose blanks are kept."""
    return f"{label:<{_LABEL}}{line}".rstrip()


def shortened(line: str) -> str:
    """Text that fits one labelled line; what is left out shows as an ellipsis."""
    return textwrap.shorten(line, WIDTH - _LABEL, placeholder=" ...")


def clipped(name: str, width: int) -> str:
    """A name cut to a width, which shows as two dots."""
    return name if len(name) <= width else f"{name[: width - 2]}.."


def decimal_aligned(values: Sequence[str]) -> list[str]:
    """Numbers padded so that their decimal points stand in one column."""
    heads = [value.partition(".")[0] for value in values]
    tails = [value[len(head) :] for value, head in zip(values, heads, strict=True)]
    left, right = max(map(len, heads)), max(map(len, tails))
    return [f"{head:>{left}}{tail:<{right}}" for head, tail in zip(heads, tails, strict=True)]


def bar(share: float) -> str:
    """A share from 0 to 1 as a bar; anything above 0 is at least one mark."""
    return "#" * max(round(share * _BAR), 1) if share > 0 else ""


def columns(rows: Iterable[Sequence[str]], indent: str = "") -> list[str]:
    """Lines of cells under each other, two blanks apart."""
    table = list(rows)
    widths = [max(len(row[index]) for row in table) for index in range(len(table[0]))] if table else []
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in table)
    return [(indent + line).rstrip() for line in lines]
