"""How many blocks, tokens and sequences fit beside the model, and what is said when it does not."""

from __future__ import annotations

import pickle

import pytest

import pykernel
from pykernel.errors import ArgumentError, RefusedError
from tests.memory.graphs import DEEPSEEK, drafting, fresh, gqa, mixer, model, spread, stating
from tests.memory.test_sequences import hybrid, stated

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(("name", "blocks", "of_64"), [("blis", 89_374, 22_343), ("blis-reference", 82_164, 20_541)])
def test_blocks_are_what_the_fixed_bytes_leave_of_the_budget(name: str, blocks: int, of_64: int) -> None:
    # 141 GiB at 0.90, less the fixed bytes, over 16 * 35,136 bytes; truncated to a byte, then to a block.
    kernel = pykernel.open(DEEPSEEK, model=name)
    room = kernel.kv_capacity()
    assert room.bytes == int(141 * 2**30 * 0.9) - kernel.fixed_bytes().total
    assert (room.device_bytes, room.block_bytes, room.block_tokens) == (141 * 2**30, 16 * 35_136, 16)
    assert (room.blocks, room.tokens) == (blocks, 16 * blocks) == (room.bytes // room.block_bytes, room.tokens)
    assert kernel.kv_capacity(block_size=64).blocks == of_64


def test_a_setting_given_in_the_call_takes_the_place_of_the_deployments() -> None:
    kernel = pykernel.new(fresh())
    total = kernel.fixed_bytes().total
    assert kernel.kv_capacity(gpu_memory_bytes=2 * total, gpu_memory_utilization=1.0).bytes == total
    unstated = pykernel.new(fresh(gpu_memory_utilization=0.0))
    assert unstated.kv_capacity() == kernel.kv_capacity(gpu_memory_utilization=0.92)


def test_sequences_fill_blocks() -> None:
    room = pykernel.new(fresh()).kv_capacity()
    for tokens in (1, 16, 17, 4096, 32_768, room.tokens, room.tokens + 1):
        assert room.sequences(tokens) == room.blocks // -(-tokens // 16)
    assert room.sequences(room.tokens + 1) == 0
    assert room.sequences(0) == INT64_MAX


def test_a_block_of_shared_caches_holds_tokens_for_every_rank() -> None:
    room = pykernel.new(spread(fresh(), dcp=8)).kv_capacity()
    assert (room.block_tokens, room.block_bytes) == (16 * 8, 16 * 35_136)
    assert room.tokens == room.blocks * 128


def test_bounded_bytes_count_for_every_sequence() -> None:
    for inputs in (hybrid(), stated(), drafting(hybrid(), 3)):
        kernel = pykernel.new(inputs)
        room = kernel.kv_capacity(gpu_memory_bytes=400 * 2**30)
        each = kernel.sequence_variable_bytes(4096) + kernel.sequence_admission_bytes()
        assert each > kernel.sequence_variable_bytes(4096)
        assert room.sequences(4096) == room.bytes // each


def test_nothing_that_grows_leaves_tokens_without_end() -> None:
    room = pykernel.new(model((3, [mixer("kda", 32, 128)]))).kv_capacity()
    assert (room.blocks, room.block_bytes, room.tokens) == (0, 0, INT64_MAX)
    assert room.sequences(10**9) == room.sequences(1) > 0


def test_windows_let_a_long_sequence_take_less_than_its_blocks() -> None:
    room = pykernel.new(model((3, [gqa(8, 8, 64, 128)]), (3, [gqa(8, 8, 64)]))).kv_capacity()
    assert room.sequences(131_072) > room.tokens // 131_072


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda inputs: spread(inputs, tp=2), ("does not fit", "the part has")),
        (lambda inputs: stating(inputs, gpu_memory_utilization=0.5), ("does not fit its budget", "the budget is")),
    ],
)
def test_a_model_without_room_is_refused_with_its_sizes(change: object, words: tuple[str, ...]) -> None:
    inputs = change(fresh())  # type: ignore[operator]
    kernel = pykernel.new(inputs)  # construction prices what does not fit as well
    with pytest.raises(RefusedError) as caught:
        kernel.kv_capacity()
    assert all(word in str(caught.value) for word in (*words, str(kernel.fixed_bytes().total)))


def test_a_budget_smaller_than_a_block_is_refused() -> None:
    kernel = pykernel.new(fresh())
    total = kernel.fixed_bytes().total
    with pytest.raises(RefusedError, match="no block of 16 tokens fits"):
        kernel.kv_capacity(gpu_memory_bytes=total + 16 * 35_136 - 1, gpu_memory_utilization=1.0)
    room = kernel.kv_capacity(gpu_memory_bytes=total + 16 * 35_136, gpu_memory_utilization=1.0)
    assert (room.blocks, room.tokens) == (1, 16)


def test_what_is_held_before_the_budget_must_fit_beside_it() -> None:
    kernel = pykernel.new(fresh())
    outside = kernel.pre_snapshot_bytes()
    device = 141 * 2**30
    for free, fits in ((outside, True), (outside - 2**20, False)):
        room = kernel.kv_capacity(gpu_memory_utilization=1 - free / device)
        assert room.pre_snapshot_fits is fits


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpu_memory_bytes": 0},
        {"gpu_memory_bytes": -1},
        {"gpu_memory_utilization": 0.0},
        {"gpu_memory_utilization": 1.01},
        {"gpu_memory_utilization": float("nan")},
        {"block_size": 0},
        {"block_size": 2.5},
    ],
)
def test_an_argument_out_of_range_is_refused_by_name(wrong: dict[str, float]) -> None:
    [name] = wrong
    with pytest.raises(ArgumentError, match=name):
        pykernel.new(fresh()).kv_capacity(**wrong)  # type: ignore[arg-type]


def test_sizes_beyond_an_integer_of_64_bits_stop_there() -> None:
    room = pykernel.new(fresh()).kv_capacity(gpu_memory_bytes=2**70, gpu_memory_utilization=1.0)
    assert 0 < room.blocks < INT64_MAX and room.device_bytes == INT64_MAX
    assert pykernel.new(fresh()).kv_capacity(gpu_memory_bytes=2**62).bytes < 2**62


@pytest.mark.parametrize("scenario", pykernel.documents.list_scenarios())
def test_every_bundled_deployment_fits_its_part(scenario: str) -> None:
    kernel = pykernel.open(scenario)
    room = kernel.kv_capacity()
    assert kernel.fixed_bytes().total < room.device_bytes
    assert room.blocks > 0 and room.sequences(2048) > 0


def test_a_capacity_travels_between_processes() -> None:
    room = pykernel.new(fresh()).kv_capacity()
    again = pickle.loads(pickle.dumps(room))
    assert again == room
    assert (again.charge(1_000), again.sequences(1_000)) == (room.charge(1_000), room.sequences(1_000))
