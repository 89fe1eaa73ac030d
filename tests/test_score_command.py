"""The scoring command on rows made by hand: its figures, its files, and what it says of rows it cannot take."""

from __future__ import annotations

import csv
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = "id,split,model,prec,system,backend,backend_version,isl,osl,isl_mean,osl_mean,C,tp,dp,ep,kv,mbt"
HEADER = f"{COLUMNS},silicon_ttft_ms,silicon_tpot_ms"
ONE = "a,val,llama-3.1-8b,bf16,h100_sxm,vllm,0.18.0,1000,11,1000,11,4,1,1,1,auto,8192,100,10"
STEP = 8.0
"""Milliseconds of every step of the model that stands in for a cost model."""


@pytest.fixture
def modules() -> Iterator[SimpleNamespace]:
    """The modules of the benchmark, which is beside the package and not installed with it."""
    sys.path.append(str(ROOT))
    names = ("score", "summary", "peer", "results", "rows")
    try:
        yield SimpleNamespace(**{name: importlib.import_module(f"benchmarks.accuracy.{name}") for name in names})
    finally:
        sys.path.remove(str(ROOT))


@pytest.fixture
def constant(modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of every deployment takes the same time."""
    monkeypatch.setattr(modules.score, "pricer", lambda kernel: lambda steps: np.full(len(steps), STEP / 1e3))


@pytest.fixture
def command(
    modules: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[str], str]]:
    """Writes the rows, runs the command on them, and gives its exit code, what it printed, and what went wrong."""

    def run(*lines: str, options: tuple[str, ...] = (), header: str = HEADER) -> tuple[int, list[str], str]:
        rows = tmp_path / "rows.csv"
        rows.write_text("\n".join((header, *lines)) + "\n")
        code = modules.score.main(["--rows", str(rows), "--out", str(tmp_path / "out.csv"), *options])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err

    return run


Command = Callable[..., tuple[int, list[str], str]]


def edited(old: str, new: str, row: str = ONE) -> str:
    assert old in row
    return row.replace(old, new)


@pytest.mark.usefixtures("constant")
def test_the_headline_is_the_mean_over_groups_of_each_ones_mean_error(command: Command) -> None:
    """8 ms against 10 and 16 in one group (20 and 50% too fast), against 5 in another (60% too slow)."""
    other = edited("bf16", "fp8", edited("100,10", "100,5"))
    code, printed, _ = command(ONE, edited("100,10", "100,16"), other)
    assert code == 0
    assert printed[-1] == "group-macro TPOT MAPE: 47.5 %"
    assert "TPOT: row MAPE 43.3%, median 50.0%, p90 58.0%, signed mean -3.3%" in printed
    assert any("bf16" in line and "2 of    2 rows  TPOT  35.0% (signed -35.0%)" in line for line in printed)
    assert any("fp8" in line and "1 of    1 rows  TPOT  60.0% (signed +60.0%)" in line for line in printed)


@pytest.mark.usefixtures("constant")
def test_each_row_has_its_prediction(command: Command, tmp_path: Path) -> None:
    command(ONE, edited("a,val", "b,other"))
    with open(tmp_path / "out.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["id"], row["split"]) for row in table] == [("a", "val"), ("b", "other")]
    row = table[0]
    assert [row[name] for name in ("backend", "system", "model", "prec")] == [
        "vllm",
        "h100_sxm",
        "llama-3.1-8b",
        "bf16",
    ]
    assert [float(row[f"measured_{what}_ms"]) for what in ("tpot", "ttft")] == [10, 100]
    assert [float(row[name]) for name in ("predicted_tpot_ms", "steady_tpot_ms")] == [8, 8]
    assert row["refused"] == ""


@pytest.mark.usefixtures("constant")
def test_rows_that_are_not_answered_count_against_coverage_and_say_why(command: Command, tmp_path: Path) -> None:
    unknown = edited("llama-3.1-8b", "no-such-model")
    code, printed, _ = command(ONE, unknown, unknown, edited("h100_sxm", "z80"))
    assert code == 0
    assert "coverage: 25.0% of 4 rows" in printed
    assert "not answered: 2 rows: no model graph of no-such-model" in printed
    assert any(line.startswith("not answered: 1 rows: ") and "z80" in line for line in printed)
    assert printed[-1] == "group-macro TPOT MAPE: 20.0 %"
    with open(tmp_path / "out.csv", newline="") as file:
        assert [row["predicted_tpot_ms"] for row in csv.DictReader(file)] == ["8", "nan", "nan", "nan"]


@pytest.mark.usefixtures("constant")
def test_rows_that_nobody_answers_are_no_success(command: Command) -> None:
    code, printed, _ = command(edited("llama-3.1-8b", "no-such-model"))
    assert (code, printed[-1]) == (0, "group-macro TPOT MAPE: nan %")
    assert "coverage: 0.0% of 1 rows" in printed


@pytest.mark.usefixtures("constant")
def test_a_split_of_any_name_is_scored_alone(command: Command) -> None:
    lines = [ONE, edited("a,val", "b,held out"), edited("a,val", "c,held out", edited("100,10", "100,16"))]
    _, printed, _ = command(*lines, options=("--split", "held out"))
    assert "coverage: 100.0% of 2 rows" in printed
    assert printed[-1] == "group-macro TPOT MAPE: 35.0 %"


@pytest.mark.usefixtures("constant")
def test_other_columns_their_order_and_a_byte_order_mark_are_ignored(command: Command) -> None:
    names, values = HEADER.split(","), ONE.split(",")
    header = "\ufeff" + ",".join(["note", *reversed(names)])
    code, printed, _ = command(",".join(["not a number", *reversed(values)]), header=header)
    assert (code, printed[-1]) == (0, "group-macro TPOT MAPE: 20.0 %")


@pytest.mark.usefixtures("constant")
def test_cells_that_may_be_empty_take_what_is_usual(modules: SimpleNamespace, command: Command, tmp_path: Path) -> None:
    line = "a,,llama-3.1-8b,bf16,h100_sxm,vllm,,1000,11,,,4,1,,,,,,10"
    code, printed, _ = command(line)
    assert (code, printed[-1]) == (0, "group-macro TPOT MAPE: 20.0 %")
    row = modules.rows.read_rows(tmp_path / "rows.csv")[0]
    assert (row.dp, row.ep, row.kv, row.budget, row.isl_mean, row.osl_mean) == (1, 1, "auto", 8192, 1000, 11)


def test_names_are_the_same_in_any_case(modules: SimpleNamespace, command: Command, tmp_path: Path) -> None:
    shouted = edited("bf16,h100_sxm,vllm", "BF16,H100_SXM,vLLM", edited("auto", "AUTO"))
    _, printed, _ = command(ONE, shouted)
    one, other = modules.rows.read_rows(tmp_path / "rows.csv")
    assert one == other
    assert any("2 of    2 rows" in line for line in printed)


@pytest.mark.parametrize(
    ("version", "prepares"),
    [("0.13.0", False), ("v0.12.1", False), ("0.12+cu128", False), ("0.14rc1", True), ("1.0", True), ("", True),
     ("nightly-5b8c", True), ("0", True)],
)  # fmt: skip
def test_a_step_is_prepared_beside_the_one_before_from_vllm_0_14_on(
    modules: SimpleNamespace, command: Command, tmp_path: Path, version: str, prepares: bool
) -> None:
    assert command(edited("0.18.0", version))[0] == 0
    assert modules.rows.read_rows(tmp_path / "rows.csv")[0].asynchronous is prepares


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",bf16,", ",w4afp8,", "no precision is known as w4afp8; known are fp8, fp4 and bf16,"),
        ("auto", "int2", "no cache format is known as int2; known are auto, bf16,"),
        ("vllm", "tgi", "no host constants of the engine tgi; there are those of sglang, trtllm, vllm"),
    ],
)
def test_a_name_that_means_nothing_is_not_answered(command: Command, old: str, new: str, message: str) -> None:
    code, printed, _ = command(ONE, edited(old, new))
    assert code == 0
    assert "coverage: 50.0% of 2 rows" in printed
    assert any(f"not answered: 1 rows: {message}" in line for line in printed)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (edited(",4,1,1,1,", ",four,1,1,1,"), "rows.csv:3: column C is 'four'; accepted is a number above 0"),
        (edited(",4,1,1,1,", ",4.5,1,1,1,"), "rows.csv:3: column C is 4.5; accepted is a whole number from 1"),
        (
            edited(",4,1,1,1,", ",1e12,1,1,1,"),
            "rows.csv:3: column C is 1e+12; accepted is a whole number from 1 to 4,1",
        ),
        (edited("100,10", "100,"), "rows.csv:3: column silicon_tpot_ms is empty"),
        (edited("100,10", "100,-1"), "rows.csv:3: column silicon_tpot_ms is '-1'"),
        (edited("100,10", "100,nan"), "rows.csv:3: column silicon_tpot_ms is 'nan'"),
        (edited("h100_sxm", ""), "rows.csv:3: column system is empty"),
        ("a,val", "rows.csv:3: column isl is empty"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named_by_line_and_column(command: Command, line: str, message: str) -> None:
    code, printed, error = command(ONE, line)
    assert (code, printed) == (2, [])
    assert message in error


@pytest.mark.parametrize("name", HEADER.split(","))
def test_a_missing_column_is_named(command: Command, name: str) -> None:
    at = HEADER.split(",").index(name)
    header, line = (",".join(text.split(",")[:at] + text.split(",")[at + 1 :]) for text in (HEADER, ONE))
    code, printed, error = command(line, header=header)
    assert (code, printed) == (2, [])
    assert f"rows.csv:1: no column {name}; needed are id, split," in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "no-such-model"), "there is no cost model 'no-such-model'; known are blis,"),
        (("--split", "test"), "rows.csv: no row of split 'test'; it has splits val and backends vllm"),
        (("--backend", "sglang"), "rows.csv: no row of backend 'sglang'; it has splits val and backends vllm"),
        (("--rows", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_a_request_that_cannot_be_met_ends_with_a_line(
    command: Command, options: tuple[str, ...], message: str
) -> None:
    code, printed, error = command(ONE, options=options)
    assert (code, printed, error.count("\n")) == (2, [], 1)
    assert message in error


def test_a_file_without_rows_is_an_error(command: Command) -> None:
    assert "rows.csv: no row; it has splits none and backends none" in command()[2]


def test_scoring_needs_nothing_but_numpy(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(f"{HEADER}\n{ONE}\n")
    blocked = "import sys\nfor name in ('scipy', 'pyarrow', 'pandas', 'matplotlib'): sys.modules[name] = None\n"
    call = (
        f"sys.path.append({str(ROOT)!r})\nfrom benchmarks.accuracy.score import main\nmain(['--rows', {str(rows)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked + call], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("group-macro TPOT MAPE: ")


# ---- the peer ----------------------------------------------------------------------------------------------------


def test_a_peer_that_is_not_installed_is_an_error_with_what_to_install(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, error = command(ONE, options=("--model", "aiconfigurator"))
    assert code == 2
    assert "aiconfigurator_core, pandas, pyarrow" in error
    assert "run pip install aiconfigurator-core==0.12.0" in error


def test_for_each_group_the_label_that_misses_less_counts(modules: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("\n".join((HEADER, ONE, edited("bf16", "fp8"), edited("bf16", "fp4"))) + "\n")
    bf16, fp8, fp4 = modules.rows.read_rows(tmp_path / "rows.csv")
    prediction = modules.summary.Prediction
    first = [prediction(bf16, 11.0), prediction(fp8, 5.0), prediction(fp4, refused="no table")]
    second = [prediction(bf16, 12.0), prediction(fp8, 9.0), prediction(fp4, 90.0)]
    assert modules.summary.better(first, second) == [first[0], second[1], second[2]]


def test_a_step_is_put_to_the_peer_by_its_prompts_and_its_contexts(modules: SimpleNamespace) -> None:
    """Two prompts of 1,600 tokens on the mean, half of one computed before, beside three decodes at 800."""
    asked = []

    class Engine:
        def mixed_step_breakdown(self, tokens: int, decodes: int, length: int, output: int) -> tuple[float, ...]:
            asked.append((tokens, decodes, length, output))
            return 0.0, 1.0, 10.0 * length, 100.0 * length

        def decode_step_latency(self, decodes: int, length: int, output: int) -> float:
            return float(decodes * length)

    step = modules.score.schedule.__globals__["Step"]
    mixed = step(np.array([1, 1, 1, 1000, 1600]), np.array([799, 783, 815, 600, 0]))
    assert modules.peer._counts(mixed) == (2600, 3, 1600, 800)
    assert modules.peer._milliseconds(Engine(), 2600, 3, 1600, 800) == 1 + 10 * 1600 + 100 * 798
    assert asked == [(2600, 3, 1600, 2), (2600, 3, 798, 2)]
    assert modules.peer._milliseconds(Engine(), 0, 3, 0, 800) == 3 * 798


# ---- the page ----------------------------------------------------------------------------------------------------


def test_the_page_has_every_model_and_names_those_that_were_not_scored(
    modules: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("\n".join((HEADER, ONE, edited("a,val", "b,train"))) + "\n")
    rows = modules.rows.read_rows(tmp_path / "rows.csv")
    prediction = modules.summary.Prediction
    scores: dict[str, list[Any]] = {
        "ours": [prediction(row, 9.0, 110.0, 9.0) for row in rows],
        "theirs": [prediction(rows[0], 14.0, 110.0, 14.0), prediction(rows[1], refused="no table")],
    }
    page = modules.results.page(scores, {"another": "there is no such model"}, ["plot.png"])
    assert "| vllm (1) | val | ours | 10.0% | 10.0% | 10.0% | 10.0% | -10.0% | 10.0% | 100% | 10.0% | 10.0% |" in page
    assert "| vllm (1) | val | theirs | 40.0% |" in page
    assert "Not scored: another (there is no such model)." in page
    assert "| vllm h100_sxm llama-3.1-8b bf16 | val, train | 2 | 10.0% | -10.0% | 10% | 40% of 50% |" in page
    assert "![plot](plot.png)" in page


def test_the_plots_are_drawn(modules: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"{HEADER}\n{ONE}\n")
    scores = {"ours": [modules.summary.Prediction(row, 9.0) for row in modules.rows.read_rows(tmp_path / "rows.csv")]}
    names = modules.results.plots.draw(scores, tmp_path)
    assert names == ["predicted-measured.png", "error-by-concurrency.png", "error-by-group.png"]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
