"""The lines of a CSV file, with errors that name the file, the line and the column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from pykernel.errors import ArgumentError

MOST = 1 << 22
"""The largest whole number of a cell, far above any deployment, prompt or number of clients: a slip of the pen would
simulate for hours, or not fit memory."""


class Cells:
    """One line by column. Cells that may be empty are asked for with what stands for an empty one."""

    def __init__(self, where: str, entry: dict[str, str]) -> None:
        self._where = where
        self._entry = entry

    def text(self, name: str, empty: str | None = None) -> str:
        found = (self._entry.get(name) or "").strip() or empty
        if found is None:
            raise ArgumentError(f"{self._where}: column {name} is empty")
        return found

    def number(self, name: str, empty: float | None = None) -> float:
        """A number above 0; 0 counts as empty where that is allowed."""
        text = self.text(name, "" if empty is not None else None)
        try:
            value = float(text or 0)
        except ValueError:
            value = math.nan
        if empty is not None and value == 0:
            return empty
        if not 0 < value < math.inf:
            raise ArgumentError(f"{self._where}: column {name} is {text!r}; accepted is a number above 0")
        return value

    def whole(self, name: str, empty: int | None = None) -> int:
        value = self.number(name, empty)
        if value != int(value) or value > MOST:
            raise ArgumentError(
                f"{self._where}: column {name} is {value:g}; accepted is a whole number from 1 to {MOST:,}"
            )
        return int(value)


def read_cells(path: str | Path, columns: Sequence[str]) -> Iterator[Cells]:
    """The lines of a file that has these columns, and may have others. Raises `ArgumentError` for any other."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            missing = [name for name in columns if name not in (table.fieldnames or ())]
            if missing:
                raise ArgumentError(f"{path}:1: no column {', '.join(missing)}; needed are {', '.join(columns)}")
            for entry in table:
                yield Cells(f"{path}:{table.line_num}", entry)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ArgumentError(f"{path}: this is no CSV file in UTF-8: {error}") from None
