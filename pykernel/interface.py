"""The interface that every cost model of pykernel satisfies, and the values that cross it.

A simulator is written against this module alone: it names no implementation and imports no native code. Durations
are integers of nanoseconds (suffix `_ns`), sizes integers of bytes, both per rank unless stated otherwise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykernel.errors import ArgumentError

if TYPE_CHECKING:
    from pykernel.batch import Batch
    from pykernel.documents import Pool
    from pykernel.estimates import StepEstimates

RESOURCES: tuple[str, ...] = ("sm", "hbm", "nvlink", "nic", "pcie", "copy_engine", "host")
"""What a step can wait for, in the order that breaks ties of the bottleneck."""

INT64_MAX = 2**63 - 1
"""The largest duration and size: what is larger, and what never ends, is this."""

EVIDENCE_METHODS = frozenset({"measured", "literature", "vendor_spec"})
"""Methods of a coefficient that rest on something other than a guess (blis-schemas, coefficient vocabulary)."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a step.

    `scheduled` tokens run in this step, after `computed` tokens that are in its cache already; `prompt_len` is the
    length of its prompt and `cached_tokens` what a prefix cache supplied of it (taken off `scheduled` already).
    """

    scheduled: int
    computed: int
    prompt_len: int
    cached_tokens: int = 0


class StepEstimate:
    """The price of one step: two bounds, the bottleneck, and the time of each resource.

    `no_overlap_ns` lets no two resources work at once and equals the sum of `per_resource_ns`; `overlap_ns` lets the
    resources of a layer work together. A simulator that needs one number takes `no_overlap_ns`, which measured steps
    lie nearer to. An estimate only changes when it is handed to `step_time_into` again.
    """

    __slots__ = ("batch", "call", "model", "record")

    record: Sequence[int]
    """The values, for cost models: both bounds, the bottleneck as an index into `RESOURCES`, the time of each resource.
    A model that prices by the thousand leaves memory of its own here, so that they become Python objects when they are
    asked for."""
    model: Any
    batch: Any
    call: Any
    """The cost model and the batch that this estimate was filled from, and room of that model's own, for pricing the
    same batch into it again; None, and no part of the value."""

    def __init__(
        self,
        overlap_ns: int = 0,
        no_overlap_ns: int = 0,
        bottleneck: str = "host",
        per_resource_ns: Mapping[str, int] | None = None,
    ) -> None:
        given = per_resource_ns or {}
        self.call = None
        self.fill(overlap_ns, no_overlap_ns, bottleneck, [given.get(name, 0) for name in RESOURCES])

    def fill(self, overlap_ns: int, no_overlap_ns: int, bottleneck: str, resource_ns: Iterable[int]) -> None:
        """Replace the whole value; `resource_ns` is in the order of `RESOURCES`. For cost models."""
        self.model = self.batch = None
        self.record = (overlap_ns, no_overlap_ns, RESOURCES.index(bottleneck), *resource_ns)

    @property
    def overlap_ns(self) -> int:
        """Time of the step when the resources of a layer overlap, ns."""
        return self.record[0]

    @property
    def no_overlap_ns(self) -> int:
        """Time of the step when nothing overlaps, ns; the sum of `per_resource_ns`."""
        return self.record[1]

    @property
    def bottleneck(self) -> str:
        """The resource with the largest share."""
        return RESOURCES[self.record[2]]

    @property
    def per_resource_ns(self) -> dict[str, int]:
        """Time of each resource that the step uses, ns. A new dictionary each time, the caller's to keep."""
        return {name: ns for name, ns in zip(RESOURCES, tuple(self.record)[3:], strict=True) if ns}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepEstimate):
            return NotImplemented
        return tuple(self.record) == tuple(other.record)

    __hash__ = None  # type: ignore[assignment]  # step_time_into changes it

    def __repr__(self) -> str:
        return (
            f"StepEstimate(overlap_ns={self.overlap_ns}, no_overlap_ns={self.no_overlap_ns}, "
            f"bottleneck={self.bottleneck!r}, per_resource_ns={self.per_resource_ns})"
        )

    def __reduce__(self) -> tuple[type[StepEstimate], tuple[int, int, str, dict[str, int]]]:
        return (StepEstimate, (self.overlap_ns, self.no_overlap_ns, self.bottleneck, self.per_resource_ns))


@dataclass(frozen=True, slots=True)
class CoefficientOrigin:
    """Where one number of a kernel comes from: its name, the set that supplied it, how it was obtained, its scope.

    For an assumption of the kernel's own, `set` is `KERNEL_ASSUMPTION_SET`, `method` is `assumed`, and `scope` reads
    `<value>: <reason>`.
    """

    name: str
    set: str
    method: str
    scope: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a kernel rests on: of `total` entries, `measured` have evidence behind them; `assumed` names the guesses."""

    measured: int
    total: int
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Override:
    """A setting that the engine runs otherwise than requested, and why."""

    field: str
    requested: str
    resolved: str
    reason: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the engine would really run. A width of 0 means unset; the methods give widths with a floor of one."""

    tensor_parallel_width: int
    data_parallel_width: int
    expert_parallel_width: int
    all_reduce_backend: str
    async_scheduling: bool
    cascade_attention: bool
    sequence_parallel_moe: bool
    overrides: tuple[Override, ...] = ()

    def tensor_parallel(self) -> int:
        return max(self.tensor_parallel_width, 1)

    def data_parallel(self) -> int:
        return max(self.data_parallel_width, 1)

    def expert_parallel(self) -> int:
        return max(self.expert_parallel_width, 1)


# ---- memory ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Bytes that a rank takes from the engine's budget before any sequence.

    weights : as stored, scales included; of the fullest rank, replicas of experts not counted.
    activation_peak : of the widest step.
    cuda_graph : captured graphs.
    eplb_redundant : replicas of experts.
    comm_buffers : the communicator's and the engine's own, where they count inside the budget.
    """

    weights: int
    activation_peak: int
    cuda_graph: int
    eplb_redundant: int
    comm_buffers: int

    @property
    def total(self) -> int:
        """The sum of the five, bytes."""
        parts = self.weights + self.activation_peak + self.cuda_graph + self.eplb_redundant + self.comm_buffers
        return min(parts, INT64_MAX)


@dataclass(frozen=True, slots=True)
class KVCapacity:
    """The room for sequences on one rank.

    bytes : of the budget, after the fixed bytes.
    block_bytes, block_tokens : one block of every growing cache, and the tokens of a sequence that it holds.
    blocks : that fit; 0 where nothing grows with a sequence.
    tokens : in all blocks; `INT64_MAX` where nothing grows.
    device_bytes, budget_bytes : of the part, and what the engine uses of it.
    pre_snapshot_fits : whether what is held before the budget is taken leaves the budget free; the engine does not
        start otherwise.
    charge : bytes of a sequence of so many tokens when it is admitted.
    """

    bytes: int
    block_bytes: int
    block_tokens: int
    blocks: int
    tokens: int
    device_bytes: int
    budget_bytes: int
    pre_snapshot_fits: bool
    charge: Callable[[int], int] = field(repr=False, compare=False)

    def sequences(self, tokens: int) -> int:
        """Sequences of `tokens` tokens that fit at once; `INT64_MAX` where they hold nothing."""
        each = self.charge(tokens)
        return self.bytes // each if each else INT64_MAX


# ---- transfers -------------------------------------------------------------------------------------------------


class Direction:
    """The directions of a tier transfer, seen from the GPU."""

    TO_TIER = "to_tier"
    FROM_TIER = "from_tier"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a rank is: its node, its rack, and the role of its pool (which no link depends on)."""

    node: int
    rack: int
    pool: str = ""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """One link that a handoff crosses, and the rate it has there.

    `link` is opaque and only to be compared: kernels of one deployment give one link one name.
    """

    link: str
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class TransferDemand:
    """What a handoff asks of links that others may use as well.

    `bytes` cross every one of `links`, and no handoff ends before `floor_ns`.
    """

    bytes: int
    floor_ns: int
    links: tuple[LinkUse, ...]

    def check(self) -> None:
        """Raise `ArgumentError` for a demand that cannot be placed on links."""
        for name in ("bytes", "floor_ns"):
            if getattr(self, name) < 0:
                raise ArgumentError(f"{name} is {getattr(self, name)}, must be >= 0")
        if self.bytes > 0 and not self.links:
            raise ArgumentError(f"links are empty, but {self.bytes} bytes must cross one")
        names = [use.link for use in self.links]
        for use in self.links:
            if not use.link:
                raise ArgumentError("a link has no name")
            if names.count(use.link) > 1:
                raise ArgumentError(f"link {use.link} is listed twice")
            if not (use.bytes_per_second > 0 and math.isfinite(use.bytes_per_second)):
                rate = use.bytes_per_second
                raise ArgumentError(f"bytes_per_second of link {use.link} is {rate}, must be positive and finite")

    def alone_time_ns(self) -> int:
        """Time with nothing else on the links, ns: the floor, or the bytes at the slowest rate where that is longer.

        `INT64_MAX` on a link without bandwidth. The longer of the two in seconds becomes nanoseconds once, truncated,
        so that a floor of 15 ns is 14.
        """
        if not self.links:
            return self.floor_ns
        seconds = self.floor_ns // 10**9 + (self.floor_ns % 10**9) / 1e9
        if self.bytes > 0:
            rate = min(use.bytes_per_second for use in self.links)
            seconds = max(seconds, self.bytes / rate if rate > 0 else math.inf)
        ns = seconds * 1e9
        return int(ns) if ns < 2.0**63 else INT64_MAX


class CostModel(ABC):
    """A cost model: prices one pool of one deployment.

    Every method is a pure function of its arguments and of the documents the model was built from, and safe to call
    from many threads.
    """

    @abstractmethod
    def step_time(self, batch: Batch) -> StepEstimate:
        """The price of one step, ns. Raises `BatchError` for a batch no scheduler could have made."""

    @abstractmethod
    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        """Write the price of one step into the caller's `estimate`; the same values as `step_time`."""

    def step_time_many(
        self,
        offsets: Any,
        scheduled: Any,
        computed: Any,
        prompt_len: Any = None,
        cached_tokens: Any = None,
        *,
        decode_threshold: int = 1,
        sm_budget: int = 0,
        pad_tokens: int = 0,
        threads: int = 1,
    ) -> StepEstimates:
        """The prices of many steps, to the bit those of `step_time`.

        Step i is the requests from `offsets[i]` to before `offsets[i + 1]`, so there is one offset more than steps.
        The arrays are those of `Batch.from_arrays`, one entry a request, of all steps one after another; contiguous
        buffers of 64-bit integers are not copied. `threads` is how many may work at once. Raises `ArgumentError` for
        arrays that do not fit together, and `BatchError` naming the step and request at fault.
        """
        from pykernel.estimates import Steps, price_one_by_one

        settings = {"decode_threshold": decode_threshold, "sm_budget": sm_budget, "pad_tokens": pad_tokens}
        steps = Steps(offsets, scheduled, computed, prompt_len, cached_tokens, **settings)
        return price_one_by_one(self, steps)

    @abstractmethod
    def fixed_bytes(self) -> MemoryBreakdown:
        """What a rank takes from the engine's budget before any sequence, bytes."""

    @abstractmethod
    def pre_snapshot_bytes(self) -> int:
        """What a rank holds before the engine measures the memory that its budget is a share of, bytes."""

    @abstractmethod
    def sequence_variable_bytes(self, tokens: int) -> int:
        """What a sequence of `tokens` tokens holds on a rank that grows with it, in whole pages, bytes."""

    def sequence_variable_bytes_many(self, tokens: Any) -> memoryview[int]:
        """The same of many sequences: int64, an entry for each of `tokens`, a buffer or sequence as in `Batch`."""
        return _int64_array([self.sequence_variable_bytes(int(count)) for count in tokens])

    @abstractmethod
    def sequence_fixed_bytes(self) -> int:
        """What a decoding sequence holds beside that on a rank: recurrent state, and the rings of windows, bytes."""

    @abstractmethod
    def sequence_admission_bytes(self) -> int:
        """The same with the most tokens that the engine may have in flight for it: what admission sets aside."""

    @abstractmethod
    def sequence_bounded_bytes(self, in_flight: int) -> int:
        """The same with `in_flight` tokens that are scheduled and not settled."""

    @abstractmethod
    def sequence_bounded_bytes_at(self, computed: int, in_flight: int) -> int:
        """The same for a sequence of which only `computed` tokens have been computed."""

    def max_tokens_for(self, bytes: int) -> int:
        """Tokens of the longest sequence whose growing part fits in `bytes` bytes; `INT64_MAX` where nothing grows."""
        if self.sequence_variable_bytes(INT64_MAX) <= bytes:
            return INT64_MAX
        fits, too_many = 0, INT64_MAX
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.sequence_variable_bytes(middle) <= bytes:
                fits = middle
            else:
                too_many = middle
        return fits

    @abstractmethod
    def kv_capacity(
        self,
        *,
        gpu_memory_bytes: int | None = None,
        gpu_memory_utilization: float | None = None,
        block_size: int | None = None,
    ) -> KVCapacity:
        """The room that the part's memory leaves for sequences.

        Parameters
        ----------
        gpu_memory_bytes : of the part, by default the chip's.
        gpu_memory_utilization : share that the engine uses, in (0, 1]; by default the deployment's, else 0.92.
        block_size : tokens of a block; by default the deployment's.

        Raises `RefusedError` where the model leaves no room for a block, `ArgumentError` for a value out of range.
        """

    @abstractmethod
    def tier_time_ns(self, tier: str, direction: str, bytes: int, queue_depth: int) -> int:
        """Time of one of `queue_depth` equal transfers at once, ns; `INT64_MAX` for a tier that does not exist.

        `direction` is one of `Direction`; any other reads.
        """

    @abstractmethod
    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        """What the handoff of a request of `tokens` tokens moves to a rank of this kernel's pool, and over which links.

        Ask the kernel of the pool that receives: a rank moves what it owns.
        """

    def pd_transfer_time_ns(self, tokens: int, source: Placement, target: Placement) -> int:
        """Time of that handoff with nothing else on its links, ns."""
        return self.pd_transfer_demand(tokens, source, target).alone_time_ns()

    def pd_transfer_time_many(self, tokens: Any, source: Placement, target: Placement) -> memoryview[int]:
        """The same of many requests: int64, ns, an entry for each of `tokens`, a buffer or sequence as in `Batch`."""
        return _int64_array([self.pd_transfer_time_ns(int(count), source, target) for count in tokens])

    @abstractmethod
    def admission_overhead_ns(self, prompt_tokens: int) -> int:
        """Host time before a request can be scheduled, queueing left out, ns; 0 for no tokens."""

    @abstractmethod
    def output_token_overhead_ns(self) -> int:
        """Host time for each token handed out, outside the step, ns."""

    @abstractmethod
    def completion_overhead_ns(self) -> int:
        """Host time when a request ends, which counts toward its own end alone, ns."""

    @abstractmethod
    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        """Every coefficient in scope, by name, then the kernel's own assumptions."""

    def evidence(self) -> Evidence:
        """Counts over `provenance()`: entries with evidence, all entries, names of the assumed ones."""
        origins = self.provenance()
        return Evidence(
            measured=sum(origin.method in EVIDENCE_METHODS for origin in origins),
            total=len(origins),
            assumed=tuple(origin.name for origin in origins if origin.method == "assumed"),
        )

    @abstractmethod
    def resolved(self) -> Resolution:
        """What the engine would run, with every override of a request."""

    @abstractmethod
    def deployment(self) -> Pool:
        """The priced pool as its document states it, unset settings unset. A deep copy, the caller's to edit."""

    @abstractmethod
    def capture_tokens(self) -> int:
        """Largest step that runs as a CUDA graph, tokens; 0 when none does."""

    @abstractmethod
    def graph_modes(self) -> tuple[str, str]:
        """Graph mode of a uniform decode batch and of any other, each `FULL`, `PIECEWISE` or `NONE`."""

    @abstractmethod
    def decode_threshold(self) -> int:
        """Most tokens that a request may schedule and be attended to as a decode, for `Batch.decode_threshold`."""

    @abstractmethod
    def decode_context_parallel_width(self) -> int:
        """Ranks that share a decode's KV cache, at least 1."""

    @abstractmethod
    def prefill_context_parallel_width(self) -> int:
        """Ranks that share a prefill's tokens, at least 1."""


def _int64_array(values: list[int]) -> memoryview[int]:
    return memoryview(array("q", values))
