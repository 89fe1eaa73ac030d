"""Which coefficient applies, and in what unit the laws use it: floors in whole nanoseconds, rates per second."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from pykernel.documents import CoefficientSet, Inputs, Scope
from pykernel.errors import RefusedError

from .exact import GIGA, exact
from .layout import Layout

# The widths that the sweeps tried; beyond them the widest measured width stands in, between them nothing does.
WIDEST_SWEPT = 16

ATTENTION_OVERRIDES = ("swa", "mla", "sparse_mla")


@dataclass(frozen=True)
class Triple:
    """A collective on one width: floor in seconds, rates in bytes a second."""

    floor: Fraction
    transition_rate: Fraction
    peak_rate: Fraction


@dataclass(frozen=True)
class Coefficients:
    """The entries that apply to a deployment, by name, as the files write them."""

    values: dict[str, float]
    chip: str

    def has(self, name: str) -> bool:
        return name in self.values

    def required(self, name: str) -> Fraction:
        """A dimensionless value. Raises RefusedError where no entry applies."""
        if name not in self.values:
            raise RefusedError(f"no coefficient {name} applies", name)
        return exact(self.values[name])

    def optional(self, name: str) -> Fraction:
        """A dimensionless value, 0 where no entry applies."""
        return exact(self.values.get(name, 0))

    def whole_nanoseconds(self, name: str) -> int:
        """Microseconds as whole nanoseconds, truncated after a multiplication in doubles."""
        return int(float(self.values.get(name, 0)) * 1000.0)

    def floor(self, name: str) -> Fraction:
        """A floor in seconds, 0 where no entry applies."""
        return Fraction(self.whole_nanoseconds(name), GIGA)

    def rate(self, name: str) -> Fraction:
        """A rate per microsecond as one per second, 0 where no entry applies."""
        return self.optional(name) * 10**6

    def decode_pair(self, kind: str) -> tuple[Fraction, Fraction]:
        """Floor (seconds) and rate (bytes a second) of a decode of that attention kind; a rate of 0 is no rate."""
        floor, rate = self.floor("attention_decode_floor"), self.rate("attention_decode_rate")
        own_rate = self.rate(f"attention_decode_rate_{kind}") if kind in ATTENTION_OVERRIDES else Fraction(0)
        if own_rate <= 0:
            return floor, rate
        own_floor = self.floor(f"attention_decode_floor_{kind}")
        return (own_floor if own_floor > 0 else floor), own_rate

    def imbalance(self) -> Fraction:
        """What uneven routing multiplies the experts' arithmetic by."""
        value = self.optional("moe_routing_imbalance_median")
        return value if value > 0 else Fraction(1)

    def measured_widths(self, operation: str) -> list[int]:
        """The widths that all three figures of an operation exist for on this chip, ascending."""
        pattern = re.compile(rf"collective_floor_{operation}_fp16_([0-9]+)rank_{re.escape(self._part())}")
        widths = {int(match[1]) for match in map(pattern.fullmatch, self.values) if match}
        return sorted(
            width for width in widths if width >= 1 and all(self.has(name) for name in self._names(operation, width))
        )

    def _part(self) -> str:
        """The chip as names of collectives end in it, whatever its own letter case."""
        wanted = self.chip.replace("-", "_")
        written = {name.rpartition("rank_")[2] for name in self.values if name.startswith("collective_")}
        alike = sorted(one for one in written if one.lower() == wanted.lower())
        return wanted if wanted in written or not alike else alike[0]

    def _names(self, operation: str, width: int) -> tuple[str, str, str]:
        tail = f"{operation}_fp16_{width}rank_{self._part()}"
        return f"collective_floor_{tail}", f"collective_transition_rate_{tail}", f"collective_peak_rate_{tail}"

    def triple(self, operation: str, width: int) -> Triple:
        """The figures for a group of that width. Raises RefusedError where none may stand for it."""
        chosen = choose_width(width, self.measured_widths(operation))
        if chosen is None:
            measured = self.measured_widths(operation)
            raise RefusedError(f"no {operation} of width {width} on {self.chip}; measured: {measured}", operation)
        floor, transition, peak = self._names(operation, chosen)
        return Triple(self.floor(floor), self.rate(transition), self.rate(peak))


def choose_width(width: int, measured: list[int]) -> int | None:
    """The measured width that stands for a group's width; None where none may."""
    if not measured:
        return None
    if width <= measured[0]:
        return measured[0]
    if width in measured:
        return width
    return measured[-1] if width > WIDEST_SWEPT else None


def coefficients_of(inputs: Inputs, layout: Layout) -> Coefficients:
    """The entries that apply to the pool that is priced. Raises RefusedError where none does."""
    values = scoped(
        inputs.coefficients,
        Scope([inputs.chip.name], [inputs.model.name], [layout.tp], [layout.expert_width], [layout.nodes_spanned]),
    )
    if not values:
        raise RefusedError("no coefficient applies", "coefficients")
    return Coefficients(values, inputs.chip.name)


def scoped(sets: Iterable[CoefficientSet], deployment: Scope) -> dict[str, float]:
    """Sets in order, entries in file order, the last applicable entry of a name wins."""
    return {
        entry.name: entry.value
        for coefficient_set in sets
        for entry in coefficient_set.coefficients
        if _applies(entry.scope, deployment)
    }


def _applies(scope: Scope, deployment: Scope) -> bool:
    def texts(values: list[str]) -> set[str]:
        return {value.lower() for value in values}

    return (
        (not scope.hardware or texts(deployment.hardware) <= texts(scope.hardware))
        and (not scope.model or texts(deployment.model) <= texts(scope.model))
        and (not scope.tp or deployment.tp[0] in scope.tp)
        and (not scope.ep or deployment.ep[0] in scope.ep)
        and (not scope.nodes_spanned or deployment.nodes_spanned[0] in scope.nodes_spanned)
    )
