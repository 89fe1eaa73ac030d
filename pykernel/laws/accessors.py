"""Laws H: host work around the steps. Laws R and D: what a model says of settings and of the deployment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pykernel.documents import Dbo, Engine, Eplb, Inputs, Parallel, Speculative
from pykernel.laws.law import ADVICE, MODEL, Skipped, law
from pykernel.laws.observations import plain, shortened, vector
from pykernel.laws.step import whole
from pykernel.laws.subject import Subject, rising, settle

_PROMPTS = (-1, 0, 1, 100, 1000, 8192, 131072)


@law("H1", "Admission costs nothing for no tokens, and no less for more.", sweep="-1 to 131,072 tokens", needs="host")
def admission(subject: Subject) -> Iterator[str]:
    times = [(f"{tokens} tokens", subject.model.admission_overhead_ns(tokens)) for tokens in _PROMPTS]
    yield from rising(times)
    for (name, ns), tokens in zip(times, _PROMPTS, strict=True):
        if not whole(ns) or ns < 0 or (tokens <= 0 and ns):
            yield f"admission of {name} takes {ns!r} ns"


@law("H2", "Admission is affine in the tokens.", standing=MODEL, tolerance="1 ns", sweep="equal steps of 1,000 tokens")
def affine(subject: Subject) -> Iterator[str]:
    times = [subject.model.admission_overhead_ns(1 + 1000 * step) for step in range(5)]
    if any(abs(a - 2 * b + c) > 1 for a, b, c in zip(times, times[1:], times[2:], strict=False)):
        yield f"admission in steps of 1,000 tokens takes {times} ns"


@law("H3", "Handing out a token and ending a request cost constants of at least 0.", sweep="8 calls", needs="host")
def constants(subject: Subject) -> Iterator[str]:
    for name in ("output_token_overhead_ns", "completion_overhead_ns"):
        found = {getattr(subject.model, name)() for _ in range(8)}
        if len(found) != 1 or not all(whole(ns) and ns >= 0 for ns in found):
            yield f"{name} is {sorted(found)}"


def _host(model: Any) -> list[int]:
    admissions = [model.admission_overhead_ns(tokens) for tokens in _PROMPTS]
    return [*admissions, model.output_token_overhead_ns(), model.completion_overhead_ns()]


@law(
    "H4",
    "Host work does not depend on the GPU.",
    sweep="a chip of twice the bandwidth and peak; tp 1, 2, 4 and 8",
    needs="host",
)
def not_the_gpu(subject: Subject) -> Iterator[str]:
    def change(documents: Inputs) -> None:
        documents.chip.bw_peak_tbs *= 2
        for peak in ("tflops_peak", "tflops_fp8", "tflops_nvfp4"):
            setattr(documents.chip, peak, getattr(documents.chip, peak) * 2)
        documents.chip.sm_count *= 2

    before = _host(subject.model)
    if _host(subject.twin(change)) != before:
        yield f"host work is {_host(subject.twin(change))} on a faster chip, {before} before"
    for tp in (1, 2, 4, 8):
        try:
            after = _host(subject.settings(tp=tp))
        except Skipped:
            continue
        if after != before:
            yield f"host work is {after} at tp {tp}, {before} as deployed"


_AROUND = ("host_admission_per_token", "host_admission_per_request", "host_output_token", "host_completion")


@law("H5", "Host work around a step is no part of it.", sweep="its coefficients ten times as large", needs="host")
def no_step(subject: Subject) -> Iterator[str]:
    def change(documents: Inputs) -> None:
        for entries in documents.coefficients:
            for entry in entries.coefficients:
                if entry.name in _AROUND:
                    entry.value, entry.ci95 = entry.value * 10, None

    twin = subject.twin(change)
    for name, batch in subject.standard:
        before, after = (plain(model.step_time(batch)) for model in (subject.model, twin))
        if before != after:
            yield f"{name}: {shortened(after)} with host work ten times as slow, {shortened(before)} before"


# ---- what would run --------------------------------------------------------------------------------------------


@law(
    "R1", "Widths are at least 1; one that is set is reported as it is.", sweep="as reported, and of widths 0, -1 and 3"
)
def widths(subject: Subject) -> Iterator[str]:
    resolved = subject.model.resolved()
    for name in ("tensor_parallel", "data_parallel", "expert_parallel"):
        for width, stated in (
            (getattr(resolved, name)(), getattr(resolved, f"{name}_width")),
            *_rewidened(resolved, name),
        ):
            if not whole(width) or width < 1 or (stated > 0 and stated != width):
                yield f"{name}() is {width!r}, its field {stated!r}"
    for name in ("decode_context_parallel_width", "prefill_context_parallel_width"):
        if (width := getattr(subject.model, name)()) < 1:
            yield f"{name}() is {width}"


def _rewidened(resolved: Any, name: str) -> Iterator[tuple[Any, int]]:
    """What a resolution says of other widths, where it is a record that can be copied with them."""
    if is_dataclass(resolved) and not isinstance(resolved, type):
        for stated in (0, -1, 3):
            yield getattr(replace(resolved, **{f"{name}_width": stated}), name)(), stated


@law(
    "R2",
    "Experts are divided over tp x pcp x dp ranks with expert parallelism, and over 1 without.",
    sweep="as deployed; without at dp 4; with at pcp 4",
)
def expert_width(subject: Subject) -> Iterator[str]:
    models = [subject.model]
    for values in (
        {"enable_expert_parallel": False, "dp": 4, "dp_local": 0, "eplb": None},
        {"enable_expert_parallel": True, "pcp": 4, "dp": 1, "dp_local": 0},
    ):
        try:
            models.append(subject.settings(**values))
        except Skipped:
            continue
    for model in models:
        parallel, resolved = model.deployment().parallel, model.resolved()
        tensor, data = max(parallel.tp, 1), max(parallel.dp, 1)
        expected = tensor * max(parallel.pcp, 1) * data if parallel.enable_expert_parallel else 1
        if resolved.expert_parallel() != expected:
            yield f"expert_parallel() is {resolved.expert_parallel()}, the deployment gives {expected}"
        if (resolved.tensor_parallel(), resolved.data_parallel()) != (tensor, data):
            both = resolved.tensor_parallel(), resolved.data_parallel()
            yield f"tensor and data widths are {both}, deployed are {(tensor, data)}"


def _overridden(subject: Subject) -> Iterator[tuple[str, Any]]:
    """The model as deployed, and those of deployments with a setting that the engine cannot run as it is stated."""
    yield "as deployed", subject.model
    if subject.build is None or subject.inputs is None:
        return
    for name, change in (("custom all-reduce across nodes", _across_nodes), ("fp8 cache", _fp8_cache)):
        try:
            yield name, subject.twin(change)
        except Skipped:
            continue


def _across_nodes(documents: Inputs) -> None:
    pool = documents.deployment.pools[documents.pool]
    if pool.parallel.tp < 2:
        raise Skipped("there is no tensor parallelism")
    documents.scenario.cluster.gpus_per_node = pool.parallel.tp // 2
    pool.engine.allreduce_backend, pool.parallel.dp_local = "custom", 0
    settle(documents)


def _fp8_cache(documents: Inputs) -> None:
    documents.deployment.pools[documents.pool].engine.cache_dtype = "fp8"


@law(
    "R3",
    "An override names a field, two different values and a reason; a stated setting that would not run has one.",
    sweep="as deployed; a custom all-reduce across nodes; an fp8 cache",
)
def overrides(subject: Subject) -> Iterator[str]:
    for name, model in _overridden(subject):
        resolved, engine = model.resolved(), model.deployment().engine
        for override in resolved.overrides:
            if not override.field or not override.reason or override.requested == override.resolved:
                yield f"{name}: {override}"
        named = {override.field.rpartition(".")[2] for override in resolved.overrides}
        backend, stated = resolved.all_reduce_backend, engine.allreduce_backend
        if stated and backend != stated and "allreduce_backend" not in named:
            yield f"{name}: the all-reduce runs on {backend}, stated is {stated}, and no override says so"
        if engine.async_scheduling and not resolved.async_scheduling and "async_scheduling" not in named:
            yield f"{name}: asynchronous scheduling is stated and off, and no override says so"


@law("R4", "Declining the custom all-reduce shows in the backend.", sweep="tensor-parallel deployments")
def backend(subject: Subject) -> Iterator[str]:
    if subject.model.resolved().tensor_parallel() < 2:
        raise Skipped("there is no tensor parallelism")
    found = subject.settings(disable_custom_all_reduce=True, allreduce_backend="").resolved().all_reduce_backend
    if found == "custom":
        yield "the all-reduce is declined, and still reported as custom"


@law(
    "R5",
    "Unset, scheduling is asynchronous and cascade attention off.",
    standing=MODEL,
    sweep="as deployed, and with both unset",
)
def unset(subject: Subject) -> Iterator[str]:
    for model in (subject.model, subject.settings(async_scheduling=None, disable_cascade_attn=None)):
        engine, resolved = model.deployment().engine, model.resolved()
        if engine.disable_cascade_attn is None and resolved.cascade_attention:
            yield "cascade attention is unset and reported on"
        named = {override.field.rpartition(".")[2] for override in resolved.overrides}
        if engine.async_scheduling is None and not resolved.async_scheduling and "async_scheduling" not in named:
            yield "asynchronous scheduling is unset and reported off"


@law(
    "R6",
    "Graph modes are FULL, PIECEWISE or NONE; a step is captured where one of them captures; a decode has a token.",
    sweep="as deployed, and without graphs",
)
def graphs(subject: Subject) -> Iterator[str]:
    models = {"as deployed": subject.model}
    with suppress(Skipped):
        models["without graphs"] = subject.settings(cudagraph_mode="NONE")
    for name, model in models.items():
        modes, most, decode = tuple(model.graph_modes()), model.capture_tokens(), model.decode_threshold()
        if len(modes) != 2 or not set(modes) <= {"FULL", "PIECEWISE", "NONE"}:
            yield f"{name}: graph_modes() is {modes}"
        if not whole(most) or most < 0 or (most > 0) != (set(modes) != {"NONE"}):
            yield f"{name}: capture_tokens() is {most!r} in the modes {modes}"
        if not whole(decode) or decode < 1:
            yield f"{name}: decode_threshold() is {decode!r}"


@law("D1", "`deployment` is the pool as stated.", sweep="every field")
def as_stated(subject: Subject) -> Iterator[str]:
    documents = subject.given
    pool, found = documents.deployment.pools[documents.pool], subject.model.deployment()
    for name, stated, value in _flat(pool, found):
        if stated != value:
            yield f"{name} is {value!r}, stated is {stated!r}"


def _flat(first: Any, second: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if is_dataclass(first) and is_dataclass(second):
        for field in fields(first):
            if field.name != "source":
                values = getattr(first, field.name), getattr(second, field.name)
                yield from _flat(*values, f"{name}.{field.name}".lstrip("."))
    else:
        yield name, first, second


_BLOCKS = {"dbo": Dbo(), "eplb": Eplb(), "speculative": Speculative("x", 1)}


@law("D2", "`deployment` is a copy.", sweep="every field and block written to")
def own_copy(subject: Subject) -> Iterator[str]:
    before = plain(subject.model.deployment())
    documents = plain(subject.inputs.deployment) if subject.inputs else None
    pool = subject.model.deployment()
    pool.role, pool.nodes = "decode", pool.nodes + 5
    for part in (pool.parallel, pool.engine):
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, list):
                value.append(1)
            elif is_dataclass(value):
                for inner in fields(value):
                    setattr(value, inner.name, 7)
            elif field.name in ("dbo", "eplb", "speculative"):
                setattr(part, field.name, _BLOCKS[field.name])
            else:
                setattr(part, field.name, 7)
    pool.parallel, pool.engine = Parallel(9, 9, 9), Engine()
    if plain(subject.model.deployment()) != before:
        yield "writing to what deployment() returned changed what it returns later"
    if subject.inputs and plain(subject.inputs.deployment) != documents:
        yield "writing to what deployment() returned changed the documents"


@law(
    "D3",
    "An overridden setting keeps its request in `deployment`.",
    sweep="as deployed; a custom all-reduce across nodes; an fp8 cache",
)
def request_kept(subject: Subject) -> Iterator[str]:
    for name, model in _overridden(subject):
        engine = model.deployment().engine
        for override in model.resolved().overrides:
            value = getattr(engine, override.field.rpartition(".")[2], None)
            if isinstance(value, str) and value and value == override.resolved != override.requested:
                yield f"{name}: {override.field} is {value} in deployment(), requested was {override.requested}"
        if name == "fp8 cache" and engine.cache_dtype != "fp8":
            yield f"{name}: cache_dtype is {engine.cache_dtype!r} in deployment()"
        if name.startswith("custom") and engine.allreduce_backend != "custom":
            yield f"{name}: allreduce_backend is {engine.allreduce_backend!r} in deployment()"


@law("D4", "The model of each pool returns that pool.", sweep="each pool; of one pool, it prefilling and decoding")
def each_pool(subject: Subject) -> Iterator[str]:
    for index, (pool, model) in enumerate(subject.pools):
        if plain(model.deployment()) != plain(pool):
            yield f"the model of pool {index} returns another pool"


@law("D5", "Two pools of other settings answer differently.", standing=ADVICE, sweep="the first two pools")
def pools_differ(subject: Subject) -> Iterator[str]:
    (first, one), (second, other) = subject.pools[:2]
    if plain(first.parallel) == plain(second.parallel):
        raise Skipped("the pools are laid out alike")
    if vector(one, subject.standard) == vector(other, subject.standard):
        yield "both pools answer alike"
