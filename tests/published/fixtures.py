"""Inputs for tests of the oracle: the bundled scenarios, loaded once and handed out to be changed."""

from __future__ import annotations

import copy
import functools

from pykernel.documents import Inputs, open_inputs


def scenario(name: str, pool: int = 0) -> Inputs:
    """The inputs of a scenario by name, to be changed at will."""
    return copy.deepcopy(_loaded(name, pool))


@functools.cache
def _loaded(name: str, pool: int) -> Inputs:
    return open_inputs(name, pool=pool)


def without_latent_norm_bytes(inputs: Inputs) -> Inputs:
    """The same graph as its older versions had it: the norms of the latent vectors move a hidden state's worth."""
    for kind in inputs.model.layer_kinds:
        for node in kind.nodes:
            if node.role in ("q_a_layernorm", "kv_a_layernorm"):
                node.bytes_per_token = 0
    return inputs
