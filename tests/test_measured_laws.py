"""The measured laws of the core, held to the same formulas in numpy, to exact powers, and to hand-made steps."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import pykernel
from pykernel._native import ffi, lib
from pykernel.documents import list_scenarios
from pykernel.fit import forms
from pykernel.fit.forms import Form, Part

REGISTRY = Path(pykernel.__file__).parent / "data" / "registry" / "coefficients"
PART = Part(989.5e12, 3.35e12, 132)


@cache
def plain_values(part: str) -> dict[str, float]:
    """A part's coefficients by name as the file has them, read as plain YAML."""
    entries = yaml.safe_load((REGISTRY / f"calibrated-{part}.yaml").read_text())["coefficients"]
    return {name: body["value"] for entry in entries for name, body in entry.items()}


def coefficients(part: str, law: str) -> dict[str, float]:
    prefix, named = f"calibrated.{law}.", plain_values(part)
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def seconds(form: Form, law: dict[str, float], part: Part = PART, **columns: float) -> float:
    """A law by its formula in numpy, at one point."""
    values = np.array([law[name] for name in form.names])
    return float(form.seconds(values, {name: np.asarray(value) for name, value in columns.items()}, part))


def struct(kind: str, law: dict[str, float], **more: float) -> Any:
    renamed = {"compute_efficiency": "compute", "memory_efficiency": "memory"}
    row: dict[str, Any] = {}
    for name, value in law.items():
        if name == "exponent":
            row[name] = round(value * 16)
        elif name not in ("link_efficiency", "bridge_efficiency", "per_width", "per_stream_width"):
            micro = name in ("floor", "depth", "per_row", "per_stream", "per_peer", "ramp", "regroup")
            row[renamed.get(name, name)] = value * 1e-6 if micro else value
    return ffi.new(f"{kind} *", row | more)


# ---- powers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.0625, 0.5, 0.75, 1.0, 1.5625, 2.4375, 8.0, -4.0, 1 / 2.4375])
def test_a_power_is_as_close_as_its_description_says(exponent: float) -> None:
    for base in [*np.geomspace(1e-6, 1e6, 97), 1.0, 2.0, math.sqrt(2), math.nextafter(math.sqrt(2), 2)]:
        found, wanted = lib.pk_power(float(base), exponent), float(base) ** exponent
        bound = 1e-15 * (1 + abs(exponent * math.log2(base)))
        assert abs(found - wanted) <= bound * wanted, (base, exponent)


def test_whole_powers_of_two_are_exact() -> None:
    for power in range(-300, 301, 7):
        assert lib.pk_power(2.0, float(power)) == float(Fraction(2) ** power)


@pytest.mark.parametrize("base", [0.0, -1.0, math.nan])
def test_a_base_that_is_not_positive_has_power_zero(base: float) -> None:
    assert lib.pk_power(base, 2.0) == 0


def test_powers_saturate_instead_of_overflowing() -> None:
    assert lib.pk_power(1e300, 16.0) == 2.0**1023
    assert lib.pk_power(1e-300, 16.0) == 0


# ---- single kernels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["gemm_bf16", "gemm_fp8", "gemm_fp8_block"])
@pytest.mark.parametrize("m", [1, 17, 256, 8192])
@pytest.mark.parametrize(("n", "k"), [(32, 65536), (4096, 4096), (28672, 512)])
def test_a_gemm_costs_what_its_formula_says(law: str, m: int, n: int, k: int) -> None:
    values = coefficients("h100", law)
    own = struct("pk_matrix_law", values, peak_flops=PART.peak_flops)
    found = lib.pk_matrix_seconds(own, PART.bytes_per_second, PART.sm_count, m, n, k, 1.0)
    assert found == pytest.approx(seconds(forms.GEMM, values, m=m, n=n, k=k, weight_bytes=1.0), rel=1e-13)


def at_width(law: dict[str, float], width: float) -> dict[str, float]:
    """A law of streams at one width of head, whose terms in the width are constants."""
    floor = law["floor"] + law.get("per_width", 0.0) * width
    per_stream = law["per_stream"] + law.get("per_stream_width", 0.0) * width
    return {"regroup": 0.0, **law, "floor": floor, "per_stream": per_stream}


@pytest.mark.parametrize(
    ("part", "law"),
    [("a100-sxm", "decode_bf16"), ("b200", "decode_fp8"), ("b200", "latent_decode_fp8"), ("b200", "sparse_fp8")],
)
@pytest.mark.parametrize(("rows", "context"), [(1, 1), (1, 131072), (2, 512), (64, 4096), (512, 7)])
def test_streaming_attention_costs_what_its_formula_says(part: str, law: str, rows: int, context: int) -> None:
    values = coefficients(part, law)
    own = struct("pk_stream_law", at_width(values, 128.0), peak_flops=PART.peak_flops)
    tokens, heads = rows * context, 2.0
    found = lib.pk_stream_seconds(
        own, PART.bytes_per_second, PART.sm_count, rows, tokens, heads, tokens * 512.0, tokens * 8192.0
    )
    wanted = seconds(
        forms.DECODE if law.startswith("decode") else forms.STREAM,
        values,
        rows=rows, tokens=tokens, streams=heads, bytes_per_token=512.0, flops_per_token=8192.0,
        head_dim=128.0, regroups=rows > 1,
    )  # fmt: skip
    assert found == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("operation", ["all_reduce_graph", "all_reduce_nccl", "all_gather_nccl", "alltoall_nccl"])
@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("size", [0.0, 1e3, 1e9])
def test_a_collective_costs_what_its_formula_says(operation: str, ranks: int, size: float) -> None:
    values, volume = coefficients("gb300", operation), 2.0 if "reduce" in operation else 1.0
    link = Part(1.0, 900e9, 1)
    own = struct(
        "pk_link_law", values, volume=volume, bytes_per_second=link.bytes_per_second * values["link_efficiency"]
    )
    moved = volume * (ranks - 1) / ranks * size
    wanted = seconds(forms.COLLECTIVE, values, link, ranks=ranks, link_bytes=moved)
    assert lib.pk_link_seconds(own, ranks, size) == pytest.approx(wanted, rel=1e-13)


# ---- whole steps -----------------------------------------------------------------------------------------------

HOST = {name: body for entry in yaml.safe_load((REGISTRY / "calibrated-host.yaml").read_text())["coefficients"]
        for name, body in ((key.split(".", 1)[1], value["value"]) for key, value in entry.items())}  # fmt: skip


def scaled(taken: float, flops: float, moved: float, part: Part) -> float:
    """A kernel in a step: scaled, and never below the roofline."""
    return max(taken * HOST["host_vllm.kernel_scale"], flops / part.peak_flops, moved / part.bytes_per_second)


def test_a_dense_decode_step_is_the_sum_of_its_kernels() -> None:
    kernel = pykernel.open("llama-3.1-8b-h100-tp1", model="calibrated")
    found = kernel.step_time(pykernel.Batch([pykernel.Request(1, 4095, 1024)] * 30))
    gemm, total = coefficients("h100", "gemm_bf16"), 0.0
    # 30 rows run in the graph of 32; fused query, key and value; gate and up; 16 bits each
    for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)):
        taken = seconds(forms.GEMM, gemm, m=32, n=n, k=k, weight_bytes=2.0)
        total += 32 * scaled(taken, 2.0 * 32 * n * k, 2.0 * n * k, PART)
    tokens = 30 * 4096
    taken = seconds(
        forms.DECODE,
        coefficients("h100", "decode_bf16"),
        rows=30, tokens=tokens, streams=8, bytes_per_token=2 * 8 * 128 * 2, flops_per_token=4 * 32 * 128,
        head_dim=128, regroups=1,
    )  # fmt: skip
    total += 32 * scaled(taken, tokens * 4 * 32 * 128, tokens * 2 * 8 * 128 * 2, PART)
    total += 32 * 2 * 32 * (2 * 4096 * 2) / PART.bytes_per_second  # two norms a layer, 32 rows
    taken = seconds(forms.GEMM, gemm, m=30, n=128256, k=4096, weight_bytes=2.0)  # the head on 30 rows
    total += scaled(taken, 2.0 * 30 * 128256 * 4096, 2.0 * 128256 * 4096, PART)
    total += 32 * HOST["host_vllm.layer"] * 1e-6
    assert found.no_overlap_ns == pytest.approx(total * 1e9, rel=1e-9, abs=5)


def test_experts_are_those_of_the_busiest_rank_and_skip_pad_rows() -> None:
    kernel = pykernel.open("qwen3-30b-a3b-h200-ep8", model="calibrated")
    requests = [pykernel.Request(1, 1023, 1024)] * 24
    terms = kernel.explain(pykernel.Batch(requests, pad_tokens=40)).terms
    routed = [term for term in terms if term.what.startswith("routed experts")]
    law, part = coefficients("h200", "dealt_experts_bf16"), Part(989.5e12, 4.8e12, 132)
    # Eight replicas' tokens meet at the experts.
    tokens, top_k, experts, local, hidden, width, shape = 8 * 24, 8, 128, 16, 2048, 768, HOST["routing.shape"]
    rows = tokens * top_k / 8 * (1 + 1.424 / math.sqrt(shape * local))
    active = local * (1 - (1 + tokens * top_k / (experts * shape)) ** -shape)
    flops, each = 6.0 * hidden * width, 6.0 * hidden * width
    taken = seconds(
        forms.EXPERTS, law, part,
        tokens=tokens, rows=rows, active=active, width=width, flops_per_row=flops, bytes_per_expert=each,
        row_bytes=4 * rows * (hidden + width), slot_bytes=2 * tokens * top_k * hidden,
    )  # fmt: skip
    wanted = scaled(taken, flops * rows, each * active, part)
    assert sum(term.ns for term in routed) == pytest.approx(wanted * 1e9, rel=1e-9, abs=2)
    assert next(t for t in routed if t.resource == "hbm").ns == pytest.approx(each * active / 4.8e12 * 1e9, abs=1)


SCENARIOS = list_scenarios()


@cache
def opened(scenario: str) -> pykernel.Kernel:
    kernel = pykernel.open(scenario, model="calibrated")
    assert isinstance(kernel, pykernel.Kernel)
    return kernel


def batches() -> list[list[pykernel.Request]]:
    decode = pykernel.Request
    return [
        [decode(1, 0, 1)],
        [decode(1, 1023, 1024)] * 8,
        [decode(1, 8191, 1024)] * 256,
        [decode(1, 32767, 1024)] * 64,
        [decode(2048, 0, 2048)],
        [decode(8192, 0, 8192)] * 2,
        [decode(1, 32767, 1024)] * 2 + [decode(2048, 0, 2048)],
        [decode(1025, 203760, 204785)],
        [decode(1, 100 * i, 64) for i in range(1, 40)] + [decode(700, 300, 1000), decode(30, 5, 35)],
    ]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_estimate_keeps_the_contract_of_a_step(scenario: str) -> None:
    kernel = opened(scenario)
    for requests in batches():
        found = kernel.step_time(pykernel.Batch(requests))
        parts = found.per_resource_ns
        assert found.no_overlap_ns == sum(parts.values())
        assert max(parts.values()) <= found.overlap_ns <= found.no_overlap_ns
        assert parts[found.bottleneck] == max(parts.values())
        again = kernel.step_time(pykernel.Batch(requests[::-1]))
        assert (again.overlap_ns, again.no_overlap_ns) == (found.overlap_ns, found.no_overlap_ns)
        total = sum(term.total_ns for term in kernel.explain(pykernel.Batch(requests)).terms)
        assert total == pytest.approx(found.no_overlap_ns, rel=1e-6, abs=100)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_more_work_never_costs_less(scenario: str) -> None:
    kernel = opened(scenario)

    def prices(steps: list[list[pykernel.Request]]) -> list[int]:
        return [kernel.step_time(pykernel.Batch(step)).no_overlap_ns for step in steps]

    request = pykernel.Request
    for steps in (
        [[request(1, 4095, 1)] * n for n in (1, 2, 8, 32, 128, 512)],
        [[request(1, context - 1, 1)] * 64 for context in (1024, 4096, 32768, 131072)],
        [[request(1024, prefix, 1)] for prefix in (0, 1024, 16384, 131072)],
        [[request(length, 0, length)] for length in range(16, 8193, 511)],
    ):
        found = prices(steps)
        assert found == sorted(found)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_withheld_sms_never_help(scenario: str) -> None:
    kernel = opened(scenario)
    for requests in batches()[1:4]:
        whole = kernel.step_time(pykernel.Batch(requests))
        for budget in (0, -3, 10**6):
            assert kernel.step_time(pykernel.Batch(requests, sm_budget=budget)).no_overlap_ns == whole.no_overlap_ns
        tight = [kernel.step_time(pykernel.Batch(requests, sm_budget=budget)).overlap_ns for budget in (100, 60, 1)]
        assert [whole.overlap_ns, *tight] == sorted([whole.overlap_ns, *tight])


def test_dense_rows_are_padded_to_the_captured_size() -> None:
    kernel = pykernel.open("llama-3.1-8b-h100-tp1", model="calibrated")

    def dense(count: int) -> int:
        terms = kernel.explain(pykernel.Batch([pykernel.Request(1, 99, 1)] * count)).terms
        return next(term.ns for term in terms if term.layer == "dense" and term.what == "dense arithmetic")

    assert dense(25) == dense(32) < dense(40)
    assert dense(600) < dense(601)  # beyond the widest graph nothing is padded
