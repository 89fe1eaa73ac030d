"""The blocks of DeciLM (Llama-Nemotron), whose layers differ each in their own widths, listed one by one."""

from __future__ import annotations

from typing import Any

from pykernel.derive.blocks import (
    Builder,
    Heads,
    Part,
    around_mixer,
    around_mlp,
    head_attention,
    mlp_nodes,
    mlp_reduction,
)
from pykernel.derive.config import Config
from pykernel.documents.nodes import shown


def _half(b: Builder, name: str) -> tuple[Config, str]:
    """One half of the layer's own entry, and its path."""
    listed = b.config.sequence("block_configs")
    if listed is None:
        b.config.missing("block_configs")
    path = f"block_configs[{b.layer}]"
    entry: Any = listed[b.layer] if b.layer < len(listed) else None
    half = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(half, dict):
        b.config.fault(f"{path}.{name}", f"found {shown(half)}; accepted: an object for each of {len(listed)} layers")
    inner = Config(half, b.config.file)
    inner.place, inner.family = f"{b.config.place}.{path}.{name}", b.config.family
    inner.unsupported("replace_with_linear", "a linear layer in its place is not described")
    inner.unsupported("sparsify", "sparse weights are not described")
    return inner, path


def attention(b: Builder) -> Part:
    """Grouped-query attention with the layer's own number of queries a group, or none."""
    half, _ = _half(b, "attention")
    if half.flag("no_op"):
        return Part()
    heads, group, width = b.config.integer("heads"), half.integer("n_heads_in_group"), b.config.head_dim()
    if heads % group:
        half.fault("n_heads_in_group", f"found {group}; accepted: a divisor of {heads} heads")
    return around_mixer(
        b, head_attention(b, Heads(heads, heads // group, width, width), half.optional("window_length"))
    )


def mlp(b: Builder) -> Part:
    """A dense MLP of the layer's own width, a multiple of the hidden one rounded up to 256, or none."""
    half, _ = _half(b, "ffn")
    if half.flag("no_op"):
        return Part()
    factor = half.values.get("ffn_mult")
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 64:
        half.fault("ffn_mult", f"found {shown(factor)}; accepted: a number above 0, at most 64")
    width = int(2 * factor * b.hidden / 3)
    return around_mlp(b, mlp_nodes(b, width + -width % 256) + Part([mlp_reduction()]))
