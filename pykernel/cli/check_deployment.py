"""`pykernel check-deployment`: what the engine would run of a deployment, and everything that keeps it from a price.

Unlike `price`, which stops at the first refusal, this walks all of the tables and shows every one. The report is
gathered once as plain data, which `--json` prints as it is and `_page` turns into text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

import pykernel
from pykernel.cli import FAULT, subject, text
from pykernel.cli.options import add_roots, add_subject, check_subject, count, open_subject
from pykernel.documents import Inputs
from pykernel.errors import DocumentError, RefusedError
from pykernel.interface import CostModel
from pykernel.remedies import what_would_fit
from pykernel.resolve import Examination, Resolved, examine
from pykernel.resolve.disclosures import UNRECORDED

HELP = """\
Shows of each pool what was asked, what runs, what was overridden and why, what was assumed, the evidence behind its
price, and every refusal at once. Ends with 1 where anything is refused. Refusals and evidence are those of the cost
model blis; another may refuse less or more, which `pykernel price --model NAME` says.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser)
    parser.add_argument("--pool", metavar="N", type=count(), help="only this pool, from 0 (default: every pool)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_roots(parser)


def run(options: argparse.Namespace) -> int:
    check_subject(options)
    try:
        report = _report(options)
    except DocumentError as error:
        if not options.json:
            raise
        report = {"accepted": False, "problems": [asdict(problem) for problem in error.problems], "pools": []}
    print(json.dumps(report, indent=2) if options.json else "\n".join(_page(report)))
    return 0 if report["accepted"] else FAULT


# ---- the report as data ----------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that is printed, in the order of the JSON. Raises `DocumentError` and `ArgumentError`."""
    inputs = open_subject(options, options.pool or 0)
    chosen = range(len(inputs.deployment.pools)) if options.pool is None else [options.pool]
    source = inputs.scenario.source
    pools = [_pool(replace(inputs, pool=index)) for index in chosen]
    return {
        "pykernel": pykernel.__version__,
        "accepted": all(pool["accepted"] for pool in pools),
        "scenario": inputs.scenario.name,
        "file": source.file if source else "",
        "engine_version": inputs.scenario.engine_version,
        "model": inputs.model.name,
        "chip": inputs.chip.name,
        "problems": [asdict(problem) for problem in subject.warnings(inputs)],
        "pools": pools,
    }


def _pool(inputs: Inputs) -> dict[str, Any]:
    found, kernel = examine(inputs), None
    refusals = list(found.refusals)
    if not refusals:
        try:
            kernel = pykernel.new(inputs)
        except RefusedError as error:  # numbers beyond what the core computes with
            refusals.append(error)
    pool = inputs.deployment.pools[inputs.pool]
    report: dict[str, Any] = {
        "index": inputs.pool,
        "role": pool.role,
        "nodes": pool.nodes,
        "accepted": not refusals,
        "refusals": [asdict(subject.place(error, inputs)) for error in refusals],
        "asked": {**dict(_stated(pool.parallel)), **dict(_stated(pool.engine))},
    }
    if kernel is not None and found.resolved is not None:
        basis = subject.basis(inputs, kernel)
        report |= {
            "runs": _runs(found, found.resolved),
            "overrides": basis["overrides"],
            "assumptions": basis["assumptions"],
            "defaults": _defaults(found),
            "evidence": basis["evidence"],
            "memory": _memory(inputs, kernel),
        }
    return report


def _memory(inputs: Inputs, kernel: CostModel) -> dict[str, Any]:
    """Whether the weights and a sequence fit, which refuses no price, and the smallest changes after which they do."""
    try:
        problem = "" if kernel.kv_capacity().sequences(1) else "there is no room for a sequence"
    except RefusedError as error:
        problem = str(error)
    remedies = what_would_fit(inputs) if problem else ()
    return {"fits": not problem, "problem": problem, "remedies": [asdict(remedy) for remedy in remedies]}


def _stated(document: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings that a document states, by dotted name."""
    for field in fields(document):
        value = getattr(document, field.name)
        if is_dataclass(value):
            yield from _stated(value, f"{prefix}{field.name}.")
        elif value is not None and value != "" and value != [] and not (value == 0 and value is not False):
            yield prefix + field.name, value


def _defaults(found: Examination) -> list[dict[str, str]]:
    rows = (row for row in UNRECORDED if row.open(found.case))
    return [{"name": row.name, "value": str(row.value(found.case)), "reason": row.reason(found.case)} for row in rows]


def _runs(found: Examination, resolved: Resolved) -> dict[str, Any]:
    layout, settings, precision = resolved.layout, resolved.settings, resolved.precision
    return {
        "tensor_parallel": layout.tp,
        "data_parallel": layout.dp,
        "expert_parallel": layout.ep,
        "prefill_context_parallel": layout.pcp,
        "decode_context_parallel": layout.dcp,
        "groups": {name: asdict(group) for name, group in layout.groups.items()},
        "nodes_spanned": layout.nodes_spanned,
        "all_reduce_backend": layout.all_reduce_backend,
        "dispatch": ("routed" if layout.routed_dispatch else "gathered") if layout.moe_width > 1 else "none",
        "sequence_parallel_moe": layout.sequence_parallel_moe,
        "weights": precision.served,
        "cache_format": precision.cache_format or "auto",
        "cache_bytes_per_element": precision.cache_element_bytes,
        "sparse_backend": found.case.sparse.backend.name if found.case.sparse else "",
        "block_size": settings.block_size,
        "recurrent_cache_mode": settings.recurrent_cache_mode if resolved.facts.recurrent_kinds else "",
        "combine": resolved.context.combine if layout.dcp > 1 else "",
        "interleave": resolved.context.interleave,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "cudagraph_mode": settings.graphs.mode,
        "capture_tokens": settings.graphs.capture_tokens,
        "uniform_decode_tokens": settings.graphs.uniform_width,
        "decode_threshold": resolved.decode_threshold,
        "async_scheduling": resolved.resolution.async_scheduling,
        "cascade_attention": resolved.resolution.cascade_attention,
    }


# ---- the report as text ----------------------------------------------------------------------------------------


def _page(report: dict[str, Any]) -> Iterator[str]:
    where = f"{report['model']} on {report['chip']}, engine {report['engine_version']}"
    yield text.labelled("scenario", f"{report['scenario']}: {where}")
    for problem in report["problems"]:
        yield text.labelled(problem["severity"], f"{problem['path']}: {problem['message']}")
    for pool in report["pools"]:
        yield ""
        yield from _pool_lines(pool)


def _pool_lines(pool: dict[str, Any]) -> Iterator[str]:
    refusals = text.plural(len(pool["refusals"]), "reason")
    verdict = "accepted" if pool["accepted"] else f"refused for {refusals}"
    nodes = text.plural(pool["nodes"], "node")
    yield text.labelled(f"pool {pool['index']}", f"{pool['role']}, {nodes}: {verdict}")
    for refusal in pool["refusals"]:
        place = f" ({refusal['file']}:{refusal['line']})" if refusal["line"] else ""
        rule = f" [{refusal['rule']}]" if refusal["rule"] else ""
        yield text.labelled("refused", f"{refusal['path']}: {refusal['message']}{rule}{place}")
    yield text.labelled("asked", ", ".join(f"{name} {_shown(value)}" for name, value in pool["asked"].items()))
    if "runs" in pool:
        yield from _accepted_lines(pool)


def _accepted_lines(pool: dict[str, Any]) -> Iterator[str]:
    plain = {name: value for name, value in pool["runs"].items() if name != "groups" and value != ""}
    yield text.labelled("runs", ", ".join(f"{name} {_shown(value)}" for name, value in plain.items()))
    for name, group in pool["runs"]["groups"].items():
        if group["width"] > 1:
            reach = "across nodes" if group["crosses_nodes"] else "without the network"
            yield text.labelled("group", f"{name}: {group['width']} ranks, {group['stride']} apart, {reach}")
    yield text.labelled("evidence", subject.evidence_line(pool["evidence"]))
    if not pool["memory"]["fits"]:
        yield text.labelled("memory", pool["memory"]["problem"])
        for remedy in pool["memory"]["remedies"]:
            yield text.labelled("would fit", f"{remedy['field']} {remedy['value']}, not {remedy['found']}")
    for entry in pool["overrides"]:
        yield text.labelled("override", subject.override_line(entry))
    for entry in pool["assumptions"]:
        yield text.labelled("assumption", subject.assumption_line(entry))
    defaults = ", ".join(f"{entry['name']} {entry['value']}" for entry in pool["defaults"])
    if defaults:
        yield text.labelled("default", defaults)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
