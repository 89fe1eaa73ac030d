"""What a kernel stands for, kept as text beside the numbers in the C kernel, so that it travels in an image.

No price depends on it. `rows` is what a spec is given when a kernel is built; `read` gets it back from a kernel,
whether that was just built or loaded from an image, so that the two cannot differ.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pykernel._native import ffi, lib
from pykernel.documents import Pool
from pykernel.documents.loading import type_problems
from pykernel.errors import ImageError
from pykernel.explain import Labels
from pykernel.interface import CoefficientOrigin, Override, Resolution

_UNSTATED: tuple[Any, ...] = ("", 0, None, [])


@dataclass(frozen=True, slots=True)
class About:
    """What one kernel stands for."""

    labels: Labels
    pool: Pool
    resolution: Resolution
    provenance: tuple[CoefficientOrigin, ...]


def rows(
    labels: Labels,
    pool: Pool,
    resolution: Resolution,
    provenance: tuple[CoefficientOrigin, ...],
    names: Mapping[str, str],
    text: Callable[[str], Any],
) -> dict[str, Any]:
    """The part of a `pk_spec` that is text: `resolution`, and the rows of `origins`, `overrides` and `notes`.

    `names` are notes of the caller's own, such as the scenario's; `text` makes what the C struct points to.
    """
    import json  # not at the top, where importing pykernel would pay for it

    notes = {
        **names,
        "role": pool.role,
        "deployment": json.dumps(dataclasses.asdict(pool)),
        "labels": json.dumps(dataclasses.asdict(labels)),
        **{f"assumed.{one.name}": one.scope.partition(": ")[0] for one in provenance if one.method == "assumed"},
        **dict(_stated(pool.parallel, "parallel.")),
        **dict(_stated(pool.engine, "engine.")),
    }
    return {
        "resolution": {
            "tensor_parallel": resolution.tensor_parallel_width,
            "data_parallel": resolution.data_parallel_width,
            "expert_parallel": resolution.expert_parallel_width,
            "async_scheduling": int(resolution.async_scheduling),
            "cascade_attention": int(resolution.cascade_attention),
            "sequence_parallel_moe": int(resolution.sequence_parallel_moe),
            "all_reduce_backend": text(resolution.all_reduce_backend),
        },
        "origins": [[text(one.name), text(one.set), text(one.method), text(one.scope)] for one in provenance],
        "overrides": [
            [text(one.field), text(one.requested), text(one.resolved), text(one.reason)] for one in resolution.overrides
        ],
        "notes": [[text(key), text(value)] for key, value in notes.items()],
    }


def _stated(block: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Each stated setting under its dotted name, as C code wants to read it."""
    for field in dataclasses.fields(block):
        value = getattr(block, field.name)
        if dataclasses.is_dataclass(value):
            yield from _stated(value, f"{prefix}{field.name}.")
        elif isinstance(value, bool):
            yield prefix + field.name, "true" if value else "false"
        elif isinstance(value, list) and value:
            yield prefix + field.name, ",".join(str(item) for item in value)
        elif value not in _UNSTATED:
            yield prefix + field.name, str(value)


def read(handle: Any) -> About:
    """What a kernel stands for. Raises `ImageError` for one that no resolver of pykernel has described."""
    import json

    tell = partial(_core, "pk_", handle)
    try:
        return About(
            labels=_labels(json.loads(_note(tell, "labels"))),
            pool=pool(tell),
            resolution=resolution(tell),
            provenance=provenance(tell),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ImageError(f"the text of the image cannot be read: {type(error).__name__}: {error}") from None


Tell = Callable[..., Any]
"""Calls the C function of this name: of a kernel, or of a model in C."""


def _core(prefix: str, handle: Any, name: str, *arguments: Any) -> Any:
    return getattr(lib, prefix + name)(handle, *arguments)


def title(handle: Any) -> str:
    """A kernel in a few words, for people."""
    texts = (lib.pk_text(handle, key) for key in (b"scenario", b"role", b"model", b"chip"))
    # An image of another make may lack one, or hold bytes that are no UTF-8.
    names = ("?" if text == ffi.NULL else ffi.string(text).decode(errors="replace") for text in texts)
    scenario, role, model, chip = names
    return f"{scenario}, {role} pool, {model} on {chip}"


def tell_of_model(model: Any) -> Tell:
    """What the functions below need to ask a `pk_model`."""
    return partial(_core, "pk_model_", model)


def provenance(tell: Tell) -> tuple[CoefficientOrigin, ...]:
    """Where every number comes from."""
    origins = (tell("origin_at", index) for index in range(tell("origin_count")))
    return tuple(CoefficientOrigin(*_strings(one, "name", "set", "method", "scope")) for one in origins)


def pool(tell: Tell) -> Pool:
    """The pool as stated. Raises `ImageError` where there is none, `ValueError` for what no document could hold."""
    import json

    made: Pool = _document(Pool, json.loads(_note(tell, "deployment")))
    if problems := type_problems(made, Pool, "deployment"):
        raise ValueError("; ".join(str(problem) for problem in problems))
    return made


def _note(tell: Tell, key: str) -> str:
    text = tell("text", key.encode())
    if text == ffi.NULL:
        raise ImageError(f"the image has no text {key!r}; it was not made by pykernel's resolver, so use it from C")
    return _string(text)


def _string(text: Any) -> str:
    return "" if text == ffi.NULL else str(ffi.string(text).decode())


def _strings(struct: Any, *members: str) -> Iterator[str]:
    return (_string(getattr(struct, member)) for member in members)


def resolution(tell: Tell) -> Resolution:
    """What the engine would run."""
    core = tell("resolved")
    overrides = (tell("override_at", index) for index in range(tell("override_count")))
    return Resolution(
        tensor_parallel_width=core.tensor_parallel,
        data_parallel_width=core.data_parallel,
        expert_parallel_width=core.expert_parallel,
        all_reduce_backend=_string(core.all_reduce_backend),
        async_scheduling=bool(core.async_scheduling),
        cascade_attention=bool(core.cascade_attention),
        sequence_parallel_moe=bool(core.sequence_parallel_moe),
        overrides=tuple(Override(*_strings(one, "field", "requested", "resolved", "reason")) for one in overrides),
    )


def _labels(data: dict[str, Any]) -> Labels:
    """The labels, their lists turned back into the tuples that JSON cannot tell from them."""
    known = {field.name: data[field.name] for field in dataclasses.fields(Labels)}
    if not known["peak_flops"] > 0:
        raise ValueError(f"peak_flops is {known['peak_flops']}")
    flat = ("gemm", "host", "gather", "head", "launch", "peak_flops")
    members: dict[str, Any] = {
        name: _tuples(value) if name in flat else [_tuples(row) for row in value] for name, value in known.items()
    }
    return Labels(**members)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _document(cls: type[Any], data: Any) -> Any:
    """A dataclass of a document from plain data, blocks of settings included."""
    hints = typing.get_type_hints(cls)
    values = {}
    for name, value in data.items():
        inner = [kind for kind in (typing.get_args(hints[name]) or (hints[name],)) if dataclasses.is_dataclass(kind)]
        values[name] = _document(inner[0], value) if inner and value is not None else value  # type: ignore[arg-type]
    return cls(**values)
