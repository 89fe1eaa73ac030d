"""Bytes of many sequences and times of many transfers in one call: those of one by one."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

import pykernel
from pykernel import ArgumentError, CostModel, Placement
from pykernel._native import ffi, lib

TOKENS = [0, 1, 15, 16, 17, 4_096, 100_000, -3, 2**40]
KERNEL = pykernel.open_pool("minimax-m2.5-h200-disagg", 1)
ENDS = (Placement(node=0, rack=0, pool=0), Placement(node=5, rack=1, pool=1))


@pytest.mark.parametrize("make", [list, tuple, lambda values: array("q", values), np.array])
def test_many_are_those_of_one_by_one(make: Any) -> None:
    held = KERNEL.sequence_variable_bytes_many(make(TOKENS))
    assert list(held) == [KERNEL.sequence_variable_bytes(count) for count in TOKENS]
    taken = KERNEL.pd_transfer_time_many(make(TOKENS), *ENDS)
    assert list(taken) == [KERNEL.pd_transfer_time_ns(count, *ENDS) for count in TOKENS]
    assert np.asarray(held).dtype == np.asarray(taken).dtype == np.int64
    assert len(set(held)) > 3 and len(set(taken)) > 3


def test_a_model_that_answers_one_by_one_answers_many_alike() -> None:
    assert CostModel.sequence_variable_bytes_many(KERNEL, TOKENS) == KERNEL.sequence_variable_bytes_many(TOKENS)
    found = CostModel.pd_transfer_time_many(KERNEL, TOKENS, *ENDS)
    assert found == KERNEL.pd_transfer_time_many(TOKENS, *ENDS)


def test_none_are_none() -> None:
    assert list(KERNEL.sequence_variable_bytes_many([])) == []
    assert list(KERNEL.pd_transfer_time_many(np.array([], np.int64), *ENDS)) == []


def test_what_is_no_count_is_refused() -> None:
    with pytest.raises(ArgumentError, match="tokens"):
        KERNEL.sequence_variable_bytes_many([1, "2"])
    with pytest.raises(ArgumentError, match="64-bit"):
        KERNEL.pd_transfer_time_many(np.ones(3), *ENDS)


def test_missing_arrays_are_named() -> None:
    error = ffi.new("pk_error *", {"struct_size": ffi.sizeof("pk_error")})
    kernel, room = ffi.cast("pk_kernel *", 0x1000), ffi.new("int64_t[1]")
    for arguments, named in (
        ((ffi.NULL, 1, room, room), b"kernel"),
        ((kernel, -1, room, room), b"count"),
        ((kernel, 1, ffi.NULL, room), b"tokens"),
        ((kernel, 1, room, ffi.NULL), b"bytes"),
    ):
        assert lib.pk_sequence_variable_bytes_many(*arguments, error) != lib.PK_OK
        assert ffi.string(error.field) == named
    assert lib.pk_pd_transfer_time_many(kernel, 1, room, ffi.NULL, ffi.NULL, room, error) == lib.PK_NULL_ARGUMENT
    assert ffi.string(error.field) == b"source"
