"""Models that say wrong things of the host, coefficients, settings or deployment: broken against laws H, V, R and D."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pykernel
from pykernel.documents import Inputs
from pykernel.interface import CoefficientOrigin, Override

from .making import DENSE, MUTANTS, PAIR, REPLICAS, TENSOR, Mutant, Wrapper, answering, mutant


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


@resolving("R2", on=REPLICAS)
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


@answering("capture_tokens", "R6")
def captures_whatever_the_mode(_: Any) -> int:
    return 512


@answering("graph_modes", "R6")
def modes_have_names_of_their_own(kernel: Any) -> tuple[str, ...]:
    return tuple(mode.lower() for mode in kernel.graph_modes())


@answering("decode_threshold", "R6")
def takes_nothing_for_a_decode(_: Any) -> int:
    return 0


@mutant("D1", "D4", "D5", on=PAIR)
class IsAlwaysPoolZero(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(replace(inputs, pool=0))


MUTANTS.append(Mutant("prefills_and_decodes_in_pool_zero", IsAlwaysPoolZero, ("D4",), DENSE))


@resolving("D3", on=DENSE)
def overrides_as_if_requested(right: Any, kernel: Any) -> Any:
    value = kernel.deployment().engine.cudagraph_mode or "FULL"
    return replace(right, overrides=(Override("engine.cudagraph_mode", "NONE", value, "a reason"),))


@answering("output_token_overhead_ns", "H4", on=TENSOR)
def host_depends_on_ranks(kernel: Any) -> int:
    return int(kernel.output_token_overhead_ns()) + int(kernel.resolved().tensor_parallel())


@telling("V2")
def claims_to_have_measured(rows: Any) -> Any:
    return tuple(replace(row, method="measured") if row.set != pykernel.KERNEL_ASSUMPTION_SET else row for row in rows)


@telling("V3")
def assumes_what_it_does_not_need(rows: Any) -> Any:
    name = "gemm_m_half_fp8"
    if any(row.name == name for row in rows):
        return rows
    return (*rows, CoefficientOrigin(name, pykernel.KERNEL_ASSUMPTION_SET, "assumed", "1: a guess"))


@telling("V4")
def fills_in_a_block_size_silently(rows: Any) -> Any:
    return tuple(row for row in rows if row.name != "block_size")


@resolving("R3", on=TENSOR)
def hides_its_overrides(right: Any, _: Any) -> Any:
    return replace(right, overrides=())


@answering("deployment", "D3", on=TENSOR)
def forgets_what_was_asked_for(kernel: Any) -> Any:
    pool = kernel.deployment()
    if pool.engine.allreduce_backend:
        pool.engine.allreduce_backend = kernel.resolved().all_reduce_backend
    return pool
