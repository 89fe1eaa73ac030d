"""The accuracy benchmark: its simulator against loops worked out by hand, and what the scorer prints and writes."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    # The first request meets an engine at rest and runs alone; the other three fit the step after it, and so do their
    # successors. A step is also its prompts' first token, and ten more decode.
    assert found.tpot == 2.0
    assert found.ttft == pytest.approx((1 * 2.0 + 3 * 4.0 + 36 * 2.0) / 40)
    assert sum(segment.count for segment in made.segments) == 1 + 10 * 11


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


def test_an_engine_without_chunks_runs_whole_prompts(benchmark_module: ModuleType, tmp_path: Path) -> None:
    line = ONE.replace("auto,8192", "auto,1500")
    prompts = {}
    for engine in ("vllm", "trtllm"):
        row = benchmark_module.read_rows(write_rows(tmp_path / "rows.csv", [line.replace("vllm", engine)]))[0]
        steps = [segment.first.scheduled for segment in benchmark_module.schedule(row).segments[:3]]
        prompts[engine] = [[int(tokens) for tokens in step if tokens > 1] for step in steps]
    assert prompts["trtllm"] == [[1000], [1000], [1000]]
    assert prompts["vllm"] == [[1000], [1000, 499], [501, 997]]


def test_prompts_gather_while_a_scheduler_looks_away(benchmark_module: ModuleType, tmp_path: Path) -> None:
    """SGLang on Blackwell is started to look for requests every 10 decode steps below 16 clients."""
    line = ONE.replace("vllm", "sglang").replace("h100_sxm", "b200_sxm").replace("1000,11,1000,11", "1000,80,900,72")
    row = benchmark_module.read_rows(write_rows(tmp_path / "rows.csv", [line]))[0]
    gaps = {}
    for system in ("b200_sxm", "h100_sxm"):
        decodes, found = 0, []
        for segment in benchmark_module.schedule(replace(row, system=system)).segments:
            if segment.first.scheduled.max() == 1:
                decodes += segment.count
            else:
                found.append(decodes)
                decodes = 0
        gaps[system] = min(gap for gap in found[2:] if gap)
    assert gaps["b200_sxm"] >= 10 > gaps["h100_sxm"]


def test_prompts_are_held_back_where_a_launch_script_says_so(benchmark_module: ModuleType, tmp_path: Path) -> None:
    line = (
        ONE.replace("vllm", "trtllm")
        .replace("8b,bf16,h100", "70b,fp8,h200")
        .replace("1000,11,1000,11", "1024,1024,922,922")
    )
    row = benchmark_module.read_rows(write_rows(tmp_path / "rows.csv", [line]))[0]
    held, free = (benchmark_module.schedule(replace(row, tp=tp)) for tp in (4, 8))
    steps_to_first = [benchmark_module.latencies(made, lambda steps: np.ones(len(steps))).ttft for made in (held, free)]
    assert steps_to_first[0] > 10 > 2 > steps_to_first[1]


def test_what_a_request_takes_outside_steps_is_in_the_first_token_alone(
    benchmark_module: ModuleType, tmp_path: Path
) -> None:
    rows = benchmark_module.read_rows(write_rows(tmp_path / "rows.csv", [ONE]))
    (answer,) = benchmark_module.predict(rows, "calibrated")
    bare = benchmark_module.latencies(
        benchmark_module.schedule(rows[0]), benchmark_module.pricer(benchmark_module.kernel_of("calibrated", rows[0]))
    )
    assert answer.tpot_ms == pytest.approx(bare.tpot * 1e3)
    assert answer.ttft_ms == pytest.approx(bare.ttft * 1e3 + benchmark_module.admission_ms("calibrated", rows[0]))
    assert benchmark_module.admission_ms("calibrated", rows[0]) > 0
    assert benchmark_module.admission_ms("blis", rows[0]) == 0


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        ("llama-3.1-8b", "llama-3.1-8b-instruct"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b-instruct"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "llama-3.3-nemotron-super-49b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b"),
        ("glm-4.6", "glm-4.5"),
        ("gpt-oss-120b-eagle3", "gpt-oss-120b"),
        ("MiniMaxAI/MiniMax-M2", "minimax-m2.5"),
    ],
)
def test_a_model_is_known_by_its_usual_names(benchmark_module: ModuleType, name: str, graph: str) -> None:
    catalog = importlib.import_module("benchmarks.accuracy.catalog")
    assert catalog.graph_of(name, "bf16").name == graph


def test_every_bundled_config_has_a_graph_and_a_name_that_finds_it(benchmark_module: ModuleType) -> None:
    catalog = importlib.import_module("benchmarks.accuracy.catalog")
    names = {path.stem for path in catalog.CONFIGS.glob("*.json")}
    assert {catalog.graph_of(name, "fp8").name for name in names} == names
    assert len(set(catalog.SAME) & set(catalog.known())) == 0
    assert set(catalog.SAME.values()) <= set(catalog.known())


def test_a_precision_of_the_checkpoint_is_that_of_the_weights(benchmark_module: ModuleType) -> None:
    catalog = importlib.import_module("benchmarks.accuracy.catalog")
    assert catalog.graph_of("deepseek-r1", "bf16").global_.weight_dtype == "bf16"
    assert catalog.graph_of("deepseek-r1", "fp8").global_.weight_dtype == "fp8"
    assert catalog.graph_of("llama-3.1-8b", "int4").global_.weight_dtype == "int4"


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
