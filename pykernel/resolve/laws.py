"""The numbers of the laws: coefficients in scope, in the units that the core's laws take.

Each law keeps the names of the coefficients it was made of, so that a price can be explained.

Registry floors are microseconds and become whole nanoseconds, truncated; registry rates are bytes per microsecond and
become bytes per second (inference-sim/blis-registry, cost-model sets).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from pykernel.documents import Chip
from pykernel.errors import RefusedError
from pykernel.resolve.coefficients import Coefficients
from pykernel.resolve.context_parallel import combining_operation
from pykernel.resolve.engine import EngineSettings
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import ModelFacts, StackKind
from pykernel.resolve.precision import Precision

WIDEST_SWEPT_GROUP = 16
"""Collectives were measured at 2, 4, 8 and 16 ranks; a wider group uses the widest that its part has."""

ATTENTION_KINDS = ("gqa", "swa", "mla", "sparse_mla")
RECURRENT_KINDS = ("mamba2", "kda", "gdn")


@dataclass(frozen=True, slots=True)
class GemmLaw:
    """Ramp of dense arithmetic: fraction of peak `eps_max * m / (m + m_half)` at m tokens.

    Where `by_shape`, times `n / (n + n_half)` and `k / (k + k_half)` of each matrix as one rank holds it.
    """

    eps_max: float
    m_half: float
    names: tuple[str, ...]
    by_shape: bool = False
    n_half: float = 0.0
    k_half: float = 0.0


@dataclass(frozen=True, slots=True)
class DecodeLaw:
    """Decode attention: floor and rate of streaming the cache. A rate of 0 means the device's memory rate, no floor."""

    floor_ns: int
    bytes_per_second: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PrefillLaw:
    """Prefill attention: floor, and the factor on the ramp. A scale of 0 means plain dense arithmetic, no floor."""

    floor_ns: int
    work_scale: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecurrentLaw:
    """A recurrent mixer: floor and rate of one layer."""

    floor_ns: int
    tokens_per_second: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectiveLaw:
    """One collective at one width: latency floor and two rates, bytes/s."""

    floor_ns: int
    transition_bytes_per_second: float
    peak_bytes_per_second: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostLaw:
    """Host work, ns. Of a step: one graph replay, one layer without a graph, one kernel. Around the steps: taking in a
    request and each token of its prompt, handing out a token, ending a request."""

    replay_ns: int
    eager_layer_ns: int
    kernel_ns: int
    admission_token_ns: int
    admission_request_ns: int
    output_token_ns: int
    completion_ns: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Laws:
    """Every coefficient a step's price uses."""

    hbm_bytes_per_second: float
    gemm: GemmLaw
    decode: dict[str, DecodeLaw]
    prefill: PrefillLaw
    recurrent: dict[str, RecurrentLaw]
    """By recurrent kind; a kind whose coefficients are missing is not charged."""
    imbalance: float
    collectives: dict[tuple[str, str], CollectiveLaw]
    """By operation and group: ("all_reduce", "tensor"), ("alltoall", "expert"), ..."""
    host: HostLaw


def lift_laws(
    coefficients: Coefficients,
    chip: Chip,
    layout: Layout,
    precision: Precision,
    facts: ModelFacts,
    settings: EngineSettings,
    combine: str,
) -> Laws:
    """The laws of a deployment. Raises `RefusedError` for a required coefficient that is missing or unusable."""
    hbm = _hbm_rate(coefficients, chip)
    gemm = _gemm(coefficients, precision)
    collectives = {
        (operation, group): _collective(coefficients, operation, layout.groups[group].width, chip.name)
        for operation, group in _collectives(layout, combine)
    }
    kinds = facts.priced_kinds(settings.draft_tokens > 0)
    recurrent = _recurrent(coefficients, kinds)
    decode, prefill = _attention(coefficients, kinds)
    return Laws(
        hbm, gemm, decode, prefill, recurrent, _imbalance(coefficients, kinds), collectives, _host(coefficients)
    )


def _hbm_rate(coefficients: Coefficients, chip: Chip) -> float:
    derate = coefficients.required("hbm_derate", "it scales the part's memory bandwidth")
    rate = chip.bw_peak_tbs * 1e12 * derate
    if not (rate > 0 and math.isfinite(rate)):
        raise RefusedError(f"hbm_derate is {derate}, which gives {rate} bytes/s; it must give a positive rate")
    return rate


def _gemm(coefficients: Coefficients, precision: Precision) -> GemmLaw:
    suffix = precision.suffix
    why = f"it sets the efficiency of dense work on weights served in {precision.served}"
    names = (f"gemm_eps_max_{suffix}", f"gemm_m_half_{suffix}")
    law = GemmLaw(coefficients.required(names[0], why), coefficients.required(names[1], why), names)
    shape = [name for name in (f"gemm_n_half_{suffix}", f"gemm_k_half_{suffix}") if name in coefficients]
    if len(shape) == 1:
        raise RefusedError(
            f"only {shape[0]} is given for weights served in {precision.served}; a shape-aware ramp needs both "
            f"gemm_n_half_{suffix} and gemm_k_half_{suffix}",
            "scenario.coefficients",
        )
    if shape:
        n_half, k_half = (coefficients[name] for name in shape)
        law = replace(law, names=(*names, *shape), by_shape=True, n_half=n_half, k_half=k_half)
    return law


def _recurrent(coefficients: Coefficients, layers: list[StackKind]) -> dict[str, RecurrentLaw]:
    laws = {}
    for kind in _in_order(RECURRENT_KINDS, layers, "RecurrentUpdate", "recurrent_kind"):
        consequence = f"{kind} mixers are not charged"
        floor = coefficients.optional(f"recurrent_decode_floor_{kind}", consequence)
        rate = coefficients.optional(f"recurrent_decode_rate_{kind}", consequence)
        if floor > 0 and rate > 0:
            names = (f"recurrent_decode_floor_{kind}", f"recurrent_decode_rate_{kind}")
            laws[kind] = RecurrentLaw(_ns(floor), rate * 1e6, names)
    return laws


def _in_order(vocabulary: tuple[str, ...], layers: list[StackKind], op: str, key: str) -> list[str]:
    """The members of a vocabulary that nodes of these layers use, in the vocabulary's order."""
    used = {getattr(node, key) for layer in layers for node in layer.nodes(op)}
    return [name for name in vocabulary if name in used]


def _attention(coefficients: Coefficients, layers: list[StackKind]) -> tuple[dict[str, DecodeLaw], PrefillLaw]:
    """Decode law by attention kind, and the prefill law; absent coefficients are disclosed, not required."""
    kinds = _in_order(ATTENTION_KINDS, layers, "Attention", "kind")
    if not kinds:
        return {}, PrefillLaw(0, 0.0)
    floor = _ns(coefficients.optional("attention_decode_floor", "no floor is charged for decode attention"))
    rate = 1e6 * coefficients.optional("attention_decode_rate", "decode attention reads at the memory rate, no floor")
    own_rates = {
        kind: 1e6
        * coefficients.optional(f"attention_decode_rate_{kind}", f"{kind} layers use the part-wide floor and rate")
        for kind in kinds
        if kind != "gqa"
    }
    decode = {}
    for kind in kinds:
        decode[kind] = DecodeLaw(floor, rate, ("attention_decode_floor", "attention_decode_rate"))
        if own_rates.get(kind, 0.0) > 0:
            own_floor = _ns(coefficients.get(f"attention_decode_floor_{kind}", 0.0))
            suffix = f"_{kind}" if own_floor else ""
            names = (f"attention_decode_floor{suffix}", f"attention_decode_rate_{kind}")
            decode[kind] = DecodeLaw(own_floor or floor, own_rates[kind], names)
    prefill = PrefillLaw(
        _ns(coefficients.optional("attention_prefill_floor", "no floor is charged for prefill attention")),
        coefficients.optional("attention_prefill_work_scale", "prefill attention runs as dense work, no floor"),
        ("attention_prefill_floor", "attention_prefill_work_scale"),
    )
    return decode, prefill


def _imbalance(coefficients: Coefficients, layers: list[StackKind]) -> float:
    """Factor on routed arithmetic for uneven routing; 1 where it is absent or not positive."""
    if not any(layer.routed_experts for layer in layers):
        return 1.0
    factor = coefficients.optional("moe_routing_imbalance_median", "routing is taken as even")
    return factor if factor > 0 else 1.0


def _host(coefficients: Coefficients) -> HostLaw:
    def cost(name: str) -> int:
        return _ns(coefficients.optional(f"host_{name}", "this host cost is zero"))

    return HostLaw(
        admission_token_ns=cost("admission_per_token"),
        admission_request_ns=cost("admission_per_request"),
        output_token_ns=cost("output_token"),
        completion_ns=cost("completion"),
        eager_layer_ns=cost("launch_eager_per_layer"),
        kernel_ns=cost("launch_per_kernel"),
        replay_ns=cost("replay_graph_per_step"),
        names=("host_launch_eager_per_layer", "host_launch_per_kernel", "host_replay_graph_per_step"),
    )


def _ns(microseconds: float) -> int:
    return int(microseconds * 1000)


# ---- collectives -----------------------------------------------------------------------------------------------


def _collectives(layout: Layout, combine: str) -> list[tuple[str, str]]:
    """The operations and groups that this layout may launch; the first four are looked up even on one GPU."""
    wanted = [("all_reduce", "tensor"), ("all_gather", "tensor"), ("reduce_scatter", "tensor"), ("alltoall", "expert")]
    if layout.dcp > 1:
        wanted += [("all_gather", "decode_context"), (combining_operation(layout, combine), "decode_context")]
    if layout.pcp > 1:
        wanted.append(("all_gather", "prefill_context"))
    return wanted


def _collective(coefficients: Coefficients, operation: str, width: int, chip: str) -> CollectiveLaw:
    suffix = chip.replace("-", "_")
    measured = measured_widths(coefficients, operation, chip)
    chosen = _nearest_width(width, measured, operation, chip)

    names = tuple(
        f"collective_{part}_{operation}_fp16_{chosen}rank_{suffix}"
        for part in ("floor", "transition_rate", "peak_rate")
    )
    floor, transition, peak = (coefficients[name] for name in names)
    return CollectiveLaw(_ns(floor), transition * 1e6, peak * 1e6, names)


def measured_widths(coefficients: Coefficients, operation: str, chip: str) -> list[int]:
    """Group widths for which floor, transition rate and peak rate of an operation are all in scope, ascending."""
    suffix = chip.replace("-", "_")
    floor = re.compile(rf"collective_floor_{operation}_fp16_([1-9]\d*)rank_{re.escape(suffix)}")
    widths = [int(match[1]) for name in coefficients if (match := floor.fullmatch(name))]
    return sorted(
        width
        for width in widths
        if all(
            f"collective_{part}_{operation}_fp16_{width}rank_{suffix}" in coefficients
            for part in ("peak_rate", "transition_rate")
        )
    )


def _nearest_width(width: int, measured: list[int], operation: str, chip: str) -> int:
    if measured and width <= measured[0]:
        return measured[0]
    if width in measured:
        return width
    if measured and width > WIDEST_SWEPT_GROUP:
        return measured[-1]
    found = ", ".join(map(str, measured)) or "none"
    raise RefusedError(
        f"{operation} over {width} ranks is not measured on {chip}; widths measured completely: {found}",
        "scenario.coefficients",
    )
