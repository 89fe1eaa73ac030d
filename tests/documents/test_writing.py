"""What `dump` writes loads back equal, and any reader of YAML 1.1 reads the same types."""

from __future__ import annotations

import dataclasses
import random
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykernel.documents import (
    Chip,
    Coefficient,
    CoefficientSet,
    Deployment,
    Fabric,
    ModelGraph,
    Scenario,
    Scope,
    StorageTier,
    coefficients,
    deployment,
    graph,
    hardware,
    scenario,
    storage,
)
from pykernel.documents.writing import to_yaml

SOUND = Path(__file__).resolve().parents[2] / "testdata" / "bad" / "repo"

TRICKY = [
    "plain", "with space", "yes", "No", "on", "null", "~", "true", "0.29.0", "0.29", "12", "-3", "1e3", "7.0e3", ".5",
    ".nan", "-.inf", "0x1F", "0o17", "1_000", "2026-01-31", "2026-01-31 10:00:00", "12:30:45", "a: b", "a #b", "#c",
    "- d", "-", "---", "...", "*e", "&f", "!g", "|", ">", "%h", "@i", "`j", "'k'", '"l"', "\\m", "[n]", "{o}", "p,q",
    "?", "? r", ":", ":s", "t:", "=", "<<", " lead", "trail ", "tab\there", "line\nbreak", "\u2028", "\x85", "\x07",
    "\x7f", "\xa0", "é", "模型", "😀", "\ufeff", "", "y", "N", "0", "00", "0b1", "1.", "e5", "+1", "1-1", "a=b",
    "deadbeef", "1e", "_", "/x", "../y", "A" * 300, "word " * 40,
]  # fmt: skip

LOADERS: dict[type[Any], tuple[Callable[[Any], str], Callable[[Path], Any], str]] = {
    Scenario: (scenario.dump, scenario.load, "Scenario"),
    Deployment: (deployment.dump, deployment.load, "Deployment"),
    ModelGraph: (graph.dump, graph.load, "ModelGraph"),
    Chip: (hardware.dump, hardware.load_chip, ""),
    Fabric: (hardware.dump, hardware.load_fabric, ""),
    CoefficientSet: (coefficients.dump, coefficients.load, "CoefficientSet"),
}


def _made(hint: Any, generator: random.Random, depth: int = 0) -> Any:
    """A value of an annotation, with tricky text and numbers of all sizes."""
    if hint is str:
        return generator.choice(TRICKY)
    if hint is bool:
        return generator.random() < 0.5
    if hint is int:
        return generator.choice([0, 1, -7, 10**6, 2**63 - 1, -(2**63) + 1])
    if hint is float:
        return generator.choice([0.0, -0.5, 1e-05, 1e16, 1e300, 5e-324, 0.1, 7000.0, generator.random() * 10**9])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if generator.random() < 0.4 else _made(arguments[0], generator, depth)
    if origin is list:
        return [_made(arguments[0], generator, depth + 1) for _ in range(generator.choice([0, 1, 2, 3, 12]))]
    if origin is tuple:
        return tuple(_made(argument, generator, depth) for argument in arguments)
    if origin is dict:
        return {f"k{n} {generator.choice(TRICKY)}": _made(arguments[1], generator, depth + 1) for n in range(2)}
    return _made_document(hint, generator, depth + 1)


def _made_document(cls: type[Any], generator: random.Random, depth: int = 0) -> Any:
    hints = typing.get_type_hints(cls)
    values = {}
    for item in dataclasses.fields(cls):
        absent = item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
        if not absent or generator.random() < 0.6:
            values[item.name] = _made(hints[item.name], generator, depth)
    return cls(**values)


def _settle(document: Any, name: str, kind: str) -> None:
    """Give a made document what loading gives it: its kind, the name of its file, and no empty list of sources."""
    if kind:
        document.kind = kind
    else:
        document.name = name
    for entry in getattr(document, "coefficients", []):
        if isinstance(entry, Coefficient):
            entry.name = entry.name or "entry"


@pytest.mark.parametrize("cls", LOADERS)
@pytest.mark.parametrize("seed", range(40))
def test_any_document_survives_writing_and_loading(tmp_path: Path, cls: type[Any], seed: int) -> None:
    dump, load, kind = LOADERS[cls]
    document = _made_document(cls, random.Random(seed))
    _settle(document, "made", kind)
    path = tmp_path / "made.yaml"
    text = dump(document)
    path.write_text(text, encoding="utf-8")
    assert load(path) == document
    assert dump(load(path)) == text


@pytest.mark.parametrize("seed", range(10))
def test_storage_classes_survive_together(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    names = sorted({name for name in TRICKY if generator.random() < 0.3} | {"disk"})
    tiers = [StorageTier(name, generator.random(), 1e-05, 1e22) for name in names]
    path = tmp_path / "storage.yaml"
    path.write_text(storage.dump(reversed(tiers)), encoding="utf-8")
    assert storage.load(path) == tiers


@pytest.mark.parametrize("value", TRICKY)
def test_text_is_text_to_a_reader_that_guesses(value: str) -> None:
    text = to_yaml({"key": value, "list": [value, value], "items": [{"a": value, "b": {"c": value}}], value: "v"})
    read = yaml.safe_load(text)
    assert read["key"] == value
    assert read["list"] == [value, value]
    assert read["items"] == [{"a": value, "b": {"c": value}}]
    assert read[value] == "v" or value in ("key", "list", "items")


@pytest.mark.parametrize("value", [0.0, 1e-05, 1e16, 1.5e300, 5e-324, -2.5, 7000.0, 3, -1, 2**60, True, False])
def test_numbers_are_numbers_to_a_reader_that_guesses(value: float | bool) -> None:
    read = yaml.safe_load(to_yaml({"value": value}))["value"]
    assert read == value
    assert type(read) is type(value)


def test_only_stated_keys_are_written_in_a_stable_order() -> None:
    document = deployment.Deployment("Deployment", "d", [deployment.Pool("colocated", 1, deployment.Parallel(8, 1, 1))])
    document.pools[0].engine.enable_prefix_caching = False
    document.pools[0].engine.cache_dtype = "fp8"
    assert deployment.dump(document) == (
        "kind: Deployment\n"
        "name: d\n"
        "pools:\n"
        "  - role: colocated\n"
        "    nodes: 1\n"
        "    parallel:\n"
        "      tp: 8\n"
        "      pp: 1\n"
        "      dp: 1\n"
        "    engine:\n"
        "      enable_prefix_caching: false\n"
        "      cache_dtype: fp8\n"
    )


def test_an_entry_is_written_under_its_name() -> None:
    entry = Coefficient("hbm_derate", 0.8, "dimensionless", "measured", False, Scope(hardware=["h100"], tp=[1, 2]))
    assert coefficients.dump(CoefficientSet("CoefficientSet", "s", [entry])) == (
        "kind: CoefficientSet\n"
        "name: s\n"
        "coefficients:\n"
        "  - hbm_derate:\n"
        "      value: 0.8\n"
        "      units: dimensionless\n"
        "      method: measured\n"
        "      fitted: false\n"
        "      scope:\n"
        "        hardware: [h100]\n"
        "        tp: [1, 2]\n"
    )


def test_a_graph_is_written_with_one_node_to_a_line() -> None:
    lines = graph.dump(graph.load(SOUND / "catalog/models/tiny-moe/graph.yaml")).splitlines()
    assert "      - {op: GEMM, role: qkv_proj, n: 1536, k: 1024}" in lines
    assert "    edges: [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6]]" in lines
    assert "  pattern: [moe]" in lines


def test_the_rate_of_a_chip_without_the_format_is_written_as_zero() -> None:
    assert "TFlopsFP8: 0.0" in hardware.dump(Chip("c", "derived", 1.0, 1.0, 1.0, 1.0, 1))
