"""Chips and fabrics: names from files, comment keys, and the relations between figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykernel.documents import Chip, Fabric, hardware

CHIP = "Provenance: vendor_spec\nTFlopsPeak: 100\nBwPeakTBs: 2\nMemoryGiB: 80\nIntraNodeBwGBps: 300\nSMCount: 100\n"


def _chip(**values: float) -> Chip:
    chip = Chip("made", "derived", 100.0, 2.0, 80.0, 300.0, 100)
    for name, value in values.items():
        setattr(chip, name, value)
    return chip


def _paths(chip: Chip) -> list[str]:
    return [problem.path for problem in hardware.check_chip(chip)]


def test_a_chip_is_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "gb200-nvl72.yaml"
    path.write_text(CHIP)
    chip = hardware.load_chip(path)
    assert chip.name == "gb200-nvl72"
    assert (chip.tflops_fp8, chip.tflops_nvfp4, chip.gpus_per_rack) == (0.0, 0.0, 0)


def test_comment_keys_may_hold_anything_and_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CHIP + "_comment: [free, {form: text}]\n_comment_sm: 144 on the die\n")
    commented = hardware.load_chip(path)
    path.write_text(CHIP)
    assert commented == hardware.load_chip(path)


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        ({}, []),
        ({"tflops_fp8": 100.0}, ["chip.TFlopsFP8"]),
        ({"tflops_fp8": 100.1}, []),
        ({"tflops_fp8": -1.0}, ["chip.TFlopsFP8"]),
        ({"sm_count": 0}, ["chip.SMCount"]),
        ({"memory_gib": 0.0}, ["chip.MemoryGiB"]),
        ({"bw_peak_tbs": -2.0}, ["chip.BwPeakTBs"]),
        ({"tflops_peak": 0.0, "tflops_fp8": 10.0}, ["chip.TFlopsPeak"]),
        ({"intra_rack_bw_gbps": 900.0}, ["chip.IntraRackBwGBps"]),
        ({"intra_rack_bw_gbps": 900.0, "gpus_per_rack": 72}, []),
        ({"gpus_per_node": 4, "gpus_per_rack": 72, "intra_rack_bw_gbps": 900.0}, []),
        ({"gpus_per_node": 5, "gpus_per_rack": 72}, ["chip.GPUsPerRack"]),
    ],
)
def test_figures_of_a_chip_fit_each_other(values: dict[str, float], paths: list[str]) -> None:
    assert _paths(_chip(**values)) == paths


def test_a_fabric_needs_a_rate() -> None:
    assert hardware.check_fabric(Fabric("ib", "vendor_spec", 50.0, True)) == []
    problems = hardware.check_fabric(Fabric("ib", "guess", 0.0))
    assert [problem.path for problem in problems] == ["fabric.Provenance", "fabric.InterNodeBwGBps"]
