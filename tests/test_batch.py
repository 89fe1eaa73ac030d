"""The batch of a step: what it accepts, what it borrows, what it counts, and how it names what is wrong."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import weakref
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pykernel import ArgumentError, Batch, BatchError, Request
from pykernel._native import lib

MOST_OF_A_REQUEST = lib.PK_MAX_REQUEST_TOKENS
MOST_OF_A_STEP = lib.PK_MAX_BATCH_TOKENS

SCHEDULED, COMPUTED, PROMPT, CACHED = [1, 1, 512], [4095, 812, 64], [1024, 700, 576], [0, 512, 16]


def arrays(*, cached: bool = True, make: Callable[[list[int]], Any] = lambda values: array("q", values)) -> list[Any]:
    return [
        make(values) for values in ([SCHEDULED, COMPUTED, PROMPT, CACHED] if cached else [SCHEDULED, COMPUTED, PROMPT])
    ]


def batch_of(scheduled: int = 1, computed: int = 0, prompt_len: int = 1, cached: int = 0, **settings: int) -> Batch:
    return Batch([Request(1, 10, 10), Request(scheduled, computed, prompt_len, cached)], **settings)


# ---- what a batch is made of ---------------------------------------------------------------------------------------

SOURCES: dict[str, Callable[[list[int]], Any]] = {
    "array": lambda values: array("q", values),
    "numpy": lambda values: np.array(values, dtype=np.int64),
    "memoryview": lambda values: memoryview(array("q", values)),
    "slice of a memoryview": lambda values: memoryview(array("q", [7, *values, 7]))[1:-1],
    "slice of numpy": lambda values: np.array([7, *values, 7], dtype=np.int64)[1:-1],
    "read-only bytes": lambda values: memoryview(array("q", values).tobytes()).cast("q"),
    "list": list,
    "tuple": tuple,
    "numbers of numpy": lambda values: [np.int32(value) for value in values],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("cached", [True, False])
def test_every_source_of_integers_gives_the_same_requests(source: str, cached: bool) -> None:
    batch = Batch.from_arrays(*arrays(cached=cached, make=SOURCES[source]))
    batch.validate()
    assert list(batch) == [
        Request(*row) for row in zip(SCHEDULED, COMPUTED, PROMPT, CACHED if cached else [0] * 3, strict=True)
    ]


def test_requests_come_back_as_they_were_given() -> None:
    requests = [Request(1, 4095, 1024), Request(512, 64, 576, 16)]
    batch = Batch(requests)
    assert len(batch) == 2
    assert list(batch) == requests
    assert all(type(value) is int for request in batch for value in (request.scheduled, request.cached_tokens))


def test_requests_may_come_from_a_generator() -> None:
    assert Batch(Request(1, context, 1) for context in range(5)).tokens() == 5


@pytest.mark.parametrize("empty", [Batch, lambda: Batch.from_arrays([], [], []), lambda: Batch([])])
def test_a_batch_without_requests_is_legal(empty: Callable[[], Batch]) -> None:
    batch = empty()
    batch.validate()
    assert (len(batch), list(batch), batch.tokens()) == (0, [], 0)
    assert not batch.uniform_decode(1)


@pytest.mark.parametrize("make", [SOURCES["array"], SOURCES["numpy"], SOURCES["memoryview"]])
def test_empty_buffers_are_legal(make: Callable[[list[int]], Any]) -> None:
    batch = Batch.from_arrays(make([]), make([]), make([]), make([]), pad_tokens=3)
    batch.validate()
    assert (len(batch), batch.padded_tokens()) == (0, 3)


def test_settings_are_kept() -> None:
    batch = Batch.from_arrays([1], [1], [1], decode_threshold=4, sm_budget=-7, pad_tokens=9)
    assert (batch.decode_threshold, batch.sm_budget, batch.pad_tokens) == (4, -7, 9)
    plain = Batch()
    assert (plain.decode_threshold, plain.sm_budget, plain.pad_tokens) == (1, 0, 0)


# ---- counting ------------------------------------------------------------------------------------------------------


def test_tokens_are_the_scheduled_ones_and_pads_come_on_top() -> None:
    batch = Batch.from_arrays(*arrays(), pad_tokens=100)
    assert (batch.tokens(), batch.padded_tokens()) == (514, 614)
    assert "3 requests, 514 tokens" in repr(batch)


@pytest.mark.parametrize(
    ("scheduled", "width", "uniform"),
    [
        ([1, 1, 1], 1, True),
        ([1, 1, 1], 3, False),
        ([3, 3], 3, True),
        ([3, 1], 3, False),
        ([1, 3], 3, False),
        ([1, 0], 1, False),
        ([0, 0], 0, True),
        ([512], 512, True),
        ([], 1, False),
    ],
)
def test_a_uniform_decode_schedules_one_width_everywhere(scheduled: list[int], width: int, uniform: bool) -> None:
    batch = Batch(Request(tokens, 10, 10) for tokens in scheduled)
    assert batch.uniform_decode(width) is uniform


# ---- borrowing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [SOURCES["array"], SOURCES["numpy"], SOURCES["memoryview"]])
def test_edits_of_a_borrowed_array_are_seen(make: Callable[[list[int]], Any]) -> None:
    given = arrays(make=make)
    batch = Batch.from_arrays(*given)
    given[0][2], given[1][0] = 99, -1
    assert batch.tokens() == 101
    assert [request.scheduled for request in batch] == [1, 1, 99]
    with pytest.raises(BatchError, match=r"computed\[0\]"):
        batch.validate()


def test_a_list_is_copied() -> None:
    given = [list(values) for values in (SCHEDULED, COMPUTED, PROMPT)]
    batch = Batch.from_arrays(*given)
    given[0][2] = 99
    assert batch.tokens() == sum(SCHEDULED)


def test_a_borrowed_array_cannot_be_resized_under_the_batch() -> None:
    given = arrays()
    batch = Batch.from_arrays(*given)
    with pytest.raises(BufferError):
        given[0].append(1)
    del batch
    gc.collect()
    given[0].append(1)


def test_borrowed_arrays_live_as_long_as_the_batch() -> None:
    given = arrays(make=SOURCES["numpy"])
    alive = [weakref.ref(values) for values in given]
    batch = Batch.from_arrays(*given)
    del given
    gc.collect()
    assert all(reference() is not None for reference in alive)
    assert batch.tokens() == sum(SCHEDULED)
    del batch
    gc.collect()
    assert all(reference() is None for reference in alive)


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_the_collector_may_take_a_batch_in_a_cycle(make: Callable[[list[int]], Any]) -> None:
    gc.freeze()  # leaves what other tests hold out of the collections, which would take seconds
    for _ in range(20):
        cycle: list[Any] = [Batch.from_arrays(*arrays(make=make))]
        cycle.append(cycle)
        del cycle
        gc.collect()  # a batch that holds on to a cleared memoryview ends the process here, or warns
    gc.unfreeze()


def test_a_view_may_be_released_while_a_batch_borrows_its_memory() -> None:
    owners = arrays()
    views = [memoryview(owner) for owner in owners]
    batch = Batch.from_arrays(*views)
    for view in views:
        view.release()
    with pytest.raises(BufferError):
        owners[0].append(1)
    batch.validate()


# ---- refused when made ---------------------------------------------------------------------------------------------

WRONG_BUFFERS: dict[str, Callable[[], Any]] = {
    "32-bit array": lambda: array("i", SCHEDULED),
    "unsigned array": lambda: array("Q", SCHEDULED),
    "array of floats": lambda: array("d", SCHEDULED),
    "bytes": lambda: bytes(3),
    "32-bit numpy": lambda: np.array(SCHEDULED, dtype=np.int32),
    "unsigned numpy": lambda: np.array(SCHEDULED, dtype=np.uint64),
    "floats of numpy": lambda: np.array(SCHEDULED, dtype=np.float64),
    "other byte order": lambda: np.array(SCHEDULED, dtype=np.dtype(np.int64).newbyteorder()),
    "two dimensions": lambda: np.zeros((3, 1), dtype=np.int64),
    "no dimension": lambda: np.array(3, dtype=np.int64),
    "every other entry": lambda: np.zeros(6, dtype=np.int64)[::2],
    "backwards": lambda: np.array(SCHEDULED, dtype=np.int64)[::-1],
}


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("wrong", WRONG_BUFFERS)
def test_a_buffer_of_another_layout_is_refused_by_the_name_of_its_argument(wrong: str, place: int) -> None:
    given = arrays()
    given[place] = WRONG_BUFFERS[wrong]()
    with pytest.raises(ArgumentError, match=("scheduled", "computed", "prompt_len", "cached_tokens")[place]):
        Batch.from_arrays(*given)


@pytest.mark.parametrize("place", range(4))
def test_unequal_lengths_are_refused_with_the_lengths(place: int) -> None:
    given = arrays()
    given[place] = given[place][:2]
    with pytest.raises(ArgumentError, match="one length") as caught:
        Batch.from_arrays(*given)
    assert "2" in str(caught.value) and "3" in str(caught.value)


NO_INTEGERS = [1.0, 1.5, "1", None, True, False, 2**63, -(2**63) - 1, 3j, [1]]


@pytest.mark.parametrize("field", ["scheduled", "computed", "prompt_len", "cached_tokens"])
@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
def test_a_request_of_something_else_than_integers_is_refused(field: str, value: Any) -> None:
    values = {"scheduled": 1, "computed": 1, "prompt_len": 1, "cached_tokens": 1} | {field: value}
    with pytest.raises(ArgumentError, match=field):
        Batch([Request(**values)])
    with pytest.raises(ArgumentError, match=field):
        Batch.from_arrays(**{name: [number] for name, number in values.items()})


@pytest.mark.parametrize("setting", ["decode_threshold", "sm_budget", "pad_tokens"])
@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
def test_a_setting_that_is_no_integer_is_refused(setting: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=setting):
        Batch([Request(1, 1, 1)], **{setting: value})
    with pytest.raises(ArgumentError, match=setting):
        Batch.from_arrays([1], [1], [1], **{setting: value})


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("value", [5, 1.5, None], ids=repr)
def test_something_that_is_no_sequence_is_refused(place: int, value: Any) -> None:
    given = arrays()
    given[place] = value
    with pytest.raises(ArgumentError, match=("scheduled", "computed", "prompt_len")[place]):
        Batch.from_arrays(*given)


# ---- refused when validated ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "place", "found"),
    [
        ({"scheduled": -1}, "scheduled[1]", "-1"),
        ({"scheduled": MOST_OF_A_REQUEST + 1}, "scheduled[1]", f"{MOST_OF_A_REQUEST + 1}"),
        ({"computed": -1}, "computed[1]", "-1"),
        ({"scheduled": 2, "computed": MOST_OF_A_REQUEST - 1}, "computed[1]", f"{MOST_OF_A_REQUEST - 1}"),
        ({"computed": 2**63 - 1}, "computed[1]", "9223372036854775807"),
        ({"scheduled": -(2**63)}, "scheduled[1]", "-9223372036854775808"),
        ({"prompt_len": -1}, "prompt_len[1]", "-1"),
        ({"cached": -3}, "cached_tokens[1]", "-3"),
        ({"decode_threshold": -1}, "decode_threshold", "-1"),
        ({"pad_tokens": -1}, "pad_tokens", "-1"),
        ({"pad_tokens": MOST_OF_A_STEP + 1}, "pad_tokens", f"{MOST_OF_A_STEP + 1}"),
    ],
)
def test_a_value_no_scheduler_makes_is_named_with_its_request(values: dict[str, int], place: str, found: str) -> None:
    batch = batch_of(**values)
    with pytest.raises(BatchError) as caught:
        batch.validate()
    assert place in str(caught.value) and found in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"scheduled": 0, "computed": 0, "prompt_len": 0},
        {"scheduled": MOST_OF_A_REQUEST - 1, "computed": 1},
        {"scheduled": 1, "computed": MOST_OF_A_REQUEST - 1},
        {"computed": 100, "prompt_len": 7},  # generation runs past the prompt
        {"prompt_len": 2**63 - 1, "cached": 2**63 - 1},
        {"decode_threshold": 0},
        {"decode_threshold": 2**63 - 1},
        {"sm_budget": -(2**63)},
        {"pad_tokens": MOST_OF_A_STEP - 2},
    ],
    ids=repr,
)
def test_a_value_at_its_limit_is_accepted(values: dict[str, int]) -> None:
    batch_of(**values).validate()


def test_the_tokens_of_a_step_are_limited_pads_included() -> None:
    requests = [Request(MOST_OF_A_STEP // 2, 0, 1), Request(MOST_OF_A_STEP - MOST_OF_A_STEP // 2 - 10, 0, 1)]
    Batch(requests, pad_tokens=10).validate()
    with pytest.raises(BatchError, match=f"{MOST_OF_A_STEP + 1} tokens") as caught:
        Batch(requests, pad_tokens=11).validate()
    assert str(MOST_OF_A_STEP) in str(caught.value)


def test_the_first_request_at_fault_is_the_one_named() -> None:
    requests = [Request(1, 1, 1), Request(1, 1, -1), Request(-1, 1, 1)]
    with pytest.raises(BatchError, match=r"prompt_len\[1\]"):
        Batch(requests).validate()


def test_validating_changes_nothing_and_may_be_repeated() -> None:
    batch = batch_of(scheduled=-1)
    for _ in range(2):
        with pytest.raises(BatchError, match=r"scheduled\[1\]"):
            batch.validate()
    assert batch.tokens() == 0


# ---- travelling ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("travel", [lambda batch: pickle.loads(pickle.dumps(batch)), copy.copy, copy.deepcopy])
def test_a_copy_has_everything_and_shares_nothing(travel: Callable[[Batch], Batch], cached: bool) -> None:
    given = arrays(cached=cached, make=SOURCES["numpy"])
    batch = Batch.from_arrays(*given, decode_threshold=3, sm_budget=7, pad_tokens=5)
    other = travel(batch)
    requests = list(batch)
    given[0][0] = 9
    assert list(other) == requests != list(batch)
    assert (other.decode_threshold, other.sm_budget, other.pad_tokens) == (3, 7, 5)
    other.validate()


def test_a_batch_can_be_walked_twice_at_once() -> None:
    batch = Batch.from_arrays(*arrays())
    assert [(a, b) for a, b in itertools.product(batch, batch)] == list(itertools.product(list(batch), list(batch)))


@pytest.mark.parametrize("cached", [None, [0, 0]])
def test_a_column_is_the_batchs_own_memory(cached: list[int] | None) -> None:
    computed = array("q", [7, 9])
    batch = Batch.from_arrays([1, 2], computed, [8, 11], cached)
    column = batch.column("computed")
    computed[0] = 70
    assert column.tolist() == [70, 9] and column.readonly
    assert batch.column("scheduled").tolist() == [1, 2]
    assert Batch().column("scheduled").tolist() == []
