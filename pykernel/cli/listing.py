"""`pykernel list`: what there is to price, one line each.

A document that cannot be read is listed with what is wrong with it: one bad file must not hide the others.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykernel import documents
from pykernel.cli import UsageError, text
from pykernel.cli.options import add_roots, repos
from pykernel.documents import Repos, coefficients, hardware
from pykernel.documents.repos import load_model
from pykernel.errors import DocumentError

HELP = "Without a section, lists all of them. A document that cannot be read is listed with its first error.\n"


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of document: where its files are, what to say about one, and the words for it in columns."""

    root: Callable[[Repos], Path]
    names: Callable[[Repos], list[str]]
    facts: Callable[[Path], dict[str, Any]]
    cells: Callable[[dict[str, Any]], list[str]]
    pattern: str = "{}.yaml"


# ---- facts of one document -------------------------------------------------------------------------------------


def _scenario(path: Path) -> dict[str, Any]:
    scenario, deployment = documents.load_bundle(path)
    return {
        "model": scenario.model,
        "chip": scenario.cluster.hardware,
        "fabric": scenario.cluster.fabric,
        "nodes": scenario.cluster.nodes,
        "engine_version": scenario.engine_version,
        "pools": [
            {
                "role": pool.role,
                "nodes": pool.nodes,
                "tp": pool.parallel.tp,
                "pp": pool.parallel.pp,
                "dp": pool.parallel.dp,
                "expert_parallel": pool.parallel.enable_expert_parallel,
                "quantization": pool.engine.quantization,
            }
            for pool in deployment.pools
        ],
    }


def _model(path: Path) -> dict[str, Any]:
    graph = load_model(path)
    used = set(graph.stack.layers())
    nodes = [node for kind in graph.layer_kinds if kind.id in used for node in kind.nodes]
    return {
        "layers": len(graph.stack.layers()),
        "hidden_size": graph.global_.hidden_size,
        "weight_dtype": graph.global_.weight_dtype,
        "attention": sorted({node.kind for node in nodes if node.op == "Attention" and not node.role}),
        "experts": max((node.experts for node in nodes), default=0),
        "top_k": max((node.top_k for node in nodes), default=0),
    }


def _chip(path: Path) -> dict[str, Any]:
    chip = hardware.load_chip(path)
    return {
        "memory_gib": chip.memory_gib,
        "bandwidth_tb_s": chip.bw_peak_tbs,
        "tflops_16bit": chip.tflops_peak,
        "tflops_fp8": chip.tflops_fp8,
        "tflops_nvfp4": chip.tflops_nvfp4,
        "link_gb_s": chip.intra_node_bw_gbps,
        "sm_count": chip.sm_count,
    }


def _fabric(path: Path) -> dict[str, Any]:
    fabric = hardware.load_fabric(path)
    return {"link_gb_s": fabric.inter_node_bw_gbps, "rdma": fabric.rdma}


def _coefficients(path: Path) -> dict[str, Any]:
    entries = coefficients.load(path).coefficients
    return {"entries": len(entries), "methods": dict(sorted(Counter(entry.method for entry in entries).items()))}


# ---- one line of a document ------------------------------------------------------------------------------------


def _scenario_cells(facts: dict[str, Any]) -> list[str]:
    return [text.clipped(facts["model"], 20), facts["chip"], "; ".join(map(_pool, facts["pools"]))]


def _pool(pool: dict[str, Any]) -> str:
    """A pool's widths above 1, tensor parallelism always, and its role where it is not the usual one."""
    widths = [f"{axis} {pool[axis]}" for axis in ("tp", "pp", "dp") if axis == "tp" or pool[axis] > 1]
    role = "" if pool["role"] == "colocated" else f"{pool['role']} "
    return role + " ".join([*widths, *(["ep"] if pool["expert_parallel"] else [])])


def _model_cells(facts: dict[str, Any]) -> list[str]:
    experts = f"{facts['experts']} experts, {facts['top_k']} a token" if facts["experts"] else "dense"
    return [f"{facts['layers']} layers", facts["weight_dtype"], " and ".join(facts["attention"]), experts]


def _chip_cells(facts: dict[str, Any]) -> list[str]:
    peaks = [("16-bit", "tflops_16bit"), ("fp8", "tflops_fp8"), ("nvfp4", "tflops_nvfp4")]
    return [
        f"{text.number(facts['memory_gib'])} GiB",
        f"{text.number(facts['bandwidth_tb_s'])} TB/s",
        f"links {text.number(facts['link_gb_s'])} GB/s",
        "TFLOP/s " + ", ".join(f"{text.number(facts[key])} {name}" for name, key in peaks if facts[key]),
    ]


def _fabric_cells(facts: dict[str, Any]) -> list[str]:
    return [f"{text.number(facts['link_gb_s'])} GB/s a GPU", "RDMA" if facts["rdma"] else ""]


def _coefficient_cells(facts: dict[str, Any]) -> list[str]:
    methods = ", ".join(f"{number} {method}" for method, number in facts["methods"].items())
    return [text.plural(facts["entries"], "entry", "entries"), methods]


SECTIONS = {
    "scenarios": Section(Repos.scenarios_root, documents.list_scenarios, _scenario, _scenario_cells),
    "models": Section(
        lambda repos: repos.catalog_root() / "models", documents.list_models, _model, _model_cells, "{}/graph.yaml"
    ),
    "chips": Section(lambda repos: repos.catalog_root() / "hardware", documents.list_chips, _chip, _chip_cells),
    "fabrics": Section(lambda repos: repos.catalog_root() / "networks", documents.list_fabrics, _fabric, _fabric_cells),
    "coefficients": Section(
        lambda repos: repos.registry_root() / "coefficients",
        documents.list_coefficient_sets,
        _coefficients,
        _coefficient_cells,
    ),
}


# ---- the command -----------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("section", metavar="SECTION", nargs="?", help=", ".join(SECTIONS))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_roots(parser)


def run(options: argparse.Namespace) -> int:
    chosen = options.section
    if chosen is not None and chosen not in SECTIONS:
        near = difflib.get_close_matches(chosen, SECTIONS, n=1)
        hint = f"; did you mean {near[0]}" if near else ""
        raise UsageError(f"there is no section {chosen!r}{hint}; there are {', '.join(SECTIONS)}")
    roots = repos(options)
    found = {name: _entries(SECTIONS[name], roots) for name in ([chosen] if chosen else SECTIONS)}
    if options.json:
        print(json.dumps(found, indent=2))
    elif chosen:
        print("\n".join(_lines(SECTIONS[chosen], found[chosen], roots)))
    else:
        blocks = [[name, *_lines(SECTIONS[name], entries, roots, "  ")] for name, entries in found.items()]
        print("\n\n".join("\n".join(block) for block in blocks))
    return 0


def _entries(section: Section, roots: Repos) -> list[dict[str, Any]]:
    """Each document's name with its facts, or with its error."""
    entries = []
    for name in section.names(roots):
        try:
            entries.append({"name": name, **section.facts(section.root(roots) / section.pattern.format(name))})
        except DocumentError as error:
            entries.append({"name": name, "error": str(error)})
    return entries


def _lines(section: Section, entries: list[dict[str, Any]], roots: Repos, indent: str = "") -> list[str]:
    if not entries:
        return [f"{indent}none under {section.root(roots)}"]
    rows = [[entry["name"], *section.cells(entry)] for entry in entries if "error" not in entry]
    whole = iter(text.columns(rows, indent))
    return [_broken(entry, indent) if "error" in entry else next(whole) for entry in entries]


def _broken(entry: dict[str, Any], indent: str) -> str:
    first, *others = entry["error"].splitlines()
    more = f" (and {len(others)} more)" if others else ""
    return f"{indent}{entry['name']}  error: {first}{more}"
