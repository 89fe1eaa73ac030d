"""What is refused: every refusal names its setting, comes before anything is built, and has a control beside it.

The control differs in the setting at fault alone and is accepted, so that no refusal is wider than its reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import pykernel
from pykernel import Batch, CostModel, DocumentError, Inputs, RefusedError, Request
from pykernel import kernel as kernel_module
from pykernel.documents import Dbo
from pykernel.resolve import examine

DEEPSEEK = "deepseek-v3-h200-fp8-tp8"
MINIMAX = "minimax-m2.5-h200-tp8"
BATCH = Batch([Request(1, 4_095, 1_024)] * 32)

Edit = Callable[[Inputs], None]
Fresh = Callable[..., Inputs]


def edit_coefficient(documents: Inputs, name: str, value: float) -> None:
    for entries in documents.coefficients:
        entries.coefficients = [
            dataclasses.replace(entry, value=value, ci95=None) if entry.name == name else entry
            for entry in entries.coefficients
        ]


def drop_sets(*names: str) -> Edit:
    def edit(documents: Inputs) -> None:
        documents.coefficients = [entries for entries in documents.coefficients if entries.name not in names]

    return edit


def drop(pattern: str) -> Edit:
    """Leave out every coefficient whose name begins with `pattern`."""

    def edit(documents: Inputs) -> None:
        for entries in documents.coefficients:
            entries.coefficients = [entry for entry in entries.coefficients if not entry.name.startswith(pattern)]

    return edit


def setting(path: str, value: Any) -> Edit:
    """Set one field of the pool by its dotted name."""

    def edit(documents: Inputs) -> None:
        inner, last = documents.deployment.pools[0], path.rpartition(".")[2]
        for part in path.split(".")[:-1]:
            inner = getattr(inner, part)
        setattr(inner, last, value)

    return edit


def both(*edits: Edit) -> Edit:
    def edit(documents: Inputs) -> None:
        for one in edits:
            one(documents)

    return edit


def experts(count: int) -> Edit:
    """Give every layer that many experts, of which a token visits one."""

    def edit(documents: Inputs) -> None:
        for kind in documents.model.layer_kinds:
            for node in kind.nodes:
                if node.op == "GroupedGEMM":
                    node.experts, node.top_k = count, 1

    return edit


# What is changed, the field and the words of the refusal, and the nearest change that is accepted.
REFUSALS: dict[str, tuple[str, Edit, str, tuple[str, ...], Edit]] = {
    "pipeline parallelism": (
        DEEPSEEK,
        both(setting("parallel.tp", 4), setting("parallel.pp", 2)),
        "parallel.pp",
        ("pp is 2", "pp 1"),
        setting("parallel.tp", 4),
    ),
    "ranks that do not divide the heads": (
        DEEPSEEK,
        setting("parallel.tp", 3),
        "parallel.tp",
        ("tp is 3", "128 query heads", "attn_dense", "1, 2, 4, 8"),
        setting("parallel.tp", 2),
    ),
    "ranks at which no collective was measured": (
        MINIMAX,
        setting("parallel.tp", 3),
        "scenario.coefficients",
        ("all_reduce", "3 ranks", "h200", "2, 4, 8"),
        setting("parallel.tp", 4),
    ),
    "a shared prefill of full attention": (
        MINIMAX,
        both(setting("parallel.tp", 4), setting("parallel.pcp", 2)),
        "parallel.pcp",
        ("pcp is 2", "gqa"),
        setting("parallel.tp", 4),
    ),
    "a shared prefill and a shared cache of dense latent attention": (
        DEEPSEEK,
        both(setting("parallel.tp", 4), setting("parallel.pcp", 2), setting("parallel.dcp", 2)),
        "parallel.dcp",
        ("pcp 2", "dcp 2", "mla"),
        both(setting("parallel.tp", 4), setting("parallel.pcp", 2)),
    ),
    "a replicated query projection": (
        DEEPSEEK,
        both(setting("parallel.dcp", 8), setting("engine.dcp_q_replicate", True)),
        "engine.dcp_q_replicate",
        ("dcp_q_replicate", "dcp 8"),
        both(setting("parallel.dcp", 8), setting("engine.dcp_q_replicate", False)),
    ),
    "an unknown way to combine, even where none is needed": (
        DEEPSEEK,
        setting("engine.dcp_comm_backend", "rs_ag"),
        "engine.dcp_comm_backend",
        ("'rs_ag'", "ag_rs", "a2a"),
        setting("engine.dcp_comm_backend", "a2a"),
    ),
    "an interleave that does not divide the block": (
        DEEPSEEK,
        both(setting("parallel.dcp", 8), setting("engine.cp_kv_cache_interleave_size", 12)),
        "engine.cp_kv_cache_interleave_size",
        ("12", "block_size 16"),
        both(setting("parallel.dcp", 8), setting("engine.cp_kv_cache_interleave_size", 8)),
    ),
    "dual-batch overlap": (
        DEEPSEEK,
        setting("engine.dbo", Dbo(enable_dbo=True)),
        "engine.dbo.enable_dbo",
        ("dual-batch overlap",),
        setting("engine.dbo", Dbo(enable_dbo=False)),
    ),
    "a quantization of unknown width": (
        DEEPSEEK,
        setting("engine.quantization", "fp8_per_block"),
        "engine.quantization",
        ("'fp8_per_block'", "fp8", "nvfp4"),
        setting("engine.quantization", "ptpc_fp8"),
    ),
    "a quantization in other letters": (
        DEEPSEEK,
        setting("engine.quantization", "FP8"),
        "engine.quantization",
        ("'FP8'",),
        setting("engine.quantization", "fp8"),
    ),
    "an unknown graph mode": (
        DEEPSEEK,
        setting("engine.cudagraph_mode", "SOMETIMES"),
        "engine.cudagraph_mode",
        ("'SOMETIMES'", "FULL_AND_PIECEWISE", "NONE"),
        setting("engine.cudagraph_mode", "full_and_piecewise"),
    ),
    "a cache type of no backend": (
        DEEPSEEK,
        setting("engine.cache_dtype", "fp8_inc"),
        "engine.cache_dtype",
        ("'fp8_inc'",),
        setting("engine.cache_dtype", "fp8_e5m2"),
    ),
    "capture sizes that disagree": (
        DEEPSEEK,
        both(setting("engine.cudagraph_capture_sizes", [8, 64]), setting("engine.max_cudagraph_capture_size", 128)),
        "engine.max_cudagraph_capture_size",
        ("128", "64"),
        both(setting("engine.cudagraph_capture_sizes", [8, 64]), setting("engine.max_cudagraph_capture_size", 64)),
    ),
    "more ranks than experts": (
        "qwen3-30b-a3b-h200-ep8",
        experts(7),
        "parallel.enable_expert_parallel",
        ("8", "7 experts"),
        experts(8),
    ),
    "no primitives": (
        DEEPSEEK,
        drop_sets("cost-model-primitives"),
        "scenario.coefficients",
        ("hbm_derate", "cost-model-collectives"),
        drop_sets("cost-model-attention"),
    ),
    "no collectives": (
        DEEPSEEK,
        drop_sets("cost-model-collectives"),
        "scenario.coefficients",
        ("all_reduce", "none"),
        drop_sets("cost-model-recurrent"),
    ),
    "no memory": (
        DEEPSEEK,
        drop_sets("cost-model-memory"),
        "scenario.coefficients",
        ("cudagraph_capture_bytes_piecewise", "cost-model-memory", "cost-model-primitives"),
        drop_sets("cost-model-host-overheads"),
    ),
    "no capture memory of the mode that runs": (
        DEEPSEEK,
        drop("cudagraph_capture_bytes_piecewise"),
        "scenario.coefficients",
        ("cudagraph_capture_bytes_piecewise", "cost-model-memory"),
        drop("cudagraph_capture_bytes_full"),
    ),
    "no efficiency of the served format": (
        DEEPSEEK,
        drop("gemm_m_half_fp8"),
        "scenario.coefficients",
        ("gemm_m_half_fp8", "fp8"),
        drop("gemm_m_half_bf16"),
    ),
    "no sets that apply": (
        DEEPSEEK,
        lambda documents: setattr(documents.chip, "name", "h9000"),
        "scenario.coefficients",
        ("h9000",),
        lambda documents: None,
    ),
}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records what reaches the C core; a refusal must come before."""
    specs: list[Any] = []
    make = kernel_module._new_handle
    monkeypatch.setattr(kernel_module, "_new_handle", lambda spec: specs.append(spec) or make(spec))
    return specs


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_its_setting_and_its_control_is_accepted(name: str, built: list[Any], fresh: Fresh) -> None:
    scenario, change, field, words, control = REFUSALS[name]
    documents = fresh(scenario)
    change(documents)
    with pytest.raises(RefusedError) as caught:
        pykernel.new(documents)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert caught.value.field == field
    assert message[0].islower() and not message.endswith(".")
    assert built == []
    accepted = fresh(scenario)
    control(accepted)
    assert pykernel.new(accepted).step_time(BATCH).no_overlap_ns > 0
    assert len(built) == 1


def assumed_here(kernel: CostModel) -> set[str]:
    """Names of the assumptions that the kernel made, not the registry."""
    return {origin.name for origin in kernel.provenance() if origin.set == pykernel.KERNEL_ASSUMPTION_SET}


@pytest.mark.parametrize(
    ("missing", "disclosed"),
    [
        (
            "cost-model-attention",
            {"attention_decode_rate", "attention_decode_rate_mla", "attention_prefill_work_scale"},
        ),
        ("cost-model-host-overheads", {"host_launch_per_kernel", "host_replay_graph_per_step"}),
        ("cost-model-recurrent", set()),
    ],
)
def test_an_optional_set_that_is_missing_is_disclosed(missing: str, disclosed: set[str], fresh: Fresh) -> None:
    documents = fresh()
    drop_sets(missing)(documents)
    kernel, whole = pykernel.new(documents), pykernel.new(fresh())
    added = assumed_here(kernel) - assumed_here(whole)
    assert disclosed <= added
    assert bool(added) is bool(disclosed)
    assert (kernel.step_time(BATCH) == whole.step_time(BATCH)) is not bool(disclosed)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda documents: edit_coefficient(documents, "attention_prefill_floor", 1e30), id="floor"),
        pytest.param(
            lambda documents: edit_coefficient(documents, "attention_prefill_floor", 1e308), id="floor beyond a float"
        ),
        pytest.param(lambda documents: setattr(documents.model.global_, "hidden_size", 10**40), id="hidden size"),
        pytest.param(lambda documents: setattr(documents.model.layer_kinds[0].nodes[6], "n_q", 2**40), id="heads"),
        pytest.param(lambda documents: setattr(documents.model.layer_kinds[0].nodes[6], "d_h", 2**40), id="width"),
        pytest.param(
            lambda documents: setattr(documents.model.layer_kinds[1].nodes[10], "experts", 2**40), id="experts"
        ),
        pytest.param(lambda documents: setattr(documents.chip, "sm_count", 2**40), id="SMs"),
        pytest.param(lambda documents: setattr(documents.chip, "tflops_fp8", 1e300), id="peak"),
        pytest.param(lambda documents: setattr(documents.model.layer_kinds[0].nodes[1], "n", 10**200), id="matrix"),
    ],
)
def test_a_number_beyond_all_reason_is_refused_and_not_a_crash(edit: Edit, fresh: Fresh) -> None:
    documents = fresh()
    edit(documents)
    with pytest.raises((RefusedError, DocumentError)):
        pykernel.new(documents)


@pytest.mark.parametrize("size", [2**20 + 1, 2**62])
def test_an_endless_list_of_graphs_is_refused_and_not_made(size: int, fresh: Fresh) -> None:
    documents = fresh()
    engine = documents.deployment.pools[0].engine
    engine.max_num_batched_tokens = engine.max_cudagraph_capture_size = size
    with pytest.raises(RefusedError, match=str(size)) as caught:
        pykernel.new(documents)
    assert caught.value.field == "engine.max_cudagraph_capture_size"
    engine.max_num_batched_tokens = 2**20
    assert pykernel.new(documents).capture_tokens() == 2**20


# ---- everything at once --------------------------------------------------------------------------------------------


def test_every_collective_without_a_measured_width_is_named(fresh: Fresh) -> None:
    documents = fresh()
    drop("collective_floor_alltoall_fp16")(documents)
    documents.deployment.pools[0].parallel.tp = 3
    (message,) = [str(one) for one in examine(documents).refusals if one.rule == "collective-width"]
    assert "all_reduce over 3 ranks (tensor), all_gather over 3" in message and "alltoall over 1 ranks" in message
    assert "all_gather 2, 4, 8, 16; reduce_scatter 2, 4, 8, 16; alltoall none" in message


def test_every_coefficient_out_of_range_is_named_with_its_set(fresh: Fresh) -> None:
    documents = fresh()
    wrong = {"gemm_m_half_fp8": -3.0, "host_completion": 1e300, "collective_peak_rate_alltoall_fp16_2rank_h200": -1.0}
    for name, value in wrong.items():
        edit_coefficient(documents, name, value)
    with pytest.raises(RefusedError) as refusal:
        pykernel.new(documents)
    assert refusal.value.rule == "coefficient-range"
    for name, value in wrong.items():
        assert f"{name} of cost-model-" in str(refusal.value) and f"is {value}, accepted is" in str(refusal.value)


def test_a_coefficient_that_no_law_reads_is_not_judged(fresh: Fresh) -> None:
    documents = fresh()
    edit_coefficient(documents, "hbm_constant_latency", -1.0)
    assert pykernel.new(documents)
