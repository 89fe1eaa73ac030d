"""`pykernel memory`: what a deployment holds on each GPU, what is left for sequences, and how many of them fit.

The report is gathered once as plain data, which `--json` prints as it is and `_page` turns into text. What a model
that does not fit would need is part of it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

import pykernel
from pykernel.cli import subject, text
from pykernel.cli.options import add_pool_and_model, add_roots, add_subject, count, open_subject, repos
from pykernel.documents import Chip, Inputs, Repos, hardware, list_chips
from pykernel.errors import RefusedError
from pykernel.interface import INT64_MAX, CostModel, KVCapacity
from pykernel.registry import installed
from pykernel.remedies import what_would_fit

HELP = """\
Sizes are those of one rank, which is one GPU. --tokens asks how many requests of a length fit at once:

  --tokens 4096 --tokens 32768
"""

PARTS = {
    "pre_snapshot": "before the budget",
    "weights": "weights",
    "activation_peak": "activations",
    "cuda_graph": "CUDA graphs",
    "eplb_redundant": "EPLB replicas",
    "comm_buffers": "comm buffers",
    "kv_cache": "KV cache",
    "unused": "not used",
}
"""The parts of a GPU's memory, in the order in which they are listed and drawn."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser)
    parser.add_argument(
        "--tokens", metavar="N", type=count(1), action="append", default=[], help="length of a request, tokens"
    )
    add_pool_and_model(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plot", metavar="FILE", help="draw the memory of a GPU as a stacked bar, .png or .svg")
    add_roots(parser)


def run(options: argparse.Namespace) -> int:
    found = repos(options)
    inputs = open_subject(options, options.pool)
    try:
        kernel = pykernel.new(inputs, model=options.model)
    except RefusedError as error:
        raise subject.placed(error, inputs) from None
    report = _report(inputs, kernel, options.tokens, options.model, found)
    if options.plot:
        from pykernel.cli.plot import stacked_bar

        parts = {label: report["parts"][name] for name, label in PARTS.items()}
        stacked_bar(options.plot, report["scenario"], parts, report["device_bytes"])
    print(json.dumps(report, indent=2) if options.json else "\n".join(_page(report)))
    return 0


# ---- the report as data ----------------------------------------------------------------------------------------


def _report(inputs: Inputs, kernel: CostModel, lengths: list[int], model: str, found: Repos) -> dict[str, Any]:
    engine = kernel.deployment().engine
    lengths = lengths or ([engine.max_model_len] if engine.max_model_len else [])
    fixed = kernel.fixed_bytes()
    room, problem = _capacity(kernel)
    requests = [_request(kernel, room, tokens) for tokens in lengths]
    short = room is None or any(request["fit"] == 0 for request in requests)
    device = room.device_bytes if room else int(inputs.chip.memory_gib * 2**30)
    parts = {"pre_snapshot": kernel.pre_snapshot_bytes(), **asdict(fixed), "kv_cache": room.bytes if room else 0}
    return {
        **subject.about(inputs, kernel, model),
        "device_bytes": device,
        "fixed_bytes": asdict(fixed) | {"total": fixed.total},
        "pre_snapshot_bytes": kernel.pre_snapshot_bytes(),
        "parts": parts | {"unused": max(device - sum(parts.values()), 0)},
        "sequence": {
            "fixed_bytes": kernel.sequence_fixed_bytes(),
            "admission_bytes": kernel.sequence_admission_bytes(),
        },
        "capacity": _room(room) if room else None,
        "problem": problem,
        "requests": requests,
        "remedies": [asdict(remedy) for remedy in _remedies(inputs, lengths, model, found)] if short else [],
        **subject.basis(inputs, kernel),
    }


def _capacity(kernel: CostModel) -> tuple[KVCapacity | None, str]:
    """The room for sequences, or why there is none."""
    try:
        return kernel.kv_capacity(), ""
    except RefusedError as error:
        return None, str(error)


def _room(room: KVCapacity) -> dict[str, Any]:
    names = ("budget_bytes", "bytes", "block_bytes", "block_tokens", "blocks", "tokens", "pre_snapshot_fits")
    return {name: getattr(room, name) for name in names}


def _request(kernel: CostModel, room: KVCapacity | None, tokens: int) -> dict[str, int]:
    size = min(kernel.sequence_variable_bytes(tokens) + kernel.sequence_fixed_bytes(), INT64_MAX)
    return {"tokens": tokens, "bytes": size, "fit": room.sequences(tokens) if room else 0}


def _remedies(inputs: Inputs, lengths: list[int], model: str, found: Repos) -> Any:
    return what_would_fit(inputs, max(lengths, default=1), chips=_chips(found), model=model)


def _chips(found: Repos) -> list[Chip]:
    """The chips of the catalog, and those of plug-ins."""
    folder, files, registry = found.catalog_root() / "hardware", list_chips(found), installed()
    chips = [hardware.load_chip(folder / f"{name}.yaml") for name in files]
    return chips + [registry.document("chips", name) for name in registry.plugged_in("chips") if name not in files]


# ---- the report as text ----------------------------------------------------------------------------------------


def _page(report: dict[str, Any]) -> list[str]:
    return [
        *subject.lines(report),
        *_budget(report),
        "",
        *_parts(report),
        "",
        *_sequences(report),
        *_problem(report),
        "",
        *subject.basis_lines(report),
    ]


def _budget(report: dict[str, Any]) -> list[str]:
    line = f"{text.gibibytes(report['device_bytes'])} GiB on each GPU"
    if report["capacity"]:
        line += f", of which the engine plans with {text.gibibytes(report['capacity']['budget_bytes'])} GiB"
    return [text.labelled("memory", line)]


def _parts(report: dict[str, Any]) -> list[str]:
    """Each part in GiB with its share of the GPU; the fixed bytes together below the last of them."""
    rows = [(label, report["parts"][name]) for name, label in PARTS.items()]
    rows.insert(len(rows) - 2, ("fixed, total", report["fixed_bytes"]["total"]))
    values = text.decimal_aligned([text.gibibytes(size) for _, size in rows])
    width = max(len(label) for label, _ in rows)
    lines = []
    for (label, size), value in zip(rows, values, strict=True):
        share = size / report["device_bytes"]
        bar = "" if label == "fixed, total" else text.bar(min(share, 1))
        lines.append(f"{label:<{width}}  {value} GiB  {share:4.0%}  {bar}".rstrip())
    return lines


def _sequences(report: dict[str, Any]) -> list[str]:
    lines, room = [], report["capacity"]
    if room and room["blocks"]:
        each = room["block_bytes"] / room["block_tokens"]
        line = f"{text.integer(room['blocks'])} blocks of {text.plural(room['block_tokens'], 'token')}, "
        line += f"{text.integer(room['block_bytes'])} bytes each"
        if each == int(each):
            line += f" ({text.plural(int(each), 'byte')} a token)"
        lines.append(text.labelled("KV cache", f"{line}: {text.plural(room['tokens'], 'token')} in all"))
    if report["sequence"]["admission_bytes"]:
        line = f"{text.mebibytes(report['sequence']['fixed_bytes'])} MiB beside that for each request"
        if report["sequence"]["admission_bytes"] != report["sequence"]["fixed_bytes"]:
            line += f", {text.mebibytes(report['sequence']['admission_bytes'])} MiB when it is admitted"
        lines.append(text.labelled("bounded", line))
    for request in report["requests"]:
        line = f"of {text.plural(request['tokens'], 'token')}: {text.mebibytes(request['bytes'])} MiB"
        lines.append(text.labelled("request", f"{line}, {text.integer(request['fit'])} fit at once"))
    return lines


def _problem(report: dict[str, Any]) -> list[str]:
    """Why something does not fit, and what would."""
    lines = []
    if report["problem"]:
        lines.append(("no room", report["problem"]))
    elif not report["capacity"]["pre_snapshot_fits"]:
        outside = text.gibibytes(report["pre_snapshot_bytes"])
        lines.append(
            ("no start", f"{outside} GiB held before the budget leave less than it free; lower gpu_memory_utilization")
        )
    for remedy in report["remedies"]:
        line = f"{remedy['field']} = {remedy['value']}, not {remedy['found']}"
        lines.append(("would fit", f"{line}: {text.plural(remedy['sequences'], 'request')} then"))
    if not report["remedies"] and (report["problem"] or any(request["fit"] == 0 for request in report["requests"])):
        lines.append(("would fit", "no wider tp, fp8 cache or larger part of the catalog by itself"))
    return [text.labelled(label, line) for label, line in lines]
