"""Deployments for tests of memory: bundled ones to edit, and small graphs written down where a model is not bundled."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from pykernel import Inputs, open_inputs
from pykernel.documents import LayerKind, Node, Speculative, Stack

PLAIN = "llama-3.1-8b-h100-tp1"
DEEPSEEK = "deepseek-v3-h200-fp8-tp8"


@cache
def _loaded(scenario: str, pool: int) -> Inputs:
    return open_inputs(scenario, pool=pool)


def fresh(scenario: str = DEEPSEEK, pool: int = 0, **engine: Any) -> Inputs:
    """The documents of a bundled scenario, to be edited, with some settings of the engine changed."""
    inputs = copy.copy(_loaded(scenario, pool))
    for name in ("scenario", "deployment", "model", "chip", "fabric"):
        setattr(inputs, name, copy.deepcopy(getattr(inputs, name)))
    return stating(inputs, **engine)


def stating(inputs: Inputs, **engine: Any) -> Inputs:
    """The same documents with settings of the priced pool's engine changed."""
    for name, value in engine.items():
        setattr(inputs.deployment.pools[inputs.pool].engine, name, value)
    return inputs


def spread(inputs: Inputs, **widths: Any) -> Inputs:
    """The same documents with other parallel widths, on one node that is large enough for them."""
    parallel = inputs.deployment.pools[inputs.pool].parallel
    for name, value in widths.items():
        setattr(parallel, name, value)
    cluster = inputs.scenario.cluster
    cluster.gpus_per_node = max(cluster.gpus_per_node, parallel.ranks())
    return inputs


def drafting(inputs: Inputs, tokens: int, method: str = "mtp") -> Inputs:
    """The same documents with speculation."""
    return stating(inputs, speculative=Speculative(method, tokens))


def model(*layers: tuple[int, list[Node]], hidden: int = 4096, dtype: str = "bf16", **engine: Any) -> Inputs:
    """A model of so many layers of each list of nodes, on a deployment that states nothing else of interest."""
    inputs = fresh(PLAIN, **{"cache_dtype": "", "quantization": ""} | engine)
    graph = inputs.model
    graph.global_.hidden_size, graph.global_.weight_dtype = hidden, dtype
    graph.layer_kinds = [
        LayerKind(f"kind_{index}", nodes, [[n, n + 1] for n in range(len(nodes) - 1)])
        for index, (_, nodes) in enumerate(layers)
    ]
    graph.stack = Stack(prologue=[f"kind_{index}" for index, (count, _) in enumerate(layers) for _ in range(count)])
    graph.speculator = None
    return inputs


def gqa(n_q: int, n_kv: int, d_h: int, window: int = 0) -> Node:
    return Node("Attention", kind="swa" if window else "gqa", n_q=n_q, n_kv=n_kv, d_h=d_h, window=window)


def latent(n_q: int = 64, d_h: int = 576, **other: Any) -> Node:
    return Node("Attention", kind=other.pop("kind", "mla"), n_q=n_q, n_kv=1, d_h=d_h, **other)


def indexer(d_h: int = 128, **other: Any) -> Node:
    kind = other.pop("kind", "gqa")
    return Node("Attention", role="block_index_scores", kind=kind, n_q=32, n_kv=1, d_h=d_h, **other)


def mixer(kind: str, heads: int, size: int, **other: Any) -> Node:
    return Node("RecurrentUpdate", recurrent_kind=kind, n_heads=heads, state_size=size, **other)
