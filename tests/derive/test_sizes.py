"""The parameter inventory of a config against the size that the model's publisher states.

Exact counts are those that a checkpoint's page on huggingface.co shows (the sum over its safetensors files), round ones
those of the model's name or card there. Draft modules, vision and audio towers are in neither.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pykernel

CONFIGS = Path(__file__).resolve().parents[2] / "testdata" / "configs"

COUNTED = {
    "codellama-34b-instruct-hf": 33_743_970_304,
    "command-r-35b": 34_980_831_232,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "exaone-4.0-32b": 32_003_216_384,
    "falcon-h1-7b": 7_585_654_272,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-9b": 9_241_705_984,
    "gemma-7b": 8_537_680_896,
    "glm-4-9b-0414": 9_400_279_040,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "granite-3.1-8b": 8_170_848_256,
    "jamba-1.5-mini": 51_570_323_328,
    "kimi-linear-48b-a3b": 49_122_681_728,
    "llama-2-70b-hf": 68_976_648_192,
    "llama-2-7b-hf": 6_738_415_616,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b-instruct": 70_553_706_496,
    "llama-3.1-8b-instruct": 8_030_261_248,
    "mamba-codestral-7b": 7_285_403_648,
    "minimax-m2.5": 228_703_644_928,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-nemo-instruct-2407": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x22b-v0.1": 140_620_634_112,
    "mixtral-8x7b-v0.1": 46_702_792_704,
    "nemotron-3.5-lightning-30b-a3b-bf16": 31_577_937_344,
    "olmo-2-13b": 13_716_198_400,
    "phi-2": 2_779_683_840,
    "phi-4": 14_659_507_200,
    "qwen2-57b-a14b": 57_409_111_552,
    "qwen2.5-72b-instruct": 72_706_203_648,
    "qwen2.5-7b-instruct": 7_615_616_512,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "yi-34b": 34_388_917_248,
}

NAMED = {
    "bamba-9b": 9.78,
    "command-r7b": 8.03,
    "deepseek-v4-flash": 284,
    "gemma-3-27b": 27.0,
    "gemma-4-26b-a4b": 25.2,
    "gemma-4-31b": 30.7,
    "glm-4.7-flash": 30,
    "glm-5": 744,
    "granite-3.1-3b-a800m": 3.3,
    "granite-4.0-h-small": 32.2,
    "granite-5.0-230b-rl-preview": 230.5,
    "kimi-k2": 1026.4,
    "llama-4-maverick": 400,
    "mimo-v2-flash": 309,
    "minitron-8b": 8.27,
    "nemotron-3-ultra-550b-a55b-bf16": 550,
    "nemotron-h-56b": 56.3,
    "qwen3-next-80b-a3b": 80,
    "qwen3.5-27b": 27,
    "qwen3.5-397b-a17b": 397,
    "step-3.5-flash": 196,
}
"""In billions."""


@pytest.mark.parametrize(("name", "published"), {**COUNTED, **{k: v * 1e9 for k, v in NAMED.items()}}.items())
def test_the_inventory_agrees_with_the_published_size(name: str, published: float) -> None:
    found = pykernel.parameter_inventory(CONFIGS / name)
    assert found.total == pytest.approx(published, rel=0.005)
    assert found.total == found.priced + sum(found.unpriced.values())
    assert 0 < found.active <= found.total


EXACT = (
    "exaone-4.0-32b",
    "gemma-2-9b",
    "gpt-oss-20b",
    "jamba-1.5-mini",
    "llama-3.1-8b-instruct",
    "mamba-codestral-7b",
    "mixtral-8x7b-v0.1",
    "olmo-2-13b",
    "phi-4",
    "qwen2.5-72b-instruct",
    "qwen3-30b-a3b",
)


@pytest.mark.parametrize("name", EXACT)
def test_where_a_checkpoint_holds_nothing_else_the_count_is_exact(name: str) -> None:
    assert pykernel.parameter_inventory(CONFIGS / name).total == COUNTED[name]


def test_at_least_forty_models_are_compared() -> None:
    assert len(COUNTED) + len(NAMED) >= 40


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.iterdir()))
def test_every_config_derives_a_graph_that_prices(name: str) -> None:
    config = json.loads((CONFIGS / name / "config.json").read_text())
    inputs = pykernel.inputs_from_config(config, "b300", name=name)
    estimate = pykernel.new(inputs).step_time(pykernel.Batch([pykernel.Request(1, 1023, 1024)] * 8))
    assert 0 < estimate.overlap_ns <= estimate.no_overlap_ns
