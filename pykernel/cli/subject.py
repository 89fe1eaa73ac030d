"""What every report of the command says about a deployment: what it is, and what the figures rest on.

Each has a part as data, which `--json` prints, and the same as lines of text. A refusal is given its place in a file
here too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import pykernel
from pykernel.cli import text
from pykernel.documents import Inputs, Pool, validate
from pykernel.errors import Problem, RefusedError
from pykernel.interface import EVIDENCE_METHODS, CoefficientOrigin, CostModel, Evidence, Resolution


def placed(error: RefusedError, inputs: Inputs) -> RefusedError:
    """The refusal with the file, the line and the dotted field of the setting at fault, where those are known."""
    problem = place(error, inputs)
    # The id of the row is for reports that list rows; a message says all without it.
    return RefusedError(str(replace(problem, rule="")), error.field, error.rule)


def place(error: RefusedError, inputs: Inputs) -> Problem:
    """The same as a finding about the document that states the setting."""
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


# ---- as data ---------------------------------------------------------------------------------------------------


def about(inputs: Inputs, kernel: CostModel, model: str) -> dict[str, Any]:
    """The scenario, the pool, the model, the machines and what the engine makes of them."""
    pool, source = kernel.deployment(), inputs.scenario.source
    return {
        "pykernel": pykernel.__version__,
        "cost_model": model,
        "scenario": inputs.scenario.name,
        "file": source.file if source else "",
        "engine_version": inputs.scenario.engine_version,
        "pool": {"index": inputs.pool, "of": len(inputs.deployment.pools), "role": pool.role},
        "model": {"name": inputs.model.name, **_formats(inputs, pool)},
        "cluster": {
            "chip": inputs.chip.name,
            "fabric": inputs.fabric.name if inputs.fabric else "",
            "nodes": pool.nodes,
            "gpus_per_node": inputs.scenario.cluster.gpus_per_node,
        },
        "resolution": _resolution(kernel),
    }


def basis(inputs: Inputs, kernel: CostModel) -> dict[str, Any]:
    """Evidence, assumptions, overrides and warnings."""
    own = [origin for origin in kernel.provenance() if origin.set == pykernel.KERNEL_ASSUMPTION_SET]
    return {
        "evidence": _evidence(kernel),
        "assumptions": [_assumed(origin) for origin in own],
        "overrides": [asdict(override) for override in kernel.resolved().overrides],
        "warnings": [asdict(problem) for problem in warnings(inputs)],
    }


def _formats(inputs: Inputs, pool: Pool) -> dict[str, str]:
    """What the weights are served in and the KV cache holds, as the documents state it."""
    return {
        "weights": pool.engine.quantization or inputs.model.global_.weight_dtype,
        "kv_cache": pool.engine.cache_dtype or "auto",
    }


def _resolution(kernel: CostModel) -> dict[str, Any]:
    resolved: Resolution = kernel.resolved()
    return {
        "tensor_parallel": resolved.tensor_parallel(),
        "data_parallel": resolved.data_parallel(),
        "expert_parallel": resolved.expert_parallel(),
        "prefill_context_parallel": kernel.prefill_context_parallel_width(),
        "decode_context_parallel": kernel.decode_context_parallel_width(),
        "all_reduce_backend": resolved.all_reduce_backend,
        "async_scheduling": resolved.async_scheduling,
        "cascade_attention": resolved.cascade_attention,
        "sequence_parallel_moe": resolved.sequence_parallel_moe,
    }


def _evidence(kernel: CostModel) -> dict[str, Any]:
    evidence: Evidence = kernel.evidence()
    methods = Counter(origin.method for origin in kernel.provenance())
    assumed_in = Counter(origin.set for origin in kernel.provenance() if origin.method == "assumed")
    return {
        "measured": evidence.measured,
        "total": evidence.total,
        "methods": dict(sorted(methods.items())),
        "assumed_by_set": dict(sorted(assumed_in.items())),
        "assumed": list(evidence.assumed),
    }


def _assumed(origin: CoefficientOrigin) -> dict[str, str]:
    """An assumption of the kernel's own, whose scope reads `<value>: <reason>`."""
    value, _, reason = origin.scope.partition(": ")
    return {"name": origin.name, "value": value, "reason": reason}


def warnings(inputs: Inputs) -> list[Problem]:
    """What validation and the rules of the engine release remark; errors of the former have stopped the price."""
    rules = inputs.rules
    findings = rules.check(inputs.scenario, inputs.deployment, inputs.model) if rules is not None else []
    return [*validate(inputs), *findings]


# ---- as text ---------------------------------------------------------------------------------------------------


def lines(report: dict[str, Any]) -> list[str]:
    """The lines that a report begins with."""
    pool, model, cluster = report["pool"], report["model"], report["cluster"]
    where = f"{cluster['chip']}, {_layout(report['resolution'])}, on {text.plural(cluster['nodes'], 'node')} of "
    where += text.plural(cluster["gpus_per_node"], "GPU")
    if cluster["fabric"]:
        where += f", {cluster['fabric']} between nodes"
    which = f"{pool['role']} pool" if pool["of"] == 1 else f"pool {pool['index']} of {pool['of']}, {pool['role']}"
    return [
        text.labelled("scenario", f"{report['scenario']}, {which}, engine {report['engine_version']}"),
        text.labelled("model", f"{model['name']}, weights {model['weights']}, KV cache {model['kv_cache']}"),
        text.labelled("chip", where),
    ]


def _layout(resolution: dict[str, Any]) -> str:
    """The parallel widths above 1 in the engine's short names, tensor parallelism always."""
    names = {
        "tp": "tensor_parallel",
        "pcp": "prefill_context_parallel",
        "dcp": "decode_context_parallel",
        "dp": "data_parallel",
        "ep": "expert_parallel",
    }
    shown = [short for short, name in names.items() if short == "tp" or resolution[name] > 1]
    return " ".join(f"{short} {resolution[names[short]]}" for short in shown)


def basis_lines(report: dict[str, Any]) -> list[str]:
    """The lines that a report ends with."""
    evidence = report["evidence"]
    sets = ", ".join(f"{number} {name}" for name, number in evidence["assumed_by_set"].items())
    listed = [("evidence", evidence_line(evidence))]
    if sets:
        listed.append(("", f"assumed: {sets}"))
    listed += [("assumption", assumption_line(entry)) for entry in report["assumptions"]]
    listed += [("override", override_line(entry)) for entry in report["overrides"]]
    for entry in report["warnings"]:
        listed.append((entry["severity"], text.shortened(f"{entry['path']}: {entry['message']}")))
    listed += [("note", note) for note in report.get("notes", [])]
    return [text.labelled(label, line) for label, line in listed]


def evidence_line(evidence: dict[str, Any]) -> str:
    """How many entries rest on evidence, by method, and how many do not."""
    if not evidence["total"]:
        return "no coefficient is named"
    methods: dict[bool, list[str]] = {True: [], False: []}
    for method, number in evidence["methods"].items():
        methods[method in EVIDENCE_METHODS].append(f"{number} {method}")
    without = f"; without: {', '.join(methods[False])}" if methods[False] else ""
    return f"{evidence['measured']} of {evidence['total']} entries: {', '.join(methods[True])}{without}"


def assumption_line(entry: dict[str, str]) -> str:
    return f"{entry['name']} = {entry['value']}: {entry['reason']}"


def override_line(entry: dict[str, str]) -> str:
    return f"{entry['field']} = {entry['resolved']}, not {entry['requested']}: {entry['reason']}"
