"""From names to files: where each is looked for, what a wrong name is told, and both layouts of a bundle."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pykernel.documents import (
    Repos,
    find_scenario,
    list_chips,
    list_coefficient_sets,
    list_fabrics,
    list_models,
    list_scenarios,
    list_storage,
    load_bundle,
    open_inputs,
)
from pykernel.documents.inputs import validate
from pykernel.errors import ArgumentError, DocumentError

SOUND = Path(__file__).resolve().parents[2] / "testdata" / "bad" / "repo"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(SOUND, tmp_path / "repo")
    return tmp_path / "repo"


@pytest.fixture
def repos(root: Path) -> Repos:
    return Repos(root / "scenarios", root / "catalog", root / "registry")


def _bundle(root: Path) -> Path:
    return root / "scenarios" / "chat-h200.yaml"


def test_a_scenario_is_a_path_or_a_name(root: Path, repos: Repos, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "scenarios" / "team").mkdir()
    shutil.copy(_bundle(root), root / "scenarios" / "team" / "mine.yaml")
    for name in (_bundle(root), str(_bundle(root)), "chat-h200", "chat-h200.yaml", "team/mine"):
        assert open_inputs(name, repos).scenario.name == "chat-h200"
    monkeypatch.chdir(root)
    shutil.copy(_bundle(root), root / "here.yaml")
    assert find_scenario("here.yaml", repos) == Path("here.yaml")


def test_names_that_are_not_in_the_given_root_are_looked_up_among_the_bundled(repos: Repos) -> None:
    bundled = list_scenarios()[0]
    assert find_scenario(bundled, repos) == find_scenario(bundled)


@pytest.mark.parametrize(
    "name", ["chat-h20", "team/chat-h200", "../scenarios/chat-h200", "", ".", "/", "x\0y", "a" * 5000]
)
def test_a_name_that_leads_nowhere_is_told_what_exists(repos: Repos, name: str) -> None:
    with pytest.raises(DocumentError) as caught:
        find_scenario(name, repos)
    [problem] = caught.value.problems
    assert problem.path == "references.scenario"
    assert "chat-h200" in problem.message
    if name in ("chat-h20", "team/chat-h200"):
        assert "did you mean chat-h200" in problem.message


def test_lists_name_what_can_be_opened(root: Path, repos: Repos) -> None:
    (root / "scenarios" / "team").mkdir()
    shutil.copy(_bundle(root), root / "scenarios" / "team" / "mine.yaml")
    (root / "catalog" / "models" / "no-graph-yet").mkdir()
    (root / "catalog" / "hardware" / "retired").mkdir()
    shutil.copy(root / "catalog" / "hardware" / "h200.yaml", root / "catalog" / "hardware" / "retired" / "v100.yaml")
    assert list_scenarios(repos) == ["chat-h200", "team/mine"]
    assert list_models(repos) == ["tiny-moe"]
    assert list_chips(repos) == ["h200"]
    assert list_fabrics(repos) == ["ib-400g"]
    assert list_coefficient_sets(repos) == ["small-set"]
    assert list_storage(repos) == ["cpu_dram", "nvme_gen4"]


def test_lists_of_a_root_that_does_not_exist_are_empty(tmp_path: Path) -> None:
    nowhere = Repos(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for listing in (list_scenarios, list_models, list_chips, list_fabrics, list_coefficient_sets, list_storage):
        assert listing(nowhere) == []


@pytest.mark.parametrize("pool", [1, -1, True, "0"])
def test_a_pool_that_does_not_exist_names_the_file_and_the_count(root: Path, repos: Repos, pool: int) -> None:
    with pytest.raises(ArgumentError, match=r"chat-h200\.yaml: .*0 to 0, it has 1 pool"):
        open_inputs(_bundle(root), repos, pool)


def test_the_pool_is_looked_at_before_the_model(root: Path, repos: Repos) -> None:
    path = _bundle(root)
    path.write_text(path.read_text().replace("tiny-moe", "missing"))
    with pytest.raises(ArgumentError):
        open_inputs(path, repos, 3)
    with pytest.raises(DocumentError):
        open_inputs(path, repos, 0)


def test_a_bundle_without_pools_names_the_file(root: Path, repos: Repos) -> None:
    path = _bundle(root)
    path.write_text(path.read_text().split("pools:")[0] + "pools: []\n")
    with pytest.raises(DocumentError, match=r"chat-h200\.yaml:13: deployment\.pools: found no pool"):
        open_inputs(path, repos)


def test_a_graph_is_named_by_its_directory(root: Path, repos: Repos) -> None:
    (root / "catalog/models/tiny-moe").rename(root / "catalog/models/renamed")
    path = _bundle(root)
    path.write_text(path.read_text().replace("tiny-moe", "renamed"))
    with pytest.raises(DocumentError, match=r"graph\.yaml:2: model\.name: found 'tiny-moe'; accepted: .*renamed"):
        open_inputs(path, repos)


def test_a_catalog_may_do_without_storage(root: Path, repos: Repos) -> None:
    (root / "catalog/devices/storage.yaml").unlink()
    assert open_inputs("chat-h200", repos).storage == []


def test_a_fabric_is_only_loaded_when_named(root: Path, repos: Repos) -> None:
    assert open_inputs("chat-h200", repos).fabric is None
    path = _bundle(root)
    path.write_text(path.read_text().replace("nodes: 1\n  gpus", "nodes: 1\n  fabric: ib-400g\n  gpus"))
    fabric = open_inputs(path, repos).fabric
    assert fabric is not None
    assert fabric.inter_node_bw_gbps == 50.0


def test_sets_keep_the_order_of_the_scenario(root: Path, repos: Repos) -> None:
    sets = root / "registry" / "coefficients"
    for name in ("b-set", "a-set"):
        text = (sets / "small-set.yaml").read_text().replace("name: small-set", f"name: {name}")
        (sets / f"{name}.yaml").write_text(text)
    path = _bundle(root)
    path.write_text(path.read_text().replace("[small-set]", "[b-set, small-set, a-set]"))
    assert [entries.name for entries in open_inputs(path, repos).coefficients] == ["b-set", "small-set", "a-set"]


def test_faults_of_all_files_are_told_at_once(root: Path, repos: Repos) -> None:
    wrong = {"SMCount": "SmCount", "vocab_size": "vocab", "units:": "unit:", "base_latency_us": "base_latency_ms"}
    files = [*root.glob("catalog/**/*.yaml"), *root.glob("registry/**/*.yaml")]
    for file in files:
        text = file.read_text(encoding="utf-8")
        for right, misspelt in wrong.items():
            text = text.replace(right, misspelt)
        file.write_text(text, encoding="utf-8")
    bundle = _bundle(root).read_text(encoding="utf-8")
    _bundle(root).write_text(bundle.replace('engine_version: "0.29.0"', "engine_version: 9"), encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        open_inputs("chat-h200", repos)
    paths = [problem.path.partition(".")[0].partition(":")[0] for problem in caught.value.problems]
    assert list(dict.fromkeys(paths)) == ["model", "chip", "coefficients", "device", "scenario"]


def test_opening_twice_gives_separate_documents(repos: Repos) -> None:
    first, second = open_inputs("chat-h200", repos), open_inputs("chat-h200", repos)
    assert first == second
    first.chip.sm_count = 1
    assert second.chip.sm_count == 132


OLDER = """\
kind: Scenario
name: before
engine_version: "0.29.0"
model: tiny-moe
hardware: h200
coefficients: [small-set]
workload: chatbot
cluster:
  nodes: 1
  gpus_per_node: 8
pools:
  - role: colocated
    nodes: 1
    parallel: {tp: 8, pp: 1, dp: 1}
    engine:
      block_size: 16
"""


def test_the_one_document_layout_becomes_the_two_documents_of_today(root: Path, repos: Repos) -> None:
    path = root / "before.yaml"
    path.write_text(OLDER)
    scenario, deployment = load_bundle(path)
    assert (scenario.name, deployment.name) == ("before", "before")
    assert (scenario.cluster.hardware, scenario.cluster.nodes) == ("h200", 1)
    assert scenario.workload is not None
    assert scenario.workload.shape == "chatbot"
    assert deployment.pools[0].engine.block_size == 16
    [problem] = validate(open_inputs(path, repos))
    assert (problem.severity, problem.path) == ("warning", "scenario")
    assert "cluster.hardware" in problem.message
    deployment.pools[0].engine.block_size = -1
    assert deployment.source is not None
    assert deployment.source.line("pools[0].engine.block_size") == 16


@pytest.mark.parametrize(
    ("old", "new", "line", "path"),
    [
        ("block_size: 16", "blocksize: 16", 16, "deployment.pools[0].engine.blocksize"),
        ("  nodes: 1\n  gpus", "  hardware: h100\n  nodes: 1\n  gpus", 5, "scenario.hardware"),
        ("model: tiny-moe", "modle: tiny-moe", 4, "scenario.modle"),
        ("name: before", "name: before\nrouting: {}", 3, "scenario.routing"),
    ],
)
def test_the_older_layout_is_read_as_strictly(root: Path, old: str, new: str, line: int, path: str) -> None:
    file = root / "before.yaml"
    file.write_text(OLDER.replace(old, new))
    with pytest.raises(DocumentError) as caught:
        load_bundle(file)
    assert (line, path) in [(problem.line, problem.path) for problem in caught.value.problems]
