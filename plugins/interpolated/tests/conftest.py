"""Fixtures of the plug-in's tests: a directory of small tables."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for small_tables, which tests import as well

from small_tables import PARTS, TABLES, write


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of tables for two parts."""
    root = tmp_path_factory.mktemp("tables")
    for part, (name, rows) in product(PARTS, TABLES.items()):
        write(root / part / f"{name}_perf.csv", list(rows()))
    return root


@pytest.fixture
def tables(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, found through the environment."""
    monkeypatch.setenv("PYKERNEL_TABLES", str(root))
    return root
