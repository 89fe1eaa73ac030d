"""The cost models by name, and building one from documents.

Pykernel's own are here; a name that is none of theirs is looked up among the plug-ins, and only then are those loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, overload

from pykernel.c_model import SHARED_LIBRARY, load_c_model
from pykernel.documents import Inputs
from pykernel.interface import CostModel
from pykernel.kernel import Kernel
from pykernel.switches import CALIBRATED, NEWEST, REFERENCE

OwnModel = Literal["blis", "blis-reference", "calibrated"]
"""The names of pykernel's own cost models, each a `Kernel`; no plug-in can take one."""

MODELS: dict[str, Callable[[Inputs], Kernel]] = {
    "blis": lambda inputs: Kernel(inputs, switches=NEWEST),
    "blis-reference": lambda inputs: Kernel(inputs, switches=REFERENCE),
    "calibrated": lambda inputs: Kernel(inputs, switches=CALIBRATED),
}

SUMMARIES: dict[str, str] = {
    "blis": "the BLIS laws, their newest published generation",
    "blis-reference": "the BLIS laws as the reference kernel's published figures have them",
    "calibrated": "laws of their own, fitted to tables of measured kernels",
}
"""What each of them is, in one line."""


@overload
def new(inputs: Inputs, *, model: OwnModel = "blis") -> Kernel: ...


@overload
def new(inputs: Inputs, *, model: str) -> CostModel: ...


def new(inputs: Inputs, *, model: str = "blis") -> CostModel:
    """A cost model of documents in memory; `model` is a name, or the path of a shared library with a model in C.

    `model` is one of pykernel's own, or of an installed plug-in. Everything is validated first, and what is needed is
    copied: later edits of `inputs` change no answer. Each call builds anew.

    Raises `ArgumentError` for an unknown model and `PluginError` for one whose plug-in fails, otherwise as `open`.
    """
    if isinstance(model, str) and model.endswith(SHARED_LIBRARY):
        return load_c_model(model, Kernel(inputs))
    factory = MODELS.get(model) if isinstance(model, str) else None
    if factory is None:
        from pykernel.registry import installed  # plug-ins are looked for only now

        return installed().new(model, inputs)
    return factory(inputs)
