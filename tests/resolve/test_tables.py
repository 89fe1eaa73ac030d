"""Every row of the tables of resolution, with the case that it applies to and a twin that differs in one setting.

A refusal's twin is accepted and prices a step; an override's and an assumption's has none. The list of rows is
committed in rows.yaml and matched both ways, so that a row cannot come or go unseen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import pykernel
from pykernel import Batch, CostModel, Inputs, RefusedError, Request, rules
from pykernel import kernel as kernel_module
from pykernel.documents import Dbo, Eplb, Speculative
from pykernel.documents.unusable import UNUSABLE
from pykernel.resolve import examine
from pykernel.resolve.disclosures import MISSING, OVERRIDES, RECORDED, UNRECORDED
from pykernel.resolve.refusals import ENGINE, PRICE, REFUSALS

from .edits import Settings, apply

Fresh = Callable[..., Inputs]

DEEPSEEK, DENSE, MINIMAX = "deepseek-v3-h200-fp8-tp8", "llama-3.1-8b-h100-tp1", "minimax-m2.5-h200-tp8"
GLM, NEMOTRON = "glm-5-h200-tp8", "nemotron-3-ultra-h100-tp8-mtp"
BATCH = Batch([Request(1, 4_095, 1_024)] * 8 + [Request(600, 0, 600)])
SHORT = Batch([Request(1, 15, 8)])
ROWS: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "rows.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Pair:
    """A scenario, what both edit of it, and the one setting in which the case and its twin differ."""

    scenario: str
    setting: str
    case: Any
    twin: Any
    both: Settings = field(default_factory=dict)

    def inputs(self, fresh: Fresh, twin: bool = False) -> Inputs:
        return apply(fresh(self.scenario), {**self.both, self.setting: self.twin if twin else self.case})


SHARED = {"parallel.dcp": 8}
INNER = {**SHARED, "connector": "MultiConnector"}
INTERLEAVE = "engine.cp_kv_cache_interleave_size"
ROWS_OF_DSA = {"parallel.dcp": 2, "engine.cache_dtype": "fp8"}

REFUSED = {
    "coefficients-out-of-scope": Pair(DEEPSEEK, "chip.name", "h9000", "h200"),
    "quantization-unknown": Pair(DEEPSEEK, "engine.quantization", "fp8_per_block", "fp8"),
    "cache-inc": Pair(DEEPSEEK, "engine.cache_dtype", "fp8_inc", "fp8_e5m2"),
    "cache-packed": Pair(DEEPSEEK, "engine.cache_dtype", "fp8_ds_mla", "fp8"),
    "cache-nvfp4-latent": Pair(DEEPSEEK, "engine.cache_dtype", "nvfp4", "auto"),
    "cache-unsized": Pair(DENSE, "engine.cache_dtype", "int8_per_token_head", "nvfp4"),
    "cache-unknown": Pair(DENSE, "engine.cache_dtype", "bogus", "auto"),
    "mamba-cache-type": Pair(NEMOTRON, "engine.mamba_cache_dtype", "fp8", "float32"),
    "mamba-state-type": Pair(NEMOTRON, "engine.mamba_ssm_cache_dtype", "fp8", "float32"),
    "pipeline-parallel": Pair(DEEPSEEK, "parallel.pp", 2, 1, {"parallel.tp": 4}),
    "speculator-layers": Pair(NEMOTRON, "draft", ["nowhere"], ["attention", "moe"]),
    "draft-tokens": Pair(NEMOTRON, "engine.speculative", Speculative("mtp", 65), Speculative("mtp", 64)),
    "query-heads": Pair(DEEPSEEK, "parallel.tp", 8, 4, {"heads": {"query": 132}}),
    "mixer-heads": Pair(NEMOTRON, "heads", {"mixer": 252}, {"mixer": 256}),
    "dual-batch-overlap": Pair(DEEPSEEK, "engine.dbo", Dbo(True), Dbo(False)),
    "mamba-mode": Pair(NEMOTRON, "engine.mamba_cache_mode", "sometimes", "align"),
    "sparse-block": Pair(GLM, "engine.block_size", 32, 128),
    "prefill-context-latent": Pair(MINIMAX, "parallel.pcp", 2, 1, {"parallel.tp": 4}),
    "prefill-and-decode-context": Pair(DEEPSEEK, "parallel.dcp", 2, 1, {"parallel.tp": 4, "parallel.pcp": 2}),
    "query-replication": Pair(DEEPSEEK, "engine.dcp_q_replicate", True, False, SHARED),
    "combine-unlisted": Pair(DEEPSEEK, "engine.dcp_comm_backend", "a2a", "ag_rs", {"combines": ("ag_rs",)}),
    "combine-unknown": Pair(DEEPSEEK, "engine.dcp_comm_backend", "rs_ag", "a2a", {"combines": None}),
    "combine-under-pcp": Pair(
        GLM, "engine.dcp_comm_backend", "a2a", "ag_rs", {"parallel.tp": 2, "parallel.pcp": 4, "parallel.dcp": 4}
    ),
    "interleave-inner-connectors": Pair(DEEPSEEK, INTERLEAVE, 12, 8, INNER),
    "interleave": Pair(DEEPSEEK, INTERLEAVE, 12, 8, SHARED),
    "interleave-open-block": Pair(DEEPSEEK, INTERLEAVE, 48, 32, {**SHARED, "engine.block_size": 0}),
    "interleave-unstated": Pair(DEEPSEEK, INTERLEAVE, 0, 8, INNER),
    "memory-derate": Pair(DEEPSEEK, "drop", ["hbm_derate"], ["hbm_constant_latency"]),
    "memory-rate": Pair(DEEPSEEK, "value", {"hbm_derate": -0.5}, {"hbm_derate": 0.5}),
    "coefficient-range": Pair(DEEPSEEK, "value", {"gemm_eps_max_fp8": 5.0}, {"gemm_eps_max_fp8": 0.5}),
    "compute-peak": Pair(
        DENSE, "chip.tflops_fp8", 0, 1_979.0, {"model.global_.weight_dtype": "int8", "engine.quantization": ""}
    ),
    "efficiency": Pair(DEEPSEEK, "drop", ["gemm_m_half_fp8"], ["gemm_m_half_bf16"]),
    "efficiency-by-shape": Pair(DEEPSEEK, "add", ["gemm_n_half_fp8"], ["gemm_n_half_fp8", "gemm_k_half_fp8"]),
    "collective-width": Pair(MINIMAX, "parallel.tp", 3, 4),
    "graph-mode": Pair(DEEPSEEK, "engine.cudagraph_mode", "SOMETIMES", "none"),
    "capture-sizes": Pair(
        DEEPSEEK, "engine.max_cudagraph_capture_size", 128, 64, {"engine.cudagraph_capture_sizes": [8, 64]}
    ),
    "capture-maximum": Pair(
        DEEPSEEK, "engine.max_cudagraph_capture_size", 2**21, 2**20, {"engine.max_num_batched_tokens": 2**21}
    ),
    "sparse-prefill-context-graphs": Pair(
        GLM, "engine.cudagraph_mode", "PIECEWISE", "NONE", {"parallel.tp": 2, "parallel.pcp": 4}
    ),
    "prefill-context-graphs": Pair(
        DEEPSEEK, "engine.cudagraph_mode", "FULL", "FULL_DECODE_ONLY", {"parallel.tp": 4, "parallel.pcp": 2}
    ),
    "experts": Pair("qwen3-30b-a3b-h200-ep8", "experts", 7, 8),
    "sparse-part": Pair(GLM, "chip", "a100-80", "h200"),
    "sparse-backend": Pair(GLM, "engine.cache_dtype", "nvfp4_ds_mla", "fp8_ds_mla"),
    "sparse-context-cache": Pair(GLM, "engine.cache_dtype", "bfloat16", "fp8", {"parallel.tp": 4, "parallel.dcp": 2}),
    "sparse-context-combine": Pair(GLM, "engine.dcp_comm_backend", "a2a", "ag_rs", ROWS_OF_DSA),
    "sparse-context-layout": Pair(
        GLM,
        "engine.cache_dtype",
        "nvfp4_ds_mla",
        "fp8",
        {"chip": "b200", "parallel.tp": 2, "parallel.pcp": 4, "parallel.dcp": 4},
    ),
    "sparse-context-heads": Pair(GLM, "parallel.tp", 2, 4, ROWS_OF_DSA),
    "sparse-context-padding": Pair(GLM, "parallel.dcp", 8, 4, {"heads": {"query": 128}}),
    "memory-size": Pair(DEEPSEEK, "value", {"engine_workspace_bytes": -1.0}, {"engine_workspace_bytes": 1.0}),
    "storage-name": Pair(DEEPSEEK, "storage-name", "x" * 64, "x" * 63),
    "memory-magnitude": Pair(DEEPSEEK, "drop", ["engine_workspace_bytes"], ["nccl_communicator_bytes_4rank"]),
}

DEEPEP = {"engine.all2all_backend": "deepep_high_throughput"}
EP16 = "minimax-m2.5-h200-ep16"

OVERRIDDEN = {
    "custom-all-reduce-ranks": Pair(DENSE, "engine.disable_custom_all_reduce", False, True),
    "custom-all-reduce-node": Pair(
        EP16, "parallel.tp", 16, 8, {"parallel.dp": 1, "parallel.enable_expert_parallel": False}
    ),
    "mamba-mode": Pair(NEMOTRON, "engine.enable_prefix_caching", True, False, {"engine.mamba_cache_mode": "none"}),
    "interleave-pinned": Pair(DEEPSEEK, "connector", "NixlConnector", "NixlPullConnector", SHARED),
    "cache-layout": Pair(GLM, "engine.cache_dtype", "fp8", "fp8_ds_mla"),
    "no-cascade": Pair(DEEPSEEK, "engine.disable_cascade_attn", False, True),
    "graphs-off": Pair(EP16, "engine.all2all_backend", "deepep_high_throughput", "deepep_low_latency"),
}

ASSUMED = {
    "mamba_cache_mode": Pair(NEMOTRON, "engine.mamba_cache_mode", "", "align"),
    "block_size": Pair(DEEPSEEK, "engine.block_size", 0, 64),
    "dcp_comm_backend": Pair(DEEPSEEK, "engine.dcp_comm_backend", "", "ag_rs", SHARED),
    "cudagraph_mode": Pair(DEEPSEEK, "engine.cudagraph_mode", "", "FULL_AND_PIECEWISE"),
    "max_num_seqs": Pair(DEEPSEEK, "engine.max_num_seqs", 0, 1_024),
    "max_cudagraph_capture_size": Pair(DEEPSEEK, "engine.max_cudagraph_capture_size", 0, 512),
    "mla_context_chunk": Pair(DEEPSEEK, "engine.max_model_len", 0, 131_072, SHARED),
    "sparse_mla_backend": Pair(GLM, "engine.cache_dtype", "fp8_e4m3", "fp8_ds_mla"),
    "max_num_batched_tokens": Pair(DEEPSEEK, "engine.max_num_batched_tokens", 0, 8_192),
    "engine_version": Pair(DEEPSEEK, "scenario.engine_version", "0.29.0", "0.31.0"),
}
"""The twin states what the case leaves open, so that both price alike where the value is the same."""

OTHER_VALUE = {"sparse_mla_backend"}

OPEN = {
    "enable_prefix_caching": Pair(DEEPSEEK, "engine.enable_prefix_caching", None, True),
    "cache_dtype": Pair(DENSE, "engine.cache_dtype", "", "auto"),
    "mamba_cache_dtype": Pair(NEMOTRON, "engine.mamba_cache_dtype", "", "auto"),
    "quantization": Pair(DEEPSEEK, "engine.quantization", "", "fp8"),
    "async_scheduling": Pair(DEEPSEEK, "engine.async_scheduling", None, True),
    "disable_cascade_attn": Pair(DEEPSEEK, "engine.disable_cascade_attn", None, True),
    "disable_custom_all_reduce": Pair(DEEPSEEK, "engine.disable_custom_all_reduce", None, False),
    "all2all_backend": Pair("qwen3-30b-a3b-h200-ep8", "engine.all2all_backend", "", "naive"),
    "cp_kv_cache_interleave_size": Pair(DEEPSEEK, INTERLEAVE, 0, 1, SHARED),
    "gpu_memory_utilization": Pair(DEEPSEEK, "engine.gpu_memory_utilization", 0.0, 0.92),
    "scheduling_policy": Pair(DEEPSEEK, "engine.scheduling_policy", "", "fcfs"),
    "speculative": Pair(DEEPSEEK, "engine.speculative", None, Speculative("ngram", 1)),
    "eplb": Pair(DEEPSEEK, "engine.eplb", None, Eplb()),
    "dbo": Pair(DEEPSEEK, "engine.dbo", None, Dbo()),
}

QWEN35 = "qwen3.5-397b-a17b-b300-fp4-tp4"
UNUSED = "hbm_constant_latency"
WINDOWED = "gpt-oss-120b-h100-fp4-tp2"

# The scenario in which a coefficient is used, and one in which it is not (None where there is none).
NEEDED: dict[str, tuple[str, str | None]] = {
    "recurrent_decode_floor_mamba2": (NEMOTRON, DEEPSEEK),
    "recurrent_decode_rate_mamba2": (NEMOTRON, DEEPSEEK),
    "recurrent_decode_floor_gdn": (QWEN35, DEEPSEEK),
    "recurrent_decode_rate_gdn": (QWEN35, DEEPSEEK),
    "attention_decode_floor": (DENSE, DEEPSEEK),
    "attention_decode_rate": (DENSE, DEEPSEEK),
    "attention_decode_rate_swa": (WINDOWED, DENSE),
    "attention_decode_rate_mla": (DEEPSEEK, DENSE),
    "attention_decode_floor_swa": (WINDOWED, DENSE),
    "attention_prefill_floor": (DENSE, None),
    "attention_prefill_work_scale": (DENSE, None),
    "moe_routing_imbalance_median": (MINIMAX, DENSE),
    "host_launch_eager_per_layer": (DENSE, None),
    "host_launch_per_kernel": (DENSE, None),
    "host_replay_graph_per_step": (DENSE, None),
}
HOST_METHODS = {
    *("host_admission_per_token", "host_admission_per_request", "host_output_token", "host_completion"),
    "host_link_bandwidth",
}
"""Used by other methods than a step."""

NOWHERE = {
    *("recurrent_decode_floor_kda", "recurrent_decode_rate_kda"),
    "attention_decode_rate_sparse_mla",
}
"""Of no model or no set that comes with the package; their rows are held to made-up entries below."""


# ---- the list of rows ----------------------------------------------------------------------------------------------


def test_the_tables_hold_the_rows_that_are_listed_and_no_other() -> None:
    found = {
        "unusable": [row.id for row in UNUSABLE],
        "refusals": [row.id for row in REFUSALS],
        "overrides": [row.id for row in OVERRIDES],
        "assumptions": [row.name for row in RECORDED],
        "defaults": [row.name for row in UNRECORDED],
        "coefficients": [row.name for row in MISSING],
    }
    assert {kind: list(rows) for kind, rows in ROWS.items()} == found


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        ("refusals", set(REFUSED)),
        ("overrides", set(OVERRIDDEN)),
        ("assumptions", set(ASSUMED)),
        ("defaults", set(OPEN)),
        ("coefficients", {*NEEDED, *HOST_METHODS, *NOWHERE}),
    ],
)
def test_every_row_has_a_case(kind: str, cases: set[str]) -> None:
    assert cases == set(ROWS[kind])


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.id)
def test_a_refusal_says_all_that_a_user_needs(row: Any) -> None:
    assert row.verdict in (ENGINE, PRICE)
    assert row.when and row.why and row.nearest and row.origin
    assert not row.why.endswith(".") and not row.why[0].isupper()
    assert row.setting.partition(".")[0] in ("parallel", "engine", "scenario", "cluster", "model", "storage")


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records what reaches the C core; a refusal must come before."""
    specs: list[Any] = []
    make = kernel_module._new_handle
    monkeypatch.setattr(kernel_module, "_new_handle", lambda spec: specs.append(spec) or make(spec))
    return specs


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_is_refused_by_its_row_and_its_twin_prices_a_step(name: str, built: list[Any], fresh: Fresh) -> None:
    pair, row = REFUSED[name], next(row for row in REFUSALS if row.id == name)
    with pytest.raises(RefusedError) as caught:
        pykernel.new(pair.inputs(fresh))
    assert (caught.value.rule, caught.value.field) == (name, row.setting)
    assert row.why in str(caught.value) and not str(caught.value).endswith(".")
    assert built == []
    assert pykernel.new(pair.inputs(fresh, twin=True)).step_time(BATCH).no_overlap_ns > 0


ALSO_FOUND = {
    # Ranks that share both run sparse latent attention alone, whose backend says the same of the combine.
    "combine-under-pcp": ["sparse-context-combine"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_examination_finds_that_row_and_nothing_else_at_fault(name: str, fresh: Fresh) -> None:
    pair = REFUSED[name]
    found = examine(pair.inputs(fresh))
    assert [error.rule for error in found.refusals] == [name, *ALSO_FOUND.get(name, [])]
    assert found.resolved is None
    twin = examine(pair.inputs(fresh, twin=True))
    assert twin.refusals == () and twin.resolved is not None


def test_an_examination_finds_every_fault_in_the_order_of_the_tables(fresh: Fresh) -> None:
    faults = {
        "engine.quantization": "fp8_per_block",
        "engine.cache_dtype": "bogus",
        "parallel.tp": 3,
        "engine.dcp_comm_backend": "ring",
        "engine.cudagraph_mode": "SOMETIMES",
        "engine.dbo": Dbo(True),
        "engine.mamba_cache_mode": "sometimes",
    }
    documents = apply(fresh(), faults)
    found = [error.rule for error in examine(documents).refusals]
    order = [row.id for row in REFUSALS]
    assert found == sorted(found, key=order.index)
    assert set(found) == {
        *("quantization-unknown", "cache-unknown", "query-heads", "dual-batch-overlap", "mamba-mode"),
        *("combine-unlisted", "combine-unknown", "graph-mode", "collective-width"),
    }
    with pytest.raises(RefusedError) as caught:
        pykernel.new(documents)
    assert caught.value.rule == found[0]


def test_an_accepted_deployment_resolves_alike_in_both_ways(fresh: Fresh) -> None:
    found = examine(fresh()).resolved
    kernel = pykernel.new(fresh())
    assert found is not None
    assert found.provenance == kernel.provenance() and found.resolution == kernel.resolved()


# ---- overrides -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_a_request_that_is_not_honoured_is_overridden_with_its_reason(name: str, fresh: Fresh) -> None:
    pair, row = OVERRIDDEN[name], next(row for row in OVERRIDES if row.id == name)
    kernel, twin = pykernel.new(pair.inputs(fresh)), pykernel.new(pair.inputs(fresh, twin=True))
    (override,) = [entry for entry in kernel.resolved().overrides if entry.field == row.field]
    assert override.requested != override.resolved and override.reason
    assert [entry for entry in twin.resolved().overrides if entry.field == row.field] == []
    assert kernel.deployment() == pair.inputs(fresh).deployment.pools[0]


# ---- assumptions ---------------------------------------------------------------------------------------------------


def own(kernel: CostModel) -> dict[str, str]:
    """The kernel's own assumptions, name to scope."""
    rows = [origin for origin in kernel.provenance() if origin.set == pykernel.KERNEL_ASSUMPTION_SET]
    assert all(origin.method == "assumed" for origin in rows)
    assert max(Counter(origin.name for origin in rows).values(), default=0) <= 1
    return {origin.name: origin.scope for origin in rows}


@pytest.mark.parametrize("name", ASSUMED)
def test_a_setting_left_open_is_one_entry_that_stating_it_takes_away(name: str, fresh: Fresh) -> None:
    pair = ASSUMED[name]
    case, twin = pykernel.new(pair.inputs(fresh)), pykernel.new(pair.inputs(fresh, twin=True))
    assert set(own(case)) - set(own(twin)) == {name}
    assert set(own(twin)) <= set(own(case))
    assert case.evidence().total == twin.evidence().total + 1
    assert case.evidence().measured == twin.evidence().measured
    value, _, reason = own(case)[name].partition(": ")
    assert reason
    if name in OTHER_VALUE:
        return
    assert case.step_time(BATCH) == twin.step_time(BATCH)
    stated = {"mla_context_chunk": "65536", "engine_version": "0.31.0"}.get(name, str(pair.twin))
    assert value == stated


@pytest.mark.parametrize("name", OPEN)
def test_a_default_of_no_consequence_shows_in_a_report_only(name: str, fresh: Fresh) -> None:
    pair, row = OPEN[name], next(row for row in UNRECORDED if row.name == name)
    case, twin = examine(pair.inputs(fresh)), examine(pair.inputs(fresh, twin=True))
    assert row.open(case.case) and not row.open(twin.case)
    assert case.resolved is not None and twin.resolved is not None
    assert name not in {origin.name for origin in case.resolved.provenance}
    if name != "speculative":
        assert case.resolved.provenance == twin.resolved.provenance


def test_a_combine_that_no_list_could_check_is_disclosed_as_stated(fresh: Fresh) -> None:
    settings = {**SHARED, "engine.dcp_comm_backend": "a2a", "combines": None}
    assert own(pykernel.new(apply(fresh(), settings)))["dcp_comm_backend"].startswith("a2a: ")
    assert "dcp_comm_backend" not in own(pykernel.new(apply(fresh(), {**settings, "parallel.dcp": 1})))


# ---- coefficients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEEDED)
def test_a_coefficient_that_is_used_is_missed_and_disclosed(name: str, fresh: Fresh) -> None:
    used, unused = NEEDED[name]
    for scenario in filter(None, (used, unused)):
        batch = SHORT if "decode_floor" in name or name == "host_replay_graph_per_step" else BATCH
        whole = pykernel.new(apply(fresh(scenario), {"drop": []}))
        lacking = pykernel.new(apply(fresh(scenario), {"drop": [name]}))
        disclosed = set(own(lacking)) - set(own(whole))
        assert disclosed == ({name} if scenario == used else set())
        assert (lacking.step_time(batch) == whole.step_time(batch)) is (scenario != used)
        if scenario == used:
            assert own(lacking)[name].startswith("absent: ")


@pytest.mark.parametrize("name", sorted(HOST_METHODS))
def test_a_coefficient_of_another_method_is_disclosed_always(name: str, fresh: Fresh) -> None:
    whole, lacking = pykernel.new(fresh()), pykernel.new(apply(fresh(), {"drop": [name]}))
    assert set(own(lacking)) - set(own(whole)) == {name}
    assert lacking.step_time(BATCH) == whole.step_time(BATCH)


def test_the_rate_of_sparse_latent_attention_is_missed_and_its_floor_is_the_parts(fresh: Fresh) -> None:
    rate = "attention_decode_rate_sparse_mla"
    assert rate in own(pykernel.new(fresh(GLM)))
    assert not {rate, "attention_decode_floor_sparse_mla"} & set(own(pykernel.new(apply(fresh(GLM), {"add": [rate]}))))


def test_a_latent_floor_that_is_missing_is_the_parts_which_it_was_assumed_to_be(fresh: Fresh) -> None:
    whole, lacking = pykernel.new(fresh()), pykernel.new(apply(fresh(), {"drop": ["attention_decode_floor_mla"]}))
    assert set(own(lacking)) == set(own(whole))
    assert lacking.step_time(SHORT) == whole.step_time(SHORT)


def test_delta_attention_without_its_pair_is_disclosed(fresh: Fresh) -> None:
    documents = fresh(NEMOTRON)
    for kind in documents.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "RecurrentUpdate":
                node.recurrent_kind = "kda"
    pair = {"recurrent_decode_floor_kda", "recurrent_decode_rate_kda"}
    assert not pair & set(own(pykernel.new(documents)))
    lacking = pykernel.new(apply(documents, {"drop": sorted(pair)}))
    assert pair <= set(own(lacking))


def test_a_value_of_zero_that_is_not_charged_is_not_absent(fresh: Fresh) -> None:
    names = {entry.name for entries in fresh().coefficients for entry in entries.coefficients}
    assert UNUSED in names
    whole = pykernel.new(fresh())
    assert [origin.name for origin in whole.provenance() if origin.method == "not_charged"] != []
    assert not {origin.name for origin in whole.provenance() if origin.method == "not_charged"} & set(own(whole))


# ---- evidence ------------------------------------------------------------------------------------------------------


def test_evidence_of_the_published_deployment(fresh: Fresh) -> None:
    kernel = pykernel.new(fresh(DEEPSEEK))
    evidence = kernel.evidence()
    assert (evidence.measured, evidence.total, len(evidence.assumed)) == (110, 149, 38)
    methods = Counter(origin.method for origin in kernel.provenance())
    assert methods == {"assumed": 38, "measured": 93, "vendor_spec": 17, "not_charged": 1}
    assert set(own(kernel)) == {"max_cudagraph_capture_size", "engine_version"}


def test_a_plain_deployment_that_states_everything_assumes_nothing(fresh: Fresh) -> None:
    settings = {"scenario.engine_version": "0.31.0", "engine.max_cudagraph_capture_size": 64}
    documents = apply(fresh(DENSE), settings | {"rules": rules("0.31.0")})
    assert own(pykernel.new(documents)) == {}


def test_no_set_that_comes_with_the_package_has_the_name_of_the_assumptions() -> None:
    assert pykernel.KERNEL_ASSUMPTION_SET not in pykernel.documents.list_coefficient_sets()


def test_the_widths_that_a_refusal_names_are_accepted(fresh: Fresh) -> None:
    with pytest.raises(RefusedError, match="widths that do: ") as caught:
        pykernel.new(apply(fresh(), {"parallel.tp": 5}))
    named = [int(width) for width in str(caught.value).rpartition("widths that do: ")[2].split(", ")]
    assert named == [width for width in range(1, 129) if math.gcd(width, 128) == width]
    for width in (1, 2, 4, 8):
        assert width in named
        pykernel.new(apply(fresh(), {"parallel.tp": width}))
