"""Times of every call that matters, by pytest-benchmark, and the ratios that they must keep.

    make bench

A limit is held by the best of many runs, so that a busy machine shows in the spread of a table and not as a failure.
"""

from __future__ import annotations

from typing import Any

import pytest
from core import build, times
from measures import (
    SIZES,
    STARTS,
    Measure,
    array,
    building,
    no_op,
    opening,
    running,
    scalar,
    start_ns,
)

MEASURES = [
    no_op(),
    *(measure for count in SIZES for measure in scalar(count)),
    *(measure for count in (1, 4_096) for measure in running(count)),
    *array(),
    *(measure for count in SIZES for measure in building(count)),
    *opening(),
]


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_time_from_python(measure: Measure, benchmark: Any) -> None:
    benchmark.extra_info["answers per call"] = measure.per
    benchmark(measure.call)


@pytest.fixture(scope="module")
def core_ns() -> dict[str, float]:
    found: dict[str, float] = times(build())
    return found


def test_time_of_the_core(benchmark: Any, core_ns: dict[str, float]) -> None:
    """The C driver's own figures are in the extra information; pytest-benchmark's is that of starting it."""
    benchmark.extra_info |= core_ns
    benchmark.pedantic(build, rounds=1)


@pytest.mark.parametrize("name", STARTS)
def test_time_of_a_start(name: str, benchmark: Any) -> None:
    benchmark.extra_info["best ns in a fresh process"] = start_ns(name)
    benchmark.pedantic(lambda: start_ns(name, 1), rounds=1)


@pytest.mark.parametrize("count", SIZES)
def test_pricing_from_python_costs_little_more_than_the_call(
    benchmark: Any, count: int, core_ns: dict[str, float]
) -> None:
    decodes = "1 decode" if count == 1 else f"{count} decodes"
    unit = no_op().ns() + core_ns[f"deepseek-v3: {decodes}"]
    into, _, fresh = (measure.ns() for measure in scalar(count))
    benchmark.extra_info |= {"c": unit, "step_time_into": into, "step_time": fresh}
    benchmark.pedantic(lambda: None, rounds=1)
    assert into <= 2 * unit and fresh <= 5 * unit, benchmark.extra_info


def test_a_batch_of_an_array_is_priced_in_600_ns(benchmark: Any) -> None:
    benchmark.pedantic(lambda: None, rounds=1)
    assert array()[0].ns() <= 600


def test_a_process_starts_soon(benchmark: Any) -> None:
    benchmark.pedantic(lambda: None, rounds=1)
    found = {name: start_ns(name) / 1e6 for name in STARTS}
    assert {name: ms for name, ms in found.items() if ms > STARTS[name][2]} == {}
    assert opening()[0].ns() / 1e6 <= 60
