"""`pykernel price`: what one step of a scenario costs, and what that number rests on.

The report is gathered once as plain data, which `--json` prints as it is and `_page` turns into text, so that both
always tell the same.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import pykernel
from pykernel.cli import UsageError, subject, terms, text
from pykernel.cli.notation import BatchText, decodes, expand, named, prefills, read_batch
from pykernel.cli.options import add_pool_and_model, add_roots, add_subject, check_subject, count, open_subject
from pykernel.documents import Inputs, Pool
from pykernel.errors import BatchError, RefusedError
from pykernel.explain import Explanation
from pykernel.interface import RESOURCES, CostModel

HELP = """\
A batch is written with --decode and --prefill, each as often as needed, or read with --batch:

  --decode 32x4096        32 decodes that each read a context of 4,096 tokens, this step's own included
  --decode 8x4096x4       8 requests that run 4 tokens each, ending at a context of 4,096
  --prefill 2x2048        2 prompts of 2,048 tokens
  --prefill 2x2048+8192   2 prompts that run 2,048 tokens after 8,192 that are in their cache

  --batch FILE.json       {"requests": [{"scheduled": 1, "computed": 4095, "prompt_len": 1024,
                           "cached_tokens": 0}, ...], "decode_threshold": 1, "sm_budget": 0, "pad_tokens": 0}
                          where only requests, scheduled and computed are required

With data parallelism, the batch is that of one replica. Durations are those of one rank.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject(parser)
    batch = parser.add_argument_group("the batch")
    batch.add_argument("--decode", metavar="NxCONTEXT", type=decodes, action="append", default=[])
    batch.add_argument("--prefill", metavar="NxNEW[+COMPUTED]", type=prefills, action="append", default=[])
    batch.add_argument("--batch", metavar="FILE", help="a JSON file, - for standard input")
    batch.add_argument("--sm-budget", metavar="N", type=count(), help="SMs left to the step; 0 means all")
    batch.add_argument("--pad-tokens", metavar="N", type=count(), help="rows added beside the requests' tokens")
    add_pool_and_model(parser)
    parser.add_argument("--explain", action="store_true", help="show the terms of the step, layer kind by layer kind")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_roots(parser)


def run(options: argparse.Namespace) -> int:
    check_subject(options)
    written = bool(options.decode or options.prefill)
    if written and options.batch:
        raise UsageError("--batch stands for the whole batch; leave out --decode and --prefill, or --batch")
    if not written and not options.batch:
        raise UsageError("the batch is missing; write it with --decode or --prefill, or name a file with --batch")
    inputs = open_subject(options, options.pool)
    try:
        kernel = pykernel.new(inputs, model=options.model)
    except RefusedError as error:
        raise subject.placed(error, inputs) from None
    if options.batch:
        batch_text = read_batch(options.batch)
    else:
        width = uniform_width(kernel.deployment())
        batch_text = expand(options.decode, options.prefill, width, kernel.decode_threshold())
    for name in ("sm_budget", "pad_tokens"):
        if getattr(options, name) is not None:
            setattr(batch_text, name, getattr(options, name))
    try:
        report = _report(inputs, kernel, batch_text, options.model)
        if options.explain:
            report["terms"] = terms.data(_explain(kernel, batch_text, options.model))
    except BatchError as error:
        raise named(error, options.batch) from None
    print(json.dumps(report, indent=2) if options.json else "\n".join(_page(report)))
    return 0


def _explain(kernel: CostModel, batch_text: BatchText, model: str) -> Explanation:
    if not isinstance(kernel, pykernel.Kernel):
        raise UsageError(f"--explain: cost model {model} does not explain its prices")
    return kernel.explain(batch_text.batch(kernel.decode_threshold()))


# ---- the report as data ----------------------------------------------------------------------------------------


def _report(inputs: Inputs, kernel: CostModel, batch_text: BatchText, model: str) -> dict[str, Any]:
    """Everything that is printed, in the order of the JSON. Raises `BatchError`."""
    batch = batch_text.batch(kernel.decode_threshold())
    estimate = kernel.step_time(batch)
    return {
        **subject.about(inputs, kernel, model),
        "batch": _batch(batch),
        "launch": _launch(kernel, batch),
        "estimate": {
            "overlap_ns": estimate.overlap_ns,
            "no_overlap_ns": estimate.no_overlap_ns,
            "bottleneck": estimate.bottleneck,
            "per_resource_ns": {name: estimate.per_resource_ns.get(name, 0) for name in RESOURCES},
        },
        **subject.basis(inputs, kernel),
        "notes": batch_text.notes,
    }


def _batch(batch: pykernel.Batch) -> dict[str, Any]:
    decoding = [request for request in batch if request.scheduled <= batch.decode_threshold]
    prefilling = [request for request in batch if request.scheduled > batch.decode_threshold]

    def extent(values: list[int]) -> list[int]:
        return [min(values), max(values)] if values else []

    return {
        "requests": len(batch),
        "tokens": batch.tokens(),
        "padded_tokens": batch.padded_tokens(),
        "decodes": {
            "requests": len(decoding),
            "tokens_each": extent([request.scheduled for request in decoding]),
            "context": extent([request.scheduled + request.computed for request in decoding]),
        },
        "prefills": {
            "requests": len(prefilling),
            "tokens_each": extent([request.scheduled for request in prefilling]),
            "computed": extent([request.computed for request in prefilling]),
        },
        "decode_threshold": batch.decode_threshold,
        "sm_budget": batch.sm_budget,
        "pad_tokens": batch.pad_tokens,
    }


def _launch(kernel: CostModel, batch: pykernel.Batch) -> dict[str, Any]:
    """The graph mode of this step: that of its kind of batch, or none above the widest graph captured."""
    widest = kernel.capture_tokens()
    uniform = len(batch) == 0 or batch.uniform_decode(uniform_width(kernel.deployment()))
    configured = kernel.graph_modes()[0 if uniform else 1]
    fits = batch.padded_tokens() <= widest
    return {
        "graph_mode": configured if fits else "NONE",
        "configured_mode": configured,
        "uniform_decode": uniform,
        "capture_tokens": widest,
    }


def uniform_width(pool: Pool) -> int:
    """Tokens of each request in a uniform decode: one, and one more for each draft token."""
    return 1 + (pool.engine.speculative.num_spec_tokens if pool.engine.speculative else 0)


# ---- the report as text ----------------------------------------------------------------------------------------


def _page(report: dict[str, Any]) -> list[str]:
    lines = [
        *_what(report),
        "",
        *_bounds(report["estimate"]),
        "",
        *_resources(report["estimate"]),
        "",
        *subject.basis_lines(report),
    ]
    return [*lines, "", *terms.page(report["terms"])] if "terms" in report else lines


def _what(report: dict[str, Any]) -> list[str]:
    lines = {
        "batch": _batch_line(report["batch"], report["resolution"]["data_parallel"]),
        "launch": _launch_line(report["launch"], report["batch"]["padded_tokens"]),
    }
    return [*subject.lines(report), *(text.labelled(label, line) for label, line in lines.items())]


def _batch_line(batch: dict[str, Any], replicas: int) -> str:
    parts = []
    decoding, prefilling = batch["decodes"], batch["prefills"]
    if decoding["requests"]:
        each = "" if decoding["tokens_each"] == [1, 1] else f" of {text.span(decoding['tokens_each'])} tokens"
        parts.append(f"{text.plural(decoding['requests'], 'decode')}{each} at context {text.span(decoding['context'])}")
    if prefilling["requests"]:
        after = "" if prefilling["computed"] == [0, 0] else f" after {text.span(prefilling['computed'])} computed"
        tokens = text.span(prefilling["tokens_each"])
        parts.append(f"{text.plural(prefilling['requests'], 'prefill')} of {tokens} tokens{after}")
    line = " and ".join(parts) or "no requests"
    if batch["pad_tokens"]:
        line += f", {text.plural(batch['pad_tokens'], 'pad token')}"
    if batch["sm_budget"] > 0:
        line += f", on {text.plural(batch['sm_budget'], 'SM')}"
    return line + (", in each replica" if replicas > 1 else "")


def _launch_line(launch: dict[str, Any], rows: int) -> str:
    widest = text.plural(launch["capture_tokens"], "token")
    if launch["graph_mode"] != "NONE":
        return f"{launch['graph_mode']} graph, captured for up to {widest}"
    if launch["configured_mode"] != "NONE":
        return f"eager: {text.plural(rows, 'token')}, where the widest captured graph takes {widest}"
    kind = "a uniform decode" if launch["uniform_decode"] else "a batch that is no uniform decode"
    return f"eager: the engine captures no graph for {kind}"


def _bounds(estimate: dict[str, Any]) -> list[str]:
    values = text.decimal_aligned([text.milliseconds(estimate[key]) for key in ("overlap_ns", "no_overlap_ns")])
    return [
        text.row("overlap", f"{values[0]} ms  the resources of a layer work at once"),
        text.row("no overlap", f"{values[1]} ms  they take turns; use this one where one number is wanted"),
        text.row("bottleneck", estimate["bottleneck"]),
    ]


def _resources(estimate: dict[str, Any]) -> list[str]:
    used = {name: ns for name, ns in estimate["per_resource_ns"].items() if ns}
    total = sum(used.values())
    values = text.decimal_aligned([text.milliseconds(ns) for ns in used.values()]) if used else []
    return [
        text.row(name, f"{value} ms  {ns / total:4.0%}  {text.bar(ns / total)}")
        for (name, ns), value in zip(used.items(), values, strict=True)
    ]
