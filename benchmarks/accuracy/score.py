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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.accuracy import peer
from benchmarks.accuracy.models import Pricer, admission_ms, kernel_of, pricer
from benchmarks.accuracy.rows import Row, read_rows
from benchmarks.accuracy.scheduling import scheduling
from benchmarks.accuracy.simulator import Schedule, latencies, schedule
from benchmarks.accuracy.steady import steady_tpot
from benchmarks.accuracy.summary import Prediction, better, grouped, refusals, summarize
from pykernel.c_model import SHARED_LIBRARY
from pykernel.errors import ArgumentError, PykernelError

COLUMNS = (
    "id", "split", "backend", "system", "model", "prec", "measured_tpot_ms", "predicted_tpot_ms",
    "measured_ttft_ms", "predicted_ttft_ms", "steady_tpot_ms", "refused",
)  # fmt: skip


class Runs:
    """Schedules by what they depend on: rows that differ in their part or model alone share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Schedule] = {}

    def of(self, row: Row) -> Schedule:
        key = (
            scheduling(row), row.isl, row.osl, row.isl_mean, row.osl_mean, row.rank_concurrency,
        )  # fmt: skip
        if key not in self._known:
            if len(self._known) > 64:
                self._known.clear()
            self._known[key] = schedule(row)
        return self._known[key]


def require(name: str) -> None:
    """Raises `ArgumentError` with what there is for a model that is not installed."""
    if name == peer.NAME:
        peer.installed()
    elif not name.endswith(SHARED_LIBRARY):
        from pykernel.registry import installed

        installed().find("cost_models", name)


def predict(rows: Sequence[Row], name: str, progress: Callable[[int], None] = lambda count: None) -> list[Prediction]:
    """A model's answers to rows, in their order; `progress` is called with how many rows are done."""
    if name == peer.NAME:
        return better(*(list(_predicted(rows, partial(peer.pricer, label=label), progress)) for label in peer.LABELS))
    answers = _predicted(rows, lambda row: pricer(kernel_of(name, row)), progress)
    return [replace(answer, ttft_ms=answer.ttft_ms + admission_ms(name, answer.row)) for answer in answers]


def _predicted(
    rows: Sequence[Row], pricer_of: Callable[[Row], Pricer], progress: Callable[[int], None]
) -> Iterator[Prediction]:
    runs, pricers = Runs(), dict[tuple[object, ...], Pricer | str]()
    for count, row in enumerate(rows, 1):
        known = pricers.get(row.deployment)
        if known is None:
            known = pricers[row.deployment] = _made(row, pricer_of)
        yield Prediction(row, refused=known) if isinstance(known, str) else _answer(row, known, runs)
        progress(count)


def _made(row: Row, pricer_of: Callable[[Row], Pricer]) -> Pricer | str:
    try:
        return pricer_of(row)
    except PykernelError as error:
        return _reason(error)


def _answer(row: Row, price: Pricer, runs: Runs) -> Prediction:
    try:
        found = latencies(runs.of(row), price)
        return Prediction(row, found.tpot * 1e3, found.ttft * 1e3, steady_tpot(row, price) * 1e3)
    except PykernelError as error:
        return Prediction(row, refused=_reason(error))


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] or type(error).__name__


def write(predictions: Iterable[Prediction], path: str | Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for p in predictions:
            numbers = (p.row.tpot_ms, p.tpot_ms, p.row.ttft_ms, p.ttft_ms, p.steady_ms)
            table.writerow([p.row.id, p.row.split, *p.row.group, *(f"{n:.6g}" for n in numbers), p.refused])


def report(predictions: Sequence[Prediction]) -> Iterator[str]:
    """The scores as text, a line each; the last one is the headline."""
    for group, members in grouped(predictions).items():
        own = summarize(members)
        yield (
            f"{' '.join(group):45s} {own.answered:4d} of {own.rows:4d} rows  TPOT {own.mape:6.1%} "
            f"(signed {own.signed:+6.1%})  TTFT {own.ttft_mape:6.1%}"
        )
    total = summarize(predictions)
    yield f"coverage: {total.coverage:.1%} of {total.rows} rows"
    for reason, count in refusals(predictions):
        yield f"not answered: {count} rows: {reason}"
    yield (
        f"TPOT: row MAPE {total.mape:.1%}, median {total.median:.1%}, p90 {total.p90:.1%}, "
        f"signed mean {total.signed:+.1%}"
    )
    yield f"TTFT: group-macro MAPE {total.ttft_group_macro:.1%}, row MAPE {total.ttft_mape:.1%}"
    yield (
        f"steady formula: TPOT group-macro MAPE {total.steady_group_macro:.1%}, row MAPE {total.steady_mape:.1%}, "
        f"median difference from the simulator {total.simulator_to_steady:.1%}"
    )
    yield f"group-macro TPOT MAPE: {100 * total.group_macro:.1f} %"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.score",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", required=True, metavar="FILE", help="measured rows, CSV with a header")
    parser.add_argument(
        "--model", default="calibrated", metavar="NAME", help=f"cost model, or {peer.NAME} (default: calibrated)"
    )
    parser.add_argument("--split", default="", metavar="NAME", help="score the rows of this split alone")
    parser.add_argument("--backend", default="", metavar="NAME", help="score the rows of this engine alone")
    parser.add_argument("--out", metavar="FILE", help="write one prediction a row, CSV")
    options = parser.parse_args(argv)
    try:
        require(options.model)
        rows = _chosen(options.rows, options.split, options.backend)
        started = time.monotonic()
        predictions = predict(rows, options.model, partial(_show, len(rows)))
        print(f"{len(rows)} rows in {time.monotonic() - started:.0f} s", file=sys.stderr)
        if options.out:
            write(predictions, options.out)
    except (PykernelError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2
    print("\n".join(report(predictions)))
    return 0


def _chosen(path: str, split: str, backend: str) -> list[Row]:
    every = read_rows(path)
    rows = [row for row in every if split in ("", row.split) and backend in ("", row.backend)]
    if rows:
        return rows
    wanted = " and ".join(f"{name} {value!r}" for name, value in (("split", split), ("backend", backend)) if value)
    splits, backends = sorted({row.split for row in every}), sorted({row.backend for row in every})
    raise ArgumentError(
        f"{path}: no row{wanted and f' of {wanted}'}; it has splits {', '.join(splits) or 'none'} "
        f"and backends {', '.join(backends) or 'none'}"
    )


def _show(total: int, count: int) -> None:
    if sys.stderr.isatty() and (count % 10 == 0 or count == total):
        print(f"\r{count}/{total} rows", end="\n" if count == total else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
