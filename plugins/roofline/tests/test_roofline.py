"""The roofline: hand sums on a small dense model, a lower bound on the fitted model, and pykernel's laws."""

from __future__ import annotations

import pytest
from pykernel_roofline.model import Roofline, _pairs

import pykernel
from pykernel import Batch, Request
from pykernel.documents import list_scenarios
from pykernel.laws import REPRESENTATIVE, check_model


def decodes(count: int, context: int) -> Batch:
    return Batch([Request(1, context - 1, context)] * count)


def test_a_small_decode_is_the_weights_at_the_memorys_bandwidth() -> None:
    inputs = pykernel.open_inputs("qwen3-14b-h100-tp1")
    parameters = pykernel.summarize(inputs.model).active_parameters
    expected = parameters * 2 / (inputs.chip.bw_peak_tbs * 1e12) * 1e9
    estimate = Roofline(inputs).step_time(decodes(1, 1))
    assert estimate.bottleneck == "hbm"
    assert estimate.per_resource_ns["hbm"] == pytest.approx(expected, rel=1e-3)


def test_one_token_reads_the_experts_that_it_chose() -> None:
    inputs = pykernel.open_inputs("qwen3-30b-a3b-h100-tp2")
    active = pykernel.summarize(inputs.model).active_parameters * 2 / 2  # 16 bits, over two ranks
    estimate = Roofline(inputs).step_time(decodes(1, 1))
    assert estimate.per_resource_ns["hbm"] == pytest.approx(active / (inputs.chip.bw_peak_tbs * 1e3), rel=0.02)


def test_a_large_prefill_is_its_arithmetic_at_the_peak() -> None:
    inputs = pykernel.open_inputs("qwen3-14b-h100-tp1")
    dense = 2 * (pykernel.summarize(inputs.model).active_parameters - inputs.model.global_.vocab_size * 5120) * 4096
    estimate = Roofline(inputs).step_time(Batch([Request(4096, 0, 4096)]))
    attention = 4 * 40 * 128 * (4096 * 4097 // 2) * 40
    head = 2 * inputs.model.global_.vocab_size * 5120
    assert estimate.bottleneck == "sm"
    assert estimate.per_resource_ns["sm"] == pytest.approx((dense + attention + head) / 989.5e12 * 1e9, rel=2e-3)


@pytest.mark.parametrize(("new", "done", "window"), [(1, 0, 0), (5, 3, 0), (5, 3, 4), (5, 0, 3), (2, 9, 4), (3, 1, 9)])
def test_pairs_are_those_of_the_causal_mask(new: int, done: int, window: int) -> None:
    seen = [min(position + 1, window or position + 1) for position in range(done, done + new)]
    assert _pairs(new, done, window) == sum(seen)


@pytest.mark.parametrize("scenario", REPRESENTATIVE)
@pytest.mark.parametrize(
    "batch", [decodes(1, 128), decodes(32, 4096), decodes(64, 4096), Batch([Request(2048, 0, 2048)])], ids=str
)
@pytest.mark.parametrize("fitted", ["blis", "calibrated"])
def test_a_fitted_model_is_never_faster(scenario: str, batch: Batch, fitted: str) -> None:
    inputs = pykernel.open_inputs(scenario)
    assert (
        Roofline(inputs).step_time(batch).overlap_ns <= pykernel.new(inputs, model=fitted).step_time(batch).overlap_ns
    )


def test_it_is_found_by_name() -> None:
    batch = decodes(8, 1000)
    inputs = pykernel.open_inputs("qwen3-14b-h100-tp1")
    assert pykernel.new(inputs, model="roofline").step_time(batch) == Roofline(inputs).step_time(batch)


@pytest.mark.parametrize("scenario", REPRESENTATIVE)
def test_it_holds_the_laws(scenario: str) -> None:
    inputs = pykernel.open_inputs(scenario)
    report = check_model(Roofline(inputs), factory=Roofline, inputs=inputs)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted({*list_scenarios()} - {*REPRESENTATIVE}))
def test_it_holds_the_laws_everywhere(scenario: str) -> None:
    inputs = pykernel.open_inputs(scenario)
    report = check_model(Roofline(inputs), factory=Roofline, inputs=inputs)
    assert report.ok, str(report)
