"""What the rules of resolution ask of a model graph: which layers the stack holds, and of what kind.

Only layer kinds that the stack runs decide what the model is; those that serve the speculator alone are priced where
the deployment drafts with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pykernel.documents import Engine, LayerKind, ModelGraph, Node

LATENT_KINDS = frozenset({"mla", "sparse_mla"})
DSA_LATENT_WIDTH = 576
"""Cached width of the DeepSeek-V3.2 family, which has the engine pick a sparse backend of its own."""


@dataclass(frozen=True, slots=True)
class StackKind:
    """A layer kind of the stack: its declaration, how often it occurs, and its cache-holding attention."""

    kind: LayerKind
    count: int
    primary: Node | None

    def nodes(self, op: str) -> list[Node]:
        """The kind's nodes of one primitive, in order."""
        return [node for node in self.kind.nodes if node.op == op]

    @property
    def routed_experts(self) -> list[Node]:
        return [node for node in self.nodes("GroupedGEMM") if not always_selected(node)]

    @property
    def scorers(self) -> list[Node]:
        """Attentions that choose what the primary one reads."""
        return [node for node in self.nodes("Attention") if node.role]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The stack of a model, one entry a layer kind, in order of first appearance.

    `drafts` is whether the deployment drafts with the checkpoint's own module, `draft_kinds` the layers of that: the
    graph's speculator. They decide nothing about the model.
    """

    kinds: tuple[StackKind, ...]
    drafts: bool = False
    draft_kinds: tuple[StackKind, ...] = ()
    undeclared_drafts: tuple[str, ...] = ()
    """Layer kinds that the speculator names and the graph does not declare."""

    @property
    def layers(self) -> int:
        return sum(kind.count for kind in self.kinds)

    @property
    def attentions(self) -> list[Node]:
        """The cache-holding attention of every kind that has one."""
        return [kind.primary for kind in self.kinds if kind.primary is not None]

    @property
    def attention_kinds(self) -> set[str]:
        return {node.kind for node in self.attentions}

    @property
    def experts(self) -> int:
        """Routed experts of the widest layer; 0 for a dense model."""
        return max((node.experts for kind in self.kinds for node in kind.routed_experts), default=0)

    @property
    def priced_kinds(self) -> list[StackKind]:
        """The layer kinds that a step runs, the speculator's too where the deployment drafts with it."""
        return [*self.kinds, *self.draft_kinds]

    @property
    def recurrent_kinds(self) -> set[str]:
        return {node.recurrent_kind for kind in self.kinds for node in kind.nodes("RecurrentUpdate")}

    @property
    def has_scorers(self) -> bool:
        """Whether some layer scores its context before it attends (an indexer)."""
        return any(kind.scorers for kind in self.kinds)

    @property
    def latent(self) -> bool:
        return bool(self.attention_kinds & LATENT_KINDS)

    @property
    def sparse_latent_width(self) -> int:
        """Cached width of the sparse latent layers; 0 when there are none."""
        return max((node.d_h for node in self.attentions if node.kind == "sparse_mla"), default=0)

    @property
    def dsa(self) -> bool:
        return self.sparse_latent_width == DSA_LATENT_WIDTH

    @property
    def interruptible_graphs(self) -> bool:
        """Whether the engine captures graphs around attention calls instead of compiling the model.

        The engine lists architectures (vllm/config/vllm.py at v0.31.0); in a graph they are the models with sparse
        latent attention, an indexer, or delta attention.
        """
        return self.sparse_latent_width > 0 or self.has_scorers or "kda" in self.recurrent_kinds


def always_selected(node: Node) -> bool:
    """Whether a set of experts is shared ones in a node of their own: every token visits them all."""
    return node.op == "GroupedGEMM" and node.role == "shared_experts" and node.experts == node.top_k


def model_facts(model: ModelGraph, engine: Engine) -> ModelFacts:
    """The facts of a model whose graph has been validated, under the settings of an engine."""
    declared = {kind.id: kind for kind in model.layer_kinds}
    drafts = _drafts_with_own_module(model, engine)
    draft = model.speculator.stack.layers() if model.speculator and drafts else []
    undeclared = tuple(dict.fromkeys(id_ for id_ in draft if id_ not in declared))
    draft = [id_ for id_ in draft if id_ in declared]
    return ModelFacts(_counted(model.stack.layers(), declared), drafts, _counted(draft, declared), undeclared)


def _drafts_with_own_module(model: ModelGraph, engine: Engine) -> bool:
    """Whether the drafts come from the checkpoint, not from n-grams of the text or from another model.

    The names of modules that predict several tokens all end in `mtp` (rules pack of inference-sim/blis-schemas).
    """
    stated = engine.speculative
    if stated is None:
        return False
    own = model.speculator.method if model.speculator else ""
    return stated.method == own or stated.method.endswith("mtp")


def _counted(layers: list[str], declared: dict[str, LayerKind]) -> tuple[StackKind, ...]:
    counts = Counter(layers)  # keeps the order of first appearance
    return tuple(StackKind(declared[id_], count, _primary(declared[id_])) for id_, count in counts.items())


def _primary(kind: LayerKind) -> Node | None:
    """The attention whose KV cache the engine sizes: the first without a role."""
    return next((node for node in kind.nodes if node.op == "Attention" and not node.role), None)
