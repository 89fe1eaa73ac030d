"""A row of the refusal tables, and the few words that rows share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pykernel.errors import RefusedError
from pykernel.resolve.case import Case

ENGINE = "the engine does not start"
PRICE = "no truthful price"

REFERENCE = "inference-sim/blis-latency-kernel"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse.

    setting : the dotted setting at fault.
    verdict : `ENGINE` or `PRICE`.
    when : the condition in words.
    why : the reason, which ends a message's first half.
    nearest : what would work, in words or worked out for the case.
    origin : where the rule comes from, a source file of the engine at v0.31.0 unless it says otherwise.
    finds : what is at fault, in words; empty where nothing is.
    """

    id: str
    setting: str
    verdict: str
    when: str
    why: str
    nearest: str
    origin: str
    finds: Callable[[Case], str]
    worked_out: Callable[[Case], str] | None = None

    def error(self, found: str, case: Case) -> RefusedError:
        nearest = self.worked_out(case) if self.worked_out else self.nearest
        return RefusedError(f"{found}: {self.why}; {nearest}", self.setting, self.id)


def listed(names: Iterable[object]) -> str:
    """Names in a row, `none` for no names."""
    return ", ".join(str(name) for name in names) or "none"


def when(condition: bool, text: str) -> str:
    """The text where the condition holds, else nothing."""
    return text if condition else ""
