"""Tables of measurements: where they are found, which version is taken, and CSV beside parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from pykernel.errors import ArgumentError
from pykernel.fit.tables import Tables, find_tables, read, select

ROWS = [
    {"gemm_dtype": "bfloat16", "m": 1, "latency": 0.25},
    {"gemm_dtype": "fp8", "m": 1, "latency": 0.5},
    {"gemm_dtype": "fp8", "m": 16, "latency": 1.5},
]


def place(root: Path, version: str, suffix: str) -> Path:
    path = root / "h100_sxm/gemm/vllm" / version / f"gemm_perf{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_csv(path: Path) -> None:
    lines = [",".join(ROWS[0]), *(",".join(str(value) for value in row.values()) for row in ROWS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_parquet(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({name: [row[name] for row in ROWS] for name in ROWS[0]}), path)


def test_csv_and_parquet_hold_the_same(tmp_path: Path) -> None:
    write_csv(place(tmp_path, "0.1", ".csv"))
    write_parquet(place(tmp_path, "0.1", ".parquet"))
    for suffix in (".csv", ".parquet"):
        table = select(read(place(tmp_path, "0.1", suffix)), gemm_dtype="fp8")
        assert table["latency"].tolist() == [0.5, 1.5]
        assert table["m"].astype(float).tolist() == [1.0, 16.0]


def test_the_newest_version_is_taken_whatever_its_format(tmp_path: Path) -> None:
    write_parquet(place(tmp_path, "0.9.2", ".parquet"))
    write_csv(place(tmp_path, "0.24.0", ".csv"))
    place(tmp_path, "0.25.0", ".txt").write_text("not a table")
    found = find_tables(str(tmp_path))
    assert found.latest("h100_sxm", "gemm", "vllm", "gemm") == place(tmp_path, "0.24.0", ".csv")
    assert found.latest("h100_sxm", "gemm", "vllm", "gemm", (0, 10)) == place(tmp_path, "0.9.2", ".parquet")
    assert found.latest("h100_sxm", "gemm", "sglang", "gemm") is None


def test_a_directory_without_tables_is_said_to_be_one(tmp_path: Path) -> None:
    place(tmp_path, "0.25.0", ".txt").write_text("not a table")
    with pytest.raises(ArgumentError, match="no tables found; expected"):
        find_tables(str(tmp_path))


def test_a_table_without_rows_has_none(tmp_path: Path) -> None:
    path = place(tmp_path, "0.1", ".csv")
    path.write_text("gemm_dtype,m,latency\n")
    assert len(read(path)["latency"]) == 0


def test_a_source_is_cited_by_its_place(tmp_path: Path) -> None:
    path = place(tmp_path, "0.1", ".csv")
    assert Tables(tmp_path, "mine").cite(path) == "mine h100_sxm/gemm/vllm/0.1/gemm_perf.csv"
