"""The picture of a GPU's memory. matplotlib draws it and is imported only when a picture is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pykernel.cli import UsageError

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#7f7f7f", "#1f4e79", "#2e75b6", "#9dc3e6", "#bf9000", "#c55a11", "#70ad47", "#eeeeee")
_GIB = 2**30


def stacked_bar(path: str, title: str, parts: Mapping[str, int], device_bytes: int) -> None:
    """Write the parts of `device_bytes`, in bytes by label, as one stacked bar to `path`.

    Raises `UsageError` for a file of another format, one that cannot be written, or without matplotlib.
    """
    if Path(path).suffix not in FORMATS:
        raise UsageError(f"--plot is {path!r}, accepted are names that end in {', '.join(FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--plot needs matplotlib; install it, or pykernel-llm[plot]") from None
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.add_subplot()
    start = 0.0
    for (label, size), colour in zip(parts.items(), COLOURS, strict=True):
        if size > 0:
            axes.barh([0], [size / _GIB], left=start, color=colour, label=f"{label} {size / _GIB:.1f}")
            start += size / _GIB
    axes.axvline(device_bytes / _GIB, color="black", linewidth=1)
    axes.set_xlabel(f"GiB on one GPU of {device_bytes / _GIB:.0f}")
    axes.set_yticks([])
    axes.set_title(title)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(f"--plot: {path} cannot be written: {error.strerror}") from None
