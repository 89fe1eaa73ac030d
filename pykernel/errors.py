"""The errors of pykernel, one class for each party at fault.

Everything the package raises on purpose derives from `PykernelError`, so a simulator can catch one class; the
subclasses say whether a document, the deployment, a batch, an argument, a plug-in or a stored image is at fault.
This module imports nothing of the package, so every room may use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One finding about a document.

    `path` is the dotted field with list indices in brackets (`deployment.pools[0].parallel.dcp`); `file` is the
    file's path as text, or empty for a document made in memory; `line` counts from 1, 0 where there is none; `rule`
    names the rule of an engine release that found it, empty for the version-independent checks.
    """

    severity: str
    path: str
    message: str
    file: str = ""
    line: int = 0
    rule: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        parts = [part for part in (place, self.path) if part]
        rule = f" [{self.rule}]" if self.rule else ""
        return ": ".join([*parts, self.message]) + rule


class PykernelError(Exception):
    """Base class of every error raised by pykernel."""


class DocumentError(PykernelError):
    """A document cannot be read, or holds what its format does not allow.

    `problems` lists every finding; the message shows them one to a line.
    """

    problems: tuple[Problem, ...]

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[DocumentError], tuple[tuple[Problem, ...]]]:
        return (type(self), (self.problems,))


class RefusedError(PykernelError):
    """The deployment is well-formed, but the engine would not start it or it cannot be priced truthfully.

    `field` is the dotted name of the setting at fault (empty when several are), `rule` the id of the refusal in
    docs/refusals.md (empty for one of the C core).
    """

    def __init__(self, message: str, field: str = "", rule: str = "") -> None:
        self.field = field
        self.rule = rule
        super().__init__(message)

    def __reduce__(self) -> tuple[type[RefusedError], tuple[str, str, str]]:
        return (type(self), (str(self), self.field, self.rule))


class BatchError(PykernelError):
    """A batch holds a value that no scheduler could have produced."""


class ArgumentError(PykernelError):
    """An argument of a call is outside what the method accepts."""


class PluginError(PykernelError):
    """A plug-in is missing, broken, or collides with another."""


class ImageError(PykernelError):
    """A stored kernel image is damaged, foreign, or of another version."""
