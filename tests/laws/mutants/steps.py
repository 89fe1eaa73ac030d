"""Models that price a step wrongly: broken against laws S, B, M and K."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pykernel import Batch, Request, StepEstimate
from pykernel.errors import BatchError
from pykernel.interface import RESOURCES
from pykernel.resolve import layout
from pykernel.resolve.layout import Group

from .making import (
    DENSE,
    LATENT,
    MUTANTS,
    SPARSE,
    TENSOR,
    Mutant,
    Wrapper,
    mutant,
    priced,
    stepped,
    totalled,
)

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


@stepped("B1x", on=LATENT)
def weighs_the_first_prefix_double(values: Any, batch: Batch, kernel: Any) -> Any:
    requests = list(batch)
    return priced(kernel, [requests[0], *requests], batch) if requests else values


@stepped("B2x", on=SPARSE)
def averages_the_contexts(values: Any, batch: Batch, kernel: Any) -> Any:
    mean = sum(one.computed for one in batch) // max(len(batch), 1)
    return priced(kernel, [replace(one, computed=mean) for one in batch], batch)


@stepped("B2x", on=LATENT)
def shares_without_rounding_up(values: Any, batch: Batch, kernel: Any) -> Any:
    width = kernel.decode_context_parallel_width()
    return priced(kernel, [replace(one, computed=(one.computed + 1) // width * width - 1) for one in batch], batch)


@stepped("B6")
def waits_for_every_sm(values: Any, batch: Batch, kernel: Any) -> None:
    if batch.sm_budget > 0:
        whole = Batch(list(batch), decode_threshold=batch.decode_threshold)
        values["overlap"] += values["sm"] - kernel.step_time(whole).per_resource_ns["sm"]
        values["overlap"] = min(values["overlap"], values["total"])


class _Miscounts(Batch):
    def uniform_decode(self, width: int) -> bool:
        return not len(self) or super().uniform_decode(width)


MUTANTS.append(
    Mutant("takes_nothing_for_decodes", Wrapper, ("B10",), DENSE, patches={"pykernel.laws.batch.Batch": _Miscounts})
)


@stepped("B11")
def reads_the_prompt(values: Any, batch: Batch, _: Any) -> None:
    values["pcie"] = sum(one.prompt_len for one in batch)
    totalled(values)


@stepped("B12", on=LATENT)
def shares_prefills_too(values: Any, batch: Batch, kernel: Any) -> None:
    values["nvlink"] += kernel.decode_context_parallel_width() * 100
    totalled(values)


@stepped("M7")
def crowds_are_a_bargain(values: Any, batch: Batch, _: Any) -> None:
    for name in RESOURCES:
        values[name] //= max(len(batch), 1)
    values["overlap"] = 0
    totalled(values)


@stepped("M8", "M9")
def crowds_are_dear(values: Any, batch: Batch, _: Any) -> None:
    values["sm"] += len(batch) ** 3 * 10_000
    totalled(values)


@stepped("K1")
def reads_half_the_cache(values: Any, batch: Batch, kernel: Any) -> Any:
    return priced(kernel, [replace(one, computed=one.computed // 2) for one in batch], batch)


@stepped("K2", on=LATENT)
def four_ranks_read_more(values: Any, batch: Batch, kernel: Any) -> None:
    if kernel.decode_context_parallel_width() == 4:
        values["hbm"] += values["hbm"] // 100
        totalled(values)


@stepped("K3", on=TENSOR)
def launches_a_fraction_more(values: Any, *_: Any) -> None:
    values["nvlink"] = values["nvlink"] * 1013 // 1000
    totalled(values)


@stepped("K4")
def takes_every_link_for_nvlink(values: Any, *_: Any) -> None:
    values["nvlink"], values["nic"] = values["nvlink"] + values["nic"], 0
    totalled(values)


def _placed_alone(place: Any, width: int, stride: int) -> Group:
    return replace(_PLACED(place, width, stride), per_node=1)


def _placed_densely(place: Any, width: int, stride: int) -> Group:
    return replace(_PLACED(place, width, stride), per_node=_PLACED(place, width, 1).per_node)


_PLACE = "pykernel.resolve.layout._Place.group"
_PLACED = layout._Place.group

MUTANTS.append(Mutant("takes_ranks_for_one_a_node", Wrapper, ("K4",), DENSE, patches={_PLACE: _placed_alone}))
MUTANTS.append(
    Mutant("takes_context_ranks_for_neighbours", Wrapper, ("K4",), LATENT, patches={_PLACE: _placed_densely})
)


@stepped()
def halves_the_prefix_of_a_chunk(values: Any, batch: Batch, kernel: Any) -> Any:
    """No law sees a term that is wrong by a constant factor."""
    requests = [replace(one, computed=one.computed // 2) if one.scheduled > 8 else one for one in batch]
    return priced(kernel, requests, batch)
