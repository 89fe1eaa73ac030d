"""The weights that a rank holds as the engine loads them: those that the kernels of its steps read, with the width and
share that they are priced with, and the few that no step reads."""

from __future__ import annotations

from dataclasses import replace

from pykernel.measured.formats import STORED_BYTES
from pykernel.measured.plan import MeasuredLayer, MeasuredPlan
from pykernel.plan import LayerPlan, Plan
from pykernel.resolve.experts import ExpertPlacement


def holding(plan: Plan, measured: MeasuredPlan, placement: ExpertPlacement | None) -> Plan:
    """The plan with the weights that memory holds of the layers of `measured`."""
    shards = placement.shards if placement else 1
    return replace(
        plan,
        layers=[_held(layer, own, shards) for layer, own in zip(plan.layers, measured.layers, strict=True)],
        draft_layers=[
            _held(layer, own, shards) for layer, own in zip(plan.draft_layers, measured.draft_layers, strict=True)
        ],
    )


def _held(layer: LayerPlan, own: MeasuredLayer, shards: int) -> LayerPlan:
    read = sum(matrix.n * matrix.k * matrix.weight_bytes for matrix in own.matrices)
    experts = [
        replace(
            routed,
            stored_bytes_per_expert=one.matrices * one.hidden * one.width * shards * STORED_BYTES[one.format],
        )
        for routed, one in zip(layer.experts, own.experts, strict=True)
    ]
    return replace(layer, stored_bytes=0.0, replicated_bytes=read + own.unread_bytes, experts=experts)
