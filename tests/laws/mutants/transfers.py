"""Models that price transfers wrongly: broken against laws T and X."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pykernel import LinkUse, Placement, TransferDemand
from pykernel.documents import Inputs
from pykernel.interface import INT64_MAX, Direction

from .making import DENSE, EXPERTS, LATENT, MUTANTS, PAIR, Mutant, Wrapper, answering, mutant


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


@mutant("X8")
class FarNodesAreSlow(Wrapper):
    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        links = (replace(use, bytes_per_second=use.bytes_per_second / (1 + source.node)) for use in right.links)
        return replace(right, links=tuple(links))


@demanding("X9")
def shares_one_link(right: Any, *_: Any) -> Any:
    return replace(right, links=(LinkUse("the link", right.links[0].bytes_per_second),))


@mutant("X8")
class NamesFarLinksAlike(Wrapper):
    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        near = source.node < 5
        return right if near else replace(right, links=(LinkUse("far", right.links[0].bytes_per_second),))


@mutant("X7", on=EXPERTS)
class NearIsSlow(Wrapper):
    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        return replace(right, bytes=right.bytes * 50) if source.node == target.node else right


@demanding("X13")
def young_sequences_move_more(right: Any, tokens: int, _: Any) -> Any:
    return replace(right, bytes=right.bytes + 100 * max((1 << 17) - tokens, 0)) if tokens > 0 else right


@mutant("X15", on=PAIR)
class NamesLinksByItsPool(Wrapper):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.pool = inputs.pool

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        links = (LinkUse(f"pool {self.pool}, {use.link}", use.bytes_per_second) for use in right.links)
        return replace(right, links=tuple(links))


@mutant("X15")
class RatesLinksByItsPool(NamesLinksByItsPool):
    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        right = self.kernel.pd_transfer_demand(tokens, source, target)
        share = 1 - self.pool / 10
        links = (LinkUse(use.link, use.bytes_per_second * share) for use in right.links)
        return replace(right, links=tuple(links))


@demanding("X10", on=LATENT)
def divides_payload_by_ranks(right: Any, _: int, kernel: Any) -> Any:
    return replace(right, bytes=right.bytes // kernel.decode_context_parallel_width())
