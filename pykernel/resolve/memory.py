"""What a rank's memory holds beside weights and caches: the memory coefficients, the part, and the engine's budget.

Every coefficient is required. A missing one refuses the deployment before anybody relies on its price, because memory
could then not be sized (inference-sim/blis-registry, sets cost-model-memory and cost-model-primitives).
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Chip, Engine, Node
from pykernel.errors import RefusedError
from pykernel.resolve.coefficients import Coefficients
from pykernel.resolve.engine import EngineSettings
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import LATENT_KINDS, ModelFacts

DEFAULT_UTILIZATION = 0.92
"""Share of a part's memory that the engine plans with unless told otherwise (vllm/config/cache.py at v0.31.0)."""

MOST_BYTES = 2**60
"""Of any one figure; far above every machine, and small enough that sums are exact integers."""

_WHY = "memory cannot be sized without it (sets cost-model-memory and cost-model-primitives)"


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


def resolve_memory(
    coefficients: Coefficients,
    chip: Chip,
    engine: Engine,
    layout: Layout,
    facts: ModelFacts,
    settings: EngineSettings,
    hidden_size: int,
) -> MemoryFacts:
    """The facts of a deployment. Raises `RefusedError` for a coefficient that is missing or is no size."""

    def size(name: str) -> int:
        return _whole(name, coefficients.required(name, _WHY))

    workspace = size("engine_workspace_bytes")
    graphs = size(f"cudagraph_capture_bytes_{settings.graphs.mode.lower()}")
    floor = size("activation_scratch_floor_bytes")
    family = "moe" if facts.experts else "dense"
    buffers = coefficients.required(snapped(coefficients, f"activation_buffer_count_{family}", min(layout.tp, 8)), _WHY)
    alone = max(layout.tp, layout.moe_width, layout.pcp, layout.dcp) == 1
    communicator = 0 if alone else size(snapped(coefficients, "nccl_communicator_bytes", layout.tp))
    return MemoryFacts(
        device_bytes=max(int(min(chip.memory_gib * 2.0**30, MOST_BYTES)), 1),
        utilization=engine.gpu_memory_utilization or DEFAULT_UTILIZATION,
        activation_buffers=buffers,
        activation_width=_activation_width(facts, hidden_size),
        activation_floor_bytes=floor,
        graph_bytes=graphs,
        communicator_bytes=communicator,
        workspace_bytes=workspace,
        in_flight_tokens=settings.max_num_batched_tokens * batches_in_flight(engine),
    )


def batches_in_flight(engine: Engine) -> int:
    """Steps that are scheduled before the first is settled: one more with async scheduling, which is the default."""
    return 1 if engine.async_scheduling is False else 2


def _whole(name: str, value: float) -> int:
    if not 0 <= value <= MOST_BYTES:
        raise RefusedError(f"coefficient {name} is {value}, which is no number of bytes", "scenario.coefficients")
    return int(value)


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
