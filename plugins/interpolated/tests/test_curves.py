"""Curves and surfaces, at values that are easy to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pykernel_interpolated.curves import curve, mean, surface


def test_a_measured_load_takes_the_measured_time() -> None:
    found = curve(np.array([1.0, 4.0, 16.0]), np.array([2.0, 3.0, 12.0]))
    assert [found.at(load) for load in (1, 4, 16)] == pytest.approx([2.0, 3.0, 12.0], rel=1e-12)


def test_between_loads_the_logarithms_are_on_a_line() -> None:
    found = curve(np.array([1.0, 4.0, 16.0]), np.array([2.0, 3.0, 12.0]))
    assert found.at(2) == pytest.approx(math.sqrt(2 * 3))
    assert found.at(8) == pytest.approx(6.0)


def test_less_than_the_smallest_load_takes_as_long_and_more_than_the_largest_in_proportion() -> None:
    found = curve(np.array([4.0, 16.0]), np.array([3.0, 12.0]))
    assert found.at(1) == pytest.approx(3.0)
    assert found.at(16_000) == pytest.approx(12_000.0)


def test_points_of_one_load_count_as_their_median() -> None:
    assert curve(np.array([4.0, 2.0, 4.0, 4.0]), np.array([9.0, 1.0, 5.0, 4.0])).at(4) == pytest.approx(5.0)


def test_a_surface_interpolates_between_its_curves() -> None:
    found = surface(np.array([1.0, 1.0, 4.0, 4.0]), np.array([10.0, 40.0, 10.0, 40.0]), np.array([1.0, 2.0, 4.0, 8.0]))
    assert found.at(1, 10) == pytest.approx(1.0)
    assert found.at(2, 10) == pytest.approx(2.0)
    assert found.at(2, 20) == pytest.approx(2 * math.sqrt(2))
    assert found.at(0.5, 10) == pytest.approx(1.0)
    assert found.at(8, 40) == pytest.approx(16.0)


def test_scaling_moves_a_curve_in_time_and_in_load() -> None:
    found = curve(np.array([1.0, 4.0]), np.array([2.0, 8.0])).scaled(times=3, loads=2)
    assert found.at(2) == pytest.approx(6.0)
    assert found.at(8) == pytest.approx(24.0)


def test_a_mean_knows_every_load_of_its_curves() -> None:
    low, high = curve(np.array([1.0, 4.0]), np.array([1.0, 4.0])), curve(np.array([1.0, 2.0]), np.array([4.0, 16.0]))
    found = mean([low, high], [0.5, 0.5])
    assert found.at(1) == pytest.approx(2.0)
    assert found.at(2) == pytest.approx(math.sqrt(2 * 16))
