"""Inputs for tests of the oracle: bundled scenarios, and scenarios of models that are kept under `testdata/` only."""

from __future__ import annotations

import copy
import functools
from pathlib import Path

from pykernel.documents import Inputs, coefficients, graph, hardware, load_bundle, open_inputs
from pykernel.documents.rules import rules

ROOT = Path(__file__).resolve().parents[2]
TESTDATA = ROOT / "testdata"


def kept_scenario(name: str, pool: int = 0) -> Inputs:
    """The inputs of `testdata/scenarios/<name>.yaml`, its model from `testdata/models`, all else as bundled."""
    import pykernel

    data = Path(str(pykernel.__file__)).parent / "data"
    scenario, deployment = load_bundle(TESTDATA / "scenarios" / f"{name}.yaml")
    cluster = scenario.cluster
    fabric = data / "catalog" / "networks" / f"{cluster.fabric}.yaml" if cluster.fabric else None
    return Inputs(
        scenario,
        deployment,
        pool,
        graph.load(TESTDATA / "models" / scenario.model / "graph.yaml"),
        hardware.load_chip(data / "catalog" / "hardware" / f"{cluster.hardware}.yaml"),
        hardware.load_fabric(fabric) if fabric else None,
        coefficients=[
            coefficients.load(data / "registry" / "coefficients" / f"{entry}.yaml") for entry in scenario.coefficients
        ],
        rules=rules(scenario.engine_version),
    )


def scenario(name: str, pool: int = 0) -> Inputs:
    """The inputs of a scenario by name, wherever it is kept, to be changed at will."""
    return copy.deepcopy(_loaded(name, pool))


@functools.cache
def _loaded(name: str, pool: int) -> Inputs:
    kept = TESTDATA / "scenarios" / f"{name}.yaml"
    return kept_scenario(name, pool) if kept.is_file() else open_inputs(name, pool=pool)


def without_latent_norm_bytes(inputs: Inputs) -> Inputs:
    """The same graph as its older versions had it: the norms of the latent vectors move a hidden state's worth."""
    for kind in inputs.model.layer_kinds:
        for node in kind.nodes:
            if node.role in ("q_a_layernorm", "kv_a_layernorm"):
                node.bytes_per_token = 0
    return inputs
