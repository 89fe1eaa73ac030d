"""Answers that were worked out in public, where other models of serving had got them wrong.

Each test names the thread, works the right value out, and holds that the wrong one does not come out.
"""

from __future__ import annotations

from itertools import accumulate

import pytest

from pykernel import Batch, Kernel, Request
from pykernel._native import ffi, lib
from tests.laws_of_a_step.kernels import DEEPSEEK, EP16, decodes, fresh, kernel_of, widened

TOUCHED = [
    # experts, visited by a token, tokens, experts that any of them wakes
    (8, 2, 1, 2.0),
    (8, 2, 3, 4.625),  # 8 * (1 - (3/4)^3) = 8 * 37/64
    (8, 2, 100, 8 - 2.566e-12),  # 8 * (3/4)^100 stay asleep
    (256, 8, 64, 222.4425),  # 256 * (1 - (31/32)^64)
]


@pytest.mark.parametrize(("experts", "top_k", "tokens", "touched"), TOUCHED)
def test_tokens_wake_fewer_experts_than_they_visit(experts: int, top_k: int, tokens: int, touched: float) -> None:
    """inference-sim issues 764 and 790: all B tokens miss an expert with (1 - k/N)^B, so N * (1 - that) of N wake.

    Neither all N wake, nor B * k.
    """
    found = lib.pk_experts_touched(tokens, experts, top_k, experts)
    assert found == pytest.approx(touched, abs=5e-5)
    assert experts - found == pytest.approx(experts - touched, rel=1e-3)
    assert found < experts
    assert found < tokens * top_k or tokens == 1


def test_a_step_reads_the_weights_of_the_experts_that_its_tokens_wake() -> None:
    """The same, in a step: deepseek-v3 has 256 experts, 8 a token, three matrices of 2,048 x 7,168 bytes each, tp 8."""
    for tokens, touched in ((1, 8.0), (64, 222.4425)):
        terms = kernel_of(DEEPSEEK).explain(decodes(tokens)).terms
        read = {term.bytes for term in terms if term.what == "routed experts, weights read"}
        assert list(read) == [pytest.approx(touched * 3 * 2_048 * 7_168 / 8, rel=1e-6)]


CHUNKINGS = [[8_192], [4_096] * 2, [2_048] * 4, [5_000, 3_000, 192], [1] * 10 + [8_182]]


@pytest.mark.parametrize("chunks", CHUNKINGS, ids=lambda chunks: f"{len(chunks)} chunks")
def test_cutting_a_prompt_into_chunks_leaves_its_pairs_alone(chunks: list[int]) -> None:
    """aiconfigurator issues 501 and 614: 8,192 queries see 1, 2, ... 8,192 keys, 33,558,528 in all, however chunked.

    Counted chunk by chunk: chunk * prefix + chunk * (chunk + 1) / 2. The law here takes chunk^2 / 2 in place of the
    last part, half a key less for every query, so it has 8,192 / 2 = 4,096 pairs fewer: 8,192^2 / 2 = 33,554,432.
    """
    prefixes = [0, *accumulate(chunks)][:-1]
    causal = sum(chunk * prefix + chunk * (chunk + 1) // 2 for chunk, prefix in zip(chunks, prefixes, strict=True))
    assert causal == 33_558_528
    pairs4 = sum(lib.pk_prefill_pairs4(chunk, prefix, 0) for chunk, prefix in zip(chunks, prefixes, strict=True))
    assert pairs4 == 4 * (causal - 8_192 // 2) == 4 * 33_554_432
    four_apart = 4 * 2_048 * 2_049 // 2  # what forgets the prefix
    assert four_apart == 8_392_704 != pairs4 // 4


def test_chunks_of_a_prompt_do_the_attention_of_the_whole() -> None:
    """The same, in steps: 4 FLOP a pair, head and element (128 heads of 576), over 8 ranks."""
    kernel = kernel_of(DEEPSEEK)

    def attention(scheduled: int, computed: int) -> float:
        terms = kernel.explain(Batch([Request(scheduled, computed, 8_192)])).terms
        return next(term.flops for term in terms if term.what == "prefill attention (mla)")

    chunked = sum(attention(2_048, prefix) for prefix in range(0, 8_192, 2_048))
    assert chunked == attention(8_192, 0) == 4 * 33_554_432 * 128 * 576 / 8


@pytest.mark.parametrize("contexts", [[1_000, 7_000], [1, 7_999], [2_000] * 4, [8_000], [20] * 15 + [7_700]])
def test_full_attention_reads_the_sum_of_the_contexts(contexts: list[int]) -> None:
    """LLMServingSim issue 60: decode attention is linear in the total context, 8,000 here, ragged or not.

    The tables it replaced interpolated in log space, which is dearer for the ragged batch. Batches of one size price
    alike in everything; batches of other sizes read alike.
    """
    kernel = kernel_of("llama-3.1-70b-h100-fp8-tp4")

    def step(contexts: list[int]) -> Batch:
        return Batch([Request(1, context - 1, context) for context in contexts])

    def read(contexts: list[int]) -> float:
        return next(term.bytes for term in kernel.explain(step(contexts)).terms if "decode attention" in term.what)

    assert read(contexts) == pytest.approx(8_000 * 2 * 2 * 128)  # keys and values of 8 / 4 heads of 128 bytes
    even = [8_000 // len(contexts)] * len(contexts)
    assert kernel.step_time(step(contexts)) == kernel.step_time(step(even))


@pytest.mark.parametrize("width", [2, 4, 8])
def test_a_dense_parallel_layer_reduces_twice(width: int) -> None:
    """aiconfigurator issue 1064: deepseek-v3 reduces after attention and after the MLP of each of 61 layers, 122 times.

    One tensor-parallel rank has nothing to reduce.
    """
    inputs = fresh(DEEPSEEK)
    inputs.deployment.pools[0].parallel.tp = width

    def reductions(kernel: Kernel) -> int:
        terms = kernel.explain(decodes(32)).terms
        return sum(term.launches * term.layers for term in terms if term.what == "all_reduce over tensor")

    assert reductions(Kernel(inputs)) == 2 * 61 == 122
    inputs.deployment.pools[0].parallel.tp = 1
    assert reductions(Kernel(inputs)) == 0


SPANS = [(16, 1.53333, 5.26667), (32, 1.77419, 7.19355)]


@pytest.mark.parametrize(("width", "ring", "all_to_all"), SPANS)
def test_a_group_over_nodes_of_eight_pays_for_the_hops_that_leave_them(
    width: int, ring: float, all_to_all: float
) -> None:
    """inference-sim issues 1530 and 1667: a hop between nodes costs r = 9 times one inside, of G - 1 hops in all.

    A ring over n = G / 8 nodes leaves a node n - 1 times: 1 + (r - 1)(n - 1) / (G - 1). All-to-all leaves it for every
    peer elsewhere, G - 8 of them: 1 + (r - 1)(G - 8) / (G - 1). Neither 1 nor 9.
    """
    group = ffi.new("pk_group *", {"width": width, "per_node": 8, "crosses_nodes": 1})
    for kind, factor, crossing in (
        (lib.PK_SPAN_RING, ring, width // 8 - 1),
        (lib.PK_SPAN_ALL_TO_ALL, all_to_all, width - 8),
    ):
        assert 1 + 8 * crossing / (width - 1) == pytest.approx(factor, abs=5e-6)
        assert lib.pk_span_factor(group, kind, 9.0) == pytest.approx(factor, abs=5e-6)


@pytest.mark.parametrize(("width", "ring", "all_to_all"), SPANS)
def test_a_dispatch_over_nodes_of_eight_pays_the_same_in_a_step(width: int, ring: float, all_to_all: float) -> None:
    """The same, in a step on H200 nodes (450 GB/s inside, 50 between): 32 tokens of 3,072 elements at 16 bits.

    An unrouted backend sends each once around the ring, a routed one to each of its 8 experts.
    """
    for backend, factor, copies in (("", ring, 1), ("pplx", all_to_all, 8)):
        inputs = widened(EP16, dp=width // 8)
        inputs.deployment.pools[0].engine.all2all_backend = backend
        terms = Kernel(inputs).explain(decodes(32)).terms
        sent = {(term.bytes, term.resource) for term in terms if term.what == "alltoall over expert"}
        [(size, resource)] = sent
        assert resource == "nic"
        assert size == pytest.approx(32 * 3_072 * 2 * copies * factor, rel=5e-6)
