"""Law K4: where ranks are, as prices show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pykernel.documents import Fabric, Inputs
from pykernel.laws.batches import equal
from pykernel.laws.law import MODEL, Refused, Skipped, law
from pykernel.laws.subject import Priced, Subject, settle

Group = Sequence[int]
"""The ranks that take part in one collective."""


@dataclass(frozen=True, slots=True)
class _Spread:
    """A group that leaves its node: all its ranks, those on the node that holds most, and whether experts are dealt."""

    width: int
    busiest: int
    experts: bool

    def times_as_many(self) -> set[int]:
        """How many times the tokens take as long with equal links as these do with a network `width` times slower.

        Of `width - 1` hops of a ring, `width / busiest - 1` cross; of an exchange of all with all, `width - busiest`.
        """
        ring = self.width // self.busiest
        return {ring, 1 + self.width - self.busiest} if self.experts else {ring}


@dataclass(frozen=True, slots=True)
class _Layout:
    """Ranks on nodes of `node` GPUs: consecutive ones differ in tensor parallelism, then prefill context, then data."""

    node: int
    tp: int
    pcp: int
    dp: int
    dcp: int

    def __str__(self) -> str:
        return f"tp {self.tp}, pcp {self.pcp}, dp {self.dp}, dcp {self.dcp} on nodes of {self.node}"

    def leaving(self, experts: bool) -> tuple[set[_Spread], set[_Spread]]:
        """Groups that leave a node: of those that decodes use, and of those that only prefills use."""
        ranks = range(self.tp * self.pcp * self.dp)
        tensor = _runs(ranks, self.tp)
        blocks = _runs(ranks, self.tp * self.pcp)
        context: list[Group] = [block[first :: self.tp] for block in blocks for first in range(self.tp)]
        shared = context if self.dcp == self.pcp else blocks if self.pcp > 1 else _runs(ranks, self.dcp)
        decodes = self._spread(tensor + (shared if self.dcp > 1 else []))
        return decodes | self._spread([ranks] if experts else [], experts=True), self._spread(context)

    def _spread(self, groups: Iterable[Group], experts: bool = False) -> set[_Spread]:
        on_nodes = [Counter(rank // self.node for rank in group) for group in groups]
        return {_Spread(on.total(), max(on.values()), experts) for on in on_nodes if len(on) > 1}

    def document(self, faster: int) -> Callable[[Inputs], None]:
        """Documents of this layout, links within a node `faster` times as fast as the network."""

        def change(documents: Inputs) -> None:
            documents.scenario.cluster.gpus_per_node = self.node
            widths = {"tp": self.tp, "pcp": self.pcp, "dp": self.dp, "dcp": self.dcp}
            settle(documents, **widths, dp_local=0, eplb=None, dcp_comm_backend="")
            rate = documents.chip.intra_node_bw_gbps / faster
            documents.fabric = Fabric("a network", "vendor_spec", rate, True)
            documents.scenario.cluster.fabric = "a network"

        return change


def _runs(ranks: Group, width: int) -> list[Group]:
    return [ranks[first : first + width] for first in range(0, len(ranks), width)]


def _layouts() -> Iterator[_Layout]:
    for node, tp, pcp, dp in product((4, 8), (1, 2, 4, 8), (1, 2, 4), (1, 2)):
        for dcp in sorted({1, pcp, tp * pcp} | ({2, 4, 8} if pcp == 1 else set())):
            if pcp > 1 or tp % dcp == 0:
                yield _Layout(node, tp, pcp, dp, dcp)


@law(
    "K4",
    "The network between nodes is used just where a group of ranks leaves its node, and slows it by how many of them "
    "one node holds; ranks are counted tensor first, then prefill context, then data.",
    standing=MODEL,
    sweep="nodes of 4 and 8 GPUs, tp 1 to 8, pcp 1 to 4, dp 1 and 2, every dcp that these admit; a network as fast as "
    "the links of a node, and one slower by the width of the group",
    tolerance="2 ns",
)
def groups_leave_nodes(subject: Subject) -> Iterator[str]:
    documents = subject.given
    if documents.chip.gpus_per_rack and documents.chip.intra_rack_bw_gbps:
        raise Skipped("nodes of a rack share links of their own")
    routed = any(node.experts for kind in documents.model.layer_kinds for node in kind.nodes)
    for layout in _layouts():
        try:
            model = subject.twin(layout.document(1))
        except Refused:
            continue
        decodes, prefills = layout.leaving(routed and _exchanges(model))
        for name, leaving in (("decodes", decodes), ("a prefill", decodes | prefills)):
            if (_nic(model, name, 1) > 0) != bool(leaving):
                where = "leave" if leaving else "stay on"
                yield f"{layout}: groups {where} their nodes, {name} say otherwise"
        name, leaving = ("decodes", decodes) if decodes else ("a prefill", prefills)
        if len(leaving) == 1:
            yield from _slowed(subject, layout, model, name, leaving.pop())


def _exchanges(model: Any) -> bool:
    parallel = model.deployment().parallel
    return bool(parallel.enable_expert_parallel) or parallel.dp > 1


def _slowed(subject: Subject, layout: _Layout, model: Any, name: str, group: _Spread) -> Iterator[str]:
    found = _nic(subject.twin(layout.document(group.width)), name, 1)
    expected = [_nic(model, name, factor) for factor in sorted(group.times_as_many())]
    if all(abs(found - one) > 2 for one in expected):
        yield (
            f"{layout}: {name} take {found} ns of a network {group.width} times slower than the links of a node, not "
            f"{' or '.join(map(str, expected))} ns as {group.width} ranks of which one node holds {group.busiest}"
        )


def _nic(model: Any, name: str, factor: int) -> int:
    """Time of the network for a batch of so many times the tokens, ns."""
    batch = equal(8 * factor, 1, 1024) if name == "decodes" else equal(1, 512 * factor, 512 * factor)
    return Priced.of(model.step_time(batch)).get("nic")
