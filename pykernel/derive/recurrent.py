"""Mixers with a state of constant size: Mamba, gated delta, and Kimi delta attention.

The published graphs of Nemotron-H and Qwen3.5 hold no input projection of the mixer; `Traits.mixer_inputs` says which
families follow them. What is left out is counted beside the nodes.
"""

from __future__ import annotations

from pykernel.derive.blocks import Builder, Part, around_mixer, head_attention, heads, reduction
from pykernel.derive.config import Config
from pykernel.derive.formats import DECLARED
from pykernel.documents.graph import Node


def _state_dtype(b: Builder, keys: tuple[str, ...], unstated: str) -> str:
    """The format of a stored state: as stated, else what the engine takes for the family."""
    for key in keys:
        stated = b.config.text(key)
        if stated:
            if stated.removeprefix("torch.") not in DECLARED:
                b.config.fault(key, f"found {stated!r}; accepted: {', '.join(DECLARED)}")
            return DECLARED[stated.removeprefix("torch.")]
    return unstated


def _inputs(b: Builder, nodes: list[Node], part: Part) -> Part:
    """A mixer with its input projections as nodes, or counted beside them."""
    if b.traits.mixer_inputs:
        return Part([*nodes, *part.nodes], part.unpriced)
    return part.count(mixer_inputs=sum(node.n * node.k for node in nodes))


def _output(b: Builder, width: int) -> list[Node]:
    return [b.gemm("mixer_out", b.hidden, width, "mixer_out"), reduction("mixer_out")]


# ---- Mamba -------------------------------------------------------------------------------------------------------


def mamba2_part(b: Builder, stated: str) -> Part:
    """A Mamba-2 mixer without its norm; `stated` is the state's format where the config has none."""
    config = b.config
    # A model of mixers alone has no other heads, and calls the width of theirs head_dim.
    count, width = (
        config.integer("mamba_heads"),
        config.integer("mamba_head_dim" if config.key("heads") else "head_dim"),
    )
    state, groups, conv = config.integer("mamba_state"), config.integer("mamba_groups"), config.integer("mamba_conv")
    inner = count * width
    _check_inner(config, inner)
    node = Node(
        "RecurrentUpdate",
        recurrent_kind="mamba2",
        n_heads=count,
        state_size=state,
        n_groups=groups,
        conv_kernel=conv,
        intermediate_size=inner,
        state_dtype=_state_dtype(b, ("mamba_ssm_cache_dtype",), stated),
    )
    projected = 2 * inner + 2 * groups * state + count
    convolved = inner + 2 * groups * state
    biases = convolved if config.flag("mamba_conv_bias", config.flag("use_conv_bias", True)) else 0
    part = Part([node, *_output(b, inner)]).count(
        convolutions=convolved * conv,
        biases=biases,
        decays=3 * count,
        norms=inner if config.flag("mamba_rms_norm", True) else 0,
    )
    return _inputs(b, [b.gemm("mixer_in", projected, b.hidden, "mixer_in")], part)


def _check_inner(config: Config, inner: int) -> None:
    """The inner width that other keys state must be that of the heads."""
    stated = config.optional("mamba_d_ssm")
    expand = config.optional("mamba_expand") or config.optional("expand")
    hidden = config.integer("hidden_size")
    if stated and stated != inner:
        config.fault("mamba_d_ssm", f"found {stated}; the heads give {inner}")
    if not stated and expand and config.family in ("granite-hybrid", "mamba2") and expand * hidden != inner:
        config.fault("mamba_expand", f"found {expand}, so a width of {expand * hidden}; the heads give {inner}")


def mamba2(b: Builder) -> Part:
    """A Mamba-2 layer; an fp32 state where the config states none (the engine's choice for Nemotron-H)."""
    return around_mixer(b, mamba2_part(b, "fp32"))


def mamba2_model_dtype(b: Builder) -> Part:
    """A Mamba-2 layer whose state follows the model's dtype where the config states none."""
    return around_mixer(b, mamba2_part(b, b.formats.base))


def attention_and_mamba2(b: Builder) -> Part:
    """Attention and a Mamba-2 mixer side by side on one input (Falcon-H1)."""
    return around_mixer(b, head_attention(b, heads(b)) + mamba2_part(b, b.formats.base))


def mamba1(b: Builder) -> Part:
    """A Mamba-1 layer (Jamba).

    The format knows no kind of its own for it: each inner channel is a head of width 1, which gives the state's true
    size, and a convolution wider by two states' worth in one group.
    """
    config = b.config
    inner = config.integer("mamba_expand") * b.hidden
    state, conv, rank = config.integer("mamba_state"), config.integer("mamba_conv"), config.integer("mamba_dt_rank")
    node = Node(
        "RecurrentUpdate",
        recurrent_kind="mamba2",
        n_heads=inner,
        state_size=state,
        n_groups=1,
        conv_kernel=conv,
        intermediate_size=inner,
        state_dtype=b.formats.base,
    )
    inputs = [
        b.gemm("mixer_in", 2 * inner, b.hidden, "mixer_in"),
        b.gemm("mixer_x_proj", rank + 2 * state, inner, "mixer_in"),
        b.gemm("mixer_dt_proj", inner, rank, "mixer_in"),
    ]
    part = Part([node, *_output(b, inner)]).count(
        convolutions=inner * conv,
        biases=inner + (inner if config.flag("mamba_conv_bias", True) else 0),
        decays=inner * state + inner,
        norms=rank + 2 * state,
    )
    return around_mixer(b, _inputs(b, inputs, part))


# ---- gated delta ---------------------------------------------------------------------------------------------------


def gated_delta(b: Builder) -> Part:
    """A gated-delta mixer (Qwen3-Next, Qwen3.5)."""
    config = b.config
    key_heads, value_heads = config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads")
    key_dim, value_dim = config.integer("linear_key_head_dim"), config.integer("linear_value_head_dim")
    conv = config.integer("linear_conv_kernel_dim")
    if key_dim != value_dim:
        message = f"found {value_dim} beside keys of {key_dim}; accepted: equal widths, the graph has one state size"
        config.fault("linear_value_head_dim", message)
    keys, values = key_heads * key_dim, value_heads * value_dim
    unstated = "fp32" if not b.traits.mixer_inputs else b.formats.base
    node = Node(
        "RecurrentUpdate",
        recurrent_kind="gdn",
        n_heads=value_heads,
        state_size=key_dim,
        conv_kernel=conv,
        intermediate_size=2 * keys + values,
        state_dtype=_state_dtype(b, ("mamba_ssm_dtype",), unstated),
    )
    inputs = [
        b.gemm("mixer_in", 2 * keys + 2 * values, b.hidden, "mixer_in"),
        b.gemm("mixer_gates", 2 * value_heads, b.hidden, "mixer_in"),
    ]
    part = Part([node, *_output(b, values)]).count(
        convolutions=(2 * keys + values) * conv, decays=2 * value_heads, norms=value_dim
    )
    return around_mixer(b, _inputs(b, inputs, part))


# ---- Kimi delta attention ------------------------------------------------------------------------------------------


def kimi_delta(b: Builder) -> Part:
    """A delta-attention mixer with all its projections (Kimi Linear, Kimi K3, GLM-5.3-Flash)."""
    linear = b.config.inside("linear_attn_config")
    count, width = linear.integer("num_heads"), linear.integer("head_dim")
    conv = linear.integer("short_conv_kernel_size")
    inner = count * width

    def projection(name: str, n: int, k: int) -> Node:
        return b.gemm(f"kda_{name}_proj", n, k, "kda")

    nodes = [projection(name, inner, b.hidden) for name in ("q", "k", "v")]
    nodes += [projection("f_a", width, b.hidden), projection("f_b", inner, width)]
    nodes.append(projection("b", count, b.hidden))
    if linear.flag("use_full_rank_gate"):
        nodes.append(projection("g", inner, b.hidden))
    else:
        nodes += [projection("g_a", width, b.hidden), projection("g_b", inner, width)]
    nodes += [
        Node(
            "RecurrentUpdate",
            recurrent_kind="kda",
            n_heads=count,
            state_size=width,
            conv_kernel=conv,
            state_dtype="fp32",
        ),
        projection("o", b.hidden, inner),
        reduction("mixer_out"),
    ]
    return around_mixer(b, Part(nodes).count(convolutions=3 * inner * conv, decays=count, biases=inner, norms=width))
