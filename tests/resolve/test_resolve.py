"""Resolution as a whole: what it records of itself, in which order, and which fault it reports first."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import pykernel
from pykernel import ArgumentError, CoefficientOrigin, DocumentError, Inputs, Kernel, RefusedError
from pykernel.documents import Dbo
from pykernel.resolve import resolve

from .edits import apply

Fresh = Callable[..., Inputs]

DEEPSEEK, EP16 = "deepseek-v3-h200-fp8-tp8", "minimax-m2.5-h200-ep16"


def own(origins: tuple[CoefficientOrigin, ...]) -> list[CoefficientOrigin]:
    return [origin for origin in origins if origin.set == pykernel.KERNEL_ASSUMPTION_SET]


# ---- provenance ----------------------------------------------------------------------------------------------------


def test_the_evidence_of_the_published_example() -> None:
    kernel = pykernel.open(DEEPSEEK)
    evidence = kernel.evidence()
    assert (evidence.measured, evidence.total, len(evidence.assumed)) == (110, 149, 38)
    methods = Counter(origin.method for origin in kernel.provenance())
    assert methods == {"measured": 93, "vendor_spec": 17, "not_charged": 1, "assumed": 38}
    assert [origin.name for origin in own(kernel.provenance())] == ["max_cudagraph_capture_size", "engine_version"]


def test_provenance_lists_each_coefficient_in_scope_by_name_then_the_assumptions(fresh: Fresh) -> None:
    documents = fresh()
    origins = resolve(documents).provenance
    registry = [origin for origin in origins if origin.set != pykernel.KERNEL_ASSUMPTION_SET]
    assert list(origins) == registry + own(origins)
    names = [origin.name for origin in registry]
    assert names == sorted(set(names))
    in_scope = {
        entry.name
        for entries in documents.coefficients
        for entry in entries.coefficients
        if (not entry.scope.hardware or "h200" in entry.scope.hardware) and not (entry.scope.model or entry.scope.tp)
    }
    assert set(names) >= in_scope
    assert {origin.set for origin in registry} == {entries.name for entries in documents.coefficients}
    # What no law reads is listed all the same: it is in scope.
    assert {"p2p_latency", "hbm_constant_latency", "moe_routing_imbalance_p90"} <= set(names)


def test_each_origin_is_the_entry_that_won(fresh: Fresh) -> None:
    documents = fresh()
    entries = {
        (entries.name, entry.name, entry.method) for entries in documents.coefficients for entry in entries.coefficients
    }
    for origin in resolve(documents).provenance:
        if origin.set != pykernel.KERNEL_ASSUMPTION_SET:
            assert (origin.set, origin.name, origin.method) in entries
            assert origin.scope in ("hardware: h200", "unscoped") or origin.scope.startswith(("hardware: ", "model: "))


def test_an_assumption_reads_value_then_reason(fresh: Fresh) -> None:
    for origin in own(resolve(fresh(EP16)).provenance):
        value, _, reason = origin.scope.partition(": ")
        assert value and reason and origin.method == "assumed"


def test_the_name_of_our_own_set_is_no_registry_set(fresh: Fresh) -> None:
    assert pykernel.KERNEL_ASSUMPTION_SET == "pykernel"
    assert pykernel.KERNEL_ASSUMPTION_SET not in {entries.name for entries in fresh().coefficients}


def test_the_numbers_of_an_assumption_are_what_the_kernel_says() -> None:
    kernel = pykernel.open(DEEPSEEK)
    scopes = {origin.name: origin.scope for origin in own(kernel.provenance())}
    assert scopes["max_cudagraph_capture_size"].startswith(f"{kernel.capture_tokens()}: ")
    assert scopes["engine_version"].startswith(f"{pykernel.ENGINE_BEHAVIOUR_VERSION}: ")


# ---- the record of what runs ---------------------------------------------------------------------------------------


def test_widths_are_reported_with_a_floor_of_one() -> None:
    resolved = pykernel.open("llama-3.1-8b-h100-tp1").resolved()
    assert (resolved.tensor_parallel(), resolved.data_parallel(), resolved.expert_parallel()) == (1, 1, 1)
    unset = dataclasses.replace(resolved, tensor_parallel_width=0, data_parallel_width=0, expert_parallel_width=0)
    assert (unset.tensor_parallel(), unset.data_parallel(), unset.expert_parallel()) == (1, 1, 1)


def test_experts_over_two_nodes() -> None:
    kernel = pykernel.open(EP16)
    resolved = kernel.resolved()
    assert (resolved.tensor_parallel(), resolved.data_parallel(), resolved.expert_parallel()) == (8, 2, 16)
    assert resolved.all_reduce_backend == "custom" and not resolved.sequence_parallel_moe
    assert "nic" in kernel.step_time(pykernel.Batch([pykernel.Request(1, 99, 1)])).per_resource_ns


def test_tensor_ranks_over_two_nodes_fall_back_and_say_so(fresh: Fresh) -> None:
    documents = fresh(EP16)
    parallel = documents.deployment.pools[0].parallel
    parallel.tp, parallel.dp, parallel.enable_expert_parallel = 16, 1, False
    kernel = Kernel(documents)
    (override,) = kernel.resolved().overrides
    assert kernel.resolved().all_reduce_backend == "nccl"
    assert (override.field, override.requested, override.resolved) == ("allreduce_backend", "custom", "nccl")
    assert "16 ranks" in override.reason
    engine = kernel.deployment().engine
    assert (engine.disable_custom_all_reduce, engine.allreduce_backend) == (None, "")


def test_a_rack_scale_part_keeps_its_collectives_on_nvlink(fresh: Fresh) -> None:
    documents = fresh("minimax-m2.5-gb300-tp4")
    documents.scenario.cluster.nodes = documents.deployment.pools[0].nodes = 4
    documents.scenario.cluster.fabric = "ib-400g"
    parallel = documents.deployment.pools[0].parallel
    parallel.tp, parallel.dp, parallel.enable_expert_parallel = 4, 4, True
    batch = pykernel.Batch([pykernel.Request(1, 99, 1)] * 8)
    inside = Kernel(documents)
    assert "nic" not in inside.step_time(batch).per_resource_ns
    documents.chip.intra_rack_bw_gbps = 0.0
    assert "nic" in Kernel(documents).step_time(batch).per_resource_ns


def test_overrides_of_the_layout_come_before_those_of_the_engine(fresh: Fresh) -> None:
    documents = fresh("qwen3-30b-a3b-h200-dp4")
    engine = documents.deployment.pools[0].engine
    engine.all2all_backend, engine.disable_cascade_attn = "deepep_high_throughput", False
    overrides = resolve(documents).resolution.overrides
    assert [override.field for override in overrides] == ["allreduce_backend", "cudagraph_mode", "disable_cascade_attn"]
    assert all(override.reason for override in overrides)


# ---- the first fault -----------------------------------------------------------------------------------------------


def missing_chip(documents: Inputs) -> None:
    documents.chip = None  # type: ignore[assignment]


def no_such_pool(documents: Inputs) -> None:
    documents.pool = 7


def no_rules(documents: Inputs) -> None:
    documents.rules = None


def invalid(documents: Inputs) -> None:
    documents.chip.bw_peak_tbs = -1.0


def two_stages(documents: Inputs) -> None:
    documents.deployment.pools[0].parallel.pp = 2
    documents.deployment.pools[0].parallel.tp = 4


def nothing_applies(documents: Inputs) -> None:
    for entries in documents.coefficients:
        entries.coefficients = [
            dataclasses.replace(entry, scope=dataclasses.replace(entry.scope, hardware=["h9000"], model=[]))
            for entry in {entry.name: entry for entry in entries.coefficients}.values()
        ]


def unknown_quantization(documents: Inputs) -> None:
    documents.deployment.pools[0].engine.quantization = "q7"


def unpriced(documents: Inputs) -> None:
    documents.deployment.pools[0].engine.dbo = Dbo(enable_dbo=True)


def unknown_mode(documents: Inputs) -> None:
    documents.deployment.pools[0].engine.cudagraph_mode = "HALF"


def no_derate(documents: Inputs) -> None:
    for entries in documents.coefficients:
        entries.coefficients = [entry for entry in entries.coefficients if entry.name != "hbm_derate"]


IN_ORDER: list[tuple[Callable[[Inputs], None], type[Exception], str]] = [
    (missing_chip, ArgumentError, "chip is missing"),
    (no_such_pool, ArgumentError, "pool 7"),
    (no_rules, ArgumentError, "engine_version"),
    (invalid, DocumentError, "chip.BwPeakTBs"),
    (nothing_applies, RefusedError, "no coefficient"),
    (unknown_quantization, RefusedError, "'q7'"),
    (two_stages, RefusedError, "pp is 2"),
    (unpriced, RefusedError, "dual-batch overlap"),
    (no_derate, RefusedError, "hbm_derate"),
    (unknown_mode, RefusedError, "'HALF'"),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_first_fault_decides(first: int, fresh: Fresh) -> None:
    documents: Any = fresh()
    for spoil, _, _ in reversed(IN_ORDER[first:]):
        spoil(documents)
    _, kind, words = IN_ORDER[first]
    with pytest.raises(kind) as caught:
        resolve(documents)
    assert type(caught.value) is kind and words in str(caught.value)


def test_a_second_pool_is_resolved_by_its_own_settings(fresh: Fresh) -> None:
    documents = fresh("minimax-m2.5-h200-disagg", 1)
    documents.deployment.pools[0].engine.quantization = "q7"
    assert resolve(documents).pool.role == "decode"
    documents.pool = 0
    with pytest.raises(RefusedError, match="q7"):
        resolve(documents)


# ---- names of parts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["blis", "calibrated"])
@pytest.mark.parametrize("scenario", [DEEPSEEK, "llama-3.1-8b-l40s-fp8-tp1"])
def test_the_letter_case_of_a_chip_changes_no_answer(fresh: Fresh, scenario: str, model: str) -> None:
    batch = pykernel.Batch([pykernel.Request(1, 4_095, 8)] * 8)
    kernels = []
    for documents in (fresh(scenario), fresh(scenario)):
        documents.chip.name = documents.chip.name.upper() if kernels else documents.chip.name
        documents.deployment.pools[0].engine.block_size = 0
        kernels.append(pykernel.new(documents, model=model))
    plain, upper = kernels
    assert upper.step_time(batch) == plain.step_time(batch)
    assert upper.provenance() == plain.provenance()


def test_the_letter_case_of_a_chip_does_not_hide_that_it_runs_no_sparse_attention(fresh: Fresh) -> None:
    with pytest.raises(RefusedError) as refusal:
        resolve(apply(fresh("glm-5-h200-tp8"), {"chip": "l40s", "chip.name": "L40S"}))
    assert refusal.value.rule == "sparse-part"
