"""Plug-ins as files: a module and the metadata that an installer would leave, in a folder on sys.path."""

from __future__ import annotations

from collections.abc import Callable

HEAD = "from pykernel.hooks import CostModelEntry, DocumentEntry, hookimpl\n"

ONE_MODEL = (
    HEAD
    + """
from pykernel import models

@hookimpl
def pykernel_cost_models():
    return [CostModelEntry("{name}", models.MODELS["blis"], "a model", "nowhere")]
"""
)

Install = Callable[..., None]
