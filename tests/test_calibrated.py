"""The cost model calibrated from outside: where its coefficients come from, what it falls back on, what it refuses."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

import pykernel
from pykernel.documents import Chip
from pykernel.explain import Term
from pykernel.measured import flattening
from pykernel.measured.laws import HostConstants, MeasuredLaws, host_constants, measured_laws, measured_parts
from pykernel.resolve.record import Record
from pykernel.switches import CALIBRATED


def origins(kernel: pykernel.CostModel) -> dict[str, pykernel.CoefficientOrigin]:
    return {origin.name: origin for origin in kernel.provenance()}


def test_its_coefficients_and_serving_constants_are_in_the_provenance() -> None:
    found = origins(pykernel.open("llama-3.1-8b-h100-tp1", model="calibrated"))
    gemm, layer = found["calibrated.gemm_bf16.floor"], found["calibrated.host_vllm.layer"]
    assert (gemm.set, gemm.method, gemm.scope) == ("calibrated-h100", "measured", "hardware: h100")
    assert (layer.set, layer.method) == ("calibrated-host", "measured")
    assert found["calibrated.routing.shape"].method == "assumed"
    assert "calibrated.gemm_fp8.floor" not in found


def test_what_it_fills_in_is_an_assumption_and_no_part_of_the_deployment() -> None:
    kernel = pykernel.open("minimax-m2.5-h200-ep16", model="calibrated")
    assert kernel.deployment().engine.all2all_backend == ""
    assert origins(kernel)["all2all_backend"].scope == "allgather_reducescatter: not stated; the engine's default"


def test_it_assumes_nothing_of_published_laws_that_it_does_not_use() -> None:
    inputs = pykernel.open_inputs("llama-3.1-8b-h100-tp1")
    for one in inputs.coefficients:
        one.coefficients = [entry for entry in one.coefficients if entry.name != "attention_prefill_floor"]
    assumed = {
        name: [one.name for one in model.provenance() if one.scope.startswith("absent")]
        for name, model in (("blis", pykernel.new(inputs)), ("calibrated", pykernel.new(inputs, model="calibrated")))
    }
    assert "attention_prefill_floor" in assumed["blis"] and assumed["calibrated"] == []


def test_a_format_that_was_not_measured_takes_the_nearest_and_says_so() -> None:
    found = origins(pykernel.open("gpt-oss-120b-h100-fp4-tp2", model="calibrated"))
    inputs = pykernel.open_inputs("minimax-m2.5-b200-fp4-tp2-ep4-dp2")
    inputs.chip = pykernel.open_inputs("llama-3.1-8b-h100-tp1").chip
    inputs.scenario.cluster.hardware = "h100"
    other = origins(pykernel.new(inputs, model="calibrated"))
    assert "calibrated_dealt_experts_nvfp4" not in found
    assert other["calibrated_dealt_experts_nvfp4"].method == "assumed"
    assert other["calibrated_dealt_experts_nvfp4"].scope.startswith("dealt_experts_mxfp4: ")


def test_experts_in_int8_are_widened_as_in_int4() -> None:
    inputs = pykernel.open_inputs("mixtral-8x7b-h100-tp4")
    assert inputs.model is not None
    inputs.model.global_.weight_dtype = "int8"
    found = origins(pykernel.new(inputs, model="calibrated"))
    assert found["calibrated_sliced_experts_int8"].scope.startswith("sliced_experts_int4: ")


def on_part(scenario: str, name: str, **fields: Any) -> pykernel.Inputs:
    """A scenario on another chip: one of the catalog with some fields changed, under a name that is in scope."""
    inputs = pykernel.open_inputs(scenario)
    assert inputs.chip is not None
    own = inputs.chip.name
    inputs.chip = replace(inputs.chip, name=name, **fields)
    inputs.scenario.cluster.hardware = name
    for one in inputs.coefficients:
        for entry in one.coefficients:
            if own in entry.scope.hardware:
                entry.scope.hardware = [*entry.scope.hardware, name]
                entry.name = entry.name.replace(f"_{own}", f"_{name}")
    return inputs


def test_a_part_without_tables_takes_those_of_the_part_most_like_it() -> None:
    found = origins(pykernel.new(on_part("llama-3.1-8b-h100-tp1", "mine", tflops_peak=900.0), model="calibrated"))
    assert found["calibrated_part"].scope.startswith("h100: mine has no tables")
    assert found["calibrated.gemm_bf16.floor"].set == "calibrated-h100"
    assert not [name for name in found if name.startswith("calibrated_") and name != "calibrated_part"]


def test_links_are_compared_with_links() -> None:
    inputs = on_part("llama-3.1-70b-h100-fp8-tp4", "mine", intra_node_bw_gbps=64.0)
    found = origins(pykernel.new(inputs, model="calibrated"))
    assert found["calibrated_part"].scope.startswith("h100, links of l40s: ")
    assert found["calibrated.gemm_fp8.floor"].set == "calibrated-h100"
    assert found["calibrated.all_reduce_nccl.floor"].set == "calibrated-l40s"


def test_what_a_part_lacks_in_every_format_is_taken_from_another() -> None:
    record = Record()
    laws, other = (measured_laws(measured_parts()[part], record) for part in ("a100-sxm", "l40s"))
    assert laws.law("sliced_experts", "int4")[1] == "int4" and laws.law("dealt_experts", "nvfp4")[1] == "int4"
    assert laws.law("gdn_prefill", "bf16") == other.law("gdn_prefill", "bf16")
    assert [(one.name, one.scope.split(":")[0]) for one in record.assumptions] == [
        ("calibrated_dealt_experts_nvfp4", "sliced_experts_int4"),
        ("calibrated_gdn_prefill_bf16", "gdn_prefill_bf16 of l40s"),
    ]
    assert {one.set for one in laws.origins()} == {"calibrated-a100-sxm", "calibrated-l40s"}


def test_a_step_that_the_host_cannot_prepare_costs_more() -> None:
    def price(asynchronous: bool | None) -> pykernel.StepEstimate:
        inputs = pykernel.open_inputs("llama-3.1-8b-h100-tp1")
        inputs.deployment.pools[0].engine.async_scheduling = asynchronous
        kernel = pykernel.new(inputs, model="calibrated")
        return kernel.step_time(pykernel.Batch([pykernel.Request(1, 99, 1)] * 10))

    host = {value: price(value).per_resource_ns["host"] for value in (None, True, False)}
    assert host[None] == host[True]
    assert host[False] > host[True] + 1_000_000


def test_published_prices_do_not_move_beside_it() -> None:
    batch = pykernel.Batch([pykernel.Request(1, 4095, 1024)] * 32)
    before = pykernel.open("deepseek-v3-h200-fp8-tp8").step_time(batch).no_overlap_ns
    pykernel.open("deepseek-v3-h200-fp8-tp8", model="calibrated").step_time(batch)
    assert pykernel.open("deepseek-v3-h200-fp8-tp8").step_time(batch).no_overlap_ns == before


def test_an_image_of_it_answers_alike() -> None:
    kernel = pykernel.Kernel(pykernel.open_inputs("minimax-m2.5-b200-fp4-tp2-ep4-dp2"), switches=CALIBRATED)
    loaded = pykernel.Kernel.from_bytes(kernel.to_bytes())
    for count in (0, 1, 30, 1500):
        batch = pykernel.Batch([pykernel.Request(1, 99, 1)] * count + [pykernel.Request(700, 0, 700)] * (count % 2))
        assert loaded.step_time(batch) == kernel.step_time(batch)
    assert loaded.provenance() == kernel.provenance()
    assert loaded.to_bytes() == kernel.to_bytes()


# ---- explaining --------------------------------------------------------------------------------------------------

DEEPSEEK = "deepseek-v3-h200-fp8-tp8"
MIXED = [pykernel.Request(1, 4095, 1)] * 30 + [pykernel.Request(900, 100, 900)]


def terms(scenario: str) -> list[Term]:
    kernel = pykernel.Kernel(pykernel.open_inputs(scenario), switches=CALIBRATED)
    return list(kernel.explain(pykernel.Batch(MIXED)).terms)


@pytest.mark.parametrize("scenario", [DEEPSEEK, "glm-5-h200-tp8", "nemotron-3-ultra-bf16-b300-tp8"])
def test_every_term_names_its_coefficients_and_its_work(scenario: str) -> None:
    for term in terms(scenario):
        assert term.coefficients and all(one.name.startswith("calibrated.") for one in term.coefficients)
        if term.resource in ("hbm", "nvlink", "nic"):
            assert term.bytes > 0
        if term.resource == "sm" and not term.what.startswith("all_"):
            assert term.flops > 0 and 0 < term.efficiency <= 1


@pytest.mark.parametrize(
    "name",
    [
        "gemm_fp8_block.floor",
        "gemm_bf16.depth",
        "latent_decode_fp8.floor",
        "latent_prefill_fp8.kv_passes",
        "sliced_experts_fp8_block.memory_efficiency",
        "all_reduce_graph.floor",
        "all_gather_nccl.per_peer",
        "host_vllm.kernel_scale",
        "host_vllm.layer",
        "routing.shape",
    ],
)
def test_a_coefficient_moves_the_terms_that_name_it_and_no_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law, parameter = name.split(".")

    def inflated(chip: Chip, record: Record) -> MeasuredLaws:
        laws = measured_laws(chip, record)
        entries = laws.of("h200").entries
        if law in entries:
            entry = copy.copy(entries[law][parameter])
            entry.value *= 0.5 if parameter == "memory_efficiency" else 3
            entries[law][parameter] = entry
        return laws

    def constants(engine: str) -> HostConstants:
        found = host_constants(engine)
        if law in ("routing", f"host_{engine}"):
            found = HostConstants({**found.values, parameter: found.values[parameter] * 1.5}, found.origins)
        return found

    before = terms(DEEPSEEK)
    monkeypatch.setattr(flattening, "measured_laws", inflated)
    monkeypatch.setattr(flattening, "host_constants", constants)
    after = terms(DEEPSEEK)
    moved = {index for index, (one, other) in enumerate(zip(before, after, strict=True)) if one.ns != other.ns}
    named = {index for index, one in enumerate(before) if f"calibrated.{name}" in {c.name for c in one.coefficients}}
    assert moved and moved <= named
    # What is read takes the full rate, whatever the coefficients of the law it belongs to.
    assert all(before[index].resource == "hbm" for index in named - moved)
