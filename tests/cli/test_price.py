"""`pykernel price`: figures, notation, batch files, the report's shape, and who is told to be at fault."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel.cli.subject import evidence_line
from pykernel.cli.text import milliseconds

Command = Callable[..., Any]

DEEPSEEK = "deepseek-v3-h200-fp8-tp8"
LLAMA = "llama-3.1-8b-h100-tp1"


def price_ns(scenario: str, *requests: tuple[int, int], **settings: int) -> int:
    """The same price through the library; requests as (scheduled, computed)."""
    batch = pykernel.Batch([pykernel.Request(new, old, new + old) for new, old in requests], **settings)
    return pykernel.open(scenario).step_time(batch).no_overlap_ns


# ---- figures ---------------------------------------------------------------------------------------------------


def test_published_example_prints_its_published_digits(command: Command) -> None:
    # Worked example in the documentation of inference-sim/blis-latency-kernel.
    done = command("price", DEEPSEEK, "--decode", "32x4096")
    figures = dict(re.findall(r"^(overlap|no overlap|sm|hbm|nvlink|host) +(\d+\.\d) ms", done.out, re.MULTILINE))
    assert figures == {
        "overlap": "24.1", "no overlap": "25.7", "sm": "4.5", "hbm": "16.5", "nvlink": "1.2", "host": "3.5",
    }  # fmt: skip
    assert re.search(r"^bottleneck +hbm$", done.out, re.MULTILINE)
    assert (done.code, done.err) == (0, "")


def test_json_has_the_integers_of_the_library(command: Command) -> None:
    estimate = command("price", DEEPSEEK, "--decode", "32x4096", "--json").json()["estimate"]
    kernel = pykernel.open(DEEPSEEK)
    expected = kernel.step_time(pykernel.Batch([pykernel.Request(1, 4095, 4096)] * 32))
    assert estimate["overlap_ns"] == expected.overlap_ns
    assert estimate["no_overlap_ns"] == expected.no_overlap_ns == sum(estimate["per_resource_ns"].values())
    assert {name: ns for name, ns in estimate["per_resource_ns"].items() if ns} == expected.per_resource_ns


@pytest.mark.parametrize(
    "ns, shown",
    [
        (0, "0.0"),
        (4_464_780, "4.5"),
        (24_148_180, "24.1"),
        (1_234_567_890, "1,234.6"),
        (950_000, "0.95"),
        (99_900, "0.100"),
        (7_000, "0.0070"),
        (1, "0.000001"),
    ],
)
def test_durations_keep_two_digits(ns: int, shown: str) -> None:
    assert milliseconds(ns) == shown


def test_other_cost_models_are_named(command: Command) -> None:
    newest, older = (
        command("price", DEEPSEEK, "--decode", "32x4096", "--json", "--model", model).json()
        for model in ("blis", "blis-reference")
    )
    assert older["cost_model"] == "blis-reference"
    assert older["estimate"]["no_overlap_ns"] < newest["estimate"]["no_overlap_ns"]
    command("price", DEEPSEEK, "--decode", "1x1", "--model", "bliss").fails(2, "'bliss'", "did you mean blis")


# ---- notation --------------------------------------------------------------------------------------------------


def test_options_add_up_to_a_mixed_batch(command: Command) -> None:
    done = command(
        "price",
        LLAMA,
        "--decode",
        "2x100",
        "--prefill",
        "1x2048+8192",
        "--decode",
        "1x7",
        "--prefill",
        "1x16",
        "--json",
    )
    assert done.json()["estimate"]["no_overlap_ns"] == price_ns(LLAMA, (1, 99), (1, 99), (1, 6), (2048, 8192), (16, 0))
    assert done.json()["batch"]["requests"] == 5
    assert done.json()["batch"]["tokens"] == 2 + 1 + 2048 + 16


def test_batch_line_tells_decodes_from_prefills(command: Command) -> None:
    done = command("price", LLAMA, "--decode", "2x1000", "--decode", "1x70", "--prefill", "1x2048+8192")
    assert "batch       2 decodes" not in done.out
    assert re.search(
        r"^batch +3 decodes at context 70 to 1,000 and 1 prefill of 2,048 tokens after 8,192 computed$",
        done.out,
        re.MULTILINE,
    )


def test_decode_of_several_tokens_is_noted_as_the_prefill_it_is(command: Command) -> None:
    done = command("price", LLAMA, "--decode", "8x512x4", "--json").json()
    assert done["estimate"]["no_overlap_ns"] == price_ns(LLAMA, *[(4, 508)] * 8)
    assert done["batch"]["prefills"]["requests"] == 8
    [note] = done["notes"]
    assert "--decode 8x512x4 is priced as prefill" in note and "threshold of 1" in note


def test_prefill_of_one_token_is_noted_as_the_decode_it_is(command: Command) -> None:
    done = command("price", LLAMA, "--prefill", "3x1+99")
    assert "3 decodes at context 100" in done.out
    assert re.search(r"^note +--prefill 3x1\+99 is priced as decode", done.out, re.MULTILINE)


def test_decode_schedules_as_many_tokens_as_speculation_verifies(
    command: Command, scenario: Callable[[str], str]
) -> None:
    speculating = scenario(LLAMA) + "      speculative: {method: ngram, num_spec_tokens: 3}\n"
    Path("speculating.yaml").write_text(speculating, encoding="utf-8")
    batch = command("price", "speculating.yaml", "--decode", "8x512", "--json").json()["batch"]
    assert batch["decode_threshold"] == 4
    assert batch["decodes"] == {"requests": 8, "tokens_each": [4, 4], "context": [512, 512]}
    command("price", "speculating.yaml", "--decode", "8x3").fails(1, "--decode 8x3", "the 4 tokens")


@pytest.mark.parametrize(
    "option, text",
    [
        ("--decode", "32"),
        ("--decode", "32x"),
        ("--decode", "0x4096"),
        ("--decode", "32x0"),
        ("--decode", "-1x10"),
        ("--decode", "1.5x10"),
        ("--decode", "32x4096+1"),
        ("--decode", "4x2x3"),
        ("--decode", "4x2x0"),
        ("--decode", "2x9999999999"),
        ("--decode", "1000001x10"),
        ("--decode", "\u0663x10"),
        ("--prefill", "2x0"),
        ("--prefill", "2x10x3"),
        ("--prefill", "2x10+"),
        ("--pool", "-1"),
        ("--pool", "one"),
        ("--pad-tokens", "1_000"),
        ("--sm-budget", "99999999999"),
    ],
)
def test_malformed_notation_is_a_usage_error(command: Command, option: str, text: str) -> None:
    command("price", LLAMA, f"{option}={text}").fails(2, option, repr(text))


def test_batch_is_required_and_stated_once(command: Command) -> None:
    command("price", LLAMA).fails(2, "the batch is missing", "--decode")
    command("price", LLAMA, "--decode", "1x1", "--batch", "x.json").fails(2, "--batch")


def test_budget_and_padding_reach_the_price(command: Command) -> None:
    plain, few = (
        command("price", LLAMA, "--prefill", "1x4096", "--json", *more).json() for more in ([], ["--sm-budget", "66"])
    )
    assert few["estimate"]["per_resource_ns"]["sm"] > 1.5 * plain["estimate"]["per_resource_ns"]["sm"]
    padded = command("price", LLAMA, "--decode", "8x512", "--pad-tokens", "5", "--json").json()
    assert padded["batch"]["padded_tokens"] == 13
    assert padded["estimate"]["no_overlap_ns"] == price_ns(LLAMA, *[(1, 511)] * 8, pad_tokens=5)


# ---- batch files -----------------------------------------------------------------------------------------------

BATCH = {
    "requests": [
        {"scheduled": 1, "computed": 99},
        {"scheduled": 4, "computed": 100, "prompt_len": 64, "cached_tokens": 32},
    ],
    "decode_threshold": 4,
    "sm_budget": 66,
    "pad_tokens": 3,
}


def test_batch_file_prices_as_the_library_does(command: Command) -> None:
    Path("batch.json").write_text(json.dumps(BATCH), encoding="utf-8")
    done = command("price", LLAMA, "--batch", "batch.json", "--json").json()
    expected = price_ns(LLAMA, (1, 99), (4, 100), decode_threshold=4, sm_budget=66, pad_tokens=3)
    assert done["estimate"]["no_overlap_ns"] == expected
    assert done["batch"]["decodes"]["requests"] == 2


def test_batch_comes_from_standard_input_too(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(BATCH).encode())))
    assert command("price", LLAMA, "--batch", "-", "--json").json()["batch"]["requests"] == 2


def test_options_override_the_settings_of_the_file(command: Command) -> None:
    Path("batch.json").write_text(json.dumps(BATCH), encoding="utf-8")
    done = command("price", LLAMA, "--batch", "batch.json", "--pad-tokens", "0", "--json").json()
    assert (done["batch"]["pad_tokens"], done["batch"]["sm_budget"]) == (0, 66)


def test_step_of_an_idle_engine_has_a_price(command: Command) -> None:
    Path("batch.json").write_text('{"requests": []}', encoding="utf-8")
    done = command("price", LLAMA, "--batch", "batch.json")
    assert done.code == 0 and "no requests" in done.out


@pytest.mark.parametrize(
    "content, words",
    [
        ("", ["batch.json:1", "no JSON"]),
        ('{"requests": [\n{"scheduled": 1,}]}', ["batch.json:2", "no JSON"]),
        ("[]", ["batch.json", "a list", "an object"]),
        ("{}", ["requests: missing"]),
        ('{"requests": {}}', ["requests: found an object"]),
        ('{"requests": [], "request": []}', ["request: no such field", "did you mean requests"]),
        ('{"requests": [1]}', ["requests[0]: found 1"]),
        ('{"requests": [{"scheduled": 1, "computed": 1}, {"scheduled": 1}]}', ["requests[1].computed: missing"]),
        ('{"requests": [{"scheduled": 1, "computed": 1, "prompt_length": 1}]}', ["prompt_length", "prompt_len"]),
        ('{"requests": [{"scheduled": 1.5, "computed": 1}]}', ["requests[0].scheduled: found 1.5"]),
        ('{"requests": [{"scheduled": true, "computed": 1}]}', ["requests[0].scheduled: found true"]),
        ('{"requests": [{"scheduled": "1", "computed": 1}]}', ['requests[0].scheduled: found "1"']),
        ('{"requests": [{"scheduled": 1, "computed": -1}]}', ["requests[0].computed: found -1"]),
        ('{"requests": [{"scheduled": 1, "computed": null}]}', ["requests[0].computed: found null"]),
        ('{"requests": [{"scheduled": 1, "computed": 2000000000}]}', ["requests[0].computed", "2000000000"]),
        ('{"requests": [{"scheduled": 1, "computed": %s}]}' % ("9" * 5000), ["requests[0].computed"]),
        ('{"requests": [{"scheduled": 1, "scheduled": 2, "computed": 1}]}', ["scheduled: stated twice"]),
        ('{"requests": [], "pad_tokens": -1}', ["pad_tokens: found -1"]),
        ("[" * 100_000, ["batch.json"]),
        (b"\xff\xfe\x00", ["no UTF-8"]),
    ],
)
def test_batch_file_at_fault_is_named_with_its_field(command: Command, content: str | bytes, words: list[str]) -> None:
    Path("batch.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    command("price", LLAMA, "--batch", "batch.json").fails(1, "batch.json", *words)


def test_batch_file_that_cannot_be_read_is_named(command: Command) -> None:
    command("price", LLAMA, "--batch", "none.json").fails(1, "none.json", "no such file")
    command("price", LLAMA, "--batch", ".").fails(1, ".", "directory")


# ---- the report ------------------------------------------------------------------------------------------------


def test_json_keys_are_stable(command: Command) -> None:
    report = command("price", "minimax-m2.5-b200-fp4-tp2-ep4-dp2", "--decode", "1x10", "--json").json()
    assert list(report) == [
        "pykernel", "cost_model", "scenario", "file", "engine_version", "pool", "model", "cluster", "resolution",
        "batch", "launch", "estimate", "evidence", "assumptions", "overrides", "warnings", "notes",
    ]  # fmt: skip
    assert {name: list(part) for name, part in report.items() if isinstance(part, dict)} == {
        "pool": ["index", "of", "role"],
        "model": ["name", "weights", "kv_cache"],
        "cluster": ["chip", "fabric", "nodes", "gpus_per_node"],
        "resolution": [
            "tensor_parallel", "data_parallel", "expert_parallel", "prefill_context_parallel",
            "decode_context_parallel", "all_reduce_backend", "async_scheduling", "cascade_attention",
            "sequence_parallel_moe",
        ],
        "batch": [
            "requests", "tokens", "padded_tokens", "decodes", "prefills", "decode_threshold", "sm_budget", "pad_tokens",
        ],
        "launch": ["graph_mode", "configured_mode", "uniform_decode", "capture_tokens"],
        "estimate": ["overlap_ns", "no_overlap_ns", "bottleneck", "per_resource_ns"],
        "evidence": ["measured", "total", "methods", "assumed_by_set", "assumed"],
    }  # fmt: skip
    assert list(report["estimate"]["per_resource_ns"]) == list(pykernel.RESOURCES)
    assert list(report["assumptions"][0]) == ["name", "value", "reason"]
    assert list(report["warnings"][0]) == ["severity", "path", "message", "file", "line", "rule"]


@pytest.mark.parametrize(
    "scenario_name, batch, launch",
    [
        (LLAMA, ["--decode", "8x512"], "FULL graph, captured for up to 512 tokens"),
        (LLAMA, ["--decode", "8x512", "--prefill", "1x100"], "PIECEWISE graph"),
        (LLAMA, ["--decode", "513x512"], "eager: 513 tokens, where the widest captured graph takes 512 tokens"),
        (LLAMA, ["--decode", "512x512", "--pad-tokens", "1"], "eager: 513 tokens"),
        ("qwen3-30b-a3b-h200-dp4", ["--prefill", "1x100"], "no graph for a batch that is no uniform decode"),
    ],
)
def test_launch_line_tells_the_graph_that_runs(
    command: Command, scenario_name: str, batch: list[str], launch: str
) -> None:
    assert re.search(rf"^launch .*{re.escape(launch)}", command("price", scenario_name, *batch).out, re.MULTILINE)


def test_engine_without_graphs_launches_eagerly(command: Command, scenario: Callable[[str], str]) -> None:
    Path("eager.yaml").write_text(scenario(DEEPSEEK).replace("PIECEWISE", "NONE"), encoding="utf-8")
    done = command("price", "eager.yaml", "--decode", "8x512")
    assert "eager: the engine captures no graph for a uniform decode" in done.out


def test_page_shows_assumptions_overrides_and_warnings(command: Command) -> None:
    kernel = pykernel.open(LLAMA)
    page = " ".join(command("price", LLAMA, "--decode", "1x10").out.split())
    own = [origin for origin in kernel.provenance() if origin.set == pykernel.KERNEL_ASSUMPTION_SET]
    for origin in own:
        assert f"assumption {origin.name} = {origin.scope}" in page
    [override] = kernel.resolved().overrides
    assert f"override allreduce_backend = nccl, not custom: {override.reason}" in page
    evidence = kernel.evidence()
    assert f"evidence {evidence.measured} of {evidence.total} entries" in page


def test_warning_of_the_rules_takes_one_line_and_is_whole_in_the_json(command: Command) -> None:
    arguments = ("price", "gpt-oss-120b-h100-fp4-tp2", "--decode", "1x10")
    shown = re.findall(r"^warning +(.*)$", command(*arguments).out, re.MULTILINE)
    [warning] = command(*arguments, "--json").json()["warnings"]
    whole = f"{warning['path']}: {warning['message']}"
    assert len(shown) == 1 and shown[0].endswith(" ...")
    assert whole.startswith(shown[0].removesuffix(" ...")) and "modelopt_fp4" in whole
    assert command(*arguments).out.rstrip().splitlines()[-1].startswith("warning")


def test_page_is_at_most_100_columns_wide(command: Command) -> None:
    for name in ("minimax-m2.5-h200-disagg", "gpt-oss-120b-h100-fp4-tp2", "minimax-m2.5-h200-ep16"):
        done = command("price", name, "--decode", "32x4096", "--prefill", "2x2048+8192", "--prefill", "1x1")
        assert done.code == 0
        assert max(map(len, done.out.splitlines())) <= 100


def test_pool_selects_the_pool(command: Command) -> None:
    name = "minimax-m2.5-h200-disagg"
    assert "pool 0 of 2, prefill" in command("price", name, "--decode", "1x10").out
    second = command("price", name, "--decode", "1x10", "--pool", "1")
    assert "pool 1 of 2, decode" in second.out and "tp 4 dp 2" in second.out
    command("price", name, "--decode", "1x10", "--pool", "2").fails(2, "pool index 2", "0 to 1")


# ---- documents at fault ----------------------------------------------------------------------------------------


def test_wrong_scenario_name_suggests_the_nearest(command: Command) -> None:
    command("price", "deepseek-v3-h200-tp8", "--decode", "1x10").fails(1, "'deepseek-v3-h200-tp8'", f"mean {DEEPSEEK}")


def test_every_problem_of_a_document_has_a_line(command: Command, scenario: Callable[[str], str]) -> None:
    text = (
        scenario(DEEPSEEK).replace("block_size: 16", "block_size: sixteen").replace("max_num_seqs: 256", "max_seqs: 1")
    )
    Path("bad.yaml").write_text(text, encoding="utf-8")
    done = command("price", "bad.yaml", "--decode", "1x10")
    lines = {word: text[: text.index(word)].count("\n") + 1 for word in ("sixteen", "max_seqs")}
    assert (done.code, done.out) == (1, "")
    first, second = done.err.splitlines()
    assert first.startswith(f"pykernel: error: bad.yaml:{lines['sixteen']}: deployment.pools[0].engine.block_size: ")
    assert second.startswith(f"pykernel: error: bad.yaml:{lines['max_seqs']}: deployment.pools[0].engine.max_seqs: ")


@pytest.mark.parametrize(
    "before, after, field",
    [
        ("tp: 8, pp: 1", "tp: 4, pp: 2", "deployment.pools[0].parallel.pp: pp is 2"),
        ("tp: 8, pp: 1", "tp: 3, pp: 1", "deployment.pools[0].parallel.tp: tp is 3"),
        ("quantization: fp8", "quantization: torchao", "deployment.pools[0].engine.quantization: "),
    ],
)
def test_refusal_names_file_line_and_field(
    command: Command, scenario: Callable[[str], str], before: str, after: str, field: str
) -> None:
    text = scenario(DEEPSEEK)
    Path("mine.yaml").write_text(text.replace(before, after), encoding="utf-8")
    line = text[: text.index(before)].count("\n") + 1
    command("price", "mine.yaml", "--decode", "1x10").fails(1, f"error: mine.yaml:{line}: {field}")


# ---- other roots -----------------------------------------------------------------------------------------------


def test_roots_come_from_options_before_the_environment(
    command: Command, scenario: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder, dtype in (("one", "fp8"), ("two", "bfloat16")):
        (tmp_path / folder).mkdir()
        text = scenario(DEEPSEEK).replace("cache_dtype: fp8", f"cache_dtype: {dtype}")
        (tmp_path / folder / "mine.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("BLIS_SCENARIOS", "one")
    assert command("price", "mine", "--decode", "1x10", "--json").json()["model"]["kv_cache"] == "fp8"
    chosen = command("price", "mine", "--decode", "1x10", "--json", "--scenarios", "two").json()
    assert chosen["model"]["kv_cache"] == "bfloat16"


def test_root_that_is_no_folder_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("price", LLAMA, "--decode", "1x10", "--catalog", "nowhere").fails(2, "--catalog", "'nowhere'")
    monkeypatch.setenv("BLIS_REGISTRY", "nowhere")
    command("price", LLAMA, "--decode", "1x10").fails(2, "BLIS_REGISTRY", "'nowhere'")


def test_a_model_without_coefficients_says_so() -> None:
    assert evidence_line({"measured": 0, "total": 0, "methods": {}}) == "no coefficient is named"
