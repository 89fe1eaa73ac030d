"""Engine defaults as vLLM 0.31.0 fills them in, and that each one filled in is disclosed.

Vectors of capture sizes were computed from the engine's rules (vllm/config/vllm.py at v0.31.0), not with this code.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import pykernel
from pykernel import Batch, Inputs, Kernel, Repos, Request
from pykernel.documents import Engine, Speculative, hardware, list_chips
from pykernel.resolve import resolve
from pykernel.resolve.engine import GRAPH_MODES, EngineSettings, capture_sizes, resolve_engine

Fresh = Callable[..., Inputs]

DENSE = "llama-3.1-8b-h100-tp1"
UNSTATED = {"block_size": 0, "max_num_seqs": 0, "max_num_batched_tokens": 0, "max_model_len": 0, "cudagraph_mode": ""}


def engine(documents: Inputs, **changes: Any) -> Engine:
    """The settings of the priced pool, after setting some."""
    settings = documents.deployment.pools[documents.pool].engine
    for name, value in changes.items():
        setattr(settings, name, value)
    return settings


def settings_of(documents: Inputs) -> EngineSettings:
    return resolve(documents).settings


def assumed(documents: Inputs) -> dict[str, str]:
    """The kernel's own assumptions: name to the text that begins with the value."""
    origins = resolve(documents).provenance
    return {origin.name: origin.scope for origin in origins if origin.set == pykernel.KERNEL_ASSUMPTION_SET}


# ---- capture sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sequences", "budget", "width", "platform", "entries", "maximum"),
    [
        (1_024, 8_192, 1, 512, 51, 512),
        (1_024, 16_384, 1, 1_024, 83, 1_024),
        (64, 8_192, 1, 512, 19, 128),
        (18, 8_192, 1, 512, 8, 32),
        (18, 8_192, 2, 512, 13, 72),
        (64, 8_192, 3, 512, 46, 384),
        (1_024, 256, 1, 512, 35, 256),
    ],
)
def test_default_capture_sizes_are_the_engines(
    sequences: int, budget: int, width: int, platform: int, entries: int, maximum: int
) -> None:
    sizes = capture_sizes(sequences, budget, width, platform)
    assert (len(sizes), sizes[-1]) == (entries, maximum)
    assert sizes == sorted(set(sizes)) and sizes[0] >= 1


def test_the_ceiling_itself_need_not_be_captured() -> None:
    assert capture_sizes(18, 8_192, 1, 512) == [1, 2, 4, 8, 16, 18, 24, 32]
    assert 36 in capture_sizes(18, 8_192, 2, 512)
    assert {3, 6, 12, 24} <= set(capture_sizes(64, 8_192, 3, 512))


@pytest.mark.parametrize("budget", [1, 3, 100, 300])
def test_a_budget_below_the_ceiling_is_captured_and_nothing_beyond(budget: int) -> None:
    assert capture_sizes(1_024, budget, 1, 512)[-1] == budget


@pytest.mark.parametrize(
    ("stated", "widest"), [(100, 96), (512, 512), (513, 512), (3, 2), (1, 1), (2_000, 2_000), (9_000, 8_192)]
)
def test_a_stated_maximum_is_cut_to_the_grid_and_the_budget(stated: int, widest: int) -> None:
    sizes = capture_sizes(8, 8_192, 1, 512, stated_maximum=stated)
    assert sizes[-1] == widest
    assert sizes == [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, 8_193, 16)) if size <= widest]


def test_stated_sizes_are_taken_as_they_are_up_to_the_budget() -> None:
    assert capture_sizes(8, 1_000, 1, 512, stated=(7, 999, 7, 5_000, 33)) == [7, 33, 999]
    assert capture_sizes(8, 1_000, 1, 512, stated=(7, 999), stated_maximum=999) == [7, 999]


@pytest.mark.parametrize(
    ("scenario", "changes", "ceiling"),
    [
        (DENSE, {"max_num_seqs": 1_024}, 512),
        (DENSE, {"max_num_seqs": 64}, 128),
        (DENSE, {"max_num_seqs": 18}, 32),
        (DENSE, {"max_num_seqs": 64, "cudagraph_mode": "NONE"}, 0),
        (DENSE, {"max_num_seqs": 64, "max_cudagraph_capture_size": 100}, 96),
        (DENSE, {"max_num_seqs": 64, "cudagraph_capture_sizes": [9, 77]}, 77),
        ("deepseek-v3-b200-fp4-tp4", {"max_num_seqs": 1_024}, 1_024),
    ],
)
def test_a_step_at_the_ceiling_is_captured_and_one_above_is_not(
    scenario: str, changes: dict[str, Any], ceiling: int, fresh: Fresh
) -> None:
    """Law 40."""
    documents = fresh(scenario)
    engine(documents, **({"cudagraph_mode": "FULL_AND_PIECEWISE"} | changes))
    kernel = Kernel(documents)
    assert kernel.capture_tokens() == ceiling
    engine(documents, cudagraph_mode="NONE", cudagraph_capture_sizes=[], max_cudagraph_capture_size=0)
    eager = Kernel(documents)
    for tokens, captured in ((ceiling, ceiling > 0), (ceiling + 1, False)):
        for batch in (Batch([Request(1, 50, 1)] * tokens), Batch([Request(tokens, 50, 1), Request(0, 1, 1)])):
            assert (kernel.step_time(batch) != eager.step_time(batch)) is captured, (tokens, len(batch))


# ---- graph modes ---------------------------------------------------------------------------------------------------


def test_every_mode_names_what_a_batch_runs_as() -> None:
    assert GRAPH_MODES == {
        "NONE": ("NONE", "NONE"),
        "PIECEWISE": ("PIECEWISE", "PIECEWISE"),
        "FULL": ("FULL", "FULL"),
        "FULL_DECODE_ONLY": ("FULL", "NONE"),
        "FULL_AND_PIECEWISE": ("FULL", "PIECEWISE"),
    }


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_a_mode_costs_the_host_what_its_two_columns_cost(mode: str, fresh: Fresh) -> None:
    documents = fresh(DENSE)

    def host(name: str, batch: Batch) -> int:
        engine(documents, cudagraph_mode=name)
        return Kernel(documents).step_time(batch).per_resource_ns["host"]

    decode = Batch([Request(1, 99, 1)] * 8)
    for batch, column in ((decode, 0), (Batch([*decode, Request(9, 0, 9)]), 1)):
        pure = GRAPH_MODES[mode][column]
        assert host(mode, batch) == host(pure, batch)
        assert host(mode.lower(), batch) == host(mode, batch)
    layers, replay, eager = 32, 7_000, 7_000  # of llama-3.1-8b and of the host set
    for name, launches in (("FULL", replay), ("PIECEWISE", replay * (layers + 1)), ("NONE", eager * layers)):
        assert host(name, decode) - host("FULL", decode) == launches - replay


def test_a_uniform_decode_is_as_wide_as_its_drafts(fresh: Fresh) -> None:
    documents = fresh(DENSE)
    engine(documents, speculative=Speculative("ngram", 2))
    kernel = Kernel(documents)
    assert kernel.decode_threshold() == 3
    host = {width: kernel.step_time(Batch([Request(width, 99, 1)] * 8)).per_resource_ns["host"] for width in (1, 2, 3)}
    assert host[1] == host[2] == host[3] + 7_000 * 32


def test_an_unstated_mode_prices_like_the_default_and_is_disclosed(fresh: Fresh) -> None:
    unstated, stated = fresh(DENSE), fresh(DENSE)
    engine(unstated, cudagraph_mode="")
    engine(stated, cudagraph_mode="FULL_AND_PIECEWISE")
    for batch in (Batch([Request(1, 99, 1)] * 8), Batch([Request(64, 0, 64)]), Batch()):
        assert Kernel(unstated).step_time(batch) == Kernel(stated).step_time(batch)
    assert Kernel(unstated).graph_modes() == ("FULL", "PIECEWISE")
    assert assumed(unstated)["cudagraph_mode"].startswith("FULL_AND_PIECEWISE: ")
    assert "cudagraph_mode" not in assumed(stated)


@pytest.mark.parametrize(
    ("scenario", "changes", "overridden"),
    [
        ("minimax-m2.5-h200-ep16", {}, True),
        ("minimax-m2.5-h200-ep16", {"cudagraph_mode": ""}, True),
        ("minimax-m2.5-h200-ep16", {"cudagraph_mode": "NONE"}, False),
        ("minimax-m2.5-h200-ep16", {"all2all_backend": "deepep_low_latency"}, False),
        ("minimax-m2.5-h200-ep8", {}, False),  # one replica
        ("qwen3-30b-a3b-h200-dp4", {}, True),  # without expert parallelism too
    ],
)
def test_deepep_high_throughput_turns_the_graphs_of_replicas_off(
    scenario: str, changes: dict[str, Any], overridden: bool, fresh: Fresh
) -> None:
    documents = fresh(scenario)
    engine(documents, **({"all2all_backend": "deepep_high_throughput"} | changes))
    requested = engine(documents).cudagraph_mode or "FULL_AND_PIECEWISE"
    resolved = resolve(documents)
    assert (resolved.settings.graphs.mode == "NONE") is (overridden or requested == "NONE")
    overrides = [override for override in resolved.resolution.overrides if override.field == "cudagraph_mode"]
    assert [(override.requested, override.resolved) for override in overrides] == [(requested, "NONE")] * overridden
    assert all("deepep_high_throughput" in override.reason for override in overrides)


# ---- block size ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "changes", "block"),
    [
        (DENSE, {}, 16),
        ("gpt-oss-120b-h100-fp4-tp2", {}, 16),
        ("minimax-m2.5-gb300-tp4", {}, 16),
        ("deepseek-v3-h200-fp8-tp8", {"cache_dtype": "fp8"}, 64),
        ("deepseek-v3-h200-fp8-tp8", {"cache_dtype": "auto"}, 16),
        ("deepseek-v3-h200-fp8-tp8", {"cache_dtype": "bfloat16"}, 16),
        ("deepseek-v3-b200-fp4-tp4", {"cache_dtype": "fp8"}, 32),
        ("deepseek-v3-b200-fp4-tp4", {"cache_dtype": "auto"}, 32),
    ],
)
def test_an_unstated_block_is_the_one_the_attention_backend_asks_for(
    scenario: str, changes: dict[str, Any], block: int, fresh: Fresh
) -> None:
    documents = fresh(scenario)
    engine(documents, block_size=0, **changes)
    assert settings_of(documents).block_size == block
    assert assumed(documents)["block_size"].startswith(f"{block}: ")
    engine(documents, block_size=48)
    assert settings_of(documents).block_size == 48
    assert "block_size" not in assumed(documents)


@pytest.mark.parametrize("part", ["a100-80", "a100-sxm", "l40s"])
def test_parts_before_hopper_page_a_latent_cache_by_16(part: str, fresh: Fresh) -> None:
    documents = fresh()
    engine(documents, block_size=0)
    found = resolve(documents)
    documents.chip.name = part
    for cache_bytes in (1.0, 2.0):
        precision = replace(found.precision, cache_element_bytes=cache_bytes)
        settings = resolve_engine(engine(documents), documents.chip, found.layout, found.facts, precision)
        assert settings.block_size == 16


# ---- scheduler limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "memory_gib", "budget", "sequences"),
    [
        ("l40s", 44.7, 2_048, 256),
        ("a100-80", 79.2, 2_048, 256),
        ("A100-SXM", 79.2, 2_048, 256),
        ("h100", 79.6, 8_192, 1_024),
        ("h200", 140.4, 8_192, 1_024),
        ("part", 69.9, 2_048, 256),
        ("part", 70.0, 8_192, 1_024),
        ("part", 159.9, 8_192, 1_024),
        ("part", 160.0, 16_384, 1_024),
        ("b200", 178.4, 16_384, 1_024),
        ("gb300", 277.5, 16_384, 1_024),
    ],
)
def test_limits_follow_the_memory_of_the_part(
    name: str, memory_gib: float, budget: int, sequences: int, fresh: Fresh
) -> None:
    documents = fresh(DENSE)
    found = resolve(documents)
    documents.chip.name, documents.chip.memory_gib = name, memory_gib
    settings = resolve_engine(engine(documents, **UNSTATED), documents.chip, found.layout, found.facts, found.precision)
    assert (settings.max_num_batched_tokens, settings.max_num_seqs) == (budget, sequences)


@pytest.mark.parametrize("chip_name", list_chips())
def test_limits_of_every_bundled_part(chip_name: str, fresh: Fresh) -> None:
    found = resolve(documents := fresh(DENSE))
    chip = hardware.load_chip(Repos().catalog_root() / "hardware" / f"{chip_name}.yaml")
    settings = resolve_engine(engine(documents, **UNSTATED), chip, found.layout, found.facts, found.precision)
    budgets = {"a100-80": 2_048, "a100-sxm": 2_048, "l40s": 2_048, "h100": 8_192, "h200": 8_192}
    assert settings.max_num_batched_tokens == budgets.get(chip_name, 16_384)


@pytest.mark.parametrize("backend", ["deepep_low_latency", "nixl_ep"])
@pytest.mark.parametrize(
    ("scenario", "changes", "budget", "sequences"),
    [
        ("minimax-m2.5-h200-ep16", {}, 256, 256),
        ("minimax-m2.5-h200-ep16", {"max_num_batched_tokens": 4_096}, 4_096, 1_024),
        ("minimax-m2.5-h200-ep16", {"max_num_seqs": 2_000}, 256, 2_000),
        ("minimax-m2.5-h200-ep8", {}, 8_192, 1_024),  # one replica
        ("qwen3-30b-a3b-h200-dp4", {}, 8_192, 1_024),  # no expert parallelism
    ],
)
def test_a_low_latency_dispatch_lowers_unstated_limits(
    backend: str, scenario: str, changes: dict[str, Any], budget: int, sequences: int, fresh: Fresh
) -> None:
    documents = fresh(scenario)
    engine(documents, **(UNSTATED | {"all2all_backend": backend} | changes))
    settings = settings_of(documents)
    assert (settings.max_num_batched_tokens, settings.max_num_seqs) == (budget, sequences)


@pytest.mark.parametrize(
    ("stated", "budget", "sequences"),
    [
        ({"max_num_seqs": 4, "max_model_len": 100}, 400, 4),
        ({"max_num_seqs": 4, "max_model_len": 100, "max_num_batched_tokens": 1_000}, 1_000, 4),
        ({"max_num_seqs": 4}, 8_192, 4),
        ({"max_model_len": 5}, 5_120, 1_024),
        ({"max_num_batched_tokens": 300}, 300, 300),
        ({"max_num_batched_tokens": 300, "max_num_seqs": 400}, 300, 400),
    ],
)
def test_unstated_limits_fit_the_stated_ones(stated: dict[str, int], budget: int, sequences: int, fresh: Fresh) -> None:
    documents = fresh(DENSE)
    engine(documents, **(UNSTATED | stated))
    settings = settings_of(documents)
    assert (settings.max_num_batched_tokens, settings.max_num_seqs) == (budget, sequences)


def test_an_unstated_budget_prices_like_the_default_one(fresh: Fresh) -> None:
    unstated, stated = fresh(), fresh()
    engine(unstated, max_num_batched_tokens=0)
    engine(stated, max_num_batched_tokens=8_192)
    batch = Batch([Request(1, 4_095, 1)] * 32)
    assert Kernel(unstated).step_time(batch) == Kernel(stated).step_time(batch)
    assert settings_of(unstated) == settings_of(stated)


# ---- disclosures ---------------------------------------------------------------------------------------------------


def test_each_default_filled_in_is_one_assumption_more(fresh: Fresh) -> None:
    documents = fresh()
    stated = Kernel(documents).evidence()
    engine(documents, block_size=0, cudagraph_mode="", max_num_batched_tokens=0)
    unstated = Kernel(documents).evidence()
    assert unstated.total == stated.total + 3
    assert unstated.measured == stated.measured
    assert set(unstated.assumed) - set(stated.assumed) == {"block_size", "cudagraph_mode", "max_num_batched_tokens"}


def test_assumptions_are_recorded_in_a_fixed_order(fresh: Fresh) -> None:
    documents = fresh()
    engine(documents, **UNSTATED)
    assert list(assumed(documents)) == [
        "block_size",
        "cudagraph_mode",
        "max_num_seqs",
        "max_cudagraph_capture_size",
        "max_num_batched_tokens",
        "engine_version",
    ]


@pytest.mark.parametrize(
    "stated", [{"max_cudagraph_capture_size": 64}, {"cudagraph_capture_sizes": [64]}, {"cudagraph_mode": "NONE"}]
)
def test_the_ceiling_is_assumed_only_where_it_was_left_open(stated: dict[str, Any], fresh: Fresh) -> None:
    documents = fresh()
    assert assumed(documents)["max_cudagraph_capture_size"].startswith("512: ")
    engine(documents, **stated)
    assert "max_cudagraph_capture_size" not in assumed(documents)


@pytest.mark.parametrize(("version", "disclosed"), [("0.29.0", True), ("0.31.0", False), ("0.30", True)])
def test_another_release_than_the_encoded_one_is_disclosed(version: str, disclosed: bool, fresh: Fresh) -> None:
    assert pykernel.ENGINE_BEHAVIOUR_VERSION == "0.31.0"
    documents = fresh()
    documents.scenario.engine_version = version
    found = assumed(documents).get("engine_version", "")
    assert found.startswith("0.31.0: ") is disclosed
    assert (version in found) is disclosed


@pytest.mark.parametrize("stated", [None, True, False])
def test_cascade_attention_never_runs_and_asking_for_it_is_overridden(stated: bool | None, fresh: Fresh) -> None:
    documents = fresh()
    engine(documents, disable_cascade_attn=stated)
    resolution = resolve(documents).resolution
    assert resolution.cascade_attention is False
    fields = [(override.field, override.requested, override.resolved) for override in resolution.overrides]
    assert fields == ([("disable_cascade_attn", "false", "true")] if stated is False else [])


@pytest.mark.parametrize(("stated", "runs"), [(None, True), (True, True), (False, False)])
def test_async_scheduling_is_on_unless_turned_off(stated: bool | None, runs: bool, fresh: Fresh) -> None:
    documents = fresh()
    engine(documents, async_scheduling=stated)
    assert resolve(documents).resolution.async_scheduling is runs


def test_resolving_leaves_the_documents_alone(fresh: Fresh) -> None:
    documents = fresh("minimax-m2.5-h200-ep16")
    engine(documents, **UNSTATED, all2all_backend="deepep_high_throughput", disable_cascade_attn=False)
    before = copy.deepcopy(documents)
    resolve(documents)
    assert documents == before
