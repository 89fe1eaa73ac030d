"""From a HuggingFace config.json to a model graph.

`config` reads the file and gives its facts by concept, `formats` says what each weight is stored in, `blocks`,
`latent` and `recurrent` turn facts into nodes, `layouts` says which blocks a layer has, `families` is the table of
recipes, and `building` puts the graph together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykernel.documents import ModelGraph

__all__ = ["ParameterInventory", "derive", "parameter_inventory"]


def derive(config: Mapping[str, Any] | str | os.PathLike[str], *, name: str = "", quantization: str = "") -> ModelGraph:
    """The model graph of a HuggingFace config.

    Parameters: `config`, the object, the path of a config.json, or the folder that holds one (a hf_quant_config.json
    beside it is read where the config itself has no quantization record); `name`, of the model, by default that of
    the folder or file; `quantization`, the weight format of the whole model (`bf16`, `fp8`, `nvfp4`, ...) in the
    place of what the config records.
    Raises: DocumentError for an architecture that no family has, and for a field that is missing, of the wrong kind
    or at odds with another; ArgumentError for an argument of the wrong type or an unknown format.
    """
    from pykernel.derive.building import build

    return build(config, name, quantization).graph


@dataclass(frozen=True)
class ParameterInventory:
    """Parameters of a model without its draft module: in all, used by one token, in priced nodes, and beside them.

    `active` leaves the embedding out, as published counts do not agree on it; `unpriced` is by kind: norms, biases,
    routers, convolutions, and what the published graphs leave out.
    """

    total: int
    active: int
    priced: int
    unpriced: dict[str, int]


def parameter_inventory(config: Mapping[str, Any] | str | os.PathLike[str]) -> ParameterInventory:
    """Every parameter of the model of a HuggingFace config. Raises as `derive` does."""
    from pykernel.derive.building import build
    from pykernel.summary import summarize

    derived = build(config)
    summary = summarize(derived.graph)
    beside = sum(derived.unpriced.values())
    return ParameterInventory(
        summary.parameters + beside, summary.active_parameters + beside, summary.parameters, derived.unpriced
    )
