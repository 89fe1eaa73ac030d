"""The operations of a deployment as the engine launches them, before anything says how long one takes.

`calibrated` prices them by fitted laws; a model with another law for each operation starts here as well.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from pykernel.documents import Chip, Inputs
from pykernel.measured.engine_way import DEFAULT_ALL_TO_ALL, engine_inputs, engine_plan
from pykernel.measured.plan import MeasuredPlan, make_measured_plan
from pykernel.plan import Plan, make_plan
from pykernel.resolve import Resolved, resolve
from pykernel.resolve.disclosures import without_step_laws
from pykernel.resolve.engine import capture_sizes, data_center_blackwell
from pykernel.resolve.record import Record
from pykernel.switches import LawSwitches


@dataclass(frozen=True, slots=True)
class Operations:
    """One pool of a deployment: `measured` lists the kernels of the layers of `plan`, which has what they count.

    capture_sizes : tokens of the steps that run as graphs, ascending; a step between two runs the larger.
    """

    resolved: Resolved
    plan: Plan
    measured: MeasuredPlan
    capture_sizes: tuple[int, ...]


def operations_of(inputs: Inputs, switches: LawSwitches) -> Operations:
    """The operations of a deployment. Raises as `pykernel.resolve.resolve` does."""
    stated, inputs = inputs, engine_inputs(inputs)
    resolved = _told(resolve(inputs), stated, filled_in=inputs is not stated)
    assert inputs.model is not None and inputs.chip is not None
    plan = engine_plan(make_plan(inputs.model, resolved, switches), resolved, inputs.model.global_.hidden_size)
    measured = make_measured_plan(inputs.model, plan, resolved)
    return Operations(resolved, plan, measured, tuple(_captured(resolved, inputs.chip)))


def _told(resolved: Resolved, stated: Inputs, *, filled_in: bool) -> Resolved:
    """The same, which says what was stated and assumed: what the engine fills in is no part of the deployment."""
    record, pool = Record(), resolved.pool
    if filled_in:
        pool = copy.deepcopy(stated.deployment.pools[stated.pool])
        record.assume("all2all_backend", DEFAULT_ALL_TO_ALL, "not stated; the engine's default")
    rows = (*without_step_laws(resolved.provenance), *record.assumptions)
    return replace(resolved, pool=pool, provenance=rows)


def _captured(resolved: Resolved, chip: Chip) -> list[int]:
    settings, engine = resolved.settings, resolved.pool.engine
    if not settings.graphs.capture_tokens:
        return []
    return capture_sizes(
        settings.max_num_seqs,
        settings.max_num_batched_tokens,
        settings.graphs.uniform_width,
        1024 if data_center_blackwell(chip) else 512,
        stated=tuple(engine.cudagraph_capture_sizes),
        stated_maximum=engine.max_cudagraph_capture_size,
    )
