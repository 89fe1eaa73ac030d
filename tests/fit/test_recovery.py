"""Fits of tables that a law itself has made: each primitive's coefficients come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from pykernel.fit.robust import Fit, fit
from pykernel.fit.tables import Tables, chip_of
from tests.fit.synthetic import PART, SHAPES, target, truth, write_by_law


def fitted(root: Path, name: str) -> Fit:
    one = target(name)
    sample = one.sample(Tables(root, "synthetic"), PART)
    assert sample is not None
    return fit(f"{name} h100", one.form, sample, one.part(chip_of(PART)))


DETERMINED = {
    "gemm_bf16": ("floor", "compute_efficiency", "memory_efficiency", "wave", "exponent"),
    "decode_bf16": ("floor", "memory_efficiency", "occupancy"),
    "prefill_bf16": ("floor", "compute_efficiency", "occupancy"),
    "latent_decode_bf16": ("floor", "memory_efficiency", "compute_efficiency"),
    "latent_prefill_bf16": ("floor", "occupancy"),
    "sparse_fp8": ("floor", "compute_efficiency"),
    "sliced_experts_bf16": ("floor", "compute_efficiency", "memory_efficiency"),
    "dealt_experts_bf16": ("floor", "compute_efficiency", "memory_efficiency"),
    "all_reduce_nccl": ("floor", "link_efficiency", "exponent"),
    "all_reduce_graph": ("floor", "link_efficiency", "exponent"),
}
"""Coefficients that the shapes of a table tell apart; of the others only what they do together shows in its times."""


@pytest.mark.parametrize("name", SHAPES)
def test_a_law_is_recovered_from_its_own_times(tmp_path: Path, name: str) -> None:
    write_by_law(tmp_path, name)
    found = fitted(tmp_path, name)
    assert found.median < 0.002
    assert found.p90 < 0.01
    names = target(name).form.names
    values, true = dict(zip(names, found.values, strict=True)), dict(zip(names, truth(target(name)), strict=True))
    for coefficient in DETERMINED[name]:
        assert values[coefficient] == pytest.approx(true[coefficient], rel=0.05), coefficient


def test_outliers_do_not_move_a_fit(tmp_path: Path) -> None:
    """Every eighth launch took ten times as long."""
    path = write_by_law(tmp_path, "gemm_bf16")
    clean = fitted(tmp_path, "gemm_bf16")
    table = pyarrow.parquet.read_table(path)
    latency = table["latency"].to_numpy().copy()
    latency[::8] *= 10
    pyarrow.parquet.write_table(table.set_column(table.column_names.index("latency"), "latency", [latency]), path)
    moved = fitted(tmp_path, "gemm_bf16")
    assert moved.p90 > 0.8
    # Least squares of the logarithms would miss by an eighth of them: 10 ** (1 / 8), a third.
    assert moved.median < 0.05
    for name in ("compute_efficiency", "memory_efficiency"):
        at = target("gemm_bf16").form.names.index(name)
        assert moved.values[at] == pytest.approx(clean.values[at], rel=0.1)


def test_half_of_the_shapes_are_held_out_and_always_the_same(tmp_path: Path) -> None:
    write_by_law(tmp_path, "all_reduce_graph")
    one = target("all_reduce_graph")
    sample = one.sample(Tables(tmp_path, "synthetic"), PART)
    assert sample is not None
    part = one.part(chip_of(PART))
    first, again = (fit("a name", one.form, sample, part) for _ in range(2))
    assert first.points + len(first.held_out) == len(sample)
    assert abs(first.points - len(first.held_out)) <= 1
    assert (first.values == again.values).all()
    assert (first.measured == again.measured).all()
    # The half that is held out is in no way the half that is fitted: it follows the name alone.
    assert (fit("another", one.form, sample, part).measured != first.measured).any()


def test_what_was_held_out_does_not_move_a_fit(tmp_path: Path) -> None:
    write_by_law(tmp_path, "all_reduce_graph")
    one = target("all_reduce_graph")
    sample = one.sample(Tables(tmp_path, "synthetic"), PART)
    assert sample is not None
    part = one.part(chip_of(PART))
    first = fit("a name", one.form, sample, part)
    spoiled = replace(sample, seconds=np.where(np.isin(sample.seconds, first.measured), 1.0, sample.seconds))
    second = fit("a name", one.form, spoiled, part)
    assert (second.values == first.values).all()
    assert second.median > 0.5
