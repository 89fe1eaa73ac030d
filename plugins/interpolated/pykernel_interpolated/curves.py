"""Curves and surfaces through measured points: straight lines between the logarithms of load and time.

At a measured load the time is the measured one. Below the smallest load it stays that of the smallest, since a launch
has a floor; beyond the largest it grows in proportion, since a full part does twice the work in twice the time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured seconds over one load; both as natural logarithms, loads ascending."""

    loads: tuple[float, ...]
    times: tuple[float, ...]

    def log_at(self, load: float) -> float:
        """Logarithm of the seconds at the logarithm of a load."""
        loads, times = self.loads, self.times
        if load <= loads[0]:
            return times[0]
        if load >= loads[-1]:
            return times[-1] + load - loads[-1]
        index = bisect_right(loads, load)
        share = (load - loads[index - 1]) / (loads[index] - loads[index - 1])
        return times[index - 1] + share * (times[index] - times[index - 1])

    def at(self, load: float) -> float:
        """Seconds at a load above 0."""
        return math.exp(self.log_at(math.log(load)))

    def scaled(self, times: float = 1.0, loads: float = 1.0) -> Curve:
        """The curve of something that takes `times` as long at `loads` times the load."""
        if times == loads == 1.0:
            return self
        slower, later = math.log(times), math.log(loads)
        return Curve(tuple(one + later for one in self.loads), tuple(one + slower for one in self.times))


@dataclass(frozen=True, slots=True)
class Surface:
    """Measured seconds over two loads: a curve over the inner one at each of the outer."""

    outer: tuple[float, ...]
    curves: tuple[Curve, ...]

    def at(self, outer: float, inner: float) -> float:
        """Seconds at two loads above 0."""
        first, load = math.log(outer), math.log(inner)
        edges, curves = self.outer, self.curves
        if first <= edges[0]:
            return math.exp(curves[0].log_at(load))
        if first >= edges[-1]:
            return math.exp(curves[-1].log_at(load) + first - edges[-1])
        index = bisect_right(edges, first)
        share = (first - edges[index - 1]) / (edges[index] - edges[index - 1])
        low, high = curves[index - 1].log_at(load), curves[index].log_at(load)
        return math.exp(low + share * (high - low))

    def scaled(self, times: float) -> Surface:
        """The surface of something that takes `times` as long."""
        return Surface(self.outer, tuple(curve.scaled(times) for curve in self.curves))


def curve(loads: Array, seconds: Array) -> Curve:
    """The curve through measured points; points of one load count as their median."""
    places, index = np.unique(loads, return_inverse=True)
    order = np.argsort(index, kind="stable")
    groups = np.split(seconds[order], np.cumsum(np.bincount(index))[:-1])
    times = [math.log(float(np.median(group))) for group in groups]
    return Curve(tuple(math.log(place) for place in places.tolist()), tuple(times))


def surface(outer: Array, inner: Array, seconds: Array) -> Surface:
    """The surface through measured points."""
    edges = np.unique(outer)
    rows = [outer == edge for edge in edges]
    return Surface(
        tuple(math.log(edge) for edge in edges.tolist()), tuple(curve(inner[row], seconds[row]) for row in rows)
    )


def mean(curves: Sequence[Curve], weights: Iterable[float]) -> Curve:
    """The weighted geometric mean of curves, at every load that one of them was measured at."""
    loads = sorted({load for one in curves for load in one.loads})
    shares = list(weights)
    times = [sum(share * one.log_at(load) for one, share in zip(curves, shares, strict=True)) for load in loads]
    return Curve(tuple(loads), tuple(times))
