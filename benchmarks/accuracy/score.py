"""Scores a step-time model on measured serving rows.

    python -m benchmarks.accuracy.score --rows FILE --model NAME --split val --out predictions.csv

FILE has the columns of measured.csv (others are ignored) and any split names; without --split every row counts. Each
row's deployment becomes a cost model, a closed loop of its clients is simulated over it, and the mean times per output
token and to the first token are compared to the measured ones. A row that a model does not answer counts against
coverage, never as right. The last line is the headline: the mean over (backend, system, model, precision) groups of
each group's mean absolute percentage error of TPOT.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.accuracy.models import Pricer, kernel_of, pricer
from benchmarks.accuracy.rows import Row, read_rows
from benchmarks.accuracy.simulator import Schedule, latencies, schedule
from benchmarks.accuracy.steady import steady_tpot
from pykernel.errors import PykernelError

COLUMNS = (
    "id", "split", "backend", "system", "model", "prec", "measured_tpot_ms", "predicted_tpot_ms",
    "measured_ttft_ms", "predicted_ttft_ms", "steady_tpot_ms", "refused",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prediction:
    """A model's answer to one row, milliseconds; NaN where it did not answer, then `refused` says why."""

    row: Row
    tpot_ms: float
    ttft_ms: float
    steady_ms: float
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors over some rows, fractions. `group_macro` is the headline; `signed` is the mean of signed errors."""

    rows: int
    answered: int
    group_macro: float
    mape: float
    median: float
    p90: float
    signed: float
    ttft_group_macro: float
    ttft_mape: float
    simulator_to_steady: float

    @property
    def coverage(self) -> float:
        return self.answered / self.rows if self.rows else float("nan")


class Runs:
    """Schedules by what they depend on: rows that differ in their part or model alone share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Schedule] = {}

    def of(self, row: Row) -> Schedule:
        key = (
            row.backend == "sglang", row.isl, row.osl, row.isl_mean, row.osl_mean, row.rank_concurrency, row.budget,
        )  # fmt: skip
        if key not in self._known:
            if len(self._known) > 64:
                self._known.clear()
            self._known[key] = schedule(row)
        return self._known[key]


def predict(rows: Iterable[Row], name: str) -> Iterator[Prediction]:
    """A model's answers to rows, in their order."""
    runs, pricers = Runs(), dict[tuple[object, ...], Pricer | str]()
    for row in rows:
        known = pricers.get(row.deployment)
        if known is None:
            known = pricers[row.deployment] = _pricer_of(row, name)
        if isinstance(known, str):
            yield Prediction(row, float("nan"), float("nan"), float("nan"), known)
            continue
        found = latencies(runs.of(row), known)
        yield Prediction(row, found.tpot * 1e3, found.ttft * 1e3, steady_tpot(row, known) * 1e3)


def _pricer_of(row: Row, name: str) -> Pricer | str:
    try:
        return pricer(kernel_of(name, row))
    except (PykernelError, KeyError, OSError) as error:
        return str(error).splitlines()[0]


def summarize(predictions: Sequence[Prediction]) -> Summary:
    """The errors of a model over rows."""
    answered = [p for p in predictions if np.isfinite(p.tpot_ms) and np.isfinite(p.row.tpot_ms)]
    errors = np.array([p.tpot_ms / p.row.tpot_ms - 1 for p in answered])
    first = [(p.row.group, p.ttft_ms / p.row.ttft_ms - 1) for p in answered if p.row.ttft_ms > 0]
    ratios = np.array([p.tpot_ms / p.steady_ms - 1 for p in answered])
    if not answered:
        nan = float("nan")
        return Summary(len(predictions), 0, nan, nan, nan, nan, nan, nan, nan, nan)
    return Summary(
        rows=len(predictions),
        answered=len(answered),
        group_macro=_macro([(p.row.group, error) for p, error in zip(answered, errors, strict=True)]),
        mape=float(np.mean(np.abs(errors))),
        median=float(np.median(np.abs(errors))),
        p90=float(np.quantile(np.abs(errors), 0.9)),
        signed=float(np.mean(errors)),
        ttft_group_macro=_macro(first),
        ttft_mape=float(np.mean([abs(error) for _, error in first])) if first else float("nan"),
        simulator_to_steady=float(np.median(np.abs(ratios))),
    )


def _macro(errors: Sequence[tuple[object, float]]) -> float:
    groups: dict[object, list[float]] = {}
    for group, error in errors:
        groups.setdefault(group, []).append(abs(error))
    return float(np.mean([np.mean(own) for own in groups.values()])) if groups else float("nan")


def by_group(predictions: Sequence[Prediction]) -> dict[tuple[str, ...], Summary]:
    """The errors of each group, in the order of their names."""
    groups: dict[tuple[str, ...], list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault(prediction.row.group, []).append(prediction)
    return {group: summarize(groups[group]) for group in sorted(groups)}


def write(predictions: Iterable[Prediction], path: str | Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for p in predictions:
            numbers = (p.row.tpot_ms, p.tpot_ms, p.row.ttft_ms, p.ttft_ms, p.steady_ms)
            table.writerow([p.row.id, p.row.split, *p.row.group, *(f"{n:.6g}" for n in numbers), p.refused])


def report(predictions: Sequence[Prediction]) -> Iterator[str]:
    """The scores as text, a line each; the last one is the headline."""
    for group, own in by_group(predictions).items():
        yield (
            f"{' '.join(group):45s} {own.answered:4d} of {own.rows:4d} rows  TPOT {own.mape:6.1%} "
            f"(signed {own.signed:+6.1%})  TTFT {own.ttft_mape:6.1%}"
        )
    total = summarize(predictions)
    yield f"coverage: {total.coverage:.1%} of {total.rows} rows"
    yield (
        f"TPOT: row MAPE {total.mape:.1%}, median {total.median:.1%}, p90 {total.p90:.1%}, "
        f"signed mean {total.signed:+.1%}"
    )
    yield f"TTFT: group-macro MAPE {total.ttft_group_macro:.1%}, row MAPE {total.ttft_mape:.1%}"
    yield f"simulator against steady formula: median difference {total.simulator_to_steady:.1%}"
    yield f"group-macro TPOT MAPE: {100 * total.group_macro:.1f} %"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.score", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True, metavar="FILE", help="measured rows, CSV with a header")
    parser.add_argument("--model", default="calibrated", metavar="NAME", help="cost model (default: calibrated)")
    parser.add_argument("--split", default="", metavar="NAME", help="score the rows of this split alone")
    parser.add_argument("--backend", default="", metavar="NAME", help="score the rows of this engine alone")
    parser.add_argument("--out", metavar="FILE", help="write one prediction a row")
    options = parser.parse_args(argv)
    rows = [row for row in read_rows(options.rows, options.split) if options.backend in ("", row.backend)]
    if not rows:
        parser.error(f"{options.rows} has no row of split {options.split!r} and backend {options.backend!r}")
    predictions: list[Prediction] = []
    started = time.monotonic()
    for prediction in predict(rows, options.model):
        predictions.append(prediction)
        if sys.stderr.isatty() and len(predictions) % 10 == 0:
            print(f"\r{len(predictions)}/{len(rows)} rows", end="", file=sys.stderr)
    print(f"{len(rows)} rows in {time.monotonic() - started:.0f} s", file=sys.stderr)
    if options.out:
        write(predictions, options.out)
    print("\n".join(report(predictions)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
