"""`pykernel price --explain`: the terms of a step by layer kind, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

from pykernel.cli import text
from pykernel.explain import Explanation


def data(explanation: Explanation) -> list[dict[str, Any]]:
    """One mapping a term, with the names, sets and methods of its coefficients."""
    terms = [asdict(term) for term in explanation.terms]
    for term in terms:
        term["coefficients"] = [
            {"name": origin["name"], "set": origin["set"], "method": origin["method"]}
            for origin in term["coefficients"]
        ]
    return terms


def page(terms: list[dict[str, Any]]) -> Iterator[str]:
    """Every layer kind with its terms, then the coefficients that they name, numbered."""
    numbers: dict[tuple[str, str, str], int] = {}
    yield "terms       of one layer, and of all its layers; [n] names the coefficients below"
    for (layer, layers, draft_pass), group in groupby(terms, key=lambda t: (t["layer"], t["layers"], t["draft_pass"])):
        yield ""
        yield _heading(layer, layers, draft_pass)
        for term in group:
            used = [numbers.setdefault(_key(one), len(numbers) + 1) for one in term["coefficients"]]
            yield from _lines(term, used)
    yield ""
    for (name, source, method), number in numbers.items():
        yield f"{f'[{number}]':>6} {name}, {method}, {source}"


def _heading(layer: str, layers: int, draft_pass: int) -> str:
    many = f" x {layers}" if layers > 1 else ""
    return f"{layer}{many}" + (f", pass {draft_pass} of the speculator" if draft_pass else "")


def _key(coefficient: dict[str, str]) -> tuple[str, str, str]:
    return coefficient["name"], coefficient["set"], coefficient["method"]


def _lines(term: dict[str, Any], used: list[int]) -> Iterator[str]:
    marks = " ".join(f"[{number}]" for number in used)
    each, total = (f"{term[name] / 1e3:,.1f}" for name in ("ns", "total_ns"))
    yield f"  {term['what']:<34}{term['resource']:<12}{each:>12} us{total:>14} us  {marks}".rstrip()
    work = ", ".join(_work(term))
    if work:
        yield f"      {work}"


def _work(term: dict[str, Any]) -> Iterator[str]:
    if term["flops"]:
        yield f"{term['flops']:.4g} FLOP at {term['efficiency']:.1%} of peak"
    if term["bytes"]:
        yield f"{term['bytes']:.4g} bytes"
    if term["launches"] > 1:
        yield text.plural(term["launches"], "launch", "launches")
    if term["floor_ns"]:
        yield f"floor {term['floor_ns'] / 1e3:,.1f} us"
