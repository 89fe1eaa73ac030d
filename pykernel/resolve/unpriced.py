"""What this version cannot price, as a table: each entry names the setting or graph feature and says why it matters.

A deployment that meets one of these is refused, because leaving the term out would give a number that looks as good
as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pykernel.documents import Engine, ModelGraph, Node
from pykernel.errors import RefusedError
from pykernel.resolve.model_facts import ModelFacts


@dataclass(frozen=True, slots=True)
class NodeRule:
    """A feature of a graph node that no law covers yet."""

    what: str
    applies: Callable[[Node], bool]


NODE_RULES = (
    NodeRule("a recurrent mixer", lambda node: node.op == "RecurrentUpdate"),
    NodeRule("sparse latent attention", lambda node: node.op == "Attention" and node.kind == "sparse_mla"),
    NodeRule("an attention with a role (an indexer)", lambda node: node.op == "Attention" and bool(node.role)),
    NodeRule("latent-width experts", lambda node: node.op == "GroupedGEMM" and node.latent_size > 0),
    NodeRule("experts of two matrices", lambda node: node.op == "GroupedGEMM" and not node.gated),
    NodeRule("always-selected experts", lambda node: node.op == "GroupedGEMM" and node.role == "shared_experts"),
)


def refuse_unpriced(model: ModelGraph, facts: ModelFacts, engine: Engine) -> None:
    """Raise `RefusedError` for the first feature of the deployment that is not priced."""
    for what, field in _unpriced(model, facts, engine):
        raise RefusedError(f"{field}: {what} is not priced yet", field)


def _unpriced(model: ModelGraph, facts: ModelFacts, engine: Engine) -> Iterator[tuple[str, str]]:
    for kind in facts.kinds:
        for node in kind.kind.nodes:
            for rule in NODE_RULES:
                if rule.applies(node):
                    yield f"{rule.what} in layer kind {kind.kind.id}", "model.layer_kinds"
        if len(kind.nodes("GroupedGEMM")) > 1:
            yield f"several sets of experts in layer kind {kind.kind.id}", "model.layer_kinds"
        if len(kind.nodes("Attention")) > 1:
            yield f"several attentions in layer kind {kind.kind.id}", "model.layer_kinds"
    if engine.dbo and engine.dbo.enable_dbo:
        yield "dual-batch overlap", "engine.dbo.enable_dbo"
    if engine.speculative and model.speculator:
        yield f"the draft stack of speculator {model.speculator.method}", "engine.speculative"
    if model.caches:
        yield "a graph that states its caches", "model.caches"
