"""What the recipes make of what configs say: which layers, of which width, and how the draft module runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pykernel
from pykernel.derive.families import FAMILIES
from pykernel.derive.sequence import compressed
from pykernel.documents import ModelGraph, Node

Config = Callable[..., dict[str, Any]]


def node(graph: ModelGraph, kind: str, role: str = "", op: str = "") -> Node:
    """A node of a kind by role, or the attention that keeps the cache."""
    nodes = next(layer.nodes for layer in graph.layer_kinds if layer.id == kind)
    return next(n for n in nodes if n.role == role and n.op == (op or ("GEMM" if role else "Attention")))


# (config, layers, counts of the kinds)
LAYERS = {
    "gemma-2-9b": {"swa_dense": 21, "full_dense": 21},
    "gemma-3-27b": {"swa_dense": 52, "full_dense": 10},
    "gemma-4-31b": {"swa_dense": 50, "full_dense": 10},
    "gemma-4-26b-a4b": {"swa_moe": 25, "full_moe": 5},
    "olmo-3-32b": {"swa_dense": 48, "full_dense": 16},
    "command-r7b": {"swa_dense": 24, "full_dense": 8},
    "mistral-7b-v0.1": {"swa_dense": 32},
    "mimo-v2-flash": {"full_dense": 1, "swa_moe": 39, "full_moe": 8},
    "llama-4-maverick": {"attn_dense": 24, "attn_moe": 24},
    "glm-4.5": {"attn_dense": 3, "attn_moe": 89},
    "glm-4.7-flash": {"attn_dense": 1, "attn_moe": 46},
    "deepseek-v3.2": {"attn_dense": 3, "attn_moe": 58},
    "deepseek-v4-flash": {"window_moe": 2, "csa4_moe": 21, "csa128_moe": 20},
    "qwen3-next-80b-a3b": {"gdn_moe": 36, "attn_moe": 12},
    "nemotron-h-56b": {"mamba": 54, "mlp": 54, "attention": 10},
    "kimi-linear-48b-a3b": {"kda_dense": 1, "kda_moe": 19, "mla_moe": 7},
    "granite-4.0-h-small": {"mamba_moe": 36, "attn_moe": 4},
    "falcon-h1-7b": {"hybrid_dense": 44},
    "jamba-1.5-mini": {"mamba_dense": 12, "mamba_moe": 16, "attn_dense": 4},
    "mamba-codestral-7b": {"mamba": 64},
    "bamba-9b": {"mamba_dense": 29, "attn_dense": 3},
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_by_kind(config: Config, name: str) -> None:
    layers = pykernel.derive(config(name)).stack.layers()
    assert {kind: layers.count(kind) for kind in layers} == LAYERS[name]


def test_a_stated_head_width_wins_over_the_shared_out_hidden_one(config: Config) -> None:
    assert node(pykernel.derive(config("qwen3-32b")), "dense").d_h == 128
    assert node(pykernel.derive(config("qwen3-32b", head_dim=...)), "dense").d_h == 80


def test_a_window_that_is_switched_off_is_inert(config: Config) -> None:
    off = pykernel.derive(config("qwen2.5-7b-instruct"))
    on = pykernel.derive(config("qwen2.5-7b-instruct", use_sliding_window=True, max_window_layers=8))
    assert {n.kind for kind in off.layer_kinds for n in kind.nodes if n.op == "Attention"} == {"gqa"}
    assert on.stack.layers() == ["full_dense"] * 8 + ["swa_dense"] * 20


def test_tied_embeddings_are_counted_once(config: Config) -> None:
    untied, tied = config("qwen3-14b"), config("qwen3-14b", tie_word_embeddings=True)
    difference = pykernel.parameter_inventory(untied).total - pykernel.parameter_inventory(tied).total
    assert difference == 151936 * 5120
    assert pykernel.derive(config("gemma-2-9b")).global_.tie_word_embeddings, "the architecture's own definition"


def test_keys_and_values_of_different_width_keep_their_bytes_and_their_work(config: Config) -> None:
    """MiMo-V2: keys of 192, values of 128; a token keeps 4 x 320 elements in a full layer."""
    graph = pykernel.derive(config("mimo-v2-flash"))
    full, windowed = node(graph, "full_moe"), node(graph, "swa_moe")
    assert (2 * full.n_kv * full.d_h, 2 * windowed.n_kv * windowed.d_h) == (4 * 320, 8 * 320)
    assert node(graph, "full_moe", "qkv_proj").n == 64 * 192 + 4 * 320
    assert node(graph, "full_moe", "o_proj").k == 64 * 128


def test_values_that_are_the_keys_have_no_matrix(config: Config) -> None:
    graph = pykernel.derive(config("gemma-4-31b"))
    assert node(graph, "full_dense", "qkv_proj").n == (32 + 4) * 512
    assert node(graph, "swa_dense", "qkv_proj").n == (32 + 2 * 16) * 256


def test_hybrids_outside_the_catalog_have_the_projections_of_their_mixers(config: Config) -> None:
    granite = pykernel.derive(config("granite-4.0-h-small"))
    assert node(granite, "mamba_moe", "mixer_in").n == 2 * 8192 + 2 * 128 + 128
    qwen = pykernel.derive(config("qwen3-next-80b-a3b"))
    assert node(qwen, "gdn_moe", "mixer_in").n == 2 * 2048 + 2 * 4096
    assert node(qwen, "attn_moe", "qkv_proj").n == (2 * 16 + 2 * 2) * 256, "the output gate is projected as well"


def test_mamba_1_keeps_the_true_size_of_its_state(config: Config) -> None:
    (state,) = {group.elements for group in pykernel.summarize(pykernel.derive(config("jamba-1.5-mini"))).states}
    assert state == 8192 * 16 + (8192 + 2 * 16) * 3


def test_parallel_blocks_have_one_norm_a_layer(config: Config) -> None:
    (kind,) = pykernel.derive(config("command-r-35b")).layer_kinds
    assert [n.role for n in kind.nodes if n.op == "Elementwise"] == ["input_norm"]


def test_mlps_without_a_gate_are_half_as_wide(config: Config) -> None:
    assert node(pykernel.derive(config("minitron-8b")), "dense", "mlp_up").n == 16384
    assert node(pykernel.derive(config("phi-4")), "dense", "mlp_gate_up").n == 2 * 17920


@pytest.mark.parametrize(
    ("name", "method", "tokens"),
    [
        ("glm-4.5", "glm4_moe_mtp", 1),
        ("deepseek-v3.2", "deepseek_mtp", 1),
        ("step-3.5-flash", "mtp", 3),
        ("qwen3.5-27b", "qwen3_5_mtp", 1),
    ],
)
def test_draft_modules(config: Config, name: str, method: str, tokens: int) -> None:
    speculator = pykernel.derive(config(name)).speculator
    assert speculator is not None
    assert (speculator.method, speculator.num_spec_tokens) == (method, tokens)


def test_nested_text_marks_the_graph_as_part_of_a_multimodal_model(config: Config) -> None:
    assert pykernel.derive(config("gemma-4-31b")).modality == "text_decoder_of_multimodal"
    assert pykernel.derive(config("gemma-2-9b")).modality == ""


def test_indexers_by_frequency_and_by_list_agree(config: Config) -> None:
    listed = pykernel.derive(config("glm-5.2")).stack
    assert pykernel.derive(config("glm-5.2", indexer_types=...)).stack == listed
    lettered = "".join("F" if i < 3 or (i - 2) % 4 == 0 else "S" for i in range(78))
    assert pykernel.derive(config("glm-5.2", indexer_types=..., index_topk_pattern=lettered)).stack == listed


def test_layers_that_differ_in_width_are_kinds_of_their_own() -> None:
    def layer(group: int | None, factor: float) -> dict[str, Any]:
        return {
            "attention": {"n_heads_in_group": group, "no_op": group is None},
            "ffn": {"ffn_mult": factor, "no_op": False},
        }

    graph = pykernel.derive(
        {
            "architectures": ["DeciLMForCausalLM"],
            "hidden_size": 1024,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "vocab_size": 1000,
            "torch_dtype": "bfloat16",
            "block_configs": [layer(4, 2.625), layer(None, 2.625), layer(8, 1.0), layer(4, 2.625)],
        }
    )
    assert graph.stack.layers() == ["attn_dense", "attn_dense_2", "attn_dense_3", "attn_dense"]
    assert node(graph, "attn_dense", "mlp_down").k == 1792  # 2 x 2.625 x 1024 / 3, a multiple of 256
    assert node(graph, "attn_dense_3").n_kv == 1


@pytest.mark.parametrize(
    ("layers", "stack"),
    [
        ("aaaa", ("", "a", 4, "")),
        ("abbbb", ("a", "b", 4, "")),
        ("abab", ("", "ab", 2, "")),
        ("cababd", ("c", "ab", 2, "d")),
        ("abc", ("abc", "", 0, "")),
        ("aab", ("", "a", 2, "b")),
        ("a", ("a", "", 0, "")),
    ],
)
def test_a_sequence_is_written_in_the_fewest_ids(layers: str, stack: tuple[str, str, int, str]) -> None:
    found = compressed(list(layers))
    assert found.layers() == list(layers)
    assert ("".join(found.prologue), "".join(found.pattern), found.repeat, "".join(found.epilogue)) == stack


def test_architectures_belong_to_one_family_each() -> None:
    named = [architecture for family in FAMILIES for architecture in family.architectures]
    assert len(named) == len(set(named))
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
