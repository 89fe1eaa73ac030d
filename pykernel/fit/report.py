"""What a fit found, for people: Markdown and HTML of the same tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from pykernel.fit.run import Result, summaries

_TITLE = "Fitted laws"
_INTRODUCTION = (
    "Each law was fitted, with a loss that is robust to outliers, to a random half of the shapes of its table and "
    "judged on the other half. Errors are relative errors of the half that was not fitted."
)

Row = Sequence[str]


def _group_rows(results: list[Result]) -> tuple[Row, list[Row]]:
    head: Row = ("primitive", "parts", "median over parts", "p90 over parts", "worst part", "its median")
    rows: list[Row] = [
        (g.group, str(g.parts), f"{g.median:.1%}", f"{g.p90:.1%}", g.worst_part, f"{g.worst:.1%}")
        for g in summaries(results)
    ]
    return head, rows


def _law_rows(results: list[Result]) -> tuple[Row, list[Row]]:
    head: Row = ("law", "part", "shapes fitted", "held out", "median", "p90", "table")
    rows: list[Row] = [
        (
            r.target.name,
            r.part,
            str(r.fit.points),
            str(len(r.fit.held_out)),
            f"{r.fit.median:.1%}",
            f"{r.fit.p90:.1%}",
            r.source,
        )
        for r in results
    ]
    return head, rows


def markdown(results: list[Result], plots: Iterable[Path] = ()) -> str:
    """The report as Markdown; `plots` are linked as they are given."""
    lines = [f"# {_TITLE}", "", _INTRODUCTION, "", "## By primitive", "", *_markdown_table(*_group_rows(results))]
    lines += ["", "## By law and part", "", *_markdown_table(*_law_rows(results))]
    shown = list(plots)
    if shown:
        lines += ["", "## Residuals", ""] + [f"![{path.stem}]({path.name})" for path in shown]
    return "\n".join(lines) + "\n"


def _markdown_table(head: Row, rows: list[Row]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def page(results: list[Result], plots: Iterable[Path] = ()) -> str:
    """The report as one HTML page; `plots` are linked as they are given."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{_TITLE}</title><style>{_STYLE}</style></head><body><h1>{_TITLE}</h1><p>{_INTRODUCTION}</p>",
        "<h2>By primitive</h2>",
        _html_table(*_group_rows(results)),
        "<h2>By law and part</h2>",
        _html_table(*_law_rows(results)),
    ]
    shown = list(plots)
    if shown:
        parts.append("<h2>Residuals</h2>")
        parts += [f"<img src='{html.escape(path.name)}' alt='{html.escape(path.stem)}'>" for path in shown]
    return "\n".join((*parts, "</body></html>")) + "\n"


_STYLE = "body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:left}"


def _html_table(head: Row, rows: list[Row]) -> str:
    def cells(tag: str, row: Row) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    return "<table>" + cells("th", head) + "".join(cells("td", row) for row in rows) + "</table>"
