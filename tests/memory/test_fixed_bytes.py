"""What a rank holds whatever runs: published figures, and the rules by which each part follows the deployment."""

from __future__ import annotations

import copy

import pytest

import pykernel
from pykernel.documents import Eplb, Node, Speculator, Stack
from pykernel.errors import RefusedError
from pykernel.switches import NEWEST, REFERENCE, LawSwitches
from tests.memory.graphs import DEEPSEEK, drafting, fresh, gqa, latent, mixer, model, spread, stating

GIB = 2**30


def fixed(inputs: pykernel.Inputs, switches: LawSwitches = NEWEST) -> pykernel.MemoryBreakdown:
    return pykernel.Kernel(inputs, switches=switches).fixed_bytes()


def gib(value: int) -> str:
    return f"{value / GIB:.1f}"


# ---- the published example -------------------------------------------------------------------------------------


def test_the_published_figures_of_deepseek_v3_are_printed_to_the_digit() -> None:
    # inference-sim/blis-latency-kernel, documentation of the deployment deepseek-v3-h200-fp8-tp8
    kernel = pykernel.open(DEEPSEEK)
    found = kernel.fixed_bytes()
    parts = (found.weights, found.activation_peak, found.cuda_graph, found.comm_buffers, found.eplb_redundant)
    assert [gib(part) for part in parts] == ["78.2", "1.1", "0.8", "0.0", "0.0"]
    assert gib(found.total) == "80.1" and sum(parts) == found.total
    assert gib(kernel.pre_snapshot_bytes()) == "3.9"
    assert round(kernel.sequence_variable_bytes(4096) / 2**20) == 137
    assert kernel.sequence_variable_bytes(16) == 16 * 35_136
    assert pykernel.new(fresh(cache_dtype="bfloat16")).sequence_variable_bytes(16) == 16 * 70_272


def test_the_reference_settings_print_the_older_figures() -> None:
    kernel = pykernel.open(DEEPSEEK, model="blis-reference")
    found = kernel.fixed_bytes()
    assert (gib(found.weights), gib(found.comm_buffers), gib(found.total)) == ("78.1", "3.9", "83.9")
    assert found.total - found.weights == 6_202_327_040
    assert kernel.pre_snapshot_bytes() == 0


def test_the_weights_of_deepseek_v3_add_up_matrix_by_matrix() -> None:
    # One byte a parameter but for the output projection, which the newest settings keep at two; over 8 ranks.
    attention = 2112 * 7168 + 24576 * 1536 + 32768 * 512 + 7168 * 16384
    dense = attention + 36864 * 7168 + 7168 * 18432
    expert = 3 * 2048 * 7168
    stack = 3 * dense + 58 * (attention + 257 * expert)
    vocabulary = 129_280 * 7168
    assert fixed(fresh()).weights == (stack + 3 * vocabulary) // 8 == 83_980_705_792
    assert fixed(fresh(), REFERENCE).weights == (stack + 2 * vocabulary) // 8 == 83_864_870_912


def test_engine_weights_are_a_switch() -> None:
    # Both vocabulary matrices at 16 bits; then routers (58 layers, 256 x 7,168 at 16 bits) and down-projections whole
    # on every rank, and a 16-bit copy of the absorbed latent matrices.
    sixteen = LawSwitches(embedding_width="sixteen_bit")
    assert fixed(fresh(), sixteen).weights == 84_096_540_672
    routers = 58 * 256 * 7168 * 2
    down = 61 * 2112 * 7168 * 7 // 8
    absorbed = 61 * 32768 * 512 * 2 // 8
    assert (routers, down, absorbed) == (212_860_928, 808_034_304, 255_852_544)
    engine = fixed(fresh(), LawSwitches(embedding_width="sixteen_bit", engine_weights=True)).weights
    assert engine == 84_096_540_672 + routers + down + absorbed
    assert f"{engine / GIB:.2f}" == "79.51"


def test_the_mirror_setting_of_the_vocabulary_weighs_the_same() -> None:
    mirror = LawSwitches(unquantized_head=False, embedding_width="sixteen_bit")
    assert fixed(fresh(), mirror).weights == fixed(fresh()).weights


# ---- weights ---------------------------------------------------------------------------------------------------


def test_a_tied_head_is_the_embedding() -> None:
    inputs = fresh("llama-3.1-8b-h100-tp1")
    apart = fixed(inputs).weights
    inputs.model.global_.tie_word_embeddings = True
    assert apart - fixed(inputs).weights == 128_256 * 4096 * 2


def test_a_tied_head_that_the_graph_leaves_out_is_still_held_once() -> None:
    inputs = fresh("llama-3.1-8b-h100-tp1")
    apart = fixed(inputs).weights
    inputs.model.global_.tie_word_embeddings = True
    inputs.model.head = [node for node in inputs.model.head if node.op != "GEMM"]
    assert apart - fixed(inputs).weights == 128_256 * 4096 * 2


@pytest.mark.parametrize(("width", "bytes_each"), [("checkpoint", 0.5), ("unpacked", 2), ("sixteen_bit", 2)])
def test_no_embedding_is_stored_below_a_byte(width: str, bytes_each: float) -> None:
    inputs = model((1, [gqa(32, 8, 128)]), dtype="nvfp4")
    inputs.chip = fresh("deepseek-v3-b200-fp4-tp4").chip
    inputs.coefficients = fresh("deepseek-v3-b200-fp4-tp4").coefficients
    vocabulary = inputs.model.global_.vocab_size * 4096
    head = vocabulary * 2  # 16 bits unless the graph states more
    assert fixed(inputs, LawSwitches(embedding_width=width)).weights == head + vocabulary * bytes_each


def test_a_shared_expert_in_a_node_of_its_own_is_divided_like_dense_weights() -> None:
    def of(*extra: Node) -> int:
        routed = Node("GroupedGEMM", role="experts", n=2048, k=4096, experts=64, top_k=8)
        return fixed(spread(model((2, [gqa(32, 8, 128), routed, *extra])), tp=4, enable_expert_parallel=True)).weights

    shared = Node("GroupedGEMM", role="shared_experts", n=1024, k=4096, experts=2, top_k=2, weight_dtype="fp8")
    assert of(shared) - of() == 2 * 2 * 3 * 1024 * 4096 // 4


def test_a_speculator_weighs_only_where_the_deployment_drafts() -> None:
    # One more attention and MoE layer; embedding and head are shared with the target.
    attention = 2112 * 7168 + 24576 * 1536 + 32768 * 512 + 7168 * 16384
    layer = (attention + 257 * 3 * 2048 * 7168) // 8
    assert fixed(drafting(fresh(), 1)).weights - fixed(fresh()).weights == layer
    assert fixed(drafting(fresh(), 3)).weights - fixed(fresh()).weights == layer
    assert fixed(drafting(fresh(), 3, "ngram")).weights == fixed(fresh()).weights


def test_weights_fall_with_tensor_parallelism_and_experts_with_their_group() -> None:
    by_width = [fixed(spread(fresh(), tp=tp)).weights for tp in (1, 2, 4, 8, 16)]
    assert by_width == sorted(by_width, reverse=True)
    over = [fixed(spread(fresh(), tp=8, dp=dp, enable_expert_parallel=True)).weights for dp in (1, 2)]
    assert over[1] < over[0]


def test_without_expert_parallelism_replicas_slice_every_expert() -> None:
    one, two, four = (fixed(spread(fresh("minimax-m2.5-h200-tp8"), tp=4, dp=dp)).weights for dp in (1, 2, 4))
    assert (one - two) == 2 * (two - four)


def test_redundant_experts_move_out_of_the_weights() -> None:
    plain = spread(fresh(), enable_expert_parallel=True)
    balanced = stating(copy.deepcopy(plain), eplb=Eplb(True, 8))
    before, after = fixed(plain), fixed(balanced)
    assert after.weights == before.weights
    assert after.eplb_redundant == 58 * 3 * 2048 * 7168 == after.total - before.total
    assert fixed(stating(plain, eplb=Eplb(False, 8))) == before


# ---- the other parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 512, 513, 4096, 8192])
def test_the_activation_peak_is_linear_above_its_scratch(tokens: int) -> None:
    peak = fixed(fresh(max_num_batched_tokens=tokens)).activation_peak
    assert peak == max(10 * tokens * 7168 * 2, 70 * 2**20)


def test_the_activation_is_as_wide_as_the_queries_of_the_widest_layer() -> None:
    # qwen3-30b-a3b: 32 heads of 128 are 4,096 where the hidden size is 2,048; at two ranks 13 buffers are live.
    inputs = fresh("qwen3-30b-a3b-h100-tp2", max_num_batched_tokens=8192)
    assert fixed(inputs).activation_peak == 13 * 8192 * 4096 * 2
    assert fixed(model((1, [latent(64)]), (1, [gqa(32, 8, 256)]), max_num_batched_tokens=8192)).activation_peak == (
        11 * 8192 * 32 * 256 * 2
    )
    recurrent = model((1, [mixer("kda", 32, 128)]), max_num_batched_tokens=8192)
    assert fixed(recurrent).activation_peak == 11 * 8192 * 4096 * 2


def test_the_width_of_activations_never_follows_the_weights() -> None:
    sixteen, eight = fixed(fresh("mixtral-8x7b-h100-tp4")), fixed(fresh("mixtral-8x7b-h100-tp4", quantization="fp8"))
    assert eight.weights < sixteen.weights
    assert eight.activation_peak == sixteen.activation_peak


@pytest.mark.parametrize(
    ("mode", "captured"),
    [("NONE", 0), ("PIECEWISE", 858_783_744), ("FULL", 1_159_725_056), ("", 1_159_725_056)],
)
def test_graphs_take_what_their_mode_takes(mode: str, captured: int) -> None:
    assert fixed(fresh(cudagraph_mode=mode)).cuda_graph == captured


@pytest.mark.parametrize(("tp", "communicator"), [(1, 0), (2, 358_612_992), (4, 411_041_792), (16, 411_041_792)])
def test_a_communicator_exists_where_ranks_talk(tp: int, communicator: int) -> None:
    inputs = spread(fresh(), tp=tp)
    workspace = 3_758_096_384
    assert pykernel.new(inputs).pre_snapshot_bytes() == communicator + workspace
    assert fixed(inputs, REFERENCE).comm_buffers == communicator + workspace


def test_replicas_of_one_rank_take_the_narrowest_communicator() -> None:
    inputs = spread(fresh("qwen3-30b-a3b-h200-dp4"), tp=1, dp=4)
    assert pykernel.new(inputs).pre_snapshot_bytes() == 358_612_992 + 3_758_096_384


def test_tripled_coefficients_triple_their_part_and_price_nothing() -> None:
    inputs = fresh()
    tripled = copy.deepcopy(inputs)
    for entries in tripled.coefficients:
        for entry in entries.coefficients:
            if entry.units == "bytes_per_rank":
                entry.value *= 3
    one, three = pykernel.new(inputs), pykernel.new(tripled)
    assert three.pre_snapshot_bytes() == 3 * one.pre_snapshot_bytes()
    assert three.fixed_bytes().cuda_graph == 3 * one.fixed_bytes().cuda_graph
    assert three.fixed_bytes().weights == one.fixed_bytes().weights
    assert three.sequence_variable_bytes(999) == one.sequence_variable_bytes(999)
    batch = pykernel.Batch([pykernel.Request(1, 4095, 4096)] * 8)
    assert three.step_time(batch) == one.step_time(batch)


@pytest.mark.parametrize(
    "name",
    [
        "engine_workspace_bytes",
        "nccl_communicator_bytes_8rank",
        "cudagraph_capture_bytes_piecewise",
        "activation_scratch_floor_bytes",
    ],
)
def test_a_coefficient_that_is_no_size_is_refused(name: str) -> None:
    inputs = fresh()
    inputs.coefficients = copy.deepcopy(inputs.coefficients)
    for entries in inputs.coefficients:
        for entry in entries.coefficients:
            if entry.name == name:
                entry.value = -1.0
    with pytest.raises(RefusedError, match=name):
        pykernel.new(inputs)


def test_a_draft_stack_of_its_own_kind_is_weighed() -> None:
    inputs = model((2, [gqa(32, 8, 128)]))
    bare = fixed(inputs).weights
    inputs.model.layer_kinds.append(copy.deepcopy(inputs.model.layer_kinds[0]))
    inputs.model.layer_kinds[-1].id = "draft"
    inputs.model.layer_kinds[-1].nodes.append(Node("GEMM", role="o_proj", n=4096, k=4096))
    inputs.model.layer_kinds[-1].edges = [[0, 1]]
    inputs.model.speculator = Speculator("mtp", 1, Stack(pattern=["draft"], repeat=1))
    assert fixed(inputs).weights == bare
    assert fixed(drafting(inputs, 1)).weights == bare + 4096 * 4096 * 2
