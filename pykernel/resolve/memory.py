"""What a rank's memory holds beside weights and caches: the memory coefficients, the part, and the engine's budget.

Every coefficient is required. A missing one refuses the deployment before anybody relies on its price, because memory
could then not be sized (inference-sim/blis-registry, sets cost-model-memory and cost-model-primitives).
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Chip, Engine, Node
from pykernel.resolve.coefficients import Coefficients
from pykernel.resolve.engine import EngineSettings
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import LATENT_KINDS, ModelFacts

DEFAULT_UTILIZATION = 0.92
"""Share of a part's memory that the engine plans with unless told otherwise (vllm/config/cache.py at v0.31.0)."""

MOST_BYTES = 2**60
"""Of any one figure; far above every machine, and small enough that sums are exact integers."""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Bytes of one rank, and how the engine shares them out.

    activation_buffers : rows of `activation_width` elements that are live at the peak of a forward pass.
    utilization : share of `device_bytes` that the engine plans with.
    in_flight_tokens : most tokens that are scheduled before any has been settled.
    """

    device_bytes: int
    utilization: float
    activation_buffers: float
    activation_width: int
    activation_floor_bytes: int
    graph_bytes: int
    communicator_bytes: int
    workspace_bytes: int
    in_flight_tokens: int


@dataclass(frozen=True, slots=True)
class MemoryNames:
    """The coefficients that size a deployment's memory; `communicator` is empty where no group is wider than a rank."""

    workspace: str
    graphs: str
    activation_floor: str
    activation_buffers: str
    communicator: str

    def sizes(self) -> list[str]:
        """Those that are a number of bytes."""
        return [name for name in (self.workspace, self.graphs, self.activation_floor, self.communicator) if name]


def memory_names(coefficients: Coefficients, layout: Layout, facts: ModelFacts, mode: str) -> MemoryNames:
    """The names for a layout and a graph mode."""
    family = "moe" if facts.experts else "dense"
    alone = max(layout.tp, layout.moe_width, layout.pcp, layout.dcp) == 1
    return MemoryNames(
        workspace="engine_workspace_bytes",
        graphs=f"cudagraph_capture_bytes_{mode.lower()}",
        activation_floor="activation_scratch_floor_bytes",
        activation_buffers=snapped(coefficients, f"activation_buffer_count_{family}", min(layout.tp, 8)),
        communicator="" if alone else snapped(coefficients, "nccl_communicator_bytes", layout.tp),
    )


def is_size(value: float) -> bool:
    """Whether a coefficient's value can be a number of bytes."""
    return 0 <= value <= MOST_BYTES


def resolve_memory(
    coefficients: Coefficients,
    chip: Chip,
    engine: Engine,
    layout: Layout,
    facts: ModelFacts,
    settings: EngineSettings,
    hidden_size: int,
) -> MemoryFacts:
    """The facts of a deployment whose memory coefficients are there and are sizes."""
    names = memory_names(coefficients, layout, facts, settings.graphs.mode)
    return MemoryFacts(
        device_bytes=max(int(min(chip.memory_gib * 2.0**30, MOST_BYTES)), 1),
        utilization=engine.gpu_memory_utilization or DEFAULT_UTILIZATION,
        activation_buffers=coefficients[names.activation_buffers],
        activation_width=_activation_width(facts, hidden_size),
        activation_floor_bytes=int(coefficients[names.activation_floor]),
        graph_bytes=int(coefficients[names.graphs]),
        communicator_bytes=int(coefficients[names.communicator]) if names.communicator else 0,
        workspace_bytes=int(coefficients[names.workspace]),
        in_flight_tokens=settings.max_num_batched_tokens * batches_in_flight(engine),
    )


def batches_in_flight(engine: Engine) -> int:
    """Steps that are scheduled before the first is settled: one more with async scheduling, which is the default."""
    return 1 if engine.async_scheduling is False else 2


def _activation_width(facts: ModelFacts, hidden_size: int) -> int:
    """Elements of the widest row: the queries of a layer, or the hidden state where what is cached is a latent."""

    def width(node: Node) -> int:
        return hidden_size if node.kind in LATENT_KINDS else node.n_q * node.d_h

    return max((width(node) for node in facts.attentions), default=hidden_size)


def snapped(coefficients: Coefficients, family: str, width: int) -> str:
    """Name of the entry of a vendor's table for `width` ranks: the widest declared not above it, else the narrowest."""
    declared = [size for size in (1, 2, 4, 8, 16) if f"{family}_{size}rank" in coefficients]
    fitting = [size for size in declared if size <= width]
    chosen = fitting[-1] if fitting else declared[0] if declared else width
    return f"{family}_{chosen}rank"
