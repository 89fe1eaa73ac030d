"""What a rank holds whatever runs, and the room that is left, from the documents alone.

Weights are added up exactly, at the widths that memory stores them in; buffers, graphs and communicators are the
registry's figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pykernel.errors import RefusedError
from pykernel.interface import MemoryBreakdown

from .caches import whole
from .oracle import NEWEST, Oracle
from .oracle.exact import cdiv
from .oracle.formats import LATENT, WIDTHS, served_format
from .oracle.graphs import graph_mode, limits_of
from .oracle.plan import ACTIVATION_BYTES, KindPlan, Planner

STORED = {**WIDTHS, "nvfp4": Fraction(9, 16), "mxfp4": Fraction(17, 32)}
"""Bytes of a stored weight with its scales: one byte for 16 weights in NVFP4, for 32 in MXFP4."""

UTILIZATION = 0.92  # vllm/config/cache.py at v0.31.0
WIDTHS_OF_TABLES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Memory:
    """One rank's memory; `outside` is held before the engine takes its budget."""

    fixed: MemoryBreakdown
    outside: int
    device: int
    utilization: float


def memory_of(oracle: Oracle) -> Memory:
    """The memory of the oracle's deployment. Raises RefusedError where a figure is missing."""
    engine = oracle.inputs.deployment.pools[oracle.inputs.pool].engine
    coefficients, layout = oracle.coefficients, oracle.layout
    held, replicas = _experts(oracle)
    mode = graph_mode(oracle.inputs, layout, oracle.stack, NEWEST).lower()
    alone = max(layout.tp, layout.moe_group, layout.pcp, layout.dcp) <= 1
    communicator = 0 if alone else _table(oracle, "nccl_communicator_bytes", layout.tp)
    return Memory(
        MemoryBreakdown(
            weights=whole(_divided(oracle) / layout.tp + held - replicas),
            activation_peak=_activations(oracle),
            cuda_graph=whole(coefficients.required(f"cudagraph_capture_bytes_{mode}")),
            eplb_redundant=whole(replicas),
            comm_buffers=0,
        ),
        outside=int(communicator) + int(coefficients.required("engine_workspace_bytes")),
        device=int(oracle.inputs.chip.memory_gib * 2**30),
        utilization=engine.gpu_memory_utilization or UTILIZATION,
    )


def _stored(oracle: Oracle) -> tuple[list[KindPlan], KindPlan]:
    """The kinds of layers, and the head, with weights as memory stores them."""
    model = oracle.inputs.model
    planner = Planner(model, oracle.layout, NEWEST, served_format(oracle.inputs), STORED)
    kinds = planner.stack(model.stack.layers())
    if oracle.draft and model.speculator:
        kinds = kinds + planner.stack(model.speculator.stack.layers())
    return kinds, planner.head()


def _divided(oracle: Oracle) -> Fraction:
    """Weights that tensor parallelism divides: dense and shared ones, output projection and embedding."""
    kinds, head = _stored(oracle)
    facts = oracle.inputs.model.global_
    total = sum((kind.count * (kind.dense_bytes + kind.shared_bytes) for kind in kinds), Fraction(0))
    total += head.dense_bytes + head.shared_bytes
    if facts.tie_word_embeddings and head.dense_bytes:
        return total
    width = WIDTHS[facts.weight_dtype]
    # Nobody stores an embedding in 4 bits.
    return total + facts.vocab_size * facts.hidden_size * (width if width >= 1 else Fraction(2))


def _experts(oracle: Oracle) -> tuple[Fraction, Fraction]:
    """Of the experts of all layers: what the fullest rank holds, replicas included, and the replicas alone."""
    layout, held, replicas = oracle.layout, Fraction(0), Fraction(0)
    for kind in _stored(oracle)[0]:
        for node in kind.experts:
            each = kind.count * node.weight_bytes / layout.expert_shards
            held += each * cdiv(node.experts + oracle.redundant, layout.expert_width)
            replicas += each * Fraction(oracle.redundant, layout.expert_width)
    return held, replicas


def _activations(oracle: Oracle) -> int:
    hidden = oracle.inputs.model.global_.hidden_size
    shapes = [kind.primary for kind in oracle.stack if kind.primary]
    width = max((hidden if one.kind in LATENT else one.n_q * one.d_h for one in shapes), default=hidden)
    family = "moe" if any(kind.experts for kind in oracle.stack) else "dense"
    buffers = _table(oracle, f"activation_buffer_count_{family}", min(oracle.layout.tp, 8))
    rows = limits_of(oracle.inputs, oracle.layout, NEWEST).budget
    floor = oracle.coefficients.required("activation_scratch_floor_bytes")
    return max(whole(buffers * rows * width * ACTIVATION_BYTES), whole(floor))


def _table(oracle: Oracle, family: str, width: int) -> Fraction:
    """The entry of a table for `width` ranks: the widest that is not above, else the narrowest there is."""
    names = {size: f"{family}_{size}rank" for size in WIDTHS_OF_TABLES}
    there = [size for size, name in names.items() if oracle.coefficients.has(name)]
    if not there:
        raise RefusedError(f"no coefficient {family}_<N>rank applies", family)
    fitting = [size for size in there if size <= width]
    return oracle.coefficients.required(names[fitting[-1] if fitting else there[0]])
