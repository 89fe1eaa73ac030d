"""The step-time models that are scored, by name, each built for one row's deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

import pykernel
from benchmarks.accuracy.rows import Row, inputs_of
from benchmarks.accuracy.simulator import Floats, Step
from pykernel.documents import Repos
from pykernel.documents.coefficients import load
from pykernel.kernel import Kernel
from pykernel.switches import LawSwitches

Pricer = Callable[[Sequence[Step]], Floats]
"""Seconds of each of some steps."""


def kernel_of(name: str, row: Row) -> pykernel.CostModel:
    """The cost model of a row's deployment. Raises a `PykernelError` where there is none."""
    inputs = inputs_of(row)
    if name == "calibrated":
        return Kernel(inputs, switches=LawSwitches(measured=True, engine=row.backend))
    if name == "interpolated":
        from pykernel_interpolated.model import Interpolated  # a plug-in, of which the row's engine can be asked

        return Interpolated(inputs, engine=row.backend)
    return pykernel.new(inputs, model=name)


def admission_ms(name: str, row: Row) -> float:
    """Milliseconds of a request outside the engine's steps, which a model may have beside them."""
    if name != "calibrated":
        return 0.0
    return _admissions().get(row.backend, 0.0)


@cache
def _admissions() -> dict[str, float]:
    path = Repos().registry_root() / "coefficients" / "calibrated-host.yaml"
    found = {}
    for entry in load(path).coefficients:
        _, law, parameter = entry.name.split(".")
        if parameter == "admission":
            found[law.removeprefix("client_")] = entry.value * 1e-3
    return found


def pricer(kernel: pykernel.CostModel) -> Pricer:
    """A function that prices steps with a cost model; the sum of the resources, as a simulator would use it."""
    estimate = pykernel.StepEstimate()

    def price(steps: Sequence[Step]) -> Floats:
        seconds = np.empty(len(steps))
        for index, step in enumerate(steps):
            batch = pykernel.Batch.from_arrays(step.scheduled, step.computed, step.scheduled + step.computed)
            kernel.step_time_into(batch, estimate)
            seconds[index] = estimate.no_overlap_ns * 1e-9
        return seconds

    return price
