"""Attention whose cache is one latent vector a token: DeepSeek's, with or without an indexer, and its compressed form.

The indexer and the compressed attention are here too, because they live inside a latent layer and read its query rank.
"""

from __future__ import annotations

from pykernel.derive.blocks import ACTIVATION_BYTES, Builder, Part, around_mixer, reduction, scorer
from pykernel.documents.graph import Node


def indexed_layers(b: Builder, count: int) -> list[bool]:
    """Which layers of a model with an indexer run it; the others read what the last one chose."""
    config = b.config
    words = config.words("indexer_types", ("full", "shared"), count)
    if words is not None:
        return [word == "full" for word in words]
    pattern = config.text("index_topk_pattern")
    if pattern:
        if len(pattern) != count:
            config.fault(
                "index_topk_pattern", f"found {len(pattern)} letters for {count} layers; accepted: one a layer"
            )
        return [letter != "S" for letter in pattern]
    every = config.integer("index_topk_freq") if config.key("index_topk_freq") else 1
    offset = config.integer("index_skip_topk_offset", 0) if config.key("index_skip_topk_offset") else 2
    return [max(layer - offset + 1, 0) % every == 0 for layer in range(count)]


def latent_attention(b: Builder, indexed: bool = False) -> Part:
    """Latent attention, sparse where the config has an `index_topk`, its indexer included where `indexed`."""
    return around_mixer(b, _latent(b, indexed))


def _latent(b: Builder, indexed: bool) -> Part:
    config, hidden = b.config, b.hidden
    queries, latent, nope = config.integer("heads"), config.integer("kv_lora_rank"), config.integer("qk_nope_head_dim")
    rope = config.integer("qk_rope_head_dim", 0)
    if rope == 0 and not config.flag("mla_use_nope"):
        config.fault("qk_rope_head_dim", "found 0 without mla_use_nope: true; accepted: 1 or more")
    value = config.optional("v_head_dim") or nope
    rank, top_k = config.optional("q_lora_rank"), config.optional("index_topk")
    gated = config.flag("mla_use_output_gate")
    nodes = _projections(b, rank, latent, rope, queries * (nope + rope), queries * value if gated else 0, indexed)
    nodes.append(b.gemm("kv_b_proj", queries * (nope + value), latent, "kv_b"))
    if indexed:
        nodes += indexer(b, rank)
    nodes.append(
        Node(
            "Attention",
            kind="sparse_mla" if top_k else "mla",
            n_q=queries,
            n_kv=1,
            d_h=latent + rope,
            kv_lora_rank=latent,
            qk_rope_head_dim=rope,
            index_topk=top_k,
        )
    )
    if gated:
        moved = 3 * queries * value * ACTIVATION_BYTES
        nodes.append(Node("Elementwise", role="mla_output_gate", bytes_per_token=moved))
    nodes += [b.gemm("o_proj", hidden, queries * value, "o"), reduction("attn_out")]
    index_norm = 2 * config.integer("index_head_dim") if indexed else 0
    return Part(nodes).count(norms=rank + latent + index_norm)


def _projections(
    b: Builder, rank: int, latent: int, rope: int, query_width: int, gate_width: int, indexed: bool
) -> list[Node]:
    """From the hidden state to queries and the latent vector, by way of a query latent where there is one."""
    if not rank:
        return [
            b.gemm("kv_a_proj", latent + rope, b.hidden, "qkv_a"),
            b.latent_norm("kv_a_layernorm", latent),
            b.gemm("q_proj", query_width, b.hidden, "q_b"),
        ]
    down = b.gemm("qkv_a_proj", rank + latent + rope + gate_width, b.hidden, "qkv_a")
    up = b.gemm("q_b_proj", query_width, rank, "q_b")
    if not b.traits.fused_latent_norm:
        return [down, b.latent_norm("q_a_layernorm", rank), b.latent_norm("kv_a_layernorm", latent), up]
    fused = rank + latent
    if indexed and pooled(b) == 1:
        fused += b.config.integer("index_head_dim")  # one kernel norms the indexer's key as well
    return [down, b.latent_norm("qkv_a_layernorm", fused), up]


def pooled(b: Builder) -> int:
    """Tokens that share an entry of the indexer's cache."""
    return b.config.optional("index_kpool") or 1


def indexer(b: Builder, rank: int) -> list[Node]:
    """The lightning indexer, up to the scores."""
    config = b.config
    count, width, pool = config.integer("index_n_heads"), config.integer("index_head_dim"), pooled(b)
    if not rank:
        config.missing("q_lora_rank")
    nodes = [
        b.gemm("index_wq_b", count * width, rank, "indexer"),
        b.unquantized("index_wk_weights_proj", width + count, b.hidden),
    ]
    if pool > 1:
        # What the pooling pass moves is inferred from the one published graph that has it: seven passes over a key of
        # 16 bits, and one entry of 8-bit values and an fp32 scale for each pool.
        moved = 7 * width * ACTIVATION_BYTES + (width + 4) // pool
        nodes += [
            b.unquantized("index_head_gate_proj", count, b.hidden, "fp32"),
            b.unquantized("index_kpool_compress_gate", width, b.hidden),
            Node("Elementwise", role="index_kpool_compress", bytes_per_token=moved),
        ]
    if pool > 1 or not b.traits.fused_latent_norm:
        nodes.append(b.latent_norm("index_k_norm", width))
    return [*nodes, scorer(count, width, pool)]


# ---- compressed latent attention (DeepSeek-V4) ---------------------------------------------------------------------

INDEXED_RATIO = 4
"""Of the compression ratios, the one whose layers choose among the compressed entries by an indexer."""

RATIOS = (0, 4, 128)


def compressed_attention(b: Builder, ratio: int) -> Part:
    """Attention to one entry for every `ratio` tokens and to a window of single ones; to the window alone at 0."""
    config, hidden = b.config, b.hidden
    queries, width, rank = config.integer("heads"), config.integer("head_dim"), config.integer("q_lora_rank")
    window, rope = config.integer("window"), config.integer("qk_rope_head_dim")
    groups, out_rank = config.integer("o_groups"), config.integer("o_lora_rank")
    if queries * width % groups:
        config.fault("o_groups", f"found {groups}; accepted: a divisor of {queries * width}, the width of all heads")
    nodes = [
        b.gemm("fused_wqa_wkv", rank + width, hidden, "qkv_a"),
        Node("Elementwise", role="q_norm"),
        b.gemm("wq_b", queries * width, rank, "q_b"),
    ]
    if ratio:
        nodes.append(b.gemm("compressor_fused_wkv_wgate", width + 1, hidden, "qkv_a"))
    indexed = ratio == INDEXED_RATIO
    if indexed:
        count, index_width = config.integer("index_n_heads"), config.integer("index_head_dim")
        nodes += [
            b.gemm("index_wq_proj", count * index_width, rank, "indexer"),
            b.gemm("index_weights_proj", count, hidden, "indexer"),
            b.gemm("index_compressor_fused_wkv_wgate", index_width + 1, hidden, "indexer"),
            scorer(count, index_width),
        ]
    nodes += [
        Node(
            "Attention",
            kind="sparse_mla" if ratio else "mla",
            n_q=queries,
            n_kv=1,
            d_h=width,
            qk_rope_head_dim=rope,
            window=window,
            index_topk=config.integer("index_topk") if indexed else 0,
            compress_ratio=ratio,
        ),
        b.gemm("wo_a", groups * out_rank, queries * width // groups, "o"),
        b.gemm("wo_b", hidden, groups * out_rank, "o"),
        reduction("attn_out"),
    ]
    return around_mixer(b, Part(nodes).count(norms=rank + width, sinks=queries))
