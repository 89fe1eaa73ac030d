"""Inputs without a file: a model and a chip, and the rest as an engine is left to choose it.

A setting that is not given stays unstated in the deployment, so the resolution supplies the engine's own default and
records it as an assumption. The cluster is as many nodes as the ranks need.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pykernel.derive import derive
from pykernel.documents import Cluster, Deployment, Engine, Inputs, ModelGraph, Parallel, Pool, Repos, Scenario
from pykernel.documents.fieldtypes import did_you_mean
from pykernel.documents.repos import assemble
from pykernel.errors import ArgumentError

ENGINE_VERSION = "0.31.0"
"""The release whose rules apply: the one that deployments are resolved for."""

COEFFICIENT_SETS = tuple(
    f"cost-model-{part}" for part in ("primitives", "collectives", "host-overheads", "attention", "recurrent", "memory")
)
"""All sets of the registry, in the order in which scenarios name them."""

USUAL_NODE = 8
"""GPUs of a node where the chip's file does not say."""


def inputs_from_config(
    config: Mapping[str, Any] | str | os.PathLike[str],
    chip: str,
    *,
    name: str = "",
    tp: int = 1,
    dp: int = 1,
    pcp: int = 0,
    dcp: int = 0,
    enable_expert_parallel: bool = False,
    fabric: str = "",
    gpus_per_node: int = 0,
    coefficients: Sequence[str] = (),
    repos: Repos | None = None,
    **engine: Any,
) -> Inputs:
    """The inputs of one pool that serves the model of a HuggingFace config; see `pykernel.derive` for the config.

    Parameters: `chip` and `fabric`, names in the catalog or of a plug-in (a fabric is needed from two nodes on);
    the widths of the layout; `gpus_per_node`, by default what the chip's file states, else 8; `coefficients`, names of
    sets that come after those of the registry; `engine`, settings by the names of the deployment's `engine` keys.
    Raises: DocumentError as `derive`, and for a name that leads nowhere; ArgumentError for an unknown setting.
    """
    return inputs_from_graph(
        derive(config, name=name),
        chip,
        tp=tp,
        dp=dp,
        pcp=pcp,
        dcp=dcp,
        enable_expert_parallel=enable_expert_parallel,
        fabric=fabric,
        gpus_per_node=gpus_per_node,
        coefficients=coefficients,
        repos=repos,
        **engine,
    )


def inputs_from_graph(
    graph: ModelGraph,
    chip: str,
    *,
    tp: int = 1,
    dp: int = 1,
    pcp: int = 0,
    dcp: int = 0,
    enable_expert_parallel: bool = False,
    fabric: str = "",
    gpus_per_node: int = 0,
    coefficients: Sequence[str] = (),
    repos: Repos | None = None,
    **engine: Any,
) -> Inputs:
    """The inputs of one pool that serves a model graph; otherwise as `inputs_from_config`."""
    known = [field.name for field in fields(Engine)]
    for setting in engine:
        if setting not in known:
            near = did_you_mean(setting, known)
            raise ArgumentError(f"there is no engine setting {setting!r}{near}; accepted: {', '.join(known)}")
    for width, value, least in (("tp", tp, 1), ("dp", dp, 1), ("pcp", pcp, 0), ("gpus_per_node", gpus_per_node, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(f"{width} is {value!r}; accepted: a whole number from {least}")
    title = f"{graph.name}-{chip}-tp{tp}" + (f"-dp{dp}" if dp > 1 else "") + ("-ep" if enable_expert_parallel else "")
    parallel = Parallel(tp, 1, dp, pcp=pcp, dcp=dcp, enable_expert_parallel=enable_expert_parallel)
    cluster = Cluster(chip, 1, gpus_per_node or USUAL_NODE, fabric)
    scenario = Scenario("Scenario", title, graph.name, [*COEFFICIENT_SETS, *coefficients], ENGINE_VERSION, cluster)
    pool = Pool("colocated", 1, parallel, Engine(**engine))
    inputs = assemble(scenario, Deployment("Deployment", title, [pool]), repos, model=graph)
    cluster.gpus_per_node = gpus_per_node or inputs.chip.gpus_per_node or USUAL_NODE
    cluster.gpus_per_rack = inputs.chip.gpus_per_rack if cluster.gpus_per_node == inputs.chip.gpus_per_node else 0
    cluster.nodes = pool.nodes = -(-parallel.ranks() // cluster.gpus_per_node)
    return inputs
