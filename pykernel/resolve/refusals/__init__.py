"""Every deployment that is refused although its documents are fine: one row a reason, in tables by stage.

`resolve` walks the tables in the order of the stages and stops at the first row that finds a fault; a report on a
deployment walks the same tables and notes them all. docs/refusals.md is written from them. A row speaks of one setting:
what was found, why the engine does not start with it or why it has no truthful price, and the nearest that works.
"""

from __future__ import annotations

from pykernel.resolve.refusals.coefficients import LAWS, MEMORY, SCOPE
from pykernel.resolve.refusals.context import CONTEXT
from pykernel.resolve.refusals.parallel import EXPERTS, LAYOUT
from pykernel.resolve.refusals.row import ENGINE, PRICE, Refusal
from pykernel.resolve.refusals.settings import CACHES, FORMATS, GRAPHS
from pykernel.resolve.refusals.sparse import SPARSE

__all__ = [
    "CACHES",
    "CONTEXT",
    "ENGINE",
    "EXPERTS",
    "FORMATS",
    "GRAPHS",
    "LAWS",
    "LAYOUT",
    "MEMORY",
    "PRICE",
    "REFUSALS",
    "SCOPE",
    "SPARSE",
    "STAGES",
    "TITLES",
    "Refusal",
]

STAGES: tuple[tuple[Refusal, ...], ...] = (
    SCOPE, FORMATS, LAYOUT, CACHES, CONTEXT, LAWS, GRAPHS, EXPERTS, SPARSE, MEMORY,
)  # fmt: skip
"""All tables, in the order in which `resolve` walks them."""

TITLES = (
    "Coefficients that hold",
    "Number formats",
    "Layout against the model",
    "Caches",
    "Context parallelism",
    "Coefficients that a price needs",
    "CUDA graphs",
    "Experts",
    "Sparse attention of the DeepSeek-V3.2 family",
    "Coefficients that memory needs",
)
"""What each of the tables is about."""

REFUSALS: tuple[Refusal, ...] = tuple(row for stage in STAGES for row in stage)
