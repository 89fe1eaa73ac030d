"""What would make a deployment fit in its memory: one change each, found by trying it.

A remedy is never computed from sizes; the changed documents make a kernel, which says whether its sequences fit. So
whatever the laws or another cost model say, a remedy that is offered works.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pykernel.documents import Chip, Inputs
from pykernel.errors import DocumentError, RefusedError
from pykernel.interface import INT64_MAX
from pykernel.models import new

WIDEST = 64
"""Tensor-parallel ranks that are tried at most."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change: the dotted field, the value it had and the one that helps, and how many sequences then fit."""

    field: str
    found: str
    value: str
    sequences: int


def sequences_that_fit(inputs: Inputs, tokens: int, *, model: str = "blis") -> int:
    """How many sequences of `tokens` tokens a rank holds at once; 0 where the model does not fit or is refused."""
    try:
        return new(inputs, model=model).kv_capacity().sequences(tokens)
    except (RefusedError, DocumentError):
        return 0


def what_would_fit(
    inputs: Inputs, tokens: int = 1, *, chips: Iterable[Chip] = (), model: str = "blis"
) -> tuple[Remedy, ...]:
    """Changes after which at least one sequence of `tokens` tokens fits.

    The smallest wider tensor parallelism, an fp8 cache, and the smallest of `chips` with more memory. Each is tried on
    a copy of the documents; `inputs` is not edited.
    """
    remedies = []
    for candidates in (_wider(inputs), _narrower_cache(inputs), _larger_part(inputs, chips)):
        for field, found, value, changed in candidates:
            fit = sequences_that_fit(changed, tokens, model=model)
            if fit > 0:
                remedies.append(Remedy(field, found, value, min(fit, INT64_MAX)))
                break
    return tuple(remedies)


Candidate = tuple[str, str, str, Inputs]


def _copied(inputs: Inputs) -> Inputs:
    changed = copy.copy(inputs)
    changed.scenario, changed.deployment = copy.deepcopy(inputs.scenario), copy.deepcopy(inputs.deployment)
    return changed


def _wider(inputs: Inputs) -> Iterator[Candidate]:
    """Wider tensor parallelism, doubled until it is wide enough; on more nodes where a fabric joins them."""
    tp = inputs.deployment.pools[inputs.pool].parallel.tp
    width = 2 * tp
    while width <= WIDEST:
        changed = _copied(inputs)
        pool, cluster = changed.deployment.pools[inputs.pool], changed.scenario.cluster
        pool.parallel.tp = width
        nodes = -(-pool.parallel.ranks() // cluster.gpus_per_node)
        value = str(width)
        if nodes > pool.nodes:
            cluster.nodes += nodes - pool.nodes
            pool.nodes = nodes
            value += f" on {nodes} nodes"
        yield f"deployment.pools[{inputs.pool}].parallel.tp", str(tp), value, changed
        width *= 2


def _narrower_cache(inputs: Inputs) -> Iterator[Candidate]:
    engine = inputs.deployment.pools[inputs.pool].engine
    if engine.cache_dtype in ("", "auto", "bfloat16", "float16"):
        changed = _copied(inputs)
        changed.deployment.pools[inputs.pool].engine.cache_dtype = "fp8"
        yield f"deployment.pools[{inputs.pool}].engine.cache_dtype", engine.cache_dtype or "auto", "fp8", changed


def _larger_part(inputs: Inputs, chips: Iterable[Chip]) -> Iterator[Candidate]:
    larger = [chip for chip in chips if chip.memory_gib > inputs.chip.memory_gib]
    for chip in sorted(larger, key=lambda chip: chip.memory_gib):
        changed = _copied(inputs)
        changed.chip, changed.scenario.cluster.hardware = chip, chip.name
        yield "scenario.cluster.hardware", inputs.chip.name, chip.name, changed
