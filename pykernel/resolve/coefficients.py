"""Which coefficients hold for a deployment, and looking them up by name.

An entry applies when every dimension that its scope states contains the deployment's value; sets are read in the
scenario's order, entries in file order, and the last applicable entry of a name wins (blis-schemas, coefficient sets).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pykernel.documents import Coefficient, CoefficientSet, Scope
from pykernel.interface import CoefficientOrigin


@dataclass(frozen=True, slots=True)
class Target:
    """The dimensions of a deployment that scopes are matched against."""

    hardware: str
    model: str
    tp: int
    ep: int
    nodes_spanned: int

    def matches(self, scope: Scope) -> bool:
        """Whether every dimension the scope states contains this deployment; names compare without case."""
        return (
            _has_name(scope.hardware, self.hardware)
            and _has_name(scope.model, self.model)
            and (not scope.tp or self.tp in scope.tp)
            and (not scope.ep or self.ep in scope.ep)
            and (not scope.nodes_spanned or self.nodes_spanned in scope.nodes_spanned)
        )

    def __str__(self) -> str:
        return (
            f"hardware {self.hardware}, model {self.model}, tp {self.tp}, ep {self.ep}, "
            f"nodes spanned {self.nodes_spanned}"
        )


def _has_name(stated: list[str], name: str) -> bool:
    return not stated or name in stated or name.lower() in (item.lower() for item in stated)


class Coefficients(Mapping[str, float]):
    """The coefficients in scope, by name.

    Which of them must be there is a matter of `refusals`, what their absence means one of `disclosures`.
    """

    def __init__(self, chosen: Mapping[str, tuple[Coefficient, str]], sets: list[str], target: Target) -> None:
        self._chosen = chosen
        self.sets = sets
        self.target = target

    def __getitem__(self, name: str) -> float:
        return self._chosen[name][0].value

    def __contains__(self, name: object) -> bool:
        return name in self._chosen

    def __iter__(self) -> Iterator[str]:
        return iter(self._chosen)

    def __len__(self) -> int:
        return len(self._chosen)

    def set_of(self, name: str) -> str:
        """The set that a coefficient in scope is taken from."""
        return self._chosen[name][1]

    def origins(self) -> list[CoefficientOrigin]:
        """Where each coefficient comes from, by name."""
        return [
            CoefficientOrigin(name, set_name, entry.method, _scope_text(entry.scope))
            for name, (entry, set_name) in sorted(self._chosen.items())
        ]


def select(sets: list[CoefficientSet], target: Target) -> Coefficients:
    """The coefficients that apply to `target`; None among the sets counts as absent."""
    present = [source for source in sets if source is not None]
    chosen = {
        entry.name: (entry, source.name)
        for source in present
        for entry in source.coefficients
        if target.matches(entry.scope)
    }
    return Coefficients(chosen, [source.name for source in present], target)


def _scope_text(scope: Scope) -> str:
    if scope.hardware:
        return f"hardware: {scope.hardware[0]}"
    if scope.model:
        return f"model: {scope.model[0]}"
    return "unscoped"
