"""From a plan and its resolution to the flat struct that the C core builds a kernel from.

Nothing is decided here: each function copies one part's numbers into the struct of the same name in csrc/pykernel.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykernel import about
from pykernel._native import ffi, lib
from pykernel.collectives import CollectivePlan
from pykernel.explain import Labels
from pykernel.plan import ExpertsPlan, GemmPlan, LayerPlan, Plan, ReadPlan, ScorerPlan
from pykernel.resolve import Resolved
from pykernel.resolve.caches import CacheGroup
from pykernel.resolve.laws import CollectiveLaw, DecodeLaw, GemmLaw, PrefillLaw
from pykernel.resolve.layout import Group
from pykernel.resolve.model_facts import LATENT_KINDS
from pykernel.resolve.transfers import Links, Tier
from pykernel.switches import LawSwitches

_GRAPH_MODES = {"NONE": lib.PK_GRAPH_NONE, "PIECEWISE": lib.PK_GRAPH_PIECEWISE, "FULL": lib.PK_GRAPH_FULL}


_READS = {"all": lib.PK_READ_ALL, "window": lib.PK_READ_WINDOW, "selected": lib.PK_READ_SELECTED}
_UNITS = {
    "tokens": lib.PK_UNITS_TOKENS,
    "decode_rows": lib.PK_UNITS_DECODE_ROWS,
    "context_rows": lib.PK_UNITS_CONTEXT_ROWS,
    "prefill_rows": lib.PK_UNITS_PREFILL_ROWS,
    "context_chunks": lib.PK_UNITS_CONTEXT_CHUNKS,
}
_CACHES = {
    "tokens": lib.PK_CACHE_TOKENS,
    "ring": lib.PK_CACHE_RING,
    "state": lib.PK_CACHE_STATE,
    "checkpoints": lib.PK_CACHE_CHECKPOINTS,
}
_ARRAYS = {
    "layers": ("pk_layer[]", "layer_count"),
    "attentions": ("pk_attention[]", "attention_count"),
    "scorers": ("pk_scorer[]", "scorer_count"),
    "gemms": ("pk_gemm[]", "gemm_count"),
    "experts": ("pk_experts[]", "experts_count"),
    "collectives": ("pk_collective[]", "collective_count"),
    "collective_laws": ("pk_collective_law[]", "collective_law_count"),
    "groups": ("pk_group[]", "group_count"),
    "caches": ("pk_cache_group[]", "cache_count"),
    "tiers": ("pk_tier[]", "tier_count"),
    "origins": ("pk_origin[]", "origin_count"),
    "overrides": ("pk_override[]", "override_count"),
    "notes": ("pk_note[]", "note_count"),
}
"""The arrays of a spec: the C type and the field that holds the length."""


class Spec:
    """A `pk_spec` and the arrays it points to, which live as long as this object.

    `names` are notes to travel with the kernel, such as the name of the scenario.
    """

    def __init__(
        self, plan: Plan, resolved: Resolved, switches: LawSwitches, names: Mapping[str, str] | None = None
    ) -> None:
        self._resolved = resolved
        self.labels = Labels(
            gemm=resolved.laws.gemm.names, host=resolved.laws.host.names, peak_flops=resolved.precision.peak_flops
        )
        """What each row of the arrays is, for explaining a price."""
        self._groups = list(resolved.layout.groups)
        self._laws = list(resolved.laws.collectives)
        self._rows: dict[str, list[Any]] = {name: [] for name in _ARRAYS}
        self._extend("groups", [_group(group) for group in resolved.layout.groups.values()])
        self._extend("collective_laws", [_collective_law(law) for law in resolved.laws.collectives.values()])
        self._extend("caches", [_cache_group(group) for group in resolved.caches.groups])
        self._extend("tiers", [_tier(tier) for tier in resolved.links.tiers])
        for layer in (*plan.layers, *plan.draft_layers):
            self._add_layer(layer)
        self._keep: list[Any] = []
        self.struct = ffi.new("pk_spec *", {**self._top(plan, switches), **self._about(names or {})})
        self._keep += [self._attach(name) for name in _ARRAYS]
        self.struct.layer_count = len(plan.layers)
        self.struct.draft_layer_count = len(plan.draft_layers)

    def _attach(self, name: str) -> Any:
        kind, count = _ARRAYS[name]
        memory = ffi.new(kind, self._rows[name])
        setattr(self.struct, name, memory)
        setattr(self.struct, count, len(self._rows[name]))
        return memory

    def _top(self, plan: Plan, switches: LawSwitches) -> dict[str, Any]:
        resolved = self._resolved
        return {
            "struct_size": ffi.sizeof("pk_spec"),
            "tensor_parallel": resolved.layout.tp,
            "prefill_context_parallel": resolved.layout.pcp,
            "decode_context_parallel": resolved.layout.dcp,
            "interleave": resolved.context.interleave,
            "context_chunk": resolved.context_chunk,
            "draft_passes": plan.draft_passes,
            "sm_count": resolved.sm_count,
            "peak_flops": resolved.precision.peak_flops,
            "hbm_bytes_per_second": resolved.laws.hbm_bytes_per_second,
            "link_ratio": resolved.layout.link_ratio,
            "gemm": _gemm_law(resolved.laws.gemm),
            "host": self._host(plan),
            "head": self._head(plan, switches),
            "memory": self._memory(plan, switches),
            "links": _links(resolved.links),
        }

    def _about(self, names: Mapping[str, str]) -> dict[str, Any]:
        """What the kernel stands for: the arrays are extended, the rest is returned."""
        resolved = self._resolved
        parts = about.rows(self.labels, resolved.pool, resolved.resolution, resolved.provenance, names, self._text)
        for name in ("origins", "overrides", "notes"):
            self._extend(name, parts.pop(name))
        return parts

    def _text(self, value: str) -> Any:
        """Text for the C struct to point to. A NUL, with which C ends a text, becomes U+FFFD."""
        text = ffi.new("char[]", value.replace("\0", "\ufffd").encode(errors="replace"))
        self._keep.append(text)
        return text

    def _memory(self, plan: Plan, switches: LawSwitches) -> dict[str, Any]:
        memory, settings = self._resolved.memory, self._resolved.settings
        return {
            "device_bytes": memory.device_bytes,
            "utilization": memory.utilization,
            "embedding_bytes": plan.embedding_bytes,
            "activation_buffers": memory.activation_buffers,
            "activation_tokens": settings.max_num_batched_tokens,
            "activation_width": memory.activation_width,
            "activation_floor_bytes": memory.activation_floor_bytes,
            "graph_bytes": memory.graph_bytes,
            "communicator_bytes": memory.communicator_bytes,
            "workspace_bytes": memory.workspace_bytes,
            "inside_budget": int(not switches.communicator_before_snapshot),
            "draft_tokens": settings.draft_tokens,
            "block": settings.block_size,
            "in_flight_tokens": memory.in_flight_tokens,
            "model_length": self._resolved.pool.engine.max_model_len,
            "pool_block_bytes": self._resolved.caches.pool_block_bytes,
        }

    def _host(self, plan: Plan) -> dict[str, Any]:
        graphs, host = self._resolved.settings.graphs, self._resolved.laws.host
        return {
            "uniform_mode": _GRAPH_MODES[graphs.uniform],
            "other_mode": _GRAPH_MODES[graphs.other],
            "uniform_width": graphs.uniform_width,
            "segments": plan.segments,
            "layers": plan.depth,
            "kernels": plan.kernels,
            "capture_tokens": graphs.capture_tokens,
            "decode_threshold": self._resolved.decode_threshold,
            "replay_ns": host.replay_ns,
            "eager_layer_ns": host.eager_layer_ns,
            "kernel_ns": host.kernel_ns,
            "admission_request_ns": host.admission_request_ns,
            "admission_token_ns": host.admission_token_ns,
            "output_token_ns": host.output_token_ns,
            "completion_ns": host.completion_ns,
        }

    def _head(self, plan: Plan, switches: LawSwitches) -> dict[str, Any]:
        head = plan.head
        self.labels.gather = self._resolved.laws.collectives["all_gather", "tensor"].names
        gathers = switches.vocabulary_gather and self._resolved.layout.tp > 1 and head.dense_flops_per_token > 0
        return {
            "rows": lib.PK_HEAD_SAMPLED_ROWS if switches.head_on_sampled_rows else lib.PK_HEAD_ALL_TOKENS,
            "has_gather": int(gathers),
            "gather_law": self._law_index("all_gather", "tensor"),
            "gather_group": self._group_index("tensor"),
            "flops_per_row": head.dense_flops_per_token,
            "bytes": head.dense_bytes,
            "gather_bytes_per_row": plan.gathered_row_bytes,
            "stored_bytes": head.stored_bytes,
        }

    def _add_layer(self, layer: LayerPlan) -> None:
        by_shape = self._resolved.laws.gemm.by_shape
        parts = {
            "attention": self._extend("attentions", [self._attention(layer)] if layer.attention else []),
            "scorer": self._extend(
                "scorers", [self._scorer(scorer) for scorer in layer.scorers if self._scans(scorer)]
            ),
            "gemm": self._extend("gemms", [self._gemm(gemm) for gemm in layer.gemms] if by_shape else []),
            "experts": self._extend("experts", [self._experts(experts) for experts in layer.experts]),
            "collective": self._extend("collectives", [self._collective(one) for one in layer.collectives]),
        }
        row = {
            "count": layer.count,
            "dense_flops_per_token": layer.shared_flops_per_token if by_shape else layer.dense_flops_per_token,
            "dense_bytes": layer.dense_bytes,
            "elementwise_bytes_per_token": layer.elementwise_bytes_per_token,
            "recurrent": self._recurrent(layer.recurrent_kind),
            "stored_bytes": layer.stored_bytes,
            "replicated_bytes": layer.replicated_bytes,
        }
        for name, (first, count) in parts.items():
            row[f"{name}_first"], row[f"{name}_count"] = first, count
        self._extend("layers", [row])
        self._label(layer)

    def _label(self, layer: LayerPlan) -> None:
        laws, labels = self._resolved.laws, self.labels
        labels.layers.append(layer.id)
        recurrent = laws.recurrent.get(layer.recurrent_kind)
        labels.recurrent.append(recurrent.names if recurrent else ())
        if layer.attention:
            labels.attentions.append(
                (layer.attention.kind, laws.decode[layer.attention.kind].names, laws.prefill.names)
            )
        labels.scorers += [(one.kind, laws.decode[one.kind].names) for one in layer.scorers if self._scans(one)]
        labels.collectives += [
            (f"{one.operation} over {one.group}", laws.collectives[one.operation, one.group].names)
            for one in layer.collectives
        ]

    def _extend(self, name: str, rows: list[Any]) -> tuple[int, int]:
        """Append rows to an array; where they begin and how many they are."""
        first = len(self._rows[name])
        self._rows[name].extend(rows)
        return first, len(rows)

    def _attention(self, layer: LayerPlan) -> dict[str, Any]:
        attention = layer.attention
        assert attention is not None
        latent = attention.kind in LATENT_KINDS
        return {
            "query_heads": attention.query_heads,
            "head_dim": attention.head_dim,
            "prefill_window": attention.prefill_window,
            "cache_bytes_per_token": attention.cache_bytes_per_token,
            "one_mixed_launch": int(self._resolved.one_mixed_launch and not latent),
            "read": _read_law(attention.read),
            "decode": _decode_law(self._resolved.laws.decode[attention.kind]),
            "prefill": _prefill_law(self._resolved.laws.prefill),
        }

    def _scans(self, scorer: ScorerPlan) -> bool:
        """A scorer without a rate is not charged."""
        return self._resolved.laws.decode[scorer.kind].bytes_per_second > 0

    def _scorer(self, scorer: ScorerPlan) -> dict[str, Any]:
        return {
            "cache_bytes_per_token": scorer.cache_bytes_per_token,
            "window": scorer.window,
            "compress_ratio": scorer.compress_ratio,
            "sharded": int(scorer.sharded),
            "decode": _decode_law(self._resolved.laws.decode[scorer.kind]),
        }

    def _gemm(self, gemm: GemmPlan) -> dict[str, Any]:
        tp = self._resolved.layout.tp
        return {
            "flops_per_token": 2.0 * gemm.n * gemm.k,
            "n": gemm.n / tp if gemm.column_parallel else gemm.n,
            "k": gemm.k if gemm.column_parallel else gemm.k / tp,
        }

    def _recurrent(self, kind: str) -> dict[str, Any]:
        law = self._resolved.laws.recurrent.get(kind)
        if law is None:
            return {"law": lib.PK_RECURRENT_NONE}
        return {
            "law": lib.PK_RECURRENT_FLOOR_RATE,
            "floor_ns": law.floor_ns,
            "tokens_per_second": law.tokens_per_second,
        }

    def _experts(self, experts: ExpertsPlan) -> dict[str, Any]:
        placement = self._resolved.experts
        assert placement is not None
        return {
            "experts": placement.physical(experts.experts),
            "local": placement.local(experts.experts),
            "top_k": experts.top_k,
            "shards": placement.shards,
            "funnel": placement.funnel,
            "token_slices": placement.token_slices,
            "flops_per_token_and_expert": experts.flops_per_token_and_expert,
            "bytes_per_expert": experts.bytes_per_expert,
            "imbalance": self._resolved.laws.imbalance,
            "stored_bytes_per_expert": experts.stored_bytes_per_expert,
            "redundant": placement.redundant,
            "ranks": placement.ranks,
        }

    def _collective(self, collective: CollectivePlan) -> dict[str, Any]:
        return {
            "law": self._law_index(collective.operation, collective.group),
            "group": self._group_index(collective.group),
            "span": lib.PK_SPAN_ALL_TO_ALL if collective.all_to_all else lib.PK_SPAN_RING,
            "units": _UNITS[collective.units],
            "on_sm": int(collective.on_sm),
            "bytes_per_unit": collective.bytes_per_unit,
        }

    def _law_index(self, operation: str, group: str) -> int:
        return self._laws.index((operation, group))

    def _group_index(self, group: str) -> int:
        return self._groups.index(group)


def _gemm_law(law: GemmLaw) -> dict[str, Any]:
    id_ = lib.PK_GEMM_SHAPE_RAMP if law.by_shape else lib.PK_GEMM_TOKEN_RAMP
    return {"law": id_, "eps_max": law.eps_max, "m_half": law.m_half, "n_half": law.n_half, "k_half": law.k_half}


def _read_law(read: ReadPlan) -> dict[str, Any]:
    return {
        "law": _READS[read.law],
        "sharded": int(read.sharded),
        "top_k": read.top_k,
        "compress_ratio": read.compress_ratio,
        "window": read.window,
    }


def _cache_group(group: CacheGroup) -> dict[str, Any]:
    return {
        "kind": _CACHES[group.kind],
        "layers": group.layers,
        "tokens_per_entry": group.tokens_per_entry,
        "sharded": int(group.sharded),
        "pages": group.pages,
        "handed_over": int(group.handed_over),
        "block": group.block,
        "window": group.window,
        "entry_bytes": group.entry_bytes,
    }


def _tier(tier: Tier) -> dict[str, Any]:
    return {
        "name": tier.name.encode(),
        "read_bytes_per_second": tier.read_bytes_per_second,
        "write_bytes_per_second": tier.write_bytes_per_second,
        "latency_us": tier.latency_us,
    }


def _links(links: Links) -> dict[str, Any]:
    return {
        "host_bytes_per_second": links.host_bytes_per_second,
        "node_bytes_per_second": links.node_bytes_per_second,
        "fabric_bytes_per_second": links.fabric_bytes_per_second,
        "handoff_floor_ns": links.handoff_floor_ns,
        "rack_is_one_domain": int(links.rack_is_one_domain),
    }


def _group(group: Group) -> dict[str, Any]:
    return {"width": group.width, "per_node": group.per_node, "crosses_nodes": int(group.crosses_nodes)}


def _collective_law(law: CollectiveLaw) -> dict[str, Any]:
    return {
        "law": lib.PK_COLLECTIVE_TWO_RATES,
        "floor_ns": law.floor_ns,
        "transition_bytes_per_second": law.transition_bytes_per_second,
        "peak_bytes_per_second": law.peak_bytes_per_second,
    }


def _decode_law(law: DecodeLaw) -> dict[str, Any]:
    id_ = lib.PK_DECODE_FLOOR_RATE if law.bytes_per_second > 0 else lib.PK_DECODE_HBM
    return {"law": id_, "floor_ns": law.floor_ns, "bytes_per_second": law.bytes_per_second}


def _prefill_law(law: PrefillLaw) -> dict[str, Any]:
    id_ = lib.PK_PREFILL_FLOOR_RAMP if law.work_scale > 0 else lib.PK_PREFILL_DENSE
    return {"law": id_, "floor_ns": law.floor_ns, "work_scale": law.work_scale}
