"""What a law is, and the list of all laws.

A law is a plain generator function that yields one line for each violation it finds; the decorator `law` gives it its
id, class, statement, tolerance and sweep and enters it into `LAWS`. Laws see a model from outside only. A law that
needs what the caller did not give raises `Skipped` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pykernel.errors import ArgumentError

if TYPE_CHECKING:
    from pykernel.laws.subject import Subject

CONTRACT, MODEL, ADVICE = "contract", "model-specific", "advisory"

CAPABILITIES: dict[str, str] = {
    "monotone": "more work never costs less (laws M)",
    "memory": "it sizes what a rank holds (laws F)",
    "sequences": "it sizes what a sequence holds (laws Q and G)",
    "host": "it prices host work around the steps (laws H)",
    "coefficients": "it is priced from coefficients and says which (laws V)",
    "blis": "it claims to reproduce the BLIS cost model (all model-specific laws)",
}
"""What a model is taken to be capable of unless it says that it is not."""

Check = Callable[["Subject"], Iterator[str]]


class Skipped(Exception):  # noqa: N818 - it is no error
    """A law cannot be tried here; the message says why."""


class Refused(Skipped):
    """A law cannot be tried on a deployment, since the model does not price it."""


@dataclass(frozen=True, slots=True)
class Law:
    """One law. `needs` is the capability that a model may waive it with, empty where it may not."""

    id: str
    standing: str
    statement: str
    tolerance: str
    sweep: str
    needs: str
    check: Check = field(repr=False, compare=False)


LAWS: dict[str, Law] = {}
"""Every law by id, in the order of docs/laws.md."""


def law(
    id: str,
    statement: str,
    *,
    sweep: str,
    tolerance: str = "exact",
    standing: str = CONTRACT,
    needs: str = "",
) -> Callable[[Check], Check]:
    """Enter a function into `LAWS`."""

    def enter(check: Check) -> Check:
        assert id not in LAWS, id
        waived_by = "blis" if standing == MODEL else needs
        LAWS[id] = Law(id, standing, statement, tolerance, sweep, waived_by, check)
        return check

    return enter


FAMILIES = "PSBMFQGTXHVRDK"
"""First letters of ids, in the order of docs/laws.md."""


def put_in_order() -> None:
    """Sort `LAWS` by family and number, whichever file entered them first."""
    ordered = sorted(LAWS.items(), key=lambda item: _place(item[0]))
    LAWS.clear()
    LAWS.update(ordered)


def _place(id: str) -> tuple[int, int, str]:
    number = id[1:].rstrip("abcdefghijklmnopqrstuvwxyz")
    return FAMILIES.index(id[0]), int(number), id[1 + len(number) :]


def known_laws(ids: Iterable[str]) -> list[Law]:
    """The laws of these ids. Raises `ArgumentError` for one that is none, with those that it may mean."""
    found = []
    for id in ids:
        if id not in LAWS:
            family = [other for other in LAWS if other[0] == id[:1].upper()]
            there = f"of that family there are {', '.join(family)}" if family else f"families are {', '.join(FAMILIES)}"
            raise ArgumentError(f"there is no law {id!r}; {there}; docs/laws.md lists them all")
        found.append(LAWS[id])
    return found
