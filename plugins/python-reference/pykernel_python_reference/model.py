"""`PythonReference`: the oracle of steps, the caches, the memory and the transfers beside it, as a cost model.

What the engine resolves and where coefficients come from is pykernel's resolution, which is Python as well. Nothing
here asks the C core for a number; it checks batches, which are its own structures.
"""

from __future__ import annotations

import copy

from pykernel.batch import Batch
from pykernel.documents import Inputs, Pool
from pykernel.errors import ArgumentError, RefusedError
from pykernel.interface import (
    INT64_MAX,
    RESOURCES,
    CoefficientOrigin,
    CostModel,
    KVCapacity,
    MemoryBreakdown,
    Placement,
    Resolution,
    StepEstimate,
    TransferDemand,
)
from pykernel.resolve import resolve

from .caches import Caches
from .memory import memory_of
from .oracle import Oracle
from .transfers import HostWork, Transfers

GRAPHS = {"full": "FULL", "piecewise": "PIECEWISE", "eager": "NONE"}


class PythonReference(CostModel):
    """Prices one pool of one deployment as the blis laws do, slowly and without rounding on the way.

    Raises as the blis kernel does for what it refuses.
    """

    def __init__(self, inputs: Inputs) -> None:
        resolved = resolve(inputs)
        inputs = copy.deepcopy(inputs)
        self._oracle = Oracle(inputs)
        self._caches = Caches(self._oracle)
        self._memory = memory_of(self._oracle)
        self._transfers = Transfers(self._oracle, self._caches)
        self._host = HostWork(self._oracle)
        self._pool = inputs.deployment.pools[inputs.pool]
        self._resolution, self._provenance = resolved.resolution, resolved.provenance
        self._decode_threshold = resolved.decode_threshold

    # ---- the step ----------------------------------------------------------------------------------------------

    def step_time(self, batch: Batch) -> StepEstimate:
        estimate = StepEstimate()
        self.step_time_into(batch, estimate)
        return estimate

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        batch.validate()
        price = self._oracle.price(batch, batch.decode_threshold, batch.sm_budget, batch.pad_tokens)
        estimate.fill(
            price.overlap_ns, price.no_overlap_ns, price.bottleneck, [getattr(price, name, 0) for name in RESOURCES]
        )

    # ---- memory and sequences ----------------------------------------------------------------------------------

    def fixed_bytes(self) -> MemoryBreakdown:
        return self._memory.fixed

    def pre_snapshot_bytes(self) -> int:
        return self._memory.outside

    def sequence_variable_bytes(self, tokens: int) -> int:
        return self._caches.growing(tokens)

    def sequence_fixed_bytes(self) -> int:
        return self.sequence_bounded_bytes(1 + self._caches.drafts)

    def sequence_admission_bytes(self) -> int:
        return self.sequence_bounded_bytes(self._caches.in_flight)

    def sequence_bounded_bytes(self, in_flight: int) -> int:
        return self._caches.bounded(INT64_MAX, in_flight)

    def sequence_bounded_bytes_at(self, computed: int, in_flight: int) -> int:
        return self._caches.bounded(computed, in_flight)

    def kv_capacity(
        self,
        *,
        gpu_memory_bytes: int | None = None,
        gpu_memory_utilization: float | None = None,
        block_size: int | None = None,
    ) -> KVCapacity:
        for name, count in (("gpu_memory_bytes", gpu_memory_bytes), ("block_size", block_size)):
            if count is not None and count < 1:
                raise ArgumentError(f"{name} is {count}, must be 1 or more")
        share = self._memory.utilization if gpu_memory_utilization is None else gpu_memory_utilization
        if not 0 < share <= 1:
            raise ArgumentError(f"gpu_memory_utilization is {share!r}, must be above 0 and at most 1")
        device = gpu_memory_bytes or self._memory.device
        budget, fixed = int(device * share), self._memory.fixed.total
        block_tokens = (block_size or self._caches.block) * self._caches.block_ranks
        block_bytes = self.sequence_variable_bytes(block_tokens)
        room = budget - fixed
        if fixed >= device or room <= 0 or block_bytes > room:
            message = f"{fixed} bytes are held before any sequence, the budget is {budget} of the part's {device}"
            raise RefusedError(f"{message}, a block takes {block_bytes}", "engine.gpu_memory_utilization")
        blocks = room // block_bytes if block_bytes else 0
        admission = self.sequence_admission_bytes()
        return KVCapacity(
            bytes=room,
            block_bytes=block_bytes,
            block_tokens=block_tokens,
            blocks=blocks,
            tokens=blocks * block_tokens if block_bytes else INT64_MAX,
            device_bytes=device,
            budget_bytes=budget,
            pre_snapshot_fits=self._memory.outside <= device - budget,
            charge=lambda tokens: min(self.sequence_variable_bytes(tokens) + admission, INT64_MAX),
        )

    # ---- transfers and host work -------------------------------------------------------------------------------

    def tier_time_ns(self, tier: str, direction: str, bytes: int, queue_depth: int) -> int:
        return self._transfers.tier_ns(tier, direction, bytes, queue_depth)

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        return self._transfers.demand(tokens, source, target)

    def admission_overhead_ns(self, prompt_tokens: int) -> int:
        return self._host.admission_ns(prompt_tokens)

    def output_token_overhead_ns(self) -> int:
        return self._host.output

    def completion_overhead_ns(self) -> int:
        return self._host.completion

    # ---- what it stands for ------------------------------------------------------------------------------------

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        return self._provenance

    def resolved(self) -> Resolution:
        return self._resolution

    def deployment(self) -> Pool:
        return copy.deepcopy(self._pool)

    def capture_tokens(self) -> int:
        return self._oracle.host.ceiling

    def graph_modes(self) -> tuple[str, str]:
        uniform, other = self._oracle.host.modes
        return GRAPHS[uniform], GRAPHS[other]

    def decode_threshold(self) -> int:
        return self._decode_threshold

    def decode_context_parallel_width(self) -> int:
        return self._oracle.layout.dcp

    def prefill_context_parallel_width(self) -> int:
        return self._oracle.layout.pcp
