"""Laws of steps whose sequences are shared: a decode's cache over decode-context ranks, a prefill over its own ranks.

Counts of single requests are tested on the C functions in test_core_laws.py; here whole steps are compared, and the
collectives that a step launches are read off its explanation.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from pykernel import Batch, BatchError, Kernel, Request
from tests.published.fixtures import without_latent_norm_bytes

from .kernels import (
    BY_SETTING,
    DEEPSEEK,
    GLM,
    SWITCHES,
    decodes,
    edited,
    fresh,
    kernel_of,
    kernel_terms,
    no_overlap,
    prefill,
    resource,
    widened,
)

HYBRID, FULL_ATTENTION = "gpt-oss-120b-h200-fp4-tp8", "minimax-m2.5-h200-tp8"


def shared(name: str, setting: str = "newest", *, combine: str = "", cache: str = "", **widths: int) -> Kernel:
    inputs = widened(name, **widths)
    engine = inputs.deployment.pools[0].engine
    engine.dcp_comm_backend, engine.cache_dtype = combine, cache or engine.cache_dtype
    return Kernel(inputs, switches=SWITCHES[setting])


def launched(kernel: Kernel, batch: Batch, group: str) -> Counter[str]:
    """The collectives over a group of ranks, each with its launches in all layers."""
    found: Counter[str] = Counter()
    for term in kernel.explain(batch).terms:
        operation, _, over = term.what.partition(" over ")
        if over == group:
            found[operation] += term.launches * term.layers
    return found


def gathered(kernel: Kernel, batch: Batch) -> list[tuple[str, float]]:
    """The gathers over the ranks of a prefill, with their bytes."""
    return kernel_terms(kernel, batch, " over prefill_context")


# ---- a cache shared by decode-context ranks ------------------------------------------------------------------------


@BY_SETTING
@pytest.mark.parametrize("name", [DEEPSEEK, FULL_ATTENTION])
def test_each_doubling_of_ranks_halves_what_a_decode_reads_and_leaves_its_floor(name: str, setting: str) -> None:
    """Law 43. Reading 1/D of the cache: from 1 to 2 ranks saves twice what from 2 to 4 saves, if floors stay."""
    kernels = {ranks: shared(name, setting, dcp=ranks) for ranks in (1, 2, 4)}
    hbm = {ranks: resource(kernel, decodes(32), "hbm") for ranks, kernel in kernels.items()}
    assert hbm[1] - hbm[2] == pytest.approx(2 * (hbm[2] - hbm[4]), abs=4) and hbm[2] > hbm[4]
    slopes = {ranks: resource(kernel, decodes(32, 8_192), "hbm") - hbm[ranks] for ranks, kernel in kernels.items()}
    assert [slopes[1] / slopes[ranks] for ranks in (2, 4)] == pytest.approx([2, 4], rel=1e-5)
    intercepts = {ranks: hbm[ranks] - slopes[ranks] for ranks in kernels}  # twice the context reads twice as much
    assert max(intercepts.values()) - min(intercepts.values()) <= 4
    assert len({resource(kernel, decodes(32), "sm") for kernel in kernels.values()}) == 1


@BY_SETTING
def test_windows_are_not_shared_so_that_a_hybrid_gains_less(setting: str) -> None:
    """Law 44."""

    def read(name: str, ranks: int) -> list[float]:
        return [size for _, size in kernel_terms(shared(name, setting, dcp=ranks), decodes(32), "decode attention")]

    assert [term.what for term in kernel_of(HYBRID).explain(decodes(32)).terms if "decode" in term.what] == [
        "decode attention (swa)",
        "decode attention (gqa)",
    ]
    (window, full), (same_window, half) = read(HYBRID, 1), read(HYBRID, 2)
    assert same_window == window > 0
    assert half == pytest.approx(full / 2, rel=1e-12)
    saved = [1 - sum(read(name, 2)) / sum(read(name, 1)) for name in (HYBRID, FULL_ATTENTION)]
    assert 0 < saved[0] < saved[1] == pytest.approx(0.5, rel=1e-12)


@BY_SETTING
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_step_without_context_is_the_same_however_many_ranks_share_the_cache(ranks: int, setting: str) -> None:
    """Law 45, on a latent model, whose rows alone are exchanged."""
    alone, together = kernel_of(DEEPSEEK, setting=setting), shared(DEEPSEEK, setting, dcp=ranks)
    for batch in (prefill(2_048), Batch([Request(512, 0, 512), Request(64, 0, 64)])):
        assert together.step_time(batch) == alone.step_time(batch)
    assert together.step_time(prefill(2_048, 64)) != alone.step_time(prefill(2_048, 64))


@BY_SETTING
@pytest.mark.parametrize(
    ("name", "combine", "widths", "over_context", "query_over_tensor"),
    [
        (DEEPSEEK, "ag_rs", {"dcp": 4}, {"all_gather": 2, "reduce_scatter": 1}, False),
        (DEEPSEEK, "a2a", {"dcp": 4}, {"all_gather": 1, "alltoall": 1}, False),
        (GLM, "ag_rs", {"tp": 2, "pcp": 4, "dcp": 4}, {"all_gather": 1, "all_reduce": 1}, False),
        (GLM, "ag_rs", {"tp": 2, "pcp": 4, "dcp": 8}, {"all_gather": 1, "all_reduce": 1}, True),
    ],
)
def test_a_decode_launches_the_exchanges_of_its_combine(
    name: str, combine: str, widths: dict[str, int], over_context: dict[str, int], query_over_tensor: bool, setting: str
) -> None:
    """Law 46. With ranks of its own the queries are gathered over them first; the whole block gathers over tensor."""
    kernel = shared(name, setting, combine=combine, cache="", **widths)
    layers = sum(fresh(name).model.stack.layers().count(kind.id) for kind in fresh(name).model.layer_kinds)
    each = {operation: count * layers for operation, count in over_context.items()}
    assert launched(kernel, decodes(32), "decode_context") == each
    assert (launched(kernel, decodes(32), "tensor")["all_gather"] == layers) is query_over_tensor


@BY_SETTING
def test_context_ranks_a_node_apart_exchange_over_the_network(setting: str) -> None:
    """Law 48: with tp 8 and pcp 2 the two members of a decode-context group lie eight ranks apart."""
    assert resource(shared(GLM, setting, tp=8, pcp=2, dcp=2), decodes(32), "nic") > 0
    assert resource(shared(GLM, setting, tp=4, pcp=2, dcp=2), decodes(32), "nic") == 0
    assert resource(shared(DEEPSEEK, setting, tp=8, pcp=2), decodes(32), "nic") == 0


# ---- prefills shared by prefill-context ranks ----------------------------------------------------------------------


@BY_SETTING
@pytest.mark.parametrize("ranks", [2, 4])
def test_decodes_are_the_same_on_every_prefill_rank(ranks: int, setting: str) -> None:
    """Law 52."""
    alone, together = kernel_of(DEEPSEEK, setting=setting), shared(DEEPSEEK, setting, pcp=ranks)
    for batch in (decodes(1), decodes(32), decodes(64, tokens=3)):
        assert together.step_time(batch) == alone.step_time(batch)
    assert together.step_time(prefill(64)) != alone.step_time(prefill(64))


@BY_SETTING
def test_attention_of_longer_prompts_costs_more_at_the_same_tokens_a_rank(setting: str) -> None:
    """Law 53; the published figures are rows of published.csv."""
    found = [resource(shared(DEEPSEEK, setting, pcp=ranks), prefill(1_024 * ranks), "sm") for ranks in (1, 2, 4)]
    assert found[0] < found[1] < found[2]
    # Of s tokens a rank scores s * s / 2 / P pairs, with s = 1024 P: in the published example 2,247 us for each P.
    assert found[2] - found[1] == pytest.approx(2 * (found[1] - found[0]), rel=1e-6)
    assert found[1] - found[0] == pytest.approx(2_247_000, rel=1e-3)


def test_a_latent_layer_gathers_its_two_parts_whatever_runs_beside() -> None:
    """Law 54: 512 and 64 elements of every new entry, from all ranks, in each of 61 layers, at 16 bits."""
    kernel, prompt = shared(DEEPSEEK, pcp=2), Request(64, 0, 64)
    beside = [*decodes(64), prompt]
    alone = gathered(kernel, Batch([prompt], decode_threshold=8))
    assert gathered(kernel, Batch(beside, decode_threshold=8)) == alone
    assert gathered(kernel, decodes(64)) == []
    per_layer = [64 * width * 2 for width in (512, 64)]
    span = 9.0  # no two members share a node, and the network is nine times slower
    assert [size for _, size in alone] == [size * span * layers for layers in (3, 58) for size in per_layer]
    for cache in ("auto", "bfloat16", "fp8"):
        assert gathered(shared(DEEPSEEK, cache=cache, pcp=2), Batch([prompt])) == alone


@BY_SETTING
@pytest.mark.parametrize(("tp", "pcp", "crosses"), [(8, 2, True), (8, 4, True), (4, 2, False), (2, 4, False)])
def test_a_gather_crosses_nodes_where_its_ranks_do(tp: int, pcp: int, crosses: bool, setting: str) -> None:
    """Law 54, on nodes of eight."""
    kernel = shared(DEEPSEEK, setting, tp=tp, pcp=pcp)
    gather = [term for term in kernel.explain(prefill(64)).terms if "prefill_context" in term.what]
    assert {term.resource for term in gather} == {"nic" if crosses else "nvlink"}
    assert sum(term.launches * term.layers for term in gather) == 2 * 61
    assert (resource(kernel, prefill(64), "nic") > 0) is crosses


# ---- requests that attend nothing ----------------------------------------------------------------------------------


def test_a_request_of_less_than_nothing_is_refused_and_its_tokens_cost_what_pads_cost() -> None:
    """Law 55. The reference skips 2 tokens after -2 but counts them as rows: 12.924 ms beside 4 others, not 11.675."""
    kernel = edited(DEEPSEEK, without_latent_norm_bytes, "reference")
    four = Request(4, 0, 4)
    with pytest.raises(BatchError, match=r"batch\.computed\[0\]: computed is -2"):
        kernel.step_time(Batch([Request(2, -2, 4), four], decode_threshold=8))
    price = partial(Batch, [four], decode_threshold=8)
    found = [no_overlap(kernel, price(pad_tokens=rows)) / 1e6 for rows in (2, 0)]
    assert found == pytest.approx([12.924, 11.675], abs=6e-4)


@BY_SETTING
@pytest.mark.parametrize("name", [DEEPSEEK, HYBRID, GLM])
def test_a_request_of_nothing_adds_nothing(name: str, setting: str) -> None:
    """Law 55, where computed and scheduled add up to nothing; the step is no uniform decode any more."""
    kernel = kernel_of(name, setting=setting)
    batch = [Request(1, 99, 1), Request(64, 0, 64)]
    assert kernel.step_time(Batch([*batch, Request(0, 0, 9)])) == kernel.step_time(Batch(batch))
