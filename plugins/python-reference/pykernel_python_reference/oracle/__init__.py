"""An independent, slow pricing of one step, to hold the kernel to: exact fractions in plain Python.

It starts from the documents and shares nothing with resolution, planning, flattening or the C core, so a mistake has
to be made twice to stay unseen. Each module transcribes one family of formulas; speed is no concern here.
"""

from __future__ import annotations

from .batch import Batch, Request
from .settings import NEWEST, REFERENCE, Settings
from .step import Oracle, Price

__all__ = ["NEWEST", "REFERENCE", "Batch", "Oracle", "Price", "Request", "Settings"]
