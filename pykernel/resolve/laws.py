"""The numbers of the laws: coefficients in scope, in the units that the core's laws take.

Each law keeps the names of the coefficients it was made of, so that a price can be explained.

Registry floors are microseconds and become whole nanoseconds, truncated; registry rates are bytes per microsecond and
become bytes per second (inference-sim/blis-registry, cost-model sets).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pykernel.documents import Chip
from pykernel.resolve.case import Case
from pykernel.resolve.coefficients import Coefficients
from pykernel.resolve.model_facts import StackKind
from pykernel.resolve.sweeps import Sweep, part_in_names

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


def lift_laws(case: Case) -> Laws:
    """The laws of a deployment whose required coefficients are there."""
    coefficients = case.coefficients
    decode, prefill = _attention(coefficients, case.priced_attentions)
    return Laws(
        hbm_bytes_per_second=hbm_rate(coefficients, case.chip),
        gemm=_gemm(coefficients, case.precision.suffix),
        decode=decode,
        prefill=prefill,
        recurrent=_recurrent(coefficients, case.priced_mixers),
        imbalance=_imbalance(coefficients, case.facts.priced_kinds),
        collectives={
            (sweep.operation, sweep.group): _collective(coefficients, sweep, case.chip.name) for sweep in case.sweeps
        },
        host=_host(coefficients),
    )


def hbm_rate(coefficients: Coefficients, chip: Chip) -> float:
    """Bytes/s that the part's memory sustains; 0 without its derate."""
    return chip.bw_peak_tbs * 1e12 * coefficients.get("hbm_derate", 0.0)


def _gemm(coefficients: Coefficients, suffix: str) -> GemmLaw:
    names = (f"gemm_eps_max_{suffix}", f"gemm_m_half_{suffix}")
    law = GemmLaw(coefficients[names[0]], coefficients[names[1]], names)
    shape = (f"gemm_n_half_{suffix}", f"gemm_k_half_{suffix}")
    if not all(name in coefficients for name in shape):
        return law
    n_half, k_half = (coefficients[name] for name in shape)
    return replace(law, names=(*names, *shape), by_shape=True, n_half=n_half, k_half=k_half)


def _recurrent(coefficients: Coefficients, kinds: frozenset[str]) -> dict[str, RecurrentLaw]:
    """By kind of mixer; one without a positive pair is not charged."""
    laws = {}
    for kind in RECURRENT_KINDS:
        names = (f"recurrent_decode_floor_{kind}", f"recurrent_decode_rate_{kind}")
        floor, rate = (coefficients.get(name, 0.0) for name in names)
        if kind in kinds and floor > 0 and rate > 0:
            laws[kind] = RecurrentLaw(_ns(floor), rate * 1e6, names)
    return laws


def _attention(coefficients: Coefficients, kinds: frozenset[str]) -> tuple[dict[str, DecodeLaw], PrefillLaw]:
    """Decode law by attention kind, and the prefill law; a kind without a rate of its own has the part-wide pair."""
    floor = _ns(coefficients.get("attention_decode_floor", 0.0))
    rate = 1e6 * coefficients.get("attention_decode_rate", 0.0)
    decode = {}
    for kind in ATTENTION_KINDS:
        own = 1e6 * own_attention_rate(coefficients, kind)
        if kind in kinds and own > 0:
            own_floor = _ns(coefficients.get(f"attention_decode_floor_{kind}", 0.0))
            suffix = f"_{kind}" if own_floor else ""
            names = (f"attention_decode_floor{suffix}", f"attention_decode_rate_{kind}")
            decode[kind] = DecodeLaw(own_floor or floor, own, names)
        elif kind in kinds:
            part_wide = ("attention_decode_floor", "attention_decode_rate")
            decode[kind] = DecodeLaw(floor, rate, part_wide if rate > 0 else ("attention_decode_rate", "hbm_derate"))
    names = ("attention_prefill_floor", "attention_prefill_work_scale")
    prefill = PrefillLaw(_ns(coefficients.get(names[0], 0.0)), coefficients.get(names[1], 0.0), names)
    return decode, prefill if kinds else PrefillLaw(0, 0.0)


def own_attention_rate(coefficients: Coefficients, kind: str) -> float:
    """Bytes/us of a kind's own decode rate; full attention has none but the part-wide one."""
    return 0.0 if kind == "gqa" else coefficients.get(f"attention_decode_rate_{kind}", 0.0)


def _imbalance(coefficients: Coefficients, layers: list[StackKind]) -> float:
    """Factor on routed arithmetic for uneven routing; 1 where it is absent or not positive."""
    routes = any(layer.routed_experts for layer in layers)
    factor = coefficients.get("moe_routing_imbalance_median", 0.0) if routes else 0.0
    return factor if factor > 0 else 1.0


def _host(coefficients: Coefficients) -> HostLaw:
    def cost(name: str) -> int:
        return _ns(coefficients.get(f"host_{name}", 0.0))

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


def _collective(coefficients: Coefficients, sweep: Sweep, chip: str) -> CollectiveLaw:
    suffix = f"{sweep.operation}_fp16_{sweep.chosen}rank_{part_in_names(coefficients, chip)}"
    names = tuple(f"collective_{part}_{suffix}" for part in ("floor", "transition_rate", "peak_rate"))
    floor, transition, peak = (coefficients[name] for name in names)
    return CollectiveLaw(_ns(floor), transition * 1e6, peak * 1e6, names)


def _ns(microseconds: float) -> int:
    return int(microseconds * 1000)
