"""Configs that are refused: by file and field, with what was found and what would do; never with a traceback."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel.documents import graph as graphs
from pykernel.errors import ArgumentError, DocumentError, PykernelError

Config = Callable[..., dict[str, Any]]
CONFIGS = Path(__file__).resolve().parents[2] / "testdata" / "configs"


@pytest.mark.parametrize(
    ("name", "changes", "path", "words"),
    [
        ("qwen3-14b", {"hidden_size": ...}, "config.hidden_size", ["missing", "d_model", "family qwen3"]),
        ("qwen3-14b", {"intermediate_size": ...}, "config.intermediate_size", ["missing"]),
        ("qwen3-14b", {"num_key_value_heads": ...}, "config.num_key_value_heads", ["missing"]),
        ("qwen3-14b", {"num_hidden_layers": "40"}, "config.num_hidden_layers", ["'40'", "whole number"]),
        ("qwen3-14b", {"num_hidden_layers": True}, "config.num_hidden_layers", ["True"]),
        ("qwen3-14b", {"num_hidden_layers": 10**6}, "config.num_hidden_layers", ["at most 1024"]),
        ("qwen3-14b", {"vocab_size": -1}, "config.vocab_size", ["-1", "from 1"]),
        ("qwen3-14b", {"vocab_size": 10**30}, "config.vocab_size", ["whole number"]),
        ("qwen3-14b", {"num_key_value_heads": 7}, "config.num_key_value_heads", ["7 for 40", "divisor"]),
        ("yi-34b", {"num_attention_heads": 55}, "config.head_dim", ["7168", "55"]),
        ("qwen3-14b", {"torch_dtype": "int3"}, "config.torch_dtype", ["'int3'", "bfloat16"]),
        ("qwen3-14b", {"tie_word_embeddings": "no"}, "config.tie_word_embeddings", ["flag"]),
        ("qwen3-30b-a3b", {"num_experts_per_tok": 200}, "config.num_experts_per_tok", ["200 of 128"]),
        ("gpt-oss-120b", {"layer_types": ["full_attention"]}, "config.layer_types", ["1 entries for 36"]),
        ("gpt-oss-120b", {"layer_types": ["slide"] * 36}, "config.layer_types[0]", ["'slide'", "sliding_attention"]),
        ("gpt-oss-120b", {"layer_types": ...}, "config.layer_types", ["missing"]),
        ("gpt-oss-120b", {"sliding_window": ...}, "config.sliding_window", ["missing"]),
        ("gemma-3-27b", {"sliding_window_pattern": ...}, "config.text_config.sliding_window_pattern", ["missing"]),
        ("glm-5.2", {"mlp_layer_types": ["dense"] * 78}, "config.first_k_dense_replace", ["3", "78"]),
        ("deepseek-v3", {"qk_rope_head_dim": 0}, "config.qk_rope_head_dim", ["mla_use_nope"]),
        ("deepseek-v4-pro", {"compress_ratios": [8] * 61}, "config.compress_ratios[0]", ["8", "0, 4, 128"]),
        ("minimax-m2.5", {"attn_type_list": [0] * 62}, "config.attn_type_list", ["accepted: 1"]),
        ("qwen3.5-397b-a17b", {"full_attention_interval": 5}, "config.text_config.layer_types", ["interval 5"]),
        ("qwen3-next-80b-a3b", {"linear_value_head_dim": 64}, "config.linear_value_head_dim", ["64", "128"]),
        ("nemotron-h-56b", {"num_hidden_layers": 3}, "config.num_hidden_layers", ["3", "118"]),
        ("nemotron-h-56b", {"hybrid_override_pattern": "MX"}, "config.hybrid_override_pattern", ["'X'"]),
        ("nemotron-h-56b", {"layers_block_type": ["mamba", ["moe"]]}, "config.layers_block_type[1]", ["['moe']"]),
        ("nemotron-h-56b", {"layers_block_type": ["mamba", {}]}, "config.layers_block_type[1]", ["{}"]),
        ("gpt-oss-120b", {"layer_types": [[]] * 36}, "config.layer_types[0]", ["[]"]),
        ("gemma-4-31b", {"num_kv_shared_layers": 18}, "config.text_config.num_kv_shared_layers", ["not described"]),
        ("qwen3-14b", {"num_nextn_predict_layers": 1}, "config.num_nextn_predict_layers", ["none are described"]),
        ("deepseek-v3", {"moe_intermediate_size": ...}, "config.moe_intermediate_size", ["missing"]),
        ("deepseek-v3", {"first_k_dense_replace": ...}, "config.first_k_dense_replace", ["missing"]),
        ("deepseek-v3", {"n_shared_experts": ...}, "config.n_shared_experts", ["missing"]),
        ("deepseek-v3", {"q_lora_rank": ...}, "config.q_lora_rank", ["missing"]),
        ("deepseek-v3.2", {"index_topk": ...}, "config.index_topk", ["missing"]),
        ("glm-5", {"index_topk": ..., "index_n_heads": ...}, "config.index_topk", ["missing"]),
        ("gemma-2-9b", {"sliding_window": ...}, "config.sliding_window", ["missing"]),
        (
            "qwen3-next-80b-a3b",
            {"shared_expert_intermediate_size": ...},
            "config.shared_expert_intermediate_size",
            ["missing"],
        ),
        ("jamba-1.5-mini", {"num_experts": ...}, "config.num_local_experts", ["missing", "num_experts"]),
        ("nemotron-3-super-120b-a12b", {"mamba_head_dim": ...}, "config.mamba_head_dim", ["missing"]),
        ("mimo-v2-flash", {"swa_num_attention_heads": ...}, "config.swa_num_attention_heads", ["missing"]),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0, 48]}, "config.mlp_only_layers", ["[48]", "0 to 47"]),
        ("falcon-h1-7b", {"mamba_d_ssm": 999}, "config.mamba_d_ssm", ["3072"]),
    ],
)
def test_a_field_at_fault_is_named(
    config: Config, name: str, changes: dict[str, Any], path: str, words: list[str]
) -> None:
    with pytest.raises(DocumentError) as caught:
        pykernel.derive(config(name, **changes))
    (problem,) = caught.value.problems
    assert problem.path == path
    assert [word for word in words if word not in problem.message] == []


@pytest.mark.parametrize(
    ("architecture", "near"),
    [("LamaForCausalLM", "llama"), ("Qwen4ForCausalLM", "qwen"), ("XyzModel", ""), ("", "")],
)
def test_an_unknown_architecture_is_refused_with_the_nearest_family(architecture: str, near: str) -> None:
    with pytest.raises(DocumentError) as caught:
        pykernel.derive({"architectures": [architecture], "hidden_size": 8})
    (problem,) = caught.value.problems
    assert problem.path == "config.architectures"
    assert repr(architecture) in problem.message
    assert "the nearest is" in problem.message
    assert f"of the family {near}" in problem.message


@pytest.mark.parametrize(
    "found", [{}, {"architectures": []}, {"architectures": "LlamaForCausalLM"}, {"architectures": [3]}]
)
def test_a_config_must_name_its_architecture(found: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match="architectures"):
        pykernel.derive(found)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"a": 1' + "0" * 5000 + "}", "[" * 100_000, "\xff\xfe"])
def test_a_file_that_is_no_config_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DocumentError) as caught:
        pykernel.derive(path)
    assert caught.value.problems[0].file == str(path)


def test_what_no_config_of_a_family_may_leave_out_is_told_at_once(config: Config) -> None:
    dropped = ("hidden_size", "vocab_size", "n_shared_experts", "q_lora_rank")
    with pytest.raises(DocumentError) as caught:
        pykernel.derive(config("deepseek-v3", **dict.fromkeys(dropped, ...)))
    assert [problem.path for problem in caught.value.problems] == [f"config.{key}" for key in dropped]


def test_a_part_that_a_config_says_it_lacks_is_none(config: Config) -> None:
    kind = pykernel.derive(config("deepseek-v3", n_shared_experts=None, q_lora_rank=None)).layer_kinds[-1]
    assert "q_proj" in [node.role for node in kind.nodes]
    assert [node.shared_experts for node in kind.nodes if node.op == "GroupedGEMM"] == [0]


def test_a_key_with_two_values_is_refused_and_with_one_twice_is_not(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    text = (CONFIGS / "qwen3-14b" / "config.json").read_text().rstrip().removesuffix("}")
    path.write_text(text + ', "hidden_size": 5120}')
    assert pykernel.derive(path).global_.hidden_size == 5120
    path.write_text(text + ', "hidden_size": 4096}')
    with pytest.raises(DocumentError, match="'hidden_size' is written twice, with 5120 and with 4096"):
        pykernel.derive(path)


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read"):
        pykernel.derive(tmp_path / "none.json")


@pytest.mark.parametrize("argument", [None, 3, ["config.json"], {"a": {1, 2}}, {"a": float}])
def test_arguments_of_other_types_are_refused(argument: Any) -> None:
    with pytest.raises(ArgumentError):
        pykernel.derive(argument)


# ---- fuzzing -------------------------------------------------------------------------------------------------------

ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 10**9, 10**40, -(10**40), 0.5, float("nan"), float("inf"), 1e308),
    *("", "x", "fp8", "sliding_attention", [], [0], [1] * 5000, ["x"], [[]], {}, {"a": 1}, {"weights": 3}),
]


def mutated(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """A value with one place in it changed."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.7):
        key = rng.choice(list(value))
        if rng.random() < 0.25:
            del value[key]
        else:
            value[key] = mutated(rng, value[key], depth + 1)
        return value
    if isinstance(value, list) and value and rng.random() < 0.5:
        index = rng.randrange(len(value))
        value[index] = mutated(rng, value[index], depth + 1)
        return value
    return copy.deepcopy(rng.choice(ODD))


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.iterdir()))
def test_a_mutated_config_derives_a_valid_graph_or_is_refused(name: str) -> None:
    original = json.loads((CONFIGS / name / "config.json").read_text())
    rng = random.Random(name)
    for _ in range(15):
        config = copy.deepcopy(original)
        for _ in range(rng.choice((1, 1, 2, 4))):
            config = mutated(rng, config)
        try:
            graph = pykernel.derive(config)
        except PykernelError as error:
            assert str(error)
        else:
            assert [problem for problem in graphs.check(graph) if problem.severity == "error"] == []
            assert graphs.dump(graph)
