"""What ends construction before resolution, a case for every row and a twin beside it that opens and prices a step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel import ArgumentError, Batch, DocumentError, Inputs, Repos, Request
from pykernel.documents import find_scenario
from pykernel.documents.unusable import UNUSABLE

Fresh = Callable[..., Inputs]

DEEPSEEK, DISAGGREGATED = "deepseek-v3-h200-fp8-tp8", "minimax-m2.5-h200-disagg"
BATCH = Batch([Request(1, 4_095, 1_024)] * 8)


def text_of(name: str = DEEPSEEK) -> str:
    return find_scenario(name).read_text(encoding="utf-8")


def with_text(old: str, new: str) -> Callable[[Path], Any]:
    """Opens a copy of a scenario in which some text is another."""

    def opened(folder: Path) -> Any:
        assert old in text_of()
        path = folder / "s.yaml"
        path.write_text(text_of().replace(old, new, 1), encoding="utf-8")
        return pykernel.open(path)

    return opened


def storage(spoil: bool) -> Callable[[Path], Any]:
    """Opens with a catalog of its own, whose storage classes are or are no document."""

    def opened(folder: Path) -> Any:
        catalog = folder / "catalog"
        shutil.copytree(Repos().catalog_root(), catalog)
        if spoil:
            (catalog / "devices" / "storage.yaml").write_text("nothing: [of, that", encoding="utf-8")
        return pykernel.open(DEEPSEEK, Repos(catalog=catalog))

    return opened


def edited(edit: Callable[[Inputs], Any]) -> Callable[[Path], Any]:
    def opened(folder: Path) -> Any:
        documents = pykernel.open_inputs(DEEPSEEK)
        edit(documents)
        return pykernel.new(documents)

    return opened


def node(documents: Inputs) -> Any:
    """The first node that exists under a condition."""
    return next(node for kind in documents.model.layer_kinds for node in kind.nodes if node.emit)


def setting(path: str, value: Any) -> Callable[[Path], Any]:
    def edit(documents: Inputs) -> None:
        inner: Any = documents
        *parts, last = path.split(".")
        for part in parts:
            inner = inner.pools[0] if part == "pool" else getattr(inner, part)
        setattr(inner, last, value)

    return edited(edit)


def stack(documents: Inputs, layer: str) -> None:
    documents.model.stack.prologue = [layer] * len(documents.model.stack.prologue)


CASES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any], type[Exception], tuple[str, ...]]] = {
    "bundle": (
        with_text("---\n", "...\n---\nkind: Deployment\n---\n"),
        with_text("---\n", "---\n# the second document\n"),
        DocumentError,
        ("s.yaml",),
    ),
    "pool-of-file": (
        lambda folder: pykernel.open_pool(DISAGGREGATED, 2),
        lambda folder: pykernel.open_pool(DISAGGREGATED, 1),
        ArgumentError,
        (DISAGGREGATED, "2"),
    ),
    "reference": (
        with_text("model: deepseek-v3", "model: deepseek-v9"),
        with_text("model: deepseek-v3", "model: deepseek-v3 # as bundled"),
        DocumentError,
        ("model", "deepseek-v9", "deepseek-v3"),
    ),
    "storage": (storage(True), storage(False), DocumentError, ("storage.yaml",)),
    "release": (
        with_text('"0.29.0"', '"0.30.0"'),
        with_text('"0.29.0"', '"0.31.0"'),
        DocumentError,
        ("0.30.0", "0.29.0", "0.31.0"),
    ),
    "missing-document": (setting("chip", None), edited(lambda documents: None), ArgumentError, ("chip", "scenario")),
    "pool": (setting("pool", 1), setting("pool", 0), ArgumentError, ("pool 1", "1")),
    "missing-rules": (setting("rules", None), edited(lambda documents: None), ArgumentError, ("engine_version",)),
    "field": (
        setting("chip.bw_peak_tbs", -1.0),
        setting("chip.bw_peak_tbs", 1.0),
        DocumentError,
        ("chip.BwPeakTBs",),
    ),
    "width": (
        setting("deployment.pool.parallel.tp", 0),
        setting("deployment.pool.parallel.tp", 1),
        DocumentError,
        ("parallel.tp",),
    ),
    "emit": (
        edited(lambda documents: setattr(node(documents), "emit", "on_mondays")),
        edited(lambda documents: setattr(node(documents), "emit", "tensor_parallel")),
        DocumentError,
        ("emit", "on_mondays"),
    ),
    "layer-kind": (
        edited(lambda documents: stack(documents, "attn_nowhere")),
        edited(lambda documents: stack(documents, "attn_dense")),
        DocumentError,
        ("stack", "attn_nowhere", "attn_dense"),
    ),
}


def test_every_row_has_a_case() -> None:
    assert [row.id for row in UNUSABLE] == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_fault_before_resolution_is_named_and_its_twin_prices_a_step(name: str, tmp_path: Path) -> None:
    case, twin, error, words = CASES[name]
    row = next(row for row in UNUSABLE if row.id == name)
    assert row.error == f"`{error.__name__}`"
    with pytest.raises(error) as caught:
        case(tmp_path)
    assert [word for word in words if word not in str(caught.value)] == []
    (tmp_path / "twin").mkdir()
    assert twin(tmp_path / "twin").step_time(BATCH).no_overlap_ns > 0
