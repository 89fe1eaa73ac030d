"""What a general YAML reader would guess, merge, repeat or expand stays exactly what was written, or is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pykernel.documents import graph, hardware, reader, scenario, storage
from pykernel.documents.nodes import Mapping, Sequence
from pykernel.errors import DocumentError

SOUND = Path(__file__).resolve().parents[2] / "testdata" / "bad" / "repo"
SCENARIO = """\
kind: Scenario
name: traps
model: tiny-moe
engine_version: {version}
coefficients: [small-set]
cluster: {{hardware: h200, nodes: {nodes}, gpus_per_node: 8, fabric: ib-400g}}
"""


def _scenario(tmp_path: Path, version: str = "0.29.0", nodes: str = "1") -> scenario.Scenario:
    path = tmp_path / "traps.yaml"
    path.write_text(SCENARIO.format(version=version, nodes=nodes), encoding="utf-8")
    return scenario.load(path)


@pytest.mark.parametrize(
    "written",
    ["0.29", "0.290", "2026-01-31", "1234567890", "1e3", "0x1F", "012", "1_000", "yes", "true", "12:30:45", ".inf"],
)
def test_text_keeps_the_spelling_that_other_readers_take_for_a_value(tmp_path: Path, written: str) -> None:
    assert _scenario(tmp_path, version=written).engine_version == written
    assert _scenario(tmp_path, version=f'"{written}"').engine_version == written


@pytest.mark.parametrize("written", ["~", "null", "Null", "NULL", ""])
def test_a_null_counts_as_an_absent_key(tmp_path: Path, written: str) -> None:
    with pytest.raises(DocumentError, match=r"traps\.yaml:4: scenario\.engine_version: the key is missing"):
        _scenario(tmp_path, version=written)
    assert _scenario(tmp_path, version=f'"{written}"').engine_version == written


@pytest.mark.parametrize(("written", "value"), [("8", 8), ("8.0", 8), ("1e3", 1000), ("+4", 4), ("2.0e4", 20000)])
def test_an_integer_may_be_written_as_an_integral_number(tmp_path: Path, written: str, value: int) -> None:
    nodes = _scenario(tmp_path, nodes=written).cluster.nodes
    assert nodes == value
    assert type(nodes) is int


@pytest.mark.parametrize("written", ["8.5", "0x8", "0o10", "1_000", "eight", "true", '"8"', "[8]", "1e400", ".nan"])
def test_what_is_no_decimal_integer_is_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(DocumentError, match=r"scenario\.cluster\.nodes: .*accepted: an integer"):
        _scenario(tmp_path, nodes=written)


@pytest.mark.parametrize(
    ("written", "value"),
    [("7.0e3", 7000.0), ("2.0e4", 20000.0), (".5", 0.5), ("5.", 5.0), ("1E+3", 1000.0), ("9", 9.0)],
)
def test_numbers_need_no_sign_in_the_exponent(tmp_path: Path, written: str, value: float) -> None:
    path = tmp_path / "storage.yaml"
    path.write_text(f"disk: {{read_bandwidth_mb_s: {written}, write_bandwidth_mb_s: 1, base_latency_us: 1}}\n")
    assert storage.load(path)[0].read_bandwidth_mb_s == value


@pytest.mark.parametrize(("written", "value"), [("true", True), ("True", True), ("FALSE", False)])
def test_flags_are_true_and_false_only(tmp_path: Path, written: str, value: bool) -> None:
    path = tmp_path / "ib.yaml"
    path.write_text(f"Provenance: derived\nInterNodeBwGBps: 50\nRDMA: {written}\n")
    assert hardware.load_fabric(path).rdma is value


def test_aliases_stand_for_equal_but_separate_nodes(tmp_path: Path) -> None:
    text = (SOUND / "catalog/models/tiny-moe/graph.yaml").read_text(encoding="utf-8")
    shared = text.replace(
        "- {op: Elementwise, role: input_norm}", "- &norm {op: Elementwise, role: input_norm}\n      - *norm"
    )
    path = tmp_path / "graph.yaml"
    path.write_text(shared, encoding="utf-8")
    first, second = graph.load(path).layer_kinds[0].nodes[:2]
    assert first == second
    first.role = "other"
    assert second.role == "input_norm"


def test_an_alias_bomb_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 30)]
    start = time.perf_counter()
    with pytest.raises(DocumentError, match="aliases stand for more than"):
        reader.read_text("\n".join(lines), "bomb.yaml", ["document"])
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("bracket", ["[", "{a: ", "- "])
def test_nesting_has_a_limit_that_is_met_quickly(bracket: str, pure: bool) -> None:
    start = time.perf_counter()
    with pytest.raises(DocumentError, match=r"nested too deeply|not YAML"):
        reader.read_text("key:\n  " + bracket * 50_000, "deep.yaml", ["document"], pure=pure)
    assert time.perf_counter() - start < 2.0


def test_a_file_above_the_size_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_bytes(b"# " + b"x" * reader.MAX_FILE_BYTES)
    with pytest.raises(DocumentError, match=f"larger than the {reader.MAX_FILE_BYTES} bytes"):
        scenario.load(path)


def test_reading_stops_after_many_problems_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "junk.yaml"
    path.write_text("kind: Scenario\n" + "".join(f"key{n}: 1\n" for n in range(5000)))
    with pytest.raises(DocumentError) as caught:
        scenario.load(path)
    assert len(caught.value.problems) == reader.MAX_PROBLEMS + 1
    assert "reading stopped" in caught.value.problems[-1].message


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"nowhere\.yaml: the file cannot be read: no such file"):
        scenario.load(tmp_path / "nowhere.yaml")
    with pytest.raises(DocumentError, match="the file cannot be read: is a directory"):
        scenario.load(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "traps.yaml"
    path.write_text(SCENARIO.format(version="x", nodes="1"), encoding="utf-8-sig")
    assert scenario.load(path).name == "traps"


def test_lines_are_those_of_keys_and_item_starts() -> None:
    text = "a:\n  b: 1\n  c:\n    - x\n    -\n      y\n"
    root = reader.read_text(text, "lines.yaml", ["document"]).roots[0]
    inner = root.entries["a"]
    assert isinstance(inner, Mapping)
    assert root.lines == {"a": 1}
    assert inner.lines == {"b": 2, "c": 3}
    items = inner.entries["c"]
    assert isinstance(items, Sequence)
    assert [item.line for item in items.items] == [4, 6]


def test_every_repeated_key_of_a_file_is_reported_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "traps.yaml"
    path.write_text(SCENARIO.format(version="x", nodes="1, nodes: 2") + "name: again\nname: once more\n")
    with pytest.raises(DocumentError) as caught:
        scenario.load(path)
    found = [(problem.line, problem.path, problem.message.split(";")[0]) for problem in caught.value.problems]
    assert found == [
        (6, "scenario.cluster.nodes", "the key 'nodes' is written twice, first on line 6"),
        (7, "scenario.name", "the key 'name' is written twice, first on line 2"),
        (8, "scenario.name", "the key 'name' is written twice, first on line 2"),
    ]


def test_core_tags_are_read_by_the_declared_type(tmp_path: Path) -> None:
    assert _scenario(tmp_path, version="!!float 0.29").engine_version == "0.29"
    assert _scenario(tmp_path, nodes="!!int 2").cluster.nodes == 2
    with pytest.raises(DocumentError, match=r"scenario\.cluster\.nodes: found quoted text '2'"):
        _scenario(tmp_path, nodes="!!str 2")
