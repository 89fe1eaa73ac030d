"""Where the routed experts are: how many a rank holds, how each is sliced, whose tokens meet at them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykernel.documents import Engine
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import StackKind


@dataclass(frozen=True, slots=True)
class ExpertPlacement:
    """Where routed experts are, and how the fullest rank is found where they do not divide evenly.

    redundant : replicas added to each layer's experts.
    ranks : ranks that whole experts are dealt to.
    shards : ranks that share one expert's weights; 1 where whole experts are placed.
    funnel : data-parallel replicas whose tokens meet at a rank's experts.
    token_slices : ways the arithmetic of those tokens is divided again.
    """

    redundant: int
    ranks: int
    shards: int
    funnel: int
    token_slices: int

    def physical(self, experts: int) -> int:
        """Experts of a layer that declares `experts`, replicas included."""
        return experts + self.redundant

    def local(self, experts: int) -> int:
        """Those of them that the fullest rank holds."""
        return -(-self.physical(experts) // self.ranks)


def place_experts(kinds: Iterable[StackKind], engine: Engine, layout: Layout) -> ExpertPlacement | None:
    """The placement in layers of these kinds, None without routed experts."""
    if not any(kind.routed_experts for kind in kinds):
        return None
    dispatched = layout.moe_width > 1 and layout.dp > 1
    whole = layout.ep > 1
    return ExpertPlacement(
        redundant=redundant_experts(engine),
        ranks=layout.ep,
        shards=1 if whole else layout.tp * layout.dp,
        funnel=layout.dp if dispatched else 1,
        token_slices=1 if whole else layout.dp,
    )


def redundant_experts(engine: Engine) -> int:
    """Replicas added to the experts of each layer; none unless the deployment balances load."""
    eplb = engine.eplb
    return eplb.num_redundant_experts if eplb and eplb.enable_eplb else 0
