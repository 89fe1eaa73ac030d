"""Inflating one coefficient of a spec moves the terms that may use it, by the amount its law says, and no other.

Every number of the spec that is a coefficient is scaled on its own; the terms of a step before and after are compared
one by one with what the law gives for the new value, worked out here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import pykernel
from pykernel._native import ffi, lib
from pykernel.documents import Coefficient, Inputs, Scope, Speculative
from pykernel.flatten import Spec
from pykernel.plan import make_plan
from pykernel.resolve import resolve
from pykernel.switches import NEWEST
from tests.published.fixtures import scenario

FACTOR = 3.0
LINKS = (lib.PK_TERM_COLLECTIVE, lib.PK_TERM_GATHER)


def shaped(inputs: Inputs) -> Inputs:
    """The same deployment with a shape-aware ramp."""
    for name, value in (("gemm_n_half_fp8", 700.0), ("gemm_k_half_fp8", 300.0)):
        entry = Coefficient(name, value, "dimensionless", "measured", False, Scope(hardware=[inputs.chip.name]))
        inputs.coefficients[0].coefficients.append(entry)
    return inputs


def drafting(inputs: Inputs) -> Inputs:
    inputs.deployment.pools[0].engine.speculative = Speculative("deepseek_mtp", 2)
    return inputs


def shared_cache(inputs: Inputs) -> Inputs:
    inputs.deployment.pools[0].parallel.dcp = 4
    return inputs


DEPLOYMENTS: dict[str, Callable[[], Inputs]] = {
    "latent": lambda: scenario("deepseek-v3-h200-fp8-tp8"),
    "shape-aware": lambda: shaped(scenario("deepseek-v3-h200-fp8-tp8")),
    "drafting": lambda: drafting(scenario("deepseek-v3-h200-fp8-tp8")),
    "shared cache": lambda: shared_cache(scenario("deepseek-v3-h200-fp8-tp8")),
    "across nodes": lambda: scenario("minimax-m2.5-h200-ep16"),
    "windows": lambda: scenario("gpt-oss-120b-h100-fp4-tp2"),
    "indexed": lambda: scenario("glm-5-h200-tp8"),
    "recurrent": lambda: scenario("qwen3.5-397b-a17b-b300-fp4-tp4"),
}


def spec_of(inputs: Inputs) -> Spec:
    resolved = resolve(inputs)
    return Spec(make_plan(inputs.model, resolved, NEWEST), resolved, NEWEST)


def terms_of(spec: Any) -> list[Any]:
    """The terms of a step with decodes, a prefill with context and one without."""
    requests = [(1, 4095), (1, 99), (3, 5000), (700, 0), (512, 8192)]
    batch = pykernel.Batch([pykernel.Request(s, c, s + c) for s, c in requests], decode_threshold=8, pad_tokens=5)
    made = ffi.new("pk_kernel **")
    assert lib.pk_kernel_new(spec, made, ffi.NULL) == lib.PK_OK
    kernel = ffi.gc(made[0], lib.pk_kernel_free)
    count = ffi.new("size_t *")
    assert lib.pk_step_explain(kernel, batch.struct, ffi.NULL, 0, count, ffi.NULL) == lib.PK_OK
    terms = ffi.new("pk_term[]", count[0])
    assert lib.pk_step_explain(kernel, batch.struct, terms, count[0], count, ffi.NULL) == lib.PK_OK
    return [terms[i] for i in range(count[0])] + [terms]  # the last keeps the memory alive


@dataclass(frozen=True)
class Knob:
    """A coefficient: where it is, which terms it is part of, and the seconds it makes of one."""

    name: str
    struct: Callable[[Any], Any]
    field: str
    moves: Callable[[Any], bool]
    seconds: Callable[[Any, float], float]
    """Of a term and the factor, whatever the field's new value then is."""


def kinds(*wanted: int) -> Callable[[Any], bool]:
    return lambda term: term.kind in wanted


def work(term: Any) -> float:
    return float(term.seconds - term.floor_s)


def knobs(spec: Any) -> Iterator[Knob]:
    flops = (lib.PK_TERM_DENSE, lib.PK_TERM_PREFILL, lib.PK_TERM_EXPERT_WORK)
    reads = (lib.PK_TERM_WEIGHTS, lib.PK_TERM_ELEMENTWISE, lib.PK_TERM_EXPERT_WEIGHTS)

    def faster(term: Any, factor: float) -> float:
        return float(term.floor_s + work(term) / factor)

    yield Knob("peak_flops", lambda s: s, "peak_flops", kinds(*flops), faster)
    yield Knob("eps_max", lambda s: s.gemm, "eps_max", kinds(*flops), faster)
    yield Knob("hbm", lambda s: s, "hbm_bytes_per_second", kinds(*reads), faster)
    for i in range(spec.attention_count):
        yield from attention_knobs(i)
    for i in range(spec.scorer_count):
        yield from scorer_knobs(i)
    for i in range(spec.experts_count):
        yield Knob(
            f"experts[{i}].imbalance",
            lambda s, i=i: s.experts[i],
            "imbalance",
            lambda t, i=i: t.kind == lib.PK_TERM_EXPERT_WORK and t.index == i,
            lambda t, factor: float(t.seconds * factor),
        )
    for i in range(spec.layer_count):
        if spec.layers[i].recurrent.law:
            yield from recurrent_knobs(i)
    for i in range(spec.collective_law_count):
        yield from collective_knobs(spec, i)
    yield from host_knobs(spec)


def attention_knobs(i: int) -> Iterator[Knob]:
    def is_decode(term: Any) -> bool:
        return term.kind == lib.PK_TERM_DECODE and term.index == i

    def is_prefill(term: Any) -> bool:
        return term.kind == lib.PK_TERM_PREFILL and term.index == i

    yield Knob(
        f"attentions[{i}].decode.bytes_per_second",
        lambda s: s.attentions[i].decode,
        "bytes_per_second",
        is_decode,
        lambda t, factor: float(t.floor_s + work(t) / factor),
    )
    yield Knob(
        f"attentions[{i}].prefill.work_scale",
        lambda s: s.attentions[i].prefill,
        "work_scale",
        is_prefill,
        lambda t, factor: float(t.floor_s + work(t) / factor),
    )


def scorer_knobs(i: int) -> Iterator[Knob]:
    def is_scan(term: Any) -> bool:
        return term.kind == lib.PK_TERM_SCORER and term.index == i

    yield Knob(
        f"scorers[{i}].decode.bytes_per_second",
        lambda s: s.scorers[i].decode,
        "bytes_per_second",
        is_scan,
        lambda t, factor: float(t.floor_s + work(t) / factor),
    )
    yield Knob(
        f"scorers[{i}].decode.floor_ns",
        lambda s: s.scorers[i].decode,
        "floor_ns",
        is_scan,
        lambda t, factor: float(t.floor_s * factor + work(t)),
    )


def recurrent_knobs(i: int) -> Iterator[Knob]:
    def is_mixer(term: Any) -> bool:
        return term.kind == lib.PK_TERM_RECURRENT and term.part == i

    yield Knob(
        f"layers[{i}].recurrent.floor_ns",
        lambda s: s.layers[i].recurrent,
        "floor_ns",
        is_mixer,
        lambda t, factor: float(t.floor_s * factor + work(t)),
    )
    yield Knob(
        f"layers[{i}].recurrent.tokens_per_second",
        lambda s: s.layers[i].recurrent,
        "tokens_per_second",
        is_mixer,
        lambda t, factor: float(t.floor_s + work(t) / factor),
    )


def collective_knobs(spec: Any, i: int) -> Iterator[Knob]:
    law = spec.collective_laws[i]
    values = {name: getattr(law, name) for name in ("floor_ns", "transition_bytes_per_second", "peak_bytes_per_second")}

    def uses(term: Any) -> bool:
        if term.kind == lib.PK_TERM_GATHER:
            return bool(spec.head.gather_law == i)
        return term.kind == lib.PK_TERM_COLLECTIVE and spec.collectives[term.index].law == i

    def priced(term: Any, changed: dict[str, float]) -> float:
        each = term.bytes / term.launches
        floor_s = changed["floor_ns"] / 1e9
        ramp = floor_s + each / changed["transition_bytes_per_second"]
        return float(term.launches * max(ramp, each / changed["peak_bytes_per_second"]))

    for name in values:
        yield Knob(
            f"collective_laws[{i}].{name}",
            lambda s: s.collective_laws[i],
            name,
            uses,
            lambda t, factor, name=name: priced(t, {**values, name: values[name] * factor}),
        )


def host_knobs(spec: Any) -> Iterator[Knob]:
    eager = {"replay_ns": lambda term: False, "eager_layer_ns": kinds(lib.PK_TERM_GRAPH)}
    for field, moves in eager.items():  # the step is wider than every captured graph
        yield Knob(f"host.{field}", lambda s: s.host, field, moves, lambda t, factor: float(t.seconds * factor))
    yield Knob(
        "host.kernel_ns",
        lambda s: s.host,
        "kernel_ns",
        kinds(lib.PK_TERM_DISPATCH),
        lambda t, factor: math.floor(spec.host.kernel_ns * factor / 1e9 * spec.host.kernels * 1e9) / 1e9,
    )


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_inflating_one_coefficient_moves_its_terms_alone_and_by_its_law(deployment: str) -> None:
    held = spec_of(DEPLOYMENTS[deployment]())  # the arrays live as long as this
    spec = held.struct
    before = terms_of(spec)
    moved_by_someone = set()
    for knob in knobs(spec):
        struct = knob.struct(spec)
        kept = getattr(struct, knob.field)
        if kept == 0:
            continue
        # eps_max has a ceiling, so everything that is a fraction is lowered instead.
        factor = 0.5 if knob.field == "eps_max" else FACTOR
        setattr(struct, knob.field, type(kept)(kept * factor))
        after = terms_of(spec)
        setattr(struct, knob.field, kept)
        assert len(after) == len(before), knob.name
        for index, (old, new) in enumerate(zip(before[:-1], after[:-1], strict=True)):
            expected = knob.seconds(old, factor) if knob.moves(old) else old.seconds
            assert math.isclose(new.seconds, expected, rel_tol=1e-9, abs_tol=2e-9), (knob.name, index, old.kind)
            if knob.moves(old):
                moved_by_someone.add(index)
    assert moved_by_someone == set(range(len(before) - 1)), "a term that no coefficient moves is not priced by one"


@pytest.mark.parametrize("field", ["decode", "prefill"])
def test_a_floor_is_paid_once_in_every_layer_of_its_kind(field: str) -> None:
    inputs = scenario("deepseek-v3-h200-fp8-tp8")
    inputs.deployment.pools[0].engine.cache_dtype = "bfloat16"
    held = spec_of(inputs)  # the arrays live as long as this
    spec = held.struct
    before = terms_of(spec)
    kind = lib.PK_TERM_DECODE if field == "decode" else lib.PK_TERM_PREFILL
    for i in range(spec.attention_count):
        getattr(spec.attentions[i], field).floor_ns += 1_000_000
    after = terms_of(spec)
    for old, new in zip(before[:-1], after[:-1], strict=True):
        added = 1e-3 if old.kind == kind else 0.0
        assert math.isclose(new.seconds - old.seconds, added, rel_tol=1e-9, abs_tol=1e-12)


def test_a_half_point_moves_the_ramp_it_belongs_to() -> None:
    held = spec_of(shaped(scenario("deepseek-v3-h200-fp8-tp8")))  # the arrays live as long as this
    spec = held.struct
    tokens = 1 + 1 + 3 + 700 + 512 + 5
    for field in ("m_half", "n_half", "k_half"):
        before = terms_of(spec)
        kept = getattr(spec.gemm, field)
        setattr(spec.gemm, field, kept * 2)
        after = terms_of(spec)
        setattr(spec.gemm, field, kept)
        moved = {old.kind for old, new in zip(before[:-1], after[:-1], strict=True) if new.seconds != old.seconds}
        if field == "m_half":
            assert moved == {lib.PK_TERM_DENSE, lib.PK_TERM_PREFILL, lib.PK_TERM_EXPERT_WORK}
            slower = (tokens + 2 * kept) / (tokens + kept)
            experts = [
                (o, n) for o, n in zip(before[:-1], after[:-1], strict=True) if o.kind == lib.PK_TERM_EXPERT_WORK
            ]
            assert experts and all(math.isclose(n.seconds / o.seconds, slower, rel_tol=1e-9) for o, n in experts)
        else:
            assert moved == {lib.PK_TERM_DENSE}, field


def test_a_slower_network_moves_what_crosses_nodes_and_nothing_else() -> None:
    held = spec_of(scenario("minimax-m2.5-h200-ep16"))  # the arrays live as long as this
    spec = held.struct
    before = terms_of(spec)
    spec.link_ratio *= 2
    after = terms_of(spec)
    moved = {
        (old.kind, old.resource) for old, new in zip(before[:-1], after[:-1], strict=True) if new.seconds > old.seconds
    }
    assert moved == {(lib.PK_TERM_COLLECTIVE, lib.PK_NIC)}
