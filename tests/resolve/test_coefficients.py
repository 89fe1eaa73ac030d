"""Which coefficients hold: scopes, precedence, and looking a name up."""

from __future__ import annotations

from typing import Any

import pytest

from pykernel.documents import Coefficient, CoefficientSet, Scope
from pykernel.resolve.coefficients import Coefficients, Target, select

TARGET = Target(hardware="h200", model="deepseek-v3", tp=8, ep=16, nodes_spanned=2)


def entry(name: str, value: float = 1.0, method: str = "measured", **scope: Any) -> Coefficient:
    return Coefficient(name, value, "dimensionless", method, False, Scope(**scope))


def a_set(name: str, *entries: Coefficient) -> CoefficientSet:
    return CoefficientSet("CoefficientSet", name, list(entries))


def chosen(*sets: CoefficientSet) -> Coefficients:
    return select(list(sets), TARGET)


@pytest.mark.parametrize(
    ("scope", "applies"),
    [
        ({"hardware": ["h200"]}, True),
        ({"hardware": ["H200"]}, True),
        ({"hardware": ["h100", "H200"]}, True),
        ({"hardware": ["h100"]}, False),
        ({"hardware": ["h200-sxm"]}, False),
        ({"model": ["DeepSeek-V3"]}, True),
        ({"model": ["deepseek-v3.1"]}, False),
        ({"tp": [4, 8]}, True),
        ({"tp": [4]}, False),
        ({"ep": [16]}, True),
        ({"ep": [8]}, False),
        ({"nodes_spanned": [2]}, True),
        ({"nodes_spanned": [1]}, False),
        ({"hardware": ["h200"], "model": ["deepseek-v3"], "tp": [8], "ep": [16], "nodes_spanned": [2]}, True),
        ({"hardware": ["h200"], "model": ["deepseek-v3"], "tp": [8], "ep": [16], "nodes_spanned": [3]}, False),
    ],
)
def test_an_entry_applies_where_every_dimension_it_states_does(scope: dict[str, Any], applies: bool) -> None:
    found = chosen(a_set("one", entry("always", hardware=["h200"]), entry("asked", **scope)))
    assert ("asked" in found) is applies


def test_the_last_entry_that_applies_wins_however_broad_it_is() -> None:
    narrow = {"hardware": ["h200"], "model": ["deepseek-v3"], "tp": [8]}
    first = a_set("first", entry("x", 1.0, tp=[8]), entry("x", 2.0, **narrow), entry("x", 9.0, tp=[4]))
    second = a_set("second", entry("x", 3.0, hardware=["h200"]), entry("x", 9.0, hardware=["h100"]))
    assert chosen(first)["x"] == 2.0
    assert chosen(first, second)["x"] == 3.0
    assert chosen(second, first)["x"] == 2.0
    (origin,) = chosen(first, second).origins()
    assert (origin.name, origin.set, origin.scope) == ("x", "second", "hardware: h200")


def test_nothing_applies_where_no_scope_holds_the_deployment() -> None:
    sets = [a_set("one", entry("x", hardware=["h100"])), a_set("two", entry("y", model=["llama"]))]
    found = chosen(*sets)
    assert not found and found.sets == ["one", "two"]
    assert all(word in str(found.target) for word in ("h200", "deepseek-v3", "tp 8", "ep 16", "spanned 2"))


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        ({"hardware": ["h200", "h100"], "model": ["deepseek-v3"]}, "hardware: h200"),
        ({"hardware": ["h100", "H200"]}, "hardware: h100"),
        ({"model": ["deepseek-v3", "b"], "tp": [8]}, "model: deepseek-v3"),
        ({"tp": [8]}, "unscoped"),
    ],
)
def test_an_origin_says_the_first_name_of_its_scope(scope: dict[str, Any], text: str) -> None:
    (origin,) = chosen(a_set("one", entry("x", method="copied", **scope))).origins()
    assert (origin.scope, origin.method) == (text, "copied")


def test_origins_are_sorted_by_name() -> None:
    names = ["b", "a_1", "B", "a"]
    found = chosen(a_set("one", *(entry(name, hardware=["h200"]) for name in names)))
    assert [origin.name for origin in found.origins()] == sorted(names)
    assert set(found) == set(names) and len(found) == 4
