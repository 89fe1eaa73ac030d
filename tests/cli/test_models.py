"""`pykernel model`, `pykernel derive` and `pykernel price --config`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel.documents import graph

Command = Callable[..., Any]

CONFIGS = Path(__file__).resolve().parents[2] / "testdata" / "configs"
QWEN = str(CONFIGS / "qwen3-14b")


# ---- derive ------------------------------------------------------------------------------------------------------


def test_a_derived_graph_is_written_and_loads_back(command: Command, tmp_path: Path) -> None:
    done = command("derive", QWEN, "--name", "mine", "-o", "graph.yaml")
    assert (done.code, done.out) == (0, "graph.yaml: mine, 40 layers of 1 kind\n")
    assert graph.load(tmp_path / "graph.yaml") == pykernel.derive(QWEN, name="mine")


def test_without_an_output_the_graph_is_printed(command: Command) -> None:
    done = command("derive", f"{QWEN}/config.json", "--quantization", "fp8")
    assert done.out == graph.dump(pykernel.derive(QWEN, quantization="fp8"))


def test_a_config_at_fault_is_named(command: Command, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096}')
    command("derive", "config.json").fails(1, "config.json", "config.", "missing", "qwen3")
    command("derive", "nowhere.json").fails(1, "nowhere.json", "cannot be read")
    command("derive", QWEN, "--quantization", "fp9").fails(2, "fp9", "accepted")
    command("derive", QWEN, "-o", "no/such/folder.yaml").fails(2, "cannot be written")


# ---- model -------------------------------------------------------------------------------------------------------


def test_a_model_of_the_catalog_is_summed_up(command: Command) -> None:
    out = command("model", "gpt-oss-120b").out
    for said in (
        "gpt-oss-120b, weights bf16",
        "116.78 billion, of which a token uses 5.12 billion",
        "36: 18 swa_moe, 18 full_moe",
        "73,728 bytes a token in 16 bits",
        "36,864 in 18 layers of swa_moe, for the last 128 tokens",
    ):
        assert said in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_config_is_summed_up_with_what_is_in_no_node(command: Command) -> None:
    out = " ".join(command("model", str(CONFIGS / "mixtral-8x7b-v0.1")).out.split())
    assert "46,702,792,704 in all; in no node of the graph: norms 266,240, routers 1,048,576" in out


def test_a_graph_file_is_summed_up(command: Command) -> None:
    command("derive", str(CONFIGS / "granite-4.0-h-small"), "-o", "graph.yaml")
    out = command("model", "graph.yaml").out
    assert "state       1,073,920 elements a sequence and layer in 36 layers of mamba_moe (mamba2)" in out


def test_json_has_the_same_figures(command: Command) -> None:
    found = command("model", QWEN, "--json").json()
    assert found["parameters"]["total"] == 14_768_307_200
    assert found["layers"] == {"dense": 40}
    assert found["kv_bytes_per_token"][0]["bytes"] == 2 * 40 * 8 * 128 * 2
    assert found["flops_per_token"] == 2 * (found["parameters"]["in_the_graph"] - 151936 * 5120)


def test_an_unknown_model_is_refused_with_a_hint(command: Command) -> None:
    command("model", "deepseek-v33").fails(2, "deepseek-v33", "did you mean", "deepseek-v3")


# ---- a price without a scenario ------------------------------------------------------------------------------------


def test_a_config_prices_as_the_same_settings_in_documents(command: Command) -> None:
    layout = ("--chip", "h100", "--tp", "2", "--quantization", "fp8", "--cache-dtype", "fp8", "--decode", "32x4096")
    found = command("price", "--config", QWEN, *layout, "--json").json()
    inputs = pykernel.inputs_from_config(QWEN, "h100", tp=2, quantization="fp8", cache_dtype="fp8")
    batch = pykernel.Batch([pykernel.Request(1, 4095, 4096)] * 32)
    assert found["estimate"]["no_overlap_ns"] == pykernel.new(inputs).step_time(batch).no_overlap_ns
    assert found["model"] == {"name": "qwen3-14b", "weights": "fp8", "kv_cache": "fp8"}
    assumed = {entry["name"] for entry in found["assumptions"]}
    assert {"block_size", "max_num_seqs", "max_num_batched_tokens", "cudagraph_mode"} <= assumed


def test_the_cluster_has_as_many_nodes_as_the_ranks_need(command: Command) -> None:
    config = str(CONFIGS / "qwen3-30b-a3b")
    layout = ("--chip", "h200", "--tp", "4", "--dp", "4", "--ep", "--fabric", "ib-400g", "--decode", "8x1024")
    found = command("price", "--config", config, *layout, "--json").json()
    assert (found["cluster"]["nodes"], found["resolution"]["expert_parallel"]) == (2, 16)
    command("price", "--config", config, "--chip", "h200", "--tp", "4", "--dp", "4", "--decode", "8x1024").fails(
        1, "fabric"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--config", QWEN), ("--chip", "h100")),
        (("deepseek-v3-h200-fp8-tp8", "--config", QWEN, "--chip", "h100"), ("leave out",)),
        (("deepseek-v3-h200-fp8-tp8", "--tp", "4"), ("--tp", "--config")),
        (("deepseek-v3-h200-fp8-tp8", "--cache-dtype", "fp8"), ("--cache-dtype", "--config")),
        ((), ("SCENARIO", "--config")),
        (("--config", QWEN, "--chip", "h100", "--pool", "1"), ("--pool",)),
        (("--config", QWEN, "--chip", "h100", "--tp", "0"), ("--tp",)),
    ],
)
def test_a_subject_is_one_thing(command: Command, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    command("price", *arguments, "--decode", "1x1").fails(2, *words)


def test_an_unknown_chip_is_refused_with_a_hint(command: Command) -> None:
    command("price", "--config", QWEN, "--chip", "h10", "--decode", "1x1").fails(1, "h10", "did you mean", "h100")


def test_what_the_engine_would_not_start_is_refused(command: Command) -> None:
    arguments = ("--config", QWEN, "--chip", "h100", "--tp", "3", "--decode", "1x1")
    command("price", *arguments).fails(1, "parallel.tp", "3")


def test_settings_are_checked_by_name() -> None:
    with pytest.raises(pykernel.ArgumentError, match="did you mean"):
        pykernel.inputs_from_config(QWEN, "h100", cache_dtyp="fp8")
    with pytest.raises(pykernel.ArgumentError, match="tp is 0"):
        pykernel.inputs_from_config(QWEN, "h100", tp=0)


def test_a_config_may_be_an_object() -> None:
    config = json.loads((CONFIGS / "qwen3-14b" / "config.json").read_text())
    inputs = pykernel.inputs_from_config(config, "gb300", tp=4, name="mine")
    assert (inputs.model.name, inputs.scenario.cluster.gpus_per_node) == ("mine", 4)
    assert inputs.model.derived_from.path == "(in memory)"


def test_memory_takes_a_config_too(command: Command) -> None:
    found = command("memory", "--config", QWEN, "--chip", "h100", "--tp", "2", "--quantization", "fp8", "--json").json()
    kernel = pykernel.new(pykernel.inputs_from_config(QWEN, "h100", tp=2, quantization="fp8"))
    assert found["fixed_bytes"]["total"] == kernel.fixed_bytes().total
    command("memory", "--tp", "2").fails(2, "--config")
