"""`pykernel memory`: published figures, what fits, what would, and the picture."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel

Command = Callable[..., Any]
DEEPSEEK = "deepseek-v3-h200-fp8-tp8"


def test_published_example_prints_its_published_digits(command: Command) -> None:
    # Documentation of inference-sim/blis-latency-kernel.
    done = command("memory", DEEPSEEK, "--tokens", "4096")
    figures = dict(re.findall(r"^([a-zA-Z ,]+?) +([\d.]+) GiB +\d+%", done.out, re.MULTILINE))
    assert figures == {
        "before the budget": "3.9", "weights": "78.2", "activations": "1.1", "CUDA graphs": "0.8",
        "EPLB replicas": "0.0", "comm buffers": "0.0", "fixed, total": "80.1", "KV cache": "46.8", "not used": "10.2",
    }  # fmt: skip
    assert "(35,136 bytes a token)" in done.out
    assert re.search(r"^request +of 4,096 tokens: 137\.\d MiB, 349 fit at once$", done.out, re.MULTILINE)
    assert (done.code, done.err) == (0, "")


def test_the_parts_of_a_gpu_add_up_to_it(command: Command) -> None:
    for scenario in pykernel.documents.list_scenarios():
        report = command("memory", scenario, "--json").json()
        assert sum(report["parts"].values()) == report["device_bytes"]
        assert report["problem"] == "" and report["remedies"] == []


def test_json_has_the_integers_of_the_library(command: Command) -> None:
    report = command("memory", DEEPSEEK, "--tokens", "4096", "--tokens", "99", "--json").json()
    kernel = pykernel.open(DEEPSEEK)
    room = kernel.kv_capacity()
    assert report["fixed_bytes"]["total"] == kernel.fixed_bytes().total
    assert report["pre_snapshot_bytes"] == kernel.pre_snapshot_bytes()
    assert report["capacity"]["blocks"] == room.blocks
    assert [(request["tokens"], request["bytes"], request["fit"]) for request in report["requests"]] == [
        (tokens, kernel.sequence_variable_bytes(tokens), room.sequences(tokens)) for tokens in (4096, 99)
    ]


def test_the_longest_request_is_asked_for_where_none_is(command: Command) -> None:
    report = command("memory", DEEPSEEK, "--json").json()
    assert [request["tokens"] for request in report["requests"]] == [32_768]


def test_the_other_cost_model_and_the_other_pool(command: Command) -> None:
    older = command("memory", DEEPSEEK, "--model", "blis-reference", "--json").json()
    assert f"{older['fixed_bytes']['total'] / 2**30:.1f}" == "83.9" and older["pre_snapshot_bytes"] == 0
    pools = [
        command("memory", "minimax-m2.5-h200-disagg", "--pool", str(pool), "--json").json()["pool"]["role"]
        for pool in (0, 1)
    ]
    assert pools == ["prefill", "decode"]


def test_a_model_that_does_not_fit_is_told_with_what_would(
    command: Command, scenario: Callable[[str], str], tmp_path: Path
) -> None:
    Path("small.yaml").write_text(scenario(DEEPSEEK).replace("tp: 8", "tp: 4"), encoding="utf-8")
    done = command("memory", "small.yaml", "--tokens", "4096")
    assert done.code == 0
    assert re.search(r"^no room +the model does not fit: 158\.3 GiB", done.out, re.MULTILINE)
    offered = re.findall(r"^would fit +(\S+) = (\S+), not (\S+): \d+ requests then$", done.out, re.MULTILINE)
    assert offered == [("deployment.pools[0].parallel.tp", "8", "4"), ("scenario.cluster.hardware", "b200", "h200")]


def test_a_request_that_does_not_fit_is_told_with_what_would(command: Command) -> None:
    done = command("memory", "llama-3.1-8b-l40s-fp8-tp1", "--tokens", "600000")
    assert re.search(r"^request +of 600,000 tokens: [\d,.]+ MiB, 0 fit at once$", done.out, re.MULTILINE)
    assert re.search(r"^would fit +deployment\.pools\[0\]\.parallel\.tp = 2, not 1", done.out, re.MULTILINE)
    hopeless = command("memory", DEEPSEEK, "--tokens", "2147483647")
    assert re.search(r"^would fit +no wider tp, fp8 cache or larger part", hopeless.out, re.MULTILINE)


def test_a_budget_that_leaves_too_little_outside_is_told(command: Command, scenario: Callable[[str], str]) -> None:
    text = scenario(DEEPSEEK).replace("gpu_memory_utilization: 0.9", "gpu_memory_utilization: 0.99")
    Path("full.yaml").write_text(text, encoding="utf-8")
    assert re.search(r"^no start +3\.9 GiB held before the budget", command("memory", "full.yaml").out, re.MULTILINE)


def test_bounded_bytes_have_a_line_where_there_are_any(command: Command) -> None:
    assert "bounded" not in command("memory", DEEPSEEK).out


@pytest.mark.parametrize(("name", "start"), [("gpu.png", b"\x89PNG"), ("gpu.svg", b"<?xml"), ("gpu.pdf", b"%PDF")])
def test_the_picture_is_drawn(command: Command, name: str, start: bytes) -> None:
    assert command("memory", DEEPSEEK, "--plot", name).code == 0
    drawn = Path(name).read_bytes()
    assert drawn.startswith(start) and len(drawn) > 5_000


def test_a_picture_that_cannot_be_drawn_is_a_mistake_of_the_command_line(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("memory", DEEPSEEK, "--plot", "gpu.txt").fails(2, "gpu.txt", ".png")
    command("memory", DEEPSEEK, "--plot", "nowhere/gpu.png").fails(2, "nowhere/gpu.png", "cannot be written")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    command("memory", DEEPSEEK, "--plot", "gpu.png").fails(2, "matplotlib", "pykernel-llm[plot]")


@pytest.mark.parametrize("tokens", ["0", "-1", "many"])
def test_a_length_is_at_least_one_token(command: Command, tokens: str) -> None:
    command("memory", DEEPSEEK, f"--tokens={tokens}").fails(2, "--tokens", "from 1")


def test_a_refused_deployment_is_told_by_file_and_line(command: Command, scenario: Callable[[str], str]) -> None:
    Path("mine.yaml").write_text(scenario(DEEPSEEK).replace("tp: 8", "tp: 3"), encoding="utf-8")
    command("memory", "mine.yaml").fails(1, "mine.yaml:", "deployment.pools[0].parallel.tp")
