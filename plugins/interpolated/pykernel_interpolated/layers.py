"""The kernels of one kind of layer with the curve of each, and what they spend on a pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykernel.plan import ReadPlan
from pykernel_interpolated.curves import Curve, Surface
from pykernel_interpolated.work import Work


@dataclass(slots=True)
class Spent:
    """Seconds by resource; `link_sm` are collectives that run on SMs, which withheld SMs do not slow down."""

    sm: float = 0.0
    hbm: float = 0.0
    link_sm: float = 0.0
    nvlink: float = 0.0
    nic: float = 0.0

    def kernel(self, seconds: float, reading: float) -> None:
        """A kernel of which so many seconds are its bytes at the full rate of the memory."""
        reading = min(reading, seconds)
        self.hbm += reading
        self.sm += seconds - reading


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix product; `reading` is the time of its weights at the full rate."""

    curve: Curve
    reading: float

    def spend(self, rows: float, spent: Spent) -> None:
        spent.kernel(self.curve.at(rows), self.reading)


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention; `reading` is the time of one cached token, `ranks` those that share a decode's cache.

    by_rows : its prefill runs over query rows and the tokens that each selects.
    """

    decode: Surface
    prefill: Surface
    by_rows: bool
    read: ReadPlan
    window: int
    reading: float
    decode_ranks: int
    prefill_ranks: int

    def spend(self, work: Work, spent: Spent) -> None:
        if work.decodes:
            entries = max(work.entries(self.read) / self.decode_ranks, 1.0)
            spent.kernel(self.decode.at(work.decodes, entries / work.decodes), entries * self.reading)
        if work.prefills:
            pairs = work.pairs(self.window) / self.prefill_ranks
            groups = work.prefill_rows if self.by_rows else work.prefills
            spent.kernel(self.prefill.at(groups, pairs / groups), 0.0)


@dataclass(frozen=True, slots=True)
class Scorer:
    """An indexer: query rows that each score the cached tokens, `ratio` of them an entry."""

    surface: Surface
    ratio: int

    def spend(self, work: Work, spent: Spent) -> None:
        for rows, scores in ((work.decodes, int(work.contexts.sum())), (work.prefill_rows, work.pairs())):
            if rows:
                spent.kernel(self.surface.at(rows, max(scores / self.ratio, 1.0) / rows), 0.0)


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: `funnel` ranks' tokens meet here, `reading` is the time of one expert, `local` are held."""

    curve: Curve
    funnel: int
    visits: float
    """Experts of this rank that a token visits, on average."""
    local: int
    reading: float

    def spend(self, rows: int, spent: Spent) -> None:
        tokens = rows * self.funnel
        if tokens:
            spent.kernel(self.curve.at(tokens), min(self.local, tokens * self.visits) * self.reading)


@dataclass(frozen=True, slots=True)
class Mixer:
    """A recurrent mixer: bytes of one request's state, and the time of one byte."""

    decode: Surface
    prefill: Surface
    state: float
    reading: float

    def spend(self, work: Work, spent: Spent) -> None:
        parts = ((self.decode, work.decodes, work.decode_rows), (self.prefill, work.prefills, work.prefill_rows))
        for surface, requests, rows in parts:
            if rows:
                state = requests * self.state
                spent.kernel(surface.at(rows / requests, state), state * self.reading)


@dataclass(frozen=True, slots=True)
class Link:
    """A collective: bytes that cross one rank's link for each of its `units`.

    resource : `link_sm`, `nvlink` or `nic`.
    outside : seconds that the network between nodes takes at least, for each of these bytes.
    """

    curve: Curve
    units: str
    bytes_per_unit: float
    resource: str
    outside: float

    def spend(self, units: float, spent: Spent) -> None:
        moved = units * self.bytes_per_unit
        if moved > 0:
            seconds = max(self.curve.at(moved), moved * self.outside)
            setattr(spent, self.resource, getattr(spent, self.resource) + seconds)


@dataclass(slots=True)
class Layer:
    """One kind of layer and how often it runs; `elementwise` is the time of the norms of one row."""

    count: int
    elementwise: float = 0.0
    matrices: list[Matrix] = field(default_factory=list)
    attention: Attention | None = None
    scorers: list[Scorer] = field(default_factory=list)
    experts: list[Experts] = field(default_factory=list)
    mixer: Mixer | None = None
    links: list[Link] = field(default_factory=list)

    def spend(self, work: Work, rows: int, prefill_ranks: int) -> Spent:
        """One layer of a pass whose dense kernels run over `rows` rows."""
        spent = Spent(hbm=rows * self.elementwise)
        for matrix in self.matrices:
            matrix.spend(rows, spent)
        if self.attention:
            self.attention.spend(work, spent)
        for scorer in self.scorers:
            scorer.spend(work, spent)
        for experts in self.experts:
            experts.spend(work.rows, spent)
        if self.mixer:
            self.mixer.spend(work, spent)
        units = {
            "tokens": rows,
            "decode_rows": work.decode_rows,
            "context_rows": work.rows if work.decodes or work.done.any() else 0,
            "prefill_rows": work.prefill_rows * prefill_ranks,
            "context_chunks": int(work.done.sum()),
        }
        for link in self.links:
            link.spend(units[link.units], spent)
        return spent
