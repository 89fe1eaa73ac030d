"""What a sequence keeps on a rank: pages, windows, sharding, recurrent state, rings, and how long a one fits."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest

import pykernel
from pykernel.documents import Cache, Node, Speculator, Stack
from pykernel.errors import ArgumentError, RefusedError
from pykernel.switches import LawSwitches
from tests.memory.graphs import drafting, fresh, gqa, indexer, latent, mixer, model, spread, stating

INT64_MAX = 2**63 - 1
B200 = "deepseek-v3-b200-fp4-tp4"
KERNELS: dict[str, Callable[[], pykernel.Inputs]] = {
    "latent": lambda: fresh(),
    "latent, odd block": lambda: fresh(block_size=48),
    "latent, unpaged": lambda: fresh(block_size=1, cache_dtype="bfloat16"),
    "latent, sharded": lambda: spread(fresh(), dcp=8),
    "grouped heads": lambda: fresh("llama-3.1-8b-h100-tp1"),
    "windows": lambda: fresh("gpt-oss-120b-h100-fp4-tp2"),
    "windows alone": lambda: model((4, [gqa(8, 8, 64, 100)])),
    "recurrent": lambda: hybrid(),
    "recurrent, checkpoints": lambda: stating(hybrid(), mamba_cache_mode="all"),
    "recurrent alone": lambda: model((3, [mixer("kda", 32, 128, conv_kernel=4)])),
    "compressed": lambda: compressed(),
    "stated": lambda: stated(),
}


def hybrid(**engine: object) -> pykernel.Inputs:
    """Delta attention in three layers of four, grouped heads in the fourth."""
    mixed = mixer("gdn", 32, 128, conv_kernel=4, intermediate_size=8192)
    return model((9, [mixed]), (3, [gqa(32, 2, 256)]), **{"block_size": 16} | engine)


def compressed() -> pykernel.Inputs:
    """One entry for 4 tokens beside a window of 128, and an indexer at the same ratio."""
    sparse = latent(64, 512, kind="sparse_mla", window=128, index_topk=512, compress_ratio=4)
    return on_hopper(model((2, [indexer(kind="sparse_mla", compress_ratio=4), sparse]), block_size=64))


def on_hopper(inputs: pykernel.Inputs) -> pykernel.Inputs:
    inputs.chip, inputs.coefficients = fresh().chip, fresh().coefficients
    return inputs


def stated(**engine: object) -> pykernel.Inputs:
    """A latent cache, an indexer of every fourth token, a ring of 512 tokens and a state, on any model."""
    inputs = fresh(**{"max_model_len": 32_768} | engine)
    inputs.model.caches = [
        Cache("latent", "growing", 60, entry_bytes=576, shards=["dcp"]),
        Cache("keys", "growing", 20, entry_bytes=132, tokens_per_entry=4),
        Cache("window", "ring", 30, entry_bytes=1024, window=512, heads=8, block=32),
        Cache("state", "fixed", 5, page_bytes=8_000),
    ]
    return inputs


@cache
def built(name: str) -> pykernel.CostModel:
    return pykernel.new(KERNELS[name]())


def variable(inputs: pykernel.Inputs, tokens: int) -> int:
    return pykernel.new(inputs).sequence_variable_bytes(tokens)


# ---- laws of the paged part ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_no_tokens_hold_nothing_and_more_never_less(name: str) -> None:
    kernel = built(name)
    assert [kernel.sequence_variable_bytes(tokens) for tokens in (0, -5, -(2**70))] == [0, 0, 0]
    grid = sorted({*range(1, 300), *(2**power + step for power in range(9, 63) for step in (-1, 0, 1)), 2**70})
    sizes = [kernel.sequence_variable_bytes(tokens) for tokens in grid]
    assert sizes == sorted(sizes) and sizes[0] >= 0
    assert sizes[-1] <= INT64_MAX


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("latent", 16),
        ("latent, odd block", 48),
        ("latent, unpaged", 1),
        ("latent, sharded", 128),
        ("stated", 16),
        ("grouped heads", 16),
        ("windows", 16),
        ("compressed", 64),
        ("recurrent, checkpoints", 16),
    ],
)
def test_bytes_are_constant_within_a_page_and_rise_at_its_end(name: str, page: int) -> None:
    kernel = built(name)
    for tokens in range(1, 4 * page + 1):
        whole = -(-tokens // page) * page
        assert kernel.sequence_variable_bytes(tokens) == kernel.sequence_variable_bytes(whole)
    for count in range(1, 5):
        assert kernel.sequence_variable_bytes(count * page) < kernel.sequence_variable_bytes(count * page + 1)


@pytest.mark.parametrize("name", ["latent", "latent, odd block", "latent, sharded", "grouped heads"])
def test_bytes_are_linear_in_pages(name: str) -> None:
    kernel = built(name)
    page = kernel.max_tokens_for(kernel.sequence_variable_bytes(1))
    for count in range(1, 65):
        assert kernel.sequence_variable_bytes(count * page) == count * kernel.sequence_variable_bytes(page)


@pytest.mark.parametrize("name", KERNELS)
def test_two_sequences_hold_no_less_than_one_of_their_tokens(name: str) -> None:
    kernel, chance = built(name), random.Random(7)
    for _ in range(200):
        one, other = chance.randrange(1, 100_000), chance.randrange(1, 100_000)
        together = kernel.sequence_variable_bytes(one + other)
        assert kernel.sequence_variable_bytes(one) + kernel.sequence_variable_bytes(other) >= together


@pytest.mark.parametrize("name", KERNELS)
def test_the_inverse_is_the_largest_that_fits(name: str) -> None:
    kernel, chance = built(name), random.Random(11)
    most = kernel.sequence_variable_bytes(INT64_MAX)
    for tokens in [0, 1, 15, 16, 17, 128, 129, 10**12, INT64_MAX] + [chance.randrange(1, 2**40) for _ in range(40)]:
        size = kernel.sequence_variable_bytes(tokens)
        fits = kernel.max_tokens_for(size)
        assert fits >= tokens and kernel.sequence_variable_bytes(fits) <= size
        assert fits == INT64_MAX or kernel.sequence_variable_bytes(fits + 1) > size
        below = kernel.max_tokens_for(size - 1)
        assert below < tokens or size == 0
        assert pykernel.CostModel.max_tokens_for(kernel, size) == fits
    assert kernel.max_tokens_for(-1) == 0
    assert kernel.max_tokens_for(most) == kernel.max_tokens_for(2**80) == INT64_MAX


def test_the_inverse_is_without_end_where_nothing_grows() -> None:
    assert built("recurrent alone").max_tokens_for(0) == INT64_MAX
    assert built("recurrent alone").sequence_variable_bytes(10**9) == 0
    windows = built("windows alone")
    full = windows.sequence_variable_bytes(100)
    assert windows.max_tokens_for(full) == INT64_MAX and windows.max_tokens_for(full - 1) == 96


def test_an_argument_that_is_no_count_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"tokens is 1\.5, accepted is a whole number"):
        built("latent").sequence_variable_bytes(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", KERNELS)
def test_sizes_too_large_to_count_stop_at_the_largest(name: str) -> None:
    kernel = built(name)
    grows = kernel.sequence_variable_bytes(2**30) > kernel.sequence_variable_bytes(2**20)
    assert (kernel.sequence_variable_bytes(INT64_MAX) == INT64_MAX) is grows
    exact = [kernel.sequence_variable_bytes(10**12), kernel.sequence_variable_bytes(10**12 + 10**11)]
    assert (0 < exact[0] < exact[1]) is grows
    assert kernel.sequence_bounded_bytes(INT64_MAX) >= kernel.sequence_admission_bytes()
    assert kernel.sequence_bounded_bytes_at(INT64_MAX, INT64_MAX) == kernel.sequence_bounded_bytes(INT64_MAX)


# ---- sharding --------------------------------------------------------------------------------------------------


def test_heads_stop_dividing_where_there_is_one_each() -> None:
    sizes = [variable(spread(fresh("llama-3.1-8b-h100-tp1"), tp=tp), 4096) for tp in (1, 2, 4, 8, 16, 32)]
    assert sizes == [sizes[0] // divisor for divisor in (1, 2, 4, 8, 8, 8)]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_decode_context_ranks_share_the_tokens_before_they_are_paged(ranks: int) -> None:
    whole, shared = fresh(), spread(fresh(), dcp=ranks)
    for tokens in (1, 16, 17, 16 * ranks, 16 * ranks + 1, 4096, 99_999):
        blocks = -(-tokens // (16 * ranks))
        assert variable(shared, tokens) == variable(whole, 16 * blocks)


def test_a_windowed_layer_leaves_a_model_unshared() -> None:
    whole = spread(fresh("gpt-oss-120b-h200-fp4-tp8"), tp=8)
    assert variable(spread(fresh("gpt-oss-120b-h200-fp4-tp8"), tp=8, dcp=4), 5000) == variable(whole, 5000)


def test_prefill_context_ranks_share_no_cache() -> None:
    assert variable(spread(fresh(), tp=4, pcp=2), 5000) == variable(spread(fresh(), tp=4), 5000)


def test_halving_the_cache_width_halves_the_bytes() -> None:
    for name in ("deepseek-v3-h200-fp8-tp8", "gpt-oss-120b-h200-fp4-tp8", "llama-3.1-8b-h100-tp1"):
        wide, narrow = (variable(fresh(name, cache_dtype=dtype), 999) for dtype in ("bfloat16", "fp8"))
        assert wide == 2 * narrow


def test_a_four_bit_cache_keeps_its_scales() -> None:
    inputs = spread(fresh("llama-3.1-8b-h100-tp1"), tp=1)
    inputs.chip.tflops_nvfp4 = 4000.0
    assert variable(stating(inputs, cache_dtype="nvfp4"), 16) == 16 * 2 * 32 * 8 * 128 * 9 // 16


# ---- groups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cache", "cell"), [("fp8_ds_mla", 656), ("fp8", 656), ("", 1152)])
def test_sparse_latent_pages_hold_the_indexers_keys_beside_the_resolved_layout(cache: str, cell: int) -> None:
    # 61 layers in blocks of 64: 3,076,352 bytes of packed cells, 5,012,736 at 16 bits (vLLM 0.31.0 sizes them so).
    layer = [indexer(), latent(128, kind="sparse_mla", index_topk=2048)]
    inputs = on_hopper(model((61, layer), cache_dtype=cache, block_size=64))
    block = 61 * 64 * (cell + 132)
    assert variable(inputs, 1) == variable(inputs, 64) == block == {656: 3_076_352, 1152: 5_012_736}[cell]


def test_a_compressed_cache_keeps_an_entry_a_ratio_and_a_window_of_tokens() -> None:
    # Two layers: latent entries of 512 * 2 bytes, and keys of 128 * 2, one for four tokens; 128 whole tokens beside.
    for tokens in (64, 128, 1024):
        expected = 2 * ((1024 + 256) * tokens // 4 + 1024 * min(tokens, 128))
        assert built("compressed").sequence_variable_bytes(tokens) == expected


def test_beside_a_scorer_a_window_is_a_selection_and_everything_stays() -> None:
    alone = model((2, [gqa(16, 4, 128, 256)]), block_size=16)
    beside = model((2, [indexer(64), gqa(16, 4, 128, 256)]), block_size=16)
    assert variable(alone, 4096) == 2 * 2 * 4 * 128 * 2 * 256
    assert variable(beside, 4096) == (2 * 2 * 4 * 128 * 2 + 2 * 64 * 2) * 4096


def test_a_latent_with_a_window_keeps_the_window() -> None:
    inputs = model((2, [latent(64, window=100)]), block_size=16)
    assert variable(inputs, 50_000) == 2 * 576 * 2 * 112


def test_the_layers_of_a_speculator_keep_caches_where_the_deployment_drafts() -> None:
    assert variable(drafting(fresh(), 2), 16) == 16 * 62 * 576
    assert variable(drafting(fresh(), 2, "ngram"), 16) == 16 * 61 * 576
    assert variable(fresh(), 16) == 16 * 61 * 576


# ---- recurrent state -------------------------------------------------------------------------------------------


def state(node: Node, tp: int = 1, **engine: object) -> int:
    """Bytes of one page of one layer on one rank: what a sequence holds without prefix caching or drafts."""
    inputs = spread(model((1, [node]), enable_prefix_caching=False, **engine), tp=tp)
    return pykernel.new(inputs).sequence_fixed_bytes()


NEMOTRON = mixer("mamba2", 256, 128, n_groups=8, conv_kernel=4, intermediate_size=16_384, state_dtype="fp32")
QWEN35 = mixer("gdn", 64, 128, conv_kernel=4, intermediate_size=12_288, state_dtype="fp32")
QWEN3_NEXT = mixer("gdn", 32, 128, conv_kernel=4, intermediate_size=8192)
KIMI_LINEAR = mixer("kda", 32, 128, conv_kernel=4, state_dtype="fp32")
PAGES = [
    # By hand: (K - 1) rows of the convolution at 2 bytes, and heads x width x state at the stated width.
    (NEMOTRON, 1, 3 * (16_384 + 2 * 8 * 128) * 2 + 256 * 64 * 128 * 4, 8_499_200),
    (NEMOTRON, 8, (3 * (16_384 + 2 * 8 * 128) * 2 + 256 * 64 * 128 * 4) // 8, 1_062_400),
    (NEMOTRON, 16, 3 * (16_384 + 2 * 16 * 128) // 16 * 2 + 16 * 64 * 128 * 4, 531_968),  # a group a rank, not half
    (QWEN35, 4, 3 * 12_288 // 4 * 2 + 16 * 128 * 128 * 4, 1_067_008),
    # Worked in vLLM 0.31.0: Qwen3-Next and Kimi-Linear.
    (QWEN3_NEXT, 1, 49_152 + 1_048_576, 1_097_728),
    (QWEN3_NEXT, 8, 6_144 + 131_072, 137_216),
    (KIMI_LINEAR, 1, 73_728 + 2_097_152, 2_170_880),
    (KIMI_LINEAR, 8, 9_216 + 262_144, 271_360),
    (mixer("kda", 32, 128), 1, 32 * 128 * 128 * 2, 1_048_576),  # without a convolution
]


@pytest.mark.parametrize(("node", "tp", "by_hand", "page"), PAGES)
def test_a_page_of_state_is_divided_by_tensor_parallelism(node: Node, tp: int, by_hand: int, page: int) -> None:
    assert state(node, tp) == by_hand == page


def test_widths_of_state_are_those_of_the_deployment_then_of_the_graph() -> None:
    convolution, second = 3 * 12_288, 64 * 128 * 128
    assert state(QWEN35) == convolution * 2 + second * 4
    assert state(QWEN35, mamba_ssm_cache_dtype="bfloat16") == convolution * 2 + second * 2
    assert state(QWEN35, mamba_cache_dtype="float32") == convolution * 4 + second * 4
    unstated = mixer("gdn", 64, 128, conv_kernel=4, intermediate_size=12_288)
    assert state(unstated) == (convolution + second) * 2
    assert state(unstated, mamba_cache_dtype="float32") == (convolution + second) * 4
    with pytest.raises(RefusedError, match="mamba_ssm_cache_dtype is 'fp4'"):
        state(unstated, mamba_ssm_cache_dtype="fp4")


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize(("mode", "caching", "pages"), [("", True, 2), ("", False, 1), ("align", True, 2)])
def test_a_mode_holds_its_pages_and_one_for_each_draft(mode: str, caching: bool, pages: int, drafts: int) -> None:
    inputs = hybrid(mamba_cache_mode=mode, enable_prefix_caching=caching)
    if drafts:
        drafting(inputs, drafts)
    page = (3 + drafts) * 8192 * 2 + 32 * 128 * 128 * 2  # a draft adds a row to the convolution too
    kernel = pykernel.new(inputs)
    assert kernel.sequence_fixed_bytes() == 9 * page * (pages + drafts)
    assert kernel.sequence_variable_bytes(16) == 16 * 3 * 2 * 2 * 256 * 2


def test_checkpointed_state_grows_with_the_sequence() -> None:
    kernel, plain = built("recurrent, checkpoints"), built("recurrent")
    page = 3 * 8192 * 2 + 32 * 128 * 128 * 2
    assert kernel.sequence_fixed_bytes() == 0
    for tokens in (1, 16, 17, 1000):
        grown = kernel.sequence_variable_bytes(tokens) - plain.sequence_variable_bytes(tokens)
        assert grown == 9 * page * -(-tokens // 16)
    drafted = pykernel.new(drafting(KERNELS["recurrent, checkpoints"](), 2))
    steps = [drafted.sequence_variable_bytes(16 * n) - drafted.sequence_variable_bytes(16 * n - 16) for n in (2, 3, 9)]
    assert len(set(steps)) == 1 and drafted.sequence_variable_bytes(16) > steps[0]


HYBRIDS = (  # worked in vLLM 0.31.0: a mixer, an attention, their tp, the tokens of a block and the bytes of its page
    (QWEN3_NEXT, gqa(16, 2, 256), 1, 544, 1_114_112),
    (QWEN3_NEXT, gqa(16, 2, 256), 4, 272, 278_528),
    (QWEN3_NEXT, gqa(16, 2, 256), 8, 144, 147_456),
    (KIMI_LINEAR, latent(32), 1, 1920, 2_211_840),
    (KIMI_LINEAR, latent(32), 8, 256, 294_912),
)


@pytest.mark.parametrize(("mixed", "attention", "tp", "block"), [case[:4] for case in HYBRIDS])
def test_an_unstated_block_of_a_hybrid_grows_until_it_holds_a_state(
    mixed: Node, attention: Node, tp: int, block: int
) -> None:
    inputs = spread(model((3, [mixed]), (1, [attention]), block_size=0), tp=tp)
    kernel = pykernel.new(inputs)
    assert kernel.max_tokens_for(kernel.sequence_variable_bytes(1)) == block
    assumed = {origin.name: origin.scope for origin in kernel.provenance() if origin.set == "pykernel"}
    assert assumed["block_size"].startswith(f"{block}: not stated; ") and "recurrent" in assumed["block_size"]
    stated_size = pykernel.new(stating(inputs, block_size=16))
    assert stated_size.max_tokens_for(stated_size.sequence_variable_bytes(1)) == 16


@pytest.mark.parametrize("block", [0, 1, 16])
@pytest.mark.parametrize(("mixed", "attention", "tp", "page"), [(*case[:3], case[4]) for case in HYBRIDS])
def test_calibrated_pads_a_state_to_the_page_of_attention(
    mixed: Node, attention: Node, tp: int, page: int, block: int
) -> None:
    """Also where a smaller block is stated, which the engine raises; `blis` keeps the published size of a state."""
    inputs = spread(on_hopper(model((3, [mixed]), (1, [attention]), block_size=block)), tp=tp)
    kernel, published = pykernel.new(inputs, model="calibrated"), pykernel.new(inputs)
    held = pykernel.Kernel(inputs, switches=LawSwitches(engine_weights=True)).sequence_fixed_bytes()
    assert kernel.sequence_fixed_bytes() == held == 3 * 2 * page > published.sequence_fixed_bytes()
    assert kernel.sequence_variable_bytes(5000) == published.sequence_variable_bytes(5000)


def test_calibrated_pads_nothing_without_a_page_of_attention_to_pad_to() -> None:
    alone = on_hopper(model((3, [KIMI_LINEAR])))
    checkpoints = on_hopper(stating(hybrid(), mamba_cache_mode="all"))
    for inputs in (alone, checkpoints, stated()):
        kernel, published = pykernel.new(inputs, model="calibrated"), pykernel.new(inputs)
        assert kernel.sequence_fixed_bytes() == published.sequence_fixed_bytes()
        assert kernel.sequence_variable_bytes(5000) == published.sequence_variable_bytes(5000)


@pytest.mark.parametrize("name", ["latent", "grouped heads", "windows", "compressed"])
def test_a_model_of_attention_alone_holds_nothing_bounded(name: str) -> None:
    kernel = built(name)
    assert kernel.sequence_fixed_bytes() == kernel.sequence_admission_bytes() == 0
    assert kernel.sequence_bounded_bytes(10_000) == kernel.sequence_bounded_bytes_at(99, 7) == 0


def test_state_alone_is_the_same_at_every_length() -> None:
    kernel = built("recurrent")
    sizes = {kernel.sequence_bounded_bytes_at(computed, f) for computed in (0, 1, 99, 10**6) for f in (0, 1, 8192)}
    assert sizes == {kernel.sequence_fixed_bytes()} == {kernel.sequence_admission_bytes()}


# ---- stated caches ---------------------------------------------------------------------------------------------


POOL = 1024 * 30 * 32 // 8  # the largest page of tests' stated caches at tp 8: the ring's, one of its 8 heads


def test_stated_caches_take_blocks_of_one_pool() -> None:
    # Pages at tp 8: latent 60 * 576 * 16 = 552,960, keys 20 * 132 * 16 / 4, ring 30 * 1,024 / 8 * 32 = 122,880.
    kernel = pykernel.new(stated())
    pool = 60 * 576 * 16
    assert pool > POOL > 20 * 132 * 4
    for tokens in (1, 16, 17, 4096):
        assert kernel.sequence_variable_bytes(tokens) == 2 * -(-tokens // 16) * pool
    sharded = pykernel.new(spread(stated(), dcp=8))
    assert sharded.sequence_variable_bytes(128) == (1 + 8) * pool  # the latent is shared by 8, the keys are not


def test_stated_rings_and_states_are_bounded() -> None:
    kernel = pykernel.new(stated())
    pool, states = 60 * 576 * 16, 5 * 8_000
    for in_flight in (1, 31, 32, 33, 8192, 40_000):
        pages = -(-min(511 + in_flight, 32_768) // 32) + 1
        assert kernel.sequence_bounded_bytes(in_flight) == states + pages * pool
    assert kernel.sequence_fixed_bytes() == kernel.sequence_bounded_bytes(1)
    assert kernel.sequence_admission_bytes() == kernel.sequence_bounded_bytes(2 * 8192)  # two steps under way
    settled = pykernel.new(stated(async_scheduling=False))
    assert settled.sequence_admission_bytes() == settled.sequence_bounded_bytes(8192)


@pytest.mark.parametrize(("in_flight", "pages"), [(1024, 129), (2048, 193)])
def test_a_ring_of_1024_in_blocks_of_16(in_flight: int, pages: int) -> None:
    inputs = fresh()
    inputs.model.caches = [Cache("window", "ring", 1, entry_bytes=10, window=1024)]
    assert pykernel.new(inputs).sequence_bounded_bytes(in_flight) == pages * 160


def test_bounded_bytes_keep_their_identities() -> None:
    for drafts in (0, 1, 3):
        inputs = drafting(stated(), drafts) if drafts else stated()
        kernel = pykernel.new(inputs)
        assert kernel.sequence_bounded_bytes(1 + drafts) == kernel.sequence_fixed_bytes()
        sizes = [kernel.sequence_bounded_bytes(in_flight) for in_flight in range(0, 400)]
        assert sizes == sorted(sizes)
        assert kernel.sequence_fixed_bytes() <= kernel.sequence_admission_bytes()
        for in_flight in (1, 32, 100):
            full = kernel.sequence_bounded_bytes(in_flight)
            reached = [kernel.sequence_bounded_bytes_at(computed, in_flight) for computed in range(0, 700)]
            assert reached == sorted(reached) and max(reached) <= full
            assert set(reached[512 + 32 - 1 :]) == {full} and reached[0] < full
            assert kernel.sequence_bounded_bytes_at(32_768, in_flight) == full
            step = kernel.sequence_bounded_bytes(in_flight + 32) - full
            assert step == 60 * 576 * 16


def test_admission_follows_the_token_budget_and_the_rest_does_not() -> None:
    small, large, larger = (pykernel.new(stated(max_num_batched_tokens=size)) for size in (2048, 4096, 8192))
    sizes = [kernel.sequence_admission_bytes() for kernel in (small, large, larger)]
    assert sizes == sorted(set(sizes))
    assert len({kernel.sequence_fixed_bytes() for kernel in (small, large, larger)}) == 1


def test_caches_of_the_draft_count_where_it_runs() -> None:
    inputs = fresh()
    inputs.model.caches = [
        Cache("target", "growing", 2, entry_bytes=64),
        Cache("draft", "growing", 1, entry_bytes=64, owner="draft"),
    ]
    assert variable(inputs, 16) == 2 * 64 * 16
    assert variable(drafting(inputs, 1), 16) == 2 * 2 * 64 * 16  # a block of the pool each
    assert variable(drafting(inputs, 1, "ngram"), 16) == 2 * 64 * 16


def test_stated_heads_are_never_split_and_other_caches_divide_as_stated() -> None:
    def of(tp: int, **cache: object) -> int:
        inputs = spread(fresh(block_size=1), tp=tp)
        inputs.model.caches = [Cache("c", "growing", 1, entry_bytes=1024, **cache)]
        return variable(inputs, 1)

    assert [of(tp, heads=4) for tp in (1, 2, 4, 8)] == [1024, 512, 256, 256]
    assert [of(tp, heads=4, shards=[]) for tp in (1, 8)] == [1024, 1024]
    assert [of(tp, shards=["tp"]) for tp in (1, 8)] == [1024, 128]
    assert [of(tp) for tp in (1, 8)] == [1024, 1024]


def test_a_draft_of_windows_is_a_group_of_its_own() -> None:
    inputs = model((2, [gqa(16, 4, 128)]), (0, [latent(16, 512, window=64)]), block_size=16)
    inputs.model.speculator = Speculator("mtp", 1, Stack(pattern=["kind_1"], repeat=1))
    plain, drafted = variable(inputs, 1000), variable(drafting(inputs, 1), 1000)
    assert drafted - plain == 512 * 2 * 64
