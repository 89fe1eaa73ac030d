"""Step times against figures that were published or computed elsewhere, and against the committed record of our own.

`testdata/golden/published.csv` is written by hand; `testdata/golden/steps.csv` by `testdata/golden/write_steps.py`,
so that every change of a price is a line in a reviewed diff.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import pykernel
from pykernel.documents import Speculative
from pykernel.switches import NEWEST, REFERENCE
from tests.published.fixtures import scenario, without_latent_norm_bytes

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


def prefill_ranks(inputs: pykernel.Inputs, ranks: int) -> None:
    """Spread prefills over the ranks of that many nodes."""
    inputs.deployment.pools[0].parallel.pcp = ranks
    inputs.deployment.pools[0].nodes = inputs.scenario.cluster.nodes = ranks
    inputs.fabric, inputs.scenario.cluster.fabric = scenario("minimax-m2.5-h200-ep16").fabric, "ib-400g"


def graphs(inputs: pykernel.Inputs, mode: str) -> None:
    inputs.deployment.pools[0].engine.cudagraph_mode = mode


def three_drafts(inputs: pykernel.Inputs) -> None:
    inputs.deployment.pools[0].engine.speculative = Speculative("deepseek_mtp", 3)


def no_drafts(inputs: pykernel.Inputs) -> None:
    """The deployment still verifies drafts, but nothing in its graph makes them."""
    inputs.model.speculator = None


EDITS: dict[str, Callable[[pykernel.Inputs], object]] = {
    "unstated norms": without_latent_norm_bytes,
    "pcp 2": partial(prefill_ranks, ranks=2),
    "pcp 4": partial(prefill_ranks, ranks=4),
    **{f"graphs {mode}": partial(graphs, mode=mode) for mode in ("FULL", "NONE", "FULL_AND_PIECEWISE")},
    "3 drafts": three_drafts,
    "no drafts": no_drafts,
}
"""What a row may change in the documents of its scenario before it is priced."""


def row_id(row: dict[str, str]) -> str:
    return "-".join(row[name] for name in ("scenario", "switches", "edits", "requests") if row[name])


@pytest.mark.parametrize("row", rows("published.csv"), ids=row_id)
def test_published_step_times_are_reproduced(row: dict[str, str]) -> None:
    """Law 53, whose figures are the rows of 1,024 local tokens on 1, 2 and 4 prefill ranks."""
    inputs = scenario(row["scenario"], int(row["pool"]))
    for edit in filter(None, row["edits"].split(";")):
        EDITS[edit](inputs)
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
