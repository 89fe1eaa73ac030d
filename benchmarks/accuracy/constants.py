"""Fits the serving constants on training rows: host and small-kernel time that no kernel table holds.

    python -m benchmarks.accuracy.constants --rows measured.csv --out calibrated-host.yaml

A step's price is linear in the constants, and the steps of a closed loop do not depend on their prices, so each row
gives a few sums once, over which the fit runs in seconds. Only rows of the split `train` are looked at. The kernels'
scale is fitted on vLLM rows and kept for the other engines, which differ in host constants alone and whose few groups
are held near vLLM's constants, so that no one kernel's error ends up in them. Needs numpy, scipy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from benchmarks.accuracy.prototype import Prototype, Steps
from benchmarks.accuracy.rows import Row, inputs_of, read_rows
from benchmarks.accuracy.simulator import Floats, Schedule, Step, schedule
from pykernel.documents import CoefficientSet, Repos, Scope
from pykernel.documents.coefficients import Coefficient, CoefficientSource, dump
from pykernel.fit.sets import rounded

SHAPE = 4.0
"""Shape of the popularity of experts, chosen on validation rows among 1, 4 and 50."""
TTFT_WEIGHT = 0.2
"""Weight of errors of the time to first token beside those per output token."""
PRIOR_WEIGHT = 0.5
"""Weight, for each row, of a constant's logarithmic distance from vLLM's; chosen on validation rows among 0, 0.1, 0.2,
0.3, 0.4, 0.5, 0.7 and 1, as the least with which TensorRT-LLM's are within 12%."""
ENGINES = ("vllm", "trtllm", "sglang")


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: its name, units, the sum that it multiplies, and a first guess in seconds."""

    name: str
    units: str
    column: int
    start: float


KERNELS, NORMS, LAYERS, REQUESTS, STEPS, PROMPT_TOKENS, PROMPT_LAYERS = range(7)
PREPARED = (
    Constant("layer", "us_per_layer", LAYERS, 1e-5),
    Constant("prompt_layer", "us_per_layer", PROMPT_LAYERS, 3e-4),
    Constant("prompt_token", "us_per_token", PROMPT_TOKENS, 1e-6),
)
UNPREPARED = (
    Constant("unprepared_step", "us_per_step", STEPS, 1e-3),
    Constant("unprepared_request", "us_per_request", REQUESTS, 1e-5),
)
ADMISSION = "admission"
"""From the client to the scheduler and back, seconds of a request that no step holds: it is in TTFT alone."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What the constants multiply, for each row (first axis), in TPOT and in TTFT."""

    rows: list[Row]
    tpot: Floats
    ttft: Floats


def _described(steps: Sequence[Step]) -> Floats:
    """Decodes, their mean context, prefills, their tokens, and their mean length, a row a step."""
    found = []
    for step in steps:
        decode = step.scheduled == 1
        count, prompts = int(decode.sum()), step.scheduled[~decode]
        context = float(step.computed[decode].sum() + count) / max(count, 1)
        tokens = float(prompts.sum())
        pairs = float((prompts * (prompts / 2 + step.computed[~decode])).sum())
        found.append((count, context, len(prompts), tokens, 2 * pairs / max(tokens, 1)))
    return np.array(found, dtype=float).reshape(-1, 5)


def _features(made: Schedule, prototype: Prototype) -> Floats:
    """The sums over each segment."""
    described = np.concatenate(
        [_described([s.first for s in made.segments]), _described([s.last for s in made.segments])]
    )
    described[:, 1] = np.round(described[:, 1] / 32) * 32  # so that equal steps are priced once
    unique, inverse = np.unique(described, axis=0, return_inverse=True)
    decodes, context, prefills, tokens, length = unique.T
    steps = Steps(decodes, np.maximum(context, 1), prefills, tokens, length, (prefills == 0).astype(float))
    prices = prototype.prices(steps)
    layers = np.full(len(unique), float(prices.layers))
    loaded = layers * (prefills > 0)
    columns = [prices.kernel_sum, prices.elementwise, layers, decodes + prefills, np.ones(len(unique)), tokens, loaded]
    table = np.stack(columns, axis=1)[inverse.ravel()]
    half = len(made.segments)
    counts = np.array([segment.count for segment in made.segments], dtype=float)[:, None]
    return np.asarray(counts * (table[:half] + table[half:]) / 2)


def sums_of(rows: Sequence[Row]) -> Sums:
    prototypes: dict[tuple[object, ...], Prototype] = {}
    tpot, ttft = [], []
    for row in rows:
        if row.deployment not in prototypes:
            prototypes[row.deployment] = Prototype(inputs_of(row), SHAPE)
        made = schedule(row)
        times = np.concatenate([np.zeros((1, 7)), np.cumsum(_features(made, prototypes[row.deployment]), axis=0)])
        gaps = np.maximum(np.array(made.outputs, dtype=float) - 1, 1)[:, None]
        ttft.append((times[made.first] - times[made.arrived]).mean(axis=0))
        tpot.append(((times[made.ended] - times[made.first]) / gaps).mean(axis=0))
    return Sums(list(rows), np.array(tpot), np.array(ttft))


def fit(sums: Sums, near: Mapping[str, float] | None = None) -> dict[str, float]:
    """The constants in registry units; groups weigh alike. With those of another engine, the kernels' scale is taken
    from them and the others are held near them."""
    measured = np.array([row.tpot_ms for row in sums.rows]) * 1e-3
    first = np.array([row.ttft_ms for row in sums.rows]) * 1e-3
    unprepared = np.array([not row.asynchronous for row in sums.rows])
    groups = [row.group for row in sums.rows]
    weight = np.array([1 / np.sqrt(groups.count(group)) for group in groups])
    weight /= weight.mean()
    constants = [*PREPARED, *(UNPREPARED if unprepared.any() else ())]

    def predicted(values: Floats, table: Floats) -> Floats:
        total = values[0] * table[:, KERNELS] + table[:, NORMS]
        for value, constant in zip(values[2:], constants, strict=True):
            column = table[:, constant.column]
            total = total + value * (column * unprepared if constant in UNPREPARED else column)
        return np.asarray(total)

    known = np.isfinite(first) & (first > 0)
    centre = np.array([near[constant.name] * 1e-6 if near else constant.start for constant in constants])
    pull = PRIOR_WEIGHT * np.sqrt(len(sums.rows)) if near else 0.0

    def residual(values: Floats) -> Floats:
        tokens = weight * np.log(predicted(values, sums.tpot) / measured)
        prompts = weight * np.log((values[1] + predicted(values, sums.ttft)) / np.where(known, first, 1))
        apart = np.log(np.maximum(values[2:] / centre, 1e-9))
        return np.concatenate([tokens, TTFT_WEIGHT * prompts[known], pull * apart])

    scale = near["kernel_scale"] if near else 0.95
    start = np.array([scale, 1e-2, *(constant.start for constant in constants)])
    low, high = np.zeros(len(start)), start * 1000
    low[0], high[0] = (scale - 1e-9, scale + 1e-9) if near else (0.3, 1.5)
    found = least_squares(residual, start, bounds=(low, high), loss="soft_l1", f_scale=0.1, x_scale=start).x
    names = [ADMISSION, *(constant.name for constant in constants)]
    values = {name: rounded(float(value) * 1e6) for name, value in zip(names, found[1:], strict=True)}
    return {"kernel_scale": scale if near else rounded(float(found[0])), **values}


def coefficient_set(fitted: dict[str, dict[str, float]], source: str) -> CoefficientSet:
    parts = sorted(path.stem for path in (Repos().catalog_root() / "hardware").glob("*.yaml"))
    shape = Coefficient(
        "calibrated.routing.shape", SHAPE, "dimensionless", "assumed", False, Scope(hardware=parts),
        rationale="Shape of the gamma distribution of expert popularity, chosen on validation rows among 1, 4 and 50.",
    )  # fmt: skip
    units = {constant.name: constant.units for constant in (*PREPARED, *UNPREPARED)} | {ADMISSION: "us_per_request"}
    entries = [shape]
    for engine, values in fitted.items():
        for name, value in values.items():
            entries.append(
                Coefficient(
                    f"calibrated.{'client' if name == ADMISSION else 'host'}_{engine}.{name}",
                    value or 1e-6,
                    units.get(name, "dimensionless"),
                    "measured",
                    True,
                    Scope(hardware=parts),
                    sources=[CoefficientSource("discussion", source, "primary")],
                )
            )
    return CoefficientSet(CoefficientSet.KIND, "calibrated-host", entries)


_HEADER = """\
# Serving constants of the measured laws, fitted by benchmarks/accuracy/constants.py to the training rows of the
# accuracy benchmark; regenerate, do not edit. One set of host constants an engine; kernel_scale is that of vLLM for
# all three. client_<engine>.admission is no part of a step: the benchmark adds it to the time to first token.
# Source: measured serving runs in systems/silicon_sample.csv of PyPI package aiconfigurator-core 0.12.0 (Apache-2.0),
# most of them SemiAnalysis InferenceX runs (Apache-2.0).
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.constants", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rows", required=True, metavar="FILE")
    parser.add_argument("--out", required=True, metavar="FILE")
    options = parser.parse_args(argv)
    rows = read_rows(options.rows, "train")
    fitted: dict[str, dict[str, float]] = {}
    for engine in ENGINES:
        own = [row for row in rows if row.backend == engine]
        fitted[engine] = fit(sums_of(own), fitted.get("vllm"))
        # Only vLLM has rows without asynchronous scheduling; what its host then takes stands for the others.
        fitted[engine] = {**{c.name: fitted["vllm"][c.name] for c in UNPREPARED}, **fitted[engine]}
        print(engine, fitted[engine], file=sys.stderr)
    source = "training rows of benchmarks/accuracy (aiconfigurator-core 0.12.0, systems/silicon_sample.csv)"
    Path(options.out).write_text(_HEADER + dump(coefficient_set(fitted, source)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
