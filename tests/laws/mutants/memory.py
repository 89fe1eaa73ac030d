"""Models that size what ranks and sequences hold wrongly: broken against laws F, Q and G."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pykernel import Batch, Placement, StepEstimate, TransferDemand
from pykernel.documents import Inputs

from .making import (
    DENSE,
    DRAFTS,
    EXPERTS,
    LATENT,
    MUTANTS,
    RECURRENT,
    REPLICAS,
    TENSOR,
    WINDOWS,
    Mutant,
    Wrapper,
    answering,
    mutant,
    states_rings,
)


def fixed(*laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    def enter(change: Any) -> Any:
        model = type("Model", (Wrapper,), {"fixed_bytes": lambda self: change(self.kernel.fixed_bytes(), self.kernel)})
        MUTANTS.append(Mutant(change.__name__, model, laws, on))
        return change

    return enter


@fixed("F1")
def holds_less_than_nothing(right: Any, _: Any) -> Any:
    return replace(right, activation_peak=-1)


@fixed("F2", on=LATENT)
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


@fixed("F6", on=EXPERTS)
def holds_one_replica_a_rank_at_most(right: Any, kernel: Any) -> Any:
    return replace(right, eplb_redundant=right.eplb_redundant // max(_replicas(kernel), 1))


@fixed("F6", on=LATENT)
def counts_second_replicas_as_weights(right: Any, kernel: Any) -> Any:
    one = right.eplb_redundant // max(_replicas(kernel), 1)
    return replace(right, weights=right.weights + right.eplb_redundant - one, eplb_redundant=one)


def _replicas(kernel: Any) -> int:
    """Replicas of experts on each rank."""
    eplb = kernel.deployment().engine.eplb
    return eplb.num_redundant_experts // kernel.resolved().expert_parallel() if eplb else 0


@fixed("F8", on=LATENT)
def holds_more_with_more_ranks(right: Any, kernel: Any) -> Any:
    return replace(right, weights=right.weights * kernel.resolved().expert_parallel())


@fixed("F3")
def holds_graphs_it_does_not_capture(right: Any, _: Any) -> Any:
    return replace(right, cuda_graph=max(right.cuda_graph, 1 << 20))


@fixed("F9")
def knows_what_is_unset(right: Any, kernel: Any) -> Any:
    return right if kernel.deployment().engine.max_num_batched_tokens else replace(right, activation_peak=1)


@fixed("F11", on=REPLICAS)
def replicates_experts(right: Any, kernel: Any) -> Any:
    return replace(right, weights=right.weights + kernel.resolved().data_parallel() * 10**9)


@fixed("F12")
def activations_are_at_least_so_many(right: Any, _: Any) -> Any:
    return replace(right, activation_peak=max(right.activation_peak, 10**11))


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


@answering("sequence_variable_bytes", "Q7", on=LATENT)
def halves_beyond_one_head(kernel: Any, tokens: int) -> int:
    return int(kernel.sequence_variable_bytes(tokens)) // int(kernel.resolved().tensor_parallel())


@answering("sequence_variable_bytes", "Q8")
def stores_sixteen_bits_always(kernel: Any, tokens: int) -> int:
    cached = kernel.deployment().engine.cache_dtype
    return int(kernel.sequence_variable_bytes(tokens)) * (2 if cached.startswith("fp8") else 1)


@answering("sequence_fixed_bytes", "Q10", "G1", "G7")
def holds_state_it_has_not(kernel: Any) -> int:
    return int(kernel.sequence_fixed_bytes()) + 4096


@answering("sequence_variable_bytes", "Q13", on=LATENT)
def keeps_two_tensors(kernel: Any, tokens: int) -> int:
    return 2 * int(kernel.sequence_variable_bytes(tokens))


@mutant("K5", on=LATENT)
class KeepsAndMovesTwoTensors(Wrapper):
    def sequence_variable_bytes(self, tokens: int) -> int:
        return 2 * int(self.kernel.sequence_variable_bytes(tokens))

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        return replace(right, bytes=2 * right.bytes)


@mutant("K5")
class KeepsHeadsInWholeLines(Wrapper):
    """Each head padded to 32 elements, which most heads have."""

    def __init__(self, inputs: Inputs) -> None:
        padded = copy.deepcopy(inputs)
        for node in (node for kind in padded.model.layer_kinds for node in kind.nodes if node.op == "Attention"):
            node.d_h = -(-node.d_h // 32) * 32
        super().__init__(padded)


@answering("sequence_variable_bytes", "Q9", on=LATENT)
def divides_bytes_by_ranks(kernel: Any, tokens: int) -> int:
    return int(kernel.sequence_variable_bytes(tokens)) // int(kernel.decode_context_parallel_width())


@answering("sequence_fixed_bytes", "Q11", on=RECURRENT)
def keeps_one_state(kernel: Any) -> int:
    caching = kernel.deployment().engine.enable_prefix_caching is not False
    return int(kernel.sequence_fixed_bytes()) // (2 if caching else 1)


@answering("sequence_variable_bytes", "Q12", edit=states_rings)
def takes_parts_of_blocks(kernel: Any, tokens: int) -> int:
    return int(kernel.sequence_variable_bytes(tokens)) + max(tokens, 0) // 32 * 7


@answering("sequence_bounded_bytes", "G9", edit=states_rings)
def rings_grow_by_the_token(kernel: Any, in_flight: int) -> int:
    return int(kernel.sequence_bounded_bytes(in_flight)) + 100 * in_flight


@answering("sequence_fixed_bytes", "G1", on=DRAFTS, edit=states_rings)
def forgets_the_drafts_in_flight(kernel: Any) -> int:
    return int(kernel.sequence_bounded_bytes(1)) - int(kernel.decode_threshold() > 1)


@answering("sequence_bounded_bytes_at", "G6", edit=states_rings)
def misses_the_page_of_a_misaligned_window(kernel: Any, computed: int, in_flight: int) -> int:
    held, page = int(kernel.sequence_bounded_bytes_at(computed, in_flight)), 30 * 1024 * 32
    return held - page if computed >= 512 else held


@answering("sequence_bounded_bytes", "G2", on=WINDOWS)
def ignores_tokens_in_flight(kernel: Any, _: int) -> int:
    return int(kernel.sequence_fixed_bytes()) - 1


@answering("sequence_bounded_bytes", "G3")
def bounds_fall(kernel: Any, in_flight: int) -> int:
    return int(kernel.sequence_bounded_bytes(in_flight)) + (1 if in_flight < 3000 else 0)


@answering("sequence_admission_bytes", "G4")
def admits_less_with_a_larger_budget(kernel: Any) -> int:
    budget = int(kernel.deployment().engine.max_num_batched_tokens)
    return int(kernel.sequence_admission_bytes()) + 10**9 // budget


@answering("sequence_bounded_bytes_at", "G5", "G10")
def grows_without_bound(kernel: Any, computed: int, in_flight: int) -> int:
    return int(kernel.sequence_bounded_bytes_at(computed, in_flight)) + max(computed, 0)


@answering("sequence_bounded_bytes_at", "G6")
def never_fills_its_window(kernel: Any, computed: int, in_flight: int) -> int:
    return int(kernel.sequence_bounded_bytes_at(computed, in_flight)) - 4096


@answering("sequence_fixed_bytes", "G8")
def fixed_bytes_of_the_budget(kernel: Any) -> int:
    return int(kernel.sequence_fixed_bytes()) + int(kernel.deployment().engine.max_num_batched_tokens)


@answering("max_tokens_for", "Q14")
def fits_a_token_more(kernel: Any, room: int) -> int:
    return int(kernel.max_tokens_for(room)) + 1


def roomy(*laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    def enter(change: Any) -> Any:
        model = type("Model", (Wrapper,), {"kv_capacity": lambda self, **asked: change(self.kernel, asked)})
        MUTANTS.append(Mutant(change.__name__, model, laws, on))
        return change

    return enter


@roomy("F13")
def leaves_the_fixed_bytes_to_sequences(kernel: Any, asked: dict[str, Any]) -> Any:
    right = kernel.kv_capacity(**asked)
    room = right.bytes + kernel.fixed_bytes().total
    blocks = room // right.block_bytes
    return replace(right, bytes=room, blocks=blocks, tokens=blocks * right.block_tokens)


@roomy("F13")
def has_one_room_for_all(kernel: Any, _: dict[str, Any]) -> Any:
    return kernel.kv_capacity()


@roomy("F13")
def counts_blocks_that_do_not_fit(kernel: Any, asked: dict[str, Any]) -> Any:
    right = kernel.kv_capacity(**asked)
    return replace(right, blocks=right.blocks + 1, tokens=right.tokens + right.block_tokens)


@roomy("F14", on=RECURRENT)
def admits_for_nothing(kernel: Any, asked: dict[str, Any]) -> Any:
    return replace(kernel.kv_capacity(**asked), charge=kernel.sequence_variable_bytes)
