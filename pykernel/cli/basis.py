"""What a price or a verdict rests on, as several subcommands report it: evidence, assumptions, overrides, remarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pykernel.documents import Inputs, validate
from pykernel.errors import Problem, RefusedError
from pykernel.interface import EVIDENCE_METHODS, CoefficientOrigin


def evidence(provenance: Sequence[CoefficientOrigin]) -> dict[str, Any]:
    """How many entries rest on evidence, by method, and which do not."""
    methods = Counter(origin.method for origin in provenance)
    return {
        "measured": sum(number for method, number in methods.items() if method in EVIDENCE_METHODS),
        "total": len(provenance),
        "methods": dict(sorted(methods.items())),
        "assumed_by_set": dict(sorted(Counter(one.set for one in provenance if one.method == "assumed").items())),
        "assumed": [origin.name for origin in provenance if origin.method == "assumed"],
    }


def assumed(origin: CoefficientOrigin) -> dict[str, str]:
    """An assumption of the kernel's own, whose scope reads `<value>: <reason>`."""
    value, _, reason = origin.scope.partition(": ")
    return {"name": origin.name, "value": value, "reason": reason}


def warnings(inputs: Inputs) -> list[Problem]:
    """What validation and the rules of the engine release remark; errors of the former have stopped the price."""
    rules = inputs.rules
    findings = rules.check(inputs.scenario, inputs.deployment, inputs.model) if rules is not None else []
    return [*validate(inputs), *findings]


def placed(error: RefusedError, inputs: Inputs) -> Problem:
    """A refusal with the file, the line and the dotted field of the setting at fault, where those are known."""
    field = error.field
    if field.startswith(("parallel.", "engine.")):
        field = f"deployment.pools[{inputs.pool}].{field}"
    elif field.startswith("cluster."):
        field = f"scenario.{field}"
    document, _, path = field.partition(".")
    source = getattr(getattr(inputs, document, None), "source", None)
    message = str(error).removeprefix(f"{error.field}: ")
    file, line = (source.file, source.line(path)) if source else ("", 0)
    return Problem("error", field, message, file, line, error.rule)


def evidence_line(evidence: dict[str, Any]) -> str:
    """How many entries rest on evidence, by method, and how many do not."""
    methods: dict[bool, list[str]] = {True: [], False: []}
    for method, number in evidence["methods"].items():
        methods[method in EVIDENCE_METHODS].append(f"{number} {method}")
    without = f"; without: {', '.join(methods[False])}" if methods[False] else ""
    return f"{evidence['measured']} of {evidence['total']} entries: {', '.join(methods[True])}{without}"


def assumption_line(entry: dict[str, str]) -> str:
    return f"{entry['name']} = {entry['value']}: {entry['reason']}"


def override_line(entry: dict[str, str]) -> str:
    return f"{entry['field']} = {entry['resolved']}, not {entry['requested']}: {entry['reason']}"
