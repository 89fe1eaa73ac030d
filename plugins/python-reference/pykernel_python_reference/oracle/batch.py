"""One step's requests and the walk over them: which decode, which prefill, how many pairs each prefill scores.

The context-parallel split of a prefill belongs here as well, because it decides how many tokens a rank runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from .exact import cdiv


class Scheduled(Protocol):
    """What the laws read of a request: tokens it schedules, tokens it already has."""

    @property
    def scheduled(self) -> int: ...

    @property
    def computed(self) -> int: ...


@dataclass(frozen=True)
class Request:
    """A request of one step, in tokens; the prompt's length and its cached part are carried but read by no law."""

    scheduled: int
    computed: int = 0
    prompt_len: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class Batch:
    """The requests of one step with its settings, counts in tokens, `sm_budget` in SMs (0 for all)."""

    requests: tuple[Scheduled, ...] = ()
    decode_threshold: int = 1
    sm_budget: int = 0
    pad_tokens: int = 0


@dataclass
class Walk:
    """What one walk over a batch leaves behind; `pairs4` is four times the query-key pairs of the prefills."""

    batch_tokens: int = 0
    tokens: int = 0
    any_context: bool = False
    prefills: list[tuple[int, int]] = field(default_factory=list)
    prefill_tokens: int = 0
    pairs4: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list)
    decodes: list[int] = field(default_factory=list)
    decode_rows: int = 0
    contexts: list[int] = field(default_factory=list)

    @property
    def context_sum(self) -> int:
        """The contexts of the decodes together."""
        return sum(self.decodes)

    @property
    def sampled_rows(self) -> int:
        """Rows that reach the head: every row of a decode, one of a prefill."""
        return self.decode_rows + len(self.prefills)


def walk(requests: Iterable[Scheduled], decode_threshold: int, pcp: int, dcp: int) -> Walk:
    """Classify the requests in order."""
    found = Walk()
    withheld = 0
    for request in requests:
        scheduled, computed = request.scheduled, request.computed
        found.batch_tokens += scheduled
        context = computed + scheduled
        if context <= 0:
            continue
        found.contexts.append(context)
        found.any_context = found.any_context or computed > 0
        if scheduled > decode_threshold:
            local, pairs4, runs = split_prefill(scheduled, computed, pcp, dcp)
            found.prefills.append((scheduled, computed))
            found.prefill_tokens += local
            found.pairs4 += pairs4
            found.runs += runs
            withheld += scheduled - local
        else:
            found.decodes.append(context)
            found.decode_rows += scheduled
    found.tokens = found.batch_tokens - withheld
    return found


def split_prefill(scheduled: int, computed: int, pcp: int, dcp: int) -> tuple[int, int, list[tuple[int, int]]]:
    """Tokens, four times the pairs, and windowed runs of the busiest prefill-context rank."""
    whole = 4 * scheduled * computed + 2 * scheduled * scheduled
    if pcp <= 1 or scheduled <= 0:
        return scheduled, whole, [(scheduled, computed)]
    owned = zigzag(scheduled, pcp)
    held = [sum(high - low for low, high in chunks) for chunks in owned]
    local = max(held)
    if dcp > 1 and (2 * pcp - 1) * cdiv(scheduled, 2 * pcp) >= scheduled:
        local = scheduled
    if local == scheduled:
        return scheduled, whole, [(scheduled, computed)]
    pairs4 = max(sum(_chunk_pairs4(low, high, computed) for low, high in chunks) for chunks in owned)
    busiest = owned[held.index(local)]
    return local, pairs4, [(high - low, computed + low) for low, high in busiest if high > low]


def zigzag(scheduled: int, pcp: int) -> list[list[tuple[int, int]]]:
    """The two chunks of every rank: of 2 x pcp equal pieces, rank r takes r and the r-th from the end."""
    size = cdiv(scheduled, 2 * pcp)
    lows = [min(index * size, scheduled) for index in range(2 * pcp)]
    chunks = [(low, min(low + size, scheduled)) for low in lows]
    return [[chunks[rank], chunks[2 * pcp - 1 - rank]] for rank in range(pcp)]


def _chunk_pairs4(low: int, high: int, computed: int) -> int:
    count = high - low
    return 4 * count * (computed + 1) + 2 * (low + high - 1) * count - 2 * count if count > 0 else 0


def windowed_pairs4(runs: Iterable[tuple[int, int]], window: int) -> int:
    """Four times the pairs of prefill runs (new tokens, prefix) when a query sees at most `window` keys."""
    if window <= 0:
        return 0
    total = 0
    for count, prefix in runs:
        inside = max(min(window - prefix, count), 0)
        total += 4 * inside * (prefix + 1) + 2 * inside * (inside - 1) - 2 * inside + 4 * (count - inside) * window
    return total


def is_uniform(requests: Iterable[Scheduled], width: int) -> bool:
    """Whether every request schedules exactly the uniform decode width; so does the empty list."""
    return all(request.scheduled == width for request in requests)
