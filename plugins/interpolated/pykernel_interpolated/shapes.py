"""From tables to the curve of one kernel: the shapes that were measured, and what stands for a shape between them.

What depends on the batch (rows, tokens, bytes of a collective) is a load of the curve; what does not (widths, heads,
experts) is its shape. A shape further than `FARTHEST` times from every measured one is refused; that a matrix is
narrower than all is no reason, since it takes as long as the narrowest.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from pykernel.errors import RefusedError
from pykernel.fit.tables import Tables
from pykernel_interpolated.curves import Array, Curve, Surface, curve, mean, surface
from pykernel_interpolated.tables import Measured, measured

FARTHEST = 4.0
"""Times that each number of a shape may be larger or smaller than the measured one that stands for it."""

Shape = tuple[float, ...]


# ---- matrices --------------------------------------------------------------------------------------------------


def matrix(tables: Tables, chip: str, format_: str, n: float, k: float) -> Curve:
    """Seconds over rows of an (m, k) by (k, n) product.

    Between measured widths the logarithms are interpolated in n and k. A narrower matrix than any measured takes as
    long as the narrowest, a wider one in proportion; where the four shapes around were not all measured, the nearest
    stands for it, in proportion to n x k.
    """
    found, curves = _matrices(tables, chip, format_)
    grid = [sorted({shape[axis] for shape in curves}) for axis in (0, 1)]
    times, corners = 1.0, []
    for width, edges in zip((n, k), grid, strict=True):
        if width > edges[-1] * FARTHEST:
            raise _too_far(found, {"n": n, "k": k}, ("n", "k"), curves)
        times *= max(width / edges[-1], 1.0)
        corners.append(_between(min(max(width, edges[0]), edges[-1]), edges))
    around = [((n_, k_), n_share * k_share) for (n_, n_share), (k_, k_share) in product(*corners)]
    if all(shape in curves for shape, _ in around):
        return mean([curves[shape] for shape, _ in around], [share for _, share in around]).scaled(times)
    nearest = _nearest(found, {"n": n, "k": k}, curves)
    return curves[nearest].scaled(n * k / (nearest[0] * nearest[1]))


def _between(width: float, edges: Sequence[float]) -> list[tuple[float, float]]:
    """The measured widths around one and their shares, by logarithm; the width alone where it was measured."""
    above = bisect_left(edges, width)
    if edges[above] == width:
        return [(width, 1.0)]
    low, high = edges[above - 1], edges[above]
    share = math.log(width / low) / math.log(high / low)
    return [(low, 1 - share), (high, share)]


@lru_cache(maxsize=64)
def _matrices(tables: Tables, chip: str, format_: str) -> tuple[Measured, Mapping[Shape, Curve]]:
    found = measured(tables, chip, "gemm", format_)
    columns, seconds = found.sample.columns, found.sample.seconds
    groups = _grouped(columns["n"], columns["k"])
    return found, {shape: curve(columns["m"][rows], seconds[rows]) for shape, rows in groups}


# ---- attention -------------------------------------------------------------------------------------------------


def decode(
    tables: Tables, chip: str, operation: str, format_: str, kv_heads: float, read: float, work: float
) -> Surface:
    """Seconds over requests and the cached tokens that each reads, on average.

    `read` and `work` are bytes and FLOP of one cached token. Between measured heads the nearest stands in, in
    proportion to the bytes, and to the FLOP where the bytes are the same.
    """
    found, surfaces = _decodes(tables, chip, operation, format_)
    asked = {"kv heads": kv_heads, "bytes": read, "FLOP": work}
    nearest = _nearest(found, asked, surfaces)
    same_bytes = math.isclose(read, nearest[1])
    return surfaces[nearest].scaled(work / nearest[2] if same_bytes else read / nearest[1])


@lru_cache(maxsize=64)
def _decodes(tables: Tables, chip: str, operation: str, format_: str) -> tuple[Measured, Mapping[Shape, Surface]]:
    found = measured(tables, chip, operation, format_)
    columns, seconds = found.sample.columns, found.sample.seconds
    groups = _grouped(columns["kv_heads"], columns["bytes_per_token"], columns["flops_per_token"])
    return found, {
        shape: surface(columns["rows"][rows], (columns["tokens"] / columns["rows"])[rows], seconds[rows])
        for shape, rows in groups
    }


def rows_of_queries(tables: Tables, chip: str, operation: str, work: float) -> Surface:
    """Seconds of sparse attention or of an indexer over query rows and the tokens that each reads or scores.

    `work` is FLOP of one of these. The kernels are measured at one number of heads, to which they pad fewer: less work
    takes as long, more in proportion.
    """
    found, surfaces = _queries(tables, chip, operation)
    (measured_work,) = min(surfaces, key=lambda shape: abs(math.log(shape[0] / work)))
    if work > measured_work * FARTHEST:
        raise _too_far(found, {"FLOP": work}, ("FLOP",), surfaces)
    return surfaces[(measured_work,)].scaled(max(work / measured_work, 1.0))


@lru_cache(maxsize=64)
def _queries(tables: Tables, chip: str, operation: str) -> tuple[Measured, Mapping[Shape, Surface]]:
    found = measured(tables, chip, operation, "fp8")
    columns, seconds = found.sample.columns, found.sample.seconds
    return found, {
        shape: surface(columns["rows"][rows], (columns["tokens"] / columns["rows"])[rows], seconds[rows])
        for shape, rows in _grouped(columns["flops_per_token"])
    }


def prefill(
    tables: Tables, chip: str, operation: str, format_: str, heads: float, kv_heads: float, head_dim: float
) -> Surface:
    """Seconds over requests and the query-key pairs of each, on average.

    A chunk behind a prefix is taken for a whole prompt of as many pairs. Between measured heads the nearest stands in,
    in proportion to heads x width.
    """
    found, surfaces = _prefills(tables, chip, operation, format_)
    nearest = _nearest(found, {"heads": heads, "kv heads": kv_heads, "width": head_dim}, surfaces)
    return surfaces[nearest].scaled(heads * head_dim / (nearest[0] * nearest[2]))


@lru_cache(maxsize=64)
def _prefills(tables: Tables, chip: str, operation: str, format_: str) -> tuple[Measured, Mapping[Shape, Surface]]:
    found = measured(tables, chip, operation, format_)
    columns, seconds = found.sample.columns, found.sample.seconds
    kv_heads = columns["kv_bytes"] / (4 * columns["tokens"] * columns["head_dim"])
    requests = columns["requests"]
    groups = _grouped(columns["heads"], np.round(kv_heads), columns["head_dim"])
    return found, {
        shape: surface(requests[rows], (columns["pairs"] / requests)[rows], seconds[rows]) for shape, rows in groups
    }


# ---- experts, mixers, links ------------------------------------------------------------------------------------


def experts(
    tables: Tables, chip: str, format_: str, hidden: float, width: float, top_k: float, count: float, ranks: float
) -> Curve:
    """Seconds over the tokens that meet at a rank, which holds `count / ranks` experts of `hidden` x `width`.

    Where a shape was not measured, the nearest stands in at the same load of an expert, in proportion to the weights
    that the rank holds.
    """
    found, curves = _experts(tables, chip, format_)
    asked = {"hidden": hidden, "width": width, "top_k": top_k, "experts": count, "ranks": ranks}
    exact = (hidden, width, top_k, count, ranks)
    if exact in curves:
        return curves[exact]
    local, load = count / ranks, top_k / count

    def far(shape: Shape) -> Iterable[float]:
        return (shape[0] / hidden, shape[1] / width, shape[3] / shape[4] / local, shape[2] / shape[3] / load)

    nearest = min(curves, key=lambda shape: _distance(far(shape)))
    if _largest(far(nearest)) > FARTHEST:
        raise _too_far(found, asked, tuple(asked), curves)
    weights = local * hidden * width / (nearest[3] / nearest[4] * nearest[0] * nearest[1])
    return curves[nearest].scaled(weights, nearest[2] / nearest[3] / load)


@lru_cache(maxsize=64)
def _experts(tables: Tables, chip: str, format_: str) -> tuple[Measured, Mapping[Shape, Curve]]:
    found = measured(tables, chip, "experts", format_)
    columns, seconds = found.sample.columns, found.sample.seconds
    groups = _grouped(*(columns[name] for name in ("hidden", "width", "top_k", "experts", "ranks")))
    return found, {shape: curve(columns["tokens"][rows], seconds[rows]) for shape, rows in groups}


@lru_cache(maxsize=64)
def mixer(tables: Tables, chip: str, operation: str) -> Surface:
    """Seconds of a recurrent mixer over the tokens of each request and the bytes of state of all together."""
    sample = measured(tables, chip, operation, "bf16").sample
    state = sample.columns["state_bytes"]
    return surface(np.round(sample.columns["flops"] / (2 * state), 3), state, sample.seconds)


def link(tables: Tables, chip: str, operation: str, kernel: str, ranks: float) -> Curve:
    """Seconds of a collective over the bytes that cross one rank's link; the nearest measured width stands in."""
    found, curves = _links(tables, chip, operation, kernel)
    return curves[_nearest(found, {"ranks": ranks}, curves)]


@lru_cache(maxsize=64)
def _links(tables: Tables, chip: str, operation: str, kernel: str) -> tuple[Measured, Mapping[Shape, Curve]]:
    found = measured(tables, chip, operation, kernel)
    columns, seconds = found.sample.columns, found.sample.seconds
    return found, {
        shape: curve(columns["link_bytes"][rows], seconds[rows]) for shape, rows in _grouped(columns["ranks"])
    }


# ---- shapes ----------------------------------------------------------------------------------------------------


def _grouped(*columns: Array) -> list[tuple[Shape, npt.NDArray[np.intp]]]:
    """The different shapes of some rows, and the places of the rows of each."""
    shapes, index = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    order = np.argsort(index.ravel(), kind="stable")
    places = np.split(order, np.cumsum(np.bincount(index.ravel()))[:-1])
    return [(tuple(shape.tolist()), rows) for shape, rows in zip(shapes, places, strict=True)]


def _nearest(found: Measured, asked: Mapping[str, float], shapes: Iterable[Shape]) -> Shape:
    """The measured shape at the least distance. Raises `RefusedError` where a number of it is too far off."""
    wanted = tuple(asked.values())

    def far(shape: Shape) -> Iterable[float]:
        return (one / other for one, other in zip(shape, wanted, strict=True))

    known = list(shapes)
    nearest = min(known, key=lambda shape: _distance(far(shape)))
    if _largest(far(nearest)) > FARTHEST:
        raise _too_far(found, asked, tuple(asked), known)
    return nearest


def _distance(ratios: Iterable[float]) -> float:
    return sum(abs(math.log(ratio)) for ratio in ratios)


def _largest(ratios: Iterable[float]) -> float:
    return max(max(ratio, 1 / ratio) for ratio in ratios)


def _too_far(
    found: Measured, asked: Mapping[str, float], names: Sequence[str], shapes: Iterable[Shape]
) -> RefusedError:
    known = list(shapes)
    wanted = ", ".join(f"{name} {value:g}" for name, value in asked.items())
    covered = ", ".join(
        f"{name} {min(shape[place] for shape in known):g} to {max(shape[place] for shape in known):g}"
        for place, name in enumerate(names)
    )
    return RefusedError(
        f"{found.name} of {wanted} is more than {FARTHEST:g} times away from every shape of {found.sample.source}, "
        f"which covers {covered}",
        "model",
    )
