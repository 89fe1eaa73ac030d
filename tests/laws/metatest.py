"""What the suite must be: the laws of the page, each with a mutant that it kills.

`complaints` takes laws, mutants and page as values, so that a test can take one law away and see that it is missed.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from unittest.mock import patch

import pykernel
from pykernel.documents import Inputs
from pykernel.laws import ADVICE, MODEL, Law, check_model

from .mutants import Mutant

_ENTRY = re.compile(r"- \*\*(?P<id>\w+)\*\* \((?P<about>.+?)\)\. (?P<statement>.+) \*Tried on:\* (?P<sweep>.+)\.")


@dataclass(frozen=True)
class Entry:
    """A law as the page states it: `about` is its class, its tolerance, and what it is waived without."""

    about: str
    statement: str
    sweep: str


def entries(page: str) -> dict[str, Entry]:
    """The numbered laws of docs/laws.md. Raises `ValueError` for a list item with an id that is no entry."""
    found: dict[str, Entry] = {}
    for line in page.splitlines():
        if line.startswith("- **"):
            match = _ENTRY.fullmatch(line)
            if match is None or match["id"] in found:
                raise ValueError(f"no law, or a second of its id: {line}")
            found[match["id"]] = Entry(match["about"], match["statement"], match["sweep"])
    return found


def entry_of(law: Law) -> Entry:
    """A law as the page must state it."""
    about = law.standing
    if law.tolerance != "exact":
        about += f"; {law.tolerance}"
    if law.needs and law.standing not in (MODEL, ADVICE):
        about += f"; waived without `{law.needs}`"
    return Entry(about, law.statement, law.sweep)


def complaints(laws: Mapping[str, Law], mutants: Iterable[Mutant], page: str) -> Iterator[str]:
    """Where laws, mutants and page do not fit together."""
    stated, meant = entries(page), {id for mutant in mutants for id in mutant.laws}
    for id in sorted({*stated, *laws, *meant}):
        if id not in laws:
            yield f"{id} is on the page or meant for a mutant, and is no law"
        elif id not in stated:
            yield f"{id} is not on the page"
        elif stated[id] != entry_of(laws[id]):
            yield f"{id} is stated as {stated[id]}, and is {entry_of(laws[id])}"
        if id not in meant:
            yield f"{id} has no mutant"
    if [id for id in stated if id in laws] != list(laws):
        yield "the page has another order"


def survived(mutant: Mutant) -> set[str]:
    """The laws meant for a mutant that do not notice it."""
    inputs = _documents(mutant)
    with contextlib.ExitStack() as stack:
        for target, replacement in mutant.patches.items():
            stack.enter_context(patch(target, replacement))
        report = check_model(mutant.build(inputs), factory=mutant.build, inputs=inputs, laws=mutant.laws)
    return set(mutant.laws) - {violation.law for violation in (*report.violations, *report.advice)}


def _documents(mutant: Mutant) -> Inputs:
    inputs = copy.deepcopy(_opened(mutant.scenario))  # some mutants spoil the documents
    if mutant.edit is not None:
        mutant.edit(inputs)
    return inputs


@lru_cache(maxsize=16)
def _opened(scenario: str) -> Inputs:
    """The documents of the last pool, without the coefficients of other parts, which every twin would copy."""
    inputs = pykernel.open_inputs(scenario)
    inputs.pool = len(inputs.deployment.pools) - 1
    for one in inputs.coefficients:
        one.coefficients = [
            entry for entry in one.coefficients if not entry.scope.hardware or inputs.chip.name in entry.scope.hardware
        ]
    return inputs
