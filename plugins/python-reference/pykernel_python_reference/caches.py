"""The caches of a deployment and what a sequence keeps in them on one rank, in exact fractions of a byte.

Each attention of each kind of layer is a group of its own, unless the graph states its caches; recurrent mixers keep
whole pages of state. It starts from the documents and the oracle's layout and formats, and shares nothing with
pykernel's resolution or core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from pykernel.documents import Cache, LayerKind, Node

from .oracle import NEWEST, Oracle
from .oracle.exact import INT64_MAX, Exact, cdiv
from .oracle.formats import LATENT, PRE_HOPPER, WIDTHS, is_sm100
from .oracle.graphs import limits_of
from .oracle.laws import SHARDED_KINDS

STATE_WIDTHS = {"auto": Fraction(2), "float32": Fraction(4), "float16": Fraction(2), "bfloat16": Fraction(2)}
STATED = {"growing": "tokens", "ring": "ring", "fixed": "state"}
SCALE_GROUP = 128  # elements of an indexer's key to one scale of 4 bytes (DeepSeek-V3.2)


@dataclass(frozen=True)
class Group:
    """Equal layers that keep the same of a sequence.

    kind : `tokens` (an entry for every `ratio` tokens, of the last `window` where there is one), `ring` (a window
        recycled page by page), `state` (`pages` pages), `checkpoints` (a page for each block, and `pages` more).
    entry : bytes of one entry of one layer; of a state, one page.
    """

    kind: str
    layers: int
    entry: Fraction
    block: int = 1
    ratio: int = 1
    window: int = 0
    pages: int = 0
    sharded: bool = False
    moved: bool = True

    @property
    def page(self) -> Fraction:
        """One page over all layers, bytes."""
        return self.layers * self.entry * self.block / self.ratio


class Caches:
    """What one sequence keeps on one rank of the oracle's deployment, bytes."""

    def __init__(self, oracle: Oracle) -> None:
        engine = oracle.inputs.deployment.pools[oracle.inputs.pool].engine
        limits = limits_of(oracle.inputs, oracle.layout, NEWEST)
        self.dcp = oracle.layout.dcp
        self.longest = engine.max_model_len
        self.in_flight = limits.budget * (1 if engine.async_scheduling is False else 2)
        self.drafts = oracle.drafts
        self.block = _block(oracle)
        self.groups = (*_attention_groups(oracle, self.block), *_states(oracle, self.block))
        shares_pages = bool(oracle.inputs.model.caches)
        pages = [group.page for group in self.groups if shares_pages and group.kind in ("tokens", "ring")]
        self.common_page = max(pages, default=Fraction(0))

    def growing(self, tokens: int) -> int:
        """What grows with a sequence, at `tokens` tokens, in whole pages."""
        if tokens <= 0:
            return 0
        paged = sum((self._pages(group, tokens) for group in self.groups if group.kind == "tokens"), Fraction(0))
        kept = [
            int(group.entry * (cdiv(tokens, group.block) + group.pages) * group.layers)
            for group in self.groups
            if group.kind == "checkpoints"
        ]
        return whole(int(paged) + sum(kept))

    def _pages(self, group: Group, tokens: int) -> Fraction:
        held = cdiv(tokens, self.dcp) if group.sharded else tokens
        if group.window:
            held = min(held, group.window)
        return cdiv(held, group.block) * (self.common_page or group.page)

    def bounded(self, computed: int, in_flight: int) -> int:
        """What stays bounded: state, and rings of which only what `computed` and `in_flight` tokens need is taken."""
        in_flight = max(in_flight, 0)
        total = Fraction(0)
        for group in self.groups:
            if group.kind == "state":
                total += group.entry * group.pages * group.layers
            elif group.kind == "ring":
                spanned = group.window - 1 + in_flight
                if self.longest > 0:
                    spanned = min(spanned, self.longest)
                reached = cdiv(max(computed, 0) + in_flight, group.block)
                total += min(cdiv(spanned, group.block) + 1, reached) * (self.common_page or group.page)
        return whole(total)

    def moved(self, tokens: int) -> int:
        """What a handoff of a request moves to one rank: entries by the token, rings and stated state by the page."""
        if tokens <= 0:
            return 0
        total = Fraction(0)
        for group in self.groups:
            if not group.moved:
                continue
            if group.kind == "tokens":
                held = min(tokens, group.window) if group.window else tokens
                total += group.layers * group.entry * held / group.ratio
            elif group.kind == "ring":
                total += min(cdiv(tokens, group.block), cdiv(group.window, group.block) + 1) * group.page
            else:
                total += group.entry * group.pages * group.layers
        return whole(total)

    @property
    def block_ranks(self) -> int:
        """Ranks over which a block of a sequence is spread."""
        return self.dcp if any(group.sharded for group in self.groups) else 1


def whole(value: Exact) -> int:
    """Whole bytes: truncated, at most the largest 64-bit integer."""
    return min(int(value), INT64_MAX)


def _layers(oracle: Oracle) -> Iterator[tuple[LayerKind, int]]:
    """The kinds that hold caches and their counts: those of the stack, then the draft's where it drafts."""
    kinds = {kind.id: kind for kind in oracle.inputs.model.layer_kinds}
    for plan in (*oracle.stack, *oracle.draft):
        yield kinds[plan.name], plan.count


# ---- attention -------------------------------------------------------------------------------------------------


def _attention_groups(oracle: Oracle, block: int) -> Iterable[Group]:
    model = oracle.inputs.model
    if model.caches:
        held = ("target", "draft") if oracle.drafts_itself else ("target",)
        return [_stated(oracle, cache, block) for cache in model.caches if cache.owner in held]
    kinds = {kind.primary.kind for kind in oracle.stack if kind.primary}
    sharded = oracle.layout.dcp > 1 and kinds <= set(SHARDED_KINDS)
    return [
        replace(group, block=block, sharded=sharded)
        for kind, count in _layers(oracle)
        for group in _derived(oracle, kind, count)
    ]


def _derived(oracle: Oracle, kind: LayerKind, count: int) -> Iterator[Group]:
    attentions = [node for node in kind.nodes if node.op == "Attention"]
    scored = any(node.role for node in attentions)
    for node in attentions:
        ratio = max(node.compress_ratio, 1)
        if node.role:
            yield Group("tokens", count, _scorer_entry(oracle, node), ratio=ratio)
        elif node.kind == "sparse_mla":
            yield Group("tokens", count, _entry(oracle, node), ratio=ratio)
            if ratio > 1 and node.window:
                yield Group("tokens", count, _entry(oracle, node), window=node.window)
        else:
            # Beside a scorer the window is the size of a selection, and every token stays.
            windowed = node.kind in ("swa", "mla") and not scored
            yield Group("tokens", count, _entry(oracle, node), window=node.window if windowed else 0)


def _entry(oracle: Oracle, node: Node) -> Fraction:
    cache = oracle.part.cache
    if node.kind in LATENT:
        return Fraction(cache.latent_cell) if cache.latent_cell else node.d_h * cache.element_bytes
    return 2 * max(node.n_kv // oracle.layout.tp, 1) * node.d_h * cache.element_bytes


def _scorer_entry(oracle: Oracle, node: Node) -> Fraction:
    """Keys alone; in the DeepSeek-V3.2 family a byte an element with its scales, whatever the cache stores."""
    if any(kind.primary and kind.primary.kind == "sparse_mla" and kind.primary.d_h == 576 for kind in oracle.stack):
        return Fraction(node.n_kv * (node.d_h + 4 * cdiv(node.d_h, SCALE_GROUP)))
    return max(node.n_kv // oracle.layout.tp, 1) * node.d_h * oracle.part.cache.element_bytes


def _stated(oracle: Oracle, cache: Cache, block: int) -> Group:
    share = Fraction(1)
    if "tp" in cache.sharded_by():
        tp = oracle.layout.tp
        share = Fraction(max(cache.heads // tp, 1), cache.heads) if cache.heads else Fraction(1, tp)
    fixed = cache.class_ == "fixed"
    return Group(
        STATED[cache.class_],
        cache.layers,
        Fraction(cache.page_bytes if fixed else cache.entry_bytes) * share,
        block=cache.block or block,
        ratio=1 if fixed else cache.tokens_per_entry,
        window=cache.window if cache.class_ == "ring" else 0,
        pages=1 if fixed else 0,
        sharded=oracle.layout.dcp > 1 and cache.class_ == "growing" and "dcp" in cache.sharded_by(),
        moved=cache.owner == "target",
    )


# ---- recurrent state -------------------------------------------------------------------------------------------


def _mode(oracle: Oracle) -> str:
    """How recurrent state is kept: with prefix caching the engine aligns it where `none` or nothing is stated."""
    engine = oracle.inputs.deployment.pools[oracle.inputs.pool].engine
    stated = engine.mamba_cache_mode
    aligns = stated in ("", "none") and engine.enable_prefix_caching is not False and _mixers(oracle)
    return "align" if aligns else stated or "none"


def _mixers(oracle: Oracle) -> list[Node]:
    """The recurrent mixers of the stack."""
    names = {plan.name for plan in oracle.stack}
    kinds = [kind for kind in oracle.inputs.model.layer_kinds if kind.id in names]
    return [node for kind in kinds for node in kind.nodes if node.op == "RecurrentUpdate"]


def _states(oracle: Oracle, block: int) -> Iterator[Group]:
    mode, drafts = _mode(oracle), oracle.drafts
    pages = {"none": 1 + drafts, "align": 2 + drafts, "all": drafts}[mode]
    for kind, count in _layers(oracle):
        for node in kind.nodes:
            if node.op == "RecurrentUpdate":
                kept = "checkpoints" if mode == "all" else "state"
                yield Group(kept, count, _state_page(oracle, node), block=block, pages=pages, moved=False)


def _state_page(oracle: Oracle, node: Node) -> Fraction:
    """The rows of a convolution (one more for each draft) and the state, of one layer on one rank."""
    engine = oracle.inputs.deployment.pools[oracle.inputs.pool].engine
    tp, size = oracle.layout.tp, node.state_size
    heads = max(node.n_heads // tp, 1)
    if node.recurrent_kind == "mamba2":
        groups = tp if node.n_groups % tp else node.n_groups
        width = Fraction(node.intermediate_size + 2 * groups * size, tp)
        elements = Fraction(heads * node.intermediate_size * size, node.n_heads)
    else:
        width = Fraction(3 * heads * size) if node.recurrent_kind == "kda" else Fraction(node.intermediate_size, tp)
        elements = Fraction(heads * size * size)
    convolution = STATE_WIDTHS.get(engine.mamba_cache_dtype, Fraction(2))
    own = engine.mamba_ssm_cache_dtype
    state = WIDTHS[node.state_dtype] if node.state_dtype else convolution
    if own in STATE_WIDTHS and own != "auto":
        state = STATE_WIDTHS[own]
    rows = node.conv_kernel - 1 + oracle.drafts if node.conv_kernel else 0
    return rows * width * convolution + elements * state


# ---- the block -------------------------------------------------------------------------------------------------


def _block(oracle: Oracle) -> int:
    """Tokens of a page: as stated, else what the attention backend asks for, raised until it holds a page of state."""
    stated = oracle.inputs.deployment.pools[oracle.inputs.pool].engine.block_size
    if stated:
        return stated
    block = _backend_block(oracle)
    shapes, mixers = _primaries(oracle), _mixers(oracle)
    if not mixers or not shapes or _mode(oracle) == "all":
        return block
    page = max(_state_page(oracle, node) for node in mixers)
    step = max(block, 128) if any(node.kind in LATENT for node in shapes) else block
    token = max(_entry(oracle, node) for node in shapes)
    return max(block, step * -int(-page // (step * token)))


def _primaries(oracle: Oracle) -> list[Node]:
    names = {plan.name for plan in oracle.stack}
    kinds = [kind for kind in oracle.inputs.model.layer_kinds if kind.id in names]
    own = [[node for node in kind.nodes if node.op == "Attention" and not node.role] for kind in kinds]
    return [nodes[0] for nodes in own if nodes]


def _backend_block(oracle: Oracle) -> int:
    shapes, chip = _primaries(oracle), oracle.inputs.chip
    sparse = [node for node in shapes if node.kind == "sparse_mla"]
    dsa = any(node.d_h == 576 for node in sparse)
    if not dsa and any(node.compress_ratio > 1 for node in shapes):
        return 256
    if sparse:
        return 64
    if any(node.kind == "mla" for node in shapes):
        if is_sm100(chip):
            return 32
        if chip.name.lower() not in PRE_HOPPER and oracle.part.cache.element_bytes < 2:
            return 64
    return 16
