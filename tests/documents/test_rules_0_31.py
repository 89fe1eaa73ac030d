"""The 0.31.0 pack: what it changes against 0.29.0, and each of its own rules firing where its condition holds.

Facts from the published package of vLLM 0.31.0: config/{parallel,speculative,vllm}.py, v1/kv_offload/cpu/gpu_worker.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

import pykernel
from pykernel.documents import Inputs, Rules, rules
from pykernel.documents.deployment import Dbo, Engine, Eplb, Parallel, Speculative

OLD, NEW = rules("0.29.0"), rules("0.31.0")


def test_what_the_release_changed() -> None:
    lists = [field.name for field in dataclasses.fields(Rules) if isinstance(getattr(NEW, field.name), tuple)]
    added = {name: set(getattr(NEW, name)) - set(getattr(OLD, name)) for name in lists if name != "rules"}
    gone = {name: set(getattr(OLD, name)) - set(getattr(NEW, name)) for name in lists}
    assert {name: names for name, names in added.items() if names and getattr(OLD, name)} == {
        "all2all_backends": {"moonep"},
        "sp_moe_backends": {"deepep_v2"},
        "cache_dtypes": {"nvfp4_ds_mla"},
        "speculative_methods": {"suffix", "extract_hidden_states"},
        "async_speculative_methods": {"extract_hidden_states"},
    }
    assert {name: names for name, names in gone.items() if names} == {"rules": {"pcp-excludes-data-parallelism"}}


@pytest.mark.parametrize(
    ("page", "sms"),
    [
        (8, 12),
        (9_216, 12),  # latent, 8-bit, 16 tokens
        (28_664, 12),
        (28_668, 0),
        (28_672, 0),
        (65_536, 0),  # 8 KV heads of 128, 16-bit, 16 tokens
        (0, 0),
    ],
)
def test_a_fetch_withholds_sms_for_pages_below_the_limit(page: int, sms: int) -> None:
    assert NEW.offload_fetch_sms(page) == sms


def test_overlap_starts_where_it_did() -> None:
    for tokens in (0, 31, 32, 511, 512, 8_192):
        for uniform in (True, False):
            assert NEW.dual_batch_overlap(True, tokens, uniform) is (tokens >= (32 if uniform else 512))
            assert not NEW.dual_batch_overlap(False, tokens, uniform)


def test_sequence_parallel_experts_with_the_backend_that_joined() -> None:
    assert NEW.sequence_parallel_moe("deepep_v2", True, 2, 2)
    assert not OLD.sequence_parallel_moe("deepep_v2", True, 2, 2)
    assert not NEW.sequence_parallel_moe("flashinfer_nvlink_two_sided", True, 2, 2)


Change = Callable[[Inputs], None]


def engine(**values: object) -> Change:
    def change(inputs: Inputs) -> None:
        for name, value in values.items():
            setattr(inputs.deployment.pools[0].engine, name, value)

    return change


def parallel(*widths: int, **values: int) -> Change:
    return lambda inputs: setattr(inputs.deployment.pools[0], "parallel", Parallel(*widths, **values))  # type: ignore[arg-type]


def both(*changes: Change) -> Change:
    return lambda inputs: [change(inputs) for change in changes] and None  # type: ignore[func-returns-value]


OVERLAP = Dbo(True, 32, 512)

# The rule, its severity, the end of the path, what draws it, and the nearest that does not. The model has 8 KV heads.
CASES: dict[str, tuple[str, str, Change, Change]] = {
    "all2all-backend-replaced": (
        "warning",
        "all2all_backend",
        engine(all2all_backend="pplx"),
        engine(all2all_backend="allgather_reducescatter"),
    ),
    "dcp-fits-heads": ("error", "dcp", parallel(8, 1, 1, dcp=2), parallel(16, 1, 1, dcp=2)),
    "redundant-experts-need-eplb": (
        "error",
        "num_redundant_experts",
        engine(eplb=Eplb(False, 8)),
        engine(eplb=Eplb(True, 8)),
    ),
    "async-scheduling-fits-method": (
        "error",
        "async_scheduling",
        engine(async_scheduling=True, speculative=Speculative("ngram", 2)),
        engine(async_scheduling=True, speculative=Speculative("eagle", 2)),
    ),
    "dbo-backend-supported": (
        "error",
        "all2all_backend",
        engine(dbo=OVERLAP),
        engine(dbo=OVERLAP, all2all_backend="nixl_ep"),
    ),
    "pcp-fits-speculation": (
        "error",
        "method",
        both(parallel(4, 1, 1, pcp=2), engine(speculative=Speculative("eagle", 1))),
        both(parallel(4, 1, 1, pcp=2), engine(speculative=Speculative("deepseek_mtp", 1))),
    ),
}


@pytest.mark.parametrize("rule", CASES)
def test_each_new_rule_fires_on_its_condition_alone(rule: str) -> None:
    severity, end, fault, sound = CASES[rule]
    found = {}
    for name, change in (("fault", fault), ("sound", sound)):
        inputs = pykernel.open_inputs("minimax-m2.5-h200-tp8")
        inputs.deployment.pools[0].engine = Engine()
        change(inputs)
        found[name] = NEW.check(inputs.scenario, inputs.deployment, inputs.model)
    assert [(problem.rule, problem.severity) for problem in found["fault"]] == [(rule, severity)]
    assert found["fault"][0].path.endswith(end)
    assert found["sound"] == []


def test_every_rule_of_its_own_has_a_case() -> None:
    assert set(NEW.rules) - set(OLD.rules) == set(CASES)


def test_a_scenario_of_the_release_opens_without_the_assumption() -> None:
    inputs = pykernel.open_inputs("deepseek-v3-h200-fp8-tp8")
    old = pykernel.new(inputs)
    inputs.scenario.engine_version, inputs.rules = "0.31.0", NEW
    kernel = pykernel.new(inputs)
    names = {origin.name for origin in kernel.provenance()}
    assert {origin.name for origin in old.provenance()} - names == {"engine_version"}
    assert (kernel.evidence().total, old.evidence().total) == (148, 149)
