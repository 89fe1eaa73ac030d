"""The chips: fields against data sheets, the set that opens them, what is refused, and pykernel's laws on them."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path

import pykernel_chips
import pytest
from pykernel_chips.coefficients import NAME

import pykernel
from pykernel import Batch, Inputs, RefusedError, Request
from pykernel.documents import CoefficientSet, coefficients, hardware, list_chips, validate
from pykernel.laws import check_model
from pykernel.registry import build, installed

FOLDER = Path(__file__).parents[1]
EXAMPLE = FOLDER / "example.yaml"
CHIPS = sorted(pykernel_chips.CHIPS)
DECODES = Batch([Request(1, 4_095, 1_024)] * 32)
PREFILL = Batch([Request(8_192, 0, 8_192)])


@pytest.fixture(scope="module")
def example() -> Inputs:
    return pykernel.open_inputs(EXAMPLE)


@pytest.fixture(scope="module")
def the_set() -> CoefficientSet:
    found: CoefficientSet = installed().document("coefficient_sets", NAME)
    return found


def on(chip: str, scenario: str = "llama-3.1-70b-h100-fp8-tp4") -> Inputs:
    """A bundled scenario on another chip, with the set of this plug-in; the caller's to edit."""
    return copy.deepcopy(loaded(chip, scenario))


@cache
def loaded(chip: str, scenario: str) -> Inputs:
    bundle, deployment = pykernel.load_bundle(pykernel.documents.find_scenario(scenario))
    bundle.cluster.hardware = chip
    bundle.coefficients.append(NAME)
    return pykernel.documents.repos.assemble(bundle, deployment)


# ---- the documents -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "peak", "fp8", "memory", "bandwidth", "links"),
    [
        # units x FLOP a cycle x GHz; GiB; TB/s; links of a peer x GB/s each way x peers
        ("mi300x", 304 * 2048 * 2.1, 304 * 4096 * 2.1, 8 * 24, 5.3, 128 / 2 * 7),
        ("mi325x", 304 * 2048 * 2.1, 304 * 4096 * 2.1, 8 * 32, 6.0, 128 / 2 * 7),
        ("mi355x", 256 * 4096 * 2.4, 256 * 8192 * 2.4, 8 * 36, 8.0, 153 / 2 * 7),
        ("gaudi3", 1_835_000, 0, 8 * 16, 3.67, 3 * 25 * 7),
    ],
)
def test_fields_are_those_of_the_data_sheets(
    name: str, peak: float, fp8: float, memory: float, bandwidth: float, links: float
) -> None:
    chip = installed().document("chips", name)
    assert hardware.check_chip(chip) == []
    assert chip.tflops_peak == pytest.approx(peak / 1e3, rel=1e-4)
    assert chip.tflops_fp8 == pytest.approx(fp8 / 1e3, rel=1e-4)
    assert (chip.memory_gib, chip.bw_peak_tbs, chip.intra_node_bw_gbps) == (memory, bandwidth, links)
    assert chip.gpus_per_node == 8


def test_they_are_found_by_name_and_replace_no_bundled_one() -> None:
    assert set(CHIPS) <= set(installed().plugged_in("chips"))
    assert installed().failures == []
    assert not set(CHIPS) & {*list_chips(), *build({}).names("chips")}
    fabric = installed().document("fabrics", "gaudi3-scale-out")
    assert (fabric.inter_node_bw_gbps, fabric.rdma) == (3 * 200 / 8, True)


def test_the_readme_says_what_the_documents_say(example: Inputs) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in CHIPS:
        chip = hardware.load_chip(pykernel_chips.chip_file(name))
        row = re.search(rf"^\| `{name}` \|(.*)\|$", page, re.MULTILINE)
        assert row is not None
        assert [float(cell) for cell in row[1].split("|")] == [
            *(chip.tflops_peak, chip.tflops_fp8, chip.bw_peak_tbs, chip.memory_gib, chip.intra_node_bw_gbps),
            *(chip.sm_count, chip.gpus_per_node),
        ]
    kernel = pykernel.new(example)
    evidence = kernel.evidence()
    printed = f"{kernel.step_time(DECODES).bottleneck} {evidence.measured} of {evidence.total}"
    assert f"```text\n{printed}\n```" in page


# ---- the set -------------------------------------------------------------------------------------------------------


def test_the_set_is_valid_and_says_what_it_rests_on(the_set: CoefficientSet) -> None:
    assert coefficients.check(the_set) == []
    assert {entry.method for entry in the_set.coefficients} == {
        *("assumed", "copied", "literature", "not_charged", "vendor_spec")
    }
    assert all(entry.rationale and set(entry.scope.hardware) <= set(CHIPS) for entry in the_set.coefficients)
    evidence = {entry.name for entry in the_set.coefficients if entry.method in ("literature", "vendor_spec")}
    assert evidence == {"gemm_eps_max_bf16", "host_link_bandwidth"}


def test_copies_are_equal_to_what_they_are_copied_from(the_set: CoefficientSet) -> None:
    copied = [entry for entry in the_set.coefficients if entry.method == "copied"]
    where = {entry.copied_from for entry in copied}
    assert where == {
        f"cost-model-{part}, hardware: h200" for part in ("memory", "host-overheads", "primitives", "collectives")
    }
    stated = {
        (place, one.name): one.value
        for place in where
        for one in build({}).document("coefficient_sets", place.partition(",")[0]).coefficients
        if "h200" in one.scope.hardware
    }
    for entry in copied:
        name = re.sub(f"_({'|'.join(CHIPS)})$", "_h200", entry.name)
        assert stated[entry.copied_from, name] == entry.value


def test_an_all_reduce_of_eight_takes_what_was_measured(the_set: CoefficientSet) -> None:
    [rate] = [
        entry.value
        for entry in the_set.coefficients
        if entry.name == "collective_peak_rate_all_reduce_fp16_8rank_mi300x"
    ]
    # 4 GiB at a bus bandwidth of 312.9 GB/s, each rank moving 2 x 7 / 8 of them
    assert (4 << 30) / (rate * 1e6) == pytest.approx(2 * 7 / 8 * (4 << 30) / 312.9e9, rel=2e-3)


def test_every_other_chip_is_priced_as_before() -> None:
    before = pykernel.open("llama-3.1-70b-h100-fp8-tp4")
    assert pykernel.new(on("h100")).step_time(DECODES) == before.step_time(DECODES)


# ---- prices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("scenario", ["llama-3.1-70b-h100-fp8-tp4", "gpt-oss-120b-h100-fp4-tp2"])
def test_a_bundled_scenario_is_priced_on_each(chip: str, scenario: str) -> None:
    inputs = on(chip, scenario)
    assert validate(inputs) == []
    kernel = pykernel.new(inputs)
    decode, prefill = kernel.step_time(DECODES), kernel.step_time(PREFILL)
    assert decode.bottleneck == "hbm"
    assert 0 < decode.overlap_ns < prefill.overlap_ns
    assert kernel.kv_capacity().sequences(4_096) > 0


def test_a_decode_reads_the_weights_at_the_derated_bandwidth(example: Inputs) -> None:
    summary = pykernel.summarize(example.model)
    expected = summary.active_parameters / 4 / (5.3e12 * 0.8) * 1e9  # one byte each, on four ranks
    ns = pykernel.new(example).step_time(Batch([Request(1, 1, 1)])).per_resource_ns["hbm"]
    assert ns == pytest.approx(expected, rel=0.1)


def test_a_longer_prefill_runs_at_the_matmul_rate_that_was_seen() -> None:
    inputs = on("mi355x", "llama-3.1-8b-h100-tp1")
    weights = pykernel.summarize(inputs.model).active_parameters - inputs.model.global_.vocab_size * 4096
    attention = 32 * 4 * 32 * 128 * 8192 * 8193 / 2  # layers, FLOP of a pair and channel, heads, channels, pairs
    flops = 2 * weights * 8192 + attention
    ns = pykernel.new(inputs).step_time(PREFILL).per_resource_ns["sm"]
    assert ns == pytest.approx(flops / 1565e12 * 1e9, rel=0.05)


def test_more_memory_bandwidth_makes_a_decode_faster() -> None:
    times = {chip: pykernel.new(on(chip)).step_time(DECODES).per_resource_ns["hbm"] for chip in CHIPS}
    assert sorted(times, key=lambda chip: times[chip]) == ["mi355x", "mi325x", "mi300x", "gaudi3"]


# ---- limits --------------------------------------------------------------------------------------------------------


def test_without_the_set_no_model_opens_them(example: Inputs) -> None:
    bare = copy.deepcopy(example)
    bare.coefficients.pop()
    with pytest.raises(RefusedError, match=r"no coefficient of .* applies to hardware mi300x"):
        pykernel.new(bare)


def test_calibrated_says_whose_laws_it_takes() -> None:
    for name, likest in (("mi300x", "h200"), ("gaudi3", "h100")):
        provenance = pykernel.new(on(name), model="calibrated").provenance()
        assumed = {one.name: one.scope for one in provenance if one.method == "assumed"}
        assert assumed["calibrated_part"].startswith(f"{likest}: {name} has no tables")


def test_what_nobody_measured_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"over 16 ranks .* on mi300x: it was not measured at that width"):
        pykernel.new(on("mi300x", "minimax-m2.5-h200-ep16"))
    eight_bit = on("gaudi3")
    eight_bit.deployment.pools[0].engine.quantization = ""
    eight_bit.model.global_.weight_dtype = "int8"
    with pytest.raises(RefusedError, match="gaudi3 states no peak for weights served in int8"):
        pykernel.new(eight_bit)


def test_what_is_not_charged_is_disclosed(example: Inputs) -> None:
    absent = {origin.name for origin in pykernel.new(example).provenance() if origin.scope.startswith("absent")}
    assert {"attention_decode_rate", "attention_prefill_work_scale"} <= absent


def test_the_laws_hold(example: Inputs) -> None:
    report = check_model(pykernel.new(example), factory=pykernel.new, inputs=example)
    assert report.ok, str(report)
