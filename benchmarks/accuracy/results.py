"""Scores several step-time models and writes RESULTS.md with its plots.

    python -m benchmarks.accuracy.results --rows measured.csv --out benchmarks/accuracy

Models are scored side by side, one to a process. One that is not installed is named as such on the page.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from benchmarks.accuracy import plots
from benchmarks.accuracy.rows import Row, read_rows
from benchmarks.accuracy.score import predict, require
from benchmarks.accuracy.summary import Prediction, Summary, grouped, summarize
from pykernel.errors import ArgumentError

MODELS = ("calibrated", "aiconfigurator", "interpolated", "blis", "roofline")
"""The first is ours and has the plots; the others are what it is held against."""

Scores = dict[str, list[Prediction]]
"""Predictions by model, over the same rows."""

_HEAD = """\
# Results

Written by `make score`; do not edit. Rows, protocol and what the numbers leave out:
[docs/accuracy.md](../../docs/accuracy.md). Errors are of the mean time per output token unless TTFT is named; the
headline is the group-macro MAPE, the mean over (engine, system, model, precision) groups of each group's mean absolute
percentage error. Rows that a model does not answer are in its coverage and in none of its means.
"""


def _slices(predictions: list[Prediction]) -> Iterator[tuple[str, str, list[Prediction]]]:
    """Engine and split, in the order of the rows' file, with their predictions."""
    splits = dict.fromkeys(p.row.split for p in predictions)
    for backend in sorted({p.row.backend for p in predictions}, reverse=True):
        for split in splits:
            own = [p for p in predictions if (p.row.backend, p.row.split) == (backend, split)]
            if own:
                yield backend, split, own


def _overview(scores: Scores) -> Iterator[str]:
    yield (
        "| rows | split | model | group-macro | row MAPE | median | p90 | signed mean | TTFT group-macro | coverage | "
        "steady formula: group-macro | row MAPE |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for slices in zip(*map(_slices, scores.values()), strict=True):
        for model, (backend, split, own) in zip(scores, slices, strict=True):
            yield f"| {backend} ({len(own)}) | {split} | {model} | {_cell(summarize(own))} |"


def _cell(s: Summary) -> str:
    return (
        f"{s.group_macro:.1%} | {s.mape:.1%} | {s.median:.1%} | {s.p90:.1%} | {s.signed:+.1%} | "
        f"{s.ttft_group_macro:.1%} | {s.coverage:.0%} | {s.steady_group_macro:.1%} | {s.steady_mape:.1%}"
    )


def _groups(scores: Scores) -> Iterator[str]:
    first, *others = scores
    yield f"| group | split | rows | {first} | signed | TTFT | {' | '.join(others)} |"
    yield "|---" * (6 + len(others)) + "|"
    tables = {model: grouped(predictions) for model, predictions in scores.items()}
    for group, members in tables[first].items():
        own = summarize(members)
        rest = [summarize(tables[model][group]) for model in others]
        cells = [f"{one.mape:.0%}" + (f" of {one.coverage:.0%}" if one.coverage < 1 else "") for one in rest]
        splits = ", ".join(dict.fromkeys(p.row.split for p in members))
        yield (
            f"| {' '.join(group)} | {splits} | {own.rows} | {own.mape:.1%} | {own.signed:+.1%} | {own.ttft_mape:.0%} | "
            f"{' | '.join(cells)} |"
        )


def _steady(scores: Scores) -> Iterator[str]:
    first = next(iter(scores))
    for backend, split, own in _slices(scores[first]):
        apart = summarize(own).simulator_to_steady
        yield f"- {backend} {split}: simulator and steady formula differ by {apart:.1%} in the median"


def page(scores: Scores, missing: dict[str, str], images: Sequence[str]) -> str:
    """RESULTS.md; `missing` are models that were not scored, and why."""
    lines = [_HEAD, *_overview(scores), ""]
    lines += [f"Not scored: {model} ({reason})." for model, reason in missing.items()] + [""] * bool(missing)
    lines += [f"With {next(iter(scores))}:", "", *_steady(scores), ""]
    lines += [f"![{Path(image).stem.replace('-', ' ')}]({image})" for image in images]
    return "\n".join([*lines, "", "## By group", "", *_groups(scores)]) + "\n"


def score_all(rows: list[Row], models: Sequence[str]) -> Scores:
    """Every model's predictions, in the order of `models`."""
    found: Scores = {}
    started = time.monotonic()
    with ProcessPoolExecutor() as pool:
        jobs = {pool.submit(predict, rows, model): model for model in models}
        for job in as_completed(jobs):
            model = jobs[job]
            found[model] = job.result()
            total = summarize(found[model])
            seconds = time.monotonic() - started
            print(
                f"{model}: group-macro {total.group_macro:.1%} on {total.coverage:.0%} after {seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return {model: found[model] for model in models}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.results", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True, metavar="FILE")
    parser.add_argument("--out", default=str(Path(__file__).parent), metavar="DIR")
    parser.add_argument("--model", action="append", metavar="NAME", help=f"by default {', '.join(MODELS)}")
    options = parser.parse_args(argv)
    rows = read_rows(options.rows)
    missing: dict[str, str] = {}
    for model in options.model or MODELS:
        try:
            require(model)
        except ArgumentError as error:
            missing[model] = str(error)
            print(f"{model}: not scored: {error}", file=sys.stderr)
    scores = score_all(rows, [model for model in options.model or MODELS if model not in missing])
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    images = plots.draw(scores, folder)
    (folder / "RESULTS.md").write_text(page(scores, missing, images), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
