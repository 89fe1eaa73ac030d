"""Where the published descriptions and the engine differ, and `calibrated` takes the engine's way.

Each function is one such difference of what runs; which matrices are 16-bit or replicated is in `formats` and `plan`,
that pad rows skip routed experts and that graphs run at captured sizes is the core's part of the measured laws.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from pykernel.collectives import ACTIVATION_BYTES, CollectivePlan
from pykernel.documents import Inputs
from pykernel.plan import LayerPlan, Plan
from pykernel.resolve import Resolved

DEFAULT_ALL_TO_ALL = "allgather_reducescatter"
CUSTOM_WIDTHS = (2, 4, 6, 8)
"""Groups that the custom and FlashInfer all-reduce kernels serve on one node (vllm cuda_communicator.py at v0.31.0)."""


def engine_inputs(inputs: Inputs) -> Inputs:
    """The documents with what the engine fills in before anything else looks at it."""
    pools = getattr(inputs.deployment, "pools", None)
    if not pools or not isinstance(inputs.pool, int) or not 0 <= inputs.pool < len(pools):
        return inputs  # resolution reports what is wrong
    pool = pools[inputs.pool]
    if pool.engine.all2all_backend or not pool.parallel.enable_expert_parallel:
        return inputs
    # An unstated backend is this one, which engages sequence-parallel experts (vllm/config/parallel.py at v0.31.0).
    deployment = copy.deepcopy(inputs.deployment)
    deployment.pools[inputs.pool].engine.all2all_backend = DEFAULT_ALL_TO_ALL
    return replace(inputs, deployment=deployment)


def engine_plan(plan: Plan, resolved: Resolved, hidden_size: int) -> Plan:
    """The plan with the launches that the engine makes."""

    def adapted(layers: list[LayerPlan]) -> list[LayerPlan]:
        return [_layer(layer, resolved, hidden_size) for layer in layers]

    return replace(plan, layers=adapted(plan.layers), draft_layers=adapted(plan.draft_layers))


def _layer(layer: LayerPlan, resolved: Resolved, hidden_size: int) -> LayerPlan:
    layer = copy.copy(layer)
    layer.collectives = [one for planned in layer.collectives for one in _collectives(planned, resolved, hidden_size)]
    attention = layer.attention
    if attention and attention.kind == "sparse_mla" and attention.read.top_k:
        # A query of a prefill gathers as many entries as one of a decode.
        window = attention.read.top_k * attention.read.compress_ratio + attention.read.window
        layer.attention = replace(attention, prefill_window=window)
    return layer


def _collectives(planned: CollectivePlan, resolved: Resolved, hidden_size: int) -> list[CollectivePlan]:
    layout = resolved.layout
    if planned.operation == "alltoall" and planned.group == "expert" and not planned.all_to_all:
        if layout.dp == 1:
            return []  # every rank has every token; the reduction behind the experts is all there is
        whole = hidden_size * ACTIVATION_BYTES * layout.dp
        return [CollectivePlan(name, "expert", whole) for name in ("all_gather", "reduce_scatter")]
    if planned.operation == "all_reduce":
        return [replace(planned, on_sm=own_all_reduce(resolved, planned.group))]
    return [planned]


def own_all_reduce(resolved: Resolved, group: str) -> bool:
    """Whether a kernel of the engine's own reduces, which occupies SMs; NCCL otherwise, charged to the link."""
    members = resolved.layout.groups[group]
    return (
        resolved.layout.all_reduce_backend != "nccl"
        and members.width in CUSTOM_WIDTHS
        and members.width <= members.per_node
    )
