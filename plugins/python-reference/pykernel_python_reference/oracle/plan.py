"""From a model graph to what one layer of each kind holds, for each token and rank where the law divides later.

The walk over a kind's nodes follows the node order, because neighbouring column-parallel products are one launch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction

from pykernel.documents import ModelGraph, Node
from pykernel.errors import RefusedError

from .layout import EXPERT, TENSOR, Layout
from .settings import Settings

# Kernels that a node launches; any op that is not named launches one.
KERNELS = {"GroupedGEMM": 4, "Attention": 2, "RecurrentUpdate": 2, "All2All": 2}
TENSOR_COLLECTIVES = {"AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}
ACTIVATION_BYTES = 2


@dataclass(frozen=True)
class AttentionShape:
    """The fields of an attention node that the laws read; widths in elements, window in tokens."""

    kind: str
    n_q: int
    n_kv: int
    d_h: int
    kv_lora_rank: int
    window: int
    index_topk: int
    compress_ratio: int


@dataclass(frozen=True)
class GemmShape:
    """One launch of a dense product: FLOPs of a token, its widths, and which of them tensor parallelism divides."""

    n: int
    k: int
    flops: int
    split: str


@dataclass(frozen=True)
class Experts:
    """One group of routed experts: FLOPs of a token in one expert, bytes of one expert."""

    flops: int
    weight_bytes: Fraction
    experts: int
    top_k: int


@dataclass(frozen=True)
class GraphCollective:
    """A collective of the graph; `routed` where a routing dispatch multiplies it by the experts of a token."""

    operation: str
    group: str
    bytes_per_token: int
    routed: bool = False


@dataclass
class KindPlan:
    """One kind of layer and how often the stack has it. FLOPs and bytes are undivided."""

    name: str
    count: int = 0
    dense_flops: int = 0
    dense_bytes: Fraction = Fraction(0)
    shared_flops: int = 0
    shared_bytes: Fraction = Fraction(0)
    elementwise_bytes: int = 0
    shapes: list[GemmShape] = field(default_factory=list)
    experts: list[Experts] = field(default_factory=list)
    top_k: int = 0
    primary: AttentionShape | None = None
    scorers: list[AttentionShape] = field(default_factory=list)
    recurrent_kind: str = ""
    collectives: list[GraphCollective] = field(default_factory=list)
    kernels: int = 0


@dataclass(frozen=True)
class Planner:
    """Plans layer kinds of one graph under one layout; `widths` gives the bytes of a stored parameter by format."""

    model: ModelGraph
    layout: Layout
    settings: Settings
    served: str
    widths: dict[str, Fraction]

    def declared(self, layers: list[str]) -> list[KindPlan]:
        """Every declared kind in declaration order, with its count in these layers (0 where it is not used)."""
        counts = Counter(layers)
        plans = []
        for kind in self.model.layer_kinds:
            plan = self.plan(kind.id, kind.nodes, self.widths[self.served])
            plan.count = counts[kind.id]
            plans.append(plan)
        return plans

    def stack(self, layers: list[str]) -> list[KindPlan]:
        """The kinds of these layers in order of first appearance. Raises RefusedError for an undeclared one."""
        known = {plan.name: plan for plan in self.declared(layers)}
        for name in layers:
            if name not in known:
                raise RefusedError(f"the stack names the undeclared layer kind {name!r}", "model.stack")
        return [known[name] for name in dict.fromkeys(layers)]

    def head(self) -> KindPlan:
        """The nodes after the stack, as one more kind."""
        width = self.widths[self.served]
        return self.plan("head", self.model.head, max(width, Fraction(2)) if self.settings.head_16_bit else width)

    def plan(self, name: str, nodes: list[Node], width: Fraction) -> KindPlan:
        """One kind; `width` is the bytes of a parameter whose node states no format."""
        plan = KindPlan(name, count=1)
        hidden = self.model.global_.hidden_size
        chain = False
        for node in nodes:
            where = f"{name}: {node.op}"
            if not self.layout.emitted(node.emit, where):
                pair = self._replacement(node)
                plan.collectives += pair
                plan.kernels += len(pair)
                chain = chain and not pair
                continue
            own = self.widths.get(node.weight_dtype, width)
            plan.kernels += KERNELS.get(node.op, 1)
            if node.op == "GEMM":
                plan.dense_flops += 2 * node.n * node.k
                plan.dense_bytes += node.n * node.k * own
                _add_shape(plan.shapes, gemm_shape(node.n, node.k, hidden), chain)
            chain = node.op == "GEMM"
            if node.op == "GroupedGEMM":
                self._add_experts(plan, node, own)
            elif node.op == "Attention":
                _add_attention(plan, node)
            elif node.op == "RecurrentUpdate":
                plan.recurrent_kind = node.recurrent_kind
            elif node.op == "Elementwise":
                plan.elementwise_bytes += node.bytes_per_token or 2 * hidden * ACTIVATION_BYTES
            elif node.op in TENSOR_COLLECTIVES:
                plan.collectives.append(GraphCollective(TENSOR_COLLECTIVES[node.op], TENSOR, hidden * ACTIVATION_BYTES))
            elif node.op == "All2All":
                plan.collectives.append(GraphCollective("alltoall", EXPERT, hidden * ACTIVATION_BYTES, routed=True))
        if not self.settings.grouped_nodes_apart and plan.experts:
            plan.experts = [_summed(plan.experts)]
        return plan

    def _replacement(self, node: Node) -> list[GraphCollective]:
        """What runs where sequence-parallel experts drop an all-reduce."""
        dropped = node.emit == "tensor_parallel_unless_sp_moe" and self.layout.sequence_parallel_moe
        if not (dropped and node.op == "AllReduce" and self.settings.sp_moe_pair):
            return []
        payload = self.model.global_.hidden_size * ACTIVATION_BYTES
        return [GraphCollective(operation, TENSOR, payload) for operation in ("reduce_scatter", "all_gather")]

    def _add_experts(self, plan: KindPlan, node: Node, width: Fraction) -> None:
        matrices = 3 if node.gated else 2
        always = node.role == "shared_experts" and node.experts == node.top_k
        if always and self.settings.grouped_nodes_apart:
            shared = matrices * node.n * node.k * node.experts
        else:
            inner = node.shared_intermediate_size if node.shared_intermediate_size > 0 else node.n
            shared = matrices * inner * node.k * node.shared_experts
            reads = node.latent_size if self.settings.latent_experts and node.latent_size > 0 else node.k
            parameters = matrices * node.n * reads
            plan.experts.append(Experts(2 * parameters, parameters * width, node.experts, node.top_k))
            plan.top_k = node.top_k + (plan.top_k if self.settings.grouped_nodes_apart else 0)
        plan.shared_flops += 2 * shared
        plan.shared_bytes += shared * width


def gemm_shape(n: int, k: int, hidden: int) -> GemmShape:
    """Column-parallel where it reads the hidden state and does not write it, else row-parallel."""
    return GemmShape(n, k, 2 * n * k, "n" if hidden > 0 and k == hidden and n != hidden else "k")


def _add_shape(shapes: list[GemmShape], shape: GemmShape, chain: bool) -> None:
    last = shapes[-1] if shapes else None
    if chain and last is not None and last.split == shape.split == "n" and last.k == shape.k:
        shapes[-1] = replace(last, n=last.n + shape.n, flops=last.flops + shape.flops)
    else:
        shapes.append(shape)


def _add_attention(plan: KindPlan, node: Node) -> None:
    shape = AttentionShape(
        node.kind, node.n_q, node.n_kv, node.d_h, node.kv_lora_rank, node.window, node.index_topk, node.compress_ratio
    )
    if node.role:
        plan.scorers.append(shape)
    elif plan.primary is None:
        plan.primary = shape


def _summed(nodes: list[Experts]) -> Experts:
    """Several expert nodes as one: parameters added, the last one's experts of a token, the largest count."""
    return Experts(
        sum(node.flops for node in nodes),
        sum((node.weight_bytes for node in nodes), Fraction(0)),
        max(node.experts for node in nodes),
        nodes[-1].top_k,
    )
