"""Residual plots of a fit: for each group of laws, predicted over measured time against measured time."""

from __future__ import annotations

from pathlib import Path

from pykernel.errors import ArgumentError
from pykernel.fit.run import Result

MOST_POINTS = 1500


def draw(results: list[Result], folder: Path) -> list[Path]:
    """One PNG a group, in `folder`. Raises `ArgumentError` without matplotlib, which is asked for only here."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise ArgumentError("plots need matplotlib, which is not installed; run pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made = []
    for group in dict.fromkeys(r.target.group for r in results):
        figure, axes = plt.subplots(figsize=(7, 4))
        for result in (r for r in results if r.target.group == group):
            step = max(len(result.fit.measured) // MOST_POINTS, 1)
            measured, predicted = result.fit.measured[::step], result.fit.predicted[::step]
            axes.plot(measured * 1e6, predicted / measured, ",", label=f"{result.part} {result.target.suffix}")
        axes.set(xscale="log", yscale="log", ylim=(0.25, 4), xlabel="measured, us", ylabel="predicted / measured")
        axes.set_title(group)
        axes.axhline(1, color="black", linewidth=0.5)
        path = folder / f"residuals-{group.replace(' ', '-')}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)
        made.append(path)
    return made
