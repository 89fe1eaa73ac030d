"""What ends construction before anything is resolved: files, documents and arguments that cannot be used.

The checks themselves are where the documents are read; this is the list of them, for the documentation and for the
tests that hold each of them to a case.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unusable:
    """One kind of fault: when it is found, what its message names, and the error that is raised."""

    id: str
    when: str
    names: str
    error: str


_DOCUMENT, _ARGUMENT = "`DocumentError`", "`ArgumentError`"

UNUSABLE = (
    Unusable(
        "bundle", "a scenario file is missing, unreadable, or not a scenario and a deployment", "the path", _DOCUMENT
    ),
    Unusable("pool-of-file", "a file has no pool of that index", "the file, the index, the number of pools", _ARGUMENT),
    Unusable(
        "reference",
        "a scenario names a model, chip, fabric, coefficient set or storage class that cannot be loaded",
        "the kind and the name",
        _DOCUMENT,
    ),
    Unusable("storage", "the storage classes cannot be loaded", "the file", _DOCUMENT),
    Unusable("release", "no rules pack exists for `engine_version`", "the version and the known ones", _DOCUMENT),
    Unusable(
        "missing-document",
        "scenario, deployment, model or chip is missing from `Inputs`",
        "which are needed",
        _ARGUMENT,
    ),
    Unusable("pool", "`Inputs.pool` is no pool of the deployment", "the index, the number of pools", _ARGUMENT),
    Unusable("missing-rules", "`Inputs.rules` is missing", "`engine_version`", _ARGUMENT),
    Unusable("field", "a field of a document has no acceptable value", "every such field by its path", _DOCUMENT),
    Unusable("width", "`tp` or `dp` is below 1", "the field", _DOCUMENT),
    Unusable("emit", "a graph node has an unknown condition", "the node and the condition", _DOCUMENT),
    Unusable("layer-kind", "the stack names a layer kind that the graph does not declare", "the layer kind", _DOCUMENT),
)
