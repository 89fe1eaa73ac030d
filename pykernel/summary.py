"""What a model graph adds up to: parameters, layers by kind, what a token keeps in the caches, and its work.

Figures of the whole model, on one rank, before any layout. Cache entries are those of the groups that the engine keeps
apart: one for each attention of each kind of layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pykernel.documents.graph import LayerKind, ModelGraph, Node

LATENT_KINDS = ("mla", "sparse_mla")


@dataclass(frozen=True)
class CacheGroup:
    """One cache of one kind of layer.

    elements : what one token adds to one layer's cache, elements.
    window : tokens that are kept, 0 for all.
    tokens_per_entry : tokens that share an entry.
    """

    layer_kind: str
    role: str
    layers: int
    elements: int
    window: int = 0
    tokens_per_entry: int = 1

    def elements_held(self, tokens: int) -> float:
        """Elements that a sequence of `tokens` keeps in all layers of the group, pages not rounded up."""
        kept = min(tokens, self.window) if self.window else tokens
        return self.layers * self.elements * kept / self.tokens_per_entry


@dataclass(frozen=True)
class StateGroup:
    """The constant state of the recurrent mixers of one kind of layer; `elements` are one layer's, of one sequence."""

    layer_kind: str
    recurrent_kind: str
    layers: int
    elements: int


@dataclass(frozen=True)
class ModelSummary:
    """Figures of a graph.

    parameters : of all matrices, experts included, with one embedding, and the output matrix unless it is the same.
    active_parameters : of them, those that one token is multiplied with; no embedding.
    layers : how many there are of each kind, by its name.
    caches, states : what a sequence keeps, by kind of layer: what grows with it, and what does not.
    flops_per_token : of dense matrices and the selected experts, two for each active parameter; no attention.
    """

    parameters: int
    active_parameters: int
    layers: dict[str, int]
    caches: tuple[CacheGroup, ...]
    states: tuple[StateGroup, ...]

    @property
    def flops_per_token(self) -> int:
        return 2 * self.active_parameters

    def cache_bytes(self, tokens: int, element_bytes: float = 2.0) -> float:
        """Bytes that the caches of one sequence of `tokens` take, pages not rounded up."""
        return sum(group.elements_held(tokens) for group in self.caches) * element_bytes


def summarize(graph: ModelGraph) -> ModelSummary:
    """The figures of a valid graph, its draft module left out."""
    counts = Counter(graph.stack.layers())
    kinds = [kind for kind in graph.layer_kinds if counts[kind.id]]
    total, active = _parameters(graph.head)
    for kind in kinds:
        held, used = _parameters(kind.nodes)
        total, active = total + counts[kind.id] * held, active + counts[kind.id] * used
    if not graph.global_.tie_word_embeddings:
        total += graph.global_.vocab_size * graph.global_.hidden_size
    return ModelSummary(
        total,
        active,
        {kind.id: counts[kind.id] for kind in kinds},
        tuple(group for kind in kinds for group in _caches(kind, counts[kind.id])),
        tuple(group for kind in kinds for group in _states(kind, counts[kind.id])),
    )


def _parameters(nodes: Iterable[Node]) -> tuple[int, int]:
    """Parameters of nodes, in all and as one token uses them."""
    held = used = 0
    for node in nodes:
        if node.op == "GEMM":
            held, used = held + node.n * node.k, used + node.n * node.k
        elif node.op == "GroupedGEMM":
            matrices = 3 if node.gated else 2
            own = node.role == "shared_experts"  # shared experts in a node of their own work at the hidden width
            expert = matrices * node.n * (node.k if own else node.latent_size or node.k)
            shared = matrices * (node.shared_intermediate_size or node.n) * node.k * node.shared_experts
            held, used = held + node.experts * expert + shared, used + node.top_k * expert + shared
    return held, used


def _caches(kind: LayerKind, layers: int) -> Iterable[CacheGroup]:
    attentions = [node for node in kind.nodes if node.op == "Attention"]
    primary = next((node for node in attentions if not node.role), None)
    scored = any(node.role for node in attentions)
    for node in attentions:
        ratio = max(node.compress_ratio, 1)
        if node is not primary:
            yield CacheGroup(kind.id, node.role, layers, node.n_kv * node.d_h, tokens_per_entry=ratio)
            continue
        elements = node.d_h if node.kind in LATENT_KINDS else 2 * node.n_kv * node.d_h
        # A window beside a scorer is how much is selected: every token stays cached.
        windowed = node.window and not scored and node.kind != "sparse_mla"
        yield CacheGroup(kind.id, "", layers, elements, node.window if windowed else 0, ratio)
        if node.kind == "sparse_mla" and node.window:
            yield CacheGroup(kind.id, "window", layers, elements, node.window)


def _states(kind: LayerKind, layers: int) -> Iterable[StateGroup]:
    for node in kind.nodes:
        if node.op == "RecurrentUpdate":
            yield StateGroup(kind.id, node.recurrent_kind, layers, _state_elements(node))


def _state_elements(node: Node) -> int:
    """Elements of one layer's state and of its convolution, without drafts."""
    conv = max(node.conv_kernel - 1, 0)
    if node.recurrent_kind == "mamba2":
        convolved = node.intermediate_size + 2 * node.n_groups * node.state_size
        return node.intermediate_size * node.state_size + convolved * conv
    width = node.n_heads * node.state_size
    convolved = node.intermediate_size if node.recurrent_kind == "gdn" else 3 * width
    return width * node.state_size + convolved * conv
