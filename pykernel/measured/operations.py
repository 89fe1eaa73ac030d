"""The operations of a deployment as the engine launches them, before anything says how long one takes.

`calibrated` prices them by fitted laws; a model with another law for each operation starts here as well.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from pykernel.documents import Chip, Inputs
from pykernel.measured.engine_way import (
    engine_inputs,
    engine_plan,
    replicates_queries,
    runs_flash_attention_2,
    with_padded_states,
)
from pykernel.measured.plan import MeasuredPlan, make_measured_plan
from pykernel.measured.weights import holding
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
    resolved = _told(resolve(inputs), stated)
    assert inputs.model is not None and inputs.chip is not None
    if switches.engine_weights:
        resolved = with_padded_states(resolved, inputs.model)
    replicated = replicates_queries(stated)
    plan = engine_plan(make_plan(inputs.model, resolved, switches), resolved, inputs.chip, inputs.model, replicated)
    measured = make_measured_plan(
        inputs.model,
        plan,
        resolved,
        windowed_heads_alone=runs_flash_attention_2(inputs.chip, resolved),
        query_copies=resolved.layout.dcp if replicated else 1,
    )
    if switches.engine_weights:
        plan = holding(plan, measured, resolved.experts)
    return Operations(resolved, plan, measured, tuple(_captured(resolved, inputs.chip)))


def _told(resolved: Resolved, stated: Inputs) -> Resolved:
    """The same, which says what was stated and assumed: what the engine fills in is no part of the deployment."""
    record, pool = Record(), stated.deployment.pools[stated.pool]
    for name in ("all2all_backend", "dcp_comm_backend"):
        used = getattr(resolved.pool.engine, name)
        if used != getattr(pool.engine, name):
            record.assume(name, used, "not stated; the engine's default")
    if replicates_queries(stated) and pool.engine.dcp_q_replicate is None:
        record.assume("dcp_q_replicate", "true", "not stated; the engine's default for this model")
    rows = (*without_step_laws(resolved.provenance), *record.assumptions)
    return replace(resolved, pool=copy.deepcopy(pool), provenance=rows)


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
