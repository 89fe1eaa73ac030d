"""What a declared field type accepts: from a node of a file, and from a value that somebody assigned in memory.

The documents are plain dataclasses, and their annotations are the only declaration of types. Each annotation becomes
one `FieldType`, which reads a node (`read`), checks a Python value (`check`) and turns a value into the plain data
that is written (`plain`), so reading, validation and writing cannot disagree about a field.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Collection, Iterable
from collections.abc import Mapping as MappingOf
from dataclasses import MISSING, dataclass
from typing import Any

from pykernel.documents.nodes import (
    Mapping,
    Node,
    Reported,
    Scalar,
    Sequence,
    Trail,
    describe,
    is_null,
    path_text,
    shown,
)
from pykernel.documents.reader import collect
from pykernel.errors import Problem

INT64_MAX = 2**63 - 1

_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})


IDENTITY = {"identity": True}
"""Metadata of a field that names the document: it comes from the file's name, or from the key above the document."""


def key(name: str, *, always: bool = False, words: Collection[str] = ()) -> dict[str, Any]:
    """Metadata of a field that a file spells differently from the attribute.

    Parameters: `name`, the key in the file; `always`, write the key even when it holds its default; `words`, as below.
    """
    return {"key": name, "always": always, "words": words}


def words(members: Collection[str]) -> dict[str, Any]:
    """Metadata of a text field with a closed set of values, which the message about a missing key lists."""
    return {"words": members}


class Report:
    """Collects the problems of one document while it is read."""

    def __init__(self, file: str, prefix: str, problems: list[Problem]) -> None:
        self.file = file
        self.prefix = prefix
        self.problems = problems

    def add(self, trail: Trail | None, line: int, message: str) -> None:
        collect(self.problems, Problem("error", path_text(self.prefix, trail), message, self.file, line))


Fault = tuple["Trail | None", str]
"""Where a value in memory is of the wrong type, and what is wrong with it."""


class FieldType:
    """One declared type. `wanted` is how a message calls it."""

    wanted = ""

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        """The typed value of a node; what does not fit goes to the report, and any value may then come back."""
        raise NotImplementedError

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        """Append what makes a Python value unfit for the type."""
        raise NotImplementedError

    def plain(self, value: Any) -> Any:
        """The value as plain data: text, numbers, flags, lists and dictionaries."""
        return value

    def refuse(self, node: Node, line: int, trail: Trail | None, report: Report, advice: str = "") -> None:
        """Report a node that does not fit, unless it was reported when the tree was built."""
        if type(node) is not Reported:
            report.add(trail, line, f"found {describe(node)}; accepted: {self.wanted}{advice}")


class Text(FieldType):
    wanted = "text"

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        if type(node) is not Scalar:
            self.refuse(node, line, trail, report)
            return ""
        return "" if is_null(node) else node.value

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if type(value) is not str and not isinstance(value, str):
            faults.append((trail, f"found {shown(value)}; accepted: text"))


class Integer(FieldType):
    wanted = "an integer"

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        if type(node) is Scalar and node.plain:
            text = node.value
            if _INTEGER.fullmatch(text):
                if len(text) < 40 and abs(int(text)) <= INT64_MAX:
                    return int(text)
                report.add(trail, line, f"found {shown(text)}; accepted: an integer of at most {INT64_MAX}")
                return 0
            if _NUMBER.fullmatch(text) and float(text).is_integer() and abs(float(text)) <= 2**53:
                return int(float(text))
        self.refuse(node, line, trail, report, _unquote(node, _NUMBER))
        return 0

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            faults.append((trail, f"found {shown(value)}; accepted: an integer"))
        elif abs(value) > INT64_MAX:
            faults.append((trail, f"found {shown(value)}; accepted: an integer of at most {INT64_MAX}"))


class Number(FieldType):
    wanted = "a finite number"

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        if type(node) is Scalar and node.plain and _NUMBER.fullmatch(node.value):
            number = float(node.value)
            if math.isfinite(number):
                return number
        self.refuse(node, line, trail, report, _unquote(node, _NUMBER))
        return 0.0

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                if math.isfinite(value):
                    return
            except OverflowError:
                pass
        faults.append((trail, f"found {shown(value)}; accepted: a finite number"))


class Flag(FieldType):
    wanted = "true or false"

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        if type(node) is Scalar and node.plain:
            if node.value in _TRUE:
                return True
            if node.value in _FALSE:
                return False
        self.refuse(node, line, trail, report, _unquote(node, re.compile("(?i:true|false)")))
        return False

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if not isinstance(value, bool):
            faults.append((trail, f"found {shown(value)}; accepted: true or false"))


class Optional(FieldType):
    """A value or None, where None is the state of a key that is not written."""

    def __init__(self, inner: FieldType) -> None:
        self.inner = inner
        self.wanted = inner.wanted

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        return self.inner.read(node, line, trail, report)

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if value is not None:
            self.inner.check(value, trail, faults)

    def plain(self, value: Any) -> Any:
        return None if value is None else self.inner.plain(value)


class ListOf(FieldType):
    def __init__(self, inner: FieldType) -> None:
        self.inner = inner
        self.wanted = "a list"

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        if type(node) is not Sequence:
            self.refuse(node, line, trail, report, ("" if type(node) is Mapping else ", even of one item"))
            return []
        read = self.inner.read
        return [read(item, item.line, (trail, index), report) for index, item in enumerate(node.items)]

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if not isinstance(value, (list, tuple)):
            faults.append((trail, f"found {shown(value)}; accepted: a list"))
            return
        for index, item in enumerate(value):
            self.inner.check(item, (trail, index), faults)

    def plain(self, value: Any) -> Any:
        return [self.inner.plain(item) for item in value]


class TupleOf(ListOf):
    """A list that never changes, for the fields of frozen documents."""

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        return tuple(super().read(node, line, trail, report))


class Pair(FieldType):
    """Two values of one type, such as the bounds of an interval."""

    def __init__(self, inner: FieldType) -> None:
        self.inner = inner
        self.wanted = "a list of two numbers"

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        if type(node) is not Sequence or len(node.items) != 2:
            self.refuse(node, line, trail, report)
            return (0.0, 0.0)
        return tuple(self.inner.read(item, item.line, (trail, i), report) for i, item in enumerate(node.items))

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            faults.append((trail, f"found {shown(value)}; accepted: {self.wanted}"))
            return
        for index, item in enumerate(value):
            self.inner.check(item, (trail, index), faults)

    def plain(self, value: Any) -> Any:
        return list(value)


class TableOf(FieldType):
    """A mapping whose keys are free text."""

    wanted = "a mapping"

    def __init__(self, inner: FieldType) -> None:
        self.inner = inner

    def read(self, node: Node, line: int, trail: Trail | None, report: Report) -> Any:
        if type(node) is not Mapping:
            self.refuse(node, line, trail, report)
            return {}
        read, lines = self.inner.read, node.lines
        return {name: read(item, lines[name], (trail, name), report) for name, item in node.entries.items()}

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            faults.append((trail, f"found {shown(value)}; accepted: a mapping with text as keys"))
            return
        for name, item in value.items():
            self.inner.check(item, (trail, name), faults)

    def plain(self, value: Any) -> Any:
        return {name: self.inner.plain(item) for name, item in value.items()}


@dataclass(frozen=True)
class Field:
    """One field of a record: attribute, key, type, and whether a file must state it."""

    attribute: str
    key: str
    type: FieldType
    required: bool
    identity: bool
    always: bool
    default: Any
    wanted: str

    def stated(self, value: Any) -> bool:
        """Whether the value is written to a file: required keys always, others when they differ from absence."""
        return self.required or self.always or value != self.default


class Record(FieldType):
    """A dataclass, read from a mapping with exactly its keys.

    Class attributes of the dataclass adjust the reading: `ACCEPTS_COMMENTS` (keys `_comment` and `_comment_*` are
    dropped), `IGNORED_KEYS` (accepted and dropped), `RENAMED_KEYS` (an older key and today's) and `MOVED_KEYS` (a key
    that belongs elsewhere, and the advice to give).
    """

    wanted = "a mapping"

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        hints = typing.get_type_hints(cls)
        self.fields = tuple(_field(item, hints[item.name]) for item in dataclasses.fields(cls))
        self.by_key = {item.key: item for item in self.fields if not item.identity}
        self.required = tuple(item for item in self.by_key.values() if item.required)
        self.comments: bool = getattr(cls, "ACCEPTS_COMMENTS", False)
        self.ignored: frozenset[str] = getattr(cls, "IGNORED_KEYS", frozenset())
        self.renamed: MappingOf[str, str] = getattr(cls, "RENAMED_KEYS", {})
        self.moved: MappingOf[str, str] = getattr(cls, "MOVED_KEYS", {})

    def read(self, node: Node, line: int, trail: Trail | None, report: Report, **identities: str) -> Any:
        if type(node) is not Mapping:
            self.refuse(node, line, trail, report)
            return None
        values: dict[str, Any] = dict(identities)
        before = len(report.problems)
        by_key, lines = self.by_key, node.lines
        for name, item in node.entries.items():
            field_ = by_key.get(name)
            if field_ is None:
                self._unknown(name, lines[name], trail, report)
            elif not is_null(item):
                values[field_.attribute] = field_.type.read(item, lines[name], (trail, name), report)
        renamed = {self.renamed[name] for name in node.entries if name in self.renamed}
        for field_ in self.required:
            if field_.attribute not in values and field_.key not in renamed:
                where = lines.get(field_.key, line)
                report.add((trail, field_.key), where, f"the key is missing; accepted: {field_.wanted}")
        return self.cls(**values) if len(report.problems) == before else None

    def _unknown(self, name: str, line: int, trail: Trail | None, report: Report) -> None:
        if self.comments and (name == "_comment" or name.startswith("_comment_")):
            return
        if name in self.ignored:
            return
        if name in self.renamed:
            report.add((trail, name), line, f"unknown key; write {self.renamed[name]}")
            return
        if name in self.moved:
            report.add((trail, name), line, f"unknown key; {self.moved[name]}")
            return
        message = "unknown key" + did_you_mean(name, self.by_key) + f"; accepted: {', '.join(self.by_key)}"
        if self.comments:
            message += "; comments go under _comment or _comment_*"
        report.add((trail, name), line, message)

    def check(self, value: Any, trail: Trail | None, faults: list[Fault]) -> None:
        if not isinstance(value, self.cls):
            faults.append((trail, f"found {shown(value)}; accepted: a {self.cls.__name__}"))
            return
        for item in self.fields:
            held = getattr(value, item.attribute, None)  # even a deleted attribute is only a problem
            item.type.check(held, (trail, item.key), faults)

    def plain(self, value: Any) -> Any:
        stated = {}
        for item in self.fields:
            held = getattr(value, item.attribute)
            if not item.identity and item.stated(held):
                stated[item.key] = item.type.plain(held)
        return stated


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean x or y` with the nearest known names, or nothing when none is near."""
    if len(name) > 100:
        return ""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(by_lower[match] for match in near)}" if near else ""


def _unquote(node: Node, pattern: re.Pattern[str]) -> str:
    quoted = type(node) is Scalar and not node.plain and pattern.fullmatch(node.value)
    return "; write it without quotes" if quoted else ""


def _field(item: dataclasses.Field[Any], hint: Any) -> Field:
    default = item.default
    if item.default_factory is not MISSING:
        default = item.default_factory()
    return Field(
        attribute=item.name,
        key=item.metadata.get("key", item.name),
        type=field_type(hint),
        required=default is MISSING,
        identity=item.metadata.get("identity", False),
        always=item.metadata.get("always", False),
        default=default,
        wanted=", ".join(item.metadata.get("words", ())) or field_type(hint).wanted,
    )


_SCALARS: dict[Any, FieldType] = {str: Text(), int: Integer(), float: Number(), bool: Flag()}


def field_type(hint: Any) -> FieldType:
    """The field type of an annotation."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return record(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return ListOf(field_type(arguments[0]))
    if origin is tuple and arguments[1] is Ellipsis:
        return TupleOf(field_type(arguments[0]))
    if origin is tuple:
        return Pair(field_type(arguments[0]))
    if origin is dict:
        return TableOf(field_type(arguments[1]))
    if origin in (types.UnionType, typing.Union) and len(arguments) == 2 and arguments[1] is type(None):
        return Optional(field_type(arguments[0]))
    raise TypeError(f"no field type for {hint!r}")


_RECORDS: dict[type[Any], Record] = {}


def record(cls: type[Any]) -> Record:
    """The record type of a dataclass, worked out once for each class."""
    if cls not in _RECORDS:
        _RECORDS[cls] = Record(cls)
    return _RECORDS[cls]
