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

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Columns = dict[str, Array]

TILE = 128.0
"""Rows and columns of the output tile that one SM works on; query rows that one SM attends for."""
FEW_TOKENS = 16.0
"""Tokens at which the launch of grouped experts has grown by half of its ramp."""
DECODE_SPLIT = 256.0
"""Cached tokens that one SM streams for one KV head before another SM would share the work."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a form asks of a part: peak FLOP/s of the format, memory bytes/s, number of SMs."""

    peak_flops: float
    bytes_per_second: float
    sm_count: int


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
    seconds: Callable[[Array, Columns, Part], Array]
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


FLOOR = Parameter("floor", "us_per_layer", 4.0, 0.05, 200.0)
COMPUTE = Parameter("compute_efficiency", "dimensionless", 0.6, 0.005, 1.0)
MEMORY = Parameter("memory_efficiency", "dimensionless", 0.7, 0.005, 1.0)
EXPONENT = Parameter("exponent", "dimensionless", 2.0, 0.5, 8.0)


def _gemm(p: Array, c: Columns, part: Part) -> Array:
    floor, efficiency, k_half, wave, depth, memory, reads, writes, per_row, exponent = p
    m, n, k = c["m"], c["n"], c["k"]
    compute = 2 * m * n * k / (part.peak_flops * efficiency) * (1 + k_half / k)
    compute = compute * (1 + wave * part.sm_count * TILE * TILE / (m * n))
    weights = c["weight_bytes"] * n * k / (part.bytes_per_second * memory)
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


def _decode(p: Array, c: Columns, part: Part) -> Array:
    floor, memory, occupancy, efficiency, per_row, per_stream, exponent = p
    rows, tokens, heads = c["rows"], c["tokens"], c["kv_heads"]
    streams = heads * np.maximum(rows, tokens / DECODE_SPLIT)
    read = tokens * c["bytes_per_token"] / (part.bytes_per_second * memory) * (1 + occupancy * part.sm_count / streams)
    compute = tokens * c["flops_per_token"] / (part.peak_flops * efficiency)
    dispatch = rows * (per_row + per_stream * heads) * 1e-6
    return np.asarray(floor * 1e-6 + norm(exponent, read + compute, dispatch))


DECODE = Form(
    "decode",
    (
        FLOOR,
        MEMORY,
        Parameter("occupancy", "dimensionless", 0.5, 1e-3, 50.0),
        Parameter("compute_efficiency", "dimensionless", 0.3, 1e-3, 1.0),
        Parameter("per_row", "us_per_token", 0.005, 1e-5, 10.0),
        Parameter("per_stream", "us_per_request", 0.01, 1e-6, 10.0),
        EXPONENT,
    ),
    _decode,
    exponent="exponent",
)
"""Attention of query rows that each read `tokens / rows` cached tokens; also the scan of a scorer."""


def _prefill(p: Array, c: Columns, part: Part) -> Array:
    floor, efficiency, head_half, occupancy, memory, kv_passes, per_stream = p
    tiles = c["heads"] * np.maximum(1.0, c["tokens"] / TILE)
    compute = c["pairs"] * c["flops_per_pair"] / (part.peak_flops * efficiency)
    compute = compute * (1 + head_half / c["head_dim"]) * (1 + occupancy * part.sm_count / tiles)
    moved = (c["query_bytes"] / memory + kv_passes * c["kv_bytes"]) / part.bytes_per_second
    return np.asarray((floor + per_stream * c["requests"] * c["heads"]) * 1e-6 + compute + moved)


PREFILL = Form(
    "prefill",
    (
        FLOOR,
        Parameter("compute_efficiency", "dimensionless", 0.6, 0.005, 2.0),
        Parameter("head_half", "dimensionless", 50.0, 0.1, 2000.0),
        Parameter("occupancy", "dimensionless", 0.5, 1e-4, 50.0),
        MEMORY,
        Parameter("kv_passes", "dimensionless", 3.0, 0.01, 50.0),
        Parameter("per_stream", "us_per_request", 0.01, 1e-6, 1.0),
    ),
    _prefill,
)
"""The efficiency is that of the two matrix products in the limit of a wide head, where they hide the exponentials of
the softmax; it can pass 1 while `1 + head_half / head_dim` keeps the whole below the peak. The core holds every
kernel to the roofline beside."""


def _experts(p: Array, c: Columns, part: Part) -> Array:
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


def _recurrent(p: Array, c: Columns, part: Part) -> Array:
    floor, state_passes, efficiency, token_passes = p
    moved = (state_passes * c["state_bytes"] + token_passes * c["token_bytes"]) / part.bytes_per_second
    return np.asarray(floor * 1e-6 + moved + c["flops"] / (part.peak_flops * efficiency))


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


def _collective(p: Array, c: Columns, part: Part) -> Array:
    floor, per_rank, efficiency, exponent = p
    latency = (floor + per_rank * c["ranks"]) * 1e-6
    return norm(exponent, latency, c["link_bytes"] / (part.bytes_per_second * efficiency))


COLLECTIVE = Form(
    "collective",
    (
        Parameter("floor", "us_per_hop", 4.0, 0.1, 100.0),
        Parameter("per_rank", "us_per_hop", 0.5, 1e-3, 20.0),
        Parameter("link_efficiency", "dimensionless", 0.7, 0.01, 1.0),
        Parameter("exponent", "dimensionless", 0.75, 0.25, 4.0),
    ),
    _collective,
    exponent="exponent",
)
"""`bytes_per_second` of the part is here that of one direction of its links."""
