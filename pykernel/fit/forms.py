"""The forms of the measured laws, in numpy: what the C core evaluates, over arrays, for fitting and for scoring.

Each form takes its coefficients, the columns of a sample and the facts of a part, and returns seconds. Coefficients
are never negative, so a law only grows with work. A form's coefficients are flat for a part and a number format;
`csrc/measured.c` evaluates the same expressions one at a time.

Efficiencies are fractions of the part's peak and are fitted in (0, 1], so no law is faster than the roofline of the
work and of the bytes it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pykernel.measured.laws import SWITCH_RANKS

Array = npt.NDArray[np.float64]
Columns = dict[str, Array]
Values = Array | list[Any]
"""Coefficients in the order of a form's parameters; a form that builds on another hands on arrays among them."""

TILE = 128.0
"""Rows and columns of the output tile that one SM works on; query rows that one SM attends for."""
FEW_TOKENS = 16.0
"""Tokens at which the launch of grouped experts has grown by half of its ramp."""
WEIGHT_COPIES = 6.0
"""Copies of a weight that one measured launch of a GEMM takes in turn (the collectors of the tables' package)."""
DECODE_SPLIT = 256.0
"""Cached tokens that one SM streams for one KV head before another SM would share the work."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a form asks of a part: peak FLOP/s of the format, memory bytes/s, number of SMs, and the cache that hides
    the memory while a kernel is measured again and again (0 bytes where it does not)."""

    peak_flops: float
    bytes_per_second: float
    sm_count: int
    cache_bytes: float = 0.0
    cache_bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """One coefficient of a form: name, units as a registry states them, and the range and start of its fit."""

    name: str
    units: str
    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Form:
    """A law: its coefficients in order, and the seconds it gives. `exponent` names the one in sixteenths, if any."""

    name: str
    parameters: tuple[Parameter, ...]
    seconds: Callable[[Values, Columns, Part], Array]
    exponent: str = ""
    second_start: dict[str, float] = field(default_factory=dict)
    """Another place to begin, where the loss has more than one valley."""

    @property
    def names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]


def norm(exponent: float, *terms: Array) -> Array:
    """The p-norm of non-negative terms: their sum at exponent 1, their maximum at infinity."""
    total = sum((np.power(term, exponent) for term in terms), start=np.zeros(()))
    return np.asarray(np.power(total, 1.0 / exponent), dtype=np.float64)


def read_seconds(moved: Array, resident: Array, efficiency: float, part: Part) -> Array:
    """Reading `moved` bytes, of `resident` ones that the launches of a measurement read in turn.

    A cache that holds the resident bytes is read instead of the memory. Turns that do not fit evict each other before
    they come again, so that three quarters of the cache hit always and a full one never. A served step reads the rest
    of the model in between: the core prices memory alone.
    """
    memory = moved / (part.bytes_per_second * efficiency)
    if not part.cache_bytes:
        return np.asarray(memory)
    missed = np.clip(4 * resident / part.cache_bytes - 3, 0, 1)
    return np.asarray(missed * memory + (1 - missed) * moved / part.cache_bytes_per_second)


FLOOR = Parameter("floor", "us_per_layer", 4.0, 0.05, 200.0)
COMPUTE = Parameter("compute_efficiency", "dimensionless", 0.6, 0.005, 1.0)
MEMORY = Parameter("memory_efficiency", "dimensionless", 0.7, 0.005, 1.0)
EXPONENT = Parameter("exponent", "dimensionless", 2.0, 0.5, 8.0)


def _gemm(p: Values, c: Columns, part: Part) -> Array:
    floor, efficiency, k_half, wave, depth, memory, reads, writes, per_row, exponent = p
    m, n, k = c["m"], c["n"], c["k"]
    compute = 2 * m * n * k / (part.peak_flops * efficiency) * (1 + k_half / k)
    compute = compute * (1 + wave * part.sm_count * TILE * TILE / (m * n))
    bytes_ = c["weight_bytes"] * n * k
    weights = read_seconds(bytes_, WEIGHT_COPIES * bytes_, memory, part)
    activations = (reads * 2 * m * k + writes * 2 * m * n) / part.bytes_per_second
    latency = (floor + depth * np.sqrt(k) + per_row * m) * 1e-6
    return np.asarray(latency + norm(exponent, compute, weights) + activations)


GEMM = Form(
    "gemm",
    (
        FLOOR,
        COMPUTE,
        Parameter("k_half", "dimensionless", 200.0, 0.1, 20000.0),
        Parameter("wave", "dimensionless", 0.3, 1e-6, 20.0),
        Parameter("depth", "us_per_layer", 0.01, 1e-6, 1.0),
        MEMORY,
        Parameter("input_passes", "dimensionless", 0.5, 1e-3, 50.0),
        Parameter("output_passes", "dimensionless", 0.5, 1e-3, 50.0),
        Parameter("per_row", "us_per_token", 0.001, 1e-6, 1.0),
        EXPONENT,
    ),
    _gemm,
    exponent="exponent",
)


def _stream(p: Values, c: Columns, part: Part) -> Array:
    floor, memory, occupancy, efficiency, per_row, per_stream, exponent = p
    rows, tokens, heads = c["rows"], c["tokens"], c["streams"]
    streams = heads * np.maximum(rows, tokens / DECODE_SPLIT)
    moved = tokens * c["bytes_per_token"]
    read = read_seconds(moved, moved, memory, part) * (1 + occupancy * part.sm_count / streams)
    compute = tokens * c["flops_per_token"] / (part.peak_flops * efficiency)
    dispatch = rows * (per_row + per_stream * heads) * 1e-6
    return np.asarray(floor * 1e-6 + norm(exponent, read + compute, dispatch))


STREAM = Form(
    "stream",
    (
        FLOOR,
        MEMORY,
        Parameter("occupancy", "dimensionless", 0.5, 1e-3, 50.0),
        Parameter("compute_efficiency", "dimensionless", 0.3, 1e-3, 1.0),
        Parameter("per_row", "us_per_token", 0.005, 1e-5, 10.0),
        Parameter("per_stream", "us_per_request", 0.01, 1e-6, 10.0),
        EXPONENT,
    ),
    _stream,
    exponent="exponent",
)
"""Attention of query rows that each read `tokens / rows` cached tokens in `streams` heads, all of one shape: latent
attention, and the scan of a scorer."""


def _decode(p: Values, c: Columns, part: Part) -> Array:
    *stream, per_width, per_stream_width, regroup = p
    stream[0] = stream[0] + per_width * c["head_dim"] + regroup * c["regroups"]
    stream[5] = stream[5] + per_stream_width * c["head_dim"]
    return _stream(stream, c, part)


DECODE = Form(
    "decode",
    (
        *STREAM.parameters,
        Parameter("per_width", "us_per_layer", 0.01, 1e-6, 1.0),
        Parameter("per_stream_width", "us_per_request", 1e-4, 1e-8, 0.1),
        Parameter("regroup", "us_per_layer", 3.0, 0.01, 30.0),
    ),
    _decode,
    exponent="exponent",
)
"""The same over heads of any width: a launch and each of its streams fill and write tiles as wide as a head. `regroups`
is 1 where the query heads of a group are copied next to each other first, and their results back."""


def _prefill(p: Values, c: Columns, part: Part) -> Array:
    floor, efficiency, head_half, occupancy, memory, kv_passes, per_stream, exponent = p
    tiles = c["heads"] * np.maximum(1.0, c["tokens"] / TILE)
    ideal = c["pairs"] * c["flops_per_pair"] / part.peak_flops
    compute = norm(exponent, ideal / efficiency, ideal * head_half / c["head_dim"])
    compute = compute * (1 + occupancy * part.sm_count / tiles)
    moved = (c["query_bytes"] / memory + kv_passes * c["kv_bytes"]) / part.bytes_per_second
    return np.asarray((floor + per_stream * c["requests"] * c["heads"]) * 1e-6 + compute + moved)


PREFILL = Form(
    "prefill",
    (
        FLOOR,
        COMPUTE,
        Parameter("head_half", "dimensionless", 50.0, 0.1, 2000.0),
        Parameter("occupancy", "dimensionless", 0.5, 1e-4, 50.0),
        MEMORY,
        Parameter("kv_passes", "dimensionless", 3.0, 0.01, 50.0),
        Parameter("per_stream", "us_per_request", 0.01, 1e-6, 1.0),
        EXPONENT,
    ),
    _prefill,
    exponent="exponent",
)
"""The matrix products of a pair grow with the width of the head, the exponentials of the softmax do not; both units
work side by side, and `head_half` is the width at which exponentials take as long as products at the peak."""


def _experts(p: Values, c: Columns, part: Part) -> Array:
    floor, ramp, efficiency, width_half, padding, memory, passes, slot_passes, exponent = p
    work = c["flops_per_row"] * (c["rows"] + padding * c["active"]) / (part.peak_flops * efficiency)
    work = work * (1 + width_half / c["width"])
    weights = c["bytes_per_expert"] * c["active"] / (part.bytes_per_second * memory)
    moved = (passes * c["row_bytes"] + slot_passes * c["slot_bytes"]) / part.bytes_per_second
    start = (floor + ramp * c["tokens"] / (c["tokens"] + FEW_TOKENS)) * 1e-6
    return np.asarray(start + norm(exponent, work, weights) + moved)


EXPERTS = Form(
    "experts",
    (
        Parameter("floor", "us_per_layer", 20.0, 0.5, 500.0),
        Parameter("ramp", "us_per_layer", 5.0, 1e-3, 200.0),
        COMPUTE,
        Parameter("width_half", "dimensionless", 50.0, 0.1, 5000.0),
        Parameter("padding", "tokens", 8.0, 0.01, 256.0),
        MEMORY,
        Parameter("row_passes", "dimensionless", 1.0, 1e-3, 50.0),
        Parameter("slot_passes", "dimensionless", 1.0, 1e-3, 50.0),
        EXPONENT,
    ),
    _experts,
    exponent="exponent",
    second_start={"width_half": 300.0, "memory_efficiency": 0.3, "exponent": 4.0},
)
"""The routed experts of one rank: `rows` token-expert pairs that it computes, `active` experts that it reads,
`row_bytes` of those pairs' activations, `slot_bytes` of the hidden states of all pairs, its own or not."""


def _recurrent(p: Values, c: Columns, part: Part) -> Array:
    floor, state_passes, efficiency, token_passes = p
    moved = state_passes * c["state_bytes"] + token_passes * c["token_bytes"]
    taken = read_seconds(moved, c["state_bytes"] + c["token_bytes"], 1.0, part)
    return np.asarray(floor * 1e-6 + taken + c["flops"] / (part.peak_flops * efficiency))


RECURRENT = Form(
    "recurrent",
    (
        FLOOR,
        Parameter("state_passes", "dimensionless", 1.0, 1e-2, 100.0),
        Parameter("compute_efficiency", "dimensionless", 0.1, 1e-4, 1.0),
        Parameter("token_passes", "dimensionless", 1.0, 1e-3, 100.0),
    ),
    _recurrent,
)


def _collective(p: Values, c: Columns, part: Part) -> Array:
    floor, per_peer, efficiency, exponent = p
    return _linked(floor, per_peer, efficiency, exponent, c, part)


def _linked(floor: float, per_peer: float, efficiency: Any, exponent: float, c: Columns, part: Part) -> Array:
    latency = (floor + per_peer * (c["ranks"] - 1)) * 1e-6
    return norm(exponent, latency, c["link_bytes"] / (part.bytes_per_second * efficiency))


COLLECTIVE = Form(
    "collective",
    (
        Parameter("floor", "us_per_hop", 4.0, 0.1, 100.0),
        Parameter("per_peer", "us_per_hop", 0.5, 1e-3, 20.0),
        Parameter("link_efficiency", "dimensionless", 0.7, 0.01, 1.0),
        Parameter("exponent", "dimensionless", 0.75, 0.25, 4.0),
    ),
    _collective,
    exponent="exponent",
)
"""`bytes_per_second` of the part is here that of one direction of its links."""


def _bridged(p: Values, c: Columns, part: Part) -> Array:
    floor, per_peer, efficiency, bridge, exponent = p
    return _linked(floor, per_peer, link_share(c["ranks"], efficiency, bridge), exponent, c, part)


def link_share(ranks: Array, efficiency: float, bridge: float) -> Array:
    """The fraction of its link that each rank gets: more ranks than a PCIe switch holds share one bridge."""
    return np.where(ranks > SWITCH_RANKS, bridge / ranks, efficiency)


BRIDGED = Form(
    "bridged",
    (
        *COLLECTIVE.parameters[:3],
        Parameter("bridge_efficiency", "dimensionless", 0.4, 0.01, 2.0),
        COLLECTIVE.parameters[3],
    ),
    _bridged,
    exponent="exponent",
)
"""Without NVLink: two ranks meet in a PCIe switch, more go through the bridge of their host all at once."""
