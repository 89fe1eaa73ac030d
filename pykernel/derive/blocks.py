"""The building blocks of a layer: small functions from facts of a config to nodes, and to the parameters beside them.

A block returns a `Part`: the nodes that are priced, and the counts of parameters that no node stands for (norms,
biases, routers, and what the published graphs leave out). Widths follow the projections of the engine's models
(vllm/model_executor/models/ at v0.31.0); roles and order follow the graphs of inference-sim/blis-catalog (6d986729).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pykernel.derive.config import Config
from pykernel.derive.formats import Formats
from pykernel.documents.graph import Node

ACTIVATION_BYTES = 2
"""Norms read and write activations of 16 bits, whatever the weights are stored in."""


@dataclass
class Part:
    """Nodes in order, and parameters that are in none of them."""

    nodes: list[Node] = field(default_factory=list)
    unpriced: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Part) -> Part:
        return Part([*self.nodes, *other.nodes], self.unpriced + other.unpriced)

    def count(self, **parameters: int) -> Part:
        """The same part with more parameters beside its nodes."""
        return Part(self.nodes, self.unpriced + Counter(parameters))


@dataclass(frozen=True)
class Traits:
    """What the definition of an architecture fixes and its config does not say.

    norms : how a layer is normed: `pre` (before attention and MLP), `sandwich` (before and after both), `post` (after
        both), `parallel` (one for attention and MLP, which run side by side), `single` (one a layer, whatever it
        holds), `hyper` (hyper-connections in the place of the two).
    norm_vectors : vectors of a norm: 1 for RMS norms, 2 where there is a bias as well.
    qkv_bias, o_bias, mlp_bias : whether there is a bias where the config has no key for it.
    qk_norm : width of the query and key norms: `head`, `full` (all heads), or none.
    gated_mlp : whether the MLP and experts have a gate beside the up projection.
    fused_latent_norm : whether the norms of the latent vectors are one kernel.
    shared_experts : of architectures that have them without stating a count.
    shared_gate : whether the shared expert is scaled by a gate of its own.
    output_gate : whether attention gates its output where the config has no key for it.
    state_head : whether the output matrix states its format where a record leaves it unquantized.
    tied : whether the output matrix is the embedding where the config does not say.
    mixer_inputs : whether the input projection of a recurrent mixer is a node; it is none in the published graphs.
    unquantized : base format of architectures whose configs state none.
    dense_width_key, expert_width_key : what holds the inner width of a dense MLP, and that of an expert where no key is
        for experts alone.
    """

    norms: str = "pre"
    norm_vectors: int = 1
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: str = ""
    gated_mlp: bool = True
    fused_latent_norm: bool = False
    shared_experts: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    sinks: bool = False
    output_gate: bool = False
    state_head: bool = False
    tied: bool = False
    mixer_inputs: bool = True
    unquantized: str = ""
    dense_width_key: str = "mlp_width"
    expert_width_key: str = "expert_width"


@dataclass
class Builder:
    """What a block reads: the config, the formats, the architecture's traits, and which layer it is for."""

    config: Config
    formats: Formats
    traits: Traits
    layer: int = 0
    draft: bool = False

    @property
    def norms(self) -> str:
        """How the layer is normed; a draft module has no hyper-connections."""
        return "pre" if self.draft and self.traits.norms == "hyper" else self.traits.norms

    @property
    def hidden(self) -> int:
        return self.config.integer("hidden_size")

    def gemm(self, role: str, n: int, k: int, component: str) -> Node:
        """A dense matrix, in the format of its component."""
        return Node("GEMM", role=role, n=n, k=k, weight_dtype=self.formats.of(self.layer, component))

    def unquantized(self, role: str, n: int, k: int, dtype: str = "") -> Node:
        """A dense matrix that no quantization touches; it states its format."""
        return Node("GEMM", role=role, n=n, k=k, weight_dtype=dtype or self.formats.base)

    def norm(self, role: str) -> Part:
        """A norm of the hidden state."""
        return Part([Node("Elementwise", role=role)]).count(norms=self.traits.norm_vectors * self.hidden)

    def latent_norm(self, role: str, width: int) -> Node:
        """A norm of another width, which states what it reads and writes."""
        return Node("Elementwise", role=role, bytes_per_token=2 * width * ACTIVATION_BYTES)


def reduction(role: str) -> Node:
    """The all-reduce after a mixer."""
    return Node("AllReduce", role=role, emit="tensor_parallel")


def mlp_reduction() -> Node:
    """The all-reduce after an MLP or experts, which sequence-parallel experts replace."""
    return Node("AllReduce", role="mlp_out", emit="tensor_parallel_unless_sp_moe")


# ---- norms around the two halves of a layer ----------------------------------------------------------------------


def hyper_connection(b: Builder, half: str) -> Part:
    """What mixes the parallel residual streams before one half of a layer, in fp32 (GLM-5.3-Flash).

    Its traffic is inferred from the one published graph that has it: three passes over the bundle of streams, two over
    one stream, all of 16 bits, and the mixing coefficients.
    """
    streams = b.config.integer("hc_mult")
    mixes = (2 + streams) * streams
    moved = (3 * streams + 2) * b.hidden * ACTIVATION_BYTES + 4 * (mixes + streams * streams)
    return Part(
        [
            b.unquantized(f"hc_{half}_fn", mixes, streams * b.hidden, "fp32"),
            Node("Elementwise", role=f"hc_{half}_mix", bytes_per_token=moved),
        ]
    ).count(norms=b.hidden)


def around_mixer(b: Builder, part: Part) -> Part:
    """The first half of a layer with its norms."""
    if b.norms == "hyper":
        return hyper_connection(b, "attn") + part
    before = Part() if b.norms == "post" else b.norm("input_norm")
    after = b.norm("post_attn_norm") if b.norms in ("sandwich", "post") else Part()
    return before + part + after


_BEFORE_MLP = {"pre": "post_attn_norm", "sandwich": "pre_mlp_norm", "single": "input_norm"}


def around_mlp(b: Builder, part: Part) -> Part:
    """The second half of a layer with its norms."""
    if b.norms == "hyper":
        return hyper_connection(b, "ffn") + part
    before = b.norm(_BEFORE_MLP[b.norms]) if b.norms in _BEFORE_MLP else Part()
    after = b.norm("post_mlp_norm") if b.norms in ("sandwich", "post") else Part()
    return before + part + after


# ---- attention with heads ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heads:
    """Heads of an attention and their widths; `values` says whether V has a matrix of its own."""

    queries: int
    kv: int
    key_dim: int
    value_dim: int
    values: bool = True

    @property
    def width(self) -> int:
        """Head width that gives the cache and the work of both: the mean where keys and values differ."""
        return (self.key_dim + self.value_dim) // 2


def heads(b: Builder, prefix: str = "") -> Heads:
    """The heads of a layer; `prefix` is that of the keys of its other kind of attention (`swa_`)."""
    config = b.config
    if prefix and any(config.key(prefix + key) for key in ("num_attention_heads", "num_key_value_heads", "head_dim")):
        queries, kv = config.integer(f"{prefix}num_attention_heads"), config.integer(f"{prefix}num_key_value_heads")
        key_dim = config.integer(f"{prefix}head_dim")
        value_dim = config.optional(f"{prefix}v_head_dim") or key_dim
    else:
        queries, kv, key_dim = config.integer("heads"), config.integer("kv_heads"), config.head_dim()
        value_dim = config.optional("v_head_dim") or key_dim
    if kv > queries or queries % kv:
        config.fault(config.key("kv_heads"), f"found {kv} for {queries} query heads; accepted: a divisor")
    if (key_dim + value_dim) % 2:
        config.fault("v_head_dim", f"found {value_dim} beside keys of {key_dim}; accepted: widths with an even sum")
    return Heads(queries, kv, key_dim, value_dim)


def head_attention(b: Builder, shape: Heads, window: int = 0) -> Part:
    """Grouped-query attention, over a window where one is given."""
    config, traits = b.config, b.traits
    q_width, k_width, v_width = shape.queries * shape.key_dim, shape.kv * shape.key_dim, shape.kv * shape.value_dim
    output = shape.queries * shape.value_dim
    qkv = q_width + k_width + (v_width if shape.values else 0)
    gate = q_width if config.flag("attn_output_gate", traits.output_gate) else 0
    if traits.mixer_inputs:
        qkv, gate = qkv + gate, 0  # the gate is projected with the queries
    part = Part(
        [
            b.gemm("qkv_proj", qkv, b.hidden, "qkv"),
            Node(
                "Attention",
                kind="swa" if window else "gqa",
                n_q=shape.queries,
                n_kv=shape.kv,
                d_h=shape.width,
                window=window,
            ),
            b.gemm("o_proj", b.hidden, output, "o"),
            reduction("attn_out"),
        ]
    )
    biased = config.flag("attention_bias", traits.qkv_bias)
    biases = (qkv if biased else 0) + (b.hidden if biased and traits.o_bias else 0)
    normed = traits.qk_norm if config.flag("use_qk_norm", True) else ""
    norms = {"": 0, "head": 2 * shape.key_dim, "full": q_width + k_width}[normed]
    sinks = shape.queries if traits.sinks else 0
    return part.count(biases=biases, norms=norms, sinks=sinks, output_gates=gate * b.hidden)


def attention(b: Builder) -> Part:
    """Attention over the whole context."""
    return around_mixer(b, head_attention(b, heads(b)))


def sliding(b: Builder) -> Part:
    """Attention over a window."""
    return around_mixer(b, head_attention(b, heads(b, "swa_"), b.config.integer("window")))


def wide_global(b: Builder) -> Part:
    """The full-attention layers of Gemma 4: heads of their own, and values that are the keys where it says so."""
    config = b.config
    shape = Heads(
        config.integer("heads"),
        config.integer("num_global_key_value_heads" if config.key("num_global_key_value_heads") else "kv_heads"),
        config.integer("global_head_dim"),
        config.integer("global_head_dim"),
        values=not config.flag("attention_k_eq_v"),
    )
    return around_mixer(b, head_attention(b, shape))


def block_sparse(b: Builder) -> Part:
    """Attention to the best-scored blocks of the context, chosen by a narrow index (MiniMax-M3)."""
    sparse = b.config.inside("sparse_attention_config")
    index_heads, index_dim = sparse.integer("sparse_num_index_heads"), sparse.integer("sparse_index_dim")
    blocks = sum(sparse.optional(f"sparse_{key}") for key in ("topk_blocks", "local_block", "init_block"))
    window = blocks * sparse.integer("sparse_block_size")
    if not window:
        sparse.missing("sparse_topk_blocks")
    part = head_attention(b, heads(b), window)
    index = [
        b.gemm("index_qk_proj", (index_heads + 1) * index_dim, b.hidden, "indexer"),
        scorer(index_heads, index_dim),
    ]
    part.nodes[1:1] = index
    return around_mixer(b, part.count(norms=2 * index_dim))


def scorer(index_heads: int, index_dim: int, pool: int = 1) -> Node:
    """The attention that scores the context to choose what the next one reads; `pool` tokens share an entry."""
    kind = "sparse_mla" if pool > 1 else "gqa"
    ratio = pool if pool > 1 else 0
    return Node(
        "Attention", role="block_index_scores", kind=kind, n_q=index_heads, n_kv=1, d_h=index_dim, compress_ratio=ratio
    )


# ---- MLPs --------------------------------------------------------------------------------------------------------


def mlp_nodes(b: Builder, width: int) -> Part:
    """A dense MLP without its reduction: gate and up side by side, then down."""
    matrices = 2 if b.traits.gated_mlp else 1
    role = "mlp_gate_up" if b.traits.gated_mlp else "mlp_up"
    biases = matrices * width + b.hidden if b.config.flag("mlp_bias", b.traits.mlp_bias) else 0
    return Part(
        [
            b.gemm(role, matrices * width, b.hidden, "mlp"),
            b.gemm("mlp_down", b.hidden, width, "mlp"),
        ]
    ).count(biases=biases)


def dense(b: Builder) -> Part:
    """A dense MLP."""
    width = b.config.integer(b.traits.dense_width_key)
    return around_mlp(b, mlp_nodes(b, width) + Part([mlp_reduction()]))


def expert_part(b: Builder) -> Part:
    """Routed and shared experts, without norms and reduction."""
    config, traits = b.config, b.traits
    experts, top_k = config.integer("experts"), config.integer("top_k")
    if top_k > experts:
        config.fault(config.key("top_k"), f"found {top_k} of {experts} experts; accepted: at most all of them")
    width = config.integer("expert_width" if config.key("expert_width") else traits.expert_width_key)
    shared = config.optional("shared_experts") or traits.shared_experts
    shared_width = config.optional("shared_width")
    if shared_width and not shared:
        shared = 1  # the width alone is how a single shared expert is stated
    latent = config.optional("latent_width")
    node = Node(
        "GroupedGEMM",
        role="experts",
        n=width,
        k=b.hidden,
        weight_dtype=b.formats.of(b.layer, "experts"),
        experts=experts,
        top_k=top_k,
        latent_size=latent,
        gated=traits.gated_mlp,
    )
    nodes = [node, *_shared(b, node, shared, shared_width)]
    if latent:
        down = b.gemm("routed_expert_down_proj", latent, b.hidden, "latent")
        nodes = [down, *nodes, b.gemm("routed_expert_up_proj", b.hidden, latent, "latent")]
    part = Part([*nodes, Node("All2All", role="moe_dispatch_combine", emit="expert_parallel")])
    matrices = 2 if traits.gated_mlp else 1
    return part.count(
        routers=experts * b.hidden + (experts if traits.router_bias else 0),
        biases=experts * (matrices * width + b.hidden) if traits.expert_bias else 0,
        gates=b.hidden if traits.shared_gate and shared else 0,
    )


def _shared(b: Builder, routed: Node, count: int, width: int) -> list[Node]:
    """Shared experts: facts of the routed node, or a node of their own where their format is another."""
    if not count:
        return []
    own = b.formats.of(b.layer, "shared")
    if own == routed.weight_dtype:
        routed.shared_experts = count
        routed.shared_intermediate_size = width if width and width != routed.n else 0
        return []
    return [
        Node(
            "GroupedGEMM",
            role="shared_experts",
            n=width or routed.n,
            k=routed.k,
            weight_dtype=own,
            experts=count,
            top_k=count,
            gated=routed.gated,
        )
    ]


def moe(b: Builder) -> Part:
    """A mixture of experts."""
    return around_mlp(b, expert_part(b) + Part([mlp_reduction()]))


def dense_and_moe(b: Builder) -> Part:
    """A dense MLP and experts side by side, each with norms of its own (Gemma 4 with experts)."""
    width = b.config.integer("mlp_width")
    experts = b.norm("pre_moe_norm") + expert_part(b) + b.norm("post_moe_norm")
    side = (
        mlp_nodes(b, width) + b.norm("post_dense_norm") + experts.count(routers=b.hidden + b.config.integer("experts"))
    )
    return around_mlp(b, side + Part([mlp_reduction()]))


def no_mlp(b: Builder) -> Part:
    """A layer that is its mixer alone."""
    return Part()
