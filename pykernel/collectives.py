"""The collectives of a layer: which are launched under a layout, over which ranks, and how many bytes each counts.

Part of the plan. The bytes are those of one tensor at 16 bits an element: the gathered result of an all-gather, the
full input of a reduce-scatter, the tensor of an all-reduce, what one rank sends in an all-to-all.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Node
from pykernel.resolve.context_parallel import combining_operation
from pykernel.resolve.layout import SM_COLLECTIVES, Layout
from pykernel.resolve.model_facts import LATENT_KINDS

ACTIVATION_BYTES = 2
"""Activations cross links and norms at 16 bits, whatever the weights are served in."""

_LOG_SUM_EXP_BYTES = 4  # fp32, one a head and row

_TENSOR_OPERATIONS = {"AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """One collective of a layer.

    units : what the bytes are counted by: `tokens` of the step, `decode_rows`, `context_rows` (every token of a step
        with any context), `prefill_rows` (tokens of prefills over all prefill-context ranks), `context_chunks`.
    all_to_all : whether it spans nodes as point-to-point traffic does; otherwise as a ring.
    on_sm : whether it is charged to the SMs instead of its link.
    """

    operation: str
    group: str
    bytes_per_unit: float
    units: str = "tokens"
    all_to_all: bool = False
    on_sm: bool = False


def reduction(node: Node, hidden_size: int, layout: Layout) -> list[CollectivePlan]:
    """What a graph's tensor-parallel collective launches: itself, or the pair that stands for it.

    Under sequence-parallel MoE each rank keeps its share of the tokens through the experts, so the reduction becomes
    a reduce-scatter and an all-gather (vllm/model_executor/models/deepseek_v2.py at v0.31.0).
    """
    operations = [_TENSOR_OPERATIONS[node.op]]
    if node.emit == "tensor_parallel_unless_sp_moe" and layout.sequence_parallel_moe:
        operations = ["reduce_scatter", "all_gather"] if node.op == "AllReduce" else []
    return [
        CollectivePlan(
            operation,
            "tensor",
            hidden_size * ACTIVATION_BYTES,
            on_sm=operation == "all_reduce" and layout.all_reduce_backend in SM_COLLECTIVES,
        )
        for operation in operations
    ]


def dispatch(hidden_size: int, visits: int, layout: Layout) -> CollectivePlan:
    """Dispatch and combine of an MoE layer: a routed backend sends a token to each of the `visits` experts it visits,
    others send it once."""
    copies = visits if layout.routed_dispatch and visits else 1
    payload = hidden_size * ACTIVATION_BYTES * copies
    return CollectivePlan("alltoall", "expert", payload, all_to_all=layout.routed_dispatch)


def context_collectives(node: Node, scorers: list[Node], layout: Layout, combine: str) -> list[CollectivePlan]:
    """What context parallelism adds to a layer whose cache is held by the attention `node`."""
    launched: list[CollectivePlan] = []
    if layout.dcp > 1 and node.kind != "swa":
        launched += _decode_context(node, layout, combine)
    if layout.pcp > 1:
        launched += _prefill_context(node, scorers)
    return launched


def _decode_context(node: Node, layout: Layout, combine: str) -> list[CollectivePlan]:
    """Ranks that hold a share of a decode's cache gather the queries, attend, and combine what they found."""
    latent = node.kind in LATENT_KINDS
    units = "decode_rows" if latent else "context_rows"
    own_heads = node.n_q / layout.tp
    output = node.kv_lora_rank if latent and node.kv_lora_rank else node.d_h
    spans_tensor = layout.dcp > layout.pcp
    if layout.pcp == 1:
        heads, gather = own_heads * layout.dcp, "decode_context"
    else:
        heads, gather = (float(node.n_q) if spans_tensor else own_heads), "tensor"

    def over_ranks(operation: str, width: float, all_to_all: bool = False) -> CollectivePlan:
        return CollectivePlan(operation, "decode_context", heads * width, units, all_to_all)

    launched = []
    if layout.pcp == 1 or spans_tensor:
        launched.append(CollectivePlan("all_gather", gather, heads * node.d_h * ACTIVATION_BYTES, units))
    if combine == "a2a":
        # The output and its log-sum-exp, two 16-bit elements wide, travel together.
        launched.append(over_ranks("alltoall", (output + 2) * ACTIVATION_BYTES, all_to_all=True))
    else:
        launched.append(over_ranks("all_gather", layout.dcp * _LOG_SUM_EXP_BYTES))
        launched.append(over_ranks(combining_operation(layout, combine), output * ACTIVATION_BYTES))
    if latent:
        launched.append(
            CollectivePlan("all_gather", "decode_context", node.d_h * ACTIVATION_BYTES, units="context_chunks")
        )
    return launched


def _prefill_context(node: Node, scorers: list[Node]) -> list[CollectivePlan]:
    """Ranks that share a prefill gather its new cache entries: latent and rotary part apart, scorers' keys as well."""
    widths = [node.d_h]
    if 0 < node.kv_lora_rank < node.d_h:
        widths = [node.kv_lora_rank, node.d_h - node.kv_lora_rank]
    widths += [scorer.n_kv * scorer.d_h for scorer in scorers if scorer.n_kv * scorer.d_h > 0]
    return [
        CollectivePlan("all_gather", "prefill_context", width * ACTIVATION_BYTES, units="prefill_rows")
        for width in widths
    ]
