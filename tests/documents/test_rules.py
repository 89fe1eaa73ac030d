"""The 0.29.0 pack: its facts, and each rule firing exactly where its condition holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from pykernel.documents import Deployment, Inputs, ModelGraph, Node, Rules, Speculator, Stack, rules
from pykernel.documents.deployment import (
    Dbo,
    Engine,
    Eplb,
    Offload,
    OffloadTier,
    Parallel,
    PdTransfer,
    Pool,
    Speculative,
)
from pykernel.documents.engine_rules import RULES
from pykernel.documents.inputs import validate
from pykernel.documents.repos import Repos, open_inputs
from pykernel.documents.rules import PACKS, findings, versions
from pykernel.errors import DocumentError, Problem

ROOT = Path(__file__).resolve().parents[2] / "testdata" / "bad" / "repo"


@pytest.fixture
def pack() -> Rules:
    return rules("0.29.0")


@pytest.fixture
def inputs() -> Inputs:
    return open_inputs("chat-h200", Repos(ROOT / "scenarios", ROOT / "catalog", ROOT / "registry"))


def test_the_facts_of_the_release(pack: Rules) -> None:
    assert [width for width in range(20) if pack.supports_custom_all_reduce(width)] == [2, 4, 6, 8, 16]
    assert [pack.offload_fetch_sms(size) for size in (28671, 28672, 28673, 0)] == [0, 12, 0, 0]
    assert [pack.dual_batch_overlap(True, tokens, True) for tokens in (31, 32)] == [False, True]
    assert [pack.dual_batch_overlap(True, tokens, False) for tokens in (511, 512)] == [False, True]
    assert not pack.dual_batch_overlap(False, 4096, True)
    assert pack.dcp_comm_backends == ("ag_rs", "a2a")
    assert set(pack.speculative_methods) - set(pack.async_speculative_methods) == {"ngram", "medusa", "mlp_speculator"}
    counts = {field.name: getattr(pack, field.name) for field in dataclasses.fields(pack)}
    lengths = {name: len(value) for name, value in counts.items() if isinstance(value, tuple) and value}
    assert lengths == {
        "rules": 18, "all2all_backends": 12, "sp_moe_backends": 7, "allreduce_backends": 2,
        "custom_allreduce_widths": 5, "cudagraph_modes": 5, "cache_dtypes": 17, "mamba_cache_modes": 3,
        "scheduling_policies": 2, "speculative_methods": 16, "async_speculative_methods": 13, "offload_specs": 2,
        "eviction_policies": 2, "connectors": 16, "quantizations": 30, "dcp_comm_backends": 2,
    }  # fmt: skip


def test_sequence_parallel_experts_need_all_four_conditions(pack: Rules) -> None:
    on = ("allgather_reducescatter", True, 2, 2)
    assert pack.sequence_parallel_moe(*on)
    for other in (
        ("naive", True, 2, 2),
        ("", True, 2, 2),
        (on[0], False, 2, 2),
        (on[0], True, 1, 2),
        (on[0], True, 2, 1),
    ):
        assert not pack.sequence_parallel_moe(*other)
    assert set(pack.sp_moe_backends) < set(pack.all2all_backends)


def test_an_unknown_release_names_the_known_ones() -> None:
    assert versions() == ["0.29.0", "0.31.0"]
    with pytest.raises(DocumentError, match=r"no rules pack for engine '0\.29'; did you mean 0\.29\.0"):
        rules("0.29")


def test_a_report_on_an_unknown_release_is_one_warning(inputs: Inputs) -> None:
    inputs.scenario.engine_version = "0.29"
    inputs.deployment.pools[0].engine.cudagraph_mode = "SOMETIMES"
    [problem] = findings(inputs.scenario, inputs.deployment, inputs.model)
    assert (problem.severity, problem.rule, problem.line) == ("warning", "engine-version-known", 4)


def test_another_release_is_another_file(tmp_path: Path) -> None:
    text = (PACKS / "0.29.0.yaml").read_text().replace('engine_version: "0.29.0"', 'engine_version: "0.30.0"')
    (tmp_path / "0.30.0.yaml").write_text(text.replace("dcp_comm_backends: [ag_rs, a2a]\n", ""))
    assert versions(tmp_path) == ["0.30.0"]
    pack = rules("0.30.0", tmp_path)
    assert (pack.engine_version, pack.dcp_comm_backends) == ("0.30.0", None)
    (tmp_path / "0.30.0.yaml").write_text(text.replace("- quantization-known", "- quantisation-known"))
    with pytest.raises(DocumentError, match=r"rules\.rules\[11\]: .*did you mean quantization-known"):
        rules("0.30.0", tmp_path)


def test_the_packs_switch_on_every_rule_there_is(pack: Rules) -> None:
    assert {*pack.rules, *rules("0.31.0").rules} == set(RULES)


def test_sound_documents_draw_no_finding(inputs: Inputs, pack: Rules) -> None:
    assert pack.check(inputs.scenario, inputs.deployment, inputs.model) == []


def test_rules_without_their_documents_find_nothing(inputs: Inputs, pack: Rules) -> None:
    assert pack.check(None, None, None) == []
    assert pack.check(inputs.scenario, None, inputs.model) == []
    assert pack.check(None, inputs.deployment, None) == []


def _offload(inputs: Inputs, **values: str) -> None:
    inputs.deployment.offload = Offload([OffloadTier("cpu_dram", 1)], **values)  # type: ignore[arg-type]


def _recurrent(model: ModelGraph) -> None:
    model.layer_kinds[0].nodes[2] = Node("RecurrentUpdate", recurrent_kind="kda", n_heads=8, state_size=64)


def _engine(**values: object) -> Callable[[Engine], None]:
    def change(engine: Engine) -> None:
        for name, value in values.items():
            setattr(engine, name, value)

    return change


ENGINE_CASES = [
    ("all2all-backend-known", "error", "all2all_backend", "own", "naive"),
    ("allreduce-backend-known", "error", "allreduce_backend", "ring", "nccl"),
    ("enum-values-known", "error", "cudagraph_mode", "piecewise", "PIECEWISE"),
    ("enum-values-known", "error", "cache_dtype", "nvfp4_ds_mla", "nvfp4_4over6"),
    ("enum-values-known", "error", "mamba_cache_dtype", "fp32", "auto"),
    ("enum-values-known", "error", "mamba_ssm_cache_dtype", "fp32", "float16"),
    ("enum-values-known", "error", "scheduling_policy", "sjf", "priority"),
    ("dcp-comm-backend-known", "error", "dcp_comm_backend", "ring", "a2a"),
    ("quantization-known", "warning", "quantization", "nvfp4", "mxfp4"),
]


@pytest.mark.parametrize(("rule", "severity", "name", "unknown", "known"), ENGINE_CASES)
def test_stated_engine_values_are_looked_up(
    inputs: Inputs, pack: Rules, rule: str, severity: str, name: str, unknown: str, known: str
) -> None:
    engine = inputs.deployment.pools[0].engine
    setattr(engine, name, unknown)
    [problem] = pack.check(inputs.scenario, inputs.deployment, inputs.model)
    assert (problem.rule, problem.severity, problem.path) == (rule, severity, f"deployment.pools[0].engine.{name}")
    assert Path(problem.file).name == "chat-h200.yaml"
    setattr(engine, name, known)
    assert pack.check(inputs.scenario, inputs.deployment, inputs.model) == []


def _set_mode(inputs: Inputs) -> None:
    _recurrent(inputs.model)
    inputs.deployment.pools[0].engine.mamba_cache_mode = "sometimes"


def _set_interleave(inputs: Inputs) -> None:
    inputs.deployment.pools[0].parallel.dcp = 2
    inputs.deployment.pools[0].engine.cp_kv_cache_interleave_size = 5


def _set_balanced(inputs: Inputs) -> None:
    inputs.deployment.pools[0].parallel = Parallel(5, 1, 1, enable_expert_parallel=True)
    inputs.deployment.pools[0].engine.eplb = Eplb(True, 1)


def _set_imbalance(tp: int) -> Callable[[Inputs], None]:
    def change(inputs: Inputs) -> None:
        inputs.deployment.pools[0].parallel = Parallel(tp, 1, 1, enable_expert_parallel=True)

    return change


def _set_custom(inputs: Inputs) -> None:
    inputs.deployment.pools[0].parallel.tp = 12
    inputs.deployment.pools[0].engine.allreduce_backend = "custom"


def _set_cascade(inputs: Inputs) -> None:
    engine = inputs.deployment.pools[0].engine
    engine.disable_cascade_attn, engine.speculative = False, Speculative("mtp", 1)


def _set_sequence_parallel(inputs: Inputs) -> None:
    inputs.deployment.pools[0].parallel = Parallel(4, 1, 2, enable_expert_parallel=True)
    inputs.deployment.pools[0].engine.all2all_backend = "deepep_low_latency"


def _set_engine(**values: object) -> Callable[[Inputs], None]:
    return lambda inputs: _engine(**values)(inputs.deployment.pools[0].engine)


def _set_draft(inputs: Inputs) -> None:
    inputs.model.speculator = Speculator("qwen3_5_mtp", 1, Stack(pattern=["moe"], repeat=1))


def _set_pcp(inputs: Inputs) -> None:
    inputs.deployment.pools[0].parallel = Parallel(2, 1, 2, pcp=2)


def _set_transfer(inputs: Inputs) -> None:
    inputs.deployment.pd_transfer = PdTransfer("NixlConector")


OTHER_CASES: list[tuple[str, str, str, Callable[[Inputs], None]]] = [
    ("speculative-method-known", "error", "deployment.pools[0].engine.speculative.method",
     _set_engine(speculative=Speculative("medusa2", 1))),
    ("speculative-method-known", "error", "model.speculator.method", _set_draft),
    ("cp-kv-cache-interleave-fits-block", "error", "deployment.pools[0].engine.cp_kv_cache_interleave_size",
     _set_interleave),
    ("pcp-excludes-data-parallelism", "error", "deployment.pools[0].parallel.pcp", _set_pcp),
    ("expert-divisibility-under-eplb", "error", "deployment.pools[0].engine.eplb.num_redundant_experts", _set_balanced),
    ("expert-imbalance-without-eplb", "error", "deployment.pools[0].parallel.enable_expert_parallel",
     _set_imbalance(17)),
    ("expert-imbalance-without-eplb", "warning", "deployment.pools[0].parallel.enable_expert_parallel",
     _set_imbalance(6)),
    ("offload-spec-known", "error", "deployment.offload.spec", lambda inputs: _offload(inputs, spec="TapeSpec")),
    ("connector-known", "warning", "deployment.offload.connector", lambda inputs: _offload(inputs, connector="Own")),
    ("connector-known", "warning", "deployment.pd_transfer.connector", _set_transfer),
    ("eviction-policy-known", "warning", "deployment.offload.eviction_policy",
     lambda inputs: _offload(inputs, eviction_policy="fifo")),
    ("mamba-cache-mode-matches-model", "warning", "deployment.pools[0].engine.mamba_cache_mode",
     lambda inputs: _recurrent(inputs.model)),
    ("mamba-cache-mode-matches-model", "warning", "deployment.pools[0].engine.mamba_cache_mode",
     _set_engine(mamba_cache_mode="align")),
    ("enum-values-known", "error", "deployment.pools[0].engine.mamba_cache_mode", _set_mode),
    ("cascade-attention-is-opt-in", "warning", "deployment.pools[0].engine.disable_cascade_attn", _set_cascade),
    ("dbo-thresholds-stated-when-enabled", "warning", "deployment.pools[0].engine.dbo", _set_engine(dbo=Dbo(True))),
    ("sequence-parallel-moe-implied", "warning", "deployment.pools[0].engine.all2all_backend", _set_sequence_parallel),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "severity", "path", "change"), OTHER_CASES)
def test_each_rule_fires_on_its_condition_alone(
    inputs: Inputs, pack: Rules, rule: str, severity: str, path: str, change: Callable[[Inputs], None]
) -> None:
    change(inputs)
    found = pack.check(inputs.scenario, inputs.deployment, inputs.model)
    assert [(problem.rule, problem.severity, problem.path) for problem in found] == [(rule, severity, path)]


def test_a_custom_all_reduce_is_checked_for_width_and_for_the_node(inputs: Inputs, pack: Rules) -> None:
    _set_custom(inputs)
    found = pack.check(inputs.scenario, inputs.deployment, inputs.model)
    assert [problem.rule for problem in found] == ["custom-allreduce-reachable"] * 2
    inputs.deployment.pools[0].parallel.tp = 8
    assert pack.check(inputs.scenario, inputs.deployment, inputs.model) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda inputs: setattr(inputs.deployment, "pd_transfer", PdTransfer()),
        _offload,
        lambda inputs: setattr(inputs.deployment.pools[0].parallel, "dcp", 1),
        lambda inputs: setattr(inputs.deployment.pools[0].engine, "block_size", 0),
        lambda inputs: setattr(inputs.deployment.pools[0].engine, "cp_kv_cache_interleave_size", 4),
    ],
)
def test_the_interleave_is_only_judged_where_nothing_else_decides_it(
    inputs: Inputs, pack: Rules, change: Callable[[Inputs], None]
) -> None:
    _set_interleave(inputs)
    change(inputs)
    assert pack.check(inputs.scenario, inputs.deployment, inputs.model) == []


def test_a_context_width_of_one_is_off(inputs: Inputs, pack: Rules) -> None:
    inputs.deployment.pools[0].parallel = Parallel(2, 1, 2, pcp=1)
    assert pack.check(inputs.scenario, inputs.deployment, inputs.model) == []


def test_the_message_says_how_many_redundant_experts_would_fit(inputs: Inputs, pack: Rules) -> None:
    _set_balanced(inputs)  # 16 + 1 experts over 5 ranks
    [problem] = pack.check(inputs.scenario, inputs.deployment, inputs.model)
    assert "3 more redundant experts" in problem.message
    eplb = inputs.deployment.pools[0].engine.eplb
    assert eplb is not None
    eplb.num_redundant_experts += 3
    assert pack.check(inputs.scenario, inputs.deployment, inputs.model) == []


def test_findings_of_the_rules_are_no_field_errors(inputs: Inputs) -> None:
    inputs.deployment.pools[0].engine.cudagraph_mode = "SOMETIMES"
    assert validate(inputs) == []


def test_a_rule_finding_prints_its_rule() -> None:
    problem = Problem("error", "deployment.pools[0].engine.cache_dtype", "found 'x'", rule="enum-values-known")
    assert str(problem).endswith("[enum-values-known]")


def test_documents_made_in_memory_are_judged_alike(pack: Rules) -> None:
    made = Deployment("Deployment", "d", [Pool("colocated", 1, Parallel(8, 1, 1), Engine(cache_dtype="fp3"))])
    [problem] = pack.check(None, made, None)
    assert (problem.path, problem.file, problem.line) == ("deployment.pools[0].engine.cache_dtype", "", 0)
