"""Robust fits: the coefficients of one form on one half of the shapes of a sample, judged on the other half.

Everything is seeded by the name of what is fitted, so the same tables give the same coefficients.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from pykernel.fit.forms import Array, Columns, Form, Part

MOST_POINTS = 4000
"""Shapes of the training half that a fit looks at; more change the third digit and cost minutes."""
NARROW = 0.12
"""Relative error at which the loss turns from squared to absolute: fits are for the median, not for outliers."""
SIXTEENTHS = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """Measured launches of one primitive on one part: columns of the form, seconds, and where they come from."""

    columns: Columns
    seconds: Array
    source: str

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, index: np.ndarray) -> Sample:
        return replace(self, columns={k: v[index] for k, v in self.columns.items()}, seconds=self.seconds[index])


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of one form, with 95% intervals, and the errors on the half that was not fitted."""

    values: Array
    low: Array
    high: Array
    points: int
    held_out: Array
    """Signed relative errors of the other half."""
    measured: Array
    predicted: Array

    @property
    def median(self) -> float:
        return float(np.median(np.abs(self.held_out)))

    @property
    def p90(self) -> float:
        return float(np.quantile(np.abs(self.held_out), 0.9))


def seed_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")


def fit(name: str, form: Form, sample: Sample, part: Part) -> Fit:
    """Fit `form` to a random half of the shapes of `sample` and score the other half."""
    random = np.random.default_rng(seed_of(name))
    order = random.permutation(len(sample))
    half = len(sample) // 2
    train, test = sample.take(order[:half][:MOST_POINTS]), sample.take(order[half:])
    starts = [np.array([q.start for q in form.parameters]), *_other_starts(form)]
    solved = [_solve(form, train, part, start, frozen=set()) for start in starts]
    values, spread, _ = min(solved, key=lambda found: found[2])
    if form.exponent:
        at = form.names.index(form.exponent)
        values[at] = max(round(values[at] * SIXTEENTHS), 1) / SIXTEENTHS
        values, spread, _ = _solve(form, train, part, values, frozen={at})
    values = np.array([float(f"{value:.6g}") for value in values])
    predicted = form.seconds(values, test.columns, part)
    error = predicted / test.seconds - 1
    width = np.exp(1.96 * np.minimum(spread, 10))
    return Fit(values, values / width, values * width, len(train), error, test.seconds, predicted)


def _other_starts(form: Form) -> list[Array]:
    """A second start for forms whose loss has more than one valley."""
    if not form.second_start:
        return []
    return [np.array([form.second_start.get(q.name, q.start) for q in form.parameters])]


def _solve(form: Form, train: Sample, part: Part, start: Array, frozen: set[int]) -> tuple[Array, Array, float]:
    """Coefficients, the standard error of each one's logarithm, and the loss."""
    free = [i for i in range(len(start)) if i not in frozen]
    low = np.log([form.parameters[i].low for i in free])
    high = np.log([form.parameters[i].high for i in free])
    measured = np.log(train.seconds)
    full: Array = start.astype(np.float64)

    def values(x: Array) -> Array:
        full[free] = np.exp(x)
        return full

    def residual(x: Array) -> Array:
        return np.asarray(np.log(form.seconds(values(x), train.columns, part)) - measured)

    begin = np.clip(np.log(start[free]), low + 1e-6, high - 1e-6)
    solved = least_squares(
        residual, begin, bounds=(low, high), loss="soft_l1", f_scale=NARROW, max_nfev=120, x_scale=1.0
    )
    jacobian = solved.jac
    noise = float(np.median(np.abs(residual(solved.x)))) * 1.4826
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * noise**2
    spread = np.zeros(len(start))
    spread[free] = np.sqrt(np.maximum(np.diag(covariance), 0))
    return np.array(values(solved.x)), spread, float(solved.cost)
