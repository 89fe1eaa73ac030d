"""The plan of a step: a model graph under a layout, as one entry for each kind of layer.

A plan adds up what each node of a layer kind contributes: work and weights of dense matrices, the experts, the bytes
of norms, the attention, the collectives that exist under the layout, and how many kernels are launched. It knows no
coefficient. Work and weights are those of the whole model; the core divides them over the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pykernel.documents import ModelGraph, Node
from pykernel.resolve import Resolved
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import LATENT_KINDS
from pykernel.resolve.precision import Precision
from pykernel.switches import LawSwitches

ACTIVATION_BYTES = 2
"""Activations cross links and norms at 16 bits, whatever the weights are served in."""


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """One collective of a layer: the operation, the group it spans, and the bytes counted for one token."""

    operation: str
    group: str
    bytes_per_token: float
    all_to_all: bool = False


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """The attention that holds a layer's cache; `cache_bytes_per_token` is one rank's, of one layer."""

    kind: str
    query_heads: int
    head_dim: int
    window: int
    cache_bytes_per_token: float


@dataclass(frozen=True, slots=True)
class ExpertsPlan:
    """The routed experts of a layer: FLOP of one token in one expert, weight bytes of one expert."""

    top_k: int
    flops_per_token_and_expert: float
    bytes_per_expert: float


@dataclass(slots=True)
class LayerPlan:
    """One kind of layer, and how often the stack holds it."""

    id: str
    count: int
    dense_flops_per_token: float = 0.0
    dense_bytes: float = 0.0
    elementwise_bytes_per_token: float = 0.0
    attention: AttentionPlan | None = None
    experts: list[ExpertsPlan] = field(default_factory=list)
    collectives: list[CollectivePlan] = field(default_factory=list)
    top_k: int = 1
    kernels: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A model under a layout. `gathered_row_bytes` is one row of logits after their gather."""

    layers: list[LayerPlan]
    head: LayerPlan
    gathered_row_bytes: float

    @property
    def depth(self) -> int:
        return sum(layer.count for layer in self.layers)

    @property
    def segments(self) -> int:
        """Pieces of a piecewise graph: one split at each layer's mixer."""
        return self.depth + 1

    @property
    def kernels(self) -> int:
        """Kernels launched in one step."""
        return sum(layer.count * layer.kernels for layer in self.layers) + self.head.kernels


def make_plan(model: ModelGraph, resolved: Resolved, switches: LawSwitches) -> Plan:
    """The plan of a resolved deployment; `model` is the validated graph it was resolved from."""
    planner = _Planner(model.global_.hidden_size, resolved.layout, resolved.precision)
    layers = [planner.layer(kind.kind.id, kind.count, kind.kind.nodes) for kind in resolved.facts.kinds]
    head_planner = planner
    if switches.unquantized_head:
        head_planner = _Planner(planner.hidden_size, planner.layout, planner.precision, least_weight_bytes=2.0)
    head = head_planner.layer("head", 1, model.head)
    return Plan(layers, head, model.global_.vocab_size * ACTIVATION_BYTES)


@dataclass(frozen=True, slots=True)
class _Planner:
    hidden_size: int
    layout: Layout
    precision: Precision
    least_weight_bytes: float = 0.0
    """Lower bound on the width of weights whose node states no format."""

    def layer(self, id_: str, count: int, nodes: list[Node]) -> LayerPlan:
        plan = LayerPlan(id_, count, top_k=max((node.top_k for node in nodes if node.op == "GroupedGEMM"), default=1))
        for node in nodes:
            if EMIT[node.emit](self.layout):
                CONTRIBUTIONS[node.op](self, node, plan)
        return plan

    def weight_bytes(self, node: Node) -> float:
        width = self.precision.weight_bytes(node.weight_dtype)
        return width if node.weight_dtype else max(width, self.least_weight_bytes)

    @property
    def activation_bytes(self) -> int:
        """Bytes of one token's hidden state."""
        return self.hidden_size * ACTIVATION_BYTES

    # What a node of each primitive adds to its layer, and how many kernels it launches.

    def gemm(self, node: Node, plan: LayerPlan) -> None:
        plan.dense_flops_per_token += 2.0 * node.n * node.k
        plan.dense_bytes += node.n * node.k * self.weight_bytes(node)
        plan.kernels += 1

    def grouped_gemm(self, node: Node, plan: LayerPlan) -> None:
        width = self.weight_bytes(node)
        parameters = 3 * node.n * node.k  # gate, up and down of a gated expert
        plan.experts.append(ExpertsPlan(node.top_k, 2.0 * parameters, parameters * width))
        shared = 3 * (node.shared_intermediate_size or node.n) * node.k * node.shared_experts
        plan.dense_flops_per_token += 2.0 * shared
        plan.dense_bytes += shared * width
        plan.kernels += 4

    def attention(self, node: Node, plan: LayerPlan) -> None:
        tensors = 1 if node.kind in LATENT_KINDS else 2  # a latent vector, or keys and values
        heads = max(node.n_kv // self.layout.tp, 1)  # a head is never split
        cache = tensors * heads * node.d_h * self.precision.cache_element_bytes
        plan.attention = AttentionPlan(node.kind, node.n_q, node.d_h, node.window, cache)
        plan.kernels += 2

    def elementwise(self, node: Node, plan: LayerPlan) -> None:
        # One read and one write of the hidden state where the graph states nothing.
        plan.elementwise_bytes_per_token += node.bytes_per_token or 2 * self.activation_bytes
        plan.kernels += 1

    def tensor_collective(self, node: Node, plan: LayerPlan) -> None:
        operations = [_TENSOR_OPERATIONS[node.op]]
        if node.emit == "tensor_parallel_unless_sp_moe" and self.layout.sequence_parallel_moe:
            # The engine keeps each rank's share of the tokens through the experts instead of reducing
            # (vllm/model_executor/models/deepseek_v2.py at v0.31.0).
            operations = ["reduce_scatter", "all_gather"]
        for operation in operations:
            plan.collectives.append(CollectivePlan(operation, "tensor", self.activation_bytes))
            plan.kernels += 1

    def all_to_all(self, node: Node, plan: LayerPlan) -> None:
        # One evaluation stands for dispatch and combine, which are two kernels. A backend that routes sends a token
        # once for each expert it visits, one that gathers sends it once.
        routed = self.layout.routed_dispatch
        payload = self.activation_bytes * (plan.top_k if routed else 1)
        plan.collectives.append(CollectivePlan("alltoall", "expert", payload, routed))
        plan.kernels += 2


_TENSOR_OPERATIONS = {"AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}

EMIT: dict[str, Callable[[Layout], bool]] = {
    "": lambda layout: True,
    "tensor_parallel": lambda layout: layout.tp > 1,
    "expert_parallel": lambda layout: layout.expert.width > 1,
    "tensor_parallel_unless_sp_moe": lambda layout: layout.tp > 1,
}
"""When a node exists; sequence-parallel MoE replaces the last one's reduction, it does not drop it."""

CONTRIBUTIONS: dict[str, Callable[[_Planner, Node, LayerPlan], None]] = {
    "GEMM": _Planner.gemm,
    "GroupedGEMM": _Planner.grouped_gemm,
    "Attention": _Planner.attention,
    "Elementwise": _Planner.elementwise,
    "All2All": _Planner.all_to_all,
    **dict.fromkeys(_TENSOR_OPERATIONS, _Planner.tensor_collective),
}
