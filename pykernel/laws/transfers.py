"""Laws T: transfers to and from storage tiers. Laws X: handoffs of a prefill to a decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykernel.documents import Inputs
from pykernel.errors import ArgumentError
from pykernel.interface import INT64_MAX, Direction, Placement
from pykernel.laws.handoffs import alone_time_ns, complaints, pd_cases
from pykernel.laws.law import ADVICE, MODEL, Skipped, Subject, law, rising
from pykernel.laws.observations import DEPTHS, DIRECTIONS, PLACEMENTS, SIZES, TIERS, plain, shortened
from pykernel.laws.step import whole


def _tiers(subject: Subject) -> list[str]:
    """Tiers that the model knows."""
    names = {tier.name for tier in subject.inputs.storage} if subject.inputs else set(TIERS[:-1])
    known = [name for name in sorted(names) if subject.model.tier_time_ns(name, Direction.TO_TIER, 1, 1) < INT64_MAX]
    if not known:
        raise Skipped("the model knows no tier that could be tried")
    return known


def _grid(subject: Subject) -> list[tuple[str, str]]:
    return [(tier, way) for tier in _tiers(subject) for way in DIRECTIONS]


@law("T1", "A tier that does not exist takes forever, and one that does a finite time.", sweep="names and near misses")
def unknown_tier(subject: Subject) -> Iterator[str]:
    for name in ("no such tier", "", "CPU_DRAM"):
        for way in DIRECTIONS:
            for size in (0, 1 << 20):
                if (ns := subject.model.tier_time_ns(name, way, size, 1)) != INT64_MAX:
                    yield f"tier {name!r}, {way}, {size} bytes: {ns}"
    if subject.inputs is not None:
        for device in subject.inputs.storage:
            if subject.model.tier_time_ns(device.name, Direction.TO_TIER, 4096, 1) >= INT64_MAX:
                yield f"tier {device.name} takes forever"
    for tier, way in _grid(subject):
        for size in SIZES:
            ns = subject.model.tier_time_ns(tier, way, size, 2)
            if not whole(ns) or not 0 <= ns < INT64_MAX:
                yield f"tier {tier}, {way}, {size} bytes: {ns!r}"


@law("T2", "No bytes take the latency, which is the least of any transfer.", sweep="sizes and depths")
def latency(subject: Subject) -> Iterator[str]:
    for tier, way in _grid(subject):
        least = subject.model.tier_time_ns(tier, way, 0, 1)
        for depth in DEPTHS:
            if (ns := subject.model.tier_time_ns(tier, way, 0, depth)) != least:
                yield f"tier {tier}, {way}, no bytes at depth {depth}: {ns} ns, not {least} ns"
            for size in SIZES:
                if (ns := subject.model.tier_time_ns(tier, way, size, depth)) < least:
                    yield f"tier {tier}, {way}, {size} bytes: {ns} ns, below the latency of {least} ns"
        if subject.inputs is not None:
            stated = next(one.base_latency_us for one in subject.inputs.storage if one.name == tier) * 1000
            if abs(stated - least) > 1:
                yield f"tier {tier}, {way}: the least is {least} ns, its latency {stated} ns"


@law("T3", "Time does not fall with bytes or depth.", sweep="sizes and depths")
def tier_rises(subject: Subject) -> Iterator[str]:
    for tier, way in _grid(subject):
        time = subject.model.tier_time_ns
        for depth in DEPTHS:
            yield from rising((f"{tier} {way} {size} bytes x {depth}", time(tier, way, size, depth)) for size in SIZES)
        for size in SIZES:
            yield from rising(
                (f"{tier} {way} {size} bytes x {depth}", time(tier, way, size, depth)) for depth in DEPTHS
            )
        if time(tier, way, 1 << 40, 1) <= time(tier, way, 1 << 34, 1):
            yield f"tier {tier}, {way}: 2^40 bytes take no longer than 2^34"


@law("T4", "A depth of 1 or less is one transfer.", sweep="-1, 0 and 1")
def one_transfer(subject: Subject) -> Iterator[str]:
    for tier, way in _grid(subject):
        times = {depth: subject.model.tier_time_ns(tier, way, 1 << 26, depth) for depth in (-1, 0, 1)}
        if len(set(times.values())) > 1:
            yield f"tier {tier}, {way}: time by depth is {times}"


@law("T5", "Transfers at once share the link exactly.", tolerance="1 ns and 1e-15", sweep="depths 2, 8 and 64")
def sharing(subject: Subject) -> Iterator[str]:
    for tier, way in _grid(subject):
        least = subject.model.tier_time_ns(tier, way, 0, 1)
        for depth in (2, 8, 64):
            shared = subject.model.tier_time_ns(tier, way, 1 << 26, depth)
            alone = subject.model.tier_time_ns(tier, way, depth << 26, 1)
            if shared > least and abs(shared - alone) > 1 + 1e-15 * alone:
                yield f"tier {tier}, {way}: {depth} transfers of 2^26 bytes {shared} ns, of one of all {alone} ns"


@law("T6", "Twice the bytes take twice as long.", tolerance="1 ns", sweep="2^26 and 2^27 bytes")
def proportional(subject: Subject) -> Iterator[str]:
    for tier, way in _grid(subject):
        one, two = (subject.model.tier_time_ns(tier, way, size, 1) for size in (1 << 26, 1 << 27))
        if one > subject.model.tier_time_ns(tier, way, 0, 1) and abs(two - 2 * one) > 2:
            yield f"tier {tier}, {way}: 2^26 bytes take {one} ns, 2^27 bytes {two} ns"


@law(
    "T7", "No transfer is faster than the host link, however fast the device.", tolerance="1 ns", sweep="10 x the link"
)
def host_cap(subject: Subject) -> Iterator[str]:
    found = [
        entry.value
        for entries in subject.documents().coefficients
        for entry in entries.coefficients
        if entry.name == "host_link_bandwidth" and subject.documents().chip.name in entry.scope.hardware
    ]
    rows = [row for row in subject.model.provenance() if row.name == "host_link_bandwidth"]
    if len(set(found)) != 1 or not rows:
        raise Skipped("the rate of the host link is not known")
    rate, size = found[0] * 1e6, 1 << 34
    for tier, way in _grid(subject):
        if (ns := subject.model.tier_time_ns(tier, way, size, 1)) < size / rate * 1e9 - 1:
            yield f"tier {tier}, {way}: 2^34 bytes take {ns} ns at a link of {rate:g} bytes/s"

    def faster(times: float) -> Any:
        def change(documents: Inputs) -> None:
            for tier in documents.storage:
                tier.read_bandwidth_mb_s = tier.write_bandwidth_mb_s = found[0] * times

        return subject.twin(change)

    ten, hundred = faster(10), faster(100)
    for tier, way in _grid(subject):
        times = [model.tier_time_ns(tier, way, size, 4) for model in (ten, hundred)]
        if times[0] != times[1]:
            yield f"tier {tier}, {way}: {times[0]} ns at 10 x the link, {times[1]} ns at 100 x"


@law("T8", "A direction follows its own bandwidth.", sweep="tiers whose writes are slower than their reads")
def directions(subject: Subject) -> Iterator[str]:
    for tier in subject.documents().storage:
        written, read = (subject.model.tier_time_ns(tier.name, way, 1 << 34, 1) for way in DIRECTIONS)
        slower = tier.write_bandwidth_mb_s < tier.read_bandwidth_mb_s
        if slower and written < read:
            yield f"tier {tier.name}: writing takes {written} ns, reading {read} ns"
        stated = (1 << 34) / (tier.write_bandwidth_mb_s * 1e6) * 1e9 if tier.write_bandwidth_mb_s > 0 else 0
        if written < stated - 1:
            yield f"tier {tier.name}: writing 2^34 bytes takes {written} ns, at its bandwidth {stated:.0f} ns"


@law("T9", "Latency is a floor, not an addend.", standing=MODEL, tolerance="1 ns", sweep="2^33 and 2^34 bytes")
def floor(subject: Subject) -> Iterator[str]:
    for tier, way in _grid(subject):
        one, two = (subject.model.tier_time_ns(tier, way, size, 1) for size in (1 << 33, 1 << 34))
        if abs(two - 2 * one) > 2:
            yield f"tier {tier}, {way}: 2^33 bytes take {one} ns, 2^34 bytes {two} ns"


@law("T10", "A faster device is never slower.", sweep="twins with twice the bandwidth and half the latency")
def faster_device(subject: Subject) -> Iterator[str]:
    def change(documents: Inputs) -> None:
        for tier in documents.storage:
            tier.read_bandwidth_mb_s *= 2
            tier.write_bandwidth_mb_s *= 2
            tier.base_latency_us /= 2

    twin = subject.twin(change)
    for tier, way in _grid(subject):
        for size in SIZES:
            before, after = (model.tier_time_ns(tier, way, size, 1) for model in (subject.model, twin))
            if after > before:
                yield f"tier {tier}, {way}, {size} bytes: {after} ns on a device twice as fast, {before} ns before"


# ---- handoffs --------------------------------------------------------------------------------------------------


@law("X1", "A demand is well formed.", sweep="all handoffs")
def well_formed(subject: Subject) -> Iterator[str]:
    for case in pd_cases():
        for complaint in complaints(subject.model.pd_transfer_demand(case.tokens, case.source, case.target)):
            yield f"{case}: {complaint}"


@law("X2", "Two calls give one demand, its links in one order.", sweep="all handoffs")
def same_demand(subject: Subject) -> Iterator[str]:
    for case in pd_cases():
        one, two = (plain(subject.model.pd_transfer_demand(case.tokens, case.source, case.target)) for _ in range(2))
        if one != two:
            yield f"{case}: {shortened(one)} and then {shortened(two)}"


@law("X3", "A handoff takes what its demand takes alone.", sweep="all handoffs")
def alone(subject: Subject) -> Iterator[str]:
    for case in pd_cases():
        demand = subject.model.pd_transfer_demand(case.tokens, case.source, case.target)
        ns, expected = subject.model.pd_transfer_time_ns(case.tokens, case.source, case.target), alone_time_ns(demand)
        if ns != expected:
            yield f"{case}: {ns} ns, its demand takes {expected} ns"
        elif demand.alone_time_ns() != expected:
            yield f"{case}: alone_time_ns is {demand.alone_time_ns()} ns, not {expected} ns"


@law("X4", "More tokens move no fewer bytes.", sweep="all handoffs of each placement, in order of tokens")
def payload_rises(subject: Subject) -> Iterator[str]:
    for name, ends in PLACEMENTS.items():
        demands = [(case.tokens, subject.model.pd_transfer_demand(case.tokens, *ends)) for case in pd_cases((name,))]
        yield from rising((f"{name}, {tokens} tokens", demand.bytes) for tokens, demand in demands)


@law("X5", "No tokens move nothing, in no time.", sweep="0 and -1 tokens")
def no_tokens(subject: Subject) -> Iterator[str]:
    for name, ends in PLACEMENTS.items():
        for tokens in (0, -1):
            ns = subject.model.pd_transfer_time_ns(tokens, *ends)
            moved = subject.model.pd_transfer_demand(tokens, *ends).bytes
            if ns or moved:
                yield f"{name}, {tokens} tokens: {ns} ns and {moved} bytes"


@law("X6", "More tokens take no less time, unless the floor falls.", sweep="all handoffs of each placement")
def time_rises(subject: Subject) -> Iterator[str]:
    for name, ends in PLACEMENTS.items():
        cases = pd_cases((name,))
        floors = [subject.model.pd_transfer_demand(case.tokens, *ends).floor_ns for case in cases]
        if floors == sorted(floors):
            times = ((str(case), subject.model.pd_transfer_time_ns(case.tokens, *ends)) for case in cases)
            yield from rising(times)


@law("X7", "Within a node is never slower than between nodes.", standing=MODEL, sweep="all handoffs")
def near_is_fast(subject: Subject) -> Iterator[str]:
    documents = subject.documents()
    if documents.fabric and documents.fabric.inter_node_bw_gbps > documents.chip.intra_node_bw_gbps:
        raise Skipped("the fabric is faster than the links of a node")
    for case in pd_cases(("same node",)):
        near = subject.model.pd_transfer_time_ns(case.tokens, case.source, case.target)
        far = subject.model.pd_transfer_time_ns(case.tokens, *PLACEMENTS["two racks"])
        if near > far:
            yield f"{case}: {near} ns, and {far} ns between racks"


@law("X8", "Only how placements relate matters.", standing=MODEL, sweep="7 added to every node and rack")
def relabelled(subject: Subject) -> Iterator[str]:
    for case in pd_cases():
        moved = [Placement(end.node + 7, end.rack + 7, end.pool) for end in (case.source, case.target)]
        first = subject.model.pd_transfer_demand(case.tokens, case.source, case.target)
        second = subject.model.pd_transfer_demand(case.tokens, *moved)
        rates = [[use.bytes_per_second for use in demand.links] for demand in (first, second)]
        if (first.bytes, first.floor_ns, rates[0]) != (second.bytes, second.floor_ns, rates[1]):
            yield f"{case}: {first}, and {second} 7 nodes on"


@law("X9", "Handoffs of different nodes within themselves share no link.", standing=ADVICE, sweep="nodes 0 and 1")
def own_links(subject: Subject) -> Iterator[str]:
    ends = [(Placement(node, node), Placement(node, node)) for node in (0, 1)]
    names = [{use.link for use in subject.model.pd_transfer_demand(1024, *pair).links} for pair in ends]
    if names[0] & names[1]:
        yield f"nodes 0 and 1 share {sorted(names[0] & names[1])}"


@law("X10", "Decode-context ranks change neither payload nor time.", sweep="as deployed and with other widths")
def not_sharded(subject: Subject) -> Iterator[str]:
    tried = 0
    for width in (1, 2, 4, 8):
        try:
            twin = subject.settings(dcp=width)
        except Skipped:
            continue
        tried += width != max(subject.model.decode_context_parallel_width(), 1)
        for case in pd_cases():
            ends = case.tokens, case.source, case.target
            if twin.pd_transfer_demand(*ends) != subject.model.pd_transfer_demand(*ends):
                yield f"{case}: {twin.pd_transfer_demand(*ends)} at dcp {width}"
    if not tried:
        raise Skipped("no other width of decode-context parallelism can be made")


@law("X11", "A time is forever or far from it.", sweep="all handoffs and tiers")
def forever(subject: Subject) -> Iterator[str]:
    times = {str(case): subject.model.pd_transfer_time_ns(case.tokens, case.source, case.target) for case in pd_cases()}
    for tier in TIERS:
        for way in DIRECTIONS:
            for size in SIZES:
                times[f"tier {tier}, {way}, {size} bytes"] = subject.model.tier_time_ns(tier, way, size, 1)
    for name, ns in times.items():
        if not whole(ns) or ns < 0 or INT64_MAX // 2 < ns < INT64_MAX or ns > INT64_MAX:
            yield f"{name}: {ns!r}"


@law(
    "X12", "A payload is proportional to the tokens where no cache is bounded.", standing=MODEL, sweep="1,024 to 4,096"
)
def payload_linear(subject: Subject) -> Iterator[str]:
    graph = subject.documents().model
    kinds = [node for kind in graph.layer_kinds for node in kind.nodes]
    if graph.caches or any(node.window or node.op == "RecurrentUpdate" or node.compress_ratio for node in kinds):
        raise Skipped("a cache or state is bounded")
    one, two = (subject.model.pd_transfer_demand(tokens, *PLACEMENTS["two racks"]).bytes for tokens in (2048, 4096))
    if two != 2 * one:
        yield f"2,048 tokens move {one} bytes, 4,096 move {two}"


@law("X13", "Beyond its windows a payload is affine in the tokens.", standing=MODEL, sweep="2^18 to 2^20 tokens")
def payload_affine(subject: Subject) -> Iterator[str]:
    move = [subject.model.pd_transfer_demand(step << 18, *PLACEMENTS["two racks"]).bytes for step in (1, 2, 3, 4)]
    if abs(move[0] - 2 * move[1] + move[2]) > 2 or abs(move[1] - 2 * move[2] + move[3]) > 2:
        yield f"bytes in steps of 2^18 tokens are {move}"


@law("X14", "A demand says by `check` what is wrong with it.", sweep="all handoffs")
def checks_itself(subject: Subject) -> Iterator[str]:
    for case in pd_cases():
        try:
            subject.model.pd_transfer_demand(case.tokens, case.source, case.target).check()
        except ArgumentError as error:
            yield f"{case}: {error}"
