"""What an attention backend takes as a decode, by part, cache, drafts and decode-context ranks.

The thresholds are `reorder_batch_threshold` of the metadata builders in vllm/v1/attention/backends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pykernel
from pykernel import Inputs
from pykernel.documents import Speculative

from .edits import apply

Fresh = Callable[..., Inputs]

DEEPSEEK, DENSE, MINIMAX = "deepseek-v3-h200-fp8-tp8", "llama-3.1-8b-h100-tp1", "minimax-m2.5-h200-tp8"
GLM, NEMOTRON, GPT = "glm-5-h200-tp8", "nemotron-3-ultra-h100-tp8-mtp", "gpt-oss-120b-h100-fp4-tp2"
FP8, AUTO = {"engine.cache_dtype": "fp8"}, {"engine.cache_dtype": "auto"}
SHARED = {"parallel.dcp": 8}


def drafts(count: int) -> dict[str, Any]:
    return {"engine.speculative": Speculative("mtp", count) if count else None}


@pytest.mark.parametrize(
    ("scenario", "settings", "tokens"),
    [
        (DENSE, {}, 1),
        (DENSE, drafts(3), 4),
        (DENSE, {"chip": "b200"}, 1),
        (DENSE, {"chip": "b200", **drafts(3)}, 4),
        (MINIMAX, {"parallel.dcp": 2, **drafts(3)}, 4),
        (MINIMAX, {"chip": "b200", "parallel.dcp": 2, **drafts(3)}, 1),
        (GPT, drafts(1), 2),
        (DEEPSEEK, FP8, 128),
        (DEEPSEEK, FP8 | drafts(3), 128),
        (DEEPSEEK, FP8 | SHARED, 1),
        (DEEPSEEK, FP8 | SHARED | drafts(3), 1),
        (DEEPSEEK, AUTO, 512),
        (DEEPSEEK, AUTO | SHARED, 512),
        (DEEPSEEK, AUTO | SHARED | {"engine.cp_kv_cache_interleave_size": 8}, 1),
        (DEEPSEEK, {"chip": "b200"}, 1),
        (DEEPSEEK, {"chip": "b200", **drafts(3)}, 4),
        (DEEPSEEK, {"chip": "l40s", **AUTO, **drafts(3)}, 1),
        (GLM, {}, 1),
        (GLM, drafts(2), 3),
        (GLM, {"parallel.dcp": 2, **drafts(2)}, 1),
        (NEMOTRON, {}, 2),
        (NEMOTRON, drafts(0), 1),
    ],
)
def test_the_threshold_is_that_of_the_backend(
    scenario: str, settings: dict[str, Any], tokens: int, fresh: Fresh
) -> None:
    assert pykernel.new(apply(fresh(scenario), settings)).decode_threshold() == tokens


def test_graphs_are_dispatched_by_the_width_of_a_uniform_decode_all_the_same(fresh: Fresh) -> None:
    kernel = pykernel.new(apply(fresh(), {"engine.cudagraph_mode": "FULL_DECODE_ONLY"}))
    twins = [
        pykernel.Batch([pykernel.Request(tokens, 4_096, 8_192)] * 4, decode_threshold=kernel.decode_threshold())
        for tokens in (1, 2)
    ]
    captured, eager = (kernel.step_time(batch).per_resource_ns["host"] for batch in twins)
    assert captured < eager
