"""`pykernel model`: what a model adds up to. Its parameters, layers, caches and work a token, before any layout."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pykernel
from pykernel.cli import UsageError, text
from pykernel.cli.options import add_roots, repos
from pykernel.documents import ModelGraph, Repos, graph, list_models
from pykernel.documents.fieldtypes import did_you_mean
from pykernel.documents.repos import load_model
from pykernel.registry import installed
from pykernel.summary import CacheGroup, ModelSummary

HELP = """\
MODEL is the name of a model in the catalog, the file of a graph, or a HuggingFace config.json (or its folder). Of a
config, the parameters that no node of the graph stands for are counted as well.
"""

CACHE_BYTES = 2
"""Bytes of a cache element that the page counts with: 16 bits, the engine's choice where nothing is stated."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name, a graph.yaml or a config.json")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_roots(parser)


def run(options: argparse.Namespace) -> int:
    model, inventory = _opened(options.model, repos(options))
    report = _report(model, pykernel.summarize(model), inventory)
    print(json.dumps(report, indent=2) if options.json else "\n".join(_page(report)))
    return 0


def _opened(name: str, roots: Repos) -> tuple[ModelGraph, pykernel.ParameterInventory | None]:
    """The graph of a name or file, and the inventory where it comes from a config."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return graph.load(path), None
    if path.is_file() or (path / "config.json").is_file():
        return pykernel.derive(path), pykernel.parameter_inventory(path)
    known = list_models(roots)
    if name not in known and installed().from_plugin("model_graphs", name):
        plugged_in: ModelGraph = installed().document("model_graphs", name)
        return plugged_in, None
    if name not in known:
        known += installed().plugged_in("model_graphs")
        near = did_you_mean(name, known)
        raise UsageError(f"{name!r} is no file and no model of the catalog{near}; models: {', '.join(known)}")
    return load_model(roots.catalog_root() / "models" / name / "graph.yaml"), None


# ---- the report as data ------------------------------------------------------------------------------------------


def _report(model: ModelGraph, summary: ModelSummary, inventory: pykernel.ParameterInventory | None) -> dict[str, Any]:
    return {
        "name": model.name,
        "weight_dtype": model.global_.weight_dtype,
        "derived_from": {"format": model.derived_from.format, "path": model.derived_from.path},
        "parameters": {
            "total": inventory.total if inventory else summary.parameters,
            "active": inventory.active if inventory else summary.active_parameters,
            "in_the_graph": summary.parameters,
            "beside_the_graph": inventory.unpriced if inventory else None,
        },
        "layers": summary.layers,
        "kv_bytes_per_token": [_cache(group) for group in summary.caches],
        "state_elements": [
            {
                "layer_kind": group.layer_kind,
                "mixer": group.recurrent_kind,
                "layers": group.layers,
                "per_layer": group.elements,
            }
            for group in summary.states
        ],
        "flops_per_token": summary.flops_per_token,
        "speculator": model.speculator.method if model.speculator else "",
    }


def _cache(group: CacheGroup) -> dict[str, Any]:
    return {
        "layer_kind": group.layer_kind,
        "role": group.role,
        "layers": group.layers,
        "bytes": group.layers * group.elements * CACHE_BYTES / group.tokens_per_entry,
        "window": group.window,
        "tokens_per_entry": group.tokens_per_entry,
    }


# ---- the report as text ------------------------------------------------------------------------------------------


def _page(report: dict[str, Any]) -> list[str]:
    counts = report["parameters"]
    depth = sum(report["layers"].values())
    kinds = ", ".join(f"{number} {kind}" for kind, number in report["layers"].items())
    lines = [
        ("model", f"{report['name']}, weights {report['weight_dtype']}"),
        ("parameters", f"{_billions(counts['total'])}, of which a token uses {_billions(counts['active'])}"),
        *_beside(counts),
        ("layers", f"{depth}: {kinds}"),
        *_caches(report["kv_bytes_per_token"]),
        *_states(report["state_elements"]),
        (
            "work",
            f"{report['flops_per_token'] / 1e9:,.1f} GFLOP a token in the graph's matrices; attention comes on top",
        ),
    ]
    if report["speculator"]:
        lines.append(("draft", f"{report['speculator']}, in none of these figures"))
    return [text.labelled(label, line) for label, line in lines]


def _billions(count: int) -> str:
    return f"{count / 1e9:,.2f} billion"


def _beside(counts: dict[str, Any]) -> list[tuple[str, str]]:
    """What is in no node: of a config counted, of a graph unknown."""
    if counts["beside_the_graph"] is None:
        return [("", "as the graph states them: without norms, routers and biases")]
    others = ", ".join(
        f"{name.replace('_', ' ')} {text.integer(number)}" for name, number in counts["beside_the_graph"].items()
    )
    return [("", f"{text.integer(counts['total'])} in all; in no node of the graph: {others}")]


def _caches(groups: list[dict[str, Any]]) -> list[tuple[str, str]]:
    if not groups:
        return [("kv cache", "none")]
    total = sum(group["bytes"] for group in groups)
    lines = [("kv cache", f"{text.number(total)} bytes a token in 16 bits, before any layout")]
    for group in groups:
        role = f" {group['role']}" if group["role"] else ""
        window = f", for the last {text.integer(group['window'])} tokens" if group["window"] else ""
        ratio = f", an entry for {group['tokens_per_entry']} tokens" if group["tokens_per_entry"] > 1 else ""
        layers = text.plural(group["layers"], "layer")
        lines.append(("", f"{text.number(group['bytes'])} in {layers} of {group['layer_kind']}{role}{window}{ratio}"))
    return lines


def _states(groups: list[dict[str, Any]]) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for group in groups:
        elements = f"{text.integer(group['per_layer'])} elements a sequence and layer"
        where = f"{text.plural(group['layers'], 'layer')} of {group['layer_kind']} ({group['mixer']})"
        lines.append(("state" if not lines else "", f"{elements} in {where}"))
    return lines
