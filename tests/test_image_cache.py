"""Kernels from a folder of images: the same answers, and never of files that have changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import pykernel
from pykernel import ArgumentError, Batch, CostModel, Repos, Request, image_cache
from pykernel.documents.repos import DATA

SCENARIO = "minimax-m2.5-h200-disagg"
BATCH = Batch([Request(1, 4_095, 1)] * 9 + [Request(700, 0, 1)])


def answers(kernel: CostModel) -> tuple[object, ...]:
    return (kernel.step_time(BATCH), kernel.fixed_bytes(), kernel.provenance(), kernel.resolved(), kernel.deployment())


@pytest.fixture
def never_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("the documents are opened though the image is there")

    monkeypatch.setattr("pykernel.documents.open_inputs", refuse)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    for pool in (0, 1):
        pykernel.open_pool(SCENARIO, pool, cache=tmp_path)
    pykernel.open_pool(SCENARIO, 1, cache=tmp_path, model="blis-reference")
    return tmp_path


def test_what_was_opened_once_is_loaded_and_answers_alike(
    filled: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [answers(pykernel.open_pool(SCENARIO, pool)) for pool in (0, 1)]
    reference = answers(pykernel.open_pool(SCENARIO, 1, model="blis-reference"))
    request.getfixturevalue("never_resolved")
    assert [answers(pykernel.open_pool(SCENARIO, pool, cache=filled)) for pool in (0, 1)] == expected
    assert answers(pykernel.open(SCENARIO, cache=filled)) == expected[0]
    assert answers(pykernel.open_pool(SCENARIO, 1, cache=filled, model="blis-reference")) == reference
    assert expected[0] != expected[1] != reference


@pytest.fixture
def copies(tmp_path: Path) -> Repos:
    for name in ("scenarios", "catalog", "registry"):
        shutil.copytree(DATA / name, tmp_path / name)
    return Repos(tmp_path / "scenarios", tmp_path / "catalog", tmp_path / "registry")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("registry/coefficients/cost-model-host-overheads.yaml", "value: 7.0", "value: 8.0"),
        ("catalog/hardware/h200.yaml", "BwPeakTBs: 4.8", "BwPeakTBs: 4.9"),
        ("scenarios/minimax-m2.5-h200-disagg.yaml", "cache_dtype: fp8", "cache_dtype: auto"),
    ],
)
def test_an_edited_file_is_read_again(copies: Repos, tmp_path: Path, file: str, old: str, new: str) -> None:
    folder, edited = tmp_path / "images", tmp_path / file
    before = answers(pykernel.open(SCENARIO, copies, cache=folder))
    text = edited.read_text(encoding="utf-8")
    assert old in text
    edited.write_text(text.replace(old, new), encoding="utf-8")
    after = answers(pykernel.open(SCENARIO, copies, cache=folder))
    assert after == answers(pykernel.open(SCENARIO, copies)) != before
    edited.write_text(text, encoding="utf-8")
    assert answers(pykernel.open(SCENARIO, copies, cache=folder)) == before


def test_the_sets_that_a_model_brings_are_among_its_files(tmp_path: Path) -> None:
    pykernel.open(SCENARIO, cache=tmp_path, model="calibrated")
    (entry,) = tmp_path.iterdir()
    files = {Path(name).name for name in json.loads(entry.read_bytes().partition(b"\n")[0])}
    assert {"calibrated-h200.yaml", "calibrated-host.yaml", "minimax-m2.5-h200-disagg.yaml"} <= files
    assert "calibrated-b200.yaml" not in files


def test_a_damaged_entry_is_made_anew(filled: Path) -> None:
    expected = answers(pykernel.open(SCENARIO))
    for entry in filled.iterdir():
        entry.write_bytes(entry.read_bytes()[:-9])
    assert answers(pykernel.open(SCENARIO, cache=filled)) == expected
    for entry in filled.iterdir():
        entry.write_bytes(b"not json\n")
    assert answers(pykernel.open(SCENARIO, cache=filled)) == expected


def test_entries_of_another_version_are_not_looked_at(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(list(filled.iterdir()))
    monkeypatch.setattr(image_cache, "library_version", lambda: "9.9.9")
    pykernel.open(SCENARIO, cache=filled)
    assert len(list(filled.iterdir())) == before + 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"cache .*file cannot be written"):
        pykernel.open(SCENARIO, cache=tmp_path / "file")


def test_an_entry_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ArgumentError, match="No space left on device"):
        pykernel.open(SCENARIO, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_openings_share_no_state(filled: Path) -> None:
    first = pykernel.open(SCENARIO, cache=filled)
    pool = first.deployment()
    pool.parallel.tp = 999
    assert pykernel.open(SCENARIO, cache=filled).deployment() != pool
