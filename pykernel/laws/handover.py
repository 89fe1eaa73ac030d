"""Laws X: handoffs of a prefill to a decode."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from pykernel.errors import ArgumentError
from pykernel.interface import INT64_MAX, Placement
from pykernel.laws.handoffs import alone_time_ns, check_links_agree, complaints, pd_cases
from pykernel.laws.law import ADVICE, MODEL, Skipped, law
from pykernel.laws.observations import DIRECTIONS, PLACEMENTS, SIZES, TIERS, plain, shortened
from pykernel.laws.step import whole
from pykernel.laws.subject import Subject, rising


@law(
    "X1",
    "A demand has no negative bytes or floor, links of distinct names and finite rates, and one wherever bytes move.",
    sweep="all handoffs",
)
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
    documents = subject.given
    if documents.fabric and documents.fabric.inter_node_bw_gbps > documents.chip.intra_node_bw_gbps:
        raise Skipped("the fabric is faster than the links of a node")
    for case in pd_cases(("same node",)):
        near = subject.model.pd_transfer_time_ns(case.tokens, case.source, case.target)
        far = subject.model.pd_transfer_time_ns(case.tokens, *PLACEMENTS["two racks"])
        if near > far:
            yield f"{case}: {near} ns, and {far} ns between racks"


@law(
    "X8",
    "Only how placements relate matters: renamed nodes and racks rename the links one to one.",
    standing=MODEL,
    sweep="7 added to every node and rack",
)
def relabelled(subject: Subject) -> Iterator[str]:
    renamed: dict[str, str] = {}
    for case in pd_cases():
        moved = [Placement(end.node + 7, end.rack + 7, end.pool) for end in (case.source, case.target)]
        first = subject.model.pd_transfer_demand(case.tokens, case.source, case.target)
        second = subject.model.pd_transfer_demand(case.tokens, *moved)
        rates = [[use.bytes_per_second for use in demand.links] for demand in (first, second)]
        if (first.bytes, first.floor_ns, rates[0]) != (second.bytes, second.floor_ns, rates[1]):
            yield f"{case}: {first}, and {second} 7 nodes on"
            continue
        for one, other in zip(first.links, second.links, strict=True):
            if renamed.setdefault(one.link, other.link) != other.link:
                yield f"{case}: link {one.link} is {other.link} 7 nodes on, and was {renamed[one.link]}"
    if len(set(renamed.values())) < len(renamed):
        yield f"two links have one name 7 nodes on: {renamed}"


@law(
    "X9",
    "Handoffs that leave one node share a link; those of different nodes within themselves do not.",
    standing=ADVICE,
    sweep="nodes 0 to 2 of one rack",
)
def own_links(subject: Subject) -> Iterator[str]:
    def names(source: int, target: int) -> set[str]:
        ends = Placement(source, source), Placement(target, target)
        return {use.link for use in subject.model.pd_transfer_demand(1024, *ends).links}

    if names(0, 0) & names(1, 1):
        yield f"nodes 0 and 1 share {sorted(names(0, 0) & names(1, 1))}"
    if not names(0, 1) & names(0, 2):
        yield f"handoffs from node 0 to 1 and to 2 share no link: {sorted(names(0, 1))} and {sorted(names(0, 2))}"


@law("X10", "Decode-context ranks change neither payload nor time.", sweep="as deployed, and with 1, 2, 4 and 8 ranks")
def not_sharded(subject: Subject) -> Iterator[str]:
    for width, twin in subject.each("dcp", (1, 2, 4, 8)):
        for case in pd_cases():
            ends = case.tokens, case.source, case.target
            if twin.pd_transfer_demand(*ends) != subject.model.pd_transfer_demand(*ends):
                yield f"{case}: {twin.pd_transfer_demand(*ends)} at dcp {width}"


@law("X11", "A time is forever, the largest 64-bit integer, or at most half of that.", sweep="all handoffs and tiers")
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
    "X12",
    "A payload is proportional to the tokens where no cache is bounded.",
    standing=MODEL,
    sweep="1 to 65,536 tokens, doubled",
)
def payload_linear(subject: Subject) -> Iterator[str]:
    graph = subject.given.model
    kinds = [node for kind in graph.layer_kinds for node in kind.nodes]
    if graph.caches or any(node.window or node.op == "RecurrentUpdate" or node.compress_ratio for node in kinds):
        raise Skipped("a cache or state is bounded")
    for tokens in (1, 16, 1000, 2048, 65536):
        one, two = (subject.model.pd_transfer_demand(n, *_FAR).bytes for n in (tokens, 2 * tokens))
        if two != 2 * one:
            yield f"{tokens} tokens move {one} bytes, {2 * tokens} move {two}"


_FAR = PLACEMENTS["two racks"]


@law(
    "X13",
    "Beyond its windows a payload is affine in the tokens; what is bounded adds to it up to there, and never more.",
    standing=MODEL,
    tolerance="2 bytes",
    sweep="2^18 to 2^20 tokens; around each window",
)
def payload_affine(subject: Subject) -> Iterator[str]:
    def moved(tokens: int) -> int:
        return int(subject.model.pd_transfer_demand(tokens, *_FAR).bytes)

    far = [moved(step << 18) for step in (1, 2, 3, 4)]
    if abs(far[0] - 2 * far[1] + far[2]) > 2 or abs(far[1] - 2 * far[2] + far[3]) > 2:
        yield f"bytes in steps of 2^18 tokens are {far}"
    bounded = far[0] - (far[1] - far[0])  # what is left at no tokens, were it affine all the way
    if bounded < -2:
        yield f"bytes fall below those that no window holds: {far}"
    for tokens in (16, 128, 512, 1024, 4096, 1 << 17):
        growing = (far[1] - far[0]) * tokens / (1 << 18)
        if moved(tokens) > growing + bounded + 64:
            yield f"{tokens} tokens move {moved(tokens)} bytes, {growing:.0f} of caches that grow, {bounded} of others"


@law("X14", "The `check` of a demand finds nothing wrong with it.", sweep="all handoffs")
def checks_itself(subject: Subject) -> Iterator[str]:
    for case in pd_cases():
        try:
            subject.model.pd_transfer_demand(case.tokens, case.source, case.target).check()
        except ArgumentError as error:
            yield f"{case}: {error}"


@law(
    "X15",
    "The models of all pools of a deployment name the links of a handoff alike, at one rate.",
    sweep="each two pools, of one pool it prefilling and decoding; all placements both ways, 1,024 tokens",
)
def links_agree(subject: Subject) -> Iterator[str]:
    models = [model for _, model in subject.pools]
    for first, second in combinations(range(len(models)), 2):
        for source, target in PLACEMENTS.values():
            for ends in ((source, target), (target, source)):
                try:
                    check_links_agree(models[first], models[second], 1024, *ends)
                except AssertionError as error:
                    yield f"pools {first} and {second}: {error}"
