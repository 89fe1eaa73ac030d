"""Every config that the PyPI package aiconfigurator-core 0.12.0 ships: derived, or refused by name.

Collected only where the package is installed, which `make configs` does; its files are data, none of its code runs.
"""

from __future__ import annotations

import copy
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel.documents import ModelGraph, Repos
from pykernel.documents.repos import load_model
from pykernel.errors import DocumentError

SPEC = importlib.util.find_spec("aiconfigurator_core")
assert SPEC is not None and SPEC.submodule_search_locations
FOLDER = Path(SPEC.submodule_search_locations[0]) / "model_configs"
CONFIGS = sorted(path for path in FOLDER.glob("*_config.json") if not path.name.endswith("_hf_quant_config.json"))
MODELS = Repos().catalog_root() / "models"

IDENTICAL = {
    "deepseek-v3": "deepseek-ai--DeepSeek-V3",
    "deepseek-v4-pro": "deepseek-ai--DeepSeek-V4-Pro",
    "glm-5": "zai-org--GLM-5-FP8",
    "glm-5.2": "zai-org--GLM-5.2",
    "glm-5.2-fp8": "zai-org--GLM-5.2-FP8",
    "glm-5.3": "zai-org--GLM-5.3-FP8",
    "gpt-oss-120b": "openai--gpt-oss-120b",
    "llama-3.1-70b-instruct": "meta-llama--Meta-Llama-3.1-70B",
    "llama-3.1-8b-instruct": "meta-llama--Meta-Llama-3.1-8B",
    "minimax-m2.5": "MiniMaxAI--MiniMax-M2.5",
    "minimax-m2.7": "MiniMaxAI--MiniMax-M2.7",
    "minimax-m3": "MiniMaxAI--MiniMax-M3",
    "mixtral-8x22b-v0.1": "mistralai--Mixtral-8x22B-v0.1",
    "mixtral-8x7b-v0.1": "mistralai--Mixtral-8x7B-v0.1",
    "qwen3-30b-a3b": "Qwen--Qwen3-30B-A3B",
    "qwen3.5-397b-a17b": "Qwen--Qwen3.5-397B-A17B",
}
GATED_UPSTREAM = {
    "nemotron-3-ultra-550b-a55b-bf16": "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
    "nemotron-3.5-lightning-30b-a3b-nvfp4": "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4",
}
"""Equal once experts count three matrices and a quantized output matrix is forgotten, as upstream."""


def price(graph: ModelGraph) -> pykernel.StepEstimate:
    batch = pykernel.Batch([pykernel.Request(1, 4095, 1024)] * 32 + [pykernel.Request(512, 0, 512)])
    return pykernel.new(pykernel.inputs_from_graph(graph, "b300", tp=4)).step_time(batch)


@pytest.mark.parametrize("name", IDENTICAL)
def test_a_bundled_model_prices_as_its_config(name: str) -> None:
    derived = pykernel.derive(FOLDER / f"{IDENTICAL[name]}_config.json")
    assert price(derived) == price(load_model(MODELS / name / "graph.yaml"))


@pytest.mark.parametrize("name", GATED_UPSTREAM)
def test_what_upstream_cannot_say_is_the_only_difference(name: str) -> None:
    derived = copy.deepcopy(pykernel.derive(FOLDER / f"{GATED_UPSTREAM[name]}_config.json"))
    for kind in derived.layer_kinds:
        kind.nodes = [replace(node, gated=True) for node in kind.nodes]
    derived.head[-1].weight_dtype = ""
    assert price(derived) == price(load_model(MODELS / name / "graph.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_derived_graph_prices(path: Path) -> None:
    assert price(pykernel.derive(path)).no_overlap_ns > 0


def test_at_least_95_percent_of_the_decoders_derive() -> None:
    refused: dict[str, Any] = {}
    for path in CONFIGS:
        try:
            pykernel.derive(path)
        except DocumentError as error:
            refused[path.name] = json.dumps(str(error))
    print(f"{len(CONFIGS) - len(refused)} of {len(CONFIGS)} derive; refused: {refused}")
    assert len(CONFIGS) >= 80
    assert len(refused) <= 0.05 * len(CONFIGS), refused
