"""The plots of RESULTS.md: predicted against measured of the first model, and the errors of all. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.summary import Prediction, grouped, summarize

Scores = Mapping[str, Sequence[Prediction]]


def draw(scores: Scores, folder: Path) -> list[str]:
    """Writes the plots to a folder as PNG files, and returns their names."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plots: dict[str, Callable[[Any, Scores], None]] = {
        "predicted-measured.png": _predicted_measured,
        "error-by-concurrency.png": _error_by_concurrency,
        "error-by-group.png": _error_by_group,
    }
    for name, plot in plots.items():
        figure, axes = plt.subplots(figsize=(7, 5))
        plot(axes, scores)
        axes.legend()
        figure.savefig(folder / name, dpi=110, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)
    return list(plots)


def _predicted_measured(axes: Any, scores: Scores) -> None:
    model, predictions = next(iter(scores.items()))
    for backend in sorted({p.row.backend for p in predictions}):
        own = [p for p in predictions if p.row.backend == backend and not p.refused]
        axes.plot([p.row.tpot_ms for p in own], [p.tpot_ms for p in own], ".", markersize=3, label=backend)
    ends = [min(p.row.tpot_ms for p in predictions), max(p.row.tpot_ms for p in predictions)]
    axes.plot(ends, ends, "k-", linewidth=0.5)
    axes.set(xscale="log", yscale="log", xlabel="measured TPOT, ms", ylabel="predicted TPOT, ms", title=model)


def _error_by_concurrency(axes: Any, scores: Scores) -> None:
    for model, predictions in scores.items():
        answered = [p for p in predictions if not p.refused]
        counts = sorted({p.row.concurrency for p in answered})
        means = [summarize([p for p in answered if p.row.concurrency == count]).mape for count in counts]
        axes.plot(counts, 100 * np.array(means), "o-", label=model)
    axes.set(xscale="log", xlabel="requests in flight", ylabel="TPOT row MAPE, %", ylim=(0, None))


def _error_by_group(axes: Any, scores: Scores) -> None:
    groups = list(grouped(next(iter(scores.values()))))
    for model, predictions in scores.items():
        own = grouped(predictions)
        axes.plot([100 * summarize(own[group]).mape for group in groups], range(len(groups)), "o", label=model)
    axes.set_yticks(range(len(groups)), [" ".join(group) for group in groups])
    axes.invert_yaxis()
    axes.grid(axis="y", linewidth=0.3)
    axes.set(xlabel="TPOT MAPE, %", xlim=(0, 100))
