"""The published scenarios: each opens with the settings that it states, or is refused for the reason it should be.

testdata/corpus holds the settings of scenarios of inference-sim/blis-latency-kernel. Two of an early version list no
memory set, which a constructor refuses; the others are deployments that its own constructor accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pykernel
from pykernel import Batch, Inputs, RefusedError, Repos, Request
from pykernel.documents import coefficients, load_bundle
from pykernel.resolve import examine

CORPUS = Path(__file__).resolve().parents[2] / "testdata" / "corpus"
NAMES = sorted(path.stem for path in CORPUS.glob("*.yaml"))
REFUSED = {"granite5-h200-ep16": "memory-magnitude", "granite5-h200-ep72": "memory-magnitude"}
OPEN = [name for name in NAMES if name not in REFUSED]

Fresh = Callable[..., Inputs]


def test_the_corpus_is_all_there() -> None:
    assert len(NAMES) == 32
    assert set(REFUSED) < set(NAMES)


@pytest.mark.parametrize("name", REFUSED)
def test_a_scenario_without_the_memory_set_is_refused_and_opens_with_it(name: str, fresh: Fresh) -> None:
    documents = fresh(name)
    with pytest.raises(RefusedError, match="cost-model-memory") as caught:
        pykernel.new(documents)
    assert caught.value.rule == REFUSED[name]
    documents.coefficients.append(
        coefficients.load(Repos().registry_root() / "coefficients" / "cost-model-memory.yaml")
    )
    assert pykernel.new(documents).step_time(Batch([Request(1, 1_023, 1_024)])).no_overlap_ns > 0


@pytest.mark.parametrize("name", OPEN)
def test_a_published_scenario_opens_and_prices_a_step(name: str, fresh: Fresh) -> None:
    _, deployment = load_bundle(CORPUS / f"{name}.yaml")
    for index, pool in enumerate(deployment.pools):
        documents = fresh(name, index)
        assert examine(documents).refusals == ()
        kernel = pykernel.new(documents)
        batch = Batch([Request(1, 1_023, 1_024)] * 16, decode_threshold=kernel.decode_threshold())
        assert kernel.step_time(batch).no_overlap_ns > 0
        assert kernel.deployment() == pool
        resolved = kernel.resolved()
        assert resolved.tensor_parallel() == pool.parallel.tp and resolved.data_parallel() == pool.parallel.dp
        width = pool.parallel.tp * pool.parallel.dp if pool.parallel.enable_expert_parallel else 1
        assert resolved.expert_parallel() == width


# What the engine stores differently, or does not run as asked, in the published deployments.
OVERRIDES = {
    "aisimulate-glm-5-h200-fp8-sglang-tp8": [("cache_dtype", "fp8", "fp8_ds_mla")],
    "glm5-h200-tp8": [("cache_dtype", "fp8", "fp8_ds_mla")],
    "kimi-k3-h100-nospec": [("mamba_cache_mode", "none", "align")],
    "nemotron3-ultra-h100-agg": [("mamba_cache_mode", "none", "align")],
}


@pytest.mark.parametrize("name", OPEN)
def test_overrides_of_the_published_scenarios(name: str, fresh: Fresh) -> None:
    found = [(entry.field, entry.requested, entry.resolved) for entry in pykernel.new(fresh(name)).resolved().overrides]
    assert found == OVERRIDES.get(name, [])


def test_two_pools_of_a_file_are_two_kernels(fresh: Fresh) -> None:
    prefill, decode = (pykernel.new(fresh("disagg-probe", index)) for index in (0, 1))
    assert (prefill.deployment().role, decode.deployment().role) == ("prefill", "decode")
    assert (prefill.resolved().tensor_parallel(), decode.resolved().tensor_parallel()) == (8, 4)
    assert prefill.deployment().engine.max_num_batched_tokens != decode.deployment().engine.max_num_batched_tokens
