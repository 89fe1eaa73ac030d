"""Where the published descriptions and the engine differ, and `calibrated` takes the engine's way.

Each function is one such difference of what runs; which matrices are 16-bit or replicated is in `formats` and `plan`,
that pad rows skip routed experts and that graphs run at captured sizes is the core's part of the measured laws.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from pykernel.collectives import ACTIVATION_BYTES, CollectivePlan
from pykernel.documents import Chip, Engine, Inputs, ModelGraph
from pykernel.measured.laws import PCIE_GBPS
from pykernel.plan import LayerPlan, Plan
from pykernel.resolve import Resolved
from pykernel.resolve.caches import aligned_block, entry_bytes
from pykernel.resolve.engine import data_center_blackwell, pre_hopper
from pykernel.resolve.layout import Layout, wants_custom_all_reduce
from pykernel.resolve.model_facts import LATENT_KINDS

DEFAULT_ALL_TO_ALL = "allgather_reducescatter"
OWN_ALL_REDUCE_MIB: dict[str, dict[int, float]] = {
    "PCIe": {2: 8},
    "pre-Hopper": {2: 8, 4: 8, 6: 8, 8: 8},
    "Hopper": {2: 64, 4: 32, 6: 64, 8: 64},
    "Blackwell 10.0": {2: 64, 4: 32, 6: 128, 8: 128, 16: 64},
    "Blackwell 10.3": {2: 64, 4: 64, 6: 32, 8: 64, 16: 64},
}
"""The largest tensor, by ranks, that a kernel of the engine's own reduces: FlashInfer's, the custom one or symmetric
memory, whichever takes the most. The engine tries them in that order and NCCL last (vllm cuda_communicator.py,
all_reduce_utils.py and flashinfer_all_reduce.py at v0.31.0). Without NVLink only pairs have one."""
ACROSS_NODES_MIB: dict[str, dict[int, float]] = {
    "Blackwell 10.0": {2: 64, 4: 32, 8: 1, 16: 64},
    "Blackwell 10.3": {2: 64, 4: 64, 8: 4, 16: 64},
}
"""The same for a group of several nodes inside one NVLink domain: FlashInfer's alone, the others stay on one node."""
MIB = 2.0**20
QUERY_KEY_VARIANCES = 8.0
"""Bytes a token: the variance of its queries and that of its keys, in fp32."""


def engine_inputs(inputs: Inputs) -> Inputs:
    """The documents with what the engine fills in before anything else looks at it."""
    pools = getattr(inputs.deployment, "pools", None)
    if not pools or not isinstance(inputs.pool, int) or not 0 <= inputs.pool < len(pools):
        return inputs  # resolution reports what is wrong
    parallel, engine = pools[inputs.pool].parallel, pools[inputs.pool].engine
    filled: dict[str, str | None] = {}
    if parallel.enable_expert_parallel and not engine.all2all_backend:
        # An unstated backend is this one, which engages sequence-parallel experts (vllm/config/parallel.py at v0.31.0).
        filled["all2all_backend"] = DEFAULT_ALL_TO_ALL
    if parallel.dcp > 1 and not engine.dcp_comm_backend and _combines_all_to_all(inputs.model):
        filled["dcp_comm_backend"] = "a2a"
    if replicates_queries(inputs):
        filled["dcp_q_replicate"] = None  # the published rules refuse it, the engine does not
    if not filled:
        return inputs
    deployment = copy.deepcopy(inputs.deployment)
    for name, value in filled.items():
        setattr(deployment.pools[inputs.pool].engine, name, value)
    return replace(inputs, deployment=deployment)


def _combines_all_to_all(model: ModelGraph | None) -> bool:
    """GLM-5 and its successors with sparse latent attention combine decode-context ranks in one exchange, each with all
    queries of the group, unless stated otherwise (vllm/config/model.py at v0.31.0)."""
    return model is not None and model.name.lower().startswith("glm") and "sparse_mla" in _kinds(model)


def replicates_queries(inputs: Inputs) -> bool:
    """Whether decode-context ranks each project the queries of all of them, instead of gathering them."""
    pool, model = inputs.deployment.pools[inputs.pool], inputs.model
    if model is None or pool.parallel.dcp <= 1 or pool.parallel.pcp > 1 or not LATENT_KINDS & _kinds(model):
        return False
    stated = pool.engine.dcp_q_replicate
    return _combines_all_to_all(model) if stated is None else stated


def _kinds(model: ModelGraph) -> set[str]:
    return {node.kind for layer in model.layer_kinds for node in layer.nodes if node.op == "Attention"}


def normalizes_over_heads(model: ModelGraph) -> bool:
    """MiniMax-M2 to M2.7 normalize queries and keys over all heads, not each for itself, so that tensor-parallel ranks
    add up their variances: both in one all-reduce a layer, or in a fused kernel that exchanges as much (vllm
    model_executor/layers/minimax_rms_norm/rms_norm_tp.py at 0195c9ec, MiniMaxText01RMSNormTP)."""
    return model.name.lower().startswith("minimax-m2")


def engine_plan(plan: Plan, resolved: Resolved, chip: Chip, model: ModelGraph, replicated: bool) -> Plan:
    """The plan with the launches that the engine makes; `replicated` where no rank gathers queries."""

    def adapted(layers: list[LayerPlan]) -> list[LayerPlan]:
        layers = [_layer(layer, resolved, chip, model) for layer in layers]
        for layer in layers if replicated else []:
            layer.collectives = _without_queries(layer.collectives)
        return layers

    return replace(plan, layers=adapted(plan.layers), draft_layers=adapted(plan.draft_layers))


def with_padded_states(resolved: Resolved, model: ModelGraph) -> Resolved:
    """A page of recurrent state takes as much as the page of attention that the engine raises to hold it, because both
    come from one pool (`_align_hybrid_block_size` in vllm/platforms/interface.py at v0.31.0)."""
    facts, settings, caches = resolved.facts, resolved.settings, resolved.caches
    if model.caches or not facts.attentions or settings.recurrent_cache_mode == "all":
        return resolved  # stated sizes are final, and nothing is raised where every block has a state
    layout, precision = resolved.layout, resolved.precision
    token = max(entry_bytes(node, layout.tp, precision) for node in facts.attentions)
    page = token * aligned_block(settings.block_size, facts, layout, precision, settings.draft_tokens)
    groups = [replace(group, entry_bytes=page) if group.kind == "state" else group for group in caches.groups]
    return replace(resolved, caches=replace(caches, groups=tuple(groups)))


def _without_queries(collectives: list[CollectivePlan]) -> list[CollectivePlan]:
    """Without the gather of queries, which comes first of those of decode rows; one of log-sum-exps may follow."""
    gathers = [
        one
        for one in collectives
        if (one.operation, one.group, one.units) == ("all_gather", "decode_context", "decode_rows")
    ]
    return [one for one in collectives if one is not gathers[0]] if gathers else collectives


def _layer(layer: LayerPlan, resolved: Resolved, chip: Chip, model: ModelGraph) -> LayerPlan:
    layer, attention = copy.copy(layer), layer.attention
    planned = layer.collectives
    if attention and normalizes_over_heads(model) and resolved.layout.tp > 1:
        planned = [CollectivePlan("all_reduce", "tensor", QUERY_KEY_VARIANCES), *planned]
    hidden_size = model.global_.hidden_size
    layer.collectives = [own for one in planned for own in _collectives(one, resolved, chip, hidden_size)]
    if attention and attention.kind == "sparse_mla" and attention.read.top_k:
        # A query of a prefill gathers as many entries as one of a decode.
        window = attention.read.top_k * attention.read.compress_ratio + attention.read.window
        layer.attention = replace(attention, prefill_window=window)
    return layer


def _collectives(planned: CollectivePlan, resolved: Resolved, chip: Chip, hidden_size: int) -> list[CollectivePlan]:
    layout = resolved.layout
    if planned.operation == "alltoall" and planned.group == "expert" and not planned.all_to_all:
        if layout.dp == 1:
            return []  # every rank has every token; the reduction behind the experts is all there is
        whole = hidden_size * ACTIVATION_BYTES * layout.dp
        return [CollectivePlan(name, "expert", whole) for name in ("all_gather", "reduce_scatter")]
    if planned.operation == "all_reduce":
        most = own_all_reduce_bytes(layout, resolved.pool.engine, chip, planned.group)
        return [replace(planned, on_sm=most > 0)]
    return [planned]


def runs_flash_attention_2(chip: Chip, resolved: Resolved) -> bool:
    """Whether 16-bit caches are decoded by FlashAttention 2, which packs the heads of a group unless there is a window
    (csrc/flash_attn/flash_api.cpp of vllm-project/flash-attention)."""
    return pre_hopper(chip) and resolved.precision.cache_element_bytes == ACTIVATION_BYTES


def own_all_reduce_bytes(layout: Layout, engine: Engine, chip: Chip, group: str) -> float:
    """The largest tensor that kernels of the engine's own reduce, which occupy SMs; NCCL reduces larger ones and is
    charged to the link. Groups other than the tensor-parallel one have NCCL alone."""
    members = layout.groups[group]
    if group != "tensor" or members.crosses_nodes or not wants_custom_all_reduce(engine):
        return 0.0
    limits = OWN_ALL_REDUCE_MIB if members.width <= members.per_node else ACROSS_NODES_MIB
    return limits.get(_generation(chip), {}).get(members.width, 0.0) * MIB


def _generation(chip: Chip) -> str:
    if chip.intra_node_bw_gbps <= PCIE_GBPS:
        return "PCIe"
    if pre_hopper(chip):
        return "pre-Hopper"
    if not data_center_blackwell(chip):
        return "Hopper"
    return "Blackwell 10.3" if "300" in chip.name else "Blackwell 10.0"
