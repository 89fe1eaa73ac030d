"""Cache, weight and transfer sizes that real users or maintainers got wrong, each with its derivation.

Model sizes are those of the models' public config.json; the public thread beside each case is where the wrong value
was reported. GiB = 2^30 bytes.
"""

from __future__ import annotations

import pytest

import pykernel
from pykernel import Placement
from pykernel._native import ffi, lib
from pykernel.documents import Node
from pykernel.plan import make_plan
from pykernel.resolve import resolve
from pykernel.switches import NEWEST
from tests.memory.graphs import fresh, gqa, indexer, latent, model, spread, stating

HERE, THERE = Placement(0, 0, "prefill"), Placement(1, 1, "decode")


def kernel(inputs: pykernel.Inputs) -> pykernel.CostModel:
    return pykernel.new(inputs)


def per_token(inputs: pykernel.Inputs) -> int:
    """Bytes of one token on one rank, without paging."""
    return kernel(stating(inputs, block_size=1)).sequence_variable_bytes(1)


# ---- grouped heads, stated head sizes, replication under tensor parallelism -------------------------------------


def test_a_token_of_mistral_small_takes_two_tensors_of_eight_heads() -> None:
    # llm-d-planner, vLLM memory measurements: 2 tensors * 40 layers * 8 heads * 128 * 2 bytes
    assert per_token(model((40, [gqa(32, 8, 128)]))) == 2 * 40 * 8 * 128 * 2 == 163_840


def test_a_request_takes_its_last_block_whole() -> None:
    # The same: 15,049 tokens are 117.6 blocks of 128; the wrong value was 117.
    sized = kernel(model((40, [gqa(32, 8, 128)]), block_size=128))
    block = sized.sequence_variable_bytes(128)
    assert sized.sequence_variable_bytes(15_049) == 118 * block
    assert block == 128 * 163_840


def test_the_stated_head_size_wins_over_hidden_size_by_heads() -> None:
    # LMCache 688, ollama 17615, Qwen3-32B: hidden 5,120 over 64 query heads is 80, but heads are 128 wide.
    # 2 * 64 layers * 8 heads * 128 * 2 = 262,144; with 80 it would be 163,840.
    assert per_token(model((64, [gqa(64, 8, 128)]), hidden=5120)) == 262_144 != 2 * 64 * 8 * (5120 // 64) * 2


def test_qwen3_30b_states_its_head_size_too() -> None:
    # ollama 17615: 2 * 48 * 4 * 128 * 2 = 98,304; 2,048 / 32 = 64 would give 49,152.
    inputs = spread(fresh("qwen3-30b-a3b-h100-tp2", cache_dtype="", quantization=""), tp=1)
    assert per_token(inputs) == 98_304 != 2 * 48 * 4 * (2048 // 32) * 2


@pytest.mark.parametrize("tp", [16, 32])
def test_a_head_is_never_split(tp: int) -> None:
    # inference-sim 915, torchtitan 2299, tenstorrent/vllm 50: Llama-3.1-70B has 8 KV heads, so 16 ranks hold one each:
    # 2 * 80 layers * 1 head * 128 * 2 = 40,960. Dividing on gave 20,480 at 16 ranks and 10,240 at 32.
    inputs = spread(fresh("llama-3.1-70b-h100-fp8-tp4", cache_dtype="bfloat16"), tp=tp)
    assert per_token(inputs) == 40_960 != 2 * 80 * 8 * 128 * 2 // tp
    if tp == 16:
        assert 16 * per_token(inputs) == 655_360


def test_attention_reads_the_heads_it_caches_not_those_that_ask() -> None:
    # LLM-Viewer 12, Llama-3-8B: one decode at context 4,096 reads 2 * 32 * 8 * 128 * 2 = 131,072 bytes a token,
    # 536,870,912 in all; counting the 32 query heads gave 2,147,483,648.
    inputs = fresh("llama-3.1-8b-h100-tp1", cache_dtype="bfloat16", block_size=16)
    plan = make_plan(inputs.model, resolve(inputs), NEWEST)
    read = 4096 * sum(layer.count * layer.attention.cache_bytes_per_token for layer in plan.layers if layer.attention)
    assert read == kernel(inputs).sequence_variable_bytes(4096) == 536_870_912 != 4 * 536_870_912


def test_the_cache_has_a_width_of_its_own() -> None:
    # inference-sim 1565: Qwen3-32B computed in bf16 with an fp8 cache, half of 262,144.
    assert per_token(model((64, [gqa(64, 8, 128)]), cache_dtype="fp8")) == 2 * 64 * 8 * 128 == 131_072


# ---- latent caches ----------------------------------------------------------------------------------------------


def test_a_latent_token_is_one_vector() -> None:
    # LMCache 694, inference-sim 1527: 61 layers * (512 + 64) * 2 = 70,272. Wrong: 124,928 (K and V of the latent
    # alone), 3,997,696 and 4,997,120 (heads).
    assert per_token(fresh(cache_dtype="bfloat16")) == 61 * (512 + 64) * 2 == 70_272


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_a_latent_is_whole_on_every_rank(tp: int) -> None:
    # DeepSeek-V3 283, sglang 2591: nothing to divide; the wrong value at 8 ranks was 8,784.
    assert per_token(spread(fresh(cache_dtype="bfloat16"), tp=tp)) == 70_272 != 70_272 // max(tp, 2)


def test_kimi_k2_keeps_576_elements_a_token_and_layer() -> None:
    # aiconfigurator 912, Kimi-K2.5 at tp 4: the latent of 512 and 64 rotary elements; 3,584 was 7,168 / 2.
    inputs = spread(model((61, [latent(64)]), hidden=7168), tp=4)
    assert per_token(inputs) / 61 / 2 == 576


def test_indexers_of_some_layers_add_their_keys() -> None:
    # inference-sim 1527, GLM-5.2 with 78 layers, bf16: latents 78 * 576 * 2 = 89,856, and 21 indexers of 132 bytes
    # (128 one-byte elements and an fp32 scale) 2,772. Expanded heads gave 1,916,928.
    sparse = latent(kind="sparse_mla", index_topk=2048)
    inputs = model((57, [sparse]), (21, [indexer(), sparse]))
    inputs.chip = fresh().chip
    found = kernel(stating(inputs, block_size=64)).sequence_variable_bytes(64)
    assert found == 64 * (89_856 + 2_772) == 64 * (78 * 576 * 2 + 21 * 132)


def test_the_indexers_cache_of_deepseek_v32_is_part_of_the_pool() -> None:
    # sglang 11309: 61 * (656 + 132) bytes a token; 975,424 tokens are 46,886,680,832 bytes, 43.667 GiB as logged.
    # Without the indexer it would be 36.35 GiB.
    inputs = model((61, [indexer(), latent(128, kind="sparse_mla", index_topk=2048)]), cache_dtype="fp8_ds_mla")
    inputs.chip = fresh().chip
    found = kernel(stating(inputs, block_size=64)).sequence_variable_bytes(975_424)
    assert found == 61 * (656 + 132) * 975_424 == 46_886_680_832
    assert f"{found / 2**30:.3f}" == "43.667" and f"{61 * 656 * 975_424 / 2**30:.1f}" == "36.4"


# ---- windows and hybrids ----------------------------------------------------------------------------------------


GPT_OSS = "gpt-oss-120b-h100-fp4-tp2"


def gpt_oss(**engine: object) -> pykernel.CostModel:
    return kernel(spread(fresh(GPT_OSS, **engine), tp=1))


def paged(tokens: int, block: int = 16) -> int:
    return -(-tokens // block) * block


def test_every_layer_of_gpt_oss_keeps_the_first_token() -> None:
    # hf-mem 60: 36 layers (18 full, 18 of window 128) * 2 * 8 heads * 64 * 2 bytes; 36,864 forgot half of them.
    assert gpt_oss(cache_dtype="bfloat16", block_size=1).sequence_variable_bytes(1) == 36 * 2 * 8 * 64 * 2 == 73_728


def test_a_window_stops_growing_in_eight_bits() -> None:
    # aiconfigurator 1537: fp8, 65,536 + 400 tokens. A layer keeps 2 * 8 * 64 = 1,024 bytes a token, so
    # 18 * 1,024 * (65,936 + 128); 2,430,664,704 let the windows grow.
    tokens = 65_936
    unpaged = gpt_oss(cache_dtype="fp8", block_size=1).sequence_variable_bytes(tokens)
    assert unpaged == 18 * 1024 * (tokens + 128) == 1_217_691_648
    assert gpt_oss(cache_dtype="fp8", block_size=16).sequence_variable_bytes(tokens) == unpaged  # 65,936 is 4,121 pages


@pytest.mark.parametrize(
    ("tokens", "unpaged"), [(128, 9_437_184), (129, 9_474_048), (4096, 155_713_536), (131_072, 4_836_556_800)]
)
def test_the_slope_of_gpt_oss_halves_past_its_window(tokens: int, unpaged: int) -> None:
    # aiconfigurator 1537, bf16: 18 layers * 2,048 bytes = 36,864 for each half of the stack.
    assert unpaged == 36_864 * tokens + 36_864 * min(tokens, 128)
    assert gpt_oss(cache_dtype="bfloat16", block_size=1).sequence_variable_bytes(tokens) == unpaged
    found = gpt_oss(cache_dtype="bfloat16", block_size=16).sequence_variable_bytes(tokens)
    assert found == 36_864 * paged(tokens) + 36_864 * paged(min(tokens, 128))


GEMMA = {
    # vllm 43308, tt-xla 5727: Gemma-4-31B, 50 layers of window 1,024 with 16 heads of 256, 10 full with 4 of 512.
    # 819,200 * min(S, 1,024) + 81,920 * S; 118,111,600,640 let all grow.
    "31b": ((50, gqa(32, 16, 256, 1024)), (10, gqa(32, 4, 512)), 819_200, 81_920, 11_576_279_040, 118_111_600_640),
    # Rapid-MLX 1423: Gemma-4-12B, 40 of window 1,024 with 8 heads of 256, 8 full with one head of 512.
    "12b": ((40, gqa(16, 8, 256, 1024)), (8, gqa(16, 1, 512)), 327_680, 16_384, 2_483_027_968, None),
}


@pytest.mark.parametrize("size", GEMMA)
def test_gemma_keeps_a_window_in_most_layers(size: str) -> None:
    (windows, window), (fulls, full), windowed, whole, answer, wrong = GEMMA[size]
    tokens = 131_072
    for block in (1, 16):
        inputs = model((windows, [window]), (fulls, [full]), block_size=block)
        assert kernel(inputs).sequence_variable_bytes(tokens) == answer != wrong
        assert kernel(inputs).sequence_variable_bytes(1) == block * (windowed + whole)
        found = kernel(inputs).sequence_variable_bytes(1030)
        assert found == windowed * 1024 + whole * paged(1030, block)
    assert answer == windowed * 1024 + whole * tokens


# ---- weights ----------------------------------------------------------------------------------------------------


def weights(inputs: pykernel.Inputs) -> int:
    return kernel(inputs).fixed_bytes().weights


def with_linear(dtype: str) -> pykernel.Inputs:
    inputs = model((1, [gqa(32, 8, 128), Node("GEMM", role="o_proj", n=4096, k=4096, weight_dtype=dtype)]))
    return inputs


@pytest.mark.parametrize(("dtype", "stored"), [("nvfp4", 9_437_184), ("mxfp4", 8_912_896)])
def test_four_bit_weights_are_stored_with_their_scales(dtype: str, stored: int) -> None:
    # aiconfigurator 391, whichllm 99: a 4096 x 4096 matrix at 4 bits and an 8-bit scale to 16 (NVFP4) or 32 (MXFP4)
    # weights; 8,388,608 forgot the scales. Compared with the same matrix at 16 bits, 33,554,432 bytes.
    assert weights(with_linear("bf16")) - weights(with_linear(dtype)) == 4096 * 4096 * 2 - stored
    assert stored == 4096 * 4096 // 2 + 4096 * 4096 // {"nvfp4": 16, "mxfp4": 32}[dtype] != 8_388_608


def test_experts_that_read_a_latent_are_as_wide_as_the_latent() -> None:
    # aiconfigurator 1143, Nemotron-3-Super: 40 layers of 512 experts of two matrices 1,024 x 2,688 in bf16, where the
    # hidden size is 4,096: 40 * 512 * 2 * 1,024 * 2,688 * 2; at the hidden size it would be 901,943,132,160.
    def of(layers: int) -> int:
        experts = Node(
            "GroupedGEMM", role="experts", n=2688, k=4096, experts=512, top_k=22, latent_size=1024, gated=False
        )
        return weights(model((1, [gqa(32, 8, 128)]), (layers, [experts])))

    assert (of(41) - of(1)) == 40 * 512 * 2 * 1024 * 2688 * 2 == 225_485_783_040


def test_expert_parallelism_divides_whole_experts() -> None:
    # aiconfigurator 1390: 64 experts of 3 * 4,096 * 2,048 in 32 layers, bf16, are 103,079,215,104 bytes; over 8
    # ranks each holds an eighth, 90,194,313,216 bytes less, where the wrong difference was 0. Eight data-parallel
    # replicas, so that nothing else of the model is divided.
    nodes = [gqa(32, 8, 128), Node("GroupedGEMM", role="experts", n=2048, k=4096, experts=64, top_k=8)]
    one = weights(model((32, nodes)))
    eight = weights(spread(model((32, nodes)), dp=8, enable_expert_parallel=True))
    assert one - eight == 90_194_313_216 == 7 * 103_079_215_104 // 8


# ---- transfers --------------------------------------------------------------------------------------------------


def test_a_latent_moves_once_to_a_single_target_rank() -> None:
    # vllm 27274: DeepSeek-V3 in bf16, 8,192 tokens from 8 prefill ranks, each with the whole latent, to one decode
    # rank, which reads one of them: 8,192 * 70,272; eight copies would be 4,605,345,792.
    target = kernel(spread(fresh(cache_dtype="bfloat16"), tp=1))
    assert target.pd_transfer_demand(8192, HERE, THERE).bytes == 575_668_224 != 4_605_345_792


def test_heads_replicated_on_the_target_move_to_each_of_its_ranks() -> None:
    # sglang 31295 and 31968: 4 KV heads, 65,536 bytes a token in all, from tp 1 to tp 8. A target rank holds one head,
    # 16,384 bytes, so the 8 ranks take 131,072 together; dividing the source by 8 moves too little.
    source = model((32, [gqa(32, 4, 128)]))
    assert per_token(source) == 65_536
    target = kernel(spread(model((32, [gqa(32, 4, 128)])), tp=8))
    assert target.pd_transfer_demand(1, HERE, THERE).bytes == 16_384
    assert 8 * target.pd_transfer_demand(1, HERE, THERE).bytes == 131_072 != 65_536


@pytest.mark.parametrize(("ranks", "ring", "all_to_all"), [(16, 23 / 15, 79 / 15), (32, 55 / 31, 223 / 31)])
def test_bytes_between_nodes_cost_their_share_more(ranks: int, ring: float, all_to_all: float) -> None:
    # inference-sim 1530 and 1667: bandwidth ratio 9, 8 ranks a node. A ring crosses nodes on (nodes - 1) of its
    # (ranks - 1) hops, an all-to-all with (ranks - 8) of (ranks - 1) peers; neither costs 1 or 9 times as much.
    group = ffi.new("pk_group *", {"width": ranks, "per_node": 8, "crosses_nodes": 1})
    nodes = ranks // 8
    assert lib.pk_span_factor(group, lib.PK_SPAN_RING, 9.0) == pytest.approx(ring, rel=1e-12)
    assert lib.pk_span_factor(group, lib.PK_SPAN_ALL_TO_ALL, 9.0) == pytest.approx(all_to_all, rel=1e-12)
    assert ring == pytest.approx(1 + 8 * (nodes - 1) / (ranks - 1))
    assert all_to_all == pytest.approx(1 + 8 * (ranks - 8) / (ranks - 1))
