"""What stands for a shape that was measured, lies between measured ones, or is too far from all of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pykernel_interpolated import shapes
from pykernel_interpolated.tables import measured, tables_at
from small_tables import Row, gemm, milliseconds, write

from pykernel import RefusedError
from pykernel.fit.tables import Tables


@pytest.fixture
def found(root: Path) -> Tables:
    return tables_at(str(root))


def ms(seconds: float) -> float:
    return seconds * 1e3


def test_a_measured_matrix_takes_the_measured_time(found: Tables) -> None:
    curve = shapes.matrix(found, "h100", "bf16", 1024, 16384)
    assert ms(curve.at(256)) == pytest.approx(milliseconds(2 * 256 * 1024 * 16384, 2 * 1024 * 16384))


def test_a_matrix_between_four_measured_ones_takes_their_geometric_mean(found: Tables) -> None:
    corners = [milliseconds(2 * n * k, 2 * n * k) for n in (1024, 16384) for k in (1024, 16384)]
    curve = shapes.matrix(found, "h100", "bf16", 4096, 4096)
    assert ms(curve.at(1)) == pytest.approx(math.prod(corners) ** 0.25)


def test_a_wider_matrix_than_any_takes_longer_in_proportion_and_a_narrower_one_as_long(found: Tables) -> None:
    widest = shapes.matrix(found, "h100", "bf16", 65536, 1024)
    assert shapes.matrix(found, "h100", "bf16", 2 * 65536, 1024).at(16) == pytest.approx(2 * widest.at(16))
    narrowest = shapes.matrix(found, "h100", "bf16", 64, 1024)
    assert shapes.matrix(found, "h100", "bf16", 32, 1024).at(16) == pytest.approx(narrowest.at(16))


def test_a_matrix_far_outside_the_table_is_refused_with_what_it_covers(found: Tables) -> None:
    with pytest.raises(RefusedError, match=r"gemm in bf16 of n 300000, k 1024 .*gemm_perf.csv.*n 64 to 65536"):
        shapes.matrix(found, "h100", "bf16", 300_000, 1024)


def test_in_a_table_with_holes_the_nearest_matrix_stands_in(tmp_path: Path) -> None:
    rows = [row for row in gemm() if row["n"] == row["k"]]
    write(tmp_path / "h100_sxm/gemm/vllm/0.1/gemm_perf.csv", rows)
    found = tables_at(str(tmp_path))
    measured_ms = milliseconds(2 * 16 * 1024 * 1024, 2 * 1024 * 1024)
    assert ms(shapes.matrix(found, "h100", "bf16", 1024, 2048).at(16)) == pytest.approx(2 * measured_ms)
    with pytest.raises(RefusedError, match="more than 4 times away"):
        shapes.matrix(found, "h100", "bf16", 64, 16384)


def test_a_shape_keeps_the_kernel_that_it_was_measured_with(tmp_path: Path) -> None:
    rows = [{**row, "kernel_source": "odd" if row["n"] == 64 else "usual"} for row in gemm()]
    write(tmp_path / "h100_sxm/gemm/vllm/0.1/gemm_perf.csv", rows)
    curve = shapes.matrix(tables_at(str(tmp_path)), "h100", "bf16", 64, 1024)
    assert ms(curve.at(16)) == pytest.approx(milliseconds(2 * 16 * 64 * 1024, 2 * 64 * 1024))


def test_a_decode_takes_the_measured_time_and_other_heads_in_proportion(found: Tables) -> None:
    of: dict[str, Any] = {"operation": "decode", "format_": "bf16", "work": 4.0 * 32 * 128}
    own = shapes.decode(found, "h100", kv_heads=8, read=4.0 * 8 * 128, **of)
    assert ms(own.at(16, 4096)) == pytest.approx(milliseconds(0, 16 * 4096 * 4 * 8 * 128))
    of["work"] = 4.0 * 64 * 128
    twice = shapes.decode(found, "h100", kv_heads=16, read=4.0 * 16 * 128, **of)
    measured_heads = shapes.decode(found, "h100", kv_heads=8, read=4.0 * 8 * 128, **of)
    assert twice.at(16, 4096) == pytest.approx(2 * measured_heads.at(16, 4096))
    with pytest.raises(RefusedError, match="kv heads 1 to 8"):
        shapes.decode(found, "h100", kv_heads=64, read=4.0 * 64 * 128, **of)


def test_a_prefill_is_found_by_its_pairs(found: Tables) -> None:
    surface = shapes.prefill(found, "h100", "prefill", "bf16", 32, 8, 128)
    assert ms(surface.at(8, 1024 * 1024 / 2)) == pytest.approx(milliseconds(2 * 8 * 1024**2 * 32 * 128, 0))


def test_experts_of_another_shape_take_the_nearest_ones_time_at_the_same_load(found: Tables) -> None:
    own = shapes.experts(found, "h200", "fp8_block", 7168, 256, 8, 256, 1)
    weight = 3 * 7168 * 256
    assert ms(own.at(256)) == pytest.approx(milliseconds(2 * 256 * 8 * weight, 256 * weight))
    half_as_many = shapes.experts(found, "h200", "fp8_block", 7168, 256, 8, 128, 1)
    assert half_as_many.at(128) == pytest.approx(own.at(256) / 2)
    with pytest.raises(RefusedError, match=r"experts in fp8_block of hidden 7168, width 16384"):
        shapes.experts(found, "h200", "fp8_block", 7168, 16384, 8, 256, 1)


def test_a_collective_takes_the_measured_time_of_what_crosses_a_link(found: Tables) -> None:
    curve = shapes.link(found, "h100", "all_gather", "nccl", 8)
    assert ms(curve.at(65536 * 2 * 7 / 8)) == pytest.approx((1e-5 + 2 * 65536 / 3e11) * 1e3)
    assert shapes.link(found, "h100", "all_gather", "nccl", 16) == curve
    with pytest.raises(RefusedError, match="ranks 64"):
        shapes.link(found, "h100", "all_gather", "nccl", 64)


def test_a_format_that_was_not_measured_takes_one_that_reads_and_computes_alike(found: Tables) -> None:
    assert measured(found, "h100", "gemm", "fp8_block").name == "gemm in fp8"
    with pytest.raises(RefusedError, match="no table of gemm in nvfp4 for h100"):
        measured(found, "h100", "gemm", "nvfp4")


def test_a_part_without_tables_is_refused(found: Tables) -> None:
    with pytest.raises(RefusedError, match="no table of gemm in bf16 for b200"):
        measured(found, "b200", "gemm", "bf16")


def test_parquet_is_read_like_csv(tmp_path: Path, found: Tables) -> None:
    import pyarrow
    import pyarrow.parquet

    rows: list[Row] = list(gemm())
    table = pyarrow.table({name: [row[name] for row in rows] for name in rows[0]})
    path = tmp_path / "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
    path.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(table, path)
    other = tables_at(str(tmp_path))
    assert shapes.matrix(other, "h100", "fp8", 5120, 777) == shapes.matrix(found, "h100", "fp8", 5120, 777)
