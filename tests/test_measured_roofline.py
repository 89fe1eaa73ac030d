"""No step of the measured laws is faster than its bytes at the memory's full rate or its FLOP at the peak: whatever the
core accepts for coefficients, and for the bundled ones. FLOP and bytes are counted here once more, from the model."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykernel
from pykernel._native import ffi, lib
from pykernel.documents import list_scenarios
from pykernel.measured.flattening import measured_spec
from pykernel.switches import CALIBRATED

SHARE, LOSS = st.floats(1e-6, 1), st.floats(0, 1e6)
SECONDS = st.one_of(st.just(0.0), st.floats(0, 1))
EXPONENT = st.integers(1, 256)
SIZE = st.integers(1, 1 << 20)
PEAK, RATE, SMS = 989.5e12, 3.35e12, 132.0
ROUNDING = 1 - 1e-12

# ---- single laws, under any coefficients ---------------------------------------------------------------------------


@given(EXPONENT, SHARE, SHARE, LOSS, LOSS, SECONDS, SIZE, SIZE, SIZE, st.sampled_from([0.5, 1.0, 2.0]))
def test_no_gemm_beats_the_roofline(
    exponent: int,
    compute: float,
    memory: float,
    half: float,
    wave: float,
    floor: float,
    m: int,
    n: int,
    k: int,
    w: float,
) -> None:
    law = {"exponent": exponent, "peak_flops": PEAK, "compute": compute, "memory": memory, "floor": floor}
    law |= {"k_half": half, "wave": wave}
    taken = lib.pk_matrix_seconds(ffi.new("pk_matrix_law *", law), RATE, SMS, m, n, k, w)
    assert taken >= max(2.0 * m * n * k / PEAK, w * n * k / RATE) * ROUNDING


@given(EXPONENT, SHARE, SHARE, LOSS, SECONDS, SIZE, SIZE, st.integers(1, 128))
def test_no_streaming_attention_beats_the_roofline(
    exponent: int, compute: float, memory: float, occupancy: float, floor: float, rows: int, tokens: int, heads: int
) -> None:
    law = {"exponent": exponent, "peak_flops": PEAK, "compute": compute, "memory": memory, "floor": floor}
    own = ffi.new("pk_stream_law *", law | {"occupancy": occupancy})
    moved, flops = tokens * heads * 512.0, tokens * heads * 4096.0
    taken = lib.pk_stream_seconds(own, RATE, SMS, rows, tokens, heads, moved, flops)
    assert taken >= max(flops / PEAK, moved / RATE) * ROUNDING


@given(EXPONENT, SECONDS, SECONDS, st.integers(2, 64), st.floats(0, 1e12))
def test_no_collective_beats_its_link(exponent: int, floor: float, per_peer: float, ranks: int, size: float) -> None:
    law = {"exponent": exponent, "volume": 2.0, "bytes_per_second": 450e9, "floor": floor, "per_peer": per_peer}
    taken = lib.pk_link_seconds(ffi.new("pk_link_law *", law), ranks, size)
    assert taken >= 2 * size * (ranks - 1) / ranks / 450e9 * ROUNDING


# ---- whole steps, under the best coefficients that the core accepts ------------------------------------------------

BEST = {"exponent": 256, "compute": 1.0, "memory": 1.0}
FACTS = ("peak_flops", "volume", "bytes_per_second", "reserved")
LAWS = ("matrix", "stream", "tile", "expert", "link", "mixer")


@cache
def lossless(scenario: str) -> Any:
    """A core kernel whose laws lose nothing, and which scales every kernel down to a millionth."""
    spec = measured_spec(pykernel.open_inputs(scenario), CALIBRATED, {})
    measured = spec.struct.measured
    for kind in LAWS:
        laws = getattr(measured, f"{kind}_laws")
        for i in range(getattr(measured, f"{kind}_law_count")):
            for name, _ in ffi.typeof(laws[i]).fields:
                if name not in FACTS:
                    setattr(laws[i], name, BEST.get(name, 0))
    for name, _ in ffi.typeof(measured.host).fields:
        setattr(measured.host, name, 0)
    measured.host.kernel_scale = 1e-6
    made = ffi.new("pk_kernel **")
    assert lib.pk_kernel_new(spec.struct, made, ffi.NULL) == lib.PK_OK
    return ffi.gc(made[0], lib.pk_kernel_free)


@cache
def calibrated(scenario: str) -> pykernel.CostModel:
    return pykernel.open(scenario, model="calibrated")


def price(kernel: Any, requests: list[tuple[int, int]]) -> float:
    """Seconds of a step of the core."""
    batch = pykernel.Batch([pykernel.Request(new, done, new + done) for new, done in requests])
    estimate = ffi.new("pk_estimate *", {"struct_size": ffi.sizeof("pk_estimate")})
    assert lib.pk_step_time(kernel, batch.struct, estimate, ffi.NULL) == lib.PK_OK
    return float(estimate.overlap_ns + 2) * 1e-9


REQUESTS = st.lists(
    st.tuples(st.one_of(st.just(1), st.integers(1, 64), st.integers(64, 4096)), st.integers(0, 200_000)),
    min_size=1,
    max_size=24,
)


def causal(new: int, done: int) -> int:
    """Query-key pairs, at least: half a query attends to itself."""
    return new * done + new * new // 2


@settings(max_examples=60, deadline=None)
@given(REQUESTS)
def test_no_step_of_a_dense_model_beats_the_roofline(requests: list[tuple[int, int]]) -> None:
    """Llama-3.1-8B at 16 bits: 32 layers of 4096, 32 heads of 128 over 8 of keys and values, an MLP of 14336."""
    matrices = 4096 * (6144 + 4096 + 28672 + 14336)
    tokens = sum(new for new, _ in requests)
    cached = sum(new + done for new, done in requests)
    head = 128256 * 4096
    moved = 32 * (2 * matrices + cached * 2 * 8 * 128 * 2) + 2 * head
    pairs = sum(causal(new, done) for new, done in requests)
    flops = 32 * (2 * tokens * matrices + 4 * 32 * 128 * pairs) + 2 * len(requests) * head
    best = max(moved / RATE, flops / PEAK)
    scenario = "llama-3.1-8b-h100-tp1"
    # Kernel by kernel and with padded graphs: not far above.
    assert best <= price(lossless(scenario), requests) <= 6 * best + 1e-5
    batch = pykernel.Batch([pykernel.Request(new, done, new + done) for new, done in requests])
    assert calibrated(scenario).step_time(batch).overlap_ns * 1e-9 >= best


@settings(max_examples=40, deadline=None)
@given(REQUESTS)
def test_no_step_of_latent_attention_beats_the_roofline(requests: list[tuple[int, int]]) -> None:
    """DeepSeek-V3 over 8 ranks: 61 layers, a latent of 576 elements of a byte, every rank reads all of it; at least one
    expert of 3 x 7168 x 2048 is read in 58 layers."""
    cached = sum(new + done for new, done in requests)
    moved = 61 * cached * 576 + 58 * 3 * 7168 * 2048 / 8
    assert price(lossless("deepseek-v3-h200-fp8-tp8"), requests) >= moved / 4.8e12


@pytest.mark.parametrize("scenario", list_scenarios())
def test_every_term_takes_its_bytes_and_its_flop(scenario: str) -> None:
    inputs = pykernel.open_inputs(scenario)
    kernel, chip = pykernel.Kernel(inputs, switches=CALIBRATED), inputs.chip
    assert chip is not None
    peak = max(chip.tflops_peak, chip.tflops_fp8, chip.tflops_nvfp4) * 1e12
    request = pykernel.Request
    for requests in ([request(1, 8191, 1)] * 64, [request(2048, 0, 2048)] * 2, [request(16, 100_000, 16)]):
        terms = kernel.explain(pykernel.Batch(requests)).terms
        kernels: dict[tuple[str, str], int] = {}
        for term in terms:
            what = term.what.partition(",")[0].replace("weights read", "dense arithmetic")
            kernels[term.layer, what] = kernels.get((term.layer, what), 0) + term.ns + 1
        for term in terms:
            if term.resource == "hbm":
                assert term.bytes == pytest.approx(term.ns * 1e-9 * chip.bw_peak_tbs * 1e12, rel=1e-3, abs=1e4)
            if term.flops:
                assert term.flops <= peak * kernels[term.layer, term.what.partition(",")[0]] * 1e-9
        assert sum(term.flops for term in terms) > 0 and sum(term.bytes for term in terms) > 0
