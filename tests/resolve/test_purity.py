"""A kernel depends on its inputs as they were: no later edit of any field of any document reaches an answer.

The answers are the observation vector of a kernel: steps on a standard set of batches and every other method.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pykernel
from pykernel import Batch, CostModel, Inputs, Request

Fresh = Callable[..., Inputs]

SCENARIOS = [
    "deepseek-v3-h200-fp8-tp8",
    "glm-5-h200-tp8",
    "nemotron-3-ultra-h100-tp8-mtp",
    "minimax-m2.5-h200-ep16",
    "qwen3-30b-a3b-h200-dp4",
    "gpt-oss-120b-h100-fp4-tp2",
]


def requests(number: int, scheduled: int, context: int) -> list[Request]:
    return [Request(scheduled, context - scheduled, context)] * number


def batches() -> Iterator[Batch]:
    """The standard set, and mixed batches drawn with a fixed seed."""
    standard = [(1, 1, 1), (8, 1, 1_024), (256, 1, 8_192), (512, 1, 32_768), (1, 2_048, 2_048), (4, 8_192, 8_192)]
    standard += [(64, 2, 4_096), (256, 4, 16_384)]
    yield Batch([])
    for number, scheduled, context in standard:
        yield Batch(requests(number, scheduled, context), decode_threshold=8)
    yield Batch(requests(2, 1, 32_768) + requests(1, 2_048, 2_048), decode_threshold=8)
    yield Batch(requests(1, 1_025, 204_785), decode_threshold=8)
    draw = random.Random(5)
    for _ in range(20):
        prefills = [requests(1, draw.randint(9, 4_096), draw.randint(4_096, 8_192)) for _ in range(draw.randint(0, 4))]
        decodes = requests(draw.randint(0, 60), draw.randint(1, 8), draw.randint(8, 12_288))
        yield Batch(sum(prefills, decodes), decode_threshold=8)


BATCHES = list(batches())


def observed(kernel: CostModel) -> dict[str, Any]:
    """Everything that a kernel answers, the provenance as a multiset."""
    steps = [kernel.step_time(batch) for batch in BATCHES]
    return {
        "steps": [(one.overlap_ns, one.no_overlap_ns, one.bottleneck, dict(one.per_resource_ns)) for one in steps],
        "provenance": Counter(kernel.provenance()),
        "evidence": kernel.evidence(),
        "resolved": kernel.resolved(),
        "deployment": kernel.deployment(),
        "capture_tokens": kernel.capture_tokens(),
        "graph_modes": kernel.graph_modes(),
        "decode_threshold": kernel.decode_threshold(),
        **memory(kernel),
        "widths": (kernel.decode_context_parallel_width(), kernel.prefill_context_parallel_width()),
    }


TOKENS = (0, -1, 1, 15, 16, 17, 32, 33, 63, 64, 65, 100, 1_000, 4_096, 8_192, 32_768, 131_072)
PLACES = [
    pykernel.Placement(node, rack, pool) for node, rack, pool in ((0, 0, "prefill"), (1, 0, "decode"), (9, 1, ""))
]


def memory(kernel: CostModel) -> dict[str, Any]:
    """Sizes, transfers and host work."""
    moved = [(tokens, source, target) for tokens in TOKENS[1:] for source in PLACES for target in PLACES if tokens >= 0]
    ways = (pykernel.Direction.TO_TIER, pykernel.Direction.FROM_TIER)
    return {
        "fixed": (kernel.fixed_bytes(), kernel.pre_snapshot_bytes(), kernel.sequence_fixed_bytes()),
        "variable": [kernel.sequence_variable_bytes(tokens) for tokens in TOKENS],
        "bounded": (kernel.sequence_admission_bytes(), [kernel.sequence_bounded_bytes(tokens) for tokens in TOKENS]),
        "moved": [kernel.pd_transfer_demand(*one) for one in moved],
        "moved_ns": [kernel.pd_transfer_time_ns(*one) for one in moved],
        "tiers": [
            kernel.tier_time_ns(tier, way, size, depth)
            for tier in ("cpu_dram", "nvme_ssd", "unknown")
            for way in ways
            for size in (0, 1, 4_096, 2**26, 2**34)
            for depth in (-1, 0, 1, 8)
        ],
        "host": (
            [kernel.admission_overhead_ns(tokens) for tokens in TOKENS],
            kernel.output_token_overhead_ns(),
            kernel.completion_overhead_ns(),
        ),
    }


def fields_of(document: Any, seen: set[int]) -> Iterator[tuple[Any, str]]:
    """Every field of every dataclass that a document holds, however deep, each object once."""
    if isinstance(document, (list, tuple)):
        for item in document:
            yield from fields_of(item, seen)
    elif dataclasses.is_dataclass(document) and id(document) not in seen:
        seen.add(id(document))
        for field in dataclasses.fields(document):
            yield from fields_of(getattr(document, field.name), seen)
            yield document, field.name


def spoil(value: Any) -> Any:
    """Another value in the place of one."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, (int, float)):
        return value * 3 + 1
    if isinstance(value, str):
        return f"not {value}"
    return None


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_edit_of_any_field_afterwards_reaches_an_answer(name: str, fresh: Fresh) -> None:
    documents = copy.deepcopy(fresh(name))
    kernel = pykernel.new(documents)
    before = observed(kernel)
    edited = 0
    for document, field in list(fields_of(documents, set())):
        if isinstance(getattr(document, field), list):
            getattr(document, field).clear()
        elif not type(document).__dataclass_params__.frozen:
            setattr(document, field, spoil(getattr(document, field)))
        edited += 1
    assert edited > 1_000
    assert observed(kernel) == before


@pytest.mark.parametrize("name", SCENARIOS)
def test_kernels_of_equal_documents_are_equal_in_every_observable(name: str, fresh: Fresh) -> None:
    documents = fresh(name)
    first, second = pykernel.new(documents), pykernel.new(copy.deepcopy(documents))
    assert first is not second
    assert observed(first) == observed(second) == observed(first)


@pytest.mark.parametrize("name", SCENARIOS)
def test_writing_through_a_reported_deployment_changes_nothing(name: str, fresh: Fresh) -> None:
    documents = fresh(name)
    kernel = pykernel.new(documents)
    before, stated = observed(kernel), copy.deepcopy(documents.deployment)
    for document, field in list(fields_of(kernel.deployment(), set())):
        setattr(document, field, spoil(getattr(document, field)))
    assert observed(kernel) == before and documents.deployment == stated


def test_building_and_asking_leave_the_documents_alone(fresh: Fresh) -> None:
    documents = fresh("minimax-m2.5-h200-ep16")
    before = copy.deepcopy(documents)
    observed(pykernel.new(documents))
    assert documents == before
