"""Batches at the edge of what a step can be: each has a price without overflow, or is refused by its field's name.

Large prices are held to the oracle, whose integers have no width.
"""

from __future__ import annotations

from functools import cache, partial

import pytest
from pykernel_python_reference import oracle
from pykernel_python_reference.oracle import Oracle

from pykernel import Batch, BatchError, Inputs, Kernel, Request, StepEstimate
from pykernel._native import ffi, lib
from tests.laws_of_a_step.kernels import DEEPSEEK, EVERY_KIND, GLM, decodes, kernel_of, loaded, widened

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
TEN_MILLION = 10_000_000
RESOURCES = ("sm", "hbm", "nvlink", "nic", "host")


REFUSED: dict[str, tuple[Batch, str]] = {
    "a negative count of new tokens": (Batch([Request(1, 1, 1), Request(-1, 1, 1)]), r"batch\.scheduled\[1\].* -1"),
    "a negative count of old tokens": (Batch([Request(2, -2, 1)]), r"batch\.computed\[0\].* -2"),
    "the most negative count": (Batch([Request(1, -(2**63), 1)]), r"batch\.computed\[0\]"),
    "negative pads": (Batch(pad_tokens=-1), r"batch\.pad_tokens.* -1"),
    "a negative threshold": (Batch(decode_threshold=-1), r"batch\.decode_threshold.* -1"),
    "a context beyond int32": (Batch([Request(1, INT32_MAX, 1)]), rf"batch\.computed\[0\].* {INT32_MAX}"),
    "a context far beyond int32": (Batch([Request(1, 2**40, 1)]), rf"batch\.computed\[0\].* {2**40}"),
    "a context whose sum wraps around": (Batch([Request(1, INT64_MAX, 1)]), rf"batch\.computed\[0\].* {INT64_MAX}"),
    "more new tokens than int32": (Batch([Request(INT32_MAX + 1, 0, 1)]), rf"batch\.scheduled\[0\].* {2**31}"),
    "more tokens in all than a step has": (Batch([Request(2**29, 0, 1)] * 3), rf"batch.*{3 * 2**29} tokens"),
    "more pads than a step has": (Batch(pad_tokens=INT64_MAX), rf"batch\.pad_tokens.* {INT64_MAX}"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_scheduler_makes_is_refused_by_the_name_of_its_field(name: str) -> None:
    batch, field = REFUSED[name]
    for kernel in (kernel_of(DEEPSEEK), kernel_of(GLM), kernel_of("llama-3.1-8b-h100-tp1")):
        before, kept = kernel.step_time(decodes(1)), StepEstimate()
        kernel.step_time_into(decodes(1), kept)
        for attempt in (kernel.step_time, kernel.explain, partial(kernel.step_time_into, estimate=kept)):
            with pytest.raises(BatchError, match=field):
                attempt(batch)
        assert kept == before == kernel.step_time(decodes(1)), "a refusal leaves everything as it was"
    with pytest.raises(BatchError, match=field):
        batch.validate()


@pytest.mark.parametrize(
    ("batch", "field"),
    [
        (Batch([Request(1, 1, -1)]), r"batch\.prompt_len\[0\].* -1"),
        (Batch([Request(1, 1, 1, -1)]), r"batch\.cached_tokens\[0\].* -1"),
    ],
)
def test_what_no_price_reads_is_refused_by_validation_alone(batch: Batch, field: str) -> None:
    with pytest.raises(BatchError, match=field):
        batch.validate()
    assert kernel_of(DEEPSEEK).step_time(batch) == kernel_of(DEEPSEEK).step_time(Batch([Request(1, 1, 1)]))


def context_parallel(prefill_ranks: int, decode_ranks: int) -> Inputs:
    return widened(GLM, pcp=prefill_ranks, dcp=decode_ranks)


PRICED: dict[str, Batch] = {
    "no request": Batch(),
    "a request of nothing": Batch([Request(0, 0, 0)]),
    "only requests of no new tokens": Batch([Request(0, 900, 1), Request(0, 0, 1)]),
    "no new tokens beside some": Batch([Request(0, 900, 1), Request(1, 99, 1)]),
    "pads alone": Batch(pad_tokens=3),
    "pads and a request of no new tokens": Batch([Request(0, 900, 1)], pad_tokens=3),
    "the most pads": Batch(pad_tokens=2**30),
    "ten million tokens at once": Batch([Request(TEN_MILLION, 0, TEN_MILLION)]),
    "ten million tokens after ten million": Batch([Request(TEN_MILLION, TEN_MILLION, 1)]),
    "one token after ten million": Batch([Request(1, TEN_MILLION, 1)]),
    "the longest prompt": Batch([Request(2**30, 0, 1)]),
    "the longest context": Batch([Request(1, 2**30 - 1, 1)]),
    "everything a decode": Batch([Request(TEN_MILLION, 5, 1)], decode_threshold=INT64_MAX),
    "one SM": Batch([Request(TEN_MILLION, 0, 1)], sm_budget=1),
}


@cache
def oracle_of(scenario: str, pool: int) -> Oracle:
    return Oracle(loaded(scenario, pool))


def held_to(judge: Oracle, kernel: Kernel, batch: Batch) -> None:
    """Hold a price to that of the oracle."""
    settings = (batch.decode_threshold, batch.sm_budget, batch.pad_tokens)
    judged = judge.price_batch(oracle.Batch(tuple(batch), *settings))
    estimate = kernel.step_time(batch)
    for resource in RESOURCES:
        expected = getattr(judged, resource)
        # Beyond 2^53 units in the last place are more than 2 ns.
        assert estimate.per_resource_ns.get(resource, 0) == pytest.approx(expected, rel=1e-14, abs=2), resource
    assert estimate.no_overlap_ns == pytest.approx(judged.no_overlap_ns, rel=1e-14, abs=8)
    assert estimate.overlap_ns == pytest.approx(judged.overlap_ns, rel=1e-14, abs=4)
    assert estimate.no_overlap_ns < 2**62, "far from where durations saturate"


@EVERY_KIND
@pytest.mark.parametrize("name", PRICED)
def test_the_edges_of_what_is_priced_cost_what_the_laws_say(name: str, scenario: str, pool: int) -> None:
    held_to(oracle_of(scenario, pool), kernel_of(scenario, pool), PRICED[name])


@pytest.mark.parametrize("name", PRICED)
@pytest.mark.parametrize("ranks", [(1, 4), (2, 2), (2, 16)], ids=str)
def test_shared_sequences_have_the_same_edges(name: str, ranks: tuple[int, int]) -> None:
    inputs = context_parallel(*ranks)
    held_to(Oracle(inputs), Kernel(inputs), PRICED[name])


def test_a_step_without_tokens_is_idle_and_one_of_pads_is_not() -> None:
    kernel = kernel_of(DEEPSEEK)
    for name in ("no request", "a request of nothing", "only requests of no new tokens"):
        estimate = kernel.step_time(PRICED[name])
        assert estimate.per_resource_ns == {"host": estimate.no_overlap_ns} and estimate.bottleneck == "host"
    padded = kernel.step_time(PRICED["pads alone"])
    assert set(padded.per_resource_ns) == {"sm", "hbm", "nvlink", "host"}
    assert {term.what for term in kernel.explain(PRICED["pads alone"]).terms if term.layer == "head"} == set()


@pytest.mark.parametrize("count", [-1, -(2**63), 2**22 + 1, INT64_MAX])
def test_a_number_of_requests_out_of_range_is_refused_before_any_is_read(count: int) -> None:
    error = ffi.new("pk_error *", {"struct_size": ffi.sizeof("pk_error")})
    nowhere = ffi.cast("int64_t *", 8)
    batch = ffi.new("pk_batch *", {"struct_size": ffi.sizeof("pk_batch"), "count": count, "scheduled": nowhere})
    batch.computed = nowhere
    assert lib.pk_batch_check(batch, error) == lib.PK_BATCH_VALUE
    assert ffi.string(error.field) == b"batch.count" and str(count) in ffi.string(error.message).decode()
