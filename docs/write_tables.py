"""Writes refusals.md and assumptions.md from the tables of pykernel.resolve, which decide what a kernel does.

    python docs/write_tables.py

A test holds the pages to the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pykernel.documents.unusable import UNUSABLE
from pykernel.resolve.disclosures import MISSING, OVERRIDES, RECORDED, UNRECORDED, Default
from pykernel.resolve.refusals import STAGES, TITLES

HERE = Path(__file__).resolve().parent
RELEASE = "v0.31.0"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; a bar inside a cell is escaped."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [_line(head), _line(["---"] * len(head)), *map(_line, cells), ""]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def origin(text: str) -> str:
    """The source of a rule: files of the engine as such."""
    files = text.split(", ")
    return ", ".join(f"`{file}` {RELEASE}" if file.startswith("vllm/") else file for file in files)


def refusals() -> str:
    lines = [
        "# Refusals",
        "",
        "What pykernel refuses, and why. A kernel is built only for a deployment that the engine (vLLM 0.31.0) would",
        "start and that has a truthful price; the first row that finds a fault, in this order, ends construction.",
        "`pykernel check-deployment` shows every fault at once. A message names what was found, the reason, and the",
        "nearest setting that works; `RefusedError.rule` is the id and `RefusedError.field` the setting.",
        "",
        "This page is written by `docs/write_tables.py` from the tables that decide.",
        "",
        "## Documents that cannot be used",
        "",
        "These come first and are no `RefusedError`: what is at fault is a file, a document or an argument.",
        "",
        *table(
            ["Id", "When", "The message names", "Error"], [(f"`{r.id}`", r.when, r.names, r.error) for r in UNUSABLE]
        ),
    ]
    for title, stage in zip(TITLES, STAGES, strict=True):
        lines += [f"## {title}", ""]
        rows = [
            (f"`{r.id}`", f"`{r.setting}`", r.when, f"{r.verdict}: {r.why}", r.nearest, origin(r.origin)) for r in stage
        ]
        lines += table(["Id", "Setting", "Refused when", "Why", "What works", "From"], rows)
    return "\n".join(lines).rstrip() + "\n"


def _defaults(rows: Iterable[Default]) -> list[str]:
    cells = ((f"`{row.name}`", row.when or "always", row.value_is, origin(row.origin)) for row in rows)
    return table(["Setting", "Beside being unstated", "Becomes", "From"], cells)


def assumptions() -> str:
    lines = [
        "# Assumptions and overrides",
        "",
        "What a kernel fills in where a deployment leaves it open, and what it does not do although it was asked to.",
        "",
        "This page is written by `docs/write_tables.py` from the tables that decide.",
        "",
        "## Recorded",
        "",
        "Each is one entry of `provenance()`, of the set `pykernel` and the method `assumed`, whose scope begins with",
        "the value; it counts in `evidence()`. A setting that is stated has no entry.",
        "",
        *_defaults(RECORDED),
        "## Not recorded",
        "",
        "Defaults on which no price depends beyond what the published model takes for granted. They show in",
        "`pykernel check-deployment`, and those of them that resolve to something in `resolved()`.",
        "",
        *_defaults(UNRECORDED),
        "## Coefficients that may be absent",
        "",
        "Each is recorded like a setting, with the value `absent`, where the deployment would use it.",
        "",
        *table(
            ["Coefficient", "Used by", "Without it"], [(f"`{row.name}`", row.when, row.consequence) for row in MISSING]
        ),
        "## Overrides",
        "",
        "Each is one entry of `resolved().overrides`. A request that is honoured has none.",
        "",
        *table(
            ["Id", "Field", "When", "From"],
            [(f"`{row.id}`", f"`{row.field}`", row.when, origin(row.origin)) for row in OVERRIDES],
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


PAGES = {"refusals.md": refusals, "assumptions.md": assumptions}


if __name__ == "__main__":
    for name, text in PAGES.items():
        (HERE / name).write_text(text(), encoding="utf-8")
