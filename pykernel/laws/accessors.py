"""Laws H: host work around the steps. Laws V, R and D: what a model says of coefficients, settings and deployment."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pykernel.documents import Dbo, Engine, Eplb, Inputs, Parallel, Speculative
from pykernel.errors import PykernelError, RefusedError
from pykernel.interface import EVIDENCE_METHODS
from pykernel.laws.law import ADVICE, MODEL, Skipped, Subject, law, rising
from pykernel.laws.observations import differences, plain, shortened, vector
from pykernel.laws.step import whole
from pykernel.resolve import KERNEL_ASSUMPTION_SET

METHODS = EVIDENCE_METHODS | {"copied", "assumed", "not_charged"}

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


@law("H4", "Host work does not depend on the GPU.", sweep="a chip of twice the bandwidth and peak", needs="host")
def not_the_gpu(subject: Subject) -> Iterator[str]:
    def change(documents: Inputs) -> None:
        documents.chip.bw_peak_tbs *= 2
        for peak in ("tflops_peak", "tflops_fp8", "tflops_nvfp4"):
            setattr(documents.chip, peak, getattr(documents.chip, peak) * 2)
        documents.chip.sm_count *= 2

    if _host(subject.twin(change)) != _host(subject.model):
        yield f"host work is {_host(subject.twin(change))} on a faster chip, {_host(subject.model)} before"


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


# ---- provenance ------------------------------------------------------------------------------------------------


@law("V1", "Every entry has a name, a set and a known method, and there is one.", sweep="all", needs="coefficients")
def rows(subject: Subject) -> Iterator[str]:
    origins = subject.model.provenance()
    if not origins:
        yield "provenance is empty"
    for origin in origins:
        if not origin.name or not origin.set or origin.method not in METHODS:
            yield f"{origin}"


def _used(subject: Subject) -> list[str]:
    """Coefficients in the documents, by name."""
    documents = subject.documents()
    return sorted({entry.name for entries in documents.coefficients for entry in entries.coefficients})


def _without(*names: str) -> Any:
    def change(documents: Inputs) -> None:
        for entries in documents.coefficients:
            entries.coefficients = [entry for entry in entries.coefficients if entry.name not in names]

    return change


def _scaled(*names: str) -> Any:
    def change(documents: Inputs) -> None:
        for entries in documents.coefficients:
            for entry in entries.coefficients:
                if entry.name in names:
                    entry.value, entry.ci95 = entry.value * 1.5, None

    return change


def _prices(model: Any, subject: Subject) -> list[Any]:
    """What coefficients can change, apart from the accessors."""
    seen = vector(model, subject.standard)
    return [value for name, value in seen.items() if name not in ("provenance", "resolved", "deployment")]


@law(
    "V2",
    "A coefficient that changes a price, or whose absence refuses one, is an entry.",
    sweep="every coefficient of the documents, half as large again",
    needs="coefficients",
)
def complete(subject: Subject) -> Iterator[str]:
    subject.documents()
    if subject.build is None:
        raise Skipped("no factory that takes documents was given")
    rows, before = {origin.name for origin in subject.model.provenance()}, _prices(subject.model, subject)
    others = [name for name in _used(subject) if name not in rows]
    for how, change in (("scaled", _scaled), ("removed", _without)):
        for name, effect in _culprits(subject, change, others, before):
            yield f"{name}: {how}, it {effect}, and it is no entry"


def _culprits(subject: Subject, change: Any, names: list[str], before: list[Any]) -> Iterator[tuple[str, str]]:
    """Those of the names whose change shows, found by halves, since most changes show nothing."""
    if not names:
        return
    documents = subject.documents()
    change(*names)(documents)
    assert subject.build is not None
    try:
        effect = "" if _prices(subject.build(documents), subject) == before else "changes a price"
    except PykernelError:
        effect = "is refused"
    if effect and len(names) == 1:
        yield names[0], effect
    elif effect:
        half = len(names) // 2
        yield from _culprits(subject, change, names[:half], before)
        yield from _culprits(subject, change, names[half:], before)


@law(
    "V3",
    "A coefficient that is missing is refused or disclosed as an assumption, where that changes a price.",
    sweep="every optional coefficient, removed",
    needs="coefficients",
)
def disclosed(subject: Subject) -> Iterator[str]:
    before = _prices(subject.model, subject)
    own = {origin.name for origin in subject.model.provenance()}
    for name in [one for one in _used(subject) if one in own and one.startswith(_OPTIONAL)]:
        try:
            twin = subject.twin(_without(name))
        except Skipped:
            continue
        disclosure = [row for row in twin.provenance() if row.name == name]
        if _prices(twin, subject) != before and not any(row.method == "assumed" for row in disclosure):
            yield f"{name}: without it prices differ, and no assumption says so"


_OPTIONAL = ("host_", "moe_routing_imbalance", "recurrent_", "attention_decode_rate_", "attention_prefill_floor")


_DEFAULTS = {
    "block_size": "block_size",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "cudagraph_mode": "cudagraph_mode",
}


@law(
    "V4",
    "A default that the model fills in is an assumption that begins with its value; stating it changes nothing else.",
    sweep="block size, token budget, sequence cap and graph mode",
    needs="coefficients",
)
def defaults(subject: Subject) -> Iterator[str]:
    assumed = {row.name: row for row in subject.model.provenance() if row.set == KERNEL_ASSUMPTION_SET}
    for name in _DEFAULTS:
        if getattr(subject.pool.engine, name) or name not in assumed:
            continue
        value = assumed[name].scope.partition(":")[0]
        if not value:
            yield f"{assumed[name]} does not begin with its value"
            continue
        try:
            twin = subject.settings(**{name: int(value) if value.isdigit() else value})
        except Skipped:
            continue
        left = {row.name for row in twin.provenance() if row.set == KERNEL_ASSUMPTION_SET}
        if name in left:
            yield f"{name} is stated and still an assumption"
        if _prices(twin, subject) != _prices(subject.model, subject):
            yield f"{name} = {value} stated changes a price"


@law("V5", "The set of the model's own assumptions is none of the registry's.", sweep="all", needs="coefficients")
def own_set(subject: Subject) -> Iterator[str]:
    sets = {entries.name for entries in subject.documents().coefficients if entries.name}
    names = {entry.name for entries in subject.documents().coefficients for entry in entries.coefficients}
    for row in subject.model.provenance():
        if row.name not in names and row.set in sets:
            yield f"{row.name} is no coefficient of the registry, but has its set {row.set}"


@law("V6", "The evidence counts the entries.", sweep="all")
def counted(subject: Subject) -> Iterator[str]:
    origins, evidence = subject.model.provenance(), subject.model.evidence()
    measured = sum(origin.method in EVIDENCE_METHODS for origin in origins)
    assumed = sorted(origin.name for origin in origins if origin.method == "assumed")
    if (evidence.total, evidence.measured, sorted(evidence.assumed)) != (len(origins), measured, assumed):
        yield f"evidence is {evidence.measured} of {evidence.total}, the entries {measured} of {len(origins)}"


@law("V7", "An assumed coefficient is priced.", sweep="every entry made an assumption", needs="coefficients")
def assumed(subject: Subject) -> Iterator[str]:
    documents = subject.documents()
    if subject.build is None:
        raise Skipped("no factory that takes documents was given")
    for entries in documents.coefficients:
        for entry in entries.coefficients:
            if entry.method in EVIDENCE_METHODS:
                entry.method, entry.rationale, entry.ci95 = "assumed", entry.rationale or "for a test", None
                entry.fitted = False
    try:
        subject.build(documents)
    except RefusedError as error:
        yield f"refused: {error}"
    except PykernelError as error:
        raise Skipped(f"the documents do not allow it: {str(error).splitlines()[0]}") from None


# ---- what would run --------------------------------------------------------------------------------------------


@law("R1", "Widths are at least 1.", sweep="as reported, and of a width of 0")
def widths(subject: Subject) -> Iterator[str]:
    resolved = subject.model.resolved()
    for name in ("tensor_parallel", "data_parallel", "expert_parallel"):
        width, stated = getattr(resolved, name)(), getattr(resolved, f"{name}_width")
        if not whole(width) or width < 1 or (stated > 0 and stated != width):
            yield f"{name}() is {width!r}, its field {stated!r}"
    for name in ("decode_context_parallel_width", "prefill_context_parallel_width"):
        if (width := getattr(subject.model, name)()) < 1:
            yield f"{name}() is {width}"


@law(
    "R2",
    "Experts are divided over tp x pcp x dp ranks with expert parallelism, and over 1 without.",
    sweep="as deployed",
)
def expert_width(subject: Subject) -> Iterator[str]:
    parallel = subject.pool.parallel
    tensor, data = max(parallel.tp, 1), max(parallel.dp, 1)
    expected = tensor * max(parallel.pcp, 1) * data if parallel.enable_expert_parallel else 1
    found = subject.model.resolved().expert_parallel()
    if found != expected:
        yield f"expert_parallel() is {found}, the deployment gives {expected}"
    both = (subject.model.resolved().tensor_parallel(), subject.model.resolved().data_parallel())
    if both != (tensor, data):
        yield f"tensor and data widths are {both}, deployed are {(tensor, data)}"


@law("R3", "An override names a field, two different values and a reason.", sweep="as deployed; one that is overridden")
def overrides(subject: Subject) -> Iterator[str]:
    for override in subject.model.resolved().overrides:
        if not override.field or not override.reason or override.requested == override.resolved:
            yield f"{override}"
    backend = subject.model.resolved().all_reduce_backend
    stated = subject.pool.engine.allreduce_backend
    named = {override.field for override in subject.model.resolved().overrides}
    if stated and backend != stated and not any("all" in name and "reduce" in name for name in named):
        yield f"the all-reduce runs on {backend}, stated is {stated}, and no override says so"


@law("R4", "Declining the custom all-reduce shows in the backend.", sweep="tensor-parallel deployments")
def backend(subject: Subject) -> Iterator[str]:
    if subject.model.resolved().tensor_parallel() < 2:
        raise Skipped("there is no tensor parallelism")
    found = subject.settings(disable_custom_all_reduce=True, allreduce_backend="").resolved().all_reduce_backend
    if found == "custom":
        yield "the all-reduce is declined, and still reported as custom"


@law("R5", "Unset, scheduling is asynchronous and cascade attention off.", standing=MODEL, sweep="as deployed")
def unset(subject: Subject) -> Iterator[str]:
    engine, resolved = subject.pool.engine, subject.model.resolved()
    if engine.disable_cascade_attn is None and resolved.cascade_attention:
        yield "cascade attention is unset and reported on"
    named = {override.field for override in resolved.overrides}
    if engine.async_scheduling is None and not resolved.async_scheduling and "async_scheduling" not in str(named):
        yield "asynchronous scheduling is unset and reported off"


@law("D1", "`deployment` is the pool as stated.", sweep="every field")
def as_stated(subject: Subject) -> Iterator[str]:
    documents = subject.documents()
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
                setattr(
                    part, field.name, {"dbo": Dbo(), "eplb": Eplb(), "speculative": Speculative("x", 1)}[field.name]
                )
            else:
                setattr(part, field.name, 7)
    pool.parallel, pool.engine = Parallel(9, 9, 9), Engine()
    if plain(subject.model.deployment()) != before:
        yield "writing to what deployment() returned changed what it returns later"
    if subject.inputs and plain(subject.inputs.deployment) != documents:
        yield "writing to what deployment() returned changed the documents"


@law("D3", "An overridden setting keeps its request in `deployment`.", sweep="as deployed")
def request_kept(subject: Subject) -> Iterator[str]:
    engine = subject.model.deployment().engine
    for override in subject.model.resolved().overrides:
        name = override.field.rpartition(".")[2]
        value = getattr(engine, name, None)
        if isinstance(value, str) and value and value == override.resolved != override.requested:
            yield f"{override.field} is {value} in deployment(), requested was {override.requested}"


@law("D4", "The pools of one deployment are models of their own.", sweep="each pool")
def each_pool(subject: Subject) -> Iterator[str]:
    documents = subject.documents()
    if len(documents.deployment.pools) < 2 or subject.build is None:
        raise Skipped("the deployment has one pool, or no factory that takes documents was given")
    for index, pool in enumerate(documents.deployment.pools):
        one = copy.deepcopy(documents)
        one.pool = index
        if plain(subject.build(one).deployment()) != plain(pool):
            yield f"the model of pool {index} returns another pool"


@law("D5", "Two pools of other settings answer differently.", standing=ADVICE, sweep="the first two pools")
def pools_differ(subject: Subject) -> Iterator[str]:
    documents = subject.documents()
    if len(documents.deployment.pools) < 2 or subject.build is None:
        raise Skipped("the deployment has one pool, or no factory that takes documents was given")
    first, second = documents.deployment.pools[:2]
    if plain(first.parallel) == plain(second.parallel):
        raise Skipped("the pools are laid out alike")
    models = []
    for index in (0, 1):
        one = copy.deepcopy(documents)
        one.pool = index
        models.append(vector(subject.build(one), subject.standard))
    if not list(differences(models[0], models[1])):
        yield "both pools answer alike"
