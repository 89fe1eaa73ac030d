"""The Deployment: absent settings, tri-state flags, context-parallel widths, roles, and the warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykernel.documents import Deployment, Engine, Eplb, Parallel, PdTransfer, Pool, deployment
from pykernel.documents.deployment import Dbo
from pykernel.errors import Problem


def _made(parallel: Parallel | None = None, **engine: object) -> Deployment:
    settings = Engine()
    for name, value in engine.items():
        setattr(settings, name, value)
    return Deployment("Deployment", "d", [Pool("colocated", 1, parallel or Parallel(8, 1, 1), settings)])


def _errors(document: Deployment) -> list[str]:
    return [problem.path for problem in deployment.check(document) if problem.severity == "error"]


def _warnings(document: Deployment) -> list[Problem]:
    return [problem for problem in deployment.check(document) if problem.severity == "warning"]


def test_absent_settings_are_kept_apart_from_stated_ones(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(
        "kind: Deployment\nname: d\npools:\n"
        "  - {role: colocated, nodes: 1, parallel: {tp: 1, pp: 1, dp: 1}}\n"
        "  - role: colocated\n    nodes: 1\n    parallel: {tp: 1, pp: 1, dp: 1}\n"
        "    engine: {async_scheduling: false, dbo: {}, eplb: {}}\n"
    )
    first, second = deployment.load(path).pools
    assert first.engine == Engine()
    assert (first.engine.async_scheduling, first.engine.dbo, first.engine.block_size) == (None, None, 0)
    assert (second.engine.async_scheduling, second.engine.dbo) == (False, Dbo(False, 0, 0))
    assert second.engine.eplb == Eplb(False, 0, 0, 0)
    assert first.engine.cudagraph_capture_sizes is not second.engine.cudagraph_capture_sizes


def test_derived_widths_count_prefill_context_ranks() -> None:
    parallel = Parallel(4, 2, 3, pcp=2, enable_expert_parallel=True)
    assert parallel.replica_ranks() == 16
    assert parallel.ranks() == 48
    assert parallel.expert_width() == 24
    assert Parallel(4, 2, 3).expert_width() == 1


@pytest.mark.parametrize("tp", [1, 2, 6, 8])
@pytest.mark.parametrize("pcp", [0, 1, 2, 3])
@pytest.mark.parametrize("dcp", range(10))
def test_decode_context_widths_divide_tp_or_follow_the_prefill_width(tp: int, pcp: int, dcp: int) -> None:
    width = max(dcp, 1)
    accepted = tp % width == 0 if pcp <= 1 else width in (1, pcp, tp * pcp)
    errors = _errors(_made(Parallel(tp, 1, 1, pcp=pcp, dcp=dcp)))
    assert errors == ([] if accepted else ["deployment.pools[0].parallel.dcp"])


@pytest.mark.parametrize(
    ("roles", "fits"),
    [
        (["colocated"], True),
        (["colocated", "colocated"], True),
        (["prefill", "decode"], True),
        (["decode", "prefill", "decode"], True),
        (["prefill"], False),
        (["decode"], False),
        (["prefill", "decode", "colocated"], False),
        (["colocated", "decode"], False),
    ],
)
def test_roles_come_in_pairs_or_alone(roles: list[str], fits: bool) -> None:
    pools = [Pool(role, 1, Parallel(1, 1, 1)) for role in roles]
    document = Deployment("Deployment", "d", pools, pd_transfer=PdTransfer())
    assert _errors(document) == [] if fits else set(_errors(document)) == {"deployment.pools"}


def test_disabled_blocks_may_hold_any_number() -> None:
    assert _errors(_made(dbo=Dbo(False, -1, -1), eplb=Eplb(False, -1))) == []
    assert _errors(_made(dbo=Dbo(True, -1, 0), eplb=Eplb(True, -1))) == [
        "deployment.pools[0].engine.dbo.dbo_decode_token_threshold",
        "deployment.pools[0].engine.eplb.num_redundant_experts",
    ]


def test_custom_all_reduce_contradicts_its_own_switch_only() -> None:
    path = "deployment.pools[0].engine.allreduce_backend"
    assert _errors(_made(allreduce_backend="custom", disable_custom_all_reduce=True)) == [path]
    for backend, disabled in (("custom", None), ("custom", False), ("nccl", True), ("", True)):
        assert _errors(_made(allreduce_backend=backend, disable_custom_all_reduce=disabled)) == []


def test_a_negative_width_is_not_judged_further() -> None:
    assert _errors(_made(Parallel(8, 1, 1, pcp=-1, dcp=3))) == ["deployment.pools[0].parallel.pcp"]
    assert _errors(_made(Parallel(0, 1, 1, dcp=3))) == ["deployment.pools[0].parallel.tp"]


def test_odd_but_usable_settings_are_warnings() -> None:
    [problem] = _warnings(_made(allreduce_backend="nccl", disable_custom_all_reduce=False))
    assert problem.path == "deployment.pools[0].engine.allreduce_backend"
    assert _warnings(_made(allreduce_backend="nccl")) == []
    [problem] = _warnings(_made(Parallel(1, 1, 1, enable_expert_parallel=True)))
    assert problem.path == "deployment.pools[0].parallel.enable_expert_parallel"
    assert _warnings(_made(Parallel(2, 1, 1, enable_expert_parallel=True))) == []


def test_text_settings_are_not_the_business_of_the_field_layer() -> None:
    assert deployment.check(_made(cudagraph_mode="SOMETIMES", cache_dtype="fp3", all2all_backend="own")) == []


@pytest.mark.parametrize("value", [-0.1, 1.0000001, 5])
def test_memory_utilization_is_a_fraction(value: float) -> None:
    assert _errors(_made(gpu_memory_utilization=value)) == ["deployment.pools[0].engine.gpu_memory_utilization"]
    assert _errors(_made(gpu_memory_utilization=1.0)) == []
