"""The laws hold on pykernel's own models; the report says what was found, skipped and why; pages keep step."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel import Kernel, Placement
from pykernel.cli import main
from pykernel.cli.check import Progress, check_named
from pykernel.documents import list_scenarios
from pykernel.errors import ArgumentError
from pykernel.laws import (
    CONTRACT,
    LAWS,
    Report,
    check_links_agree,
    check_model,
    check_pd_transfer,
    pd_cases,
    test_pd_transfer,
)
from pykernel.laws.testing import parametrize_with_laws

from .mutants import MUTANTS

DENSE, PAIR, EXPERTS = "qwen3-14b-h100-tp1", "minimax-m2.5-h200-disagg", "minimax-m2.5-h200-ep16"

SLOWEST = "glm-5-h200-tp8"
"""Of the bundled scenarios."""


def held(scenario: str, model: str = "blis") -> Report | None:
    """All laws, as `pykernel check` tries them; None where the model does not price the scenario."""
    try:
        return check_named(model, pykernel.open_inputs(scenario))
    except pykernel.RefusedError:
        return None


def cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@pytest.mark.parametrize("scenario", [DENSE, SLOWEST])
def test_the_built_in_model_holds_every_law_in_half_a_minute(scenario: str) -> None:
    before = cpu_seconds()
    report = held(scenario)
    assert report and report.ok, str(report)
    assert cpu_seconds() - before < 30


@pytest.mark.slow
@pytest.mark.parametrize("model", ["blis", "blis-reference", "calibrated"])
@pytest.mark.parametrize("scenario", list_scenarios())
def test_the_built_in_models_hold_every_law_everywhere(scenario: str, model: str) -> None:
    report = held(scenario, model)
    assert report is None or report.ok, str(report)


def test_the_calibrated_model_holds_the_contract_of_prices_and_accessors() -> None:
    report = check_named("calibrated", pykernel.open_inputs(EXPERTS), [id for id in LAWS if id[0] in "SBMDR"])
    assert report.ok, str(report)
    assert "the model does not claim blis" in str(report.skipped[0])


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


@pytest.mark.parametrize("name", ["NamesLinksByItsPool", "RatesLinksByItsPool"])
def test_links_that_disagree_are_told(name: str) -> None:
    mutant = next(one for one in MUTANTS if one.name == name)
    with pytest.raises(AssertionError, match="links differ"):
        check_links_agree(pykernel.open_pool(PAIR, 0), mutant.build(pykernel.open_inputs(PAIR, pool=1)), 1024, *_ENDS)


_ENDS = (Placement(0, 0), Placement(1, 1))


def test_a_handoff_is_checked_alone() -> None:
    case = pd_cases()[3]
    check_pd_transfer(pykernel.open(DENSE), case)
    mutant = next(one for one in MUTANTS if one.name == "moves_over_no_link")
    with pytest.raises(AssertionError, match=r"1024 tokens, same node: \d+ bytes cross no link"):
        check_pd_transfer(mutant.build(pykernel.open_inputs(DENSE)), case)


def test_the_command_checks_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit = tmp_path / "laws.xml"
    call = ["check", "blis", "--scenario", DENSE, "--law", "S1", "--law", "F8", "--junit", str(junit)]
    assert main(call) == 0
    reason = "skipped F8: the model has no experts"
    assert capsys.readouterr().out == f"{DENSE}: 1 passed, 0 broken, 1 skipped\n  {reason}\n"
    assert 'tests="2" failures="0" skipped="1"' in junit.read_text()
    assert main(["check", "blis", "--law", "S99"]) == 2
    assert "there is no law 'S99'; of that family there are S1, S2, " in capsys.readouterr().err
    assert main(["check", "blis", "--law", "?"]) == 2
    assert "families are P, S, B, " in capsys.readouterr().err
    assert main(["check", "blis", "--law", "S1", "--junit", str(tmp_path / "nowhere" / "laws.xml")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_terminal_shows_which_law_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(["S1", "F8"])
    progress.of(DENSE)(LAWS["F8"])
    progress.clear()
    shown, cleared, _ = capsys.readouterr().err.split("\r")
    assert shown.startswith(f"{DENSE}: 2 of 2, F8: A wider expert group")
    assert cleared == " " * 79


def test_advice_fails_nothing() -> None:
    mutant = next(one for one in MUTANTS if one.laws == ("B11",))
    report = check_model(mutant.build(pykernel.open_inputs(DENSE)), laws=["B11"])
    assert report.ok and [violation.law for violation in report.advice] == ["B11"]
    assert "pytest" not in sys.modules["pykernel.laws.checking"].__dict__


MINE = """
import os
from pykernel import Kernel

class Mine(Kernel):
    def completion_overhead_ns(self):
        return super().completion_overhead_ns() + os.getpid() % 9999

class Fails(Kernel):
    def __init__(self, inputs):
        if os.environ.get("PYTHONHASHSEED") == "4":
            raise OSError("not here")
        super().__init__(inputs)
"""


def test_a_model_is_made_in_another_process_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_laws.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    inputs = pykernel.open_inputs(DENSE)

    def said(factory: Any) -> str:
        report = check_model(pykernel.new(inputs), factory=factory, inputs=inputs, laws=["P8"])
        return "".join([*(str(one) for one in report.violations), *(str(one) for one in report.skipped)])

    assert said("blis") == ""
    assert "another process answers otherwise" in said("mine_of_laws:Mine")
    assert "in another process it cannot be made: OSError: not here" in said("mine_of_laws:Fails")
    reason = "P8: holds in this process; its factory cannot be sent to another (name it as `module:attribute`)"
    assert said(lambda documents: Kernel(documents)).startswith(reason)
