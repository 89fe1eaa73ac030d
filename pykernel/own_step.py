"""`OwnStep`: where a cost model begins that has its own idea of a step and leaves everything else to another model."""

from __future__ import annotations

from typing import Any

from pykernel.batch import Batch
from pykernel.documents import Pool
from pykernel.interface import (
    CoefficientOrigin,
    CostModel,
    KVCapacity,
    MemoryBreakdown,
    Placement,
    Resolution,
    StepEstimate,
    TransferDemand,
)


class OwnStep(CostModel):
    """A cost model that prices steps by itself: a subclass says `step_time_into`, and `base` answers the rest.

    base : mostly the `Kernel` of the same documents.
    """

    def __init__(self, base: CostModel) -> None:
        self.base = base

    def step_time(self, batch: Batch) -> StepEstimate:
        estimate = StepEstimate()
        self.step_time_into(batch, estimate)
        return estimate

    def fixed_bytes(self) -> MemoryBreakdown:
        return self.base.fixed_bytes()

    def pre_snapshot_bytes(self) -> int:
        return self.base.pre_snapshot_bytes()

    def sequence_variable_bytes(self, tokens: int) -> int:
        return self.base.sequence_variable_bytes(tokens)

    def sequence_fixed_bytes(self) -> int:
        return self.base.sequence_fixed_bytes()

    def sequence_admission_bytes(self) -> int:
        return self.base.sequence_admission_bytes()

    def sequence_bounded_bytes(self, in_flight: int) -> int:
        return self.base.sequence_bounded_bytes(in_flight)

    def sequence_bounded_bytes_at(self, computed: int, in_flight: int) -> int:
        return self.base.sequence_bounded_bytes_at(computed, in_flight)

    def max_tokens_for(self, bytes: int) -> int:
        return self.base.max_tokens_for(bytes)

    def kv_capacity(self, **settings: Any) -> KVCapacity:
        return self.base.kv_capacity(**settings)

    def tier_time_ns(self, tier: str, direction: str, bytes: int, queue_depth: int) -> int:
        return self.base.tier_time_ns(tier, direction, bytes, queue_depth)

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        return self.base.pd_transfer_demand(tokens, source, target)

    def admission_overhead_ns(self, prompt_tokens: int) -> int:
        return self.base.admission_overhead_ns(prompt_tokens)

    def output_token_overhead_ns(self) -> int:
        return self.base.output_token_overhead_ns()

    def completion_overhead_ns(self) -> int:
        return self.base.completion_overhead_ns()

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        """Those of `base`. A model with laws of its own for the step passes them through `without_step_laws` of
        `pykernel.resolve.disclosures` and adds its own."""
        return self.base.provenance()

    def resolved(self) -> Resolution:
        return self.base.resolved()

    def deployment(self) -> Pool:
        return self.base.deployment()

    def capture_tokens(self) -> int:
        return self.base.capture_tokens()

    def graph_modes(self) -> tuple[str, str]:
        return self.base.graph_modes()

    def decode_threshold(self) -> int:
        return self.base.decode_threshold()

    def decode_context_parallel_width(self) -> int:
        return self.base.decode_context_parallel_width()

    def prefill_context_parallel_width(self) -> int:
        return self.base.prefill_context_parallel_width()
