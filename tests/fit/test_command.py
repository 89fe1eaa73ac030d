"""`pykernel fit` from a folder of tables to coefficient sets and a report."""

from __future__ import annotations

import importlib.util
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pykernel.cli import main
from pykernel.documents import coefficients
from tests.fit.synthetic import target, truth, write_by_law

LAWS = ("gemm_bf16", "all_reduce_graph")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    for name in LAWS:
        write_by_law(root, name)
    return root


def run(*arguments: str | Path) -> int:
    return main(["fit", *map(str, arguments)])


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_it_writes_a_set_for_the_part_with_what_was_fitted(tables: Path, tmp_path: Path) -> None:
    assert run(tables, "--out", tmp_path, "--quiet") == 0
    assert [path.name for path in (tmp_path / "coefficients").iterdir()] == ["calibrated-h100.yaml"]
    written = coefficients.load(tmp_path / "coefficients" / "calibrated-h100.yaml")
    assert written.name == "calibrated-h100"
    names = [f"calibrated.{law}.{name}" for law in LAWS for name in target(law).form.names]
    assert [entry.name for entry in written.coefficients] == names
    by_name = {entry.name: entry for entry in written.coefficients}
    for entry in written.coefficients:
        assert (entry.method, entry.fitted, entry.scope.hardware) == ("measured", True, ["h100"])
        assert entry.value == float(f"{entry.value:.6g}")
        assert entry.ci95 is None or entry.ci95[0] <= entry.value <= entry.ci95[1]
        assert entry.sources[0].cite.startswith(f"{tables.name} h100_sxm/")
    at = target("gemm_bf16").form.names.index("memory_efficiency")
    assert by_name["calibrated.gemm_bf16.memory_efficiency"].value == pytest.approx(
        truth(target("gemm_bf16"))[at], rel=0.03
    )


def test_the_same_tables_give_the_same_bytes(tables: Path, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        assert run(tables, "--out", tmp_path / folder, "--quiet", "--plots", "--only", "all_reduce") == 0
    assert files(tmp_path / "first") == files(tmp_path / "second")


def test_the_report_is_there_for_reading_and_for_the_browser(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tables, "--out", tmp_path, "--only", "all_reduce", "--plots") == 0
    said = capsys.readouterr()
    assert "all_reduce_graph h100: 34 shapes fitted, 35 held out, median 0" in said.err
    assert said.out.splitlines()[-1].startswith("1 laws in ")
    text = (tmp_path / "report.md").read_text()
    assert "| all_reduce_graph | h100 | 34 | 35 | 0.0% |" in text
    assert "![residuals-all-reduce](residuals-all-reduce.png)" in text
    assert (tmp_path / "residuals-all-reduce.png").read_bytes().startswith(b"\x89PNG")
    cells = Cells()
    cells.feed((tmp_path / "report.html").read_text())
    assert cells.found[cells.found.index("all_reduce_graph") :][:4] == ["all_reduce_graph", "h100", "34", "35"]
    assert cells.images == ["residuals-all-reduce.png"]


class Cells(HTMLParser):
    """The table cells and the images of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.images: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag in ("td", "th")
        if tag == "img":
            self.images.append(dict(attrs)["src"] or "")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found.append(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no tables found; expected <part>/<family>/<engine>/<version>/<operation>_perf.parquet"),
        (("--part", "z80"), "there are no tables of z80; there are a100-sxm, b200,"),
    ],
)
def test_what_cannot_be_fitted_ends_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert run(tmp_path, "--out", tmp_path / "out", *arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("pykernel: error: ")
    assert message in line
    assert not (tmp_path / "out").exists()


def test_a_law_that_no_table_holds_ends_with_a_line(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tables, "--out", tmp_path / "out", "--only", "kda", "--quiet") == 2
    assert "no table of a law that is fitted" in capsys.readouterr().err


def test_a_missing_library_is_named_with_what_to_install(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else found(name))
    assert run(tables, "--out", tmp_path / "out") == 2
    assert "not installed: pyarrow; run pip install 'pykernel-llm[fit]'" in capsys.readouterr().err
