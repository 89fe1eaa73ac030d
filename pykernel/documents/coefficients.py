"""A CoefficientSet: measured, published and assumed numbers, each with its unit, its origin and where it applies.

In a file every entry is a mapping with one key, the entry's name; here the name is a field like the others. Keys,
words and companion rules are those of inference-sim/blis-schemas v0.2.2 and the registry that follows it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pykernel.documents import vocabulary
from pykernel.documents.fieldtypes import Report, record, words
from pykernel.documents.findings import Findings, one_of, stated
from pykernel.documents.loading import decode, finish
from pykernel.documents.nodes import Document, Reported, Scalar, Sequence, describe, is_null, shown
from pykernel.documents.nodes import Mapping as MappingNode
from pykernel.documents.reader import read_file
from pykernel.documents.writing import to_yaml
from pykernel.errors import Problem


@dataclass
class Scope:
    """Where an entry applies: each stated dimension lists the values it holds for."""

    hardware: list[str] = field(default_factory=list)
    model: list[str] = field(default_factory=list)
    tp: list[int] = field(default_factory=list)
    ep: list[int] = field(default_factory=list)
    nodes_spanned: list[int] = field(default_factory=list)

    def dimensions(self) -> tuple[list[Any], ...]:
        return self.hardware, self.model, self.tp, self.ep, self.nodes_spanned

    def identity(self) -> tuple[Any, ...]:
        """The scope without regard to the order of its lists."""
        return tuple(frozenset(values) if values else None for values in self.dimensions())


@dataclass
class CoefficientSource:
    """One citation of an entry."""

    kind: str = field(metadata=words(vocabulary.SOURCE_KINDS))
    cite: str
    role: str = field(metadata=words(vocabulary.SOURCE_ROLES))


@dataclass
class Coefficient:
    """One entry of a set; `ci95` is the 95% interval of its value."""

    name: str
    value: float
    units: str = field(metadata=words(vocabulary.COEFFICIENT_UNITS))
    method: str = field(metadata=words(vocabulary.METHODS))
    fitted: bool
    scope: Scope
    ci95: tuple[float, float] | None = None
    sources: list[CoefficientSource] = field(default_factory=list)
    rationale: str = ""
    copied_from: str = ""
    supersedes: str = ""
    validated: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)


@dataclass
class CoefficientSet(Document):
    """Entries in file order; of the entries of one name that apply, the last one counts."""

    KIND: ClassVar[str] = "CoefficientSet"
    MOVED_KEYS: ClassVar[Mapping[str, str]] = {
        "extends": "sets do not inherit; list several sets in the scenario",
        "backend": "a set has no backend; leave the key out",
    }

    kind: str
    name: str
    coefficients: list[Coefficient]


def load(path: str | os.PathLike[str]) -> CoefficientSet:
    """The set of a file. Raises DocumentError, paths beginning with `coefficients:<stem of the file>`."""
    prefix = f"coefficients:{Path(path).stem}"
    reading = read_file(path, (prefix,))
    root = reading.roots[0]
    entries = root.entries.get("coefficients")
    if isinstance(entries, Sequence):
        report = Report(reading.file, prefix, reading.problems)
        for index in range(len(entries.items)):
            _unwrap(entries, index, report)
    document = decode(CoefficientSet, root, prefix, reading)
    finish(reading)
    assert document is not None
    return document


def _unwrap(entries: Sequence, index: int, report: Report) -> None:
    """Turn the item `name: {...}` into the mapping with the name inside, as the dataclass has it."""
    item = entries.items[index]
    entries.items[index] = Reported(item.line)
    trail = ((None, "coefficients"), index)
    if not isinstance(item, MappingNode) or len(item.entries) != 1:
        found = f"{len(item.entries)} keys" if isinstance(item, MappingNode) else describe(item)
        report.add(trail, item.line, f"found {found}; accepted: a mapping with one key, the name of the entry")
        return
    [(name, body)] = item.entries.items()
    line = item.lines[name]
    if not isinstance(body, MappingNode):
        report.add(trail, line, f"found {describe(body)} under {name}; accepted: a mapping")
        return
    entry = MappingNode(line)
    entry.put("name", Scalar(name, line, False), line)
    for key, node in body.entries.items():
        if key != "name":  # a name inside the entry is redundant; the key counts
            entry.put(key, node, body.lines[key])
    _allow_short_forms(entry, trail, report)
    entries.items[index] = entry


def _allow_short_forms(entry: MappingNode, trail: Any, report: Report) -> None:
    """A single metric name stands for a list of one; a deliberate zero may leave its value out."""
    for key in ("validated", "unsupported"):
        node = entry.entries.get(key)
        if isinstance(node, Scalar) and not is_null(node):
            listed = Sequence(node.line)
            listed.items.append(node)
            entry.entries[key] = listed
    sources = entry.entries.get("sources")
    if isinstance(sources, Sequence) and not sources.items:
        report.add((trail, "sources"), entry.lines["sources"], "found an empty list; accepted: at least one source")
    method = entry.entries.get("method")
    if "value" not in entry.entries and isinstance(method, Scalar) and method.value == "not_charged":
        entry.put("value", Scalar("0", method.line, True), method.line)


def dump(coefficient_set: CoefficientSet) -> str:
    """The set as YAML text that loads back equal."""
    plain = record(CoefficientSet).plain(coefficient_set)
    plain["coefficients"] = [{entry.pop("name"): entry} for entry in plain["coefficients"]]
    return to_yaml(plain)


def label(coefficient_set: CoefficientSet) -> str:
    """What the set is called in a scenario: the stem of its file, or its name where it has no file."""
    source = coefficient_set.source
    return Path(source.file).stem if source else coefficient_set.name


def check(coefficient_set: CoefficientSet, prefix: str = "") -> list[Problem]:
    """Problems of a well-typed set; paths begin with `coefficients:<label>` unless a prefix is given."""
    stem = label(coefficient_set)
    findings = Findings(coefficient_set, prefix or f"coefficients:{stem}")
    one_of(findings, "kind", coefficient_set.kind, (CoefficientSet.KIND,))
    stated(findings, "name", coefficient_set.name)
    if coefficient_set.name == vocabulary.RESERVED_SET:
        message = "under which the kernel's own assumptions are told; accepted: another name"
        findings.error("name", f"found {coefficient_set.name!r}, {message}")
    if coefficient_set.name and coefficient_set.name != stem:
        message = f"found {coefficient_set.name!r} in a file named {stem}; a scenario lists the set as {stem}"
        findings.warning("name", message)
    if not coefficient_set.coefficients:
        findings.error("coefficients", "found no entry; accepted: at least one")
    seen: dict[Any, int] = {}
    for index, entry in enumerate(coefficient_set.coefficients):
        _check_entry(findings, index, entry)
        first = seen.setdefault((entry.name, entry.scope.identity()), index)
        if first != index:
            message = f"found {entry.name!r} with the scope of coefficients[{first}]; accepted: each scope once a name"
            findings.error(f"coefficients[{index}].name", message)
    return findings.problems


def _check_entry(findings: Findings, index: int, entry: Coefficient) -> None:
    at = f"coefficients[{index}]"
    if not entry.name:
        findings.error(f"{at}.name", "found nothing; accepted: a name")
    if entry.units not in vocabulary.COEFFICIENT_UNITS:
        one_of(findings, f"{at}.units", entry.units, vocabulary.COEFFICIENT_UNITS)
    method = vocabulary.METHODS.get(entry.method)
    if method is None:
        one_of(findings, f"{at}.method", entry.method, vocabulary.METHODS)
    else:
        _check_method(findings, at, entry, method)
    if not any(entry.scope.dimensions()):
        findings.error(f"{at}.scope", "no dimension is stated; accepted: at least one with a value")
    if entry.ci95 is not None:
        _check_interval(findings, f"{at}.ci95", entry.ci95, entry.value)
    for number, source in enumerate(entry.sources):
        path = f"{at}.sources[{number}]"
        one_of(findings, f"{path}.kind", source.kind, vocabulary.SOURCE_KINDS)
        one_of(findings, f"{path}.role", source.role, vocabulary.SOURCE_ROLES)
        stated(findings, f"{path}.cite", source.cite)


def _check_method(findings: Findings, at: str, entry: Coefficient, method: vocabulary.Method) -> None:
    if entry.value == 0 and entry.method != "not_charged":
        findings.error(f"{at}.value", f"found 0 with method {entry.method}; accepted: another value, or not_charged")
    if entry.value != 0 and entry.method == "not_charged":
        findings.error(f"{at}.value", f"found {shown(entry.value)} with method not_charged; accepted: 0")
    if entry.fitted and entry.method != "measured":
        findings.error(f"{at}.fitted", f"found true with method {entry.method}; accepted: true only with measured")
    for companion in ("rationale", "sources", "copied_from"):
        if getattr(method, companion) and not getattr(entry, companion):
            message = f"the key is missing with method {entry.method}; accepted: {_COMPANIONS[companion]}"
            findings.error(f"{at}.{companion}", message)


_COMPANIONS = {
    "rationale": "text that says why",
    "sources": "a list with at least one source",
    "copied_from": "the scope that was copied",
}


def _check_interval(findings: Findings, at: str, interval: tuple[float, float], value: float) -> None:
    low, high = interval
    if low > high:
        findings.error(at, f"found the bounds {shown(low)} and {shown(high)}; accepted: the lower one first")
    elif not low <= value <= high:
        message = f"the interval {shown(low)} to {shown(high)} is without the value {shown(value)}; accepted: around it"
        findings.error(at, message)
