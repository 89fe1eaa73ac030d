"""Coefficient sets read lately. They are the largest documents by far, and most scenarios name the same ones, so a
process that opens several scenarios should parse each of them once.

A file is read every time, and what is kept counts only for equal bytes under an equal path: nothing is trusted for its
date. Callers get a copy of their own, since documents are theirs to edit.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from copy import copy

from pykernel.documents.coefficients import Coefficient, CoefficientSet, Scope, load
from pykernel.documents.reader import MAX_FILE_BYTES

KEPT = 16
"""How many sets are kept; the published registry has a handful, of 0.3 MB together."""

_kept: OrderedDict[tuple[str, bytes], CoefficientSet] = OrderedDict()


def load_set(path: str | os.PathLike[str]) -> CoefficientSet:
    """The set of a file, as `coefficients.load` reads it and with the same errors."""
    key = _identity(path)
    known = _kept.get(key)
    if known is None:
        known = load(path)
        if _identity(path) == key:  # else the file changed while it was read
            _kept[key] = known
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return copy_set(known)


def _identity(path: str | os.PathLike[str]) -> tuple[str, bytes]:
    try:
        with open(path, "rb") as stream:
            return os.fspath(path), stream.read(MAX_FILE_BYTES + 1)
    except OSError:
        return os.fspath(path), b""  # loading says what is wrong


def copy_set(known: CoefficientSet) -> CoefficientSet:
    """A deep copy, but for the record of where the fields stand, which nobody edits."""
    copied = copy(known)
    copied.coefficients = [_copy_entry(entry) for entry in known.coefficients]
    return copied


def _copy_entry(entry: Coefficient) -> Coefficient:
    copied, scope = copy(entry), Scope.__new__(Scope)
    scope.__dict__ = {name: list(values) for name, values in entry.scope.__dict__.items()}
    copied.scope = scope
    copied.sources = [copy(source) for source in entry.sources]
    copied.validated, copied.unsupported = list(entry.validated), list(entry.unsupported)
    return copied
