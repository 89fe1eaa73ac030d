"""Plug-ins as files: a module and the metadata that an installer would leave, in a folder on sys.path."""

from __future__ import annotations

from collections.abc import Callable

import pykernel
from pykernel.registry import build

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

DOCUMENTS = (
    HEAD
    + """
import pykernel
from dataclasses import replace
from pykernel.documents import CoefficientSet, StorageTier
from pykernel.registry import build

OWN = build({})

def renamed(kind, old, **change):
    return lambda: replace(OWN.document(kind, old), **change)

@hookimpl
def pykernel_chips(): return [DocumentEntry("mychip", renamed("chips", CHIP, name="mychip"))]
@hookimpl
def pykernel_fabrics(): return [DocumentEntry("myfabric", renamed("fabrics", FABRIC, name="myfabric"))]
@hookimpl
def pykernel_storage_tiers(): return [DocumentEntry("mytier", lambda: StorageTier("mytier", 1000.0, 1000.0, 5.0))]
@hookimpl
def pykernel_coefficient_sets(): return [DocumentEntry("myset", renamed("coefficient_sets", SET, name="myset"))]
@hookimpl
def pykernel_model_graphs(): return [DocumentEntry("mymodel", renamed("model_graphs", MODEL, name="mymodel"))]
@hookimpl
def pykernel_rules_packs(): return [DocumentEntry("9.9.9", renamed("rules_packs", "0.31.0", engine_version="9.9.9"))]
"""
)


def documents_plugin() -> str:
    """A plug-in with one document of each kind, each a bundled one under another name."""
    inputs = pykernel.open_inputs("qwen3-14b-h100-tp1")
    fabric = build({}).names("fabrics")[0]
    names = {"CHIP": inputs.chip.name, "FABRIC": fabric, "SET": inputs.scenario.coefficients[0]}
    head = "".join(f"{key} = {value!r}\n" for key, value in {**names, "MODEL": inputs.model.name}.items())
    return head + DOCUMENTS


Install = Callable[..., None]
