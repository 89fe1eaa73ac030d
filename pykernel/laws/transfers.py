"""Laws T: transfers to and from storage tiers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykernel.documents import Inputs
from pykernel.interface import INT64_MAX, Direction
from pykernel.laws.law import MODEL, Skipped, law
from pykernel.laws.observations import DEPTHS, DIRECTIONS, SIZES, TIERS
from pykernel.laws.step import whole
from pykernel.laws.subject import Subject, rising


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
        for entries in subject.given.coefficients
        for entry in entries.coefficients
        if entry.name == "host_link_bandwidth" and subject.given.chip.name in entry.scope.hardware
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
    for tier in subject.given.storage:
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
