"""Storage classes: one file of several, sorted by name, each with its own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykernel.documents import StorageTier, storage
from pykernel.errors import DocumentError

TEXT = """\
nvme:
  name: something else
  read_bandwidth_mb_s: 7.0e3
  write_bandwidth_mb_s: 5.0e3
  base_latency_us: 80
  _comment: vendor sheet
cpu_dram: {read_bandwidth_mb_s: 20000, write_bandwidth_mb_s: 20000, base_latency_us: 1.0}
"""


@pytest.fixture
def tiers(tmp_path: Path) -> list[StorageTier]:
    path = tmp_path / "storage.yaml"
    path.write_text(TEXT)
    return storage.load(path)


def test_classes_are_sorted_and_named_by_their_keys(tiers: list[StorageTier]) -> None:
    assert tiers == [StorageTier("cpu_dram", 20000.0, 20000.0, 1.0), StorageTier("nvme", 7000.0, 5000.0, 80.0)]


def test_a_class_keeps_its_lines(tiers: list[StorageTier]) -> None:
    tiers[1].base_latency_us = 0.0
    [problem] = storage.check(tiers[1])
    assert (problem.path, problem.line) == ("device:nvme.base_latency_us", 5)


@pytest.mark.parametrize(
    ("text", "path"),
    [("{}\n", "device"), ("nvme:\n", "device:nvme"), (TEXT + "disk: [1, 2]\n", "device:disk")],
)
def test_a_class_without_figures_is_refused(tmp_path: Path, text: str, path: str) -> None:
    file = tmp_path / "storage.yaml"
    file.write_text(text)
    with pytest.raises(DocumentError) as caught:
        storage.load(file)
    assert [problem.path for problem in caught.value.problems] == [path]
