"""Scores several step-time models and writes RESULTS.md with its plots.

    python -m benchmarks.accuracy.results --rows measured.csv --out benchmarks/accuracy

The plots need matplotlib; without it the page has its tables alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy.rows import read_rows
from benchmarks.accuracy.score import Prediction, Summary, by_group, predict, summarize

MODELS = ("calibrated", "blis", "roofline")
SPLITS = ("train", "val")
Scores = dict[tuple[str, str], list[Prediction]]
"""Predictions by model and split."""

_HEAD = """\
# Results

Written by `make score`; do not edit. Rows, protocol and what the numbers leave out:
[docs/accuracy.md](../../docs/accuracy.md). Errors are of the mean time per output token unless
TTFT is named; the headline is the group-macro MAPE, the mean over (engine, system, model, precision) groups of each
group's mean absolute percentage error.
"""


def _cell(summary: Summary) -> str:
    return (
        f"{summary.group_macro:.1%} | {summary.mape:.1%} | {summary.median:.1%} | {summary.p90:.1%} | "
        f"{summary.signed:+.1%} | {summary.ttft_group_macro:.1%} | {summary.coverage:.0%}"
    )


def _overview(scores: Scores) -> Iterator[str]:
    yield "| rows | split | model | group-macro | row MAPE | median | p90 | signed mean | TTFT group-macro | coverage |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for engine in ("vllm", "trtllm", "sglang"):
        for split in SPLITS:
            for model in MODELS:
                own = [p for p in scores[model, split] if p.row.backend == engine]
                if own:
                    yield f"| {engine} ({len(own)}) | {split} | {model} | {_cell(summarize(own))} |"


def _groups(scores: Scores) -> Iterator[str]:
    yield "| group | split | rows | calibrated | signed | TTFT | blis | roofline |"
    yield "|---|---|---|---|---|---|---|---|"
    for split in SPLITS:
        tables = {model: by_group(scores[model, split]) for model in MODELS}
        for group, own in tables["calibrated"].items():
            others = " | ".join(f"{tables[model][group].mape:.0%}" for model in MODELS[1:])
            yield (
                f"| {' '.join(group)} | {split} | {own.rows} | {own.mape:.1%} | {own.signed:+.1%} | "
                f"{own.ttft_mape:.0%} | {others} |"
            )


def _steady(scores: Scores) -> Iterator[str]:
    for split in SPLITS:
        own = [p for p in scores["calibrated", split] if p.row.backend == "vllm"]
        apart = summarize(own).simulator_to_steady
        yield f"- {split}: simulator and steady formula differ by {apart:.1%} in the median on vLLM rows"


def _plots(scores: Scores, folder: Path) -> list[str]:
    try:
        import matplotlib
    except ModuleNotFoundError:
        return []
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    every = [p for split in SPLITS for p in scores["calibrated", split] if np.isfinite(p.tpot_ms)]
    engines = ("vllm", "trtllm", "sglang")
    figure, axes = plt.subplots(figsize=(5, 5))
    for engine in engines:
        own = [p for p in every if p.row.backend == engine]
        axes.plot([p.row.tpot_ms for p in own], [p.tpot_ms for p in own], ".", markersize=3, label=engine)
    axes.plot([1, 300], [1, 300], "k-", linewidth=0.5)
    axes.set(xscale="log", yscale="log", xlabel="measured TPOT, ms", ylabel="predicted TPOT, ms")
    axes.legend()
    figure.savefig(folder / "predicted-measured.png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    figure, axes = plt.subplots(figsize=(6, 4))
    for engine in engines:
        own = [p for p in every if p.row.backend == engine]
        counts = sorted({p.row.concurrency for p in own})
        means = [np.mean([abs(p.tpot_ms / p.row.tpot_ms - 1) for p in own if p.row.concurrency == c]) for c in counts]
        axes.plot(counts, 100 * np.array(means), "o-", label=engine)
    axes.set(xscale="log", xlabel="concurrency", ylabel="TPOT MAPE, %", ylim=(0, None))
    axes.legend()
    figure.savefig(folder / "error-by-concurrency.png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close("all")
    return [
        "![predicted against measured](predicted-measured.png)",
        "![error by concurrency](error-by-concurrency.png)",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.results", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True, metavar="FILE")
    parser.add_argument("--out", default=str(Path(__file__).parent), metavar="DIR")
    options = parser.parse_args(argv)
    scores: Scores = {}
    for split in SPLITS:
        rows = read_rows(options.rows, split)
        for model in MODELS:
            scores[model, split] = list(predict(rows, model))
            total = summarize(scores[model, split])
            print(f"{model} {split}: {total.group_macro:.1%} on {total.coverage:.0%}", file=sys.stderr, flush=True)
    folder = Path(options.out)
    lines = [_HEAD, *_overview(scores), "", *_steady(scores), "", *_plots(scores, folder), "", "## By group", ""]
    (folder / "RESULTS.md").write_text("\n".join((*lines, *_groups(scores))) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
