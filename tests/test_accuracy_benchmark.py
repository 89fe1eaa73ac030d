"""The accuracy benchmark: its simulator against loops worked out by hand, and what the scorer prints and writes."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
HEADER = "id,split,model,prec,system,backend,backend_version,isl,osl,isl_mean,osl_mean,C,tp,dp,ep,kv,mbt"
TIMES = ",silicon_ttft_ms,silicon_tpot_ms"


@pytest.fixture
def benchmark_module() -> Iterator[ModuleType]:
    """`benchmarks.accuracy.score`, which is beside the package and not installed with it."""
    sys.path.append(str(ROOT))
    try:
        yield importlib.import_module("benchmarks.accuracy.score")
    finally:
        sys.path.remove(str(ROOT))


def write_rows(path: Path, rows: Sequence[str]) -> Path:
    path.write_text("\n".join((HEADER + TIMES, *rows)) + "\n")
    return path


ONE = "a,val,llama-3.1-8b,bf16,h100_sxm,vllm,0.18.0,1000,11,1000,11,4,1,1,1,auto,8192,100,10"


def test_equal_steps_make_the_time_per_token_that_of_a_step(benchmark_module: ModuleType, tmp_path: Path) -> None:
    row = benchmark_module.read_rows(write_rows(tmp_path / "rows.csv", [ONE]))[0]
    made = benchmark_module.schedule(row)
    found = benchmark_module.latencies(made, lambda steps: np.full(len(steps), 2.0))
    # Four prompts fit one step, which is also each one's first token; ten decode steps follow.
    assert (found.ttft, found.tpot) == (2.0, 2.0)
    assert sum(segment.count for segment in made.segments) == 10 * 11


def test_a_prompt_longer_than_the_budget_is_run_in_chunks(benchmark_module: ModuleType, tmp_path: Path) -> None:
    line = ONE.replace(",4,1,1,1,auto,8192", ",1,1,1,1,auto,400")
    row = benchmark_module.read_rows(write_rows(tmp_path / "rows.csv", [line]))[0]
    chunks = [int(s.first.scheduled[0]) for s in benchmark_module.schedule(row).segments[:4]]
    assert chunks == [400, 400, 200, 1]
    assert benchmark_module.latencies(benchmark_module.schedule(row), lambda s: np.ones(len(s))).ttft == 3.0


def test_an_engine_that_runs_prompts_apart_never_mixes_them(benchmark_module: ModuleType, tmp_path: Path) -> None:
    line = ONE.replace("vllm", "sglang").replace("1000,11,1000,11", "1000,40,900,36")
    row = benchmark_module.read_rows(write_rows(tmp_path / "rows.csv", [line]))[0]
    for segment in benchmark_module.schedule(row).segments:
        assert len({int(tokens) > 1 for tokens in segment.first.scheduled}) == 1


def test_the_scorer_answers_what_it_can_and_ends_with_the_headline(
    benchmark_module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = ONE.replace("a,val,llama-3.1-8b", "b,other,no-such-model")
    rows = write_rows(tmp_path / "rows.csv", [ONE, unknown, ONE.replace("a,val", "c,other")])
    out = tmp_path / "predictions.csv"
    assert benchmark_module.main(["--rows", str(rows), "--model", "calibrated", "--out", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "coverage: 66.7% of 3 rows" in printed
    table = list(csv.DictReader(out.read_text().splitlines()))
    errors = [abs(float(row["predicted_tpot_ms"]) / 10 - 1) for row in table if row["predicted_tpot_ms"] != "nan"]
    assert printed[-1] == f"group-macro TPOT MAPE: {100 * np.mean(errors):.1f} %"
    assert [row["id"] for row in table] == ["a", "b", "c"]
    assert "no-such-model" in table[1]["refused"]


def test_a_split_is_scored_alone(
    benchmark_module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write_rows(tmp_path / "rows.csv", [ONE, ONE.replace("a,val", "c,anything")])
    assert benchmark_module.main(["--rows", str(rows), "--model", "blis", "--split", "anything"]) == 0
    assert "coverage: 100.0% of 1 rows" in capsys.readouterr().out
