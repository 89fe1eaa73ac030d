"""How a check reports: a collector that knows the document's file and lines, and the few ranges checks are made of."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from pykernel.documents.fieldtypes import did_you_mean
from pykernel.documents.nodes import Document, shown
from pykernel.errors import Problem


class Findings:
    """Collects the problems of one document under its path prefix, each with the line of its field."""

    def __init__(self, document: Document | None, prefix: str) -> None:
        self.source = document.source if document is not None else None
        self.prefix = prefix
        self.problems: list[Problem] = []

    def error(self, path: str, message: str) -> None:
        """Report what makes the document unusable; `path` is the field's path inside the document."""
        self._add("error", path, message)

    def warning(self, path: str, message: str) -> None:
        """Report what is odd but usable."""
        self._add("warning", path, message)

    def _add(self, severity: str, path: str, message: str) -> None:
        file = self.source.file if self.source else ""
        line = self.source.line(path) if self.source else 0
        full = f"{self.prefix}.{path}" if path else self.prefix
        self.problems.append(Problem(severity, full, message, file, line))


def stated(findings: Findings, path: str, value: str) -> None:
    """Text that must not be empty."""
    if not value:
        findings.error(path, "found nothing; accepted: text that is not empty")


def one_of(findings: Findings, path: str, value: str, members: Collection[str]) -> bool:
    """Text of a closed set; returns whether it is."""
    if value in members:
        return True
    if not value:
        findings.error(path, f"the key is missing or empty; accepted: {', '.join(members)}")
        return False
    near = did_you_mean(value, members)
    findings.error(path, f"found {shown(value)}{near}; accepted: {', '.join(members)}")
    return False


def at_least(findings: Findings, path: str, value: float, least: int) -> bool:
    """A number with a lowest value; returns whether it has it."""
    if value >= least:
        return True
    findings.error(path, f"found {shown(value)}; accepted: {least} or more")
    return False


def above_zero(findings: Findings, path: str, value: float) -> bool:
    """A number that must be positive; returns whether it is."""
    if value > 0:
        return True
    findings.error(path, f"found {shown(value)}; accepted: a number above 0")
    return False


def within(findings: Findings, path: str, value: float, low: float, high: float) -> None:
    """A number between two bounds, both included."""
    if not low <= value <= high:
        findings.error(path, f"found {shown(value)}; accepted: a number from {low} to {high}")


_HEXADECIMAL = re.compile("[0-9a-fA-F]*")


def digest(findings: Findings, path: str, value: str, *, hexadecimal: bool) -> None:
    """A SHA-256 digest as text of 64 characters; other than hexadecimal ones are an error or a warning."""
    if len(value) != 64:
        findings.error(path, f"found {len(value)} characters; accepted: the 64 hexadecimal digits of a SHA-256 digest")
    elif not _HEXADECIMAL.fullmatch(value):
        report: Any = findings.error if hexadecimal else findings.warning
        report(path, f"found {shown(value)}; accepted: the 64 hexadecimal digits of a SHA-256 digest")
