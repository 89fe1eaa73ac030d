"""Where engine and published descriptions differ, `blis` keeps the description and `calibrated` takes the engine's way:
a test for each row, with both. Rows that both take are tested where they are resolved."""

from __future__ import annotations

import pytest

import pykernel
from pykernel.documents import Inputs
from pykernel.errors import RefusedError
from pykernel.explain import Term
from pykernel.kernel import Kernel
from pykernel.measured.engine_way import engine_inputs, own_all_reduce_bytes
from pykernel.measured.formats import STORED_BYTES
from pykernel.measured.laws import host_constants
from pykernel.measured.operations import operations_of
from pykernel.measured.plan import MeasuredPlan, make_measured_plan
from pykernel.plan import make_plan
from pykernel.resolve import resolve
from pykernel.resolve.layout import resolve_layout
from pykernel.switches import CALIBRATED, NEWEST

MIB = 1 << 20
DEEPSEEK, LLAMA, GLM = "deepseek-v3-h200-fp8-tp8", "llama-3.1-70b-h100-fp8-tp4", "glm-5-h200-tp8"


def both(inputs: Inputs) -> tuple[Kernel, Kernel]:
    """A deployment under the published laws, and under measured ones."""
    return Kernel(inputs, switches=NEWEST), Kernel(inputs, switches=CALIBRATED)


def terms(kernel: Kernel, count: int, start: str) -> list[Term]:
    batch = pykernel.Batch([pykernel.Request(1, 999, 1)] * count)
    return [term for term in kernel.explain(batch).terms if term.what.startswith(start)]


def measured(inputs: Inputs) -> MeasuredPlan:
    resolved = resolve(engine_inputs(inputs))
    assert inputs.model is not None
    return make_measured_plan(inputs.model, make_plan(inputs.model, resolved, CALIBRATED), resolved)


# ---- all-reduce: order and limits ----------------------------------------------------------------------------------


def test_an_all_reduce_occupies_sms_up_to_the_size_that_the_engine_reduces_itself() -> None:
    """Four ranks of H100 reduce 32 MiB themselves: 2048 tokens of 8192 at 16 bits."""
    blis, calibrated = both(pykernel.open_inputs(LLAMA))
    for count in (8, 2048, 2049):
        assert {term.resource for term in terms(blis, count, "all_reduce")} == {"nvlink"}
        engine = "sm" if count <= 2048 else "nvlink"
        assert {term.resource for term in terms(calibrated, count, "all_reduce")} == {engine}


@pytest.mark.parametrize(
    ("scenario", "ranks", "most"),
    [
        (LLAMA, 2, 64), (LLAMA, 4, 32), (LLAMA, 8, 64), (LLAMA, 3, 0), (LLAMA, 16, 0),
        ("glm-5.3-b200-tp8", 8, 128), ("glm-5.3-b200-tp8", 16, 0),
        ("glm-5.2-b300-tp8", 8, 64), ("glm-5.2-b300-tp8", 4, 64), ("glm-5.2-b300-tp8", 6, 32),
        ("minimax-m2.5-gb300-tp4", 4, 64), ("minimax-m2.5-gb300-tp4", 8, 4), ("minimax-m2.5-gb300-tp4", 16, 64),
    ],
)  # fmt: skip
def test_limits_are_those_of_the_part_and_the_ranks(scenario: str, ranks: int, most: int) -> None:
    """Nodes of eight, but of four in a rack of GB300, across which FlashInfer alone reduces."""
    inputs = pykernel.open_inputs(scenario)
    pool, cluster, chip = inputs.deployment.pools[0], inputs.scenario.cluster, inputs.chip
    pool.parallel.tp, cluster.nodes = ranks, 4
    assert chip is not None and inputs.rules is not None
    layout = resolve_layout(cluster, pool.parallel, pool.engine, chip, inputs.fabric, inputs.rules)
    assert own_all_reduce_bytes(layout, pool.engine, chip, "tensor") == most * MIB
    assert own_all_reduce_bytes(layout, pool.engine, chip, "expert") == 0


def test_a_deployment_that_opts_out_has_nccl_alone() -> None:
    inputs = pykernel.open_inputs(LLAMA)
    inputs.deployment.pools[0].engine.disable_custom_all_reduce = True
    _, calibrated = both(inputs)
    assert {term.resource for term in terms(calibrated, 8, "all_reduce")} == {"nvlink"}


def test_a_larger_tensor_never_takes_less_though_another_kernel_reduces_it() -> None:
    _, calibrated = both(pykernel.open_inputs(LLAMA))
    times = [sum(term.ns for term in terms(calibrated, count, "all_reduce")) for count in range(2000, 2100, 10)]
    assert times == sorted(times)


# ---- experts and data parallelism ----------------------------------------------------------------------------------


def test_an_unstated_all_to_all_runs_experts_on_shares_of_the_sequence() -> None:
    inputs = pykernel.open_inputs("minimax-m2.5-b200-fp4-tp2-ep4-dp2")
    inputs.deployment.pools[0].engine.all2all_backend = ""
    blis, calibrated = both(inputs)
    assert [kernel.resolved().sequence_parallel_moe for kernel in (blis, calibrated)] == [False, True]
    found = {term.what for term in calibrated.explain(pykernel.Batch([pykernel.Request(1, 99, 1)] * 8)).terms}
    assert {"reduce_scatter over tensor", "all_gather over tensor"} <= found


def test_a_shared_expert_is_replicated_where_experts_run_on_shares() -> None:
    inputs = pykernel.open_inputs(DEEPSEEK)
    pool = inputs.deployment.pools[0]
    whole = 2 * 2048.0
    assert any(matrix.n == whole / 8 for layer in measured(inputs).layers for matrix in layer.matrices)
    pool.parallel.tp, pool.parallel.dp, pool.parallel.enable_expert_parallel = 4, 2, True
    assert any(matrix.n == whole for layer in measured(inputs).layers for matrix in layer.matrices)


def test_pad_rows_are_routed_nowhere() -> None:
    blis, calibrated = both(pykernel.open_inputs("minimax-m2.5-b200-fp4-tp2-ep4-dp2"))

    def routed(kernel: Kernel, pads: int) -> int:
        found = kernel.explain(pykernel.Batch([pykernel.Request(1, 99, 1)] * 16, pad_tokens=pads)).terms
        return sum(term.ns for term in found if term.what.startswith("routed experts"))

    assert routed(blis, 48) > routed(blis, 0)
    assert routed(calibrated, 48) == routed(calibrated, 0)


def test_slices_of_experts_run_another_kernel_than_whole_ones() -> None:
    """Block FP8 on Hopper: Triton's for the slices of tensor parallelism, FlashInfer's where experts are dealt."""

    def laws(scenario: str) -> set[str]:
        kernel = Kernel(pykernel.open_inputs(scenario), switches=CALIBRATED)
        return {entry.name.split(".")[1] for entry in kernel.provenance() if "_experts_" in entry.name}

    assert laws("minimax-m2.5-h200-tp8") == {"sliced_experts_fp8_block"}
    assert laws("minimax-m2.5-h200-ep8") == {"dealt_experts_fp8_block"}


def test_ranks_add_up_variances_where_a_model_normalizes_over_all_heads() -> None:
    """Two numbers a token in fp32, the query's variance and the key's, beside the two reductions of a layer."""

    def reduced(name: str, tp: int, kernel: int) -> list[float]:
        inputs = pykernel.open_inputs("minimax-m2.5-h200-tp8")
        assert inputs.model is not None
        inputs.model.name, inputs.deployment.pools[0].parallel.tp = name, tp
        return sorted({term.bytes / term.launches for term in terms(both(inputs)[kernel], 8, "all_reduce")})

    hidden = 8 * 3072 * 2.0
    assert reduced("minimax-m2.5", 8, 1) == [8 * 8, hidden]
    assert reduced("minimax-m2.5", 8, 0) == reduced("llama", 8, 1) == [hidden]
    assert reduced("minimax-m2.5", 4, 1) == [8 * 8, hidden]


# ---- graphs ------------------------------------------------------------------------------------------------------


def test_dense_work_runs_at_the_captured_size() -> None:
    blis, calibrated = both(pykernel.open_inputs("llama-3.1-8b-h100-tp1"))

    def dense(kernel: Kernel, count: int) -> int:
        return sum(term.ns for term in terms(kernel, count, "dense arithmetic") if term.layer == "dense")

    assert dense(blis, 25) < dense(blis, 32)
    assert dense(calibrated, 25) == dense(calibrated, 32)


def test_an_indexer_shares_the_break_of_its_attention() -> None:
    """The published laws replay a graph more for each indexer; the engine has as many breaks as layers, so that
    measured host time counts layers alone."""
    inputs = pykernel.open_inputs(GLM)
    _, calibrated = both(inputs)
    host = calibrated.step_time(pykernel.Batch([pykernel.Request(1, 99, 1)])).per_resource_ns["host"]
    assert host == pytest.approx(78 * host_constants("vllm").values["layer"] * 1e3, abs=2)


# ---- decode-context parallelism ----------------------------------------------------------------------------------


def sharing(scenario: str, **engine: object) -> Inputs:
    """A deployment whose decodes share the context in pairs."""
    inputs = pykernel.open_inputs(scenario)
    pool = inputs.deployment.pools[0]
    pool.parallel.dcp = 2
    for name, value in engine.items():
        setattr(pool.engine, name, value)
    return inputs


def test_glm_combines_in_one_exchange_and_replicates_its_queries_unless_stated() -> None:
    blis, calibrated = both(sharing("glm-5.2-b300-tp8"))
    described = {term.what for term in terms(blis, 8, "")}
    engine = {term.what for term in terms(calibrated, 8, "")}
    assert "reduce_scatter over decode_context" in described and "alltoall over decode_context" not in described
    assert "alltoall over decode_context" in engine and "reduce_scatter over decode_context" not in engine
    assert not any(what.startswith("all_gather over decode_context") for what in engine)

    gathered = Kernel(sharing("glm-5.2-b300-tp8", dcp_q_replicate=False), switches=CALIBRATED)
    assert "all_gather over decode_context" in {term.what for term in terms(gathered, 8, "")}
    stated = Kernel(sharing("glm-5.2-b300-tp8", dcp_comm_backend="ag_rs"), switches=CALIBRATED)
    assert "reduce_scatter over decode_context" in {term.what for term in terms(stated, 8, "")}


def test_replicated_queries_are_projected_for_all_ranks() -> None:
    calibrated = Kernel(sharing("glm-5.2-b300-tp8"), switches=CALIBRATED)
    gathered = Kernel(sharing("glm-5.2-b300-tp8", dcp_q_replicate=False), switches=CALIBRATED)

    def flops(kernel: Kernel) -> float:
        return sum(term.flops * term.layers for term in terms(kernel, 8, "dense arithmetic") if term.layer != "head")

    # 78 layers project 64 heads of 256 from a width of 2048, over 8 ranks; 8 rows.
    assert flops(calibrated) - flops(gathered) == pytest.approx(78 * 2.0 * 8 * 64 * 256 / 8 * 2048)


def test_replicated_queries_are_held_for_all_ranks() -> None:
    calibrated = Kernel(sharing("glm-5.2-b300-tp8"), switches=CALIBRATED)
    gathered = Kernel(sharing("glm-5.2-b300-tp8", dcp_q_replicate=False), switches=CALIBRATED)
    # Each rank of a pair has the 8 heads of the other too: 256 wide from 2048; and beside its own absorbed keys those
    # of both, 192 wide from a latent of 512. All in 16 bits, in 78 layers.
    other, keys = 8 * 256 * 2048 * 2, 16 * 192 * 512 * 2
    assert calibrated.fixed_bytes().weights - gathered.fixed_bytes().weights == 78 * (other + keys)


def test_other_latent_models_gather_queries_unless_stated() -> None:
    described = Kernel(sharing(DEEPSEEK), switches=CALIBRATED)
    found = {term.what for term in terms(described, 8, "")}
    assert {"all_gather over decode_context", "reduce_scatter over decode_context"} <= found
    with pytest.raises(RefusedError, match="dcp_q_replicate"):
        Kernel(sharing(DEEPSEEK, dcp_q_replicate=True), switches=NEWEST)
    replicated = Kernel(sharing(DEEPSEEK, dcp_q_replicate=True), switches=CALIBRATED)
    gathers = [len(terms(kernel, 8, "all_gather over decode_context")) for kernel in (replicated, described)]
    assert gathers == [2, 4]  # two kinds of layers: log-sum-exps, and queries with them


def test_a_backend_that_cannot_exchange_is_refused_until_the_combine_is_stated() -> None:
    """Hopper's sparse backend for 8-bit caches combines by all-gather and reduce-scatter only."""
    scenario = "glm-5.2-fp8-h200-tp8"
    Kernel(sharing(scenario, kv_cache_dtype="fp8"), switches=NEWEST)
    with pytest.raises(RefusedError, match="state ag_rs"):
        Kernel(sharing(scenario, kv_cache_dtype="fp8"), switches=CALIBRATED)
    Kernel(sharing(scenario, kv_cache_dtype="fp8", dcp_comm_backend="ag_rs"), switches=CALIBRATED)


# ---- formats -----------------------------------------------------------------------------------------------------


def test_matrices_are_stored_and_replicated_as_the_engine_loads_them() -> None:
    """DeepSeek-V3 in FP8 over 8 ranks."""
    plan = measured(pykernel.open_inputs(DEEPSEEK))
    assert plan.head is not None
    assert (plan.head.n, plan.head.format, plan.head.weight_bytes) == (129280 / 8, "bf16", 2.0)
    moe = next(layer for layer in plan.layers if layer.experts)
    by_shape = {(matrix.n, matrix.k): matrix.format for matrix in moe.matrices}
    assert by_shape[256, 7168] == "bf16"  # the router, whole
    assert by_shape[2112, 7168] == "fp8_block"  # down-projections of queries, keys and values, whole
    assert by_shape[32768 / 8, 512] == "bf16"  # absorbed, a 16-bit copy
    assert by_shape[24576 / 8, 1536] == "fp8_block"


def test_queries_from_the_hidden_state_and_the_output_are_divided_whatever_their_shape() -> None:
    """DeepSeek-V2-Lite projects queries without a narrow step, and its heads are as wide as the hidden state."""
    inputs = pykernel.open_inputs("deepseek-v2-lite-h100-tp1")
    inputs.deployment.pools[0].parallel.tp = 2
    shapes = {(matrix.n, matrix.k) for layer in measured(inputs).layers for matrix in layer.matrices}
    assert {(3072 / 2, 2048), (2048, 2048 / 2), (576, 2048)} <= shapes  # queries, output; the latent, whole


def test_formats_do_not_depend_on_how_many_ranks_there_are_to_reduce() -> None:
    """A dense layer of a 4-bit mixture: its attention stays at 16 bits, its MLP does not."""
    inputs = pykernel.open_inputs("deepseek-v3-b200-fp4-tp4")
    for tp in (1, 4):
        inputs.deployment.pools[0].parallel.tp = tp
        dense = next(layer for layer in measured(inputs).layers if not layer.experts)
        assert [matrix.format for matrix in dense.matrices] == ["bf16"] * 4 + ["nvfp4"] * 2


def test_the_gate_of_an_output_is_divided_though_it_is_projected_with_the_latents() -> None:
    """Kimi-K3: 96 heads of 128 over 8 ranks, behind 1,536 + 576 outputs for the latents."""
    plan = measured(pykernel.open_inputs("kimi-k3-b300-tp8"))
    latent = next(layer for layer in plan.layers if layer.attention)
    assert (latent.matrices[0].n, latent.matrices[0].k) == (2112 + 12288 / 8, 7168)


@pytest.mark.parametrize(
    ("scenario", "shapes"),
    [
        ("nemotron-3-ultra-bf16-b300-tp8", {(2048, 8192), (8192, 2048)}),  # to and from the width of the experts
        ("kimi-k3-b300-tp8", {(3584, 7168), (7168, 3584), (128, 7168)}),  # and the narrow step of the decays
        ("glm-5.3-flash-h200-tp4", {(24, 16384), (128, 4096)}),  # hyper-connections
    ],
)
def test_matrices_around_what_is_divided_are_whole(scenario: str, shapes: set[tuple[int, int]]) -> None:
    plan = measured(pykernel.open_inputs(scenario))
    assert shapes <= {(matrix.n, matrix.k) for layer in plan.layers for matrix in layer.matrices}


def test_an_indexer_projects_all_its_heads_on_every_rank() -> None:
    plan = measured(pykernel.open_inputs("glm-5.2-fp8-h200-tp8"))
    assert any((matrix.n, matrix.k) == (4096, 2048) for layer in plan.layers for matrix in layer.matrices)


@pytest.mark.parametrize(
    ("scenario", "projections"),
    [
        # 64 heads of 64 and their gate, and 8 groups of 128 as keys and as queries, over two ranks.
        ("nemotron-3.5-lightning-bf16-h100-tp2", [(5120, 2688, "bf16")]),
        # Queries, keys, values and gate, and apart from them a step and a decay of 64 heads, over four ranks.
        ("qwen3.5-397b-a17b-b300-fp4-tp4", [(5120, 4096, "bf16"), (32, 4096, "bf16")]),
    ],
)
def test_a_recurrent_mixer_is_projected_into_though_its_graph_leaves_that_out(
    scenario: str, projections: list[tuple[float, float, str]]
) -> None:
    mixer = next(layer for layer in measured(pykernel.open_inputs(scenario)).layers if layer.recurrent)
    first = mixer.matrices[: len(projections)]
    assert [(matrix.n, matrix.k, matrix.format) for matrix in first] == projections


@pytest.mark.parametrize("scenario", [DEEPSEEK, "nemotron-3-ultra-h100-tp8-mtp", "minimax-m2.5-b200-fp4-tp2-ep4-dp2"])
def test_a_rank_holds_the_weights_that_its_steps_read(scenario: str) -> None:
    inputs = pykernel.open_inputs(scenario)
    operations = operations_of(inputs, CALIBRATED)
    plan, own = operations.plan, operations.measured
    assert own.head is not None and operations.resolved.experts is not None
    # The embedding at 16 bits, over the ranks as the output projection, of which a step reads single rows.
    read = 2 * own.head.n * own.head.k * own.head.weight_bytes
    for layer, kernels in zip((*plan.layers, *plan.draft_layers), (*own.layers, *own.draft_layers), strict=True):
        read += layer.count * sum(matrix.n * matrix.k * matrix.weight_bytes for matrix in kernels.matrices)
        for routed, one in zip(layer.experts, kernels.experts, strict=True):
            local = operations.resolved.experts.local(routed.experts)
            read += layer.count * local * one.matrices * one.hidden * one.width * STORED_BYTES[one.format]
    # Beside them the up-projection of latents, of which steps read the absorbed copies: 61 layers, a byte a parameter.
    unread = 61 * 32768 * 512 / 8 if scenario == DEEPSEEK else 0
    assert Kernel(inputs, switches=CALIBRATED).fixed_bytes().weights == int(read + unread)


# ---- host ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "whole"), [("nemotron-3.5-lightning-bf16-h100-tp2", 26), ("qwen3.5-397b-a17b-b300-fp4-tp4", 60)]
)
def test_a_mixer_or_an_mlp_that_is_a_layer_of_its_own_takes_half_a_layer_of_the_host(scenario: str, whole: int) -> None:
    _, calibrated = both(pykernel.open_inputs(scenario))
    step = calibrated.step_time(pykernel.Batch([pykernel.Request(1, 999, 1)]))
    assert step.per_resource_ns["host"] == pytest.approx(host_constants("vllm").values["layer"] * 1e3 * whole, abs=2)
