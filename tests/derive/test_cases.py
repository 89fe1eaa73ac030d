"""Figures that users of public projects were bitten by, each from a config; the wrong value is what naive code gives.

Sources: LMCache #688, #694; ollama #17615; inference-sim #1527; hf-mem #60; aiconfigurator #1143, #1537; vllm #43308;
Rapid-MLX #1423; vllm-fit #27.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import pykernel
from pykernel.summary import ModelSummary

CONFIGS = Path(__file__).resolve().parents[2] / "testdata" / "configs"


def summary(name: str) -> ModelSummary:
    return pykernel.summarize(pykernel.derive(CONFIGS / name))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("qwen3-32b", 262_144, 163_840),  # head width: stated, not hidden / heads
        ("qwen3-30b-a3b", 98_304, 49_152),
        ("deepseek-v3", 70_272, 4_997_120),  # a latent vector, not heads
    ],
)
def test_a_token_of_cache_in_16_bits(name: str, right: int, wrong: int) -> None:
    assert summary(name).cache_bytes(1) == right != wrong


def test_the_latent_caches_of_a_model_with_indexers() -> None:
    """GLM-5.2: 78 latent entries of 512 + 64, the 21 indexers beside them."""
    groups = summary("glm-5.2").caches
    assert sum(2 * group.elements_held(1) for group in groups if not group.role) == 78 * 576 * 2 == 89_856
    assert sum(group.layers for group in groups if group.role) == 21


@pytest.mark.parametrize(
    ("tokens", "right"),
    [(1, 73_728), (128, 9_437_184), (129, 9_474_048), (4096, 155_713_536), (131_072, 4_836_556_800)],
)
def test_windows_stop_growing(tokens: int, right: int) -> None:
    """gpt-oss-120b: 18 layers keep everything, 18 the last 128 tokens."""
    assert summary("gpt-oss-120b").cache_bytes(tokens) == right


def test_windows_stop_growing_for_each_request_on_its_own() -> None:
    found = summary("gpt-oss-120b")
    assert found.cache_bytes(65_536 + 400, 1.0) == 18 * 1024 * (65_936 + 128) == 1_217_691_648


@pytest.mark.parametrize(("name", "right"), [("gemma-4-31b", 11_576_279_040), ("gemma-4-12b", 2_483_027_968)])
def test_full_and_windowed_layers_have_heads_of_their_own(name: str, right: int) -> None:
    assert summary(name).cache_bytes(131_072) == right


def test_routers_norms_and_an_untied_head_are_counted() -> None:
    assert pykernel.parameter_inventory(CONFIGS / "mixtral-8x7b-v0.1").total == 46_702_792_704


def test_latent_experts_of_two_matrices() -> None:
    """Nemotron-3-Super: 40 layers of 512 experts that read a latent vector of 1,024, no gate."""
    graph = pykernel.derive(CONFIGS / "nemotron-3-super-120b-a12b")
    kind = next(kind for kind in graph.layer_kinds if kind.id == "moe")
    experts = next(node for node in kind.nodes if node.op == "GroupedGEMM")
    layers = graph.stack.layers().count("moe")
    assert not experts.gated
    assert layers * experts.experts * 2 * experts.n * experts.latent_size * 2 == 225_485_783_040
