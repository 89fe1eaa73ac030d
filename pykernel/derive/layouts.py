"""Which mixer and which MLP each layer of a model has: the rules by which configs say so, one function a rule.

A rule takes a config and gives one name a layer, out of the tables of blocks in `families.py`. Vectors must have an
entry for every layer, and what two keys say of the same thing must agree.
"""

from __future__ import annotations

from collections.abc import Callable

from pykernel.derive.config import Config
from pykernel.documents.nodes import shown

Layout = Callable[[Config], list[str]]

_ATTENTION_WORDS = {"sliding_attention": "sliding", "full_attention": "attention", "chunked_attention": "attention"}


def every(name: str) -> Layout:
    """The same block in all layers."""
    return lambda config: [name] * config.layers()


# ---- mixers ------------------------------------------------------------------------------------------------------


def _uses_windows(config: Config, unstated: bool) -> bool:
    return bool(config.key("window")) and config.flag("use_sliding_window", unstated)


def windowed(is_sliding: Callable[[Config, int], bool], unstated: bool = True) -> Layout:
    """Windows by `layer_types` where they are listed, else by the family's own rule.

    `unstated`: whether a window is used where the config has no `use_sliding_window`.
    """

    def layout(config: Config) -> list[str]:
        count = config.layers()
        words = config.words("layer_types", tuple(_ATTENTION_WORDS), count)
        if not _uses_windows(config, unstated):
            if words is not None and "sliding_attention" in words and config.flag("use_sliding_window", True):
                config.missing("window")
            return ["attention"] * count
        if words is not None:
            return [_ATTENTION_WORDS[word] for word in words]
        return ["sliding" if is_sliding(config, layer) else "attention" for layer in range(count)]

    return layout


def in_every_layer(config: Config, layer: int) -> bool:
    """A window in all layers (Mistral, Phi-3)."""
    return True


def in_even_layers(config: Config, layer: int) -> bool:
    """A window in every other layer, the first one included (Gemma 2)."""
    return layer % 2 == 0


def above_the_first(config: Config, layer: int) -> bool:
    """A window from layer `max_window_layers` on (Qwen2)."""
    return layer >= config.integer("max_window_layers", 0)


def but_every_nth(config: Config, layer: int) -> bool:
    """A window in all layers but every n-th (Gemma 3, Command-R7B)."""
    key = next((key for key in ("sliding_window_pattern", "_sliding_window_pattern") if config.key(key)), "")
    if not key:
        config.missing("sliding_window_pattern")
    return (layer + 1) % config.integer(key) != 0


def undescribed(config: Config, layer: int) -> bool:
    """For families whose configs list the layers."""
    config.missing("layer_types")


def local_layers(config: Config) -> list[str]:
    """Windows in the layers that `local_layer_ids` lists (Inkling)."""
    count, listed = config.layers(), config.numbers("local_layer_ids")
    beyond = [layer for layer in listed if layer >= count]
    if beyond or len(set(listed)) != len(listed):
        config.fault(
            "local_layer_ids", f"found {shown(beyond or listed)}; accepted: layers 0 to {count - 1}, each once"
        )
    return ["sliding" if layer in set(listed) else "attention" for layer in range(count)]


def hybrid_layer_pattern(config: Config) -> list[str]:
    """Windows where the vector says 1 (MiMo-V2)."""
    return ["sliding" if mark else "attention" for mark in _marks(config, "hybrid_layer_pattern")]


def _marks(config: Config, key: str) -> list[int]:
    """A vector of zeros and ones, one a layer."""
    found, count = config.numbers(key), config.layers()
    if len(found) != count or any(mark not in (0, 1) for mark in found):
        config.fault(key, f"found {shown(found)} for {count} layers; accepted: 0 or 1 for each")
    return found


def uniform_attention_list(config: Config) -> list[str]:
    """Attention in all layers, which a type list where there is one must confirm (MiniMax-M2)."""
    count = config.layers()
    types = config.sequence("attn_type_list")
    if types is not None and (len(types) != count or any(kind != 1 for kind in types)):
        config.fault("attn_type_list", f"found {shown(types)} for {count} layers; accepted: 1 for each")
    return ["attention"] * count


def block_sparse_layers(config: Config) -> list[str]:
    """Block-sparse attention exactly in the layers with experts (MiniMax-M3)."""
    sparse = config.inside("sparse_attention_config")
    if not sparse.flag("use_sparse_attention"):
        sparse.fault("use_sparse_attention", "found no true; accepted: true")
    marks, experts = sparse.numbers("sparse_attention_freq"), _marks(config, "moe_layer_freq")
    if marks != experts:
        sparse.fault("sparse_attention_freq", "found a vector other than moe_layer_freq; accepted: the same")
    return ["block_sparse" if mark else "attention" for mark in marks]


def compressed_layers(config: Config) -> list[str]:
    """Compressed attention by ratio; one more entry than layers is the draft module's (DeepSeek-V4)."""
    from pykernel.derive.latent import RATIOS

    ratios, count = config.numbers("compress_ratios"), config.layers()
    if not count <= len(ratios) <= count + config.optional("drafts"):
        config.fault("compress_ratios", f"found {len(ratios)} ratios for {count} layers; accepted: one a layer")
    for index, ratio in enumerate(ratios):
        if ratio not in RATIOS:
            accepted = ", ".join(map(str, RATIOS))
            config.fault(f"compress_ratios[{index}]", f"found {ratio}; accepted: {accepted}")
    return [f"compressed_{ratio}" for ratio in ratios[:count]]


def delta_or_attention(config: Config) -> list[str]:
    """Gated delta with full attention in between, as listed or at an interval (Qwen3-Next, Qwen3.5)."""
    count = config.layers()
    words = config.words("layer_types", ("linear_attention", "full_attention"), count)
    interval = config.optional("full_attention_interval")
    if words is None and not interval:
        config.missing("layer_types")
    by_interval = [(layer + 1) % interval == 0 for layer in range(count)] if interval else None
    full = [word == "full_attention" for word in words] if words is not None else by_interval
    assert full is not None
    if by_interval is not None and full != by_interval:
        config.fault(
            "layer_types", f"found other layers than full_attention_interval {interval} gives; accepted: the same"
        )
    return ["attention" if is_full else "gated_delta" for is_full in full]


def delta_or_latent(config: Config) -> list[str]:
    """Kimi delta attention with latent attention in the listed layers, counted from 1 unless a 0 is listed."""
    count, linear = config.layers(), config.inside("linear_attn_config")
    listed = linear.numbers("full_attn_layers")
    first = 0 if 0 in listed else 1
    latent = {layer - first for layer in listed}
    if latent and not 0 <= min(latent) <= max(latent) < count:
        linear.fault("full_attn_layers", f"found {shown(listed)}; accepted: layers of {count}")
    if linear.key("kda_layers"):
        others = {layer - first for layer in linear.numbers("kda_layers")}
        if others != set(range(count)) - latent:
            linear.fault("kda_layers", "found other layers than full_attn_layers leaves; accepted: all the others")
    return ["latent" if layer in latent else "kimi_delta" for layer in range(count)]


def delta_or_sparse_latent(config: Config) -> list[str]:
    """Kimi delta attention or sparse latent attention, as listed (GLM-5.3-Flash)."""
    words = config.words("layer_types", ("linear_attention", "deepseek_sparse_attention"), config.layers())
    if words is None:
        config.missing("layer_types")
    return ["kimi_delta" if word == "linear_attention" else "latent_indexed" for word in words]


def mamba_or_attention(config: Config) -> list[str]:
    """Mamba with attention in the layers listed, by word or by index (Granite 4, Bamba)."""
    count = config.layers()
    words = config.words("layer_types", ("mamba", "attention"), count)
    if words is None and config.key("attn_layer_indices"):
        listed = config.numbers("attn_layer_indices")
        if any(layer >= count for layer in listed):
            config.fault("attn_layer_indices", f"found {shown(listed)}; accepted: layers 0 to {count - 1}")
        words = ["attention" if layer in listed else "mamba" for layer in range(count)]
    if words is None:
        config.missing("layer_types")
    return ["attention" if word == "attention" else "mamba2_model_dtype" for word in words]


def mamba1_or_attention(config: Config) -> list[str]:
    """Mamba-1 with attention at a period and offset (Jamba)."""
    period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", 0)
    return ["attention" if layer % period == offset else "mamba1" for layer in range(config.layers())]


_BLOCK_WORDS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
_BLOCK_LETTERS = {"M": ("mamba2", "none"), "*": ("attention", "none"), "-": ("none", "dense"), "E": ("none", "moe")}


def nemotron_blocks(config: Config, words_key: str, letters_key: str) -> list[tuple[str, str]] | None:
    """The layers of a list of words or of a string of letters, None where neither is stated (Nemotron-H)."""
    words = config.sequence(words_key)
    if words is not None:
        for index, word in enumerate(words):
            if not isinstance(word, str) or word not in _BLOCK_WORDS:
                config.fault(f"{words_key}[{index}]", f"found {shown(word)}; accepted: {', '.join(_BLOCK_WORDS)}")
        return [_BLOCK_LETTERS[_BLOCK_WORDS[word]] for word in words]
    letters = config.text(letters_key)
    for index, letter in enumerate(letters):
        if letter not in _BLOCK_LETTERS:
            config.fault(letters_key, f"found {shown(letter)} at {index}; accepted: {' '.join(_BLOCK_LETTERS)}")
    return [_BLOCK_LETTERS[letter] for letter in letters] or None


def _nemotron_stack(config: Config) -> list[tuple[str, str]]:
    blocks = nemotron_blocks(config, "layers_block_type", "hybrid_override_pattern")
    if blocks is None:
        config.missing("hybrid_override_pattern")
    stated = config.optional("layers")
    if stated and stated != len(blocks):
        config.fault(
            config.key("layers"), f"found {stated}, where the pattern has {len(blocks)} layers; accepted: the same"
        )
    return blocks


def nemotron_mixers(config: Config) -> list[str]:
    return [mixer for mixer, _ in _nemotron_stack(config)]


def nemotron_mlps(config: Config) -> list[str]:
    return [mlp for _, mlp in _nemotron_stack(config)]


def sparse_latent(config: Config) -> list[str]:
    """Latent attention; which layers run their indexer is settled where the layers are built."""
    if config.key("index_n_heads") and not config.key("index_topk"):
        config.missing("index_topk")
    return ["latent_indexable" if config.optional("index_topk") else "latent"] * config.layers()


# ---- MLPs --------------------------------------------------------------------------------------------------------


def experts_after_dense(config: Config) -> list[str]:
    """Experts but in the first layers, or as a vector says, or at a frequency (DeepSeek and most others)."""
    count = config.layers()
    words = config.words("mlp_layer_types", ("dense", "sparse"), count)
    dense_first = config.optional("first_k_dense_replace")
    if words is not None:
        found = ["dense" if word == "dense" else "moe" for word in words]
        if config.key("first_k_dense_replace") and found.count("dense") != min(dense_first, count):
            message = f"found {dense_first}, where mlp_layer_types has {found.count('dense')} dense layers"
            config.fault("first_k_dense_replace", f"{message}; accepted: the same")
        return found
    if isinstance(config.values.get("moe_layer_freq"), list):
        return ["moe" if mark else "dense" for mark in _marks(config, "moe_layer_freq")]
    if not config.key("first_k_dense_replace"):
        config.missing("first_k_dense_replace")
    every_nth = config.integer("moe_layer_freq") if config.key("moe_layer_freq") else 1
    return ["moe" if layer >= dense_first and layer % every_nth == 0 else "dense" for layer in range(count)]


def experts_after_any_dense(config: Config) -> list[str]:
    """The same where a config without a key for dense layers has none (Inkling)."""
    if config.key("first_k_dense_replace") or config.key("mlp_layer_types"):
        return experts_after_dense(config)
    count, dense = config.layers(), config.optional("dense_mlp_idx")
    return ["dense" if layer < dense else "moe" for layer in range(count)]


def experts_at_a_step(config: Config) -> list[str]:
    """Experts at every n-th layer but those listed as dense (Qwen MoE)."""
    step = config.optional("decoder_sparse_step") or 1
    dense = _numbered(config, "mlp_only_layers") if config.key("mlp_only_layers") else set()
    return ["moe" if (layer + 1) % step == 0 and layer not in dense else "dense" for layer in range(config.layers())]


def _numbered(config: Config, key: str) -> set[int]:
    """Layers that a list names by number, counted from 0."""
    listed, count = config.numbers(key), config.layers()
    beyond = [layer for layer in listed if layer >= count]
    if beyond:
        config.fault(key, f"found {shown(beyond)}; accepted: layers 0 to {count - 1}")
    return set(listed)


def experts_interleaved(config: Config) -> list[str]:
    """Experts in the layers listed, or at every n-th (Llama 4)."""
    count = config.layers()
    if config.key("moe_layers"):
        listed = _numbered(config, "moe_layers")
        return ["moe" if layer in listed else "dense" for layer in range(count)]
    step = config.integer("interleave_moe_layer_step")
    return ["moe" if (layer + 1) % step == 0 else "dense" for layer in range(count)]


def experts_at_a_period(config: Config) -> list[str]:
    """Experts at a period and offset (Jamba)."""
    if config.optional("experts") <= 1:
        return ["dense"] * config.layers()
    period, offset = config.integer("expert_layer_period"), config.integer("expert_layer_offset", 0)
    return ["moe" if layer % period == offset else "dense" for layer in range(config.layers())]


def experts_if_any(config: Config) -> list[str]:
    """Experts in all layers of a model that has them, else a dense MLP (Granite 4)."""
    return ["moe" if config.optional("experts") else "dense"] * config.layers()


def gemma4_mlps(config: Config) -> list[str]:
    """A dense MLP, with experts beside it where the config switches them on; what has no description is refused."""
    config.unsupported("hidden_size_per_layer_input", "embeddings of each layer are not described")
    config.unsupported("num_kv_shared_layers", "caches shared between layers are not described")
    config.unsupported("use_double_wide_mlp", "MLPs of two widths are not described")
    return ["dense_and_moe" if config.flag("enable_moe_block") else "dense"] * config.layers()


def gemma4_mixers(config: Config) -> list[str]:
    """Windows as listed; the layers without one have heads of their own (Gemma 4)."""
    words = config.words("layer_types", ("sliding_attention", "full_attention"), config.layers())
    if words is None:
        config.missing("layer_types")
    return ["sliding" if word == "sliding_attention" else "wide_global" for word in words]
