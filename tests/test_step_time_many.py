"""Many steps in one call: the very prices of one by one, from any kind of buffer, with any number of threads."""

from __future__ import annotations

import copy
import pickle
import random
from array import array
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest

import pykernel
from pykernel import RESOURCES, ArgumentError, Batch, BatchError, CostModel, Request, StepEstimate, StepEstimates

LENGTHS = [0, 1, 5, 0, 64, 3, 300, 17, 0]
SETTINGS = {"decode_threshold": 2, "sm_budget": 90, "pad_tokens": 4}
KERNEL = pykernel.open("gpt-oss-120b-h100-fp4-tp2")


def columns(lengths: list[int] = LENGTHS) -> tuple[list[int], list[int], list[int]]:
    generator = random.Random(7)
    total = sum(lengths)
    scheduled = [generator.choice((1, 1, 1, 2, 700)) for _ in range(total)]
    return [0, *accumulate(lengths)], scheduled, [generator.randint(0, 9_000) for _ in range(total)]


def one_by_one(model: CostModel = KERNEL) -> list[StepEstimate]:
    offsets, scheduled, computed = columns()
    rows = [Request(*row, 1) for row in zip(scheduled, computed, strict=True)]
    spans = pairwise(offsets)
    return [model.step_time(Batch(rows[first:end], **SETTINGS)) for first, end in spans]


def as_array(values: list[int]) -> Any:
    return array("q", values)


def as_numpy(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("threads", [1, 2, 3, 50])
@pytest.mark.parametrize("make", [list, tuple, as_array, as_numpy])
def test_prices_are_those_of_one_by_one(make: Callable[[list[int]], Any], threads: int) -> None:
    offsets, scheduled, computed = map(make, columns())
    found = KERNEL.step_time_many(offsets, scheduled, computed, computed, threads=threads, **SETTINGS)
    assert list(found) == one_by_one()


def test_a_model_that_prices_single_steps_prices_many_alike() -> None:
    class Single(type(KERNEL)):  # type: ignore[misc]
        step_time_many = CostModel.step_time_many

    single = Single(pykernel.open_inputs("gpt-oss-120b-h100-fp4-tp2"))
    assert list(single.step_time_many(*columns(), **SETTINGS)) == one_by_one()


def test_results_are_arrays_without_a_copy() -> None:
    found = KERNEL.step_time_many(*columns(), **SETTINGS)
    expected = one_by_one()
    assert isinstance(found, StepEstimates) and len(found) == len(LENGTHS)
    overlap, resources = np.asarray(found.overlap_ns), np.asarray(found.per_resource_ns)
    assert overlap.dtype == resources.dtype == np.int64 and np.asarray(found.bottleneck).dtype == np.int8
    assert resources.shape == (len(LENGTHS), len(RESOURCES))
    assert (resources.sum(axis=1) == np.asarray(found.no_overlap_ns)).all()
    overlap[3] = 5
    assert found.overlap_ns[3] == 5 and found[3].overlap_ns == 5
    assert found[-1] == expected[-1]
    with pytest.raises(IndexError):
        found[len(LENGTHS)]


def test_columns_may_be_parts_of_larger_ones() -> None:
    offsets, scheduled, computed = map(as_numpy, columns())
    found = KERNEL.step_time_many(offsets[4:7], scheduled, computed, **SETTINGS)
    assert list(found) == one_by_one()[4:6]


@pytest.mark.parametrize("travel", [copy.deepcopy, lambda estimates: pickle.loads(pickle.dumps(estimates))])
def test_results_travel_between_processes(travel: Callable[[StepEstimates], StepEstimates]) -> None:
    for offsets in ([0, 1, 3, 3], [0]):
        found = KERNEL.step_time_many(offsets, [1, 1, 512], [9, 4095, 0])
        again = travel(found)
        assert list(again) == list(found) and len(again) == len(offsets) - 1
        assert again.per_resource_ns.shape == found.per_resource_ns.shape


def test_nothing_to_price_is_no_steps() -> None:
    found = KERNEL.step_time_many([0], [], [])
    assert len(found) == 0 and list(found) == []
    assert list(KERNEL.step_time_many([0, 0, 0], [], [])) == [KERNEL.step_time(Batch())] * 2


@pytest.mark.parametrize("threads", [1, 4])
def test_the_step_and_request_at_fault_are_named(threads: int) -> None:
    offsets, scheduled, computed = columns()
    scheduled[offsets[6] + 2] = -1
    with pytest.raises(BatchError, match=r"batches\[6\]\.scheduled\[2\]"):
        KERNEL.step_time_many(offsets, scheduled, computed, threads=threads)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"offsets": []}, "offsets is empty"),
        ({"offsets": [0, 4]}, "offsets ends at 4"),
        ({"offsets": [0, 2, 1, 3]}, r"batches.offsets\[2\]"),
        ({"offsets": [-1, 2]}, r"batches.offsets\[0\]"),
        ({"computed": [1, 2]}, "computed 2"),
        ({"cached_tokens": [1, 2]}, "cached_tokens 2"),
        ({"scheduled": [1, 1, 1.5]}, "1.5"),
        ({"scheduled": np.ones(3, np.int32)}, "64-bit"),
        ({"threads": 0}, "threads is 0"),
        ({"sm_budget": "all"}, "sm_budget"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"offsets": [0, 1, 3], "scheduled": [1, 1, 1], "computed": [5, 5, 5]} | change
    with pytest.raises(ArgumentError, match=words):
        KERNEL.step_time_many(**arguments)


def test_a_single_pricing_model_refuses_offsets_as_well() -> None:
    with pytest.raises(ArgumentError, match="never fall"):
        CostModel.step_time_many(KERNEL, [0, 2, 1, 3], [1, 1, 1], [5, 5, 5])
