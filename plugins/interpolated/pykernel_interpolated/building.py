"""From the operations of a deployment to layers with a curve for every kernel."""

from __future__ import annotations

from pykernel.collectives import CollectivePlan
from pykernel.documents import Chip
from pykernel.fit.tables import Tables
from pykernel.interface import CoefficientOrigin
from pykernel.measured.flattening import VOLUMES
from pykernel.measured.formats import STORED_BYTES
from pykernel.measured.operations import Operations
from pykernel.measured.plan import Matrix as PlannedMatrix
from pykernel.measured.plan import MeasuredAttention, MeasuredExperts, MeasuredLayer, MeasuredRecurrent
from pykernel.plan import ExpertsPlan, LayerPlan
from pykernel.resolve import KERNEL_ASSUMPTION_SET
from pykernel.resolve.layout import Group
from pykernel_interpolated import shapes
from pykernel_interpolated.curves import Surface
from pykernel_interpolated.layers import Attention, Experts, Layer, Link, Matrix, Mixer, Scorer
from pykernel_interpolated.tables import measured


class Builder:
    """Looks up the curve of every kernel of a deployment. Raises `RefusedError` for one that was not measured.

    `origins` says which tables were used, and what stood in for what.
    """

    def __init__(self, operations: Operations, chip: Chip, tables: Tables) -> None:
        self.operations, self.resolved = operations, operations.resolved
        self.tables, self.chip = tables, chip.name
        self.byte = 1 / (chip.bw_peak_tbs * 1e12)
        """Seconds of one byte at the full rate of the memory."""
        self._origins: dict[str, CoefficientOrigin] = {}

    @property
    def origins(self) -> tuple[CoefficientOrigin, ...]:
        return tuple(self._origins.values())

    def layers(self) -> tuple[list[Layer], list[Layer]]:
        """The layers of the stack, and of the draft module."""
        plan, own = self.operations.plan, self.operations.measured
        stack = [self._layer(*pair) for pair in zip(plan.layers, own.layers, strict=True)]
        draft = [self._layer(*pair) for pair in zip(plan.draft_layers, own.draft_layers, strict=True)]
        return stack, draft

    def head(self) -> Layer:
        """The output projection, and the gather of its logits."""
        layer, planned = Layer(1), self.operations.measured.head
        if planned:
            layer.matrices.append(self._matrix(planned))
            if self.resolved.layout.tp > 1:
                gathered = self.operations.plan.gathered_row_bytes
                layer.links += self._links([CollectivePlan("all_gather", "tensor", gathered)])
        return layer

    def _layer(self, plan: LayerPlan, own: MeasuredLayer) -> Layer:
        layer = Layer(plan.count, plan.elementwise_bytes_per_token * self.byte)
        layer.matrices = [self._matrix(planned) for planned in own.matrices]
        if own.attention:
            layer.attention = self._attention(plan, own.attention)
        layer.scorers = [
            Scorer(self._queries("indexer", scorer.flops_per_pair), plan.scorers[place].compress_ratio)
            for place, scorer in enumerate(own.scorers)
        ]
        layer.experts = [self._experts(*pair) for pair in zip(plan.experts, own.experts, strict=True)]
        if own.recurrent:
            layer.mixer = self._mixer(own.recurrent)
        layer.links = self._links(plan.collectives)
        return layer

    def _matrix(self, planned: PlannedMatrix) -> Matrix:
        self._note("gemm", planned.format)
        curve = shapes.matrix(self.tables, self.chip, planned.format, planned.n, planned.k)
        return Matrix(curve, planned.n * planned.k * planned.weight_bytes * self.byte)

    def _attention(self, plan: LayerPlan, own: MeasuredAttention) -> Attention:
        planned = plan.attention
        assert planned is not None
        if own.decode == "sparse":
            decode = prefill = self._queries("sparse", own.decode_flops)
        else:
            for operation in (own.decode, own.prefill):
                self._note(operation, own.format)
            decode = shapes.decode(
                self.tables, self.chip, own.decode, own.format, own.kv_heads, own.decode_bytes, own.decode_flops
            )
            latent = own.decode == "latent_decode"  # whose prefill expands the latent to a key for each head
            kv_heads = own.heads if latent else own.kv_heads
            prefill = shapes.prefill(self.tables, self.chip, own.prefill, own.format, own.heads, kv_heads, own.head_dim)
        layout = self.resolved.layout
        return Attention(
            decode=decode,
            prefill=prefill,
            by_rows=own.prefill == "sparse",
            read=planned.read,
            window=planned.prefill_window,
            reading=own.decode_bytes * self.byte,
            decode_ranks=layout.dcp if planned.read.sharded else 1,
            prefill_ranks=layout.pcp,
        )

    def _queries(self, operation: str, work: float) -> Surface:
        self._note(operation, "fp8")
        return shapes.rows_of_queries(self.tables, self.chip, operation, work)

    def _experts(self, plan: ExpertsPlan, own: MeasuredExperts) -> Experts:
        placement = self.resolved.experts
        assert placement is not None
        self._note("experts", own.format)
        curve = shapes.experts(
            self.tables, self.chip, own.format, own.hidden, own.width, plan.top_k, plan.experts, placement.ranks
        )
        weights = own.matrices * own.hidden * own.width * STORED_BYTES[own.format]
        local = placement.local(plan.experts)
        return Experts(curve, placement.funnel, plan.top_k / placement.ranks, local, weights * self.byte)

    def _mixer(self, own: MeasuredRecurrent) -> Mixer:
        names = [f"{own.kind}_{phase}" for phase in ("decode", "prefill")]
        for name in names:
            self._note(name, "bf16")
        decode, prefill = (shapes.mixer(self.tables, self.chip, name) for name in names)
        return Mixer(decode, prefill, own.state_bytes, self.byte)

    def _links(self, plans: list[CollectivePlan]) -> list[Link]:
        return [self._link(plan) for plan in plans if self.resolved.layout.groups[plan.group].width > 1]

    def _link(self, plan: CollectivePlan) -> Link:
        group = self.resolved.layout.groups[plan.group]
        own = plan.operation == "all_reduce" and plan.on_sm
        kernel = "graph" if own else "nccl"
        self._note(plan.operation, kernel)
        crossing = VOLUMES[plan.operation] * (group.width - 1) / group.width
        away = "nic" if group.crosses_nodes else "nvlink"
        return Link(
            shapes.link(self.tables, self.chip, plan.operation, kernel, group.width),
            plan.units,
            plan.bytes_per_unit * crossing,
            "link_sm" if own else away,
            self._outside(plan, group) if group.crosses_nodes else 0.0,
        )

    def _outside(self, plan: CollectivePlan, group: Group) -> float:
        """Seconds between nodes for a byte that crosses a rank's link: rings share a node's adapters, peers do not."""
        if plan.operation == "alltoall":
            share = (group.width - group.per_node) / (group.width - 1)
        else:
            share = 1 / group.per_node
        return share / self.resolved.links.fabric_bytes_per_second

    def _note(self, operation: str, format_: str) -> None:
        found = measured(self.tables, self.chip, operation, format_)
        name = f"interpolated.{found.operation}_{found.format}"
        self._origins[name] = CoefficientOrigin(name, found.sample.source, "measured", f"hardware: {self.chip}")
        if (found.operation, found.format) != (operation, format_):
            asked = f"interpolated_{operation}_{format_}"
            reason = f"{found.operation}_{found.format}: {operation} in {format_} is not measured on {self.chip}"
            self._origins[asked] = CoefficientOrigin(asked, KERNEL_ASSUMPTION_SET, "assumed", reason)
