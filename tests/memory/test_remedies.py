"""What would make a deployment fit: each change that is offered works, and is the smallest of its kind that does."""

from __future__ import annotations

import copy

import pykernel
from pykernel import Repos
from pykernel.documents import Chip, hardware, list_chips
from pykernel.remedies import Remedy, sequences_that_fit, what_would_fit
from tests.memory.graphs import fresh, spread, stating


def chips() -> list[Chip]:
    folder = Repos().catalog_root() / "hardware"
    return [hardware.load_chip(folder / f"{name}.yaml") for name in list_chips()]


def by_field(remedies: tuple[Remedy, ...]) -> dict[str, str]:
    return {remedy.field.rpartition(".")[2]: remedy.value for remedy in remedies}


def test_a_model_that_fits_needs_one_sequence_to_fit() -> None:
    assert sequences_that_fit(fresh(), 4096) == pykernel.new(fresh()).kv_capacity().sequences(4096) > 0
    assert sequences_that_fit(fresh(), 10**9) == 0
    assert sequences_that_fit(spread(fresh(), tp=2), 1) == 0
    assert sequences_that_fit(spread(fresh(), tp=3), 1) == 0  # the engine does not start


def test_the_smallest_wider_layout_and_the_smallest_larger_part_are_offered() -> None:
    # DeepSeek-V3 in fp8 is 626 GiB: 156 a rank at tp 4 fit neither 141 GiB nor fewer, but 180 they do.
    inputs = spread(fresh(), tp=4)
    before = copy.deepcopy((inputs.scenario, inputs.deployment, inputs.chip))
    remedies = what_would_fit(inputs, 4096, chips=chips())
    assert by_field(remedies) == {"tp": "8", "hardware": "b200"}
    assert (inputs.scenario, inputs.deployment, inputs.chip) == before
    assert next(remedy.sequences for remedy in remedies if remedy.value == "8") == sequences_that_fit(fresh(), 4096)


def test_a_narrower_cache_is_offered_where_it_is_enough() -> None:
    # One H100 holds the weights of Llama-3.1-8B and about 450,000 tokens at 16 bits.
    inputs = fresh("llama-3.1-8b-h100-tp1", cache_dtype="bfloat16")
    room = pykernel.new(inputs).kv_capacity()
    assert room.sequences(room.tokens + 1) == 0
    offered = by_field(what_would_fit(inputs, room.tokens + 1, chips=chips()))
    assert offered == {"tp": "2", "cache_dtype": "fp8", "hardware": "h200"}
    assert "cache_dtype" not in by_field(what_would_fit(inputs, 3 * room.tokens, chips=chips()))
    assert "cache_dtype" not in by_field(what_would_fit(stating(inputs, cache_dtype="fp8"), 3 * room.tokens))


def test_more_ranks_than_the_pool_has_take_more_nodes_where_a_fabric_joins_them() -> None:
    joined = spread(fresh("minimax-m2.5-h200-disagg"), tp=8)
    joined.chip = copy.deepcopy(joined.chip)
    joined.chip.memory_gib = 30.0
    [remedy] = what_would_fit(joined, 1)
    assert remedy.value.endswith("nodes") and remedy.found == "8"
    alone = fresh()
    alone.chip = copy.deepcopy(alone.chip)
    alone.chip.memory_gib = 60.0
    assert what_would_fit(alone, 1) == ()


def test_nothing_is_offered_that_does_not_help() -> None:
    assert what_would_fit(fresh(), 10**12, chips=chips()) == ()
