"""docs/refusals.md and docs/assumptions.md are what docs/write_tables.py makes of the tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from pykernel.resolve.disclosures import MISSING, OVERRIDES, RECORDED, UNRECORDED
from pykernel.resolve.refusals import REFUSALS

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_tables", DOCS / "write_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["refusals.md", "assumptions.md"])
def test_a_page_is_what_the_tables_say(name: str, writer: ModuleType) -> None:
    written = writer.PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == written, "run python docs/write_tables.py"


def test_the_pages_have_a_row_for_every_row_of_the_tables(writer: ModuleType) -> None:
    refused, filled = writer.refusals(), writer.assumptions()
    assert [row.id for row in REFUSALS if refused.count(f"| `{row.id}` | `{row.setting}` |") != 1] == []
    names = [row.name for row in (*RECORDED, *UNRECORDED, *MISSING)] + [row.id for row in OVERRIDES]
    assert [name for name in names if f"| `{name}` |" not in filled] == []
