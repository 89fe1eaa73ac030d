"""Broken cost models, each wrong in one way, and the laws that must notice."""

from __future__ import annotations

from . import accessors, memory, purity, steps, transfers  # noqa: F401 - they enter their mutants
from .making import MUTANTS, Mutant, Wrapper

__all__ = ["MUTANTS", "Mutant", "Wrapper"]
