"""Trying all laws on a model and reporting what was found: `check_model` and its `Report`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import Any

from pykernel.documents import Inputs
from pykernel.errors import ArgumentError
from pykernel.laws.law import ADVICE, CAPABILITIES, LAWS, Law, Skipped, known_laws
from pykernel.laws.subject import Subject, make_subject

MOST_LINES = 5
"""Violations of one law that are reported in words; the others are counted."""

REPRESENTATIVE = (
    "qwen3-14b-h100-tp1",
    "deepseek-v3-h200-fp8-tp8",
    "gpt-oss-120b-h100-fp4-tp2",
    "minimax-m2.5-h200-ep16",
    "nemotron-3.5-lightning-bf16-h100-tp2",
)
"""Bundled scenarios that laws are tried on where none are named: dense, latent, windowed, expert-parallel across nodes,
and recurrent."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One law that a model broke: what was found, and how many more findings there were."""

    law: str
    standing: str
    statement: str
    messages: tuple[str, ...]
    more: bool = False

    def __str__(self) -> str:
        lines = "\n".join(f"  {message}" for message in self.messages) + ("\n  and more" if self.more else "")
        return f"{self.law} ({self.standing}): {self.statement}\n{lines}"


@dataclass(frozen=True, slots=True)
class Skip:
    """One law that was not tried, and why."""

    law: str
    reason: str

    def __str__(self) -> str:
        return f"{self.law}: {self.reason}"


@dataclass
class Report:
    """What came of the laws.

    violations : of contract and model-specific laws; advice : of advisory ones, which fail nothing.
    expected : violations that were announced with a reason. One announced that did not happen is a violation.
    seconds : what each law took.
    """

    violations: list[Violation] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    advice: list[Violation] = field(default_factory=list)
    expected: list[Violation] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        counts = f"{len(self.passed)} passed, {len(self.violations)} violated, {len(self.skipped)} skipped"
        return "\n".join([counts, *map(str, self.violations)])


def check_model(
    model: Any,
    *,
    factory: Callable[..., Any] | str | None = None,
    inputs: Inputs | None = None,
    lacks: Iterable[str] | None = None,
    laws: Iterable[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    progress: Callable[[Law], None] | None = None,
) -> Report:
    """Try the laws on a model; collects everything and raises nothing that the model does.

    Parameters
    ----------
    model : any object that answers as a `CostModel` does.
    factory : makes an equal model, or, if it takes one argument, a model of `Inputs`; or the name of a registered cost
        model, or `module:attribute`. Law P8 makes a model in another process, and so needs one that can be sent there.
    inputs : the documents that `model` was made of. Laws that edit documents are skipped without.
    lacks : capabilities that it does not claim (`pykernel.laws.CAPABILITIES`); by default its attribute `lacks`, else
        none. Laws that no model may waive hold regardless.
    laws : ids to try, by default all.
    expected_failures : ids of laws that it is known to break, each with the reason.
    progress : called with each law before it is tried.

    Raises `ArgumentError` for an unknown law or capability, and for an expected failure without a reason.
    """
    expected = dict(expected_failures or {})
    waived = frozenset(_lacks(model) if lacks is None else lacks)
    chosen = list(LAWS.values()) if laws is None else known_laws(laws)
    known_laws(expected)
    if unknown := sorted(waived - set(CAPABILITIES)):
        raise ArgumentError(f"there is no capability {unknown[0]!r}; known are {', '.join(CAPABILITIES)}")
    if any(not reason.strip() for reason in expected.values()):
        raise ArgumentError("expected_failures holds a law without a reason; give one")
    subject, report = make_subject(model, factory, inputs), Report()
    for law in chosen:
        if progress is not None:
            progress(law)
        start = perf_counter()
        _try(law, subject, report, waived, expected)
        report.seconds[law.id] = perf_counter() - start
    return report


def _lacks(model: Any) -> Iterable[str]:
    found = getattr(model, "lacks", ())
    return found if isinstance(found, (frozenset, set, tuple, list)) else ()


def _try(law: Law, subject: Subject, report: Report, waived: frozenset[str], expected: dict[str, str]) -> None:
    """Try one law and file what came of it."""
    if law.needs in waived and law.needs:
        report.skipped.append(Skip(law.id, f"the model does not claim {law.needs}: {CAPABILITIES[law.needs]}"))
        return
    try:
        found = _first(law, subject)
    except Skipped as reason:
        report.skipped.append(Skip(law.id, str(reason)))
        return
    if law.id in expected and not found:
        found = [f"this failure was expected ({expected[law.id]}), and did not happen"]
    elif law.id in expected:
        report.expected.append(_violation(law, [f"expected: {expected[law.id]}", *found]))
        return
    if not found:
        report.passed.append(law.id)
    else:
        (report.advice if law.standing == ADVICE else report.violations).append(_violation(law, found))


def _first(law: Law, subject: Subject) -> list[str]:
    """The first violations. What the model raises is one."""
    found: list[str] = []
    try:
        for message in islice(law.check(subject), MOST_LINES + 1):
            found.append(message)
    except Skipped:
        if not found:
            raise
    except (Exception, SystemExit) as error:
        found.append(f"raised {type(error).__name__}: {error}")
    return found


def _violation(law: Law, found: list[str]) -> Violation:
    return Violation(law.id, law.standing, law.statement, tuple(found[:MOST_LINES]), len(found) > MOST_LINES)
