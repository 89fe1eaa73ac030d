"""The laws hold on pykernel's own models; the report says what was found, skipped and why; pages keep step."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel import Batch, Kernel, LinkUse, Placement, StepEstimate
from pykernel.cli import main
from pykernel.documents import list_scenarios
from pykernel.errors import ArgumentError
from pykernel.interface import RESOURCES
from pykernel.laws import (
    ADVICE,
    CONTRACT,
    LAWS,
    check_links_agree,
    check_model,
    check_pd_transfer,
    pd_cases,
    test_pd_transfer,
)
from pykernel.laws.testing import parametrize_with_laws

from .mutants import MUTANTS, Wrapper

ROOT = Path(__file__).resolve().parents[2]
DENSE, PAIR = "qwen3-14b-h100-tp1", "minimax-m2.5-h200-disagg"

BEYOND_MUTANTS = {"B10"}
"""Contract laws about pykernel's own `Batch`, which no cost model can break."""


def held(scenario: str, model: str = "blis") -> Any:
    inputs, build = pykernel.open_inputs(scenario), partial(pykernel.new, model=model)
    try:
        return check_model(build(inputs), factory=build, inputs=inputs)
    except pykernel.RefusedError:
        return None


@pytest.mark.parametrize("scenario", [DENSE, "glm-5-h200-tp8", "minimax-m2.5-h200-ep16"])
def test_the_built_in_model_holds_every_law(scenario: str) -> None:
    report = held(scenario)
    assert report.ok, str(report)
    assert sum(report.seconds.values()) < 90


@pytest.mark.slow
@pytest.mark.parametrize("model", ["blis", "blis-reference"])
@pytest.mark.parametrize("scenario", list_scenarios())
def test_the_built_in_models_hold_every_law_everywhere(scenario: str, model: str) -> None:
    report = held(scenario, model)
    violations = [one for one in report.violations if one.law != "F2"]  # some are for prices only and do not fit
    assert violations == [], str(report)


def test_every_contract_law_has_a_mutant() -> None:
    meant = {law for mutant in MUTANTS for law in mutant.laws}
    contract = {law.id for law in LAWS.values() if law.standing == CONTRACT}
    assert contract - meant - BEYOND_MUTANTS == set()
    assert meant - set(LAWS) == set()
    assert len(MUTANTS) >= 60


class Odd(Wrapper):
    """What a model may do: zero entries left in the map, a tied bottleneck, provenance in another order."""

    def step_time(self, batch: Batch) -> Any:
        right = self.kernel.step_time(batch)
        ns = right.per_resource_ns
        full = {name: ns.get(name, 0) for name in RESOURCES}
        tied = [name for name in RESOURCES if ns.get(name) == max(ns.values())][-1]

        class Estimate:
            overlap_ns, no_overlap_ns, bottleneck = right.overlap_ns, right.no_overlap_ns, tied
            per_resource_ns = full

        return Estimate()

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        self.kernel.step_time_into(batch, estimate)

    def provenance(self) -> Any:
        return tuple(reversed(self.kernel.provenance()))


def test_what_a_model_may_do_breaks_no_law() -> None:
    inputs = pykernel.open_inputs(DENSE)
    report = check_model(Odd(inputs), factory=Odd, inputs=inputs, laws=[id for id in LAWS if id[0] in "PSBMV"])
    assert report.ok, str(report)


def test_an_instance_alone_is_checked_as_far_as_it_goes() -> None:
    report = check_model(pykernel.open(DENSE))
    assert report.ok, str(report)
    assert {"P1", "S2", "B1", "M1", "Q2", "X3", "V1"} <= set(report.passed)
    assert {skip.law: skip.reason for skip in report.skipped}["P7"] == "the documents of the model were not given"


def test_what_a_model_raises_is_a_violation() -> None:
    class Nothing:
        pass

    report = check_model(Nothing())
    assert not report.ok
    assert any("AttributeError" in violation.messages[0] for violation in report.violations)


def test_contract_laws_of_prices_cannot_be_waived() -> None:
    waivable = {law.id[0] for law in LAWS.values() if law.needs and law.standing == CONTRACT}
    assert waivable.isdisjoint("PSBTXRD")
    model = pykernel.open(DENSE)
    report = check_model(model, lacks=["memory", "blis"], laws=["F1", "S1", "S6b"])
    assert report.passed == ["S1"]
    assert [skip.law for skip in report.skipped] == ["F1", "S6b"]
    assert "does not claim memory" in report.skipped[0].reason


def test_expected_failures_need_a_reason_and_must_fail() -> None:
    mutant = next(one for one in MUTANTS if one.name == "swaps_the_bounds")
    model = mutant.build(pykernel.open_inputs(DENSE))
    report = check_model(model, laws=["S1", "S2"], expected_failures={"S1": "bounds are swapped"})
    assert [one.law for one in report.expected] == ["S1"]
    strict = check_model(pykernel.open(DENSE), laws=["S1"], expected_failures={"S1": "bounds are swapped"})
    assert "did not happen" in strict.violations[0].messages[0]
    with pytest.raises(ArgumentError, match="without a reason"):
        check_model(model, expected_failures={"S1": " "})
    with pytest.raises(ArgumentError, match="there is no law 'S99'"):
        check_model(model, laws=["S99"])
    with pytest.raises(ArgumentError, match="there is no capability 'speed'"):
        check_model(model, lacks=["speed"])


@parametrize_with_laws(Kernel, lambda: pykernel.open_inputs(DENSE), laws=["P1", "S1", "X3"])
def test_laws_one_by_one(law: Any) -> None:
    law()


def test_pools_of_one_deployment_name_their_links_alike() -> None:
    first, second = (pykernel.open_pool(PAIR, index) for index in (0, 1))
    for case in pd_cases():
        check_links_agree(first, second, 1024, case.source, case.target)
    test_pd_transfer(first, pd_cases())
    with pytest.raises(AssertionError, match="no cases"):
        test_pd_transfer(first, [])


class Renamed(Wrapper):
    """Names its links by its own pool."""

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> Any:
        from dataclasses import replace

        right = super().pd_transfer_demand(tokens, source, target)
        return replace(right, links=tuple(LinkUse(f"pool 1 {use.link}", use.bytes_per_second) for use in right.links))


class Derated(Wrapper):
    """Has its own idea of a link's rate."""

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> Any:
        from dataclasses import replace

        right = super().pd_transfer_demand(tokens, source, target)
        return replace(right, links=tuple(LinkUse(use.link, use.bytes_per_second * 0.9) for use in right.links))


@pytest.mark.parametrize("model", [Renamed, Derated])
def test_links_that_disagree_are_told(model: type) -> None:
    with pytest.raises(AssertionError, match="links differ"):
        check_links_agree(pykernel.open_pool(PAIR, 0), model(pykernel.open_inputs(PAIR, pool=1)), 1024, *_ENDS)


_ENDS = (Placement(0, 0), Placement(1, 1))


def test_a_handoff_is_checked_alone() -> None:
    case = pd_cases()[3]
    check_pd_transfer(pykernel.open(DENSE), case)
    mutant = next(one for one in MUTANTS if one.name == "moves_over_no_link")
    with pytest.raises(AssertionError, match=r"1024 tokens, same node: \d+ bytes cross no link"):
        check_pd_transfer(mutant.build(pykernel.open_inputs(DENSE)), case)


def test_the_page_lists_the_laws_as_they_are() -> None:
    spec = importlib.util.spec_from_file_location("write_laws", ROOT / "docs" / "write_laws.py")
    assert spec is not None and spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert (ROOT / "docs" / "laws.md").read_text(encoding="utf-8") == writer.page()
    assert {law.id[0] for law in LAWS.values()} == set(writer.FAMILIES)


def test_the_command_checks_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit = tmp_path / "laws.xml"
    call = ["check", "blis", "--scenario", DENSE, "--law", "S1", "--law", "F8", "--junit", str(junit)]
    assert main(call) == 0
    reason = "skipped F8: experts are not divided over ranks"
    assert capsys.readouterr().out == f"{DENSE}: 1 passed, 0 broken, 1 skipped\n  {reason}\n"
    assert 'tests="2" failures="0" skipped="1"' in junit.read_text()
    assert main(["check", "blis", "--law", "S99"]) == 2
    assert "there is no law 'S99'" in capsys.readouterr().err


def test_advice_fails_nothing() -> None:
    assert {law.id for law in LAWS.values() if law.standing == ADVICE} == {"P10", "M7", "X9", "D5"}
    assert "pytest" not in sys.modules["pykernel.laws.checking"].__dict__
