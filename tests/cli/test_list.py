"""`pykernel list`: a line for every document, also for one that cannot be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel import documents

Command = Callable[..., Any]

DATA = Path(pykernel.__file__).parent / "data"
SECTIONS = ["scenarios", "models", "chips", "fabrics", "storage", "coefficients"]
NAMES = {
    "scenarios": documents.list_scenarios,
    "models": documents.list_models,
    "chips": documents.list_chips,
    "fabrics": documents.list_fabrics,
    "storage": documents.list_storage,
    "coefficients": documents.list_coefficient_sets,
}


@pytest.mark.parametrize("section", SECTIONS)
def test_section_has_one_line_for_each_document(command: Command, section: str) -> None:
    done = command("list", section)
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == NAMES[section]()
    assert max(map(len, done.out.splitlines())) <= 100


def test_without_a_section_everything_is_listed_under_headings(command: Command) -> None:
    done = command("list")
    assert [line for line in done.out.splitlines() if line and not line.startswith(" ")] == SECTIONS
    for section in SECTIONS:
        assert f"\n  {NAMES[section]()[0]} " in done.out


def test_lines_say_what_a_document_is(command: Command) -> None:
    listed = " ".join(command("list").out.split())
    for said in (
        "minimax-m2.5-h200-disagg minimax-m2.5 h200 prefill tp 8; decode tp 4 dp 2",
        "minimax-m2.5-h200-ep16 minimax-m2.5 h200 tp 8 dp 2 ep",
        "deepseek-v3 61 layers fp8 mla 256 experts, 8 a token",
        "llama-3.1-70b-instruct 80 layers bf16 gqa dense",
        "nemotron-3.5-lightning-nvfp4-b200-tp1 nemotron-3.5-light.. b200 tp 1",
        "h200 141 GiB 4.8 TB/s links 450 GB/s TFLOP/s 989.5 16-bit, 1,979 fp8",
        "ib-400g 50 GB/s a GPU RDMA",
        "nvme_gen4 reads 7,000 MB/s writes 5,000 MB/s from 80 us",
        "cost-model-host-overheads 7 entries 7 assumed",
    ):
        assert said in listed


def test_json_has_facts_with_stable_keys(command: Command) -> None:
    found = command("list", "--json").json()
    assert list(found) == SECTIONS
    assert {name: list(entries[0]) for name, entries in found.items()} == {
        "scenarios": ["name", "plugin", "model", "chip", "fabric", "nodes", "engine_version", "pools"],
        "models": ["name", "plugin", "layers", "hidden_size", "weight_dtype", "attention", "experts", "top_k"],
        "chips": [
            "name", "plugin", "memory_gib", "bandwidth_tb_s", "tflops_16bit", "tflops_fp8", "tflops_nvfp4",
            "link_gb_s", "sm_count",
        ],
        "fabrics": ["name", "plugin", "link_gb_s", "rdma"],
        "storage": ["name", "plugin", "read_mb_s", "write_mb_s", "latency_us"],
        "coefficients": ["name", "plugin", "entries", "methods"],
    }  # fmt: skip
    release = [entry for entry in found["coefficients"] if entry["name"].startswith("cost-model-")]
    assert sum(entry["entries"] for entry in release) == 1121
    assert list(command("list", "chips", "--json").json()) == ["chips"]


def test_broken_documents_are_listed_with_their_error(command: Command, tmp_path: Path) -> None:
    shutil.copytree(DATA / "catalog", tmp_path / "catalog")
    shutil.copytree(DATA / "scenarios", tmp_path / "scenarios")
    (tmp_path / "catalog/hardware/aaa.yaml").write_text("BwPeakTBs: fast\n", encoding="utf-8")
    (tmp_path / "catalog/devices/storage.yaml").write_text("tape: {read_bandwidth_mb_s: 1}\n", encoding="utf-8")
    (tmp_path / "scenarios/deepseek-v3-h200-fp8-tp8.yaml").write_bytes(b"kind: \xff\n")
    (tmp_path / "catalog/models/other").mkdir()
    shutil.copy(tmp_path / "catalog/models/deepseek-v3/graph.yaml", tmp_path / "catalog/models/other")
    done = command("list", "--catalog", "catalog", "--scenarios", "scenarios")
    assert (done.code, done.err) == (0, "")
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("  ")}
    assert "error: catalog/hardware/aaa.yaml:1: chip." in lines["aaa"] and "more)" in lines["aaa"]
    assert "error: scenarios/deepseek-v3-h200-fp8-tp8.yaml" in lines["deepseek-v3-h200-fp8-tp8"]
    assert "error: catalog/models/other/graph.yaml" in lines["other"]
    assert "error: catalog/devices/storage.yaml:1: device:tape" in lines["storage.yaml"]
    assert "141 GiB" in lines["h200"] and "tp 4" in lines["deepseek-v3-b200-fp4-tp4"]
    entries = {
        entry["name"]: entry for entry in command("list", "chips", "--catalog", "catalog", "--json").json()["chips"]
    }
    assert list(entries["aaa"]) == ["name", "plugin", "error"] and "error" not in entries["h200"]


def test_empty_root_says_where_it_looked(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert command("list", "scenarios", "--scenarios", "empty").out == "none under empty\n"


def test_scenarios_in_folders_are_listed_as_they_are_opened(command: Command, tmp_path: Path) -> None:
    (tmp_path / "own/sub").mkdir(parents=True)
    shutil.copy(DATA / "scenarios" / "llama-3.1-8b-h100-tp1.yaml", tmp_path / "own/sub/mine.yaml")
    assert command("list", "scenarios", "--scenarios", "own").out.split()[0] == "sub/mine"
    assert command("price", "sub/mine", "--scenarios", "own", "--decode", "1x10").code == 0


def test_unknown_section_suggests_the_nearest(command: Command) -> None:
    command("list", "chip").fails(2, "'chip'", "did you mean chips", "fabrics")
