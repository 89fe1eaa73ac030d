"""What this version cannot price: each entry names the setting or graph feature.

A deployment that meets one of these is refused, because leaving the term out would give a number that looks as good
as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykernel.documents import Engine, ModelGraph
from pykernel.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Unpriced:
    """A feature without a law: the field that asks for it, what it is, and whether a deployment asks."""

    field: str
    what: str
    asked: Callable[[ModelGraph, Engine], bool]


UNPRICED = (
    Unpriced(
        "engine.dbo.enable_dbo",
        "dual-batch overlap",
        lambda model, engine: engine.dbo is not None and engine.dbo.enable_dbo,
    ),
)


def refuse_unpriced(model: ModelGraph, engine: Engine) -> None:
    """Raise `RefusedError` for the first feature of the deployment that is not priced."""
    for entry in UNPRICED:
        if entry.asked(model, engine):
            raise RefusedError(f"{entry.field}: {entry.what} is not priced yet", entry.field)
