"""From a file to one typed document: the steps that every kind shares.

A kind's own module says which class a file holds and how its paths begin; here the file is read, its `kind` is
compared first (a Deployment given where a Scenario is wanted is one problem, not twenty), the fields are decoded,
and every problem of the file is raised together.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar, cast

from pykernel.documents.fieldtypes import Report, record
from pykernel.documents.nodes import Document, Mapping, Reported, Source, describe, is_null
from pykernel.documents.reader import Reading, read_file
from pykernel.errors import DocumentError, Problem

D = TypeVar("D", bound=Document)


def load_document(cls: type[D], path: str | os.PathLike[str], prefix: str, **identities: str) -> D:
    """The one document of a file. Raises DocumentError with every problem of the file."""
    reading = read_file(path, (prefix,))
    document = decode(cls, reading.roots[0], prefix, reading, **identities)
    finish(reading)
    return cast("D", document)


def decode(cls: type[D], root: Mapping, prefix: str, reading: Reading, remark: str = "", **identities: str) -> D | None:
    """One document of a reading, its problems added to the reading's; None when it has any."""
    report = Report(reading.file, prefix, reading.problems)
    kind = getattr(cls, "KIND", "")
    if kind and not _kind_fits(kind, root, report):
        return None
    document = record(cls).read(root, root.line, None, report, **identities)
    if document is None:
        return None
    document.remember(Source(reading.file, root, remark))
    return cast("D", document)


def finish(reading: Reading) -> None:
    """Raise what a reading has collected, in the order of the file."""
    if reading.problems:
        raise DocumentError(in_file_order(reading.problems))


def in_file_order(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.line)


def _kind_fits(kind: str, root: Mapping, report: Report) -> bool:
    """Whether the document is of the wanted kind, or may be: without the key the other fields are still decoded."""
    node = root.entries.get("kind")
    if node is None or is_null(node):
        line = root.lines.get("kind", root.line)
        report.add((None, "kind"), line, f"the key is missing; accepted: {kind}")
        root.put("kind", Reported(line), line)
        return True
    if getattr(node, "value", None) == kind:
        return True
    report.add((None, "kind"), root.lines["kind"], f"found {describe(node)}; accepted: {kind}")
    return False


def type_problems(document: Any, cls: type[Any], prefix: str) -> list[Problem]:
    """What makes a document's values unfit for their declared types, whoever assigned them."""
    from pykernel.documents.nodes import path_text

    faults: list[Any] = []
    record(cls).check(document, None, faults)
    if not faults:
        return []
    source = document.source if isinstance(document, Document) else None
    problems = []
    for trail, message in faults:
        line = source.line(path_text("", trail)) if source else 0
        problems.append(Problem("error", path_text(prefix, trail), message, source.file if source else "", line))
    return problems
