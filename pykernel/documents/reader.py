"""From the bytes of a YAML file to a tree of text nodes with lines, strictly and in bounded time.

YAML libraries for Python guess types from spellings, keep the last of two equal keys, read merge keys and expand
aliases without limit. The documents are declared field by field, so here nothing is guessed: the parser's events are
taken and the tree is built from them with every rule that holds for all kinds of document. The events are libyaml's
where PyYAML was built with it, else those of PyYAML's own parser, which is slower and stricter about tabs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

from pykernel.documents.nodes import Mapping, Node, Reported, Scalar, Sequence, Trail, describe, path_text, shown
from pykernel.errors import DocumentError, Problem

MAX_FILE_BYTES = 8 * 1024 * 1024
"""The largest file that is read, in bytes; the largest published set has about 0.3 MB."""

MAX_DEPTH = 64
"""The deepest nesting that is read; the deepest field of any document kind is nine levels down."""

MAX_ALIAS_NODES = 100_000
"""How many nodes the aliases of one file may stand for in sum; graphs that share nodes stay below a thousand."""

MAX_PROBLEMS = 200
"""How many problems of one file are collected before reading stops."""

# What YAML 1.1 calls not printable, as far as it can come out of UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")

_YAML_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_YAML_TAG + name for name in ("str", "int", "float", "bool", "null"))


@dataclass(frozen=True)
class Reading:
    """The documents of one file and the faults found while building them."""

    file: str
    roots: tuple[Mapping, ...]
    problems: list[Problem]
    last_line: int


def read_file(
    path: str | os.PathLike[str], prefixes: SequenceOf[str], *, least: int = 0, pure: bool = False
) -> Reading:
    """Read a file that holds one document for each prefix, in that order.

    Parameters: `prefixes`, the first step of the dotted paths of each document (`("scenario", "deployment")` for a
    bundle); `least`, how many of them are enough (all by default); `pure`, parse with PyYAML's Python parser even
    where libyaml is present.
    Raises: DocumentError when the file cannot be read, is not YAML, or does not hold that many documents. Faults
    that leave the tree usable (a repeated key) are returned with it, so that they are reported with the rest.
    """
    file = os.fspath(path)
    return read_text(_text_of(file), file, prefixes, least=least, pure=pure)


def read_text(text: str, file: str, prefixes: SequenceOf[str], *, least: int = 0, pure: bool = False) -> Reading:
    """Read the documents in a text; `file` is the name that problems carry. See `read_file`."""
    builder = _Builder(file, prefixes)
    for event in _events(text, file, pure):
        builder.take(event)
    return builder.reading(text, least or len(prefixes))


def collect(problems: list[Problem], problem: Problem) -> None:
    """Add a problem of a file; raises DocumentError once there are more than anybody reads."""
    problems.append(problem)
    if len(problems) >= MAX_PROBLEMS:
        message = f"reading stopped after {MAX_PROBLEMS} problems"
        raise DocumentError([*problems, Problem("error", "", message, problem.file, problem.line)])


def missing_document(file: str, line: int, prefixes: SequenceOf[str], held: int) -> DocumentError:
    """The error of a file that ends on a line after `held` of its documents."""
    message = f"the file ends without the {prefixes[held]} document; accepted: {_wanted(prefixes)}"
    return _fault(file, message, line, prefixes[held])


def _wanted(prefixes: SequenceOf[str]) -> str:
    if len(prefixes) == 1:
        return "one document, a mapping of keys"
    return " and a ".join(["a " + prefixes[0], *prefixes[1:]]) + " document, separated by ---"


def _fault(file: str, message: str, line: int = 0, path: str = "") -> DocumentError:
    return DocumentError([Problem("error", path, message, file, line)])


def _text_of(file: str) -> str:
    """The text of a file, refused with its line where it is not plain UTF-8 text."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _fault(file, f"the file cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise _fault(file, f"the file is larger than the {MAX_FILE_BYTES} bytes that are accepted")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"found the byte 0x{data[error.start]:02x}; accepted: text in UTF-8"
        raise _fault(file, found, line) from None
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = len(_LINE_BREAK.findall(text, 0, unprintable.start())) + 1
        code = ord(unprintable.group())
        name = "a NUL character" if code == 0 else f"the control character U+{code:04X}"
        raise _fault(file, f"found {name}; accepted: printable text", line)
    return text


def _events(text: str, file: str, pure: bool) -> Iterator[Any]:
    """The parse events of a text, syntax errors turned into DocumentError. PyYAML is imported on first use."""
    import yaml

    use_libyaml = not pure and getattr(yaml, "__with_libyaml__", False)
    parser: Any = yaml.CSafeLoader(text) if use_libyaml else yaml.SafeLoader(text)
    try:
        while True:
            event = parser.get_event()
            yield event
            if type(event) is yaml.StreamEndEvent:
                return
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark is not None else 0
        parts = [getattr(error, "context", None), getattr(error, "problem", None)]
        reason = ", ".join(part for part in parts if part) or str(error).splitlines()[0]
        raise _fault(file, f"not YAML: {reason}", line) from None


class _Frame:
    """One open collection while the tree is built: the key waiting for its value, and the node count so far."""

    __slots__ = ("anchor", "discard", "key", "key_line", "node", "refused", "size")

    def __init__(self, node: Mapping | Sequence, anchor: str | None, refused: bool) -> None:
        self.node = node
        self.anchor = anchor
        self.refused = refused
        self.key: str | None = None
        self.key_line = 0
        self.discard = False  # the value belongs to a key that was already reported
        self.size = 1


class _Builder:
    """Builds the documents of one file from events, checking the rules that hold for every kind of document."""

    def __init__(self, file: str, prefixes: SequenceOf[str]) -> None:
        self.file = file
        self.prefixes = prefixes
        self.problems: list[Problem] = []
        self.roots: list[Node] = []
        self.start_lines: list[int] = []
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.open_anchors: set[str] = set()
        self.alias_nodes = 0
        self.handlers = {
            "ScalarEvent": self._scalar,
            "MappingStartEvent": self._mapping_start,
            "SequenceStartEvent": self._sequence_start,
            "MappingEndEvent": self._end,
            "SequenceEndEvent": self._end,
            "AliasEvent": self._alias,
            "DocumentStartEvent": self._document_start,
        }

    def take(self, event: Any) -> None:
        handler = self.handlers.get(type(event).__name__)
        if handler is not None:
            handler(event)

    def reading(self, text: str, least: int) -> Reading:
        """The finished tree; refuses a file with fewer documents than asked for, or a document that is no mapping."""
        if not self.roots:
            raise _fault(self.file, f"the file is empty; accepted: {_wanted(self.prefixes)}", 1)
        last_line = len(_LINE_BREAK.findall(text.rstrip())) + 1
        if len(self.roots) < least:
            raise missing_document(self.file, last_line, self.prefixes, len(self.roots))
        roots = []
        for prefix, root, line in zip(self.prefixes, self.roots, self.start_lines, strict=False):
            if isinstance(root, Reported):
                raise DocumentError(self.problems)
            if not isinstance(root, Mapping):
                empty = isinstance(root, Scalar) and root.plain and not root.value
                found = "an empty document" if empty else describe(root)
                message = f"found {found}; accepted: {_wanted(self.prefixes)}"
                raise _fault(self.file, message, line, prefix.rstrip(":"))
            roots.append(root)
        return Reading(self.file, tuple(roots), self.problems, last_line)

    def _path(self, levels: int = MAX_DEPTH) -> str:
        """The dotted path of the position that is being built, or of its outermost levels."""
        prefix = self.prefixes[min(len(self.roots), len(self.prefixes) - 1)]
        trail: Trail | None = None
        for frame in self.frames[:levels]:
            if isinstance(frame.node, Sequence):
                trail = (trail, len(frame.node.items))
            elif frame.key is not None:
                trail = (trail, frame.key)
        return path_text(prefix, trail)

    def _fatal(self, message: str, line: int) -> DocumentError:
        return _fault(self.file, message, line, self._path())

    def _report(self, message: str, line: int) -> None:
        collect(self.problems, Problem("error", self._path(), message, self.file, line))

    def _document_start(self, event: Any) -> None:
        self.anchors.clear()
        # One more document than the kind has is an error rather than unread text: nothing in a file is ignored.
        if len(self.roots) == len(self.prefixes):
            message = f"found one document too many; accepted: {_wanted(self.prefixes)}"
            raise _fault(self.file, message, event.start_mark.line + 1)
        self.start_lines.append(event.start_mark.line + 1)

    def _scalar(self, event: Any) -> None:
        line = event.start_mark.line + 1
        tag = event.tag
        plain = event.implicit[0]
        refused = False
        if tag is not None and tag != "!":
            refused = tag not in _SCALAR_TAGS
            if refused:
                self._report(f"found the tag {shown(tag)}; accepted: values without a tag", line)
            plain = tag != _YAML_TAG + "str"
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.key is None and type(frame.node) is Mapping:
            if event.anchor is not None:
                self.anchors[event.anchor] = (Scalar(event.value, line, plain), 1)
            self._key(frame, event.value, line, plain)
            return
        node = Reported(line) if refused else Scalar(event.value, line, plain)
        if event.anchor is not None:
            self.anchors[event.anchor] = (node, 1)
        self._place(node, 1)

    def _key(self, frame: _Frame, key: str, line: int, plain: bool) -> None:
        mapping = frame.node
        assert isinstance(mapping, Mapping)
        frame.key, frame.key_line = key, line
        frame.discard = False
        if key == "<<" and plain:
            self._report("found a merge key (<<); accepted: every key written out, or an alias for a whole value", line)
            frame.discard = True
        elif key in mapping.entries:
            first = mapping.lines[key]
            self._report(f"the key {shown(key)} is written twice, first on line {first}; accepted: each key once", line)
            frame.discard = True

    def _place(self, node: Node, size: int) -> None:
        """Put a finished or opened node where the innermost open collection waits for one."""
        if not self.frames:
            self.roots.append(node)
            return
        frame = self.frames[-1]
        frame.size += size
        parent = frame.node
        if isinstance(parent, Sequence):
            parent.items.append(node)
        else:
            assert frame.key is not None
            if not frame.discard:
                parent.entries[frame.key] = node
                parent.lines[frame.key] = frame.key_line
            frame.key = None

    def _start(self, node: Mapping | Sequence, event: Any, tag_name: str) -> None:
        if len(self.frames) >= MAX_DEPTH:
            message = f"nested too deeply; accepted: at most {MAX_DEPTH} levels"
            raise _fault(self.file, message, node.line, self._path(3))
        refused = event.tag is not None and event.tag not in ("!", _YAML_TAG + tag_name)
        if refused:
            self._report(f"found the tag {shown(event.tag)}; accepted: values without a tag", node.line)
        if self.frames and self.frames[-1].key is None and isinstance(self.frames[-1].node, Mapping):
            raise self._fatal("found a mapping or list as a key; accepted: plain text as a key", node.line)
        if event.anchor is not None:
            self.open_anchors.add(event.anchor)
        self.frames.append(_Frame(node, event.anchor, refused))

    def _mapping_start(self, event: Any) -> None:
        self._start(Mapping(event.start_mark.line + 1), event, "map")

    def _sequence_start(self, event: Any) -> None:
        self._start(Sequence(event.start_mark.line + 1), event, "seq")

    def _end(self, event: Any) -> None:
        frame = self.frames.pop()
        node: Node = Reported(frame.node.line) if frame.refused else frame.node
        if frame.anchor is not None:
            self.open_anchors.discard(frame.anchor)
            self.anchors[frame.anchor] = (node, frame.size)
        self._place(node, frame.size)

    def _alias(self, event: Any) -> None:
        line = event.start_mark.line + 1
        name = event.anchor
        if name in self.open_anchors:
            raise self._fatal(f"the alias *{name} stands inside the value it names", line)
        if name not in self.anchors:
            raise self._fatal(f"the alias *{name} names no anchor above it", line)
        node, size = self.anchors[name]
        self.alias_nodes += size
        if self.alias_nodes > MAX_ALIAS_NODES:
            message = f"the aliases stand for more than {MAX_ALIAS_NODES} values; accepted: fewer, or written out"
            raise self._fatal(message, line)
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.key is None and isinstance(frame.node, Mapping):
            raise self._fatal(f"found the alias *{name} as a key; accepted: plain text as a key", line)
        self._place(node, size)
