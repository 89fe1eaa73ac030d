"""An inventory of a model's tensors, made from its graph alone: how large each is, which rank holds which share.

It shares nothing with resolution, plan or core. Ranks are numbered data-parallel replica by replica; sizes and shares
are fractions, so that nothing rounds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from pykernel.documents import ModelGraph, Node

STORED = {"bf16": 2, "fp16": 2, "fp8": 1, "int4": Fraction(1, 2), "nvfp4": Fraction(9, 16), "mxfp4": Fraction(17, 32)}
SERVED_AS = {"fp8": "fp8", "nvfp4": "nvfp4", "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4"}


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
    tensors = []
    for id_, layers in Counter(graph.stack.layers()).items():
        for node in kinds[id_].nodes:
            name = f"{layers} x {id_}.{node.role}"
            if node.op == "GEMM":
                tensors += matrices(name, node, layers * width(graph, quantization, node), ranks, engine, layers)
            elif node.op == "GroupedGEMM":
                tensors += experts(name, node, layers * width(graph, quantization, node), ranks)
                if engine:
                    router = Fraction(layers * node.experts * graph.global_.hidden_size * 2)
                    tensors.append(Tensor(f"{name}.router", router, replicated(ranks)))
    vocabulary = graph.global_.vocab_size * graph.global_.hidden_size
    head = next(node for node in graph.head if node.op == "GEMM")
    assert head.n * head.k == vocabulary
    embedding = Fraction(2 if engine else STORED[graph.global_.weight_dtype])
    head_width = max(width(graph, quantization, head), Fraction(0 if head.weight_dtype else 2))
    tensors.append(Tensor("lm_head", vocabulary * head_width, divided(ranks)))
    tensors.append(Tensor("embedding", vocabulary * max(embedding, Fraction(1)), divided(ranks)))
    return tensors


def matrices(name: str, node: Node, bytes_each: Fraction, ranks: Ranks, engine: bool, layers: int) -> list[Tensor]:
    down = engine and node.role == "qkv_a_proj"
    tensors = [Tensor(name, node.n * node.k * bytes_each, replicated(ranks) if down else divided(ranks))]
    if engine and node.role == "kv_b_proj":
        tensors.append(Tensor(f"{name}.absorbed", Fraction(layers * node.n * node.k * 2), divided(ranks)))
    return tensors


def experts(name: str, node: Node, bytes_each: Fraction, ranks: Ranks) -> list[Tensor]:
    """Each expert as a tensor of its own, dealt out in runs, the first ranks taking one more where it is uneven."""
    one = 3 * node.n * node.k * bytes_each
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
        size = 3 * (node.shared_intermediate_size or node.n) * node.k * node.shared_experts * bytes_each
        tensors.append(Tensor(f"{name}.shared", size, divided(ranks)))
    return tensors


def held(experts: int, ranks: int, rank: int) -> int:
    return experts // ranks + (rank < experts % ranks)


def cache_tensors(graph: ModelGraph, element: Fraction, tokens: int, ranks: Ranks) -> list[Tensor]:
    """The cache of one sequence on one replica: each head of K and V, each latent, as often as ranks hold it."""
    kinds = {kind.id: kind for kind in graph.layer_kinds}
    one = Ranks(ranks.tp)
    tensors = []
    for id_, layers in Counter(graph.stack.layers()).items():
        for node in kinds[id_].nodes:
            if node.op != "Attention":
                continue
            kept = min(tokens, node.window) if node.kind == "swa" else tokens
            size = layers * kept * node.d_h * element
            if node.kind == "mla":
                tensors.append(Tensor(id_, size, replicated(one)))
            for head in range(node.n_kv if node.kind != "mla" else 0):
                shares = tuple(Fraction(head in heads_of(node.n_kv, one.tp, rank)) for rank in range(one.tp))
                tensors += [Tensor(f"{id_}.{part}.{head}", size, shares) for part in ("k", "v")]
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
