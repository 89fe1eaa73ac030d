"""From the names in measured rows to model graphs and parts.

Rows name models as their authors, as benchmarks, or as quantized checkpoints do. A name is reduced to what tells models
apart, then sought in the package's catalog and among the configs of `models/`: the fields of public HuggingFace configs
that their graphs depend on, from aiconfigurator-core 0.12.0 (Apache-2.0) or the model's own page.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from pykernel.derive import derive
from pykernel.documents import ModelGraph, Repos
from pykernel.documents.hardware import Chip, load_chip
from pykernel.documents.repos import load_model
from pykernel.errors import ArgumentError

CONFIGS = Path(__file__).parent / "models"

SAME = {
    "deepseek-r1": "deepseek-v3",  # other weights
    "deepseek-v3.1": "deepseek-v3",
    "kimi-k2.6": "kimi-k2.5",
    "llama-3.3-70b": "llama-3.1-70b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3-8b": "llama-3.1-8b",
    "llama-4-maverick": "llama-4-maverick-17b-128e",
    "llama-4-scout": "llama-4-scout-17b-16e",
    "glm-4.6": "glm-4.5",
    "glm-4.7": "glm-4.5",
    "minimax-m2": "minimax-m2.5",
    "mistral-large": "mistral-large-123b",
    "mistral-small": "mistral-small-24b",
    "mixtral": "mixtral-8x7b",
    "nemotron-super-49b": "llama-3.3-nemotron-super-49b",
    "nvidia-nemotron-3-nano-30b-a3b": "nemotron-3-nano-30b-a3b",
    "nvidia-nemotron-3-super-120b-a12b": "nemotron-3-super-120b-a12b",
    "nemotron-3-nano": "nemotron-3-nano-30b-a3b",
    "nemotron-3-super": "nemotron-3-super-120b-a12b",
    "qwen3-235b": "qwen3-235b-a22b",
    "qwen3-30b": "qwen3-30b-a3b",
    "qwen3-vl-30b-a3b": "qwen3-30b-a3b",
    "qwen3-vl-32b": "qwen3-32b",
    "qwen3-vl-235b-a22b": "qwen3-235b-a22b",
    "qwen3.5-397b": "qwen3.5-397b-a17b",
    "qwen3.6-27b": "qwen3.5-27b",
    "qwen3.6-35b-a3b": "qwen3.5-35b-a3b",
    "qwq-32b": "qwen2.5-32b",
    "step-3.7": "step-3.7-flash",
}
"""Models that share another one's layers."""

WEIGHT_ONLY = {
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16",
    "int4": "int4", "w4a16": "int4", "int8": "int8", "w8a16": "int8",
}  # fmt: skip
"""Formats that a checkpoint is published in rather than quantized to when it is loaded."""

_PUBLICATION = re.compile(
    r"(instruct|chat|it|hf|base|thinking|preview|meta|static|pertensor|dynamic|fp8|fp4|nvfp4|mxfp4|bf16|fp16|int4|int8|"
    r"awq|gptq|w\d+a\d+|v0\.\d+|v1|0\d{3}|2[45]\d\d)"
)
"""Words of a name that tell how or when it was published, not which layers it has."""

PARTS = {"gb200": "gb200-nvl72", "gh200": "h200", "a100": "a100-sxm", "l40": "l40s"}
"""Parts that the catalog has under another name, or a near relative of: GH200 has the GPU of H200."""


def key_of(name: str) -> str:
    """What tells models apart in a name: without its owner, its number format, and how it was published."""
    last = name.lower().split("/")[-1].split("--")[-1]
    last = re.sub(r"(?<=\d)_(?=\d)", ".", last).replace("_", "-")
    words = [word for word in last.split("-") if word and not _PUBLICATION.fullmatch(word)]
    return re.sub(r"^(llama|glm|gemma)(?=\d)", r"\1-", "-".join(words))


def graph_of(name: str, precision: str) -> ModelGraph:
    """The graph of a model by any of its names, its weights in the checkpoint format that a precision means.

    A name that is not known takes the graph of the longest one that it begins with. Raises `ArgumentError` where there
    is none.
    """
    key = key_of(name)
    key = SAME.get(key, key)
    graphs = known()
    if key not in graphs:
        begun = [one for one in graphs if key.startswith(f"{one}-")]
        if not begun:
            raise ArgumentError(f"no model graph of {name}")
        key = max(begun, key=len)
    graph = _load(graphs[key])
    stored = graph.global_.weight_dtype
    wanted = WEIGHT_ONLY.get(precision)
    mixed = any(node.weight_dtype for kind in graph.layer_kinds for node in kind.nodes)
    if wanted is None or wanted == stored or mixed:
        return replace(graph)
    return replace(graph, global_=replace(graph.global_, weight_dtype=wanted))


@cache
def known() -> dict[str, Path]:
    """Graphs and configs by key; the catalog's graph stands before a config of the same name."""
    found = {key_of(path.stem): path for path in sorted(CONFIGS.glob("*.json"))}
    catalog = sorted(
        (Repos().catalog_root() / "models").iterdir(), reverse=True
    )  # of two checkpoints, the shorter name
    return found | {key_of(path.name): path / "graph.yaml" for path in catalog if (path / "graph.yaml").is_file()}


@cache
def _load(path: Path) -> ModelGraph:
    if path.suffix == ".json":
        return derive(json.loads(path.read_text(encoding="utf-8")), name=path.stem)
    return load_model(path)


def part_of(system: str) -> Chip:
    """The part of a system by its name, whatever its form factor. Raises `ArgumentError` for no part."""
    name = re.split(r"[_-]", system.lower())[0]
    root = Repos().catalog_root() / "hardware"
    for candidate in (PARTS.get(name, name), name):
        if (root / f"{candidate}.yaml").is_file():
            return _part(root / f"{candidate}.yaml")
    raise ArgumentError(
        f"no part is known as {system}; known are {', '.join(sorted(p.stem for p in root.glob('*.yaml')))}"
    )


@cache
def _part(path: Path) -> Chip:
    return load_chip(path)
