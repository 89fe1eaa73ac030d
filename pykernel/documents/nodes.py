"""The tree a YAML file becomes before anything is typed, and the record of where each field stands.

Every scalar stays text: what a figure or a flag may look like is decided by the declared type of the field that takes
it (`fieldtypes.py`), never guessed from the spelling. The nodes carry the source lines, so a document loaded from a
file keeps its tree as a `Source`, by which a later check can still say file and line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

NULL_TEXTS = frozenset({"", "~", "null", "Null", "NULL"})


class Scalar:
    """One scalar: its text, the line it starts on, and whether it was written without quotes."""

    __slots__ = ("line", "plain", "value")

    def __init__(self, value: str, line: int, plain: bool) -> None:
        self.value = value
        self.line = line
        self.plain = plain


class Reported(Scalar):
    """Stands where a value was already refused, so that decoding does not report the same value again."""

    __slots__ = ()

    def __init__(self, line: int) -> None:
        super().__init__("", line, False)


class Sequence:
    """A list of nodes and the line it starts on."""

    __slots__ = ("items", "line")

    def __init__(self, line: int) -> None:
        self.items: list[Node] = []
        self.line = line


class Mapping:
    """Entries in file order, the line of each key, and the line the mapping starts on."""

    __slots__ = ("entries", "line", "lines")

    def __init__(self, line: int) -> None:
        self.entries: dict[str, Node] = {}
        self.lines: dict[str, int] = {}
        self.line = line

    def put(self, key: str, node: Node, line: int) -> None:
        """Set one entry with the line of its key."""
        self.entries[key] = node
        self.lines[key] = line


Node = Scalar | Sequence | Mapping


def is_null(node: Node) -> bool:
    """Whether the node is an unquoted null or an empty value, which counts as an absent key."""
    return type(node) is Scalar and node.plain and node.value in NULL_TEXTS


def describe(node: Node) -> str:
    """What the node holds, in the words of an error message."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return f"a list of {len(node.items)}"
    if is_null(node):
        return "nothing"
    return shown(node.value) if node.plain else f"quoted text {shown(node.value)}"


def shown(value: Any) -> str:
    """A value as a message prints it, shortened so that a message stays readable."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:60] + "..." + text[-15:]


# A trail is how a position is carried while a tree is walked: (trail of the parent, key or index), None at the root.
# Text is made of it only when there is something to report.
Trail = tuple["Trail | None", "str | int"]


def path_text(prefix: str, trail: Trail | None) -> str:
    """The dotted path of a trail under a document's prefix; a prefix ending in a colon takes the first key directly."""
    steps: list[str | int] = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    path = prefix
    for step in reversed(steps):
        if isinstance(step, int):
            path += f"[{step}]"
        elif path and not path.endswith(":"):
            path += f".{step}"
        else:
            path += step
    return path.rstrip(":")


_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


@dataclass(frozen=True)
class Source:
    """Where a document was read from: the file as given, its tree of lines, and a remark that validation warns of."""

    file: str
    root: Mapping = field(repr=False)
    remark: str = ""

    def line(self, path: str) -> int:
        """The line of a field of the document (path without the document's prefix).

        A field's line is that of its key, an item's line the one it starts on; a field that is not written has the
        line of the nearest mapping or list around it.
        """
        node: Node = self.root
        line = node.line
        for match in _STEP.finditer(path):
            index, key = match.groups()
            if key is not None and isinstance(node, Mapping) and key in node.entries:
                line, node = node.lines[key], node.entries[key]
            elif index is not None and isinstance(node, Sequence) and int(index) < len(node.items):
                node = node.items[int(index)]
                line = node.line
            else:
                break
        return line

    def __deepcopy__(self, memo: dict[int, Any]) -> Source:
        return self


class Document:
    """Base of the documents that a file holds; remembers the file, outside equality, repr and the fields."""

    @property
    def source(self) -> Source | None:
        """The file and lines this document was loaded from; None for one made in memory."""
        return self.__dict__.get("_source")

    def remember(self, source: Source) -> None:
        """Keep where the document was read from."""
        self.__dict__["_source"] = source
