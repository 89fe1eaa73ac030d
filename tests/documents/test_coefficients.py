"""CoefficientSets: the one-key form of entries, identity of scopes, and what each method must bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykernel.documents import Coefficient, CoefficientSet, CoefficientSource, Scope, coefficients
from pykernel.documents.vocabulary import METHODS

TEXT = """\
kind: CoefficientSet
name: overrides
coefficients:
  - hbm_derate:
      value: 0.83
      units: dimensionless
      method: measured
      fitted: true
      scope: {hardware: [h100, h200], tp: [1, 2]}
      ci95: [0.8, 0.9]
      sources:
        - {kind: publication, cite: "2026-01-31", role: primary}
      validated: itl
  - adapter_swap:
      name: ignored
      units: us_per_load
      method: not_charged
      fitted: false
      scope: {hardware: [h100]}
      rationale: preloaded in this study
"""


@pytest.fixture
def loaded(tmp_path: Path) -> CoefficientSet:
    path = tmp_path / "overrides.yaml"
    path.write_text(TEXT)
    return coefficients.load(path)


def _entry(**values: object) -> Coefficient:
    entry = Coefficient("x", 1.0, "tokens", "measured", False, Scope(hardware=["h100"]))
    for name, value in values.items():
        setattr(entry, name, value)
    return entry


def _paths(*entries: Coefficient) -> list[str]:
    problems = coefficients.check(CoefficientSet("CoefficientSet", "made", list(entries)))
    return [problem.path.removeprefix("coefficients:made.coefficients") for problem in problems]


def test_entries_take_their_name_from_the_key(loaded: CoefficientSet) -> None:
    first, second = loaded.coefficients
    assert first == Coefficient(
        "hbm_derate",
        0.83,
        "dimensionless",
        "measured",
        True,
        Scope(hardware=["h100", "h200"], tp=[1, 2]),
        ci95=(0.8, 0.9),
        sources=[CoefficientSource("publication", "2026-01-31", "primary")],
        validated=["itl"],
    )
    assert (second.name, second.value) == ("adapter_swap", 0.0)
    assert coefficients.check(loaded) == []


def test_a_problem_has_the_line_of_its_entry(loaded: CoefficientSet) -> None:
    loaded.coefficients[0].units = "GB/s"
    loaded.coefficients[1].rationale = ""
    found = [(problem.path, problem.line) for problem in coefficients.check(loaded)]
    assert found == [
        ("coefficients:overrides.coefficients[0].units", 6),
        ("coefficients:overrides.coefficients[1].rationale", 20),
    ]


def test_a_name_that_differs_from_the_file_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(TEXT)
    [problem] = coefficients.check(coefficients.load(path))
    assert (problem.severity, problem.path, problem.line) == ("warning", "coefficients:other.name", 2)


def test_scopes_are_equal_in_any_order() -> None:
    here, there = Scope(hardware=["a", "b"], tp=[1, 2]), Scope(hardware=["b", "a"], tp=[2, 1])
    assert _paths(_entry(scope=here), _entry(scope=there)) == ["[1].name"]
    assert _paths(_entry(scope=here), _entry(scope=there, name="y")) == []
    assert _paths(_entry(scope=here), _entry(scope=Scope(model=["a", "b"], tp=[1, 2]))) == []


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("companion", ["rationale", "sources", "copied_from"])
def test_each_method_brings_its_companions(method: str, companion: str) -> None:
    complete = {"rationale": "r", "sources": [CoefficientSource("model", "m", "primary")], "copied_from": "c"}
    values: dict[str, object] = {**complete, companion: [] if companion == "sources" else ""}
    entry = _entry(method=method, value=0.0 if method == "not_charged" else 1.0, **values)
    required = {
        "measured": set(),
        "literature": {"rationale", "sources"},
        "vendor_spec": {"rationale", "sources"},
        "copied": {"rationale", "copied_from"},
        "assumed": {"rationale"},
        "not_charged": {"rationale"},
    }[method]
    assert _paths(entry) == ([f"[0].{companion}"] if companion in required else [])


def test_zero_is_for_what_is_not_charged_alone() -> None:
    assert _paths(_entry(value=0.0)) == ["[0].value"]
    assert _paths(_entry(value=1.0, method="not_charged", rationale="r")) == ["[0].value"]
    assert _paths(_entry(value=-1.0)) == []


@pytest.mark.parametrize(
    ("interval", "paths"),
    [((0.5, 1.5), []), ((1.0, 1.0), []), ((1.5, 0.5), ["[0].ci95"]), ((1.1, 1.5), ["[0].ci95"]), (None, [])],
)
def test_an_interval_contains_the_value(interval: tuple[float, float] | None, paths: list[str]) -> None:
    assert _paths(_entry(ci95=interval)) == paths


def test_a_fit_is_a_measurement() -> None:
    assert _paths(_entry(fitted=True)) == []
    assert _paths(_entry(fitted=True, method="assumed", rationale="r")) == ["[0].fitted"]


def test_a_scope_states_something() -> None:
    assert _paths(_entry(scope=Scope())) == ["[0].scope"]
    assert _paths(_entry(scope=Scope(nodes_spanned=[2]))) == []
