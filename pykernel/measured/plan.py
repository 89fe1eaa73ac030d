"""The kernels of a step as one rank launches them: every matrix, attention, set of experts and collective of each kind
of layer, with the widths that this rank holds.

It stands beside `pykernel.plan`, which adds a layer up to aggregates of the whole model; here nothing is added up,
because a measured law is not linear in a kernel's shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pykernel.collectives import ACTIVATION_BYTES
from pykernel.documents import ModelGraph, Node
from pykernel.measured.formats import STORED_BYTES, Formats, formats_of
from pykernel.plan import EMIT, Plan
from pykernel.resolve import Resolved
from pykernel.resolve.model_facts import LATENT_KINDS, StackKind, always_selected


@dataclass(frozen=True, slots=True)
class Matrix:
    """One GEMM of a rank: output and input width, format of its kernel, bytes of one weight."""

    n: float
    k: float
    format: str
    weight_bytes: float


@dataclass(frozen=True, slots=True)
class MeasuredAttention:
    """The attention of a layer on one rank.

    decode, prefill : primitives of its two kernels.
    format : of the cache, `bf16` or `fp8`.
    heads : of this rank; head_dim is half of what a query and its value together are wide in a prefill.
    kv_heads : of this rank. streams : the same, or its query heads where a decode runs each for itself.
    regroups : whether a decode copies the query heads of a group together first.
    decode_bytes, decode_flops : of one cached token read by one query row.
    prefill_flops : of one query-key pair.
    query_bytes, kv_bytes : moved by a prefill for each of its tokens.
    """

    decode: str
    prefill: str
    format: str
    heads: float
    kv_heads: float
    streams: float
    regroups: bool
    head_dim: float
    decode_bytes: float
    decode_flops: float
    prefill_flops: float
    query_bytes: float
    kv_bytes: float


@dataclass(frozen=True, slots=True)
class MeasuredScorer:
    """The indexer of a layer: FLOP of one score, on one rank, and width of its heads; the top-k is in its law."""

    flops_per_pair: float
    width: float


@dataclass(frozen=True, slots=True)
class MeasuredExperts:
    """A set of routed experts: hidden width, width of one rank's slice, matrices (3 gated, 2 not), format."""

    hidden: float
    width: float
    matrices: int
    format: str


@dataclass(frozen=True, slots=True)
class MeasuredRecurrent:
    """A recurrent mixer on one rank: bytes of one request's state, bytes and FLOP of one token."""

    kind: str
    state_bytes: float
    token_bytes: float
    flops: float


@dataclass(slots=True)
class MeasuredLayer:
    """One kind of layer; same order and counts as the layers of the plain plan. `blocks` are a mixer and an MLP, or one
    of them where each is a layer of its own; `unread_bytes` are weights of a rank beside those that its steps read."""

    matrices: list[Matrix] = field(default_factory=list)
    attention: MeasuredAttention | None = None
    scorers: list[MeasuredScorer] = field(default_factory=list)
    experts: list[MeasuredExperts] = field(default_factory=list)
    recurrent: MeasuredRecurrent | None = None
    blocks: int = 2
    unread_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """Layers of the stack, then those of the speculator; the output projection."""

    layers: list[MeasuredLayer]
    draft_layers: list[MeasuredLayer]
    head: Matrix | None

    def whole_layers(self, plan: Plan) -> float:
        """Layers of the stack of `plan`, of a mixer and an MLP each: one of them alone is half a layer."""
        return sum(layer.count * own.blocks for layer, own in zip(plan.layers, self.layers, strict=True)) / 2


def make_measured_plan(
    model: ModelGraph, plan: Plan, resolved: Resolved, windowed_heads_alone: bool = False, query_copies: int = 1
) -> MeasuredPlan:
    """The kernels of a resolved deployment, in the order of `plan`. `windowed_heads_alone` where decodes under a window
    run each query head for itself; `query_copies` is how many ranks' queries of latent attention each rank projects."""
    formats = formats_of(model, resolved.facts, resolved.precision)
    planner = _Planner(model.global_.hidden_size, resolved, formats, windowed_heads_alone, query_copies)
    facts = resolved.facts
    head = next((node for node in model.head if node.op == "GEMM"), None)
    return MeasuredPlan(
        layers=[planner.layer(kind) for kind in facts.kinds],
        draft_layers=[planner.layer(kind) for kind in facts.draft_kinds] if plan.draft_layers else [],
        # The output projection stays at 16 bits and is split over its rows (vllm ParallelLMHead at v0.31.0).
        head=planner.matrix(head.n / resolved.layout.tp, head.k, "bf16") if head else None,
    )


REPLICATED_ROLES = frozenset(
    {
        *("routed_expert_down_proj", "routed_expert_up_proj"),  # to and from the width of latent experts: nemotron_h.py
        *("kda_f_a_proj", "kda_g_a_proj"),  # the narrow steps of decays and gates
        *("hc_attn_fn", "hc_ffn_fn", "mtp_eh_proj"),  # mix what every rank has whole, and are followed by no reduction
    }
)
"""Matrices of any layer that every rank keeps and runs whole (vllm/model_executor/models at v0.31.0)."""

QUERY_ROLES = frozenset({"q_b_proj", "q_proj"})
"""Projections to the queries of latent attention, which ranks divide by heads whatever their input is."""


def gate_width(kind: StackKind) -> int:
    """Outputs of a down-projection that gate each head's output, as wide as what the output projection reads (Kimi-K3:
    `fused_qkv_a_g_proj`, in 2,112 outputs for the latents and 768 of the gate on each of 16 ranks)."""
    gated = any(node.role == "mla_output_gate" for node in kind.kind.nodes)
    return next((node.k for node in kind.nodes("GEMM") if gated and node.role == "o_proj"), 0)


def blocks_of(kind: StackKind) -> int:
    """How many of a mixer and an MLP a layer has; each ends with its reduction."""
    return min(max(sum(node.op in ("AllReduce", "ReduceScatter") for node in kind.kind.nodes), 1), 2)


@dataclass(frozen=True, slots=True)
class _Planner:
    hidden: int
    resolved: Resolved
    formats: Formats
    windowed_heads_alone: bool
    query_copies: int

    @property
    def tp(self) -> int:
        return self.resolved.layout.tp

    def matrix(self, n: float, k: float, stored: str) -> Matrix:
        return Matrix(n, k, self.formats.computed(stored), STORED_BYTES[stored])

    def layer(self, kind: StackKind) -> MeasuredLayer:
        layer = MeasuredLayer(blocks=blocks_of(kind))
        in_mixer = True
        latent = kind.primary is not None and kind.primary.kind in LATENT_KINDS
        for node in kind.kind.nodes:
            if node.op in ("AllReduce", "ReduceScatter") or node.op == "GroupedGEMM":
                in_mixer = False  # also where one rank has nothing to reduce
            if not EMIT[node.emit](self.resolved.layout):
                continue
            if node.op == "GEMM":
                matrix = self.gemm(node, in_mixer, latent, gate_width(kind))
                layer.matrices.append(matrix)
                layer.unread_bytes += self.unread(node, matrix, in_mixer, kind)
            elif node.op == "GroupedGEMM":
                self.grouped(node, layer)
            elif node.op == "Attention" and node is kind.primary:
                layer.attention = self.attention(node)
            elif node.op == "Attention" and node.role:
                layer.scorers.append(MeasuredScorer(2.0 * node.n_q * node.d_h, node.d_h))
            elif node.op == "RecurrentUpdate":
                if not layer.matrices:
                    layer.matrices += self.mixer_inputs(node)
                layer.recurrent = self.recurrent(node)
        return layer

    def gemm(self, node: Node, in_mixer: bool, latent: bool, gate: int) -> Matrix:
        stored = self.formats.stored(node, in_mixer)
        if node.role in REPLICATED_ROLES:
            return self.matrix(node.n, node.k, stored)
        if latent and in_mixer and node.role in QUERY_ROLES:
            return self.matrix(node.n / self.tp * self.query_copies, node.k, stored)
        down = node.k == self.hidden != node.n
        if latent and in_mixer and (down or node.role.startswith("index")):
            # Latent down-projections and indexers are replicated, the gate of the output beside them is not.
            divided = gate if node.role == "qkv_a_proj" else 0
            return self.matrix(node.n - divided + divided / self.tp, node.k, stored)
        if latent and in_mixer and node.k < self.hidden and node.role == "kv_b_proj":
            stored = "bf16"  # absorbed into the query and the output as 16-bit copies
        column = node.n != self.hidden and (node.k == self.hidden or (latent and in_mixer))
        if column:
            return self.matrix(node.n / self.tp, node.k, stored)
        return self.matrix(node.n, node.k / self.tp, stored)

    def unread(self, node: Node, matrix: Matrix, in_mixer: bool, kind: StackKind) -> float:
        """Bytes that a rank holds of a matrix and its steps do not read.

        Half of an fp32 one, which is priced at 16 bits; the up-projection of a latent, whose absorbed copies are read;
        the key half of those copies once more for the queries of other ranks (vllm mla_attention.py).
        """
        if node.weight_dtype == "fp32":
            return matrix.n * matrix.k * (STORED_BYTES["fp32"] - matrix.weight_bytes)
        primary = kind.primary
        if primary is None or primary.kind not in LATENT_KINDS or node.role != "kv_b_proj":
            return 0.0
        held = matrix.n * matrix.k * STORED_BYTES[self.formats.stored(node, in_mixer)]
        if self.query_copies > 1:
            queries = sum(other.n for other in kind.nodes("GEMM") if other.role in QUERY_ROLES)
            keys = queries - primary.n_q * primary.qk_rope_head_dim
            held += keys / self.tp * self.query_copies * matrix.k * ACTIVATION_BYTES
        return held

    def grouped(self, node: Node, layer: MeasuredLayer) -> None:
        stored = self.formats.stored(node, in_mixer=False)
        matrices = 3 if node.gated else 2
        if always_selected(node):
            self.shared(node.n * node.experts, node.k, matrices, stored, layer)
            return
        placement = self.resolved.experts
        assert placement is not None
        layer.matrices.append(self.matrix(node.experts, node.k, "bf16"))  # the router, replicated
        layer.experts.append(MeasuredExperts(node.latent_size or node.k, node.n / placement.shards, matrices, stored))
        if node.shared_experts:
            width = node.shared_intermediate_size or node.n
            self.shared(width * node.shared_experts, node.k, matrices, stored, layer)

    def shared(self, width: float, hidden: float, matrices: int, stored: str, layer: MeasuredLayer) -> None:
        own = width if self.resolved.layout.sequence_parallel_moe else width / self.tp
        dense = stored if stored not in ("int4", "mxfp4") else "bf16"
        layer.matrices.append(self.matrix((matrices - 1) * own, hidden, dense))
        layer.matrices.append(self.matrix(hidden, own, dense))

    def attention(self, node: Node) -> MeasuredAttention:
        element = self.resolved.precision.cache_element_bytes
        format_ = "fp8" if element < 2 else "bf16"
        heads = node.n_q / self.tp
        if node.kind in LATENT_KINDS:
            rank = node.kv_lora_rank or node.d_h
            # A prefill multiplies expanded heads: query and key of 192, values of 128 in the DeepSeek family.
            width = (2 * 128 + node.qk_rope_head_dim) / 2
            sparse = node.kind == "sparse_mla"
            return MeasuredAttention(
                decode="sparse" if sparse else "latent_decode",
                prefill="sparse" if sparse else "latent_prefill",
                format="fp8" if sparse else format_,
                heads=heads,
                kv_heads=1.0,
                streams=1.0,
                regroups=False,
                head_dim=width,
                decode_bytes=node.d_h * element,
                decode_flops=2.0 * heads * (node.d_h + rank),
                prefill_flops=4.0 * heads * width,
                query_bytes=4.0 * heads * width,
                kv_bytes=4.0 * heads * width,
            )
        kv_heads = max(node.n_kv // self.tp, 1)
        alone = self.windowed_heads_alone and node.window > 0
        return MeasuredAttention(
            decode="decode",
            prefill="prefill",
            format=format_,
            heads=heads,
            kv_heads=kv_heads,
            streams=heads if alone else kv_heads,
            regroups=not alone and 1 < kv_heads < heads,
            head_dim=node.d_h,
            decode_bytes=2.0 * kv_heads * node.d_h * element,
            decode_flops=4.0 * heads * node.d_h,
            prefill_flops=4.0 * heads * node.d_h,
            query_bytes=4.0 * heads * node.d_h,
            kv_bytes=4.0 * kv_heads * node.d_h,
        )

    def mixer_inputs(self, node: Node) -> list[Matrix]:
        """The projections into a recurrent mixer whose graph leaves them out (vllm mamba_mixer2.py, qwen3_next.py)."""
        stored = self.formats.stored(node, True)
        if node.recurrent_kind == "mamba2":
            # One of inputs, their gate, and keys and queries of at least one group a rank; steps of heads hardly count.
            keys = max(node.n_groups / self.tp, 1) * node.state_size
            return [self.matrix(2 * node.intermediate_size / self.tp + 2 * keys, self.hidden, stored)]
        # The delta rules have one of queries, keys, values and gate, and one of a step and a decay for each head, which
        # is too narrow to be quantized in blocks.
        width = node.intermediate_size + node.n_heads * node.state_size
        return [
            self.matrix(width / self.tp, self.hidden, stored),
            self.matrix(2 * node.n_heads / self.tp, self.hidden, "bf16"),
        ]

    def recurrent(self, node: Node) -> MeasuredRecurrent:
        heads = node.n_heads / self.tp
        # Mamba2 keeps intermediate_size x state_size, the delta rules state_size x state_size a head.
        inner = node.intermediate_size / self.tp if node.recurrent_kind == "mamba2" else heads * node.state_size
        state = inner * node.state_size
        return MeasuredRecurrent(
            kind=node.recurrent_kind,
            state_bytes=4.0 * state,
            token_bytes=ACTIVATION_BYTES * (node.intermediate_size / self.tp or inner),
            flops=8.0 * state,
        )
