"""All documents together: the pair of scenario and deployment, and edits in memory of any kind."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykernel.documents import Inputs, Repos, open_inputs, require_valid
from pykernel.documents.deployment import Offload, OffloadTier, Parallel, Pool
from pykernel.documents.inputs import validate
from pykernel.errors import DocumentError

ROOT = Path(__file__).resolve().parents[2] / "testdata" / "bad" / "repo"


@pytest.fixture
def inputs() -> Inputs:
    return open_inputs("chat-h200", Repos(ROOT / "scenarios", ROOT / "catalog", ROOT / "registry"))


def _errors(inputs: Inputs) -> list[str]:
    return [problem.path for problem in validate(inputs) if problem.severity == "error"]


def test_sound_inputs_have_no_problem(inputs: Inputs) -> None:
    assert validate(inputs) == []
    require_valid(inputs)


def test_every_document_is_checked_under_its_prefix(inputs: Inputs) -> None:
    inputs.scenario.name = ""
    inputs.deployment.pools[0].role = "both"
    inputs.model.global_.vocab_size = 0
    inputs.chip.sm_count = 0
    inputs.storage[1].base_latency_us = -1
    inputs.coefficients[0].coefficients[0].units = "GB"
    assert _errors(inputs) == [
        "chip.SMCount",
        "coefficients:small-set.coefficients[0].units",
        "deployment.pools[0].role",
        "device:nvme_gen4.base_latency_us",
        "model.global.vocab_size",
        "scenario.name",
    ]
    with pytest.raises(DocumentError) as caught:
        require_valid(inputs)
    assert [problem.path for problem in caught.value.problems] == _errors(inputs)
    lines = {problem.path: problem.line for problem in caught.value.problems}
    assert lines["chip.SMCount"] == 7
    assert lines["device:nvme_gen4.base_latency_us"] == 8


def test_warnings_do_not_stop_anything(inputs: Inputs) -> None:
    inputs.deployment.name = "another"
    [problem] = validate(inputs)
    assert (problem.severity, problem.path) == ("warning", "deployment.name")
    require_valid(inputs)


def test_problems_are_sorted_by_path_with_indices_as_numbers(inputs: Inputs) -> None:
    inputs.deployment.pools = [Pool("colocated", 0, Parallel(1, 1, 1)) for _ in range(12)]
    pools = [path for path in _errors(inputs) if path.endswith(".nodes")]
    assert pools == [f"deployment.pools[{index}].nodes" for index in range(12)]


def test_absent_documents_are_problems(inputs: Inputs) -> None:
    inputs.scenario = None  # type: ignore[assignment]
    inputs.model = None  # type: ignore[assignment]
    inputs.storage = [None, *inputs.storage]  # type: ignore[list-item]
    inputs.coefficients = "none"  # type: ignore[assignment]
    assert _errors(inputs) == ["coefficients", "model", "scenario"]


@pytest.mark.parametrize("pool", [-1, 1, True, 0.0, None, "0"])
def test_a_pool_that_does_not_exist_is_a_problem(inputs: Inputs, pool: Any) -> None:
    inputs.pool = pool
    assert _errors(inputs) == ["pool"]


def _places(value: Any) -> Iterator[tuple[Any, str]]:
    """Every dataclass at or below a value with each of its field names, through the lists in between."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield value, item.name
            yield from _places(getattr(value, item.name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _places(item)


ODD_VALUES: list[Any] = [
    None, True, -1, 0, 2**70, -(2**70), 10**400, 0.5, math.nan, math.inf, "", "text", "8", b"8", [], [None], {}, {1: 2},
    (1,), object(), [["deep"]], 1j, range(3), int, "a" * 100_000,
]  # fmt: skip


def test_any_value_in_any_field_is_reported_or_accepted_but_never_crashes(inputs: Inputs) -> None:
    inputs.deployment.offload = Offload([OffloadTier("cpu_dram", 1)])
    documents = [
        getattr(inputs, name) for name in ("scenario", "deployment", "model", "chip", "storage", "coefficients")
    ]
    places = list(_places(documents))
    assert len(places) > 200
    for owner, name in places:
        before = getattr(owner, name)
        for value in ODD_VALUES:
            setattr(owner, name, value)
            problems = validate(inputs)
            if isinstance(value, (complex, bytes, range, type)) or type(value) is object:
                assert any(problem.severity == "error" for problem in problems), (name, value)
        setattr(owner, name, before)
    assert validate(inputs) == []


@pytest.mark.parametrize(
    ("owner", "name", "value", "path"),
    [
        ("deployment.pools[0].parallel", "tp", "8", "deployment.pools[0].parallel.tp"),
        ("deployment.pools[0].parallel", "tp", True, "deployment.pools[0].parallel.tp"),
        ("deployment.pools[0].parallel", "tp", 8.0, "deployment.pools[0].parallel.tp"),
        ("deployment.pools[0].engine", "async_scheduling", 1, "deployment.pools[0].engine.async_scheduling"),
        ("deployment.pools[0].engine", "block_size", None, "deployment.pools[0].engine.block_size"),
        ("deployment.offload", "prefetch_depth", math.nan, "deployment.offload.prefetch_depth"),
        ("chip", "memory_gib", math.nan, "chip.MemoryGiB"),
        ("chip", "tflops_fp8", "fast", "chip.TFlopsFP8"),
        ("model.global_", "hidden_size", 7168.5, "model.global.hidden_size"),
        ("coefficients[0].coefficients[0]", "ci95", (1, 2, 3), "coefficients:small-set.coefficients[0].ci95"),
        ("coefficients[0].coefficients[0].scope", "tp", 8, "coefficients:small-set.coefficients[0].scope.tp"),
        ("scenario", "cluster", {"hardware": "h200"}, "scenario.cluster"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_named_with_its_field(
    inputs: Inputs, owner: str, name: str, value: Any, path: str
) -> None:
    inputs.deployment.offload = Offload([OffloadTier("cpu_dram", 1)])
    setattr(eval(f"inputs.{owner}"), name, value)
    [problem] = validate(inputs)
    assert (problem.severity, problem.path) == ("error", path)
    assert "accepted: " in problem.message


def test_a_deleted_attribute_is_a_problem(inputs: Inputs) -> None:
    del inputs.scenario.model
    assert _errors(inputs) == ["scenario.model"]


def test_none_means_absent_where_absence_exists(inputs: Inputs) -> None:
    engine = inputs.deployment.pools[0].engine
    engine.async_scheduling = engine.dbo = engine.eplb = engine.speculative = None
    inputs.fabric = None
    assert validate(inputs) == []


def test_inputs_copy_and_pickle_whole(inputs: Inputs) -> None:
    for same in (copy.deepcopy(inputs), pickle.loads(pickle.dumps(inputs))):
        assert same == inputs
        same.deployment.pools[0].engine.cache_dtype = "auto"
        assert same != inputs
        assert same.deployment.source is not None
        assert same.deployment.source.line("pools[0].engine.cache_dtype") == 18


def _fits(replica: int, local: int, groups: int, nodes: int, gpus: int) -> bool:
    """By trial: replicas start every `replica` devices, and the last needs a share of itself to end on the node."""
    last = (local - 1) * replica
    if last >= gpus:
        return False
    most = max(1, nodes // groups)
    return any(replica % split == 0 and last + replica // split <= gpus for split in range(1, most + 1))


def test_local_replicas_are_placed_as_the_engine_starts_them(inputs: Inputs) -> None:
    generator = random.Random(7)
    seen = set()
    for _ in range(3000):
        nodes, gpus = generator.choice([1, 2, 3, 4, 6]), generator.choice([4, 6, 8])
        tp, pp, pcp = generator.choice([1, 2, 3, 4, 6, 8]), generator.choice([1, 1, 2]), generator.choice([0, 0, 2])
        local = generator.choice([local for local in (1, 2, 3, 4, 8) if gpus % local == 0])
        dp = local * generator.choice([1, 1, 2, 3]) + generator.choice([0, 0, 1])
        cluster = inputs.scenario.cluster
        cluster.nodes, cluster.gpus_per_node, cluster.fabric = nodes, gpus, "ib-400g"
        inputs.deployment.pools = [Pool("colocated", nodes, Parallel(tp, pp, dp, dp_local=local, pcp=pcp))]
        replica = tp * pp * max(pcp, 1)
        parallel = "deployment.pools[0].parallel"
        if replica * dp > nodes * gpus:
            expected = [parallel]
        elif (local - 1) * replica >= gpus:
            expected = [f"{parallel}.dp_local"]
        else:
            expected = [] if _fits(replica, local, dp // local, nodes, gpus) else [parallel]
        seen.add(tuple(expected))
        assert _errors(inputs) == expected, (nodes, gpus, inputs.deployment.pools[0].parallel)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("parallel", "accepted"),
    [
        (Parallel(4, 1, 4, dp_local=4), False),
        (Parallel(4, 1, 4, dp_local=2), True),
        (Parallel(4, 1, 4), True),
        (Parallel(16, 1, 1, dp_local=1), True),
    ],
)
def test_the_published_placements_on_two_nodes_of_eight(inputs: Inputs, parallel: Parallel, accepted: bool) -> None:
    inputs.scenario.cluster.nodes, inputs.scenario.cluster.fabric = 2, "ib-400g"
    inputs.deployment.pools = [Pool("colocated", 2, parallel)]
    assert (_errors(inputs) == []) is accepted


def test_local_replicas_are_counted_on_nodes_of_one_gpu_too(inputs: Inputs) -> None:
    inputs.scenario.cluster.nodes, inputs.scenario.cluster.gpus_per_node = 2, 1
    inputs.scenario.cluster.fabric = "ib-400g"
    inputs.deployment.pools = [Pool("colocated", 2, Parallel(1, 1, 2, dp_local=2))]
    problems = validate(inputs)
    assert [problem.path for problem in problems] == ["deployment.pools[0].parallel.dp_local"] * 2
    assert "a divisor of gpus_per_node, which is 1" in problems[0].message


def test_a_placement_that_takes_too_long_to_prove_is_a_warning(inputs: Inputs) -> None:
    nodes = 2**40
    inputs.scenario.cluster.nodes, inputs.scenario.cluster.fabric = nodes, "ib-400g"
    inputs.deployment.pools = [Pool("colocated", nodes, Parallel(2**41 + 1, 1, 2, dp_local=1))]
    [problem] = validate(inputs)
    assert (problem.severity, problem.path) == ("warning", "deployment.pools[0].parallel")


def test_offload_tiers_are_compared_with_a_stated_inventory_only(inputs: Inputs) -> None:
    inputs.deployment.offload = Offload([OffloadTier("tape", 1)])
    assert _errors(inputs) == []
    inputs.scenario.cluster.storage = ["cpu_dram"]
    assert _errors(inputs) == ["deployment.offload.tiers[0].tier"]
