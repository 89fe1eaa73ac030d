"""Laws P: a model is a pure function of its arguments and of the documents it was made of."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from pykernel.batch import Batch
from pykernel.documents import Inputs
from pykernel.errors import DocumentError, RefusedError
from pykernel.interface import RESOURCES, Placement, StepEstimate
from pykernel.laws.batches import THRESHOLD, equal, rebuilt
from pykernel.laws.law import ADVICE, Skipped, law
from pykernel.laws.observations import (
    PLACEMENTS,
    TOKENS,
    calls,
    differences,
    digest,
    observe,
    plain,
    shortened,
    vector,
)
from pykernel.laws.subject import Subject, settle

_FIELDS = ("scheduled", "computed", "prompt_len", "cached_tokens")


def _some(subject: Subject) -> list[tuple[str, Batch]]:
    """The standard batches and a few drawn ones: laws that repeat the vector many times take these."""
    return subject.standard + subject.drawn[:10] + subject.drawn[-10:]


@law("P1", "Repeating any call with equal arguments gives equal results.", sweep="each call 8 times, interleaved")
def repeats(subject: Subject) -> Iterator[str]:
    first = vector(subject.model, _some(subject))
    for _ in range(7):
        yield from differences(first, vector(subject.model, _some(subject)))


@law(
    "P2",
    "Results do not depend on what was called before.",
    sweep="the whole vector forward, reversed and shuffled; batches of equal token counts one after the other",
)
def order(subject: Subject) -> Iterator[str]:
    batches = [*_some(subject), ("8 x 1 token at 65536", equal(8, 1, 65536))]
    first = vector(subject.model, batches)
    if subject.factory or (subject.build and subject.inputs):
        backwards = reversed(calls(subject.again(), batches))
        yield from differences(first, {name: observe(thunk) for name, thunk in backwards})
    for seed in (None, 7):
        shuffled = calls(subject.model, batches)
        if seed is None:
            shuffled.reverse()
        else:
            random.Random(seed).shuffle(shuffled)
        yield from differences(first, {name: observe(thunk) for name, thunk in shuffled})


@law("P3", "Concurrent calls equal serial ones.", sweep="64 threads on one batch; 8 threads on different batches")
def concurrency(subject: Subject) -> Iterator[str]:
    batches = subject.standard
    serial = [observe(lambda batch=batch: subject.model.step_time(batch)) for _, batch in batches]  # type: ignore[misc]

    def price(index: int) -> tuple[int, Any]:
        return index, observe(lambda: subject.model.step_time(batches[index][1]))

    for threads, work in ((64, [2] * 128), (8, [index % len(batches) for index in range(160)])):
        with ThreadPoolExecutor(threads) as pool:
            for index, found in pool.map(price, work):
                if found != serial[index]:
                    found_text, alone = shortened(found), shortened(serial[index])
                    yield f"step_time of {batches[index][0]} beside others is {found_text}, alone {alone}"


@law("P4", "Two models made of equal documents are equal.", sweep="two twins, one made after the first was used")
def twins(subject: Subject) -> Iterator[str]:
    batches = _some(subject)
    first = vector(subject.model, batches)
    for _ in range(2):
        yield from differences(first, vector(subject.again(), batches))


@law(
    "P5",
    "Arguments are not modified.",
    sweep="the arrays and settings of a batch, and the documents, before and after; those also with settings unset and "
    "lists turned round",
)
def arguments(subject: Subject) -> Iterator[str]:
    columns = [array("q", values) for values in ([3, 1, 900, 2], [500, 9, 0, 4096], [100, 10, 900, 99], [0, 1, 2, 3])]
    batch = Batch.from_arrays(*columns, decode_threshold=THRESHOLD)
    before = [list(column) for column in columns]
    observe(lambda: subject.model.step_time(batch))
    observe(lambda: subject.model.step_time_into(batch, StepEstimate()))
    for before_column, column, name in zip(before, columns, _FIELDS, strict=True):
        if list(column) != before_column:
            yield f"{name} was {before_column} before the step was priced, and is {list(column)} after it"
    if (batch.decode_threshold, batch.sm_budget, batch.pad_tokens) != (THRESHOLD, 0, 0):
        yield "a setting of the batch changed while it was priced"
    if subject.build is None or subject.inputs is None:
        return
    for unsettled in (False, True):
        given, kept = subject.documents(), subject.documents()
        if unsettled:
            _unsettle(given)
            _unsettle(kept)
        with suppress(RefusedError, DocumentError):
            subject.build(given)
        for field in fields(given):
            if plain(getattr(given, field.name)) != plain(getattr(kept, field.name)):
                yield f"{field.name} of the documents changed when a model was made of them"


def _unsettle(documents: Inputs) -> None:
    """Unset what has a default and turn lists round: the documents given may have been through the model already."""
    settle(documents, block_size=0, cudagraph_mode="", max_num_batched_tokens=0, max_num_seqs=0, max_model_len=0)
    documents.storage.reverse()
    for entries in documents.coefficients:
        entries.coefficients.reverse()


@law(
    "P6",
    "What a call returns is the caller's: editing it changes no later answer, and no later call changes it.",
    sweep="the map of resources, edited and cleared; an estimate kept while other batches are priced",
)
def results(subject: Subject) -> Iterator[str]:
    (name, batch), (_, other) = subject.standard[3], subject.standard[6]
    estimate = subject.model.step_time(batch)
    before = plain(estimate)
    subject.model.step_time(other)
    if plain(estimate) != before:
        yield f"the estimate of {name} changed when another batch was priced"
    resources = subject.model.step_time(batch).per_resource_ns
    try:
        resources["hbm"] = 1
        resources.clear()
    except (TypeError, AttributeError):
        return  # it cannot be edited
    if plain(subject.model.step_time(batch)) != before:
        yield f"step_time of {name} changed after the map it had returned was edited"


@law(
    "P7",
    "Editing the documents after a model is made changes no answer.",
    sweep="every number, flag, text and list of the pool, graph, coefficients, chip, fabric and tiers",
)
def documents(subject: Subject) -> Iterator[str]:
    given = subject.documents()
    if subject.build is None:
        raise Skipped("no factory that takes documents was given")
    model = subject.build(given)
    before = vector(model, subject.standard)
    parts = (given.deployment, given.model, given.coefficients, given.chip, given.fabric, given.storage)
    for part in parts:
        _scramble(part)
    yield from differences(before, vector(model, subject.standard))


def _scramble(value: Any) -> None:
    """Change every field in place."""
    if isinstance(value, list):
        for item in value:
            _scramble(item)
        value.clear()
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if field.name == "source":
                continue
            inner = getattr(value, field.name)
            _scramble(inner)
            try:
                if isinstance(inner, bool):
                    setattr(value, field.name, not inner)
                elif isinstance(inner, (int, float)):
                    setattr(value, field.name, inner * 2 + 3)
                elif isinstance(inner, str):
                    setattr(value, field.name, f"{inner} edited")
            except AttributeError:
                return  # frozen


_ELSEWHERE = """
import pickle, sys
try:
    factory, documents, batches = pickle.load(sys.stdin.buffer)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
from pykernel.laws.observations import digest
print(digest(factory() if documents is None else factory(documents), batches))
"""


@law(
    "P8",
    "Nothing depends on the clock, the environment, the locale, the folder, random state or the process.",
    sweep="the vector after changes of these, and in a fresh process",
)
def surroundings(subject: Subject) -> Iterator[str]:
    batches = subject.standard
    before = vector(subject.model, batches)
    folder, state, environment = os.getcwd(), random.getstate(), dict(os.environ)
    try:
        with tempfile.TemporaryDirectory() as other:
            os.chdir(other)
            random.seed(1)
            os.environ.update(LANG="tr_TR.UTF-8", LC_ALL="C", TZ="Asia/Kolkata", HOME=other)
            yield from differences(before, vector(subject.model, batches))
            os.chdir(folder)
    finally:
        os.chdir(folder)
        random.setstate(state)
        os.environ.clear()
        os.environ.update(environment)
    yield from _in_another_process(subject, batches)


def _in_another_process(subject: Subject, batches: list[tuple[str, Batch]]) -> Iterator[str]:
    """Raises `Skipped` where the factory cannot be sent there: the law was then tried in this process alone."""
    factory, documents = (subject.factory, None) if subject.factory else (subject.build, subject.inputs)
    if factory is None or (factory is subject.build and documents is None):
        raise Skipped("holds in this process; no factory was given to make a model in another")
    here = digest(subject.again(), batches)
    try:
        sent = pickle.dumps((factory, documents, batches))
    except Exception as error:
        raise Skipped(f"{_ALONE}: {error}") from None
    environment = {**os.environ, "TZ": "Asia/Kolkata", "LC_ALL": "C", "PYTHONHASHSEED": "4"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-c", _ELSEWHERE]
    done = subprocess.run(command, input=sent, capture_output=True, env=environment, check=False)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode and not any(line.startswith("Traceback") for line in said):
        raise Skipped(f"{_ALONE}: {said[-1] if said else 'it ended without a word'}")
    if done.returncode:
        yield f"in another process it cannot be made: {said[-1]}"
    elif done.stdout.decode().strip() != here:
        yield "a model made in another process answers otherwise"


_ALONE = "holds in this process; its factory cannot be sent to another (name it as `module:attribute`)"


@law(
    "P9",
    "`step_time_into` writes what `step_time` returns, and leaves nothing of what the estimate held.",
    sweep="estimates that hold large values for every resource",
)
def into(subject: Subject) -> Iterator[str]:
    estimate = StepEstimate()
    for name, batch in _some(subject):
        estimate.fill(1 << 60, 1 << 60, "pcie", [1 << 60] * len(RESOURCES))
        subject.model.step_time_into(batch, estimate)
        expected, found = plain(subject.model.step_time(batch)), plain(estimate)
        if expected != found:
            yield f"{name}: step_time_into writes {shortened(found)}, step_time returns {shortened(expected)}"


@law(
    "P11",
    "`step_time_many` gives what `step_time` does.",
    sweep="the standard batches in one call, also with another threshold, fewer SMs and pad tokens",
)
def many(subject: Subject) -> Iterator[str]:
    if not hasattr(subject.model, "step_time_many"):
        raise Skipped("the model has no step_time_many")
    rows = [list(batch) for _, batch in subject.standard]
    ends = array("q", accumulate(map(len, rows), initial=0))
    columns = [
        array("q", [getattr(one, name) for requests in rows for one in requests])
        for name in ("scheduled", "computed", "prompt_len")
    ]
    changes: tuple[dict[str, int], ...] = ({}, {"decode_threshold": 1}, {"sm_budget": 66}, {"pad_tokens": 24})
    for changed in changes:
        settings = {"decode_threshold": THRESHOLD, **changed}
        found = subject.model.step_time_many(ends, *columns, **settings)
        for index, (name, batch) in enumerate(subject.standard):
            alone = subject.model.step_time(rebuilt(batch, **settings))
            expected = alone.overlap_ns, alone.no_overlap_ns
            together = found.overlap_ns[index], found.no_overlap_ns[index]
            if expected != together:
                asked = "".join(f", {setting} {value}" for setting, value in changed.items())
                yield f"{name}{asked}: overlap and no overlap are {together} among many, {expected} alone"


@law(
    "P12",
    "`sequence_variable_bytes_many` and `pd_transfer_time_many` give what one call for each does.",
    sweep="the token grid in one call, between all placements",
)
def many_sequences(subject: Subject) -> Iterator[str]:
    model, tokens = subject.model, array("q", TOKENS)
    pairs: list[tuple[str, str, tuple[Placement, ...]]] = [
        ("sequence_variable_bytes_many", "sequence_variable_bytes", ())
    ]
    pairs += [("pd_transfer_time_many", "pd_transfer_time_ns", ends) for ends in PLACEMENTS.values()]
    present = [pair for pair in pairs if hasattr(model, pair[0])]
    if not present:
        raise Skipped("the model has neither")
    for name, one, ends in present:
        together = observe(partial(_listed, getattr(model, name), tokens, ends))
        alone = observe(partial(_called, getattr(model, one), tokens, ends))
        if together != alone:
            yield f"{name}: {shortened(together)}, one by one {shortened(alone)}"


def _listed(call: Callable[..., Any], tokens: array[int], ends: tuple[Placement, ...]) -> list[int]:
    return list(call(tokens, *ends))


def _called(call: Callable[..., Any], tokens: array[int], ends: tuple[Placement, ...]) -> list[int]:
    return [call(count, *ends) for count in tokens]


@law(
    "P10",
    "What `provenance` and `resolved` return cannot be edited into later answers.",
    standing=ADVICE,
    sweep="a list that is returned, cleared",
)
def copies(subject: Subject) -> Iterator[str]:
    for name, rows in (("provenance", subject.model.provenance()), ("overrides", subject.model.resolved().overrides)):
        if isinstance(rows, list):
            kept = len(rows)
            rows.clear()
            again = subject.model.provenance() if name == "provenance" else subject.model.resolved().overrides
            if len(again) != kept:
                yield f"clearing the list of {name} changed what is returned later"
