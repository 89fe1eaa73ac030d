"""The observation vector: everything that can be seen of a model from outside, as plain values to compare."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pykernel.batch import Batch
from pykernel.interface import Direction, Placement

TOKENS = (0, -1, 1, 15, 16, 17, 32, 33, 100, 1000, 4096, 8192, 32768, 131072)
SIZES = (0, 1, 4096, 1 << 20, 1 << 26, 1 << 34)
DEPTHS = (-1, 0, 1, 2, 8, 64)
HANDOFF_TOKENS = (0, 1, 16, 1024, 4096, 32768, 131072)
PLACEMENTS: dict[str, tuple[Placement, Placement]] = {
    "same node": (Placement(0, 0, "prefill"), Placement(0, 0, "decode")),
    "same rack": (Placement(0, 0, "prefill"), Placement(1, 0, "decode")),
    "two racks": (Placement(0, 0, "prefill"), Placement(1, 1, "decode")),
}
TIERS = ("cpu_dram", "nvme_gen4", "nvme_gen3", "sata_ssd", "s3", "no such tier")
DIRECTIONS = (Direction.TO_TIER, Direction.FROM_TIER)

Thunk = Callable[[], Any]


def plain(value: Any) -> Any:
    """A value as nested tuples, to compare and to hash."""
    if hasattr(value, "per_resource_ns"):
        resources = tuple(sorted((name, ns) for name, ns in value.per_resource_ns.items() if ns))
        return (value.overlap_ns, value.no_overlap_ns, value.bottleneck, resources)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field for field in dataclasses.fields(value) if field.compare and field.name != "source")
        return tuple((field.name, plain(getattr(value, field.name))) for field in fields)
    if isinstance(value, dict):
        return tuple(sorted((key, plain(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(plain(item) for item in value)
    return value


def observe(thunk: Thunk) -> Any:
    """What a call returns or raises, as a plain value."""
    try:
        return plain(thunk())
    except (Exception, SystemExit) as error:
        return ("raises", type(error).__name__, str(error))


def steps(model: Any, batches: list[tuple[str, Batch]]) -> Iterator[tuple[str, Thunk]]:
    for name, batch in batches:
        yield f"step_time of {name}", partial(model.step_time, batch)


def others(model: Any) -> Iterator[tuple[str, Thunk]]:
    """Every call beside the step."""
    for name in ("fixed_bytes", "pre_snapshot_bytes", "sequence_fixed_bytes", "sequence_admission_bytes"):
        yield name, getattr(model, name)
    for name in ("output_token_overhead_ns", "completion_overhead_ns", "resolved", "deployment"):
        yield name, getattr(model, name)
    for name in ("capture_tokens", "graph_modes", "decode_threshold"):
        yield name, getattr(model, name)
    yield "provenance", lambda: sorted(plain(model.provenance()))
    for tokens in TOKENS:
        for name in ("sequence_variable_bytes", "sequence_bounded_bytes", "admission_overhead_ns"):
            yield f"{name}({tokens})", partial(getattr(model, name), tokens)
        at = f"sequence_bounded_bytes_at({tokens}, 1)"
        yield at, partial(model.sequence_bounded_bytes_at, tokens, 1)
    for tier in TIERS:
        for way in DIRECTIONS:
            for size in SIZES:
                call = f"tier_time_ns({tier}, {way}, {size}, 2)"
                yield call, partial(model.tier_time_ns, tier, way, size, 2)
    for pair, ends in PLACEMENTS.items():
        for tokens in HANDOFF_TOKENS:
            for name in ("pd_transfer_demand", "pd_transfer_time_ns"):
                call = f"{name}({tokens}, {pair})"
                yield call, partial(getattr(model, name), tokens, *ends)


def calls(model: Any, batches: list[tuple[str, Batch]]) -> list[tuple[str, Thunk]]:
    """The whole vector, unevaluated."""
    return [*steps(model, batches), *others(model)]


def vector(model: Any, batches: list[tuple[str, Batch]]) -> dict[str, Any]:
    return {name: observe(thunk) for name, thunk in calls(model, batches)}


def digest(model: Any, batches: list[tuple[str, Batch]]) -> str:
    """The whole vector in one line."""
    return hashlib.sha256(repr(list(vector(model, batches).items())).encode()).hexdigest()


def differences(first: dict[str, Any], second: dict[str, Any]) -> Iterator[str]:
    for name, value in first.items():
        if second.get(name) != value:
            yield f"{name} is {shortened(value)} and then {shortened(second.get(name))}"


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
