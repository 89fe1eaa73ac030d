"""The single laws: efficiency, expert coverage, what a decode reads, how context is sharded, a collective's time.

Each is a pure function of numbers, so that a test can hold it to a value computed by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from .coefficients import Triple
from .exact import Exact, cdiv, power
from .plan import AttentionShape, GemmShape
from .settings import Settings

SHARDED_KINDS = ("gqa", "mla", "sparse_mla")


@dataclass(frozen=True)
class Ramp:
    """A part's matmul efficiency: the asymptote, and the half points in tokens and elements (0 where absent)."""

    eps_max: Fraction
    m_half: Fraction
    n_half: Fraction = Fraction(0)
    k_half: Fraction = Fraction(0)

    def at(self, tokens: Exact) -> Fraction:
        """The efficiency at that many tokens."""
        if tokens <= 0 or self.eps_max <= 0:
            return Fraction(0)
        return self.eps_max if self.m_half <= 0 else self.eps_max * tokens / (tokens + self.m_half)

    def at_shape(self, tokens: Exact, shape: GemmShape, tp: int) -> Fraction:
        """The efficiency of one launch, its divided width being what a rank holds."""
        widths = {"n": Fraction(shape.n), "k": Fraction(shape.k)}
        widths[shape.split] /= tp
        efficiency = self.at(tokens)
        for width, half in ((widths["k"], self.k_half), (widths["n"], self.n_half)):
            if half > 0 and width > 0:
                efficiency *= width / (width + half)
        return efficiency


def touched_experts(tokens: int, experts: int, top_k: int, local: int) -> Exact:
    """How many of a rank's experts that many tokens wake, as an expectation."""
    if local <= 0 or tokens <= 0:
        return 0
    if experts <= 0 or top_k <= 0 or top_k >= experts:
        return local
    return local * (1 - power(Fraction(experts - top_k, experts), tokens))


def half_up(value: Exact) -> int:
    """Rounded to the nearest whole, halves up."""
    return math.floor(value + Fraction(1, 2))


def shard(tokens: Exact, ranks: int, interleave: int) -> int:
    """Tokens on the fullest decode-context rank, when the ranks take turns of `interleave` tokens."""
    whole = half_up(tokens)
    turn = max(interleave, 1)
    base = whole // turn // ranks * turn
    return base + min(whole - base * ranks, turn) if whole > 0 else 0


def decode_read(context: int, shape: AttentionShape, settings: Settings) -> Exact:
    """Cache entries that one request's decode reads in one layer of that attention."""
    window, ratio = shape.window, shape.compress_ratio
    if shape.kind == "sparse_mla":
        if settings.sparse_reads_union:
            selected = Fraction(context, max(ratio, 1))
            if shape.index_topk > 0:
                selected = min(selected, Fraction(shape.index_topk))
            return min(Fraction(context), selected + (min(context, window) if window > 0 else 0))
        bound = shape.index_topk if shape.index_topk > 0 else window
        if bound <= 0 or context <= bound:
            return context
        return bound + (Fraction(context - bound, ratio) if ratio > 0 else 0)
    if settings.swa_reads_window and shape.kind in ("swa", "mla") and window > 0:
        return min(context, window)
    return context


def context_runs(prefills: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Contexts that are gathered together: prefills by ascending length, a fresh one first among equals; it ends a run.

    The published rule keeps the order of the batch among equals; see docs/decisions.md.
    """
    total = 0
    for _, computed in sorted(prefills):
        if computed > 0:
            total += computed
            continue
        if total > 0:
            yield total
        total = 0
    if total > 0:
        yield total


def context_chunk(max_model_len: int, sequences: int, block: int, dcp: int, interleave: int) -> int:
    """Tokens of a chunk in which latent context is gathered."""
    most = 65536
    chunk = min(max(8 * max_model_len, 4 * sequences * block), most) if max_model_len > 0 else most
    align = max(block, 1)
    if dcp > 1:
        align = math.lcm(align, dcp * max(interleave, 1))
    return cdiv(max(chunk, align), align) * align


def collective_seconds(payload: Exact, triple: Triple) -> Exact | float:
    """One launch of a collective of so many bytes."""
    if payload <= 0:
        return triple.floor
    if triple.peak_rate <= 0:
        return math.inf
    most = payload / triple.peak_rate
    if triple.transition_rate <= 0:
        return max(triple.floor, most)
    return max(triple.floor + payload / triple.transition_rate, most)
