"""Which number format each weight gets: the dialects of quantization records, and their exceptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel.documents import ModelGraph
from pykernel.errors import ArgumentError, DocumentError

Config = Callable[..., dict[str, Any]]


def stated(graph: ModelGraph) -> dict[str, str]:
    """Formats that nodes state, by kind and role."""
    return {
        f"{kind.id}.{node.role}": node.weight_dtype
        for kind in graph.layer_kinds
        for node in kind.nodes
        if node.weight_dtype
    }


def group(bits: int, kind: str, size: int | None = None) -> dict[str, Any]:
    return {
        "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": bits, "type": kind, "group_size": size}}}
    }


@pytest.mark.parametrize(
    ("record", "overall"),
    [
        ({}, "bf16"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "modelopt_fp4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "compressed-tensors", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "compressed-tensors", **group(8, "float")}, "fp8"),
        ({"quant_method": "compressed-tensors", **group(8, "int")}, "int8"),
        ({"quant_method": "compressed-tensors", **group(4, "int", 128)}, "int4"),
        ({"quant_method": "compressed-tensors", **group(4, "float", 16)}, "nvfp4"),
        ({"quant_method": "compressed-tensors", **group(4, "float", 32)}, "mxfp4"),
        ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", **group(4, "float")}, "mxfp4"),
    ],
)
def test_the_overall_format_of_a_record(config: Config, record: dict[str, Any], overall: str) -> None:
    graph = pykernel.derive(config("qwen3-14b", quantization_config=record))
    assert graph.global_.weight_dtype == overall
    assert stated(graph) == {}


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"quant_method": "newq"}, "quant_method"),
        ({"quant_method": 8}, "quant_method"),
        ({"bits": 4}, "quant_method"),
        ({"quant_method": "gptq", "bits": 3}, "bits"),
        ({"quant_method": "awq", "bits": [4]}, "bits"),
        ({"quant_algo": "FP3"}, "quant_algo"),
        ({"quant_method": "x", **group(4, "float", 64)}, "config_groups.g.weights"),
        ({"quant_method": "x", **group(2, "int", 64)}, "config_groups.g.weights"),
        ({"quant_method": "fp8", "modules_to_not_convert": [3]}, "modules_to_not_convert"),
        ({"quantized_layers": {"layers.0.mlp.down_proj": {"quant_algo": "FP3"}}}, "quantized_layers"),
    ],
)
def test_a_record_that_leaves_the_width_open_is_refused(config: Config, record: dict[str, Any], field: str) -> None:
    with pytest.raises(DocumentError) as caught:
        pykernel.derive(config("qwen3-14b", quantization_config=record))
    assert field in caught.value.problems[0].path


def test_a_record_that_is_text_is_shown_as_it_is(config: Config) -> None:
    with pytest.raises(DocumentError, match="found 'fp8'; accepted: an object"):
        pykernel.derive(config("qwen3-14b", quantization_config="fp8"))
    as_text = config("qwen3-14b", quantization_config='{"quant_method": "fp8"}')
    assert pykernel.derive(as_text).global_.weight_dtype == "fp8"


@pytest.mark.parametrize(
    "kept",
    [
        ["re:.*self_attn.*"],
        ["model.layers.*.self_attn"],
        ["*.self_attn.*"],
        [f"model.layers.{i}.self_attn*" for i in range(48)],
        [f"model.layers.{i}.self_attn.{m}_proj" for i in range(48) for m in "qkvo"],
    ],
)
def test_the_dialects_of_what_stays_unquantized(config: Config, kept: list[str]) -> None:
    record = {"quant_method": "fp8", "modules_to_not_convert": [*kept, "lm_head", "mtp.layers.0*", "mlp.gate"]}
    graph = pykernel.derive(config("qwen3-30b-a3b", quantization_config=record))
    assert graph.global_.weight_dtype == "fp8"
    assert stated(graph) == {"attn_moe.qkv_proj": "bf16", "attn_moe.o_proj": "bf16"}


def test_layers_kept_unquantized_are_a_kind_of_their_own(config: Config) -> None:
    record = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.*", "model.layers.39.mlp.down_proj"]}
    graph = pykernel.derive(config("qwen3-14b", quantization_config=record))
    assert graph.stack.layers() == ["dense", *["dense_2"] * 38, "dense_3"]
    assert {key for key in stated(graph) if key.startswith("dense_2")} == set()


def test_an_enumeration_of_modules_quantizes_those_alone(config: Config) -> None:
    listed = {
        f"model.layers.{i}.mlp.experts.{e}.gate_proj": {"quant_algo": "NVFP4"} for i in range(48) for e in range(2)
    }
    listed |= {f"model.layers.{i}.self_attn.q_proj": {"quant_algo": "FP8"} for i in range(48)}
    record = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {**listed, "lm_head": "FP8"},
    }
    graph = pykernel.derive(config("qwen3-30b-a3b", quantization_config=record))
    assert graph.global_.weight_dtype == "bf16"
    assert stated(graph) == {"attn_moe.qkv_proj": "fp8", "attn_moe.experts": "nvfp4"}
    assert graph.head[-1].weight_dtype == "fp8"


def test_two_formats_among_the_experts_of_a_layer_are_refused(config: Config) -> None:
    listed = {"model.layers.0.mlp.experts.0.w1": "FP8", "model.layers.0.mlp.experts.1.w1": "NVFP4"}
    with pytest.raises(DocumentError, match="one format for all experts"):
        pykernel.derive(config("qwen3-30b-a3b", quantization_config={"quantized_layers": listed}))


def test_the_companion_file_counts_where_the_config_has_no_record(config: Config, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config("qwen3-14b")))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    assert pykernel.derive(tmp_path).global_.weight_dtype == "nvfp4"
    (tmp_path / "config.json").write_text(json.dumps(config("qwen3-14b", quantization_config={"quant_method": "fp8"})))
    assert pykernel.derive(tmp_path).global_.weight_dtype == "fp8"


def test_a_format_given_stands_for_the_record(config: Config) -> None:
    graph = pykernel.derive(config("kimi-k2.5"), quantization="nvfp4")
    assert (graph.global_.weight_dtype, stated(graph)) == ("nvfp4", {})
    with pytest.raises(ArgumentError, match="did you mean"):
        pykernel.derive(config("kimi-k2.5"), quantization="nvfp")


def test_a_config_without_a_dtype_needs_a_record(config: Config) -> None:
    with pytest.raises(DocumentError, match="torch_dtype"):
        pykernel.derive(config("qwen3-14b", torch_dtype=...))
    record = {"quant_method": "fp8"}
    assert (
        pykernel.derive(config("qwen3-14b", torch_dtype=..., quantization_config=record)).global_.weight_dtype == "fp8"
    )
