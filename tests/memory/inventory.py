"""An inventory of a model's tensors, made from its graph alone: how large each is, which rank holds which share.

It shares nothing with resolution, plan or core. Ranks are numbered data-parallel replica by replica; sizes and shares
are fractions, so that nothing rounds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from pykernel.documents import ModelGraph, Node

STORED = {
    **{"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1},
    **{"nvfp4": Fraction(9, 16), "mxfp4": Fraction(17, 32), "int4": Fraction(1, 2)},
}
SERVED_AS = {"fp8": "fp8", "nvfp4": "nvfp4", "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4"}


DOWN_PROJECTIONS = ("qkv_a_proj", "kv_a_proj", "fused_wqa_wkv", "compressor_fused_wkv_wgate")
"""Of latent attention, as the graphs of the catalog name them; the engine keeps them whole on every rank."""
WHOLE = ("routed_expert_down_proj", "routed_expert_up_proj", "kda_f_a_proj", "kda_g_a_proj", "hc_attn_fn", "hc_ffn_fn")
"""Of any layer, the same."""
FOUR_BITS = ("nvfp4", "mxfp4", "int4")


@dataclass(frozen=True)
class Ranks:
    """The ranks of an engine; `experts_whole` where expert parallelism deals out whole experts."""

    tp: int
    dp: int = 1
    experts_whole: bool = False
    redundant: int = 0

    @property
    def count(self) -> int:
        return self.tp * self.dp


@dataclass(frozen=True)
class Tensor:
    """Equal tensors of a kind of layer: bytes of one copy of them all, and the share of it that each rank holds.

    The shares add up to the copies there are.
    """

    name: str
    bytes: Fraction
    shares: tuple[Fraction, ...]

    @property
    def copies(self) -> Fraction:
        return sum(self.shares, Fraction(0))


def divided(ranks: Ranks) -> tuple[Fraction, ...]:
    """A share of every replica's copy for each of its tensor-parallel ranks."""
    return (Fraction(1, ranks.tp),) * ranks.count


def replicated(ranks: Ranks) -> tuple[Fraction, ...]:
    return (Fraction(1),) * ranks.count


def width(graph: ModelGraph, quantization: str, node: Node) -> Fraction:
    return Fraction(STORED[node.weight_dtype or SERVED_AS.get(quantization, graph.global_.weight_dtype)])


def weight_tensors(graph: ModelGraph, quantization: str, ranks: Ranks, engine: bool) -> list[Tensor]:
    """Every matrix of the stack, the head and the embedding; as the engine holds them where `engine` says so."""
    kinds = {kind.id: kind for kind in graph.layer_kinds}
    served = SERVED_AS.get(quantization, graph.global_.weight_dtype)
    narrow = engine and served in FOUR_BITS and any(node.experts for kind in kinds.values() for node in kind.nodes)
    tensors = []
    for id_, layers in Counter(graph.stack.layers()).items():
        latent = any(node.kind in ("mla", "sparse_mla") and not node.role for node in kinds[id_].nodes)
        in_mixer = True
        for place, node in enumerate(kinds[id_].nodes):
            name = f"{layers} x {id_}.{node.role}"
            in_mixer = in_mixer and node.op not in ("AllReduce", "GroupedGEMM")
            each = width(graph, quantization, node)
            if narrow and in_mixer and not node.weight_dtype:
                each = Fraction(2)  # a mixture in 4 bits keeps what is around attention at 16
            if node.op == "GEMM":
                gate = 0
                if engine and any(other.role == "mla_output_gate" for other in kinds[id_].nodes):
                    gate = (
                        12_288 if node.role == "qkv_a_proj" else 0
                    )  # Kimi-K3: 96 heads of 128, of which ranks take theirs
                if engine and node.role in WHOLE:
                    tensors.append(Tensor(name, layers * node.n * node.k * each, replicated(ranks)))
                else:
                    tensors += matrices(name, node, layers * each, ranks, engine and latent, layers, gate)
            elif node.op == "GroupedGEMM":
                tensors += experts(name, node, layers, each, ranks, engine, node.weight_dtype or served)
                if engine and node.role != "shared_experts":
                    router = Fraction(layers * node.experts * graph.global_.hidden_size * 2)
                    tensors.append(Tensor(f"{name}.router", router, replicated(ranks)))
            elif engine and node.op == "RecurrentUpdate" and kinds[id_].nodes[place - 1].op != "GEMM":
                tensors += mixer_inputs(name, node, graph.global_.hidden_size, each, ranks, layers)
    vocabulary = graph.global_.vocab_size * graph.global_.hidden_size
    head = next(node for node in graph.head if node.op == "GEMM")
    assert head.n * head.k == vocabulary
    stored = Fraction(STORED[graph.global_.weight_dtype])
    embedding = max(stored, Fraction(2)) if engine or stored < 1 else stored
    head_width = max(width(graph, quantization, head), Fraction(0 if head.weight_dtype else 2))
    tensors.append(Tensor("lm_head", vocabulary * head_width, divided(ranks)))
    tensors.append(Tensor("embedding", vocabulary * embedding, divided(ranks)))
    return tensors


def mixer_inputs(name: str, node: Node, hidden: int, bytes_each: Fraction, ranks: Ranks, layers: int) -> list[Tensor]:
    """The projections into a mixer that a graph leaves out; a rank that has no group to itself has a copy of one."""
    if node.recurrent_kind == "mamba2":
        inner = Fraction(2 * node.intermediate_size * hidden * layers) * bytes_each
        keys = Fraction(2 * node.state_size * hidden * layers) * bytes_each
        groups = (max(Fraction(node.n_groups, ranks.tp), Fraction(1)),) * ranks.count
        return [Tensor(f"{name}.inner", inner, divided(ranks)), Tensor(f"{name}.keys", keys, groups)]
    wide = (node.intermediate_size + node.n_heads * node.state_size) * hidden * layers * bytes_each
    gates = Fraction(2 * node.n_heads * hidden * layers * 2)  # a step and a decay for each head, at 16 bits
    return [Tensor(f"{name}.wide", wide, divided(ranks)), Tensor(f"{name}.gates", gates, divided(ranks))]


def matrices(
    name: str, node: Node, bytes_each: Fraction, ranks: Ranks, latent: bool, layers: int, gate: int
) -> list[Tensor]:
    down = latent and (node.role in DOWN_PROJECTIONS or node.role.startswith("index_"))
    whole = (node.n - gate) * node.k * bytes_each
    tensors = [Tensor(name, whole, replicated(ranks) if down else divided(ranks))]
    tensors.append(Tensor(f"{name}.gate", gate * node.k * bytes_each, divided(ranks)))
    if latent and node.role == "kv_b_proj":
        tensors.append(Tensor(f"{name}.absorbed", Fraction(layers * node.n * node.k * 2), divided(ranks)))
    return tensors


def experts(
    name: str, node: Node, layers: int, width_each: Fraction, ranks: Ranks, engine: bool, stored: str
) -> list[Tensor]:
    """Each expert as a tensor of its own, dealt out in runs, the first ranks taking one more where it is uneven."""
    matrices_each = 3 if node.gated else 2
    bytes_each = shared_each = layers * width_each
    if engine and stored in ("mxfp4", "int4"):
        shared_each = Fraction(layers * 2)  # the checkpoints of these formats leave shared experts at 16 bits
    if engine and stored == "int4":
        bytes_each = layers * Fraction(17, 32)  # groups of 32
    # Under sequence parallelism every rank runs whole shared experts, on its share of the tokens.
    sequence_parallel = engine and ranks.experts_whole and ranks.tp > 1 and ranks.dp > 1
    everywhere = replicated(ranks) if sequence_parallel else divided(ranks)
    if node.role == "shared_experts":  # a node of its own, which every token visits
        return [Tensor(name, matrices_each * node.experts * node.n * node.k * shared_each, everywhere)]
    one = matrices_each * node.n * (node.latent_size or node.k) * bytes_each
    slices = (Fraction(1, ranks.count),) * ranks.count
    physical = node.experts + ranks.redundant
    tensors = []
    owners = [rank for rank in range(ranks.count) for _ in range(held(physical, ranks.count, rank))]
    for expert in range(physical):
        shares = slices
        if ranks.experts_whole and ranks.count > 1:
            shares = tuple(Fraction(rank == owners[expert]) for rank in range(ranks.count))
        tensors.append(Tensor(f"{name}.{expert}", one, shares))
    if node.shared_experts:
        size = matrices_each * (node.shared_intermediate_size or node.n) * node.k * node.shared_experts * shared_each
        tensors.append(Tensor(f"{name}.shared", size, everywhere))
    return tensors


def held(experts: int, ranks: int, rank: int) -> int:
    return experts // ranks + (rank < experts % ranks)


def cache_tensors(graph: ModelGraph, element: Fraction, cell: int, tokens: int, tp: int) -> list[Tensor]:
    """The cache of one sequence on one replica: each head of K and V, each latent, as often as ranks hold it.

    `cell` is the latent entry of a model of the DeepSeek-V3.2 family, whose indexers keep a byte an element and scales.
    """
    kinds = {kind.id: kind for kind in graph.layer_kinds}
    nodes = [node for id_ in set(graph.stack.layers()) for node in kinds[id_].nodes if node.op == "Attention"]
    dsa = any(node.kind == "sparse_mla" and not node.role and node.d_h == 576 for node in nodes)
    tensors = []
    for id_, layers in Counter(graph.stack.layers()).items():
        attentions = [node for node in kinds[id_].nodes if node.op == "Attention"]
        scored = any(node.role for node in attentions)
        for node in attentions:
            entries = Fraction(tokens, max(node.compress_ratio, 1))
            if node.kind in ("swa", "mla") and node.window and not scored:
                entries = Fraction(min(tokens, node.window))
            elif node.compress_ratio > 1 and node.window and not node.role:
                entries += min(tokens, node.window)
            size = layers * entries * node.d_h * element
            if node.role and dsa:
                tensors.append(Tensor(id_, layers * entries * (node.d_h + 4), (Fraction(1),) * tp))
            elif node.kind in ("mla", "sparse_mla") and not node.role:
                latent = layers * entries * cell if dsa and node.kind == "sparse_mla" else size
                tensors.append(Tensor(id_, Fraction(latent), (Fraction(1),) * tp))
            else:
                parts = ("k",) if node.role else ("k", "v")
                for head in range(node.n_kv):
                    shares = tuple(Fraction(head in heads_of(node.n_kv, tp, rank)) for rank in range(tp))
                    tensors += [Tensor(f"{id_}.{part}.{head}", size, shares) for part in parts]
    return tensors


def heads_of(heads: int, tp: int, rank: int) -> range:
    """The heads of a rank: a run of them, or one that it shares with its neighbours."""
    if heads >= tp:
        return range(rank * heads // tp, (rank + 1) * heads // tp)
    return range(rank * heads // tp, rank * heads // tp + 1)


def by_rank(tensors: list[Tensor]) -> list[Fraction]:
    """What each rank holds, bytes."""
    sums = [Fraction(0)] * len(tensors[0].shares)
    for tensor in tensors:
        for rank, share in enumerate(tensor.shares):
            if share:
                sums[rank] += tensor.bytes * share
    return sums
