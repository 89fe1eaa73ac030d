"""Broken cost models, each wrong in one way, and the laws that must notice.

Each wraps a correct kernel and is made of documents as that is, so that the laws can build twins of it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pykernel
from pykernel import Batch, Kernel, LinkUse, Placement, Request, StepEstimate, TransferDemand
from pykernel.documents import Inputs
from pykernel.errors import BatchError
from pykernel.interface import INT64_MAX, RESOURCES, CoefficientOrigin, Direction, Override

DENSE, TENSOR, EXPERTS = "qwen3-14b-h100-tp1", "llama-3.1-70b-h200-fp8-tp4", "minimax-m2.5-h200-ep16"
WINDOWS, SPARSE, PAIR = "gpt-oss-120b-h100-fp4-tp2", "glm-5-h200-tp8", "minimax-m2.5-h200-disagg"
DRAFTS = "nemotron-3-ultra-h100-tp8-mtp"


class Wrapper:
    """A correct model, method by method that of a kernel."""

    def __init__(self, inputs: Inputs) -> None:
        self.kernel = Kernel(inputs)

    def __getattr__(self, name: str) -> Any:
        if name == "kernel":
            raise AttributeError(name)
        return getattr(self.kernel, name)

    def step_time(self, batch: Batch) -> StepEstimate:
        return self.kernel.step_time(batch)

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        priced = self.step_time(batch)
        values = [priced.per_resource_ns.get(name, 0) for name in RESOURCES]
        estimate.fill(priced.overlap_ns, priced.no_overlap_ns, priced.bottleneck, values)

    def pd_transfer_time_ns(self, tokens: int, source: Placement, target: Placement) -> int:
        return int(self.pd_transfer_demand(tokens, source, target).alone_time_ns())

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        return self.kernel.pd_transfer_demand(tokens, source, target)


@dataclass(frozen=True)
class Mutant:
    name: str
    build: Callable[[Inputs], Any]
    laws: tuple[str, ...]
    scenario: str
    edit: Callable[[Inputs], None] | None = None


MUTANTS: list[Mutant] = []


def mutant(*laws: str, on: str = DENSE) -> Callable[[type], type]:
    def enter(model: type) -> type:
        MUTANTS.append(Mutant(model.__name__, model, laws, on))
        return model

    return enter


def stepped(*laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    """A mutant of the step: a function of the correct estimate as a dictionary, the batch, and the kernel."""

    def enter(change: Any) -> Any:
        class Model(Wrapper):
            def step_time(self, batch: Batch) -> StepEstimate:
                right = self.kernel.step_time(batch)
                values = {
                    "overlap": right.overlap_ns,
                    "total": right.no_overlap_ns,
                    "most": right.bottleneck,
                    **{name: right.per_resource_ns.get(name, 0) for name in RESOURCES},
                }
                values = change(values, batch, self.kernel) or values
                wrong = StepEstimate()
                wrong.fill(values["overlap"], values["total"], values["most"], [values[name] for name in RESOURCES])
                return wrong

        MUTANTS.append(Mutant(change.__name__, Model, laws, on))
        return change

    return enter


def answering(name: str, *laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    """A mutant of one method: a function of the kernel and the arguments."""

    def enter(change: Any) -> Any:
        model = type("Model", (Wrapper,), {name: lambda self, *arguments: change(self.kernel, *arguments)})
        MUTANTS.append(Mutant(change.__name__, model, laws, on))
        return change

    return enter


def totalled(values: dict[str, Any]) -> dict[str, Any]:
    """The estimate with its sum, bottleneck and least overlap made right again."""
    shares = {name: values[name] for name in RESOURCES}
    values["total"] = sum(shares.values())
    values["most"] = max(shares, key=lambda name: shares[name])
    values["overlap"] = min(max(values["overlap"], *shares.values()), values["total"])
    return values


def priced(model: Any, requests: list[Request], like: Batch) -> dict[str, Any]:
    settings = {"decode_threshold": like.decode_threshold, "sm_budget": like.sm_budget, "pad_tokens": like.pad_tokens}
    right = model.step_time(Batch(requests, **settings))
    parts = {name: right.per_resource_ns.get(name, 0) for name in RESOURCES}
    return {"overlap": right.overlap_ns, "total": right.no_overlap_ns, "most": right.bottleneck, **parts}


# ---- purity ----------------------------------------------------------------------------------------------------


@mutant("P1")
class AddsANanosecondToEveryThirdCall(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.count = itertools.count(1)

    def step_time(self, batch: Batch) -> StepEstimate:
        right = self.kernel.step_time(batch)
        if next(self.count) % 3 == 0:
            extra = {**right.per_resource_ns, "pcie": 1}
            return StepEstimate(right.overlap_ns, right.no_overlap_ns + 1, right.bottleneck, extra)
        return right


@mutant("P2", "M2s")
class RemembersByTokensAlone(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.seen: dict[int, StepEstimate] = {}

    def step_time(self, batch: Batch) -> StepEstimate:
        return self.seen.setdefault(batch.tokens(), self.kernel.step_time(batch))


@mutant("P3", "P6")
class SharesOneEstimate(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.shared = StepEstimate()

    def step_time(self, batch: Batch) -> StepEstimate:
        right = self.kernel.step_time(batch)
        values = [right.per_resource_ns.get(name, 0) for name in RESOURCES]
        self.shared.fill(right.overlap_ns, right.no_overlap_ns, right.bottleneck, values)
        time.sleep(1e-5)
        return self.shared


@mutant("P6")
class HandsOutItsOwnMap(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.maps: dict[str, Any] = {}

    def step_time(self, batch: Batch) -> Any:
        right = self.kernel.step_time(batch)

        class Shared:
            overlap_ns, no_overlap_ns, bottleneck = right.overlap_ns, right.no_overlap_ns, right.bottleneck
            per_resource_ns = self.maps.setdefault(repr(list(batch)), right.per_resource_ns)

        return Shared()


@mutant("P7", "D2")
class KeepsTheCallersPool(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.pool = inputs.deployment.pools[inputs.pool]

    def deployment(self) -> Any:
        return self.pool


@mutant("P4")
class SeedsFromACounter(Wrapper):
    made = itertools.count(1)

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.seed = next(SeedsFromACounter.made)

    def completion_overhead_ns(self) -> int:
        return self.kernel.completion_overhead_ns() + self.seed


@answering("completion_overhead_ns", "P8")
def reads_the_environment(kernel: Any) -> int:
    return int(kernel.completion_overhead_ns()) + (os.environ.get("TZ") == "Asia/Kolkata")


@mutant("P5")
class SortsTheCallersRequests(Wrapper):
    def step_time(self, batch: Batch) -> StepEstimate:
        scheduled = batch._arrays[0]
        for index, value in enumerate(sorted(scheduled)):
            scheduled[index] = value
        return self.kernel.step_time(batch)


@mutant("P9")
class LeavesWhatTheEstimateHeld(Wrapper):
    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        right = self.kernel.step_time(batch)
        held = {**estimate.per_resource_ns, **right.per_resource_ns}
        values = [held.get(name, 0) for name in RESOURCES]
        estimate.fill(right.overlap_ns, right.no_overlap_ns, right.bottleneck, values)


@mutant("P11")
class ForgetsItsManySteps(Wrapper):
    def step_time(self, batch: Batch) -> StepEstimate:
        right = self.kernel.step_time(batch)
        extra = {**right.per_resource_ns, "pcie": 5}
        return StepEstimate(right.overlap_ns, right.no_overlap_ns + 5, right.bottleneck, extra)


# ---- the estimate ----------------------------------------------------------------------------------------------


@stepped("S1")
def swaps_the_bounds(values: Any, *_: Any) -> None:
    values["overlap"], values["total"] = values["total"], values["overlap"]


@stepped("S2")
def drops_a_resource(values: Any, *_: Any) -> None:
    values["sm"] = 0


@stepped("S2")
def counts_the_host_twice(values: Any, *_: Any) -> None:
    values["total"] += values["host"]


@stepped("S3")
def blames_hbm_always(values: Any, *_: Any) -> None:
    values["most"] = "hbm"


@stepped("S4")
def goes_below_zero(values: Any, *_: Any) -> None:
    values["sm"] -= values["host"] + values["sm"] + 1


@stepped("S4")
def returns_no_number(values: Any, *_: Any) -> None:
    values["hbm"] = float("nan")


@stepped("S5")
def takes_no_time(values: Any, batch: Batch, _: Any) -> None:
    if len(batch) == 1:
        values["overlap"] = 0


@stepped("S6b")
def idles_on_the_memory(values: Any, batch: Batch, _: Any) -> None:
    if not len(batch):
        values["hbm"] += values["host"] + 10
        totalled(values)


@stepped("S6")
def idles_for_free(values: Any, batch: Batch, _: Any) -> None:
    if not len(batch):
        values.update(dict.fromkeys(RESOURCES, 0), overlap=0, total=0)


@stepped("S7", "S8")
def halves_the_overlap(values: Any, *_: Any) -> None:
    values["overlap"] = max(values[name] for name in RESOURCES) // 2


@stepped("S8")
def lets_the_host_overlap(values: Any, *_: Any) -> None:
    values["overlap"] = max(values[name] for name in RESOURCES)


@stepped("S9")
def overflows(values: Any, batch: Batch, _: Any) -> None:
    if batch.tokens() > 1 << 20:
        values["sm"] = values["total"] = -1


# ---- batches ---------------------------------------------------------------------------------------------------


@stepped("B1")
def weighs_the_first_double(values: Any, batch: Batch, kernel: Any) -> Any:
    requests = list(batch)
    return priced(kernel, [requests[0], *requests], batch) if requests else values


@stepped("B2x", on=SPARSE)
def bounds_the_whole_batch(values: Any, batch: Batch, kernel: Any) -> Any:
    if len(batch):
        values["hbm"] = priced(kernel, [next(iter(batch))], batch)["hbm"]
    return totalled(values)


@stepped("B3")
def compares_two_ways(values: Any, batch: Batch, kernel: Any) -> None:
    values["pcie"] = 100 * sum(request.scheduled == batch.decode_threshold - 1 for request in batch)
    totalled(values)


@stepped("B4")
def takes_budget_zero_for_no_sms(values: Any, batch: Batch, _: Any) -> None:
    if batch.sm_budget == 0:
        values["sm"] = 0
        totalled(values)


@stepped("B5", "B6")
def scales_with_the_budget(values: Any, batch: Batch, _: Any) -> None:
    if batch.sm_budget > 0:
        values["sm"] = values["sm"] * batch.sm_budget // 1000
        values["hbm"] += 1
        values["overlap"] = 0
        totalled(values)


@stepped("B7", "B7b")
def subtracts_the_cache_again(values: Any, batch: Batch, kernel: Any) -> Any:
    requests = [replace(one, scheduled=max(one.scheduled - one.cached_tokens, 1)) for one in batch]
    return priced(kernel, requests, batch)


@mutant("B8")
class RaisesBeyondTheBudget(Wrapper):
    def step_time(self, batch: Batch) -> StepEstimate:
        if batch.tokens() > 131072:
            raise BatchError("more tokens than the budget")
        return self.kernel.step_time(batch)


@mutant("B9")
class WrapsNegativeCounts(Wrapper):
    def step_time(self, batch: Batch) -> StepEstimate:
        if any(one.scheduled < 0 for one in batch):
            huge = (1 << 63) - 5
            return StepEstimate(huge, huge, "sm", {"sm": huge})
        return self.kernel.step_time(batch)


@mutant("B9")
class RaisesForeignErrors(Wrapper):
    def step_time(self, batch: Batch) -> StepEstimate:
        if any(one.computed < 0 for one in batch):
            raise ZeroDivisionError("computed")
        return self.kernel.step_time(batch)


@stepped("B2", "B2a")
def squares_the_context(values: Any, batch: Batch, _: Any) -> None:
    values["hbm"] += sum((one.computed + one.scheduled) ** 2 for one in batch) // 4096
    totalled(values)


@stepped("M2s")
def charges_the_cache_by_request(values: Any, batch: Batch, kernel: Any) -> Any:
    return priced(kernel, [Request(one.scheduled, min(one.computed, 10), 10) for one in batch], batch)


@stepped("M3")
def drafts_are_a_bargain(values: Any, batch: Batch, _: Any) -> None:
    width = max((one.scheduled for one in batch), default=1)
    values["sm"], values["hbm"], values["overlap"] = values["sm"] // width**2, values["hbm"] // width**2, 0
    totalled(values)


@stepped("M1", "M4", "M5")
def divides_by_tokens(values: Any, batch: Batch, _: Any) -> None:
    work = sum(one.scheduled + one.computed for one in batch) + 1
    values["hbm"], values["sm"] = 10**12 // work, 10**9 // work
    values["overlap"] = 0
    totalled(values)


@stepped("M2", "M4")
def forgets_long_contexts(values: Any, batch: Batch, kernel: Any) -> Any:
    return priced(kernel, [replace(one, computed=one.computed % 60000) for one in batch], batch)


# ---- memory ----------------------------------------------------------------------------------------------------


def fixed(*laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    def enter(change: Any) -> Any:
        model = type("Model", (Wrapper,), {"fixed_bytes": lambda self: change(self.kernel.fixed_bytes(), self.kernel)})
        MUTANTS.append(Mutant(change.__name__, model, laws, on))
        return change

    return enter


@fixed("F1")
def holds_less_than_nothing(right: Any, _: Any) -> Any:
    return replace(right, activation_peak=-1)


@fixed("F2", on="deepseek-v3-h200-fp8-tp8")
def holds_the_whole_model(right: Any, kernel: Any) -> Any:
    return replace(right, weights=right.weights * kernel.resolved().tensor_parallel())


@fixed("F5", on=TENSOR)
def undivided_weights_grow(right: Any, kernel: Any) -> Any:
    return replace(right, weights=right.weights * kernel.resolved().tensor_parallel() ** 2)


@fixed("F3")
def balances_without_being_asked(right: Any, _: Any) -> Any:
    return replace(right, eplb_redundant=1)


@fixed("F6", on=EXPERTS)
def counts_replicas_twice(right: Any, _: Any) -> Any:
    return replace(right, weights=right.weights + right.eplb_redundant)


@fixed("F8", on=EXPERTS)
def holds_more_with_more_ranks(right: Any, kernel: Any) -> Any:
    return replace(right, weights=right.weights * kernel.resolved().expert_parallel())


@fixed("F4")
def counts_the_communicator_twice(right: Any, kernel: Any) -> Any:
    return replace(right, comm_buffers=kernel.pre_snapshot_bytes())


@fixed("F10")
def activations_follow_the_weights(right: Any, kernel: Any) -> Any:
    return replace(right, activation_peak=right.weights // 10)


@mutant("F7", "H5", on=DENSE)
class ChargesMemoryAndHostWorkToTheStep(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.extra = sum(self.kernel.fixed_bytes().__getattribute__(name) for name in ("cuda_graph", "activation_peak"))
        self.extra = self.extra // 1000 + self.kernel.completion_overhead_ns() + self.kernel.output_token_overhead_ns()

    def step_time(self, batch: Batch) -> StepEstimate:
        right = self.kernel.step_time(batch)
        parts = right.per_resource_ns
        parts["pcie"] = self.extra
        total = right.no_overlap_ns + self.extra
        return StepEstimate(total, total, max(parts, key=lambda name: parts[name]), parts)


@answering("sequence_variable_bytes", "Q1")
def holds_bytes_for_no_tokens(kernel: Any, tokens: int) -> int:
    return int(kernel.sequence_variable_bytes(max(tokens, 1)))


@answering("sequence_variable_bytes", "Q2")
def shrinks_with_length(kernel: Any, tokens: int) -> int:
    return int(kernel.sequence_variable_bytes(tokens % 100000))


@answering("sequence_variable_bytes", "Q3")
def rounds_no_pages(kernel: Any, tokens: int) -> int:
    return max(tokens, 0) * (int(kernel.sequence_variable_bytes(16)) // 16)


@answering("sequence_variable_bytes", "Q4")
def rounds_pages_down(kernel: Any, tokens: int) -> int:
    return int(kernel.sequence_variable_bytes(max(tokens, 1) // 16 * 16)) if tokens >= 16 else 0


@answering("sequence_variable_bytes", "Q5", "Q6")
def grows_with_the_square(kernel: Any, tokens: int) -> int:
    return int(kernel.sequence_variable_bytes(tokens)) * max(-(-tokens // 16), 0)


@answering("sequence_variable_bytes", "Q7", on="deepseek-v3-h200-fp8-tp8")
def halves_beyond_one_head(kernel: Any, tokens: int) -> int:
    return int(kernel.sequence_variable_bytes(tokens)) // kernel.resolved().tensor_parallel()


@answering("sequence_variable_bytes", "Q8")
def stores_sixteen_bits_always(kernel: Any, tokens: int) -> int:
    cached = kernel.deployment().engine.cache_dtype
    return int(kernel.sequence_variable_bytes(tokens)) * (2 if cached.startswith("fp8") else 1)


@answering("sequence_fixed_bytes", "Q10", "G1", "G7")
def holds_state_it_has_not(kernel: Any) -> int:
    return int(kernel.sequence_fixed_bytes()) + 4096


@answering("sequence_variable_bytes", "Q13")
def keeps_two_tensors(kernel: Any, tokens: int) -> int:
    return 2 * int(kernel.sequence_variable_bytes(tokens))


@answering("sequence_bounded_bytes", "G2", on="gpt-oss-120b-h100-fp4-tp2")
def ignores_tokens_in_flight(kernel: Any, _: int) -> int:
    return int(kernel.sequence_fixed_bytes()) - 1


@answering("sequence_bounded_bytes", "G3")
def bounds_fall(kernel: Any, in_flight: int) -> int:
    return int(kernel.sequence_bounded_bytes(in_flight)) + (1 if in_flight < 3000 else 0)


@answering("sequence_admission_bytes", "G4")
def admits_less_with_a_larger_budget(kernel: Any) -> int:
    return int(kernel.sequence_admission_bytes()) + 10**9 // kernel.deployment().engine.max_num_batched_tokens


@answering("sequence_bounded_bytes_at", "G5", "G10")
def grows_without_bound(kernel: Any, computed: int, in_flight: int) -> int:
    return int(kernel.sequence_bounded_bytes_at(computed, in_flight)) + max(computed, 0)


@answering("sequence_bounded_bytes_at", "G6")
def never_fills_its_window(kernel: Any, computed: int, in_flight: int) -> int:
    return int(kernel.sequence_bounded_bytes_at(computed, in_flight)) - 4096


@answering("sequence_fixed_bytes", "G8")
def fixed_bytes_of_the_budget(kernel: Any) -> int:
    return int(kernel.sequence_fixed_bytes()) + int(kernel.deployment().engine.max_num_batched_tokens)


# ---- transfers -------------------------------------------------------------------------------------------------


@answering("tier_time_ns", "T1")
def unknown_tiers_are_free(kernel: Any, *call: Any) -> int:
    ns = int(kernel.tier_time_ns(*call))
    return 0 if ns == INT64_MAX else ns


@answering("tier_time_ns", "T9", "T6")
def adds_the_latency(kernel: Any, tier: str, way: str, size: int, depth: int) -> int:
    ns = int(kernel.tier_time_ns(tier, way, size, depth))
    return ns if ns == INT64_MAX or not size else ns + int(kernel.tier_time_ns(tier, way, 0, 1))


@answering("tier_time_ns", "T2")
def depth_multiplies_latency(kernel: Any, tier: str, way: str, size: int, depth: int) -> int:
    ns = int(kernel.tier_time_ns(tier, way, size, depth))
    return ns if ns == INT64_MAX else max(ns, int(kernel.tier_time_ns(tier, way, 0, 1)) * max(depth, 1))


@answering("tier_time_ns", "T3")
def sizes_wrap_at_32_bits(kernel: Any, tier: str, way: str, size: int, depth: int) -> int:
    return int(kernel.tier_time_ns(tier, way, size & 0xFFFFFFFF, depth))


@answering("tier_time_ns", "T4")
def no_depth_is_no_transfer(kernel: Any, tier: str, way: str, size: int, depth: int) -> int:
    return int(kernel.tier_time_ns(tier, way, size if depth > 0 else 0, depth))


@answering("tier_time_ns", "T5")
def shares_before_the_cap(kernel: Any, tier: str, way: str, size: int, depth: int) -> int:
    ns = int(kernel.tier_time_ns(tier, way, size, 1))
    return ns if ns == INT64_MAX else ns * (1 + max(depth - 1, 0) // 2)


@mutant("T7", on="minimax-m2.5-h200-tp8")
class IgnoresTheHostLink(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.rates = {tier.name: tier.read_bandwidth_mb_s * 1e6 for tier in inputs.storage}

    def tier_time_ns(self, tier: str, way: str, size: int, depth: int) -> int:
        if tier not in self.rates:
            return INT64_MAX
        return max(self.kernel.tier_time_ns(tier, way, 0, 1), int(size * max(depth, 1) / self.rates[tier] * 1e9))


@answering("tier_time_ns", "T8")
def reads_both_ways(kernel: Any, tier: str, _: str, size: int, depth: int) -> int:
    return int(kernel.tier_time_ns(tier, Direction.FROM_TIER, size, depth))


@mutant("T10")
class FastDevicesAreSlow(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.rates = {tier.name: int(tier.read_bandwidth_mb_s) for tier in inputs.storage}

    def tier_time_ns(self, tier: str, way: str, size: int, depth: int) -> int:
        ns = self.kernel.tier_time_ns(tier, way, size, depth)
        return ns if ns == INT64_MAX else ns + self.rates[tier] * size


def demanding(*laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    def enter(change: Any) -> Any:
        def demand(self: Any, tokens: int, source: Placement, target: Placement) -> Any:
            return change(self.kernel.pd_transfer_demand(tokens, source, target), tokens, self.kernel)

        model = type("Model", (Wrapper,), {"pd_transfer_demand": demand})
        MUTANTS.append(Mutant(change.__name__, model, laws, on))
        return change

    return enter


@demanding("X1", "X14")
def moves_over_no_link(right: Any, *_: Any) -> Any:
    return replace(right, links=())


_COUNTER = itertools.count()


@demanding("X2", "P4")
def counts_its_links(right: Any, *_: Any) -> Any:
    return replace(right, links=tuple(LinkUse(f"link {next(_COUNTER)}", use.bytes_per_second) for use in right.links))


@answering("pd_transfer_time_ns", "X3")
def rounds_times_up(kernel: Any, *call: Any) -> int:
    return int(kernel.pd_transfer_time_ns(*call)) + 1


class _Fastest(TransferDemand):
    def alone_time_ns(self) -> int:
        rate = max((use.bytes_per_second for use in self.links), default=1.0)
        return int(max(self.floor_ns / 1e9, self.bytes / rate) * 1e9)


@demanding("X3")
def takes_the_fastest_link(right: Any, *_: Any) -> Any:
    slow = tuple(LinkUse(f"{use.link} again", use.bytes_per_second / 2) for use in right.links)
    return _Fastest(right.bytes, right.floor_ns, right.links + slow)


@demanding("X4", "X6")
def payload_wraps(right: Any, *_: Any) -> Any:
    return replace(right, bytes=right.bytes & 0xFFFFFFFF)


@demanding("X5")
def no_tokens_take_the_floor(right: Any, tokens: int, _: Any) -> Any:
    return replace(right, floor_ns=1000) if tokens <= 0 else right


@answering("pd_transfer_time_ns", "X11")
def nearly_forever(kernel: Any, *call: Any) -> int:
    return INT64_MAX - 1 if call[0] > 100000 else int(kernel.pd_transfer_time_ns(*call))


@demanding("X12", "X13")
def payload_curves(right: Any, tokens: int, _: Any) -> Any:
    return replace(right, bytes=right.bytes + tokens * tokens // 64)


class _Relabels(Wrapper):
    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        slower = 1 + source.node
        return replace(
            right, links=tuple(replace(use, bytes_per_second=use.bytes_per_second / slower) for use in right.links)
        )


MUTANTS.append(Mutant("far_nodes_are_slow", _Relabels, ("X8",), DENSE))


class _NearIsSlow(Wrapper):
    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        return replace(right, bytes=right.bytes * 50) if source.node == target.node else right


MUTANTS.append(Mutant("near_is_slow", _NearIsSlow, ("X7",), EXPERTS))


@demanding("X10", on="deepseek-v3-h200-fp8-tp8")
def divides_payload_by_ranks(right: Any, _: int, kernel: Any) -> Any:
    return replace(right, bytes=right.bytes // kernel.decode_context_parallel_width())


# ---- host and accessors ----------------------------------------------------------------------------------------


@answering("admission_overhead_ns", "H1")
def admission_of_nothing_costs(kernel: Any, tokens: int) -> int:
    return int(kernel.admission_overhead_ns(max(tokens, 1)))


@answering("admission_overhead_ns", "H2")
def admission_curves(kernel: Any, tokens: int) -> int:
    return int(kernel.admission_overhead_ns(tokens)) + max(tokens, 0) ** 2


@mutant("H3")
class GrowsTired(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.count = itertools.count()

    def completion_overhead_ns(self) -> int:
        return self.kernel.completion_overhead_ns() + next(self.count)


@mutant("H4")
class HostDependsOnTheChip(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.sms = inputs.chip.sm_count

    def output_token_overhead_ns(self) -> int:
        return self.kernel.output_token_overhead_ns() + self.sms


def telling(*laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    def enter(change: Any) -> Any:
        model = type("Model", (Wrapper,), {"provenance": lambda self: change(self.kernel.provenance())})
        MUTANTS.append(Mutant(change.__name__, model, laws, on))
        return change

    return enter


@telling("V1")
def assumes_in_no_set(rows: Any) -> Any:
    return tuple(replace(row, set="") if row.method == "assumed" else row for row in rows)


@telling("V2", "V6")
def leaves_a_coefficient_out(rows: Any) -> Any:
    return tuple(row for row in rows if row.name != "hbm_derate")


@telling("V3")
def discloses_no_assumption(rows: Any) -> Any:
    return tuple(row for row in rows if row.set != pykernel.KERNEL_ASSUMPTION_SET)


@telling("V4", on=PAIR)
def hides_its_defaults(rows: Any) -> Any:
    return tuple(replace(row, scope=": a default") if row.set == "pykernel" else row for row in rows)


@telling("V5")
def borrows_a_set(rows: Any) -> Any:
    return (*rows, CoefficientOrigin("mine", rows[0].set, "assumed", "1: because"))


@mutant("V7")
class RefusesAssumptions(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        if self.kernel.evidence().measured < 20:
            raise pykernel.RefusedError("too little evidence")


def resolving(*laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    def enter(change: Any) -> Any:
        model = type("Model", (Wrapper,), {"resolved": lambda self: change(self.kernel.resolved(), self.kernel)})
        MUTANTS.append(Mutant(change.__name__, model, laws, on))
        return change

    return enter


class _NoFloor:
    def __init__(self, right: Any) -> None:
        self.right = right

    def __getattr__(self, name: str) -> Any:
        return getattr(self.right, name)

    def expert_parallel(self) -> int:
        return 0


@resolving("R1")
def unset_widths_are_zero(right: Any, _: Any) -> Any:
    return _NoFloor(right)


@resolving("R2", on="qwen3-30b-a3b-h200-dp4")
def experts_over_tensor_and_data(right: Any, _: Any) -> Any:
    return replace(right, expert_parallel_width=right.tensor_parallel() * right.data_parallel())


@resolving("R3")
def overrides_without_a_reason(right: Any, _: Any) -> Any:
    return replace(right, overrides=(Override("engine.x", "1", "1", ""),))


@resolving("R4", on=TENSOR)
def echoes_the_request(right: Any, _: Any) -> Any:
    return replace(right, all_reduce_backend="custom")


@resolving("R5")
def cascades_unasked(right: Any, _: Any) -> Any:
    return replace(right, cascade_attention=True)


@answering("deployment", "D1")
def fills_in_defaults(kernel: Any) -> Any:
    pool = kernel.deployment()
    pool.engine.max_num_seqs = pool.engine.max_num_seqs or 256
    pool.engine.scheduling_policy = "fcfs"
    return pool


@mutant("D1", "D4", on=PAIR)
class IsAlwaysPoolZero(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(replace(inputs, pool=0))


@resolving("D3", on=DENSE)
def overrides_as_if_requested(right: Any, kernel: Any) -> Any:
    value = kernel.deployment().engine.cudagraph_mode or "FULL"
    return replace(right, overrides=(Override("engine.cudagraph_mode", "NONE", value, "a reason"),))
