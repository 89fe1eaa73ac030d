"""Random deployments over every kind of layer, layout, graph mode, chip and coefficient that a step's price reads.

Most draws are refused by somebody (an expert width that exceeds the experts, a cache no backend takes): those count
too, because both sides must refuse them. What is drawn is legal as a document.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

from pykernel.documents import (
    Cluster,
    Coefficient,
    CoefficientSet,
    Deployment,
    DerivedFrom,
    Engine,
    Eplb,
    Fabric,
    Global,
    Inputs,
    LayerKind,
    ModelGraph,
    Node,
    Parallel,
    PdTransfer,
    Pool,
    Scenario,
    Scope,
    Speculative,
    Speculator,
    Stack,
    list_chips,
    open_inputs,
)
from pykernel.documents.hardware import load_chip
from pykernel.documents.repos import Repos

CHIPS = {name: load_chip(Repos().catalog_root() / "hardware" / f"{name}.yaml") for name in list_chips()}
BASE = open_inputs("minimax-m2.5-h200-ep16")
DTYPES = ("bf16", "fp16", "fp32", "fp8", "int8", "nvfp4", "mxfp4", "int4")


# ---- model graphs ----------------------------------------------------------------------------------------------


def norm(rng: random.Random, role: str = "norm") -> Node:
    return Node(op="Elementwise", role=role, bytes_per_token=rng.choice((0, 0, 6144)))


def gemm(rng: random.Random, n: int, k: int, role: str = "") -> Node:
    return Node(op="GEMM", role=role, n=n, k=k, weight_dtype=rng.choice(("", "", "", *DTYPES)))


def reduction(role: str, emit: str) -> Node:
    return Node(op="AllReduce", role=role, emit=emit)


def full_attention(rng: random.Random, hidden: int) -> list[Node]:
    heads = rng.choice((8, 16, 32, 48, 64))
    kind = rng.choice(("gqa", "gqa", "swa"))
    node = Node(
        op="Attention",
        kind=kind,
        n_q=heads,
        n_kv=rng.choice([count for count in (1, 2, 4, 8) if count <= heads]),
        d_h=rng.choice((64, 128, 256)),
        window=rng.choice((128, 1024, 4096)) if kind == "swa" else 0,
    )
    width = (heads + 2 * node.n_kv) * node.d_h
    return [gemm(rng, width, hidden), node, gemm(rng, hidden, heads * node.d_h)]


def latent_attention(rng: random.Random, hidden: int, sparse: bool) -> list[Node]:
    heads = rng.choice((16, 32, 64, 128))
    width = 512 if hidden == 4096 else 576  # one width a model: the engine picks one sparse backend for all layers
    node = Node(op="Attention", kind="sparse_mla" if sparse else "mla", n_q=heads, n_kv=1, d_h=width)
    if rng.random() < 0.7:
        node.kv_lora_rank = rng.choice((width - 64, width))
    node.window = rng.choice((0, 0, 128, 2048))
    nodes = [gemm(rng, 2112, hidden), norm(rng), gemm(rng, heads * 192, 1536)]
    if sparse:
        node.index_topk = rng.choice((0, 512, 2048))
        node.compress_ratio = rng.choice((0, 1, 4, 128)) if node.index_topk else rng.choice((4, 128))
        if rng.random() < 0.6:
            nodes.append(scorer(rng))
        if rng.random() < 0.2:
            nodes.append(scorer(rng))
    return [*nodes, node, gemm(rng, hidden, heads * 128)]


def scorer(rng: random.Random) -> Node:
    pooled = rng.random() < 0.4
    return Node(
        op="Attention",
        role="block_index_scores",
        kind="sparse_mla" if pooled else rng.choice(("gqa", "swa")),
        n_q=rng.choice((16, 64)),
        n_kv=1,
        d_h=128,
        compress_ratio=rng.choice((4, 16)) if pooled else 0,
        window=rng.choice((512, 8192)),
    )


def recurrent(rng: random.Random, hidden: int) -> list[Node]:
    heads = rng.choice((32, 64, 96))
    node = Node(
        op="RecurrentUpdate",
        recurrent_kind=rng.choice(("mamba2", "kda", "gdn")),
        n_heads=heads,
        state_size=128,
        n_groups=8,
        conv_kernel=4,
        intermediate_size=heads * 128,
    )
    return [node, gemm(rng, hidden, heads * 128)]


def dense_mlp(rng: random.Random, hidden: int) -> list[Node]:
    width = rng.choice((1536, 8192, 18432))
    return [
        gemm(rng, 2 * width, hidden),
        gemm(rng, hidden, width),
        reduction("mlp_out", "tensor_parallel_unless_sp_moe"),
    ]


def experts(rng: random.Random, hidden: int) -> list[Node]:
    count = rng.choice((8, 60, 64, 128, 256))
    node = Node(
        op="GroupedGEMM",
        role="experts",
        n=rng.choice((768, 1536, 2048)),
        k=hidden,
        experts=count,
        top_k=rng.choice((1, 2, 8)),
        shared_experts=rng.choice((0, 0, 1, 2)),
        latent_size=rng.choice((0, 0, hidden // 2)),
        gated=rng.random() < 0.85,
        weight_dtype=rng.choice(("", "", "fp8", "mxfp4")),
    )
    if node.shared_experts:
        node.shared_intermediate_size = rng.choice((0, 3072))
    nodes = [node]
    if rng.random() < 0.15:
        shared = rng.choice((1, 2))
        nodes.append(
            Node(
                op="GroupedGEMM",
                role="shared_experts",
                n=2048,
                k=hidden,
                experts=shared,
                top_k=shared,
                weight_dtype="fp8",
            )
        )
    if rng.random() < 0.1:
        nodes.append(Node(op="GroupedGEMM", role="experts_b", n=512, k=hidden, experts=32, top_k=4))
    nodes.append(Node(op="All2All", role="moe_dispatch_combine", emit="expert_parallel"))
    nodes.append(reduction("mlp_out", "tensor_parallel_unless_sp_moe"))
    return nodes


MIXERS: dict[str, Callable[[random.Random, int], list[Node]]] = {
    "full": full_attention,
    "latent": lambda rng, hidden: latent_attention(rng, hidden, sparse=False),
    "sparse": lambda rng, hidden: latent_attention(rng, hidden, sparse=True),
    "recurrent": recurrent,
    "none": lambda rng, hidden: [],
}


def layer(rng: random.Random, id_: str, hidden: int, mixer: str) -> LayerKind:
    nodes = [norm(rng, "input_norm"), *MIXERS[mixer](rng, hidden)]
    if mixer != "none":
        nodes.append(reduction("attn_out", rng.choice(("tensor_parallel", "tensor_parallel_unless_sp_moe"))))
    if rng.random() < 0.1:
        nodes += [
            Node(op="ReduceScatter", role="shard", emit="tensor_parallel"),
            Node(op="AllGather", role="unshard", emit="tensor_parallel"),
        ]
    if rng.random() < 0.9 or mixer == "none":
        nodes.append(norm(rng, "post_attn_norm"))
        nodes += rng.choice((dense_mlp, experts, experts))(rng, hidden)
    return LayerKind(id_, nodes, [[index, index + 1] for index in range(len(nodes) - 1)])


def model(rng: random.Random) -> ModelGraph:
    hidden = rng.choice((2048, 4096, 7168))
    families = rng.choice(
        (
            ("full",),
            ("full", "full"),
            ("latent",),
            ("latent", "latent"),
            ("sparse",),
            ("sparse", "sparse"),
            ("full", "recurrent"),
            ("latent", "recurrent", "none"),
            ("full", "latent"),
            ("sparse", "none"),
        )
    )
    kinds = [layer(rng, f"kind{index}", hidden, mixer) for index, mixer in enumerate(families)]
    ids = [kind.id for kind in kinds]
    stack = Stack(
        prologue=rng.choices(ids, k=rng.randint(0, 2)),
        pattern=rng.choices(ids, k=rng.randint(1, 3)),
        repeat=rng.randint(1, 20),
        epilogue=rng.choices(ids, k=rng.randint(0, 1)),
    )
    head = [Node(op="Elementwise", role="final_norm"), gemm(rng, 128256, hidden, "lm_head")]
    speculator = None
    if rng.random() < 0.4:
        speculator = Speculator("mtp", 1, Stack(pattern=rng.choices(ids, k=rng.randint(1, 2)), repeat=1))
    graph = ModelGraph(
        kind="ModelGraph",
        name="drawn",
        derived_from=DerivedFrom("hf_config_json", "config.json", "0" * 64, 1),
        global_=Global(hidden, 128256, weight_dtype=rng.choice(("bf16", "bf16", "fp8", "nvfp4", "fp32", "int4"))),
        layer_kinds=kinds,
        stack=stack,
        head=head if rng.random() < 0.95 else [],
        speculator=speculator,
    )
    return graph


# ---- deployments -----------------------------------------------------------------------------------------------


def engine(rng: random.Random, latent: bool) -> Engine:
    caches = ("", "auto", "fp8", "fp8", "bfloat16", "fp8_ds_mla", "fp8_e4m3", "nvfp4")
    settings = Engine(
        all2all_backend=rng.choice(("", "", "allgather_reducescatter", "deepep_low_latency", "deepep_high_throughput")),
        cudagraph_mode=rng.choice(("", "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "full_and_piecewise")),
        cache_dtype=rng.choice(caches[:5] if not latent else caches),
        quantization=rng.choice(("", "", "fp8", "fp8", "nvfp4", "mxfp4", "awq")),
        block_size=rng.choice((0, 16, 64, 128)),
        max_num_seqs=rng.choice((3, 8, 18)),
        max_num_batched_tokens=rng.choice((0, 0, 2048, 8192)),
        max_model_len=rng.choice((0, 4096, 131072)),
        disable_custom_all_reduce=rng.choice((None, None, True, False)),
        dcp_comm_backend=rng.choice(("", "", "ag_rs", "a2a")),
        dcp_q_replicate=rng.choice((None, None, None, True)),
        cp_kv_cache_interleave_size=rng.choice((0, 0, 0, 1, 16, 5)),
        max_cudagraph_capture_size=rng.choice((0, 0, 0, 100)),
        cudagraph_capture_sizes=rng.choice(([], [], [], [1, 8, 30, 4096])),
    )
    if rng.random() < 0.3:
        settings.speculative = Speculative(rng.choice(("mtp", "mtp", "ngram")), rng.randint(1, 3))
    if rng.random() < 0.15:
        settings.eplb = Eplb(enable_eplb=rng.random() < 0.8, num_redundant_experts=rng.choice((0, 4, 8)))
    return settings


def parallel(rng: random.Random, mixer: str) -> Parallel:
    tp, dp = rng.choice((1, 2, 4, 8, 8, 16)), rng.choice((1, 1, 1, 2, 4))
    pcp = rng.choice((0, 0, 1, 2, 4)) if mixer in ("latent", "sparse") else 0
    widths = (1, pcp, tp * pcp) if pcp > 1 else tuple(width for width in (1, 2, 3, 4, 8) if tp % width == 0)
    dcp = rng.choice((0, 0, rng.choice(widths)))
    return Parallel(tp=tp, pp=1, dp=dp, pcp=pcp, dcp=dcp, enable_expert_parallel=rng.random() < 0.5)


def extra_coefficients(rng: random.Random, chip: str) -> CoefficientSet | None:
    """A set after the others that adds what the bundled ones lack, or changes what they hold."""
    pool = {
        "gemm_n_half_bf16": 640.0,
        "gemm_k_half_bf16": 900.0,
        "gemm_n_half_fp8": 500.0,
        "gemm_k_half_fp8": 0.5,
        "gemm_n_half_nvfp4": 300.0,
        "gemm_k_half_nvfp4": 700.0,
        "attention_decode_rate_sparse_mla": 1.7e6,
        "attention_decode_floor_sparse_mla": 21.0,
        "attention_decode_floor": 90.0,
        "attention_prefill_floor": 3.25,
        "moe_routing_imbalance_median": rng.choice((1.4, 0.7)),
        "host_launch_per_kernel": 1.75,
    }
    shape = ["gemm_n_half", "gemm_k_half"] if rng.random() < 0.3 else []
    names = [name for name in pool if name.startswith(tuple(shape))] if shape else []
    names += [name for name in pool if not name.startswith("gemm") and rng.random() < 0.25]
    if not names:
        return None
    entries = [
        Coefficient(name, pool[name], "dimensionless", "measured", False, Scope(hardware=[chip])) for name in names
    ]
    return CoefficientSet("CoefficientSet", "drawn-coefficients", entries)


def draw(rng: random.Random) -> Inputs:
    """One deployment; documents that are valid in themselves, settings that may be refused."""
    graph = model(rng)
    kinds = {node.kind for kind in graph.layer_kinds for node in kind.nodes if node.op == "Attention" and not node.role}
    mixer = "sparse" if kinds == {"sparse_mla"} else "latent" if kinds == {"mla"} else "other"
    layout = parallel(rng, mixer)
    chip = copy.deepcopy(CHIPS[rng.choice(list(CHIPS))])
    per_node = chip.gpus_per_node or rng.choice((4, 8, 8))
    ranks = layout.tp * max(layout.pcp, 1) * layout.dp
    nodes = -(-ranks // per_node)
    cluster = Cluster(
        hardware=chip.name,
        nodes=nodes,
        gpus_per_node=per_node,
        fabric="fabric" if nodes > 1 else "",
        gpus_per_rack=rng.choice((0, 0, 72)) if per_node == 4 else 0,
    )
    fabric = Fabric("fabric", "vendor_spec", rng.choice((12.5, 25.0, 50.0, 2000.0))) if nodes > 1 else None
    sets = [kept for kept in BASE.coefficients if rng.random() < 0.95 or "attention" not in kept.name]
    extra = extra_coefficients(rng, chip.name)
    transfer = PdTransfer(rng.choice(("NixlConnector", "MultiConnector"))) if rng.random() < 0.15 else None
    settings = engine(rng, mixer != "other")
    if any(node.op == "RecurrentUpdate" for kind in graph.layer_kinds for node in kind.nodes):
        # The engine raises the unstated block of a hybrid by the size of its state, which is memory's to know; the
        # oracle does not, and a step reads the block where a connector pins the interleave to it.
        settings.block_size = settings.block_size or 16
    return Inputs(
        scenario=Scenario("Scenario", "drawn", graph.name, [kept.name for kept in sets], "0.29.0", cluster),
        deployment=Deployment(
            "Deployment",
            "drawn",
            [Pool("colocated", nodes, layout, settings)],
            pd_transfer=transfer,
        ),
        pool=0,
        model=graph,
        chip=chip,
        fabric=fabric,
        storage=[],
        coefficients=[*sets, extra] if extra else sets,
        rules=BASE.rules,
    )
