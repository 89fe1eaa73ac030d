"""From a measured plan and its coefficients to the `pk_measured` that stands beside the plain spec of the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pykernel._native import ffi
from pykernel.documents import Chip, Inputs
from pykernel.explain import Labels
from pykernel.flatten import Spec
from pykernel.measured.engine_way import own_all_reduce_bytes
from pykernel.measured.formats import STORED_BYTES
from pykernel.measured.laws import (
    EXPERT_PRIMITIVES,
    HostConstants,
    Law,
    MeasuredLaws,
    experts_primitive,
    host_constants,
    measured_laws,
    over_heads,
    over_links,
)
from pykernel.measured.operations import Operations, operations_of
from pykernel.measured.plan import Matrix, MeasuredLayer
from pykernel.plan import LayerPlan, Plan
from pykernel.resolve.record import Record
from pykernel.switches import LawSwitches

SIXTEENTHS = 16
EVERY_SIZE = 1e30
"""Bytes that no tensor has."""

VOLUMES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
"""Times that a byte of the tensor crosses one rank's link, before the factor (n - 1) / n."""

BUSIEST = {1: 0.0, 2: 0.564, 4: 1.029, 8: 1.424, 16: 1.766, 32: 2.070, 64: 2.344}
"""Expected maximum of so many standard normal variables (order statistics, e.g. Harter 1961)."""

_MICROSECONDS = frozenset({"floor", "depth", "per_row", "per_stream", "ramp", "per_peer", "regroup"})
HOST_TIMES = ("layer", "prompt_layer", "prompt_token", "unprepared_step", "unprepared_request")
"""Serving constants in microseconds."""
_ARRAYS = {
    "layers": ("pk_measured_layer", "layer_count"),
    "attentions": ("pk_measured_attention", "attention_count"),
    "scorers": ("pk_measured_scorer", "scorer_count"),
    "experts": ("pk_measured_experts", "experts_count"),
    "collectives": ("pk_measured_collective", "collective_count"),
    "matrices": ("pk_matrix", "matrix_count"),
    "matrix_laws": ("pk_matrix_law", "matrix_law_count"),
    "stream_laws": ("pk_stream_law", "stream_law_count"),
    "tile_laws": ("pk_tile_law", "tile_law_count"),
    "expert_laws": ("pk_expert_law", "expert_law_count"),
    "link_laws": ("pk_link_law", "link_law_count"),
    "mixer_laws": ("pk_mixer_law", "mixer_law_count"),
    "capture_sizes": ("pk_capture_size", "capture_size_count"),
}
"""The arrays of `pk_measured`: the C type and the field that holds the length."""
_RENAMED = {"compute_efficiency": "compute", "memory_efficiency": "memory"}


def measured_spec(inputs: Inputs, switches: LawSwitches, names: Mapping[str, str]) -> Spec:
    """The spec of a deployment with measured laws; `names` are notes to travel with it."""
    operations = operations_of(inputs, switches)
    assert inputs.chip is not None
    laws, host = measured_laws(inputs.chip, Record()), host_constants(switches.engine)
    return MeasuredSpec(operations, switches, inputs.chip, laws, host, names)


class MeasuredSpec(Spec):
    """A spec whose `measured` is set: the plain part says what is read and launched, that part what it costs."""

    def __init__(
        self,
        operations: Operations,
        switches: LawSwitches,
        chip: Chip,
        laws: MeasuredLaws,
        host: HostConstants,
        names: Mapping[str, str],
    ) -> None:
        plan, measured, resolved = operations.plan, operations.measured, operations.resolved
        self._resolved, self._capture_sizes = resolved, operations.capture_sizes
        self._chip, self._found, self._host_constants = chip, laws, host
        self._layer_share = measured.whole_layers(plan) / plan.depth
        self._law_rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("matrix_laws", "stream_laws", "tile_laws", "expert_laws", "link_laws", "mixer_laws")
        }
        self._law_places: dict[tuple[object, ...], int] = {}
        self._matrix_rows: list[dict[str, Any]] = []
        self._parts: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("layers", "attentions", "scorers", "experts", "collectives")
        }
        self._behind: dict[str, list[Any]] = {
            name: [] for name in ("layers", "dense", "recurrent", "attentions", "scorers", "experts", "collectives")
        }
        for layer, own in zip(
            (*plan.layers, *plan.draft_layers), (*measured.layers, *measured.draft_layers), strict=True
        ):
            self._measure_layer(layer, own)
            self._name_layer(layer, own)
        head = self._matrix(measured.head) if measured.head else 0
        gather = self._link("all_gather", "nccl", "tensor") if resolved.layout.tp > 1 else 0
        found = (*laws.origins(), *host.origins, *laws.record.assumptions)
        resolved = replace(resolved, provenance=(*resolved.provenance, *found))
        super().__init__(plan, resolved, switches, names)
        self.struct.measured = self._assemble(head, gather)

    def _law_index(self, operation: str, group: str) -> int:
        # Launches that only the engine's way has are priced by measured laws alone.
        return self._laws.index((operation, group)) if (operation, group) in self._laws else 0

    def _label(self, layer: LayerPlan) -> None:
        """The labels come with the laws that they name."""

    def _head(self, plan: Plan, switches: LawSwitches) -> dict[str, Any]:
        row = super()._head(plan, switches)
        self.labels = Labels(
            gemm=(),
            host=(),
            peak_flops=self.labels.peak_flops,
            gather=self._names(("all_gather", "nccl")),
            head=self._names(("gemm", "bf16")),
            launch=self._host_constants.names(*HOST_TIMES),
            **self._behind,
        )
        return row

    def _scans(self, scorer: Any) -> bool:
        return True

    def _scorer(self, scorer: Any) -> dict[str, Any]:
        row = super()._scorer(scorer)
        if self._resolved.laws.decode[scorer.kind].bytes_per_second <= 0:
            row["decode"] = {"law": 1, "floor_ns": 0, "bytes_per_second": self._resolved.laws.hbm_bytes_per_second}
        return row

    # ---- laws ------------------------------------------------------------------------------------------------

    def _law(self, array: str, primitive: str, suffix: str) -> int:
        """Place of a law in its array, added when it is first asked for."""
        values, found = self._found.law(primitive, suffix)
        return self._placed(array, (primitive, suffix), values, {"peak_flops": _peak(self._chip, found, primitive)})

    def _placed(self, array: str, key: tuple[object, ...], values: Law, facts: dict[str, float]) -> int:
        key = (array, *key)
        if key not in self._law_places:
            self._law_places[key] = len(self._law_rows[array])
            self._law_rows[array].append(_in_si(values) | facts)
        return self._law_places[key]

    def _stream(self, primitive: str, suffix: str, width: float, regroups: bool = False) -> int:
        """The law of streams of heads this wide, which are what its coefficients are linear in."""
        values, found = self._found.law(primitive, suffix)
        values = over_heads(values, width, regroups)
        facts = {"peak_flops": _peak(self._chip, found, primitive)}
        return self._placed("stream_laws", (primitive, suffix, width, regroups), values, facts)

    def _reduced_by(self, operation: str, group: str) -> dict[str, float]:
        """One collective: a kernel of the engine's own up to a size, NCCL beyond."""
        layout, engine = self._resolved.layout, self._resolved.pool.engine
        most = own_all_reduce_bytes(layout, engine, self._chip, group) if operation == "all_reduce" else 0.0
        nccl = self._link(operation, "nccl", group)
        if not most:
            return {"law": nccl, "large_law": nccl, "most_bytes": EVERY_SIZE}
        return {"law": self._link(operation, "graph", group), "large_law": nccl, "most_bytes": most}

    def _link(self, operation: str, suffix: str, group: str) -> int:
        ranks = self._resolved.layout.groups[group].width
        values, share = over_links(self._found.law(operation, suffix)[0], ranks)
        facts = {"volume": VOLUMES[operation], "bytes_per_second": self._chip.intra_node_bw_gbps * 1e9 * share}
        return self._placed("link_laws", (operation, suffix, ranks), values, facts)

    def _matrix(self, matrix: Matrix) -> int:
        law = self._law("matrix_laws", "gemm", matrix.format)
        self._matrix_rows.append({"law": law, "n": matrix.n, "k": matrix.k, "weight_bytes": matrix.weight_bytes})
        return len(self._matrix_rows) - 1

    # ---- the coefficients behind ----------------------------------------------------------------------------

    def _names(self, *laws: tuple[str, str]) -> tuple[str, ...]:
        """The coefficients of laws, and the one that scales every kernel."""
        found = dict.fromkeys(name for law in laws for name in self._found.names(*law))
        return (*found, *self._host_constants.names("kernel_scale"))

    def _name_layer(self, layer: LayerPlan, own: MeasuredLayer) -> None:
        behind, attention, mixer = self._behind, own.attention, own.recurrent
        behind["layers"].append(layer.id)
        behind["dense"].append(self._names(*(("gemm", matrix.format) for matrix in own.matrices)))
        phases = [(f"{mixer.kind}_{phase}", "bf16") for phase in ("decode", "prefill")] if mixer else []
        behind["recurrent"].append(self._names(*phases))
        if attention and layer.attention:
            decode, prefill = ((name, attention.format) for name in (attention.decode, attention.prefill))
            behind["attentions"].append((layer.attention.kind, self._names(decode), self._names(prefill)))
        behind["scorers"] += [(one.kind, self._names(("indexer", "fp8"))) for one in layer.scorers]
        shape = self._host_constants.names("shape")
        behind["experts"] += [(*self._names((self._routed, one.format)), *shape) for one in own.experts]
        behind["collectives"] += [
            (f"{one.operation} over {one.group}", self._names((one.operation, "graph"), (one.operation, "nccl")))
            for one in layer.collectives
        ]

    # ---- parts -----------------------------------------------------------------------------------------------

    def _measure_layer(self, layer: LayerPlan, own: MeasuredLayer) -> None:
        first = len(self._matrix_rows)
        for matrix in own.matrices:
            self._matrix(matrix)
        row: dict[str, Any] = {"matrix_first": first, "matrix_count": len(own.matrices)}
        if own.recurrent:
            mixer = own.recurrent
            row |= {
                "mixer": 1,
                "decode_law": self._law("mixer_laws", f"{mixer.kind}_decode", "bf16"),
                "prefill_law": self._law("mixer_laws", f"{mixer.kind}_prefill", "bf16"),
                "state_bytes": mixer.state_bytes,
                "token_bytes": mixer.token_bytes,
                "token_flops": mixer.flops,
            }
        self._parts["layers"].append(row)
        self._measure_attention(own)
        for scorer in own.scorers:
            law = self._stream("indexer", "fp8", scorer.width)
            self._parts["scorers"].append({"law": law, "flops": scorer.flops_per_pair})
        self._measure_experts(layer, own)
        for one in layer.collectives:
            self._parts["collectives"].append(self._reduced_by(one.operation, one.group))

    def _measure_attention(self, own: MeasuredLayer) -> None:
        attention = own.attention
        if attention is None:
            return
        decode = self._stream(attention.decode, attention.format, attention.head_dim, attention.regroups)
        streams = attention.prefill == "sparse"
        prefill = decode if streams else self._law("tile_laws", attention.prefill, attention.format)
        self._parts["attentions"].append(
            {
                "decode_law": decode,
                "prefill_law": prefill,
                "prefill_streams": int(streams),
                "heads": attention.heads,
                "kv_heads": attention.streams,
                "head_dim": attention.head_dim,
                "decode_bytes": attention.decode_bytes,
                "decode_flops": attention.decode_flops,
                "prefill_flops": attention.prefill_flops,
                "query_bytes": attention.query_bytes,
                "kv_bytes": attention.kv_bytes,
            }
        )

    @property
    def _routed(self) -> str:
        """The primitive of the deployment's experts."""
        placement = self._resolved.experts
        return experts_primitive(placement.ranks if placement else 1)

    def _measure_experts(self, layer: LayerPlan, own: MeasuredLayer) -> None:
        placement, shape = self._resolved.experts, self._host_constants.values["shape"]
        for routed, experts in zip(layer.experts, own.experts, strict=True):
            assert placement is not None
            local = placement.local(routed.experts)
            spread = BUSIEST.get(placement.ranks, max(BUSIEST.values())) / (shape * local) ** 0.5
            work = experts.matrices * experts.hidden * experts.width
            self._parts["experts"].append(
                {
                    "law": self._law("expert_laws", self._routed, experts.format),
                    "hidden": experts.hidden,
                    "width": experts.width,
                    "flops_per_row": 2.0 * work,
                    "bytes_per_expert": work * STORED_BYTES[experts.format],
                    "shape": shape,
                    "busiest": 1.0 + spread,
                }
            )

    def _assemble(self, head: int, gather: int) -> dict[str, Any]:
        rows: dict[str, list[Any]] = {**self._parts, **self._law_rows, "matrices": self._matrix_rows}
        rows["capture_sizes"] = [{"tokens": size} for size in self._capture_sizes]
        arrays, counts = {}, {}
        for name, own in rows.items():
            kind, count = _ARRAYS[name]
            arrays[name] = ffi.new(f"{kind}[]", own)
            counts[count] = len(own)
        self._keep.append(arrays)
        return {
            **arrays,
            **counts,
            "present": 1,
            "head_matrix": head,
            "gather_law": gather,
            "bytes_per_second": self._chip.bw_peak_tbs * 1e12,
            "host": self._measured_host(),
        }

    def _measured_host(self) -> dict[str, float]:
        values = {name: self._host_constants.values[name] * 1e-6 for name in HOST_TIMES}
        for name in ("layer", "prompt_layer"):
            values[name] *= self._layer_share  # the core multiplies it by the layers of the stack
        if self._resolved.resolution.async_scheduling:
            values["unprepared_step"] = values["unprepared_request"] = 0.0
        return {"kernel_scale": self._host_constants.values["kernel_scale"], **values}


def _in_si(values: Law) -> dict[str, Any]:
    """A law's coefficients by the names and in the units of its struct."""
    row: dict[str, Any] = {}
    for name, value in values.items():
        if name == "exponent":
            row[name] = round(value * SIXTEENTHS)
        else:
            row[_RENAMED.get(name, name)] = value * 1e-6 if name in _MICROSECONDS else value
    return row


def _peak(chip: Chip, number_format: str, primitive: str) -> float:
    """FLOP/s of the part that a law's efficiency is a fraction of; attention and mixers count 16-bit arithmetic."""
    if primitive == "indexer":
        return (chip.tflops_fp8 or chip.tflops_peak) * 1e12
    if primitive not in ("gemm", *EXPERT_PRIMITIVES):
        return chip.tflops_peak * 1e12
    fp8 = chip.tflops_fp8 or chip.tflops_peak
    peaks = {
        "fp8": fp8,
        "fp8_block": fp8,
        "nvfp4": chip.tflops_nvfp4 or fp8,
        # Blackwell multiplies MXFP4 weights by FP8 activations, other parts widen them to 16 bits.
        "mxfp4": fp8 if primitive in EXPERT_PRIMITIVES and chip.tflops_nvfp4 > 0 else chip.tflops_peak,
    }
    return peaks.get(number_format, chip.tflops_peak) * 1e12
