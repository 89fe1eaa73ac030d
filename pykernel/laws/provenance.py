"""Laws V: what a model says of the coefficients that it is priced from, and of what it assumes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pykernel.documents import Inputs
from pykernel.errors import PykernelError, RefusedError
from pykernel.interface import EVIDENCE_METHODS
from pykernel.laws.law import Refused, Skipped, law
from pykernel.laws.observations import vector
from pykernel.laws.subject import Subject
from pykernel.resolve import KERNEL_ASSUMPTION_SET

METHODS = EVIDENCE_METHODS | {"copied", "assumed", "not_charged"}


@law(
    "V1",
    "Every entry has a name, a set and a known method, and there is one.",
    sweep="every entry",
    needs="coefficients",
)
def rows(subject: Subject) -> Iterator[str]:
    origins = subject.model.provenance()
    if not origins:
        yield "provenance is empty"
    for origin in origins:
        if not origin.name or not origin.set or origin.method not in METHODS:
            yield f"{origin}"


def _used(subject: Subject) -> list[str]:
    """Coefficients in the documents, by name."""
    documents = subject.given
    return sorted({entry.name for entries in documents.coefficients for entry in entries.coefficients})


def _without(*names: str) -> Any:
    def change(documents: Inputs) -> None:
        for entries in documents.coefficients:
            entries.coefficients = [entry for entry in entries.coefficients if entry.name not in names]

    return change


def _scaled(*names: str, by: float = 1.5) -> Any:
    def change(documents: Inputs) -> None:
        for entries in documents.coefficients:
            for entry in entries.coefficients:
                if entry.name in names:
                    entry.value, entry.ci95 = (entry.value or 1.0) * by, None

    return change


def _prices(model: Any, subject: Subject) -> list[Any]:
    """What coefficients can change, apart from the accessors."""
    seen = vector(model, subject.standard)
    return [value for name, value in seen.items() if name not in ("provenance", "resolved", "deployment")]


@law(
    "V2",
    "A coefficient that changes a price, or whose absence refuses one, is an entry, with the set and method it has.",
    sweep="every coefficient of the documents: half as large again, and removed",
    needs="coefficients",
)
def complete(subject: Subject) -> Iterator[str]:
    documents = subject.given
    if subject.build is None:
        raise Skipped("no factory that takes documents was given")
    origins, before = subject.model.provenance(), _prices(subject.model, subject)
    stated = {
        (entry.name, entries.name, entry.method) for entries in documents.coefficients for entry in entries.coefficients
    }
    sets = {entries.name for entries in documents.coefficients}
    for row in origins:
        if row.set in sets and (row.name, row.set, row.method) not in stated:
            yield f"{row.name} is {row.method} of {row.set}, where no such entry is"
    rows = {row.name for row in origins}
    others = [name for name in _used(subject) if name not in rows]
    for how, change in (("scaled", _scaled), ("removed", _without)):
        for name, effect in _culprits(subject, change, others, before):
            yield f"{name}: {how}, it {effect}, and it is no entry"


def _culprits(subject: Subject, change: Any, names: list[str], before: list[Any]) -> Iterator[tuple[str, str]]:
    """Those of the names whose change shows, found by halves, since most changes show nothing."""
    if not names:
        return
    documents = subject.documents()
    change(*names)(documents)
    assert subject.build is not None
    try:
        effect = "" if _prices(subject.build(documents), subject) == before else "changes a price"
    except PykernelError:
        effect = "is refused"
    if effect and len(names) == 1:
        yield names[0], effect
    elif effect:
        half = len(names) // 2
        yield from _culprits(subject, change, names[:half], before)
        yield from _culprits(subject, change, names[half:], before)


@law(
    "V3",
    "A missing coefficient is refused, or disclosed as an assumption where that changes an answer and only there.",
    sweep="every coefficient that is an entry, removed, with those of other widths that could stand in",
    needs="coefficients",
)
def disclosed(subject: Subject) -> Iterator[str]:
    families: dict[str, list[str]] = {}
    known = {row.name for row in subject.model.provenance() if not _is_own(row)}
    for name in (name for name in _used(subject) if name in known):
        families.setdefault(_family(name), []).append(name)
    yield from _undisclosed(subject, list(families.values()), _prices(subject.model, subject))


def _family(name: str) -> str:
    """The name without the width that it was measured at: the nearest width stands in for one that is missing."""
    return re.sub(r"_\d+rank", "", name)


def _undisclosed(subject: Subject, families: list[list[str]], before: list[Any]) -> Iterator[str]:
    """What is wrong once they are removed: all at once, and by halves where that shows."""
    if not families:
        return
    names = [name for family in families for name in family]
    try:
        twin = subject.twin(_without(*names))
    except Refused:
        rows, changed, refused = [], True, True
    else:
        removed = {_family(name) for name in names}
        rows = [row for row in twin.provenance() if _family(row.name) in removed]
        changed, refused = _prices(twin, subject) != before, False
    if (changed or rows) and len(families) > 1:
        half = len(families) // 2
        yield from _undisclosed(subject, families[:half], before)
        yield from _undisclosed(subject, families[half:], before)
    elif changed and not refused and not any(_is_own(row) and row.method == "assumed" for row in rows):
        yield f"{names[0]}: without it answers differ, and no assumption says so"
    elif rows and not changed and not _reacts(subject, names, before):
        yield f"{names[0]}: without it answers are the same, and {rows[0]} is still an entry"


def _reacts(subject: Subject, names: list[str], before: list[Any]) -> bool:
    """Whether any value of these would change an answer, though their absence does not."""
    return any(_prices(subject.twin(_scaled(*names, by=by)), subject) != before for by in (1e-3, 1e3))


_DEFAULTS: dict[str, dict[str, Any]] = {
    "block_size": {"block_size": 0},
    "max_num_batched_tokens": {"max_num_batched_tokens": 0},
    "max_num_seqs": {"max_num_seqs": 0},
    "cudagraph_mode": {"cudagraph_mode": ""},
    "mamba_cache_mode": {"mamba_cache_mode": ""},
    "dcp_comm_backend": {"dcp_comm_backend": "", "dcp": 2},
}
"""Engine settings with a default, and what leaves each unset."""


@law(
    "V4",
    "A default that the model fills in is an assumption that begins with its value; stating it changes nothing else.",
    sweep="block size, token budget, sequence cap, graph mode, mode of recurrent state and exchange of decode-context "
    "ranks, each unset and stated",
    needs="coefficients",
)
def defaults(subject: Subject) -> Iterator[str]:
    for name, unset in _DEFAULTS.items():
        try:
            without = subject.settings(**unset)
        except Refused:
            continue
        row = next((row for row in without.provenance() if _is_own(row) and row.name == name), None)
        if row is None:
            if _matters(subject, without, unset, name):
                yield f"{name} is unset, and no assumption says what it is"
            continue
        value = row.scope.partition(":")[0]
        if row.method != "assumed" or not value:
            yield f"{row} is no assumption that begins with its value"
            continue
        try:
            stated = subject.settings(**unset | {name: int(value) if value.isdigit() else value})
        except Refused as reason:
            yield f"{name} = {value} is assumed, and cannot be stated: {reason}"
            continue
        if any(_is_own(row) and row.name == name for row in stated.provenance()):
            yield f"{name} is stated and still an assumption"
        if _prices(stated, subject) != _prices(without, subject):
            yield f"{name} = {value} stated changes an answer"


def _is_own(row: Any) -> bool:
    return bool(row.set == KERNEL_ASSUMPTION_SET)


def _matters(subject: Subject, without: Any, unset: dict[str, Any], name: str) -> bool:
    """Whether some stated value answers otherwise than the unset one, so that a default was filled in."""
    others: dict[str, list[Any]] = {
        "block_size": [64, 128],
        "max_num_batched_tokens": [1024],
        "max_num_seqs": [8],
        "cudagraph_mode": ["NONE", "FULL"],
        "mamba_cache_mode": ["all", "align"],
        "dcp_comm_backend": ["a2a"],
    }
    for value in others[name]:
        try:
            other = subject.settings(**unset | {name: value})
        except Refused:
            continue
        if _prices(other, subject) != _prices(without, subject):
            return True
    return False


@law(
    "V5", "The set of the model's own assumptions is none of the registry's.", sweep="every entry", needs="coefficients"
)
def own_set(subject: Subject) -> Iterator[str]:
    sets = {entries.name for entries in subject.given.coefficients if entries.name}
    names = {entry.name for entries in subject.given.coefficients for entry in entries.coefficients}
    for row in subject.model.provenance():
        if row.name not in names and row.set in sets:
            yield f"{row.name} is no coefficient of the registry, but has its set {row.set}"


@law("V6", "The evidence counts the entries.", sweep="every entry")
def counted(subject: Subject) -> Iterator[str]:
    origins, evidence = subject.model.provenance(), subject.model.evidence()
    measured = sum(origin.method in EVIDENCE_METHODS for origin in origins)
    assumed = sorted(origin.name for origin in origins if origin.method == "assumed")
    if (evidence.total, evidence.measured, sorted(evidence.assumed)) != (len(origins), measured, assumed):
        yield f"evidence is {evidence.measured} of {evidence.total}, the entries {measured} of {len(origins)}"


@law("V7", "An assumed coefficient is priced.", sweep="every entry made an assumption", needs="coefficients")
def assumed(subject: Subject) -> Iterator[str]:
    documents = subject.documents()
    if subject.build is None:
        raise Skipped("no factory that takes documents was given")
    for entries in documents.coefficients:
        for entry in entries.coefficients:
            if entry.method in EVIDENCE_METHODS:
                entry.method, entry.rationale, entry.ci95 = "assumed", entry.rationale or "for a test", None
                entry.fitted = False
    try:
        subject.build(documents)
    except RefusedError as error:
        yield f"refused: {error}"
    except PykernelError as error:
        raise Skipped(f"the documents do not allow it: {str(error).splitlines()[0]}") from None
