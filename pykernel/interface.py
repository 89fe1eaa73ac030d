"""The interface that every cost model of pykernel satisfies, and the values that cross it.

A simulator is written against this module alone: it names no implementation and imports no native code. Durations
are integers of nanoseconds (suffix `_ns`), sizes integers of bytes, both per rank unless stated otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykernel.batch import Batch
    from pykernel.documents import Pool

RESOURCES: tuple[str, ...] = ("sm", "hbm", "nvlink", "nic", "pcie", "copy_engine", "host")
"""What a step can wait for, in the order that breaks ties of the bottleneck."""

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

    __slots__ = ("_bottleneck", "_no_overlap_ns", "_overlap_ns", "_resource_ns", "scratch")

    def __init__(
        self,
        overlap_ns: int = 0,
        no_overlap_ns: int = 0,
        bottleneck: str = "host",
        per_resource_ns: Mapping[str, int] | None = None,
    ) -> None:
        given = per_resource_ns or {}
        self.fill(overlap_ns, no_overlap_ns, bottleneck, [given.get(name, 0) for name in RESOURCES])
        self.scratch: Any = None
        """Room for the cost model that fills this estimate; no part of its value."""

    def fill(self, overlap_ns: int, no_overlap_ns: int, bottleneck: str, resource_ns: Iterable[int]) -> None:
        """Replace the whole value; `resource_ns` is in the order of `RESOURCES`. For cost models."""
        self._overlap_ns = overlap_ns
        self._no_overlap_ns = no_overlap_ns
        self._bottleneck = bottleneck
        self._resource_ns = tuple(resource_ns)

    @property
    def overlap_ns(self) -> int:
        """Time of the step when the resources of a layer overlap, ns."""
        return self._overlap_ns

    @property
    def no_overlap_ns(self) -> int:
        """Time of the step when nothing overlaps, ns; the sum of `per_resource_ns`."""
        return self._no_overlap_ns

    @property
    def bottleneck(self) -> str:
        """The resource with the largest share."""
        return self._bottleneck

    @property
    def per_resource_ns(self) -> dict[str, int]:
        """Time of each resource that the step uses, ns. A new dictionary each time, the caller's to keep."""
        return {name: ns for name, ns in zip(RESOURCES, self._resource_ns, strict=True) if ns}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepEstimate):
            return NotImplemented
        return (
            self._overlap_ns == other._overlap_ns
            and self._no_overlap_ns == other._no_overlap_ns
            and self._bottleneck == other._bottleneck
            and self._resource_ns == other._resource_ns
        )

    __hash__ = None  # type: ignore[assignment]  # step_time_into changes it

    def __repr__(self) -> str:
        return (
            f"StepEstimate(overlap_ns={self._overlap_ns}, no_overlap_ns={self._no_overlap_ns}, "
            f"bottleneck={self._bottleneck!r}, per_resource_ns={self.per_resource_ns})"
        )

    def __reduce__(self) -> tuple[type[StepEstimate], tuple[int, int, str, dict[str, int]]]:
        return (StepEstimate, (self._overlap_ns, self._no_overlap_ns, self._bottleneck, self.per_resource_ns))


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
        """Most tokens a decoding request schedules in one step: 1, and one more for each draft token."""

    @abstractmethod
    def decode_context_parallel_width(self) -> int:
        """Ranks that share a decode's KV cache, at least 1."""

    @abstractmethod
    def prefill_context_parallel_width(self) -> int:
        """Ranks that share a prefill's tokens, at least 1."""
