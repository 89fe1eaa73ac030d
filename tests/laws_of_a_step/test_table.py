"""The table of laws is whole: every law has tests, every test it names exists and says so, and none is left out.

`laws.csv` has one row a law: its number, what it says, whether it is tested under each setting of the switches or none
of them reaches it (it concerns one function, or the plan), a note where the product deviates, and its tests.
"""

from __future__ import annotations

import ast
import csv
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
LAWS = range(1, 56)
NUMBERED = re.compile(r"Laws? (\d+(?:(?:, | and )\d+)*)")
DECISIONS = TESTS.parent / "docs" / "decisions.md"


@cache
def table() -> list[dict[str, str]]:
    with (TESTS / "laws_of_a_step" / "laws.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def functions() -> dict[str, ast.FunctionDef]:
    """Every test function by the name that the table gives it."""
    return {
        f"{path.relative_to(TESTS).as_posix()}::{node.name}": node
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def laws_of(function: ast.FunctionDef) -> set[int]:
    """The laws that a test names at the beginning of its docstring."""
    found = NUMBERED.match(ast.get_docstring(function) or "")
    return {int(number) for number in re.findall(r"\d+", found[1])} if found else set()


def test_the_table_has_every_law_once_in_order() -> None:
    assert [int(row["law"]) for row in table()] == list(LAWS)
    assert all(row["says"] and row["settings"] in ("each", "none") for row in table())
    assert len({row["says"] for row in table()}) == len(LAWS)


@pytest.mark.parametrize("row", table(), ids=lambda row: f"law {row['law']}")
def test_every_law_has_tests_that_exist_and_name_it(row: dict[str, str]) -> None:
    names = row["tests"].split()
    assert names == sorted(set(names)) and names
    missing = [name for name in names if name not in functions()]
    assert missing == []
    assert [name for name in names if int(row["law"]) not in laws_of(functions()[name])] == []


def test_no_test_names_a_law_that_does_not_list_it() -> None:
    named: dict[int, set[str]] = defaultdict(set)
    for name, function in functions().items():
        for law in laws_of(function):
            named[law].add(name)
    assert {int(row["law"]): set(row["tests"].split()) for row in table()} == named


@pytest.mark.parametrize("row", table(), ids=lambda row: f"law {row['law']}")
def test_laws_that_a_switch_may_reach_are_tested_under_each_setting(row: dict[str, str]) -> None:
    by_setting = [
        name
        for name in row["tests"].split()
        if {argument.arg for argument in functions()[name].args.args} & {"setting"}
        or any(isinstance(node, ast.Name) and node.id == "SWITCHES" for node in ast.walk(functions()[name]))
    ]
    assert bool(by_setting) is (row["settings"] == "each")


def test_a_law_that_was_changed_is_changed_by_a_decision() -> None:
    changed = [row for row in table() if row["note"].startswith("changed by decision")]
    assert [row["law"] for row in changed] == ["55"]
    assert "Negative counts are refused" in DECISIONS.read_text(encoding="utf-8")
