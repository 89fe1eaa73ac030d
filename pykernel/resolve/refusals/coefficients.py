"""Refusals for want of a coefficient: a number without which there is no truthful price."""

from __future__ import annotations

import math

from pykernel.resolve.case import Case
from pykernel.resolve.laws import hbm_rate
from pykernel.resolve.memory import MOST_BYTES, is_size
from pykernel.resolve.refusals.row import PRICE, REFERENCE, Refusal, listed, when
from pykernel.resolve.sweeps import Sweep
from pykernel.resolve.transfers import LONGEST_TIER_NAME

# ---- which coefficients hold ---------------------------------------------------------------------------------------

SCOPE = (
    Refusal(
        "coefficients-out-of-scope",
        "scenario.coefficients",
        PRICE,
        "no entry of the scenario's coefficient sets applies to the deployment",
        "nothing is known about this part, model and layout",
        "name a set that covers them",
        REFERENCE,
        lambda case: when(
            not case.coefficients,
            f"no coefficient of {listed(case.coefficients.sets)} applies to {case.coefficients.target}",
        ),
    ),
)

# ---- coefficients --------------------------------------------------------------------------------------------------

_SETS = "scenario.coefficients"


def _missing(case: Case, names: list[str]) -> str:
    absent = [name for name in names if name not in case.coefficients]
    noun = "coefficient" if len(absent) == 1 else "coefficients"
    return when(bool(absent), f"{noun} {listed(absent)} not found in {listed(case.coefficients.sets)}")


def _half_points(case: Case) -> list[str]:
    return [f"gemm_{axis}_half_{case.precision.suffix}" for axis in ("n", "k")]


def _unusable_rate(case: Case) -> bool:
    rate = hbm_rate(case.coefficients, case.chip)
    return "hbm_derate" in case.coefficients and not (rate > 0 and math.isfinite(rate))


LONGEST_US = 1e9
LARGEST = 1e24
"""Bounds far above every measurement, within which the core computes: microseconds, and all else."""

RANGES = (
    ("gemm_eps_max_", 1e-6, 1.5),
    ("gemm_", 0, LARGEST),
    ("collective_peak_rate_", 1e-36, LARGEST),
    ("collective_floor_", 0, LONGEST_US),
    ("collective_", 0, LARGEST),
    ("attention_decode_floor", 0, LONGEST_US),
    ("attention_prefill_floor", 0, LONGEST_US),
    ("attention_", 0, LARGEST),
    ("recurrent_decode_floor_", 0, LONGEST_US),
    ("recurrent_", 0, LARGEST),
    ("host_link_bandwidth", 0, LARGEST),
    ("host_", 0, LONGEST_US),
    ("activation_buffer_count_", 0, LARGEST),
)
"""Beginning of a name, and the values that coefficients of such a name may have; the first that fits counts."""


def _out_of_range(case: Case) -> str:
    """The coefficients with a value that no law could mean, each with the bounds of such values."""
    found = []
    for name, value in case.coefficients.items():
        least, most = next((bounds for beginning, *bounds in RANGES if name.startswith(beginning)), (value, value))
        if not least <= value <= most:
            found.append(f"{name} of {case.coefficients.set_of(name)} is {value}, accepted is {least:g} to {most:g}")
    return "; ".join(found)


def _unmeasured(case: Case) -> list[Sweep]:
    return [sweep for sweep in case.sweeps if not sweep.chosen]


def _widths(sweeps: list[Sweep]) -> str:
    """The widths that were measured of these collectives, by operation where they differ."""
    measured = {sweep.operation: listed(sweep.measured) for sweep in sweeps}
    if len({*measured.values()}) == 1:
        return next(iter(measured.values()))
    return "; ".join(f"{operation} {widths}" for operation, widths in measured.items())


LAWS = (
    Refusal(
        "memory-derate",
        _SETS,
        PRICE,
        "`hbm_derate` is missing",
        "it scales the part's memory bandwidth",
        "the set cost-model-primitives has it",
        REFERENCE,
        lambda case: _missing(case, ["hbm_derate"]),
    ),
    Refusal(
        "memory-rate",
        _SETS,
        PRICE,
        "`hbm_derate` gives no positive, finite memory rate",
        "memory must have a positive, finite rate",
        "a derate lies above 0 and up to 1",
        REFERENCE,
        lambda case: when(
            _unusable_rate(case),
            f"hbm_derate is {case.coefficients.get('hbm_derate')}, a memory rate of "
            f"{hbm_rate(case.coefficients, case.chip)} bytes/s",
        ),
    ),
    Refusal(
        "coefficient-range",
        _SETS,
        PRICE,
        "a coefficient that steps or buffers are priced with is negative, or beyond all reason",
        "no time, rate, count or share of a peak is like that",
        "a dense efficiency lies between 0 and 1.5, a peak rate above 0, all others at 0 or above",
        "pykernel",
        _out_of_range,
    ),
    Refusal(
        "compute-peak",
        "engine.quantization",
        PRICE,
        "the part states no positive peak for the format it would compute in",
        "the part has no arithmetic for them",
        "serve a format that the part computes in",
        REFERENCE,
        lambda case: when(
            not case.precision.peak_flops > 0,
            f"{case.chip.name} states no peak for weights served in {case.precision.served}",
        ),
        lambda case: (
            "formats that it has a peak for: "
            + listed(
                name
                for name, tflops in (
                    ("bf16", case.chip.tflops_peak),
                    ("fp8", case.chip.tflops_fp8),
                    ("nvfp4", case.chip.tflops_nvfp4),
                )
                if tflops > 0
            )
        ),
    ),
    Refusal(
        "efficiency",
        _SETS,
        PRICE,
        "`gemm_eps_max_<format>` or `gemm_m_half_<format>` is missing",
        "they set the efficiency of dense work",
        "the set cost-model-primitives has them for measured parts",
        REFERENCE,
        lambda case: _missing(case, [f"gemm_eps_max_{case.precision.suffix}", f"gemm_m_half_{case.precision.suffix}"]),
        lambda case: f"give them for weights served in {case.precision.served}",
    ),
    Refusal(
        "efficiency-by-shape",
        _SETS,
        PRICE,
        "only one of `gemm_n_half_<format>` and `gemm_k_half_<format>` is given",
        "a ramp by shape needs both",
        "give both or neither",
        REFERENCE,
        lambda case: when(
            sum(name in case.coefficients for name in _half_points(case)) == 1,
            f"of {listed(_half_points(case))} only one is given for weights served in {case.precision.served}",
        ),
    ),
    Refusal(
        "collective-width",
        _SETS,
        PRICE,
        "a collective was not measured at the width of its group, which is neither narrower than the narrowest "
        "measured nor above 16",
        "it was not measured at that width on this part",
        "take a width that was measured",
        REFERENCE,
        lambda case: when(
            bool(_unmeasured(case)),
            listed(f"{sweep.operation} over {sweep.width} ranks ({sweep.group})" for sweep in _unmeasured(case))
            + f" on {case.chip.name}",
        ),
        lambda case: f"widths measured completely: {_widths(_unmeasured(case))}",
    ),
)

MEMORY = (
    Refusal(
        "memory-magnitude",
        _SETS,
        PRICE,
        "a magnitude is missing that sizes memory: workspace, capture of the graph mode, activation scratch and "
        "buffers, or the communicator",
        "memory cannot be sized without it",
        "the sets cost-model-memory and cost-model-primitives have it",
        REFERENCE,
        lambda case: _missing(case, [*case.memory_names.sizes(), case.memory_names.activation_buffers]),
    ),
    Refusal(
        "memory-size",
        _SETS,
        PRICE,
        "such a magnitude is negative or beyond all reason",
        "it is no number of bytes",
        f"a size lies between 0 and {MOST_BYTES}",
        "pykernel",
        lambda case: next(
            (
                f"coefficient {name} is {case.coefficients[name]}"
                for name in case.memory_names.sizes()
                if name in case.coefficients and not is_size(case.coefficients[name])
            ),
            "",
        ),
    ),
    Refusal(
        "storage-name",
        "storage",
        PRICE,
        f"a storage class has a name of more than {LONGEST_TIER_NAME} bytes",
        "the core holds no longer one",
        "shorten it",
        "pykernel",
        lambda case: next(
            (
                f"the storage class {tier.name!r} has a name of more than {LONGEST_TIER_NAME} bytes"
                for tier in case.inputs.storage
                if tier is not None and (len(tier.name.encode()) > LONGEST_TIER_NAME or "\0" in tier.name)
            ),
            "",
        ),
    ),
)
