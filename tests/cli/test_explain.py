"""`pykernel price --explain`: the terms of a step on the page and in the JSON, and that both add up to the price."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel

Command = Callable[..., Any]

DEEPSEEK, EP16 = "deepseek-v3-h200-fp8-tp8", "minimax-m2.5-h200-ep16"
MIXED = ("--decode", "32x4096", "--prefill", "1x512+64")
TERM = re.compile(r"^  (\S.*?) {2,}(\w+) +([\d,]+\.\d) us +([\d,]+\.\d) us +((?:\[\d+\] ?)+)$")
COEFFICIENT = re.compile(r"^ +\[(\d+)\] (\w+), (\w+), ([\w-]+)$")


def microseconds(shown: str) -> float:
    return float(shown.replace(",", ""))


def explained(page: str) -> list[str]:
    """The lines of the page from the terms on."""
    lines = page.splitlines()
    return lines[next(index for index, line in enumerate(lines) if line.startswith("terms ")) :]


def test_the_page_without_terms_is_the_head_of_the_page_with_them(command: Command) -> None:
    plain, with_terms = command("price", DEEPSEEK, *MIXED).out, command("price", DEEPSEEK, *MIXED, "--explain").out
    assert with_terms.startswith(plain + "\nterms ")
    assert "terms " not in plain


@pytest.mark.parametrize("name", [DEEPSEEK, EP16, "llama-3.1-8b-h100-tp1"])
def test_terms_on_the_page_add_up_to_the_resources(command: Command, name: str) -> None:
    page = command("price", name, *MIXED, "--explain").out
    sums: dict[str, list[float]] = defaultdict(list)
    for line in explained(page):
        if found := TERM.match(line):
            sums[found[2]].append(microseconds(found[4]))
    estimate = command("price", name, *MIXED, "--json").json()["estimate"]["per_resource_ns"]
    assert {resource for resource, ns in estimate.items() if ns} == set(sums)
    for resource, parts in sums.items():
        assert sum(parts) == pytest.approx(estimate[resource] / 1e3, abs=0.06 * len(parts)), resource


def test_terms_of_the_json_are_those_of_the_library_and_add_up(command: Command) -> None:
    report = command("price", DEEPSEEK, *MIXED, "--explain", "--json").json()
    requests = [pykernel.Request(1, 4_095, 1)] * 32 + [pykernel.Request(512, 64, 1)]
    terms = pykernel.open(DEEPSEEK).explain(pykernel.Batch(requests)).terms
    assert list(report)[-1] == "terms" and len(report["terms"]) == len(terms)
    for shown, term in zip(report["terms"], terms, strict=True):
        assert list(shown) == [
            "layer", "layers", "what", "resource", "ns", "total_ns", "flops", "bytes", "efficiency", "floor_ns",
            "launches", "draft_pass", "coefficients",
        ]  # fmt: skip
        origins = shown.pop("coefficients")
        assert shown == {name: getattr(term, name) for name in shown}
        assert [(one["name"], one["set"], one["method"]) for one in origins] == [
            (origin.name, origin.set, origin.method) for origin in term.coefficients
        ]
    for resource, ns in report["estimate"]["per_resource_ns"].items():
        parts = [term["total_ns"] for term in report["terms"] if term["resource"] == resource]
        assert -1 <= ns - sum(parts) <= len(parts), resource


def test_json_without_the_option_has_no_terms(command: Command) -> None:
    assert "terms" not in command("price", DEEPSEEK, *MIXED, "--json").json()


def test_every_coefficient_that_a_term_names_is_listed_once_and_in_scope(command: Command) -> None:
    lines = explained(command("price", DEEPSEEK, *MIXED, "--explain").out)
    marks = [int(mark) for line in lines if (found := TERM.match(line)) for mark in re.findall(r"\d+", found[5])]
    listed = [found for line in lines if (found := COEFFICIENT.match(line))]
    assert [int(found[1]) for found in listed] == list(range(1, len(listed) + 1)) == sorted(set(marks))
    known = {(origin.name, origin.method, origin.set) for origin in pykernel.open(DEEPSEEK).provenance()}
    assert len({found[2] for found in listed}) == len(listed)
    assert {(found[2], found[3], found[4]) for found in listed} <= known


def test_the_page_tells_work_floors_and_efficiency(command: Command) -> None:
    page = command("price", DEEPSEEK, "--decode", "32x4096", "--explain").out
    assert re.search(r"^attn_moe x 58$", page, re.MULTILINE)
    decode = re.search(r"decode attention \(mla\) +hbm +39\.3 us +2,278\.5 us .*\n +(.*)$", page, re.MULTILINE)
    assert decode and decode[1] == "7.55e+07 bytes, floor 13.5 us"
    assert "FLOP at 16.2% of peak" in page
    assert re.search(r"^  dispatching kernels +host +3,110\.4 us", page, re.MULTILINE)


def test_passes_of_the_speculator_have_headings_of_their_own(command: Command, scenario: Callable[[str], str]) -> None:
    speculating = scenario(DEEPSEEK).rstrip() + "\n      speculative: {method: deepseek_mtp, num_spec_tokens: 2}\n"
    Path("speculating.yaml").write_text(speculating, encoding="utf-8")
    page = command("price", "speculating.yaml", "--decode", "8x512", "--explain").out
    headings = [line for line in explained(page) if line and not line.startswith(" ")][1:]
    assert headings == [
        "attn_dense x 3",
        "attn_moe x 58",
        "head",
        "attn_moe, pass 1 of the speculator",
        "head, pass 1 of the speculator",
        "attn_moe, pass 2 of the speculator",
        "head, pass 2 of the speculator",
        "host",
    ]


def test_gathered_contexts_show_their_launches(command: Command, scenario: Callable[[str], str]) -> None:
    text = scenario(DEEPSEEK).replace("tp: 8, pp: 1", "tp: 8, dcp: 8, pp: 1")
    Path("shared.yaml").write_text(text, encoding="utf-8")
    page = command("price", "shared.yaml", "--prefill", "2x512+100000", "--explain").out
    # 200,000 tokens in chunks of at most 65,536.
    assert re.search(r"all_gather over decode_context .*\n +.* bytes, 4 launches, floor 41\.2 us", page)


def test_an_idle_step_is_explained_by_its_launch(command: Command) -> None:
    Path("batch.json").write_text('{"requests": []}', encoding="utf-8")
    [term] = command("price", DEEPSEEK, "--batch", "batch.json", "--explain", "--json").json()["terms"]
    assert (term["layer"], term["what"], term["total_ns"]) == ("host", "launching the step", 434_000)


def test_another_cost_model_with_terms_is_explained_too(command: Command) -> None:
    done = command("price", DEEPSEEK, *MIXED, "--explain", "--model", "blis-reference", "--json").json()
    assert not [term for term in done["terms"] if "logits" in term["what"]]
    assert [term for term in done["terms"] if term["layer"] == "head"]
