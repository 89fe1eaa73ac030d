"""The Scenario: what it holds when loaded, its lines, and the checks of a document made in memory."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from pykernel.documents import Cluster, Scenario, SloTarget, Trace, TraceHeader, Workload, scenario
from pykernel.documents.loading import type_problems
from pykernel.errors import DocumentError

TEXT = """\
# A comment carries no data.
kind: Scenario
name: chat-70b
model: llama-3.1-70b-instruct
engine_version: "0.29.0"
coefficients:
  - cost-model-primitives
  - cost-model-memory
workload:
  trace:
    data: traces/chat.csv
    header:
      trace_version: 2
      time_unit: us
      mode: replayed
      workload_seed: 0
      server: {type: vllm, tensor_parallel: 8}
      goodput_slo_targets:
        chat: {ttft_ms: 500}
cluster:
  hardware: h100
  fabric: ib-400g
  nodes: 2
  gpus_per_node: 8
  storage: [cpu_dram, nvme_gen4]
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Scenario:
    path = tmp_path / "chat-70b.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return scenario.load(path)


def _small() -> Scenario:
    return Scenario("Scenario", "s", "m", ["a"], "0.29.0", Cluster("h100", 1, 8))


def test_every_key_arrives_under_its_name(loaded: Scenario) -> None:
    assert loaded.coefficients == ["cost-model-primitives", "cost-model-memory"]
    assert loaded.cluster == Cluster("h100", 2, 8, fabric="ib-400g", storage=["cpu_dram", "nvme_gen4"])
    assert loaded.workload is not None
    trace = loaded.workload.trace
    assert trace is not None
    assert trace.header.workload_seed == 0
    assert trace.header.server is not None
    assert trace.header.server.tensor_parallel == 8
    assert trace.header.goodput_slo_targets is not None
    assert trace.header.goodput_slo_targets["chat"].ttft_ms == 500.0
    assert scenario.check(loaded) == []


def test_a_seed_of_zero_differs_from_no_seed(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT.replace("      workload_seed: 0\n", ""), encoding="utf-8")
    workload = scenario.load(path).workload
    assert workload is not None
    assert workload.trace is not None
    assert workload.trace.header.workload_seed is None


def test_problems_found_after_loading_name_file_and_line(loaded: Scenario) -> None:
    loaded.cluster.gpus_per_rack = 12
    loaded.cluster.nodes = 0
    assert loaded.workload is not None
    loaded.workload.shape = "chatbot"
    found = {problem.path: (Path(problem.file).name, problem.line) for problem in scenario.check(loaded)}
    assert found == {
        "scenario.cluster.nodes": ("chat-70b.yaml", 23),
        "scenario.cluster.gpus_per_rack": ("chat-70b.yaml", 20),
        "scenario.workload": ("chat-70b.yaml", 9),
    }


def test_a_document_made_in_memory_has_no_file(loaded: Scenario) -> None:
    made = _small()
    made.name = ""
    [problem] = scenario.check(made)
    assert (problem.path, problem.file, problem.line) == ("scenario.name", "", 0)
    assert made.source is None
    assert loaded.source is not None


def test_the_record_of_lines_is_no_part_of_the_value(loaded: Scenario) -> None:
    assert "_source" not in repr(loaded)
    for same in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert same == loaded
        assert same.source is not None
        assert same.source.line("cluster.nodes") == 23
        same.cluster.nodes = 3
        assert same != loaded
    assert loaded.cluster.nodes == 2
    made = Scenario(
        loaded.kind,
        loaded.name,
        loaded.model,
        loaded.coefficients,
        loaded.engine_version,
        loaded.cluster,
        loaded.workload,
    )
    assert made == loaded


def test_a_trace_needs_a_known_unit_and_mode() -> None:
    made = _small()
    made.workload = Workload(trace=Trace("t.csv", TraceHeader(1, "hours", "live")))
    assert [problem.path for problem in scenario.check(made)] == [
        "scenario.workload.trace.header.time_unit",
        "scenario.workload.trace.header.mode",
    ]


def test_targets_are_a_mapping_from_class_to_bounds(loaded: Scenario) -> None:
    assert loaded.workload is not None
    assert loaded.workload.trace is not None
    header = loaded.workload.trace.header
    for wrong, path in ((["chat"], ""), ({1: SloTarget(1.0)}, ""), ({"chat": 500}, ".chat")):
        header.goodput_slo_targets = wrong  # type: ignore[assignment]
        [problem] = type_problems(loaded, Scenario, "scenario")
        assert problem.path == f"scenario.workload.trace.header.goodput_slo_targets{path}"
    header.goodput_slo_targets = {"chat": SloTarget(1.0)}
    assert type_problems(loaded, Scenario, "scenario") == []


def test_another_kind_of_document_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text("kind: Deployment\nname: d\npools: []\n")
    with pytest.raises(DocumentError) as caught:
        scenario.load(path)
    assert [problem.path for problem in caught.value.problems] == ["scenario.kind"]


def test_all_problems_of_a_file_come_together_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: Scenario\nmodl: x\nengine_version: 1\ncoefficients: a\ncluster: {nodes: x, hardware: h}\n")
    with pytest.raises(DocumentError) as caught:
        scenario.load(path)
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (1, "scenario.name"),
        (1, "scenario.model"),
        (2, "scenario.modl"),
        (4, "scenario.coefficients"),
        (5, "scenario.cluster.nodes"),
        (5, "scenario.cluster.gpus_per_node"),
    ]
    assert str(caught.value).count("\n") == 5
