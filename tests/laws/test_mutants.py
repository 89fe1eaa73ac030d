"""Every broken model is caught by the laws meant for it, and every law catches one: without it, that is missed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pykernel_python_reference.oracle import Oracle, Request

import pykernel
from pykernel.laws import LAWS, check_model

from .metatest import complaints, entries, survived
from .mutants import MUTANTS, Mutant

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "laws.md").read_text(encoding="utf-8")
SEEN = [mutant for mutant in MUTANTS if mutant.laws]


@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: mutant.name)
def test_every_law_meant_for_a_mutant_kills_it(mutant: Mutant) -> None:
    assert survived(mutant) == set()


def test_page_laws_and_mutants_fit_together() -> None:
    assert list(complaints(LAWS, MUTANTS, PAGE)) == []
    assert len(MUTANTS) >= 60


@pytest.mark.parametrize("id", LAWS)
def test_a_law_that_is_removed_is_missed(id: str) -> None:
    without = {other: law for other, law in LAWS.items() if other != id}
    assert f"{id} is on the page or meant for a mutant, and is no law" in list(complaints(without, MUTANTS, PAGE))
    line = next(line for line in PAGE.splitlines() if line.startswith(f"- **{id}** "))
    assert f"{id} is not on the page" in list(complaints(LAWS, MUTANTS, PAGE.replace(line, "")))
    others = [mutant for mutant in MUTANTS if id not in mutant.laws]
    assert f"{id} has no mutant" in list(complaints(LAWS, others, PAGE))


def test_a_law_that_is_stated_otherwise_is_missed() -> None:
    right = LAWS["S1"]
    for wrong in (
        replace(right, statement="Another."),
        replace(right, standing="advisory"),
        replace(right, tolerance="9 ns"),
        replace(right, sweep="nothing"),
    ):
        laws = LAWS | {"S1": wrong}
        assert [line for line in complaints(laws, MUTANTS, PAGE) if line.startswith("S1 is stated as")]
    with pytest.raises(ValueError, match="no law"):
        entries("- **S1** a law without its form")


@pytest.mark.parametrize("id", LAWS)
def test_a_law_that_finds_nothing_lets_its_mutants_live(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = next(mutant for mutant in MUTANTS if id in mutant.laws)
    monkeypatch.setitem(LAWS, id, replace(LAWS[id], check=lambda subject: iter(())))
    assert id in survived(replace(mutant, laws=(id,)))


def test_a_constant_factor_is_seen_by_the_oracle_and_by_no_law() -> None:
    (mutant,) = [mutant for mutant in MUTANTS if not mutant.laws]
    inputs = pykernel.open_inputs(mutant.scenario)
    model, kernel = mutant.build(inputs), pykernel.new(inputs)
    report = check_model(model, factory=mutant.build, inputs=inputs, laws=[id for id in LAWS if id[0] in "SBM"])
    assert report.ok, str(report)
    chunk = pykernel.Batch([pykernel.Request(1024, 32768, 33792)])
    expected = Oracle(inputs).price([Request(1024, 32768)])
    assert kernel.step_time(chunk).no_overlap_ns == expected.no_overlap_ns
    assert model.step_time(chunk).no_overlap_ns < expected.no_overlap_ns
