"""Finding and reading tables of measured kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from pykernel.errors import ArgumentError
from pykernel.fit.families import expert_sampler
from pykernel.fit.run import fit_all
from pykernel.fit.tables import Tables, dominant_kernel, find_tables, read, select
from pykernel.measured.laws import EXPERT_PRIMITIVES
from tests.fit.synthetic import EXPERTS, PART, RANKS, ROUTED, SHAPES, Shapes

SMALL = Shapes("gemm", "vllm", "gemm", {"gemm_dtype": "bfloat16"}, {"m": [1, 2, 3], "n": [512], "k": [512]})


def test_a_table_is_read_by_column(tmp_path: Path) -> None:
    table = read(SMALL.write(tmp_path, np.array([0.5, 1.5, 2.5])))
    assert list(table["m"]) == [1, 2, 3]
    assert list(table["latency"]) == [0.5, 1.5, 2.5]
    assert list(table["gemm_dtype"]) == ["bfloat16"] * 3


def test_launches_without_a_time_are_left_out(tmp_path: Path) -> None:
    assert list(read(SMALL.write(tmp_path, np.array([0.0, 1.5, np.nan])))["m"]) == [2]


def test_the_newest_version_that_has_the_operation_counts(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.24.0rc1", "0.24.0", "0.10.1"):
        SMALL.write(tmp_path, 1.0, version)
    (tmp_path / PART / "gemm" / "vllm" / "0.30.0").mkdir()
    tables = Tables(tmp_path, "synthetic")

    def version(before: tuple[int, ...] = ()) -> str:
        path = tables.latest(PART, "gemm", "vllm", "gemm", before)
        return path.parent.name if path else ""

    assert version() == "0.24.0"
    assert version(before=(0, 24)) == "0.10.1"
    assert version(before=(0, 9)) == ""


def test_rows_are_selected_and_those_of_the_most_frequent_kernel_kept(tmp_path: Path) -> None:
    table = {
        "latency": np.array([1.0, 2.0, 3.0, 4.0]),
        "kernel_source": np.array(["rare", "often", "often", "rare"]),
        "kind": np.array(["a", "a", "b", "b"]),
    }
    assert list(select(table, kind="b")["latency"]) == [3, 4]
    assert list(dominant_kernel({name: values[:3] for name, values in table.items()})["latency"]) == [2, 3]


def test_the_kernel_of_experts_is_looked_for_among_those_of_a_primitive(tmp_path: Path) -> None:
    """Slices ran another kernel than most launches did."""
    grid = {**EXPERTS, "moe_ep_size": [1, 2, 4], "moe_tp_size": [1]}
    shapes = Shapes("moe", "vllm", "moe", ROUTED, grid)
    path = shapes.write(tmp_path, 1.0)
    table = pyarrow.parquet.read_table(path)
    names = ["triton" if ranks == 1 else "cutlass" for ranks in table["moe_ep_size"].to_pylist()]
    pyarrow.parquet.write_table(table.append_column("kernel_source", [names]), path)
    counts = {}
    for primitive in ("sliced_experts", "dealt_experts", ""):
        sample = expert_sampler("bf16", "balanced", primitive)(Tables(tmp_path, "synthetic"), PART)
        assert sample is not None
        counts[primitive] = len(sample)
    assert counts["sliced_experts"] == table.num_rows / 3
    assert counts["dealt_experts"] == counts[""] == 2 * counts["sliced_experts"]


def test_slices_of_experts_are_read_from_another_engine_where_the_first_has_none(tmp_path: Path) -> None:
    grid = {**EXPERTS, "moe_ep_size": [1, 2], "moe_tp_size": [1]}
    Shapes("moe", "vllm", "moe", {**ROUTED, "distribution": "power_law_1.2"}, grid).write(tmp_path, 1.0)
    other = Shapes("moe", "sglang", "moe", ROUTED, grid).write(tmp_path, 1.0)
    tables = Tables(tmp_path, "synthetic")
    sliced, dealt = (expert_sampler("bf16", "balanced", name)(tables, PART) for name in EXPERT_PRIMITIVES)
    assert sliced is not None and sliced.source == tables.cite(other)
    assert dealt is None


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"no tables found; expected <part>/<family>/<engine>/<version>/"):
        find_tables(str(tmp_path))


def test_without_a_folder_and_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"pip install --no-deps aiconfigurator-core==0\.12\.0"):
        find_tables(None)


def test_a_missing_column_is_an_error_that_names_it(tmp_path: Path) -> None:
    Shapes(
        "comm", "vllm", "custom_allreduce", {"backend": "vllm_graph"}, {"num_gpus": [2], "bytes": list(range(99))}
    ).write(tmp_path, 1.0)
    with pytest.raises(ArgumentError, match=r"all_reduce_graph .*h100_sxm has no column 'message_size'"):
        fit_all(Tables(tmp_path, "synthetic"), ["h100"], "all_reduce_graph")


def test_a_file_that_is_no_table_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = SHAPES["all_reduce_graph"].write(tmp_path, 1.0)
    path.write_text("not parquet")
    with pytest.raises(ArgumentError, match=r"custom_allreduce_perf\.parquet: "):
        fit_all(Tables(tmp_path, "synthetic"), ["h100"], "all_reduce_graph")


def test_a_table_of_few_shapes_is_not_fitted(tmp_path: Path) -> None:
    Shapes(
        "comm", "vllm", "custom_allreduce", {"backend": "vllm_graph"}, {**RANKS, "num_gpus": [2], "message_size": [64]}
    ).write(tmp_path, 1.0)
    lines: list[str] = []
    assert fit_all(Tables(tmp_path, "synthetic"), ["h100"], "all_reduce_graph", lines.append) == []
    assert lines == ["[1/1] all_reduce_graph h100: no table"]
