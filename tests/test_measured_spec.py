"""The core's checks of the measured part of a spec: every field, wrong in turn, is refused by its own name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import pykernel
from pykernel._native import ffi, lib
from pykernel.measured.flattening import measured_spec
from pykernel.switches import CALIBRATED

COUNTS = {
    "matrices": "matrix_count",
    "matrix_laws": "matrix_law_count",
    "stream_laws": "stream_law_count",
    "tile_laws": "tile_law_count",
    "expert_laws": "expert_law_count",
    "link_laws": "link_law_count",
    "capture_sizes": "capture_size_count",
}


@pytest.fixture(scope="module")
def spec() -> Any:
    return measured_spec(pykernel.open_inputs("deepseek-v3-h200-fp8-tp8"), CALIBRATED, {})


def refusal(spec: Any) -> tuple[str, str]:
    made, error = ffi.new("pk_kernel **"), ffi.new("pk_error *", {"struct_size": ffi.sizeof("pk_error")})
    status = lib.pk_kernel_new(spec.struct, made, error)
    if status == lib.PK_OK:
        lib.pk_kernel_free(made[0])
    return ffi.string(lib.pk_status_name(status)).decode(), ffi.string(error.field).decode()


def numbers(owner: Any, prefix: str) -> Iterator[tuple[Any, str, str]]:
    """Every number of a struct: what holds it, its name, and its dotted name in an error."""
    for name, field in ffi.typeof(owner).fields:
        if field.type.kind == "struct":
            yield from numbers(getattr(owner, name), f"{prefix}{name}.")
        elif field.type.kind == "primitive" and name not in ("struct_size", "flags"):
            yield owner, name, f"{prefix}{name}"


def test_every_floating_point_number_that_is_not_one_is_refused_by_its_name(spec: Any) -> None:
    measured = spec.struct.measured
    owners = [(measured, "measured.")]
    owners += [(getattr(measured, array)[0], f"measured.{array}[0].") for array in COUNTS if array != "capture_sizes"]
    owners += [(getattr(measured, array)[0], f"measured.{array}[0].") for array in ("layers", "attentions", "experts")]
    seen = 0
    for owner, prefix in owners:
        for holder, name, dotted in numbers(owner, prefix):
            kept = getattr(holder, name)
            if not isinstance(kept, float):
                continue
            setattr(holder, name, math.nan)
            assert refusal(spec) == ("SPEC_VALUE", dotted)
            setattr(holder, name, kept)
            seen += 1
    assert seen > 60
    assert refusal(spec) == ("OK", "")


@pytest.mark.parametrize(
    ("array", "name"),
    [
        ("layers", "matrix_first"),
        ("layers", "matrix_count"),
        ("attentions", "decode_law"),
        ("attentions", "prefill_law"),
        ("experts", "law"),
        ("collectives", "law"),
        ("matrices", "law"),
    ],
)
def test_a_reference_outside_its_array_is_refused(spec: Any, array: str, name: str) -> None:
    owner = getattr(spec.struct.measured, array)[0]
    kept = getattr(owner, name)
    setattr(owner, name, 4000)
    assert refusal(spec) == ("SPEC_INDEX", f"measured.{array}[0].{name}")
    setattr(owner, name, kept)


@pytest.mark.parametrize("array", ["matrix_laws", "stream_laws", "expert_laws", "link_laws"])
@pytest.mark.parametrize(("name", "value"), [("exponent", 0), ("exponent", 257), ("reserved", 1)])
def test_exponents_and_reserved_fields_have_their_range(spec: Any, array: str, name: str, value: int) -> None:
    owner = getattr(spec.struct.measured, array)[0]
    kept = getattr(owner, name)
    setattr(owner, name, value)
    assert refusal(spec) == ("SPEC_VALUE", f"measured.{array}[0].{name}")
    setattr(owner, name, kept)


@pytest.mark.parametrize("array", COUNTS)
def test_an_array_that_is_missing_or_absurdly_long_is_refused(spec: Any, array: str) -> None:
    measured, count = spec.struct.measured, COUNTS[array]
    kept = getattr(measured, array)
    setattr(measured, array, ffi.NULL)
    assert refusal(spec) == ("NULL_ARGUMENT", f"measured.{array}")
    setattr(measured, array, kept)
    number = getattr(measured, count)
    setattr(measured, count, 5000)
    assert refusal(spec) == ("SPEC_LIMIT", f"measured.{array}")
    setattr(measured, count, number)


def test_captured_sizes_ascend(spec: Any) -> None:
    sizes = spec.struct.measured.capture_sizes
    kept, sizes[1].tokens = sizes[1].tokens, sizes[0].tokens
    assert refusal(spec) == ("SPEC_VALUE", "measured.capture_sizes")
    sizes[1].tokens = kept


@pytest.mark.parametrize(
    "count", ["layer_count", "attention_count", "scorer_count", "experts_count", "collective_count"]
)
def test_companions_are_as_many_as_what_they_accompany(spec: Any, count: str) -> None:
    kept = getattr(spec.struct.measured, count)
    setattr(spec.struct.measured, count, kept + 1)
    assert refusal(spec) == ("SPEC_VALUE", f"measured.{count}")
    setattr(spec.struct.measured, count, kept)
    assert refusal(spec) == ("OK", "")


def test_without_measured_laws_nothing_of_them_is_read(spec: Any) -> None:
    measured = spec.struct.measured
    kept, measured.present = measured.host.layer, 0
    measured.host.layer = math.nan
    assert refusal(spec) == ("OK", "")
    measured.host.layer, measured.present = kept, 1
