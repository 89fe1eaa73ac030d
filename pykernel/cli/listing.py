"""`pykernel list`: what there is to price, one line each.

Documents of plug-ins come after the files, with the plug-in that brings them. A document that cannot be read is listed
with what is wrong with it: one bad file must not hide the others.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pykernel import documents
from pykernel.cli import UsageError, text
from pykernel.cli.options import add_roots, repos
from pykernel.documents import (
    Chip,
    CoefficientSet,
    Deployment,
    Fabric,
    ModelGraph,
    Repos,
    Scenario,
    StorageTier,
    coefficients,
    hardware,
    storage,
)
from pykernel.documents.repos import load_model
from pykernel.errors import DocumentError, PykernelError
from pykernel.registry import installed

HELP = "Without a section, lists all of them. A document that cannot be read is listed with its first error.\n"


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of document: where it is looked for, how one is read, what to say about it, and that in columns.

    kind : what plug-ins call it; empty where they offer none.
    """

    root: Callable[[Repos], Path]
    names: Callable[[Repos], list[str]]
    load: Callable[[Path, str], Any]
    facts: Callable[[Any], dict[str, Any]]
    cells: Callable[[dict[str, Any]], list[str]]
    kind: str = ""


# ---- facts of one document -------------------------------------------------------------------------------------


def _scenario(bundle: tuple[Scenario, Deployment]) -> dict[str, Any]:
    scenario, deployment = bundle
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


def _model(graph: ModelGraph) -> dict[str, Any]:
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


def _chip(chip: Chip) -> dict[str, Any]:
    return {
        "memory_gib": chip.memory_gib,
        "bandwidth_tb_s": chip.bw_peak_tbs,
        "tflops_16bit": chip.tflops_peak,
        "tflops_fp8": chip.tflops_fp8,
        "tflops_nvfp4": chip.tflops_nvfp4,
        "link_gb_s": chip.intra_node_bw_gbps,
        "sm_count": chip.sm_count,
    }


def _fabric(fabric: Fabric) -> dict[str, Any]:
    return {"link_gb_s": fabric.inter_node_bw_gbps, "rdma": fabric.rdma}


def _storage(tier: StorageTier) -> dict[str, Any]:
    return {
        "read_mb_s": tier.read_bandwidth_mb_s,
        "write_mb_s": tier.write_bandwidth_mb_s,
        "latency_us": tier.base_latency_us,
    }


def _coefficients(found: CoefficientSet) -> dict[str, Any]:
    entries = found.coefficients
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


def _storage_cells(facts: dict[str, Any]) -> list[str]:
    return [
        f"reads {text.number(facts['read_mb_s'])} MB/s",
        f"writes {text.number(facts['write_mb_s'])} MB/s",
        f"from {text.number(facts['latency_us'])} us",
    ]


def _coefficient_cells(facts: dict[str, Any]) -> list[str]:
    methods = ", ".join(f"{number} {method}" for method, number in facts["methods"].items())
    return [text.plural(facts["entries"], "entry", "entries"), methods]


def _catalog(folder: str) -> Callable[[Repos], Path]:
    return lambda repos: repos.catalog_root() / folder


def _tier(file: Path, name: str) -> StorageTier:
    return next(tier for tier in storage.load(file) if tier.name == name)


SECTIONS = {
    "scenarios": Section(
        Repos.scenarios_root,
        documents.list_scenarios,
        lambda root, name: documents.load_bundle(root / f"{name}.yaml"),
        _scenario,
        _scenario_cells,
    ),
    "models": Section(
        _catalog("models"),
        documents.list_models,
        lambda root, name: load_model(root / name / "graph.yaml"),
        _model,
        _model_cells,
        "model_graphs",
    ),
    "chips": Section(
        _catalog("hardware"),
        documents.list_chips,
        lambda root, name: hardware.load_chip(root / f"{name}.yaml"),
        _chip,
        _chip_cells,
        "chips",
    ),
    "fabrics": Section(
        _catalog("networks"),
        documents.list_fabrics,
        lambda root, name: hardware.load_fabric(root / f"{name}.yaml"),
        _fabric,
        _fabric_cells,
        "fabrics",
    ),
    "storage": Section(
        _catalog("devices/storage.yaml"), documents.list_storage, _tier, _storage, _storage_cells, "storage_tiers"
    ),
    "coefficients": Section(
        lambda repos: repos.registry_root() / "coefficients",
        documents.list_coefficient_sets,
        lambda root, name: coefficients.load(root / f"{name}.yaml"),
        _coefficients,
        _coefficient_cells,
        "coefficient_sets",
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
    """Each document's name, the plug-in that brings it if one does, and its facts or its error."""
    root = section.root(roots)
    try:
        files = section.names(roots)
        entries = [_entry(section, name, "", partial(section.load, root, name)) for name in files]
    except DocumentError as error:  # of the one file that holds all storage classes
        files, entries = [], [{"name": root.name, "plugin": "", "error": str(error)}]
    if section.kind:
        registry = installed()
        for name in registry.plugged_in(section.kind):
            if name not in files:
                origin = str(registry.find(section.kind, name).origin)
                entries.append(_entry(section, name, origin, partial(registry.document, section.kind, name)))
    return entries


def _entry(section: Section, name: str, origin: str, load: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"name": name, "plugin": origin, **section.facts(load())}
    except PykernelError as error:
        return {"name": name, "plugin": origin, "error": str(error)}


def _lines(section: Section, entries: list[dict[str, Any]], roots: Repos, indent: str = "") -> list[str]:
    if not entries:
        return [f"{indent}none under {section.root(roots)}"]
    rows = [[entry["name"], *section.cells(entry), entry["plugin"]] for entry in entries if "error" not in entry]
    whole = iter(text.columns(rows, indent))
    return [_broken(entry, indent) if "error" in entry else next(whole) for entry in entries]


def _broken(entry: dict[str, Any], indent: str) -> str:
    first, *others = entry["error"].splitlines()
    more = f" (and {len(others)} more)" if others else ""
    return f"{indent}{entry['name']}  error: {first}{more}"
