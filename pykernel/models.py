"""The cost models by name, and building one from documents."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from pykernel.c_model import SHARED_LIBRARY, load_c_model
from pykernel.documents import Inputs
from pykernel.errors import ArgumentError
from pykernel.interface import CostModel
from pykernel.kernel import Kernel
from pykernel.switches import CALIBRATED, NEWEST, REFERENCE

MODELS: dict[str, Callable[[Inputs], CostModel]] = {
    "blis": lambda inputs: Kernel(inputs, switches=NEWEST),
    "blis-reference": lambda inputs: Kernel(inputs, switches=REFERENCE),
    "calibrated": lambda inputs: Kernel(inputs, switches=CALIBRATED),
}


def new(inputs: Inputs, *, model: str = "blis") -> CostModel:
    """A cost model of documents in memory; `model` is a name, or the path of a shared library with a model in C.

    Everything is validated first, and what is needed is copied: later edits of `inputs` change no answer. Each call
    builds anew. Raises `ArgumentError` for an unknown model, otherwise as `open`.
    """
    if model.endswith(SHARED_LIBRARY):
        return load_c_model(model, Kernel(inputs))
    if model not in MODELS:
        near = difflib.get_close_matches(model, MODELS, n=1)
        hint = f"; did you mean {near[0]}" if near else ""
        raise ArgumentError(f"there is no cost model {model!r}; known are {', '.join(MODELS)}{hint}")
    return MODELS[model](inputs)
