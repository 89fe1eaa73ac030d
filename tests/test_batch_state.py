"""Running batches: the price of the next step, exactly as from scratch, on bundled deployments of every kind."""

from __future__ import annotations

import random
from functools import cache

import pytest

import pykernel
from pykernel import ArgumentError, Batch, BatchError, BatchState, Kernel, Request, StepEstimate
from pykernel.documents import Speculative

FULL, WINDOWED, MOE = "deepseek-v3-h200-fp8-tp8", "gpt-oss-120b-h100-fp4-tp2", "minimax-m2.5-h200-ep16"


@cache
def kernel(kind: str) -> Kernel:
    if kind not in ("dcp", "drafts"):
        return Kernel(pykernel.open_inputs(kind))
    inputs = pykernel.open_inputs(FULL)
    pool = inputs.deployment.pools[0]
    if kind == "dcp":
        pool.parallel.dcp = 8
    else:
        pool.engine.speculative = Speculative("mtp", 3)
    return Kernel(inputs)


@pytest.mark.parametrize("kind", [FULL, WINDOWED, MOE, "dcp", "drafts"])
def test_a_random_history_prices_as_from_scratch(kind: str) -> None:
    priced, generator = kernel(kind), random.Random(kind)
    threshold = priced.decode_threshold()
    state, requests = BatchState(decode_threshold=threshold, sm_budget=100, pad_tokens=3), dict[int, list[int]]()
    state.set(sm_budget=0)
    for _ in range(300):
        drawn = [generator.choice((threshold, 1, generator.randint(0, 900))), generator.choice((0, 5, 70_000))]
        known = generator.choice(list(requests)) if requests else None
        action = generator.choice(("add", "add", "update", "remove", "advance", "advance"))
        if action == "add":
            requests[state.add(*drawn)] = drawn
        elif action == "update" and known is not None:
            state.update(known, *drawn)
            requests[known] = drawn
        elif action == "remove" and known is not None:
            state.remove(known)
            del requests[known]
        else:
            steps = generator.randint(0, 2)
            state.advance(steps)
            requests = {id: [new, computed + steps * new] for id, (new, computed) in requests.items()}
        scratch = Batch(
            [Request(new, computed, computed) for new, computed in requests.values()],
            decode_threshold=threshold,
            pad_tokens=3,
        )
        assert priced.step_time(state) == priced.step_time(scratch)
    assert {id: state.request(id) for id in requests} == {id: tuple(pair) for id, pair in requests.items()}
    assert priced.step_time(state.batch()) == priced.step_time(state)
    assert sorted((r.scheduled, r.computed) for r in state.batch()) == sorted(map(tuple, requests.values()))


def test_it_starts_with_the_requests_given() -> None:
    state = BatchState([Request(1, 10, 10), Request(500, 0, 500)])
    assert len(state) == 2 and state.request(0) == (1, 10) and state.request(1) == (500, 0)
    assert len(BatchState()) == 0 and list(BatchState().batch()) == []


def test_an_estimate_serves_batches_and_running_ones_in_turn() -> None:
    priced, estimate = kernel(FULL), StepEstimate()
    batch, state = Batch([Request(1, 99, 1)] * 5), BatchState([Request(1, 50, 1)] * 3)
    for _ in range(2):
        priced.step_time_into(state, estimate)
        assert estimate == priced.step_time(state)
        priced.step_time_into(batch, estimate)
        assert estimate == priced.step_time(batch) != priced.step_time(state)


def test_an_id_is_given_again_after_its_request_left() -> None:
    state = BatchState([Request(1, 1, 1)] * 3)
    state.remove(1)
    assert state.add(1, 7) == 1 and state.request(1) == (1, 7)


def test_what_no_scheduler_makes_is_refused_and_changes_nothing() -> None:
    state = BatchState([Request(1, 2**30 - 2, 1)])
    with pytest.raises(BatchError, match="scheduled is -1"):
        state.add(-1, 0)
    with pytest.raises(BatchError, match="computed is -5"):
        state.update(0, 1, -5)
    with pytest.raises(ArgumentError, match="id is 7"):
        state.remove(7)
    with pytest.raises(ArgumentError, match="decode_threshold"):
        BatchState(decode_threshold=-1)
    with pytest.raises(ArgumentError, match="integers"):
        state.add(1.5, 0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="integers"):
        state.add(1, 2**70)
    with pytest.raises(ArgumentError, match="pad_tokens"):
        state.set(pad_tokens=-1)
    state.advance()
    with pytest.raises(BatchError, match=r"passes 2\^30"):
        state.advance()
    assert len(state) == 1 and state.request(0) == (1, 2**30 - 1)


def test_a_step_of_too_many_tokens_is_refused_with_its_pads() -> None:
    state, estimate = BatchState([Request(2**30 - 5, 0, 1)], pad_tokens=6), StepEstimate()
    with pytest.raises(BatchError, match=f"{2**30 + 1} tokens"):
        kernel(FULL).step_time_into(state, estimate)
    assert estimate == StepEstimate()
    state.set(pad_tokens=5)
    assert kernel(FULL).step_time(state).overlap_ns > 0
