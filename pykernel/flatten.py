"""From a plan and its resolution to the flat struct that the C core builds a kernel from.

Nothing is decided here: each function copies one part's numbers into the struct of the same name in csrc/pykernel.h.
"""

from __future__ import annotations

from typing import Any

from pykernel._native import ffi, lib
from pykernel.plan import CollectivePlan, ExpertsPlan, LayerPlan, Plan
from pykernel.resolve import Resolved
from pykernel.resolve.laws import CollectiveLaw, DecodeLaw, PrefillLaw
from pykernel.resolve.layout import Group
from pykernel.resolve.model_facts import LATENT_KINDS
from pykernel.switches import LawSwitches

_GRAPH_MODES = {"NONE": lib.PK_GRAPH_NONE, "PIECEWISE": lib.PK_GRAPH_PIECEWISE, "FULL": lib.PK_GRAPH_FULL}


class Spec:
    """A `pk_spec` and the arrays it points to, which live as long as this object."""

    def __init__(self, plan: Plan, resolved: Resolved, switches: LawSwitches) -> None:
        self._groups = {"tensor": resolved.layout.tensor, "expert": resolved.layout.expert}
        self._laws = resolved.laws.collectives
        self._resolved = resolved
        self._arrays: dict[str, list[Any]] = {
            name: [] for name in ("layers", "attentions", "experts", "collectives", "collective_laws", "groups")
        }
        self._arrays["groups"] = [_group(group) for group in self._groups.values()]
        self._arrays["collective_laws"] = [_collective_law(law) for law in self._laws.values()]
        for layer in plan.layers:
            self._add_layer(layer)
        self.struct = ffi.new("pk_spec *", self._top(plan, switches))
        self._keep = [self._attach(name, rows) for name, rows in self._arrays.items()]

    def _attach(self, name: str, rows: list[Any]) -> Any:
        kind = {"experts": "pk_experts", "collectives": "pk_collective"}.get(name, f"pk_{name.removesuffix('s')}")
        memory = ffi.new(f"{kind}[]", rows)
        setattr(self.struct, name, memory)
        setattr(self.struct, f"{name.removesuffix('s')}_count" if name != "experts" else "experts_count", len(rows))
        return memory

    def _top(self, plan: Plan, switches: LawSwitches) -> dict[str, Any]:
        resolved = self._resolved
        gemm = resolved.laws.gemm
        return {
            "struct_size": ffi.sizeof("pk_spec"),
            "tensor_parallel": resolved.layout.tp,
            "sm_count": resolved.sm_count,
            "peak_flops": resolved.precision.peak_flops,
            "hbm_bytes_per_second": resolved.laws.hbm_bytes_per_second,
            "link_ratio": resolved.layout.link_ratio,
            "gemm": {"law": lib.PK_GEMM_TOKEN_RAMP, "eps_max": gemm.eps_max, "m_half": gemm.m_half},
            "host": self._host(plan),
            "head": self._head(plan, switches),
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
            "replay_ns": host.replay_ns,
            "eager_layer_ns": host.eager_layer_ns,
            "kernel_ns": host.kernel_ns,
        }

    def _head(self, plan: Plan, switches: LawSwitches) -> dict[str, Any]:
        head = plan.head
        gathers = switches.vocabulary_gather and self._resolved.layout.tp > 1 and head.dense_flops_per_token > 0
        return {
            "rows": lib.PK_HEAD_SAMPLED_ROWS if switches.head_on_sampled_rows else lib.PK_HEAD_ALL_TOKENS,
            "has_gather": int(gathers),
            "gather_law": self._law_index("all_gather", "tensor"),
            "gather_group": self._group_index("tensor"),
            "flops_per_row": head.dense_flops_per_token,
            "bytes": head.dense_bytes,
            "gather_bytes_per_row": plan.gathered_row_bytes,
        }

    def _add_layer(self, layer: LayerPlan) -> None:
        attentions = [self._attention(layer)] if layer.attention else []
        experts = [self._experts(experts) for experts in layer.experts]
        collectives = [self._collective(collective) for collective in layer.collectives]
        self._arrays["layers"].append(
            {
                "count": layer.count,
                "attention_first": self._extend("attentions", attentions),
                "attention_count": len(attentions),
                "experts_first": self._extend("experts", experts),
                "experts_count": len(experts),
                "collective_first": self._extend("collectives", collectives),
                "collective_count": len(collectives),
                "dense_flops_per_token": layer.dense_flops_per_token,
                "dense_bytes": layer.dense_bytes,
                "elementwise_bytes_per_token": layer.elementwise_bytes_per_token,
            }
        )

    def _extend(self, name: str, rows: list[Any]) -> int:
        """Append rows to an array and return where they begin."""
        first = len(self._arrays[name])
        self._arrays[name].extend(rows)
        return first

    def _attention(self, layer: LayerPlan) -> dict[str, Any]:
        attention = layer.attention
        assert attention is not None
        latent = attention.kind in LATENT_KINDS
        return {
            "query_heads": attention.query_heads,
            "head_dim": attention.head_dim,
            "window": attention.window,
            "cache_bytes_per_token": attention.cache_bytes_per_token,
            "one_mixed_launch": int(self._resolved.one_mixed_launch and not latent),
            "decode": _decode_law(self._resolved.laws.decode[attention.kind]),
            "prefill": _prefill_law(self._resolved.laws.prefill),
        }

    def _experts(self, experts: ExpertsPlan) -> dict[str, Any]:
        placement = self._resolved.experts
        assert placement is not None
        return {
            "experts": placement.physical,
            "local": placement.local,
            "top_k": experts.top_k,
            "shards": placement.shards,
            "funnel": placement.funnel,
            "token_slices": placement.token_slices,
            "flops_per_token_and_expert": experts.flops_per_token_and_expert,
            "bytes_per_expert": experts.bytes_per_expert,
            "imbalance": self._resolved.laws.imbalance,
        }

    def _collective(self, collective: CollectivePlan) -> dict[str, Any]:
        return {
            "law": self._law_index(collective.operation, collective.group),
            "group": self._group_index(collective.group),
            "span": lib.PK_SPAN_ALL_TO_ALL if collective.all_to_all else lib.PK_SPAN_RING,
            "launches": 1,
            "bytes_per_token": collective.bytes_per_token,
        }

    def _law_index(self, operation: str, group: str) -> int:
        return list(self._laws).index((operation, group))

    def _group_index(self, group: str) -> int:
        return list(self._groups).index(group)


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
