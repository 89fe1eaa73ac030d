"""Step times against figures that were published or computed elsewhere, and against the committed record of our own.

`testdata/golden/published.csv` is written by hand; `testdata/golden/steps.csv` by `testdata/golden/write_steps.py`,
so that every change of a price is a line in a reviewed diff.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import pykernel
from pykernel.switches import NEWEST, REFERENCE

GOLDEN = Path(__file__).resolve().parents[1] / "testdata" / "golden"
SWITCHES = {"newest": NEWEST, "reference": REFERENCE}
RESOURCES = ("sm", "hbm", "nvlink", "nic", "host")


def rows(name: str) -> list[dict[str, str]]:
    lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_steps", GOLDEN / "write_steps.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def requests(text: str) -> Iterator[pykernel.Request]:
    for group in text.split("+"):
        count, _, shape = group.partition("*")
        scheduled, _, computed = shape.partition("@")
        request = pykernel.Request(int(scheduled), int(computed), int(scheduled) + int(computed))
        yield from [request] * int(count)


def leave_out_latent_norm_bytes(model: pykernel.Inputs) -> None:
    for kind in model.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "Elementwise":
                node.bytes_per_token = 0


@pytest.mark.parametrize("row", rows("published.csv"), ids=lambda row: f"{row['scenario']}-{row['requests']}")
def test_published_step_times_are_reproduced(row: dict[str, str]) -> None:
    inputs = pykernel.open_inputs(row["scenario"], pool=int(row["pool"]))
    if row["norms"] == "unstated":
        leave_out_latent_norm_bytes(inputs)
    kernel = pykernel.Kernel(inputs, switches=SWITCHES[row["switches"]])
    estimate = kernel.step_time(pykernel.Batch(requests(row["requests"]), decode_threshold=8))
    found = {f"{name}_ns": estimate.per_resource_ns.get(name, 0) for name in RESOURCES}
    found |= {"overlap_ns": estimate.overlap_ns, "no_overlap_ns": estimate.no_overlap_ns}
    off = {
        name: (ns, int(row[name]))
        for name, ns in found.items()
        if row[name] and abs(ns - int(row[name])) > int(row["tolerance_ns"])
    }
    assert not off, "found and expected"


def test_the_published_example_is_bound_by_memory() -> None:
    kernel = pykernel.open("deepseek-v3-h200-fp8-tp8")
    estimate = kernel.step_time(pykernel.Batch(requests("32*1@4095")))
    assert estimate.bottleneck == "hbm"
    assert [f"{ns / 1e6:.1f}" for ns in (estimate.overlap_ns, estimate.no_overlap_ns)] == ["24.1", "25.7"]


def test_no_recorded_price_has_moved() -> None:
    recorded = (GOLDEN / "steps.csv").read_text(encoding="utf-8")
    assert script().table() == recorded, "prices moved; run testdata/golden/write_steps.py and review the diff"
