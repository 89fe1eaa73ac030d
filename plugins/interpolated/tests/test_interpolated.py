"""The whole model over small tables: sums by hand, discovery of tables, what it refuses, and pykernel's laws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pykernel_interpolated.model import Interpolated
from pykernel_interpolated.work import work_of
from small_tables import LINK, milliseconds

import pykernel
from pykernel import Batch, Inputs, RefusedError, Request
from pykernel.documents import list_scenarios
from pykernel.laws import REPRESENTATIVE, check_model
from pykernel.measured.laws import host_constants
from pykernel.plan import ReadPlan


def opened(name: str, **engine: object) -> Inputs:
    inputs = pykernel.open_inputs(name)
    for key, value in engine.items():
        setattr(inputs.deployment.pools[inputs.pool].engine, key, value)
    return inputs


def test_a_dense_layer_is_the_sum_of_its_kernels(tables: Path) -> None:
    """One layer of four square matrices that were measured, without graphs, so that rows are those of the batch."""
    inputs = opened("qwen3-14b-h100-tp1", cudagraph_mode="NONE")
    graph = inputs.model
    for node in graph.layer_kinds[0].nodes:
        if node.op == "GEMM":
            node.n, node.k, node.weight_dtype = 1024, 16384, ""
        if node.op == "Elementwise":
            node.bytes_per_token = 3_000
        if node.op == "Attention":
            node.n_q, node.n_kv, node.d_h = 32, 8, 128
    head_node = next(node for node in graph.head if node.op == "GEMM")
    head_node.n, head_node.k = 65536, 1024
    graph.stack.pattern, graph.stack.repeat, graph.stack.prologue = [graph.layer_kinds[0].id], 3, []
    nodes = graph.layer_kinds[0].nodes
    gemms = sum(node.op == "GEMM" for node in nodes)
    norms = sum(node.op == "Elementwise" for node in nodes)
    matrix = milliseconds(2 * 16 * 1024 * 16384, 2 * 1024 * 16384)
    attention = milliseconds(0, 16 * 4096 * 4 * 8 * 128)
    head = milliseconds(2 * 16 * 65536 * 1024, 2 * 65536 * 1024)
    norm = 16 * 3_000 / (inputs.chip.bw_peak_tbs * 1e12) * 1e3
    expected = 3 * (gemms * matrix + norms * norm + attention) + head
    estimate = Interpolated(inputs).step_time(Batch([Request(1, 4095, 4096)] * 16))
    resources = estimate.per_resource_ns
    assert resources["sm"] + resources["hbm"] == pytest.approx(expected * 1e6, abs=2)
    assert resources["host"] == int(host_constants("vllm").values["layer"] * 3 * 1000)


def test_a_graph_runs_the_smallest_captured_size(tables: Path) -> None:
    model = Interpolated(opened("qwen3-14b-h100-tp1", cudagraph_capture_sizes=[8, 64], cudagraph_mode="FULL"))
    few, many = (model.step_time(Batch([Request(1, 0, 1)] * count)) for count in (40, 64))
    eager = Interpolated(opened("qwen3-14b-h100-tp1", cudagraph_mode="NONE")).step_time(Batch([Request(1, 0, 1)] * 40))
    assert eager.no_overlap_ns < few.no_overlap_ns <= many.no_overlap_ns


def test_between_nodes_a_collective_takes_at_least_as_long_as_the_fabric(tables: Path) -> None:
    inputs = opened("minimax-m2.5-h200-ep16")
    batch = Batch([Request(8000, 0, 8000)])
    before = Interpolated(inputs).step_time(batch).per_resource_ns["nic"]
    inputs.fabric.inter_node_bw_gbps = LINK / 1e9 * 10
    faster = Interpolated(inputs).step_time(batch).per_resource_ns["nic"]
    inputs.fabric.inter_node_bw_gbps = 0.1
    assert faster <= before < Interpolated(inputs).step_time(batch).per_resource_ns["nic"] / 10


def test_kernels_take_turns_and_links_work_beside_them(tables: Path) -> None:
    estimate = Interpolated(opened("minimax-m2.5-h200-ep16")).step_time(Batch([Request(8000, 0, 8000)]))
    spent = estimate.per_resource_ns
    assert spent["nic"] + spent["nvlink"] > 0
    assert spent["sm"] + spent["hbm"] + spent["host"] <= estimate.overlap_ns < estimate.no_overlap_ns


def test_tables_are_those_of_the_environment_or_of_the_argument(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = opened("qwen3-14b-h100-tp1")
    monkeypatch.setenv("PYKERNEL_TABLES", str(tmp_path / "nowhere"))
    with pytest.raises(RefusedError, match="nowhere: no tables found"):
        Interpolated(inputs)
    stated = Interpolated(inputs, tables=str(root))
    monkeypatch.setenv("PYKERNEL_TABLES", str(root))
    batch = Batch([Request(1, 99, 100)])
    assert pykernel.new(inputs, model="interpolated").step_time(batch) == stated.step_time(batch)


def test_without_tables_the_message_says_where_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYKERNEL_TABLES", raising=False)
    monkeypatch.setattr("pykernel.fit.tables.PACKAGE", "no_such_package")
    with pytest.raises(RefusedError, match=r"PYKERNEL_TABLES.*aiconfigurator-core"):
        Interpolated(opened("qwen3-14b-h100-tp1"))


def test_provenance_names_the_tables_and_what_stands_in(tables: Path) -> None:
    rows = {row.name: row for row in Interpolated(opened("deepseek-v3-h200-fp8-tp8")).provenance()}
    assert rows["interpolated.gemm_fp8"].set.endswith("h200_sxm/gemm/vllm/0.24.0/gemm_perf.csv")
    assert rows["interpolated_gemm_fp8_block"].scope.startswith("gemm_fp8: ")


def test_work_is_counted_as_requests_are_read() -> None:
    scheduled, computed = np.array([1, 1, 5, 0, 3]), np.array([9, 99, 0, 0, 20])
    work = work_of(scheduled, computed, threshold=1, pad_rows=2, prefill_ranks=1)
    assert (work.decodes, work.prefills, work.rows, work.sampled_rows) == (2, 2, 10, 4)
    assert work.entries(ReadPlan("all")) == 110
    assert work.entries(ReadPlan("window", 32)) == 42
    assert work.entries(ReadPlan("selected", window=4, top_k=16, compress_ratio=2)) == (5 + 4) + (16 + 4)
    assert work.pairs() == 15 + (21 + 22 + 23)
    assert work.pairs(window=4) == (1 + 2 + 3 + 4 + 4) + 3 * 4


@pytest.mark.parametrize("scenario", REPRESENTATIVE)
def test_it_holds_the_laws(scenario: str, tables: Path) -> None:
    inputs = pykernel.open_inputs(scenario)
    report = check_model(Interpolated(inputs), factory=Interpolated, inputs=inputs)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted({*list_scenarios()} - {*REPRESENTATIVE}))
def test_it_refuses_or_holds_the_laws_everywhere(scenario: str, tables: Path) -> None:
    inputs = pykernel.open_inputs(scenario)
    try:
        model = Interpolated(inputs)
    except RefusedError:
        return
    report = check_model(model, factory=Interpolated, inputs=inputs)
    assert report.ok, str(report)
