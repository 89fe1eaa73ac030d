"""The caches of a deployment: what each group of layers keeps of a sequence on one rank, and in which pages.

A graph may state its caches. Where it does not, each attention of each layer kind is a group of its own, so that
windows, indexers, compressed caches and hybrids come out as the engine allocates them; recurrent mixers keep state
(vllm/v1/kv_cache_interface.py and vllm/model_executor/layers/mamba/mamba_utils.py at v0.31.0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pykernel.documents import Cache, ModelGraph, Node
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import LATENT_KINDS, ModelFacts, StackKind
from pykernel.resolve.precision import PACKED_CELL_BYTES, Precision

SHARDED_KINDS = frozenset({"gqa", "mla", "sparse_mla"})
"""Attention kinds whose cache decode-context ranks divide; one layer of another kind leaves a whole model undivided."""

_INDEXER_SCALE_GROUP = 128  # elements of an indexer's key to one fp32 scale, in the DeepSeek-V3.2 family
_ALIGNMENT, _LATENT_ALIGNMENT = 16, 128
"""Least tokens by which the engine grows the page of a hybrid, and of one with latent attention."""


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """What equal layers keep of a sequence, on one rank.

    kind : `tokens` (entries of every token, or of the last `window`), `ring` (a recycled window), `state` (`pages`
        pages, however long the sequence), `checkpoints` (a page of state for every block, and `pages` more).
    entry_bytes : one entry of one layer; of a state, one page.
    sharded : whether decode-context ranks divide the tokens.
    handed_over : whether it moves from a prefill to a decode pool.
    """

    kind: str
    layers: int
    entry_bytes: float
    block: int = 1
    tokens_per_entry: int = 1
    window: int = 0
    pages: int = 0
    sharded: bool = False
    handed_over: bool = True

    @property
    def page_bytes(self) -> float:
        """One page over all its layers."""
        return self.layers * self.entry_bytes * self.block / self.tokens_per_entry


@dataclass(frozen=True, slots=True)
class Caches:
    """The groups of a deployment; `pool_block_bytes` is the page they share, 0 where each has its own."""

    groups: tuple[CacheGroup, ...]
    pool_block_bytes: float = 0.0


def resolve_caches(
    model: ModelGraph,
    facts: ModelFacts,
    layout: Layout,
    precision: Precision,
    block: int,
    draft_tokens: int,
    recurrent_mode: str,
) -> Caches:
    """The caches that a pool keeps; those of the speculator where it drafts."""
    kinds = facts.priced_kinds
    states = _states(kinds, layout, precision, block, draft_tokens, recurrent_mode)
    if model.caches:
        stated = [_stated(cache, layout, block) for cache in model.caches if cache.owner == "target" or facts.drafts]
        pages = [group.page_bytes for group in stated if group.kind != "state"]
        return Caches((*stated, *states), max(pages, default=0.0))
    sharded = layout.dcp > 1 and facts.attention_kinds <= SHARDED_KINDS
    derived = [
        replace(group, block=block, sharded=sharded)
        for kind in kinds
        for node in kind.nodes("Attention")
        for group in _derived(kind, node, layout, precision, facts.dsa)
    ]
    return Caches((*derived, *states))


# ---- attention -------------------------------------------------------------------------------------------------


def entry_bytes(node: Node, tp: int, precision: Precision) -> float:
    """Bytes that an attention keeps of one token in one layer on one rank."""
    if node.kind in LATENT_KINDS:
        return PACKED_CELL_BYTES.get(precision.cache_format, node.d_h * precision.cache_element_bytes)
    return 2 * _own_heads(node.n_kv, tp) * node.d_h * precision.cache_element_bytes


def _own_heads(heads: int, tp: int) -> int:
    return max(heads // tp, 1)  # a head is never split


def _scorer_entry_bytes(node: Node, tp: int, precision: Precision, dsa: bool) -> float:
    """Keys alone; in the DeepSeek-V3.2 family one byte an element and its scales, whatever the cache's format."""
    if dsa:
        return node.n_kv * (node.d_h + 4 * -(-node.d_h // _INDEXER_SCALE_GROUP))
    return _own_heads(node.n_kv, tp) * node.d_h * precision.cache_element_bytes


def _derived(kind: StackKind, node: Node, layout: Layout, precision: Precision, dsa: bool) -> list[CacheGroup]:
    """The groups of one attention; a compressed cache keeps a window of whole tokens beside it."""
    ratio = max(node.compress_ratio, 1)
    if node.role:
        scorer = _scorer_entry_bytes(node, layout.tp, precision, dsa)
        return [CacheGroup("tokens", kind.count, scorer, tokens_per_entry=ratio)]
    entry = entry_bytes(node, layout.tp, precision)
    if node.kind == "sparse_mla":
        compressed = [CacheGroup("tokens", kind.count, entry, tokens_per_entry=ratio)]
        beside = [CacheGroup("tokens", kind.count, entry, window=node.window)]
        return compressed + beside if ratio > 1 and node.window else compressed
    # Beside a scorer the window is how much is selected, and every token stays cached.
    windowed = node.kind in ("swa", "mla") and not kind.scorers
    return [CacheGroup("tokens", kind.count, entry, window=node.window if windowed else 0)]


# ---- recurrent state -------------------------------------------------------------------------------------------


def recurrent_page_bytes(node: Node, tp: int, precision: Precision, draft_tokens: int) -> float:
    """One page of a recurrent layer on one rank: the rows of its convolution, one more for a draft, and its state."""
    heads, size = _own_heads(node.n_heads, tp), node.state_size
    if node.recurrent_kind == "mamba2":
        groups = tp if node.n_groups % tp else node.n_groups  # a group that tp cannot divide is kept by every rank
        width = (node.intermediate_size + 2 * groups * size) / tp
        state = heads * (node.intermediate_size / node.n_heads) * size
    else:
        width = 3 * heads * size if node.recurrent_kind == "kda" else node.intermediate_size / tp
        state = float(heads * size * size)
    rows = node.conv_kernel - 1 + draft_tokens if node.conv_kernel else 0
    return rows * width * precision.convolution_bytes + state * precision.state_bytes(node.state_dtype)


def _states(
    kinds: list[StackKind], layout: Layout, precision: Precision, block: int, draft_tokens: int, mode: str
) -> list[CacheGroup]:
    held = {"none": 1 + draft_tokens, "align": 2 + draft_tokens, "all": draft_tokens}[mode]
    return [
        CacheGroup(
            "checkpoints" if mode == "all" else "state",
            kind.count,
            recurrent_page_bytes(node, layout.tp, precision, draft_tokens),
            block=block,
            pages=held,
            handed_over=False,
        )
        for kind in kinds
        for node in kind.nodes("RecurrentUpdate")
    ]


def aligned_block(block: int, facts: ModelFacts, layout: Layout, precision: Precision, draft_tokens: int) -> int:
    """The page of a hybrid: the engine raises `block` until a page of attention holds one of recurrent state.

    vllm/platforms/interface.py at v0.31.0. `block` is what the attention backend asks for.
    """
    mixers = [node for kind in facts.kinds for node in kind.nodes("RecurrentUpdate")]
    if not mixers or not facts.attentions:
        return block
    page = max(recurrent_page_bytes(node, layout.tp, precision, draft_tokens) for node in mixers)
    step = max(block, _LATENT_ALIGNMENT if facts.latent else _ALIGNMENT)
    token = max(entry_bytes(node, layout.tp, precision) for node in facts.attentions)
    return max(block, step * int(-(-page // (step * token))))


# ---- stated caches ---------------------------------------------------------------------------------------------

_STATED_KINDS = {"growing": "tokens", "ring": "ring", "fixed": "state"}


def _stated(cache: Cache, layout: Layout, block: int) -> CacheGroup:
    """A cache that the graph states, divided as it says; a ring is whole on every decode-context rank."""
    share = _tensor_share(cache, layout.tp)
    fixed = cache.class_ == "fixed"
    return CacheGroup(
        _STATED_KINDS[cache.class_],
        cache.layers,
        (cache.page_bytes if fixed else cache.entry_bytes) * share,
        block=cache.block or block,
        tokens_per_entry=1 if fixed else cache.tokens_per_entry,
        window=cache.window if cache.class_ == "ring" else 0,
        pages=1 if fixed else 0,
        sharded=layout.dcp > 1 and cache.class_ == "growing" and "dcp" in cache.sharded_by(),
        handed_over=cache.owner == "target",
    )


def _tensor_share(cache: Cache, tp: int) -> float:
    if "tp" not in cache.sharded_by():
        return 1.0
    return _own_heads(cache.heads, tp) / cache.heads if cache.heads else 1 / tp
