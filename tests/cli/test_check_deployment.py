"""`pykernel check-deployment`: what is asked and what runs, and every refusal at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pykernel

Command = Callable[..., Any]
Text = Callable[[str], str]

DEEPSEEK = "deepseek-v3-h200-fp8-tp8"
CONFIGS = Path(__file__).resolve().parents[2] / "testdata" / "configs"


def report(done: Any, code: int) -> Any:
    assert (done.code, done.err) == (code, "")
    return json.loads(done.out)


def test_an_accepted_deployment_shows_what_runs(command: Command) -> None:
    found = report(command("check-deployment", DEEPSEEK, "--json"), 0)
    kernel = pykernel.open(DEEPSEEK)
    (pool,) = found["pools"]
    assert found["accepted"] and pool["accepted"] and pool["refusals"] == []
    assert pool["asked"]["tp"] == 8 and pool["asked"]["cudagraph_mode"] == "PIECEWISE"
    assert "async_scheduling" not in pool["asked"]
    runs = pool["runs"]
    assert runs["all_reduce_backend"] == kernel.resolved().all_reduce_backend
    assert (runs["capture_tokens"], runs["decode_threshold"]) == (kernel.capture_tokens(), kernel.decode_threshold())
    assert runs["groups"]["tensor"] == {"width": 8, "stride": 1, "per_node": 8, "crosses_nodes": False}
    evidence = pool["evidence"]
    assert (evidence["measured"], evidence["total"], len(evidence["assumed"])) == (110, 149, 38)
    assert [entry["name"] for entry in pool["assumptions"]] == ["max_cudagraph_capture_size", "engine_version"]
    assert {"name": "enable_prefix_caching", "value": "true", "reason": "not stated; the engine's default"} in (
        pool["defaults"]
    )


def test_the_page_says_the_same_in_words(command: Command) -> None:
    done = command("check-deployment", DEEPSEEK)
    assert done.code == 0
    for words in (
        "pool 0      colocated, 1 node: accepted",
        "110 of 149 entries",
        "assumption  engine_version = 0.31.0",
        "decode_threshold",
        "group       tensor: 8 ranks",
        "default     enable_prefix_caching true",
    ):
        assert words in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_a_finding_is_shown_to_its_end(command: Command, scenario: Text) -> None:
    Path("odd.yaml").write_text(scenario(DEEPSEEK).replace("quantization: fp8", "quantization: q9"), encoding="utf-8")
    done = command("check-deployment", "odd.yaml")
    (finding,) = report(command("check-deployment", "odd.yaml", "--json"), 1)["problems"]
    assert finding["message"] in " ".join(done.out.split())


FAULTS = {
    "quantization: fp8": "quantization: fp8_per_block",
    "cache_dtype: fp8": "cache_dtype: fp8_inc",
    "cudagraph_mode: PIECEWISE": "cudagraph_mode: SOMETIMES",
    "tp: 8": "tp: 3",
}


def faulty(scenario: Text) -> str:
    text = scenario(DEEPSEEK)
    for stated, fault in FAULTS.items():
        assert text.count(stated) == 1, stated
        text = text.replace(stated, fault)
    return text


def test_every_refusal_is_shown_at_once_with_its_place(command: Command, scenario: Text) -> None:
    text = faulty(scenario)
    Path("faulty.yaml").write_text(text, encoding="utf-8")
    found = report(command("check-deployment", "faulty.yaml", "--json"), 1)
    (pool,) = found["pools"]
    assert not found["accepted"] and not pool["accepted"] and "runs" not in pool
    assert [refusal["rule"] for refusal in pool["refusals"]] == [
        *("quantization-unknown", "cache-inc", "query-heads", "collective-width", "graph-mode")
    ]
    lines = text.splitlines()
    for refusal, fault in zip(pool["refusals"], ["fp8_per_block", "fp8_inc", "tp: 3"], strict=False):
        assert fault in lines[refusal["line"] - 1] and refusal["file"] == "faulty.yaml"
        assert refusal["path"].startswith("deployment.pools[0].")


def test_the_page_of_a_refused_deployment_names_rules_and_lines(command: Command, scenario: Text) -> None:
    Path("faulty.yaml").write_text(faulty(scenario), encoding="utf-8")
    done = command("check-deployment", "faulty.yaml")
    assert (done.code, done.err) == (1, "")
    out = " ".join(done.out.split())
    assert "refused for 5 reasons" in out
    for words in ("[quantization-unknown] (faulty.yaml:", "[query-heads]", "widths that do: 1, 2, 4, 8"):
        assert words in out


def test_every_pool_is_checked_unless_one_is_named(command: Command) -> None:
    name = "minimax-m2.5-h200-disagg"
    pools = report(command("check-deployment", name, "--json"), 0)["pools"]
    assert [(pool["index"], pool["role"]) for pool in pools] == [(0, "prefill"), (1, "decode")]
    assert report(command("check-deployment", name, "--pool", "1", "--json"), 0)["pools"] == [pools[1]]
    command("check-deployment", name, "--pool", "2").fails(2, "2")


def test_documents_at_fault_are_reported_all_at_once_too(command: Command, scenario: Text) -> None:
    text = scenario(DEEPSEEK).replace("tp: 8", "tp: 0").replace("cache_dtype: fp8", "cache_dtipe: fp8")
    Path("bad.yaml").write_text(text, encoding="utf-8")
    done = command("check-deployment", "bad.yaml")
    assert (done.code, done.out) == (1, "") and "cache_dtipe" in done.err
    found = report(command("check-deployment", "bad.yaml", "--json"), 1)
    assert not found["accepted"] and found["pools"] == []
    assert any("cache_dtipe" in problem["message"] + problem["path"] for problem in found["problems"])


def test_remarks_of_the_release_are_shown(command: Command, scenario: Text) -> None:
    text = scenario(DEEPSEEK).replace("quantization: fp8", "quantization: nvfp4")
    Path("remark.yaml").write_text(text, encoding="utf-8")
    found = report(command("check-deployment", "remark.yaml", "--json"), 0)
    assert [problem["rule"] for problem in found["problems"]] == ["quantization-known"]


def test_a_scenario_of_the_encoded_release_assumes_no_version(command: Command, scenario: Text) -> None:
    Path("new.yaml").write_text(scenario(DEEPSEEK).replace('"0.29.0"', '"0.31.0"'), encoding="utf-8")
    (pool,) = report(command("check-deployment", "new.yaml", "--json"), 0)["pools"]
    assert [entry["name"] for entry in pool["assumptions"]] == ["max_cudagraph_capture_size"]
    assert pool["evidence"]["total"] == 148


def test_a_deployment_that_does_not_fit_is_accepted_with_what_would_fit(command: Command, scenario: Text) -> None:
    text = scenario("llama-3.1-70b-h100-fp8-tp4").replace("tp: 4", "tp: 1").replace("quantization: fp8", "")
    Path("large.yaml").write_text(text, encoding="utf-8")
    (pool,) = report(command("check-deployment", "large.yaml", "--json"), 0)["pools"]
    assert not pool["memory"]["fits"] and pool["memory"]["problem"]
    wider = [remedy for remedy in pool["memory"]["remedies"] if remedy["field"].endswith("tp")]
    assert [remedy["value"] for remedy in wider] == ["2"]
    page = " ".join(command("check-deployment", "large.yaml").out.split())
    assert "would fit" in page and "accepted" in page


def test_a_model_is_checked_straight_from_its_config(command: Command) -> None:
    config = str(CONFIGS / "qwen3-32b" / "config.json")
    accepted = json.loads(command("check-deployment", "--config", config, "--chip", "h100", "--tp", "2", "--json").out)
    assert accepted["accepted"] and accepted["model"] == "qwen3-32b"
    refused = command("check-deployment", "--config", config, "--chip", "h100", "--tp", "3", "--json")
    [pool] = json.loads(refused.out)["pools"]
    assert refused.code == 1
    assert [problem["rule"] for problem in pool["refusals"]] == ["query-heads", "collective-width"]


def test_a_check_needs_one_subject(command: Command) -> None:
    command("check-deployment").fails(2, "name a SCENARIO", "--config")
