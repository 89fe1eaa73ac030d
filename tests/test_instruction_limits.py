"""The limits of instruction counts hold for the counts that are committed, and are limits of calls that exist."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
COMMITTED: dict[str, dict[str, int]] = json.loads((BENCHMARKS / "instruction_counts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("compiler", COMMITTED)
def test_the_committed_counts_are_within_the_limits(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = importlib.import_module("instruction_counts")
    counts = COMMITTED[compiler]
    assert script.complaints(counts, counts) == []
    name = next(iter(script.LIMITS))
    [missing] = script.complaints({call: count for call, count in counts.items() if call != name}, counts)
    assert name in missing
