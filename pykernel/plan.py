"""The plan of a step: a model graph under a layout, as one entry for each kind of layer.

A plan adds up what each node of a layer kind contributes: work and weights of dense matrices, the experts, the bytes
of norms, the attention and its scorers, the collectives that exist under the layout, and how many kernels are
launched. It knows no coefficient. Work and weights are those of the whole model; the core divides them over the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pykernel.collectives import ACTIVATION_BYTES, CollectivePlan, context_collectives, dispatch, reduction
from pykernel.documents import ModelGraph, Node
from pykernel.resolve import Resolved
from pykernel.resolve.caches import entry_bytes
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import StackKind, always_selected
from pykernel.resolve.precision import WEIGHT_BYTES
from pykernel.switches import LawSwitches


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """One dense launch: output width n, input width k. Column-parallel matrices divide n over the ranks, others k."""

    n: int
    k: int
    column_parallel: bool


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a decode reads of its cache: `all` of it, a `window`, or `selected` entries and a window beside them."""

    law: str
    window: int = 0
    top_k: int = 0
    compress_ratio: int = 1
    sharded: bool = False


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """The attention that holds a layer's cache; `cache_bytes_per_token` is one rank's, of one layer."""

    kind: str
    query_heads: int
    head_dim: int
    prefill_window: int
    cache_bytes_per_token: float
    read: ReadPlan


@dataclass(frozen=True, slots=True)
class ScorerPlan:
    """An attention with a role: it scans a narrow cache of its own to choose what the primary one reads."""

    kind: str
    cache_bytes_per_token: float
    window: int
    compress_ratio: int
    sharded: bool


@dataclass(frozen=True, slots=True)
class ExpertsPlan:
    """One set of routed experts: FLOP of one token in one expert, weight bytes of one expert, read and stored."""

    experts: int
    top_k: int
    flops_per_token_and_expert: float
    bytes_per_expert: float
    stored_bytes_per_expert: float


@dataclass(slots=True)
class LayerPlan:
    """One kind of layer, and how often the stack holds it.

    `shared_flops_per_token` is the work of experts that every token visits, dense like that of `gemms`. A step reads
    `dense_bytes`; memory holds `stored_bytes`, scales included, and `replicated_bytes` whole on every rank.
    """

    id: str
    count: int
    gemm_flops_per_token: float = 0.0
    shared_flops_per_token: float = 0.0
    dense_bytes: float = 0.0
    stored_bytes: float = 0.0
    replicated_bytes: float = 0.0
    elementwise_bytes_per_token: float = 0.0
    gemms: list[GemmPlan] = field(default_factory=list)
    attention: AttentionPlan | None = None
    scorers: list[ScorerPlan] = field(default_factory=list)
    recurrent_kind: str = ""
    experts: list[ExpertsPlan] = field(default_factory=list)
    collectives: list[CollectivePlan] = field(default_factory=list)
    kernels: int = 0

    @property
    def dense_flops_per_token(self) -> float:
        return self.gemm_flops_per_token + self.shared_flops_per_token


@dataclass(frozen=True, slots=True)
class Plan:
    """A model under a layout.

    layers, draft_layers : kinds of the stack, and of the speculator where the deployment speculates with it.
    draft_passes : passes of the speculator after each step.
    gathered_row_bytes : one row of logits after their gather.
    embedding_bytes : of the embedding; 0 where the output projection is the same matrix.
    """

    layers: list[LayerPlan]
    draft_layers: list[LayerPlan]
    draft_passes: int
    head: LayerPlan
    gathered_row_bytes: float
    embedding_bytes: float

    @property
    def depth(self) -> int:
        return sum(layer.count for layer in self.layers)

    @property
    def segments(self) -> int:
        """Pieces of a piecewise graph: a split at each layer's mixer, and one more where an indexer runs first."""
        indexed = sum(
            layer.count
            for layer in self.layers
            if layer.scorers and layer.attention and layer.attention.kind == "sparse_mla"
        )
        return self.depth + indexed + 1

    @property
    def kernels(self) -> int:
        """Kernels launched in one step, the speculator's passes included."""
        draft = sum(layer.count * layer.kernels for layer in self.draft_layers) + self.head.kernels
        stack = sum(layer.count * layer.kernels for layer in self.layers) + self.head.kernels
        return stack + self.draft_passes * draft


def make_plan(model: ModelGraph, resolved: Resolved, switches: LawSwitches) -> Plan:
    """The plan of a resolved deployment; `model` is the validated graph it was resolved from."""
    planner = _Planner(model.global_.hidden_size, resolved)
    facts = resolved.facts
    drafts = resolved.settings.draft_tokens if facts.draft_kinds else 0
    head_planner = _Planner(planner.hidden_size, resolved, 2.0 if switches.unquantized_head else 0.0)
    head = head_planner.nodes("head", 1, model.head)
    return Plan(
        layers=[planner.layer(kind) for kind in facts.kinds],
        draft_layers=[planner.layer(kind) for kind in facts.draft_kinds] if drafts else [],
        draft_passes=drafts,
        head=head,
        gathered_row_bytes=float(model.global_.vocab_size * ACTIVATION_BYTES),
        embedding_bytes=_embedding_bytes(model, head, switches),
    )


EMBEDDING_WIDTHS: dict[str, Callable[[float], float]] = {
    "checkpoint": lambda width: width,
    "unpacked": lambda width: width if width >= 1 else 2.0,
    "sixteen_bit": lambda width: max(width, 2.0),
}
"""Bytes a parameter of the embedding, by switch, from the width of the checkpoint's format; it is never quantized."""


def _embedding_bytes(model: ModelGraph, head: LayerPlan, switches: LawSwitches) -> float:
    facts = model.global_
    if facts.tie_word_embeddings and head.stored_bytes:
        return 0.0
    return (
        facts.vocab_size
        * facts.hidden_size
        * EMBEDDING_WIDTHS[switches.embedding_width](WEIGHT_BYTES[facts.weight_dtype])
    )


@dataclass(frozen=True, slots=True)
class _Planner:
    hidden_size: int
    resolved: Resolved
    least_weight_bytes: float = 0.0
    """Lower bound on the width of weights whose node states no format."""

    @property
    def layout(self) -> Layout:
        return self.resolved.layout

    def layer(self, kind: StackKind) -> LayerPlan:
        plan = self.nodes(kind.kind.id, kind.count, kind.kind.nodes)
        if kind.primary:
            plan.collectives += context_collectives(
                kind.primary, kind.scorers, self.layout, self.resolved.context.combine
            )
        return plan

    def nodes(self, id_: str, count: int, nodes: list[Node]) -> LayerPlan:
        plan = LayerPlan(id_, count)
        primary = next((node for node in nodes if node.op == "Attention" and not node.role), None)
        previous: Node | None = None
        for node in nodes:
            if not EMIT[node.emit](self.layout):
                continue
            if node.op == "GEMM":
                self.gemm(node, previous, plan)
            elif node.op == "Attention":
                self.attention(node, primary, plan)
            elif node.op == "All2All":
                visits = sum(other.top_k for other in nodes if other.op == "GroupedGEMM" and not always_selected(other))
                plan.collectives.append(dispatch(self.hidden_size, visits, self.layout))
                plan.kernels += 2  # one evaluation stands for dispatch and combine
            else:
                CONTRIBUTIONS[node.op](self, node, plan)
            previous = node
        return plan

    def weight_bytes(self, node: Node) -> float:
        width = self.resolved.precision.weight_bytes(node.weight_dtype)
        return width if node.weight_dtype else max(width, self.least_weight_bytes)

    def stored_bytes(self, node: Node) -> float:
        width = self.resolved.precision.stored_bytes(node.weight_dtype)
        return width if node.weight_dtype else max(width, self.least_weight_bytes)

    def gemm(self, node: Node, previous: Node | None, plan: LayerPlan) -> None:
        plan.gemm_flops_per_token += 2.0 * node.n * node.k
        plan.dense_bytes += node.n * node.k * self.weight_bytes(node)
        plan.stored_bytes += node.n * node.k * self.stored_bytes(node)
        plan.kernels += 1
        column = node.k == self.hidden_size and node.n != self.hidden_size
        if column and previous is not None and previous.op == "GEMM":
            last = plan.gemms[-1]
            if last.column_parallel and last.k == node.k:
                # Neighbouring column-parallel matrices of one input are one launch with their outputs side by side.
                plan.gemms[-1] = GemmPlan(last.n + node.n, last.k, True)
                return
        plan.gemms.append(GemmPlan(node.n, node.k, column))

    def grouped_gemm(self, node: Node, plan: LayerPlan) -> None:
        width = self.weight_bytes(node)
        matrices = 3 if node.gated else 2  # gate, up and down, or up and down alone
        plan.kernels += 4
        if always_selected(node):
            shared = matrices * node.n * node.k * node.experts
        else:
            routed = matrices * node.n * (node.latent_size or node.k)
            plan.experts.append(
                ExpertsPlan(node.experts, node.top_k, 2.0 * routed, routed * width, routed * self.stored_bytes(node))
            )
            shared = matrices * (node.shared_intermediate_size or node.n) * node.k * node.shared_experts
        plan.shared_flops_per_token += 2.0 * shared
        plan.dense_bytes += shared * width
        plan.stored_bytes += shared * self.stored_bytes(node)

    def attention(self, node: Node, primary: Node | None, plan: LayerPlan) -> None:
        plan.kernels += 2
        if primary is None:
            return
        cache = entry_bytes(primary, self.layout.tp, self.resolved.precision)
        if node is primary:
            plan.attention = AttentionPlan(node.kind, node.n_q, node.d_h, node.window, cache, self.read(node))
        elif node.role:
            # A scorer's entry is as much narrower than the layer's own as its heads are, before any division.
            share = node.n_kv * node.d_h / (primary.n_kv * primary.d_h)
            ratio = max(node.compress_ratio, 1)
            plan.scorers.append(ScorerPlan(node.kind, cache * share, node.window, ratio, self.sharded(node)))

    def sharded(self, node: Node) -> bool:
        """Whether decode-context ranks divide this cache; a window's ring is whole on every rank."""
        return self.layout.dcp > 1 and node.kind != "swa"

    def read(self, node: Node) -> ReadPlan:
        if node.kind == "sparse_mla":
            return ReadPlan("selected", node.window, node.index_topk, max(node.compress_ratio, 1), self.sharded(node))
        if node.window and node.kind in ("swa", "mla"):
            return ReadPlan("window", node.window, sharded=self.sharded(node))
        return ReadPlan("all", sharded=self.sharded(node))

    def recurrent(self, node: Node, plan: LayerPlan) -> None:
        plan.recurrent_kind = node.recurrent_kind
        plan.kernels += 2

    def elementwise(self, node: Node, plan: LayerPlan) -> None:
        # One read and one write of the hidden state where the graph states nothing.
        plan.elementwise_bytes_per_token += node.bytes_per_token or 2 * self.hidden_size * ACTIVATION_BYTES
        plan.kernels += 1

    def tensor_collective(self, node: Node, plan: LayerPlan) -> None:
        launched = reduction(node, self.hidden_size, self.layout)
        plan.collectives += launched
        plan.kernels += len(launched)


EMIT: dict[str, Callable[[Layout], bool]] = {
    "": lambda layout: True,
    "tensor_parallel": lambda layout: layout.tp > 1,
    "expert_parallel": lambda layout: layout.moe_width > 1,
    "tensor_parallel_unless_sp_moe": lambda layout: layout.tp > 1,
}
"""When a node exists; sequence-parallel MoE replaces the last one's reduction, it does not drop it."""

CONTRIBUTIONS: dict[str, Callable[[_Planner, Node, LayerPlan], None]] = {
    "GroupedGEMM": _Planner.grouped_gemm,
    "RecurrentUpdate": _Planner.recurrent,
    "Elementwise": _Planner.elementwise,
    **dict.fromkeys(("AllReduce", "AllGather", "ReduceScatter"), _Planner.tensor_collective),
}
