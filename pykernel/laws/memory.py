"""Laws F: what a rank holds before any sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pykernel.documents import Eplb, Inputs
from pykernel.errors import RefusedError
from pykernel.interface import INT64_MAX, MemoryBreakdown
from pykernel.laws.law import MODEL, Skipped, law
from pykernel.laws.observations import TOKENS, observe, others, plain, shortened
from pykernel.laws.step import whole
from pykernel.laws.subject import Subject, rising
from pykernel.summary import summarize

_FIELDS = tuple(MemoryBreakdown.__dataclass_fields__)


def _f(id: str, statement: str, sweep: str, **more: Any) -> Callable[[Any], Any]:
    return law(id, statement, sweep=sweep, needs="memory", **more)


@_f("F1", "Every part of the fixed bytes is at least 0, and `total` is their sum.", "one call")
def parts(subject: Subject) -> Iterator[str]:
    fixed = subject.model.fixed_bytes()
    values = [getattr(fixed, name) for name in _FIELDS]
    if not all(whole(value) and value >= 0 for value in values) or fixed.total != sum(values):
        yield f"{fixed} with a total of {fixed.total}"


@_f("F2", "A rank holds less than the part's memory.", "as deployed")
def fits(subject: Subject) -> Iterator[str]:
    chip, total = subject.given.chip, subject.model.fixed_bytes().total
    if total >= chip.memory_gib * 2**30:
        yield f"a rank holds {total} bytes on a part of {chip.memory_gib} GiB"


@_f(
    "F3",
    "Nothing is held for expert load balancing that is off, or for graphs that are not captured.",
    "as deployed, and with both switched off",
)
def nothing_for_nothing(subject: Subject) -> Iterator[str]:
    fixed, engine = subject.model.fixed_bytes(), subject.pool.engine
    if not (engine.eplb and engine.eplb.enable_eplb) and fixed.eplb_redundant:
        yield f"eplb_redundant is {fixed.eplb_redundant} without expert load balancing"
    if set(subject.model.graph_modes()) == {"NONE"} and fixed.cuda_graph:
        yield f"cuda_graph is {fixed.cuda_graph} without graphs"
    if subject.build is not None and subject.inputs is not None:
        off = subject.settings(eplb=None, cudagraph_mode="NONE").fixed_bytes()
        if off.eplb_redundant or off.cuda_graph:
            yield f"without load balancing and graphs a rank holds {off}"


@_f("F4", "What is held before the budget, `pre_snapshot_bytes`, is not counted within it again.", "one call")
def before_the_budget(subject: Subject) -> Iterator[str]:
    before, inside = subject.model.pre_snapshot_bytes(), subject.model.fixed_bytes().comm_buffers
    if not whole(before) or before < 0:
        yield f"pre_snapshot_bytes is {before!r}"
    elif before > 0 and inside:
        yield f"pre_snapshot_bytes is {before}, and comm_buffers {inside} as well"


@_f("F5", "Weights do not rise with tensor parallelism.", "tp 1, 2, 4 and 8")
def weights_fall(subject: Subject) -> Iterator[str]:
    made = subject.each("tp", (1, 2, 4, 8))
    yield from rising((f"less weights at tp {tp}", -model.fixed_bytes().weights) for tp, model in made)
    parameters = 0.45 * _stored_parameters(subject)
    held = subject.model.fixed_bytes().weights * _ranks(subject)
    if held < parameters:
        yield f"all ranks hold {held} bytes, of {parameters:.0f} at half a byte a parameter"


def _stored_parameters(subject: Subject) -> int:
    return summarize(subject.given.model).parameters


def _ranks(subject: Subject) -> int:
    parallel = subject.pool.parallel
    return parallel.tp * max(parallel.dp, 1) * max(parallel.pcp, 1)


def _experts(subject: Subject) -> int:
    """Of the layer that has most; 0 where none has."""
    return max((node.experts for kind in subject.given.model.layer_kinds for node in kind.nodes), default=0)


@_f(
    "F6",
    "Replicas of experts raise the total by `eplb_redundant` and leave the weights; more of them take more.",
    "1, 2, 4 and 8 replicas a rank, with expert parallelism, where the experts divide evenly",
)
def replicas(subject: Subject) -> Iterator[str]:
    experts = _experts(subject)
    without = subject.settings(eplb=None, enable_expert_parallel=True)
    width, fixed = without.resolved().expert_parallel(), without.fixed_bytes()
    if width < 2 or not experts or experts % width:
        raise Skipped("there are no experts that can be divided evenly over ranks")
    taken = []
    for each in (1, 2, 4, 8):
        eplb = Eplb(True, each * width, 1000, 3000)
        held = subject.settings(eplb=eplb, enable_expert_parallel=True).fixed_bytes()
        if held.weights != fixed.weights or held.total - fixed.total != held.eplb_redundant:
            yield f"{eplb.num_redundant_experts} replicas on {width} ranks: {held}, without: {fixed}"
        taken.append(held.eplb_redundant)
    if taken != sorted(set(taken)) or taken[0] <= 0:
        yield f"1, 2, 4 and 8 replicas on each of {width} ranks take {taken} bytes"


def _tripled(subject: Subject) -> Any:
    def triple(documents: Inputs) -> None:
        for entries in documents.coefficients:
            for entry in entries.coefficients:
                if entry.name.startswith(_MEMORY):
                    entry.value, entry.ci95 = entry.value * 3, None

    return subject.twin(triple)


_MEMORY = ("activation_", "cudagraph_capture_bytes", "nccl_communicator_bytes", "engine_workspace_bytes")


@_f("F7", "What memory costs prices no time and no sequence.", "every memory coefficient tripled")
def no_time(subject: Subject) -> Iterator[str]:
    twin = _tripled(subject)
    for name, batch in subject.standard:
        before, after = (plain(model.step_time(batch)) for model in (subject.model, twin))
        if before != after:
            yield f"{name}: {shortened(after)}, and {shortened(before)} before memory cost three times as much"
    for (name, before), (_, after) in zip(others(subject.model), others(twin), strict=True):
        if name in ("fixed_bytes", "pre_snapshot_bytes", "provenance"):
            continue
        if (was := observe(before)) != (now := observe(after)):
            yield f"{name} is {shortened(now)}, and {shortened(was)} before memory cost three times as much"


@_f(
    "F12",
    "Memory that costs three times as much is three times as much, weights apart.",
    "every memory coefficient tripled",
    standing=MODEL,
    tolerance="3 bytes",
)
def in_proportion(subject: Subject) -> Iterator[str]:
    twin, fixed = _tripled(subject), subject.model.fixed_bytes()
    held = {name: (getattr(fixed, name), getattr(twin.fixed_bytes(), name)) for name in _FIELDS}
    held["pre_snapshot"] = subject.model.pre_snapshot_bytes(), twin.pre_snapshot_bytes()
    for name, (before, after) in held.items():
        times = 1 if name in ("weights", "eplb_redundant") else 3
        if abs(after - times * before) > 3:
            yield f"{name} is {after} bytes, and {before} before memory cost three times as much"


@_f(
    "F8",
    "A wider expert group holds no more on the fullest rank.",
    "data parallelism times 2, 4 and 9, with expert parallelism",
)
def wider_experts(subject: Subject) -> Iterator[str]:
    if not _experts(subject):
        raise Skipped("the model has no experts")
    ranks = max(subject.pool.parallel.dp, 1)
    widths = [ranks * times for times in (1, 2, 4, 9)]
    made = subject.each("dp", widths, dp_local=0, eplb=None, enable_expert_parallel=True)
    yield from rising((f"less weights at dp {dp}", -model.fixed_bytes().weights) for dp, model in made)


@_f(
    "F9",
    "An unset graph mode is FULL_AND_PIECEWISE, and an unset token budget the one that is reported as assumed.",
    "unset and stated",
    standing=MODEL,
)
def default_mode(subject: Subject) -> Iterator[str]:
    unset = subject.settings(cudagraph_mode="", max_num_batched_tokens=0)
    budgets = [row.scope for row in unset.provenance() if row.name == "max_num_batched_tokens"]
    if not budgets:
        yield "an unset token budget is not reported"
        return
    budget = int(budgets[0].partition(":")[0])
    for values in ({"cudagraph_mode": "FULL_AND_PIECEWISE"}, {"max_num_batched_tokens": budget}):
        stated = subject.settings(**{"cudagraph_mode": "", "max_num_batched_tokens": 0, **values})
        if stated.fixed_bytes() != unset.fixed_bytes():
            yield f"{values} stated: {stated.fixed_bytes()}, unset: {unset.fixed_bytes()}"


@_f("F10", "Activations and links do not follow the width of the weights.", "fp8 in place of 16 bits", standing=MODEL)
def activations_stay(subject: Subject) -> Iterator[str]:
    if subject.given.model.global_.weight_dtype not in ("bf16", "fp16"):
        raise Skipped("the checkpoint is not one of 16 bits")
    wide, narrow = (subject.settings(quantization=served) for served in ("", "fp8"))
    before, after = wide.fixed_bytes(), narrow.fixed_bytes()
    if after.weights >= before.weights or after.activation_peak != before.activation_peak:
        yield f"served in fp8: {after}, in 16 bits: {before}"
    for name, batch in subject.standard:
        links = [model.step_time(batch).per_resource_ns.get("nvlink", 0) for model in (wide, narrow)]
        if links[0] != links[1]:
            yield f"{name}: nvlink takes {links[1]} ns served in fp8, {links[0]} ns in 16 bits"


@_f(
    "F11",
    "Without expert parallelism each doubling of data parallelism halves the experts on a rank.",
    "dp 1, 2 and 4",
    standing=MODEL,
    tolerance="1e-6 of the weights",
)
def halved_experts(subject: Subject) -> Iterator[str]:
    if not _experts(subject):
        raise Skipped("the model has no experts")
    one, two, four = (model.fixed_bytes().weights for model in _replicated(subject))
    if one <= two or abs((one - two) - 2 * (two - four)) > 1e-6 * one:
        yield f"weights at dp 1, 2 and 4 are {one}, {two} and {four} bytes"


def _replicated(subject: Subject) -> list[Any]:
    """Models at dp 1, 2 and 4 without expert parallelism, of the widest layout of which all can be made."""
    whole_model = {"enable_expert_parallel": False, "eplb": None, "dp_local": 0, "pcp": 0, "dcp": 0}
    reason = Skipped("none of these can be made")
    for tp in sorted({subject.pool.parallel.tp, 4, 2, 1}, reverse=True):
        try:
            return [subject.settings(tp=tp, dp=dp, **whole_model) for dp in (1, 2, 4)]
        except Skipped as found:
            reason = found
    raise reason


@_f(
    "F13",
    "Sequences have what the fixed bytes leave of the budget, in whole blocks; budget and blocks are those asked for.",
    "as deployed; on parts of 4 TiB, with all of it used, and with blocks of 64 tokens",
)
def room(subject: Subject) -> Iterator[str]:
    fixed, rooms = subject.model.fixed_bytes().total, 0
    for asked in _ASKED:
        try:
            found = subject.model.kv_capacity(**asked)
        except RefusedError:
            continue
        rooms += 1
        for complaint in _room_complaints(found, fixed, asked, subject.model.decode_context_parallel_width()):
            yield f"kv_capacity({', '.join(f'{name}={value}' for name, value in asked.items())}): {complaint}"
    if not rooms:
        raise Skipped("no sequence fits, whatever is asked")


_ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"gpu_memory_bytes": 1 << 42},
    {"gpu_memory_bytes": 1 << 42, "gpu_memory_utilization": 1.0},
    {"gpu_memory_bytes": 1 << 42, "block_size": 64},
)


def _room_complaints(found: Any, fixed: int, asked: dict[str, Any], ranks: int) -> Iterator[str]:
    if found.bytes != found.budget_bytes - fixed or not 0 <= found.bytes <= found.budget_bytes <= found.device_bytes:
        parts = f"{found.device_bytes} bytes, a budget of {found.budget_bytes} and {fixed} fixed ones"
        yield f"{found.bytes} bytes for sequences, of {parts}"
    blocks = found.bytes // found.block_bytes if found.block_bytes else 0
    tokens = blocks * found.block_tokens if found.block_bytes else INT64_MAX
    if (found.blocks, found.tokens) != (blocks, tokens):
        yield f"{found.blocks} blocks of {found.block_bytes} bytes and {found.tokens} tokens in {found.bytes} bytes"
    if found.device_bytes != asked.get("gpu_memory_bytes", found.device_bytes):
        yield f"device_bytes is {found.device_bytes}"
    share = asked.get("gpu_memory_utilization", found.budget_bytes / found.device_bytes)
    if abs(found.budget_bytes - share * found.device_bytes) > 1:
        yield f"the budget is {found.budget_bytes} bytes"
    if "block_size" in asked and found.block_tokens not in (asked["block_size"], asked["block_size"] * ranks):
        yield f"a block holds {found.block_tokens} tokens"


@_f(
    "F14",
    "A sequence is charged what it grows to and what admission sets aside.",
    "the `charge` of the room for sequences, over the token grid",
)
def charged(subject: Subject) -> Iterator[str]:
    try:
        found = subject.model.kv_capacity(gpu_memory_bytes=1 << 42)
    except RefusedError:
        raise Skipped("no sequence fits") from None
    aside = subject.model.sequence_admission_bytes()
    for tokens in (count for count in TOKENS if count > 0):
        grown = subject.model.sequence_variable_bytes(tokens)
        if (charge := found.charge(tokens)) != grown + aside:
            yield f"{tokens} tokens are charged {charge} bytes; they grow to {grown}, and {aside} are set aside"
        elif charge and found.sequences(tokens) != found.bytes // charge:
            yield f"{found.sequences(tokens)} sequences of {tokens} tokens fit in {found.bytes} bytes"
