"""The tiers: that they load and are found, transfers worked out by hand, their order, and the laws of transfers."""

from __future__ import annotations

import copy
from pathlib import Path

import pykernel_tiers
import pytest

import pykernel
from pykernel import Direction, Inputs
from pykernel.documents import list_storage, storage, validate
from pykernel.errors import DocumentError
from pykernel.interface import INT64_MAX
from pykernel.laws import check_model
from pykernel.registry import build, installed

EXAMPLE = Path(__file__).parents[1] / "example.yaml"
NAMES = sorted(pykernel_tiers.SOURCES)
MIB = 1 << 20


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    """The example, with every tier of the plug-in in its cluster."""
    scenario, deployment = pykernel.load_bundle(EXAMPLE)
    scenario.cluster.storage = NAMES
    return pykernel.documents.repos.assemble(scenario, deployment)


def test_every_document_has_a_source_and_is_valid(inputs: Inputs) -> None:
    tiers = storage.load(pykernel_tiers.FILE)
    assert [tier.name for tier in tiers] == NAMES
    assert [storage.check(tier) for tier in tiers] == [[]] * len(NAMES)
    assert [tier for tier in inputs.storage if tier.name in NAMES] == tiers


def test_they_are_found_by_name_and_replace_no_bundled_one() -> None:
    assert set(NAMES) <= set(installed().plugged_in("storage_tiers"))
    assert installed().failures == []
    assert not set(NAMES) & {*list_storage(), *build({}).names("storage_tiers")}
    tier = installed().document("storage_tiers", "cxl_gen5_x8")
    tier.base_latency_us = 7.0
    assert installed().document("storage_tiers", "cxl_gen5_x8").base_latency_us == 1.41


def test_the_example_offloads_to_them() -> None:
    inputs = pykernel.open_inputs(EXAMPLE)
    assert inputs.deployment.offload is not None
    assert [tier.tier for tier in inputs.deployment.offload.tiers] == ["cxl_gen5_x8", "gds_nvme_gen5_x4"]
    assert validate(inputs) == []
    bundled = {name: pykernel.new(inputs).tier_time_ns(name, Direction.TO_TIER, MIB, 1) for name in list_storage()}
    plain = pykernel.open("llama-3.1-70b-h100-fp8-tp4")
    assert bundled == {name: plain.tier_time_ns(name, Direction.TO_TIER, MIB, 1) for name in list_storage()}


def test_a_tier_is_known_only_where_a_scenario_names_it() -> None:
    kernel = pykernel.new(pykernel.open_inputs(EXAMPLE))
    assert kernel.tier_time_ns("rdma_kv_400g", Direction.FROM_TIER, MIB, 1) < INT64_MAX
    assert kernel.tier_time_ns("cxl_box_gen5_x16", Direction.FROM_TIER, MIB, 1) == INT64_MAX


def test_a_name_that_is_none_of_them_lists_them() -> None:
    scenario, deployment = pykernel.load_bundle(EXAMPLE)
    scenario.cluster.storage = ["cxl_gen6_x8"]
    with pytest.raises(DocumentError, match=r"no storage class 'cxl_gen6_x8'.*known: cpu_dram, .*gds_nvme_gen5_x4"):
        pykernel.documents.repos.assemble(scenario, deployment)


@pytest.mark.parametrize(
    ("tier", "direction", "size", "expected"),
    [
        # 64 MiB at 29.6 GB/s; 64 GB/s of host link do not matter.
        ("cxl_gen5_x8", Direction.FROM_TIER, 64 * MIB, 67_108_864 / 29.6),
        # 4 KiB take less than the latency.
        ("cxl_gen5_x8", Direction.FROM_TIER, 4096, 1_410),
        # Reads and writes of a drive differ.
        ("gds_nvme_gen5", Direction.FROM_TIER, 64 * MIB, 67_108_864 / 14),
        ("gds_nvme_gen5", Direction.TO_TIER, 64 * MIB, 67_108_864 / 10),
        # 16 tokens of Llama 3.1 70B in FP8 on one of 4 ranks: 80 layers of 2 heads, keys and values of 128 bytes.
        ("rdma_kv_400g", Direction.FROM_TIER, 16 * 80 * 2 * 2 * 128, max(16 * 80 * 2 * 2 * 128 / 50, 10_000)),
    ],
)
def test_a_transfer_is_what_a_pencil_says(
    inputs: Inputs, tier: str, direction: Direction, size: int, expected: float
) -> None:
    assert pykernel.new(inputs).tier_time_ns(tier, direction, size, 1) == pytest.approx(expected, abs=1)


def test_the_link_of_the_host_bounds_a_tier_that_is_faster(inputs: Inputs) -> None:
    older = copy.deepcopy(inputs)
    older.chip.name = older.scenario.cluster.hardware = "a100-sxm"  # PCIe 4.0: 32 GB/s of host link
    older.chip.tflops_fp8 = 0.0
    for name, rate in {"cxl_box_gen5_x16": 32, "gds_nvme_gen5_x4": 32, "cxl_gen5_x8": 29.6}.items():
        ns = pykernel.new(older).tier_time_ns(name, Direction.FROM_TIER, 1 << 30, 1)
        assert ns == pytest.approx((1 << 30) / rate, abs=1)


def test_they_are_ordered_as_their_kinds_are(inputs: Inputs) -> None:
    kernel = pykernel.new(inputs)

    def read(tier: str, size: int = 256 * MIB) -> int:
        return kernel.tier_time_ns(tier, Direction.FROM_TIER, size, 1)

    assert read("dram_gen5_x16") < read("cxl_box_gen5_x16") < read("cxl_gen5_x8") < read("gds_nvme_gen5")
    assert read("gds_nvme_gen5_x4") < read("gds_nvme_gen5") < read("nvme_gen4") < read("nvme_gen3")
    assert read("rdma_kv_400g") < read("rdma_kv_mooncake_400g") < read("s3")
    latencies = ["dram_gen5_x16", "cxl_gen5_x8", "cxl_box_gen5_x16", "rdma_kv_400g", "gds_nvme_gen5", "nvme_gen4"]
    assert sorted(latencies, key=lambda tier: read(tier, 0)) == latencies


def test_the_laws_of_transfers_hold(inputs: Inputs) -> None:
    laws = [f"T{number}" for number in range(1, 11)]
    report = check_model(pykernel.new(inputs), factory=pykernel.new, inputs=inputs, laws=laws)
    assert report.ok, str(report)
    assert sorted(report.passed) == sorted(laws), str(report)


def test_the_readme_says_what_the_documents_say(inputs: Inputs) -> None:
    page = (EXAMPLE.parent / "README.md").read_text(encoding="utf-8")
    rows = {cells[0].strip("` "): cells[1:4] for line in page.splitlines() if (cells := line.split("|")[1:])}
    for tier in (tier for tier in inputs.storage if tier.name in NAMES):
        stated = [tier.read_bandwidth_mb_s / 1000, tier.write_bandwidth_mb_s / 1000, tier.base_latency_us]
        assert [float(cell) for cell in rows[tier.name]] == stated
    printed = pykernel.open(EXAMPLE).tier_time_ns("cxl_gen5_x8", "from_tier", 64 << 20, 1)
    assert f"```text\n{printed}\n```" in page
