"""What is refused although every single document is fine; the modules that resolve a thing refuse it themselves.

Here are the checks that need the planned graph beside the layout.
"""

from __future__ import annotations

from pykernel.documents import Inputs
from pykernel.errors import RefusedError

from .formats import LATENT
from .layout import Layout
from .plan import KindPlan
from .settings import Settings


def check(inputs: Inputs, layout: Layout, stack: list[KindPlan], mode: str, settings: Settings) -> None:
    """Raise RefusedError for a layout that the model's layers do not run under."""
    _check_heads(inputs, layout, stack)
    _check_combine(inputs, layout, stack)
    kinds = {kind.primary.kind for kind in stack if kind.primary}
    if layout.pcp <= 1:
        return
    for kind in stack:
        if kind.recurrent_kind or (kind.primary and kind.primary.kind not in LATENT):
            raise RefusedError(f"pcp needs latent attention everywhere, {kind.name} is not", "parallel.pcp")
    if layout.dcp > 1 and kinds - {"sparse_mla"}:
        raise RefusedError("pcp with dcp needs sparse latent attention everywhere", "parallel.dcp")
    # vllm v0.31.0: no prefill that ranks share is captured whole, and a sparse latent one not at all.
    if settings.engine_defaults and mode == "FULL":
        raise RefusedError("graph mode FULL does not run under pcp", "engine.cudagraph_mode")
    if settings.engine_defaults and layout.dcp <= 1 and "sparse_mla" in kinds and mode != "NONE":
        raise RefusedError("sparse latent attention under pcp needs graph mode NONE", "engine.cudagraph_mode")


def _check_heads(inputs: Inputs, layout: Layout, stack: list[KindPlan]) -> None:
    for kind in stack:
        if kind.primary and kind.primary.n_q % layout.tp:
            raise RefusedError(f"tp {layout.tp} does not divide the heads of {kind.name}", "parallel.tp")
    running = {kind.name for kind in stack}
    for layer in inputs.model.layer_kinds:
        for node in layer.nodes:
            if layer.id in running and node.op == "RecurrentUpdate" and node.n_heads % layout.tp:
                raise RefusedError(f"tp {layout.tp} does not divide the mixer's heads of {layer.id}", "parallel.tp")


def _check_combine(inputs: Inputs, layout: Layout, stack: list[KindPlan]) -> None:
    engine = inputs.deployment.pools[inputs.pool].engine
    backend = engine.dcp_comm_backend
    if backend not in ("", "ag_rs", "a2a"):
        raise RefusedError(f"unknown combine {backend!r}", "engine.dcp_comm_backend")
    if layout.dcp <= 1:
        return
    if layout.pcp > 1 and backend == "a2a":
        raise RefusedError("a2a does not run under pcp", "engine.dcp_comm_backend")
    latent = any(kind.primary and kind.primary.kind in LATENT for kind in stack)
    if engine.dcp_q_replicate and layout.pcp <= 1 and latent:
        raise RefusedError("a replicated query projection is not priced", "engine.dcp_q_replicate")
