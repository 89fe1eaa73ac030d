"""The serving constants: those that made some rows come back, and the bound that no constants can pass."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# The benchmark is beside the package and not installed with it.
sys.path.append(str(Path(__file__).resolve().parents[2]))
try:
    bound, constants, rows = (
        importlib.import_module(f"benchmarks.accuracy.{n}") for n in ("bound", "constants", "rows")
    )
finally:
    sys.path.pop()

HEADER = (
    "id,split,model,prec,system,backend,backend_version,isl,osl,isl_mean,osl_mean,C,tp,dp,ep,kv,mbt,"
    "silicon_ttft_ms,silicon_tpot_ms\n"
)
TRUE = {
    "kernel_scale": 0.8,
    "layer": 30.0,
    "prompt_layer": 500.0,
    "prompt_token": 2.0,
    "unprepared_step": 900.0,
    "unprepared_request": 40.0,
    "admission": 50_000.0,
}


def made_by(values: Mapping[str, float], folder: Path, versions: tuple[str, ...]) -> Any:
    """Sums of rows whose measured times are what the constants give."""
    generator = np.random.default_rng(5)
    # Kernels, norms, layers, requests, steps, prompt tokens and prompt layers of a token and of a first token.
    typical = np.array([8e-3, 4e-4, 60, 30, 1, 100, 6])
    tpot, ttft = (typical * scale * generator.uniform(0.2, 2, (40, 7)) for scale in (1, 10))
    names = [constants.ADMISSION, *(constant.name for constant in (*constants.PREPARED, *constants.UNPREPARED))]
    columns = [constant.column for constant in (*constants.PREPARED, *constants.UNPREPARED)]
    lines = []
    for index in range(40):
        version = versions[index % len(versions)]
        prepared = np.array([1.0] * 3 + [float(version.startswith("0.12"))] * 2)
        host = np.array([values[name] * 1e-6 for name in names[1:]]) * prepared
        token, first = (
            values["kernel_scale"] * table[index, 0] + table[index, 1] + table[index, columns] @ host
            for table in (tpot, ttft)
        )
        milliseconds = f"{1e3 * first + values[constants.ADMISSION] * 1e-3},{1e3 * token}"
        lines.append(f"{index},train,m,bf16,h100_sxm,vllm,{version},9,9,9,9,1,1,1,1,auto,8192,{milliseconds}\n")
    path = folder / "rows.csv"
    path.write_text(HEADER + "".join(lines))
    return constants.Sums(rows.read_rows(path, "train"), tpot, ttft)


def test_constants_come_back_from_the_rows_that_they_made(tmp_path: Path) -> None:
    found = constants.fit(made_by(TRUE, tmp_path, ("0.18.0", "0.12.0")))
    assert found == pytest.approx(TRUE, rel=1e-3)


def test_another_engine_keeps_the_scale_and_is_held_near(tmp_path: Path) -> None:
    sums = made_by(TRUE | {"layer": 120.0}, tmp_path, ("0.18.0",))
    free = constants.fit(sums)
    held = constants.fit(sums, TRUE)
    assert free["layer"] == pytest.approx(120, rel=1e-3)
    assert TRUE["layer"] < held["layer"] < free["layer"]
    assert held["kernel_scale"] == TRUE["kernel_scale"] and "unprepared_step" not in held


def test_no_constants_pass_the_bound() -> None:
    """One constant beside kernels that take nothing: its best value is a weighted median."""
    kernels, host, measured = np.zeros(3), np.ones((3, 1)), np.array([1.0, 2.0, 4.0])
    assert bound.least_errors(kernels, host, measured, np.ones(3)) == pytest.approx([0, -0.5, -0.75])
    assert bound.least_errors(kernels, host, measured, np.array([0.1, 1, 1])) == pytest.approx([1, 0, -0.5])


def test_the_bound_takes_no_time_away_from_kernels() -> None:
    errors = bound.least_errors(np.array([3.0]), np.ones((1, 1)), np.array([1.0]), np.ones(1))
    assert errors == pytest.approx([2])
