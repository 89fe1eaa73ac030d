"""Transfers to tiers and between pools, and host work: the law to the nanosecond, links, and sizes without end."""

from __future__ import annotations

import itertools
import math
import random
from functools import cache

import pytest

import pykernel
from pykernel import Direction, LinkUse, Placement, TransferDemand
from pykernel._native import ffi, lib
from pykernel.documents import Cache, StorageTier
from pykernel.errors import ArgumentError, RefusedError
from tests.memory.graphs import DEEPSEEK, fresh, gqa, model, spread, stating
from tests.memory.test_sequences import hybrid, stated

INT64_MAX = 2**63 - 1
HERE, BESIDE, AFAR = Placement(0, 0, "prefill"), Placement(1, 0, "decode"), Placement(2, 1, "decode")
DISAGG = "minimax-m2.5-h200-disagg"


@cache
def deepseek() -> pykernel.CostModel:
    return pykernel.open(DEEPSEEK)


def nanoseconds(seconds: float) -> int:
    return INT64_MAX if seconds * 1e9 >= 2**63 else int(seconds * 1e9)


# ---- tiers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "direction", "size", "depth", "ns"),
    [
        ("cpu_dram", Direction.FROM_TIER, 0, 1, 1_000),
        ("cpu_dram", Direction.FROM_TIER, 4096, 8, 1_638),
        ("cpu_dram", Direction.FROM_TIER, 2**26, 1, 3_355_443),
        ("nvme_gen4", Direction.FROM_TIER, 4096, 8, 80_000),
        ("nvme_gen4", Direction.FROM_TIER, 2**26, 1, 9_586_980),
        ("nvme_gen4", Direction.TO_TIER, 2**26, 1, 13_421_772),
        ("nvme_gen4", Direction.FROM_TIER, 2**26, 8, 76_695_844),
        ("nvme_gen4", Direction.TO_TIER, 2**26, 8, 107_374_182),
        ("nvme_gen4", "sideways", 2**26, 1, 9_586_980),
    ],
)
def test_a_transfer_takes_its_latency_or_its_bytes_at_the_shared_rate(
    tier: str, direction: str, size: int, depth: int, ns: int
) -> None:
    assert deepseek().tier_time_ns(tier, direction, size, depth) == ns


@pytest.mark.parametrize("name", ["", "CPU_DRAM", "cpu_dram ", "tape", "cpu_dram\0", "cpu_dram\0tape", "\ud800"])
def test_a_tier_that_does_not_exist_is_never_reached(name: str) -> None:
    assert deepseek().tier_time_ns(name, Direction.TO_TIER, 1, 1) == INT64_MAX


def with_tier(**changes: float) -> pykernel.CostModel:
    inputs = fresh()
    figures = {"read_bandwidth_mb_s": 7000.0, "write_bandwidth_mb_s": 5000.0, "base_latency_us": 80.0} | changes
    inputs.storage = [StorageTier("tier", **figures)]
    return pykernel.new(inputs)


def test_the_host_link_bounds_a_device_before_transfers_share_it() -> None:
    fast, faster = (with_tier(read_bandwidth_mb_s=rate) for rate in (64_000.0, 640_000.0))
    for size, depth in itertools.product((2**20, 2**26, 2**31), (1, 2, 64)):
        at_link = nanoseconds(max(80e-6, size / (64e9 / depth)))
        assert fast.tier_time_ns("tier", "from_tier", size, depth) == at_link
        assert faster.tier_time_ns("tier", "from_tier", size, depth) == at_link


def test_without_a_host_link_nothing_bounds_the_device_and_that_is_disclosed() -> None:
    inputs = fresh()
    inputs.storage = [StorageTier("tier", 640_000.0, 5000.0, 80.0)]
    for entries in inputs.coefficients:
        if any(entry.name == "host_link_bandwidth" for entry in entries.coefficients):
            index = inputs.coefficients.index(entries)
            kept = [entry for entry in entries.coefficients if entry.name != "host_link_bandwidth"]
            inputs.coefficients = list(inputs.coefficients)
            inputs.coefficients[index] = type(entries)(entries.kind, entries.name, kept)
    kernel = pykernel.new(inputs)
    assert kernel.tier_time_ns("tier", "from_tier", 2**30, 1) == nanoseconds(2**30 / 640e9)
    assumed = {origin.name: origin.scope for origin in kernel.provenance() if origin.set == "pykernel"}
    assert assumed["host_link_bandwidth"].startswith("absent: ")


def test_laws_of_a_tier() -> None:
    kernel = deepseek()
    for tier in ("cpu_dram", "nvme_gen3", "nvme_gen4", "s3", "sata_ssd"):
        for way in (Direction.TO_TIER, Direction.FROM_TIER):
            latency = kernel.tier_time_ns(tier, way, 0, 1)
            sizes = [0, -5, 1, 4096, 2**20, 2**26, 2**27, 2**34]
            grid = [[kernel.tier_time_ns(tier, way, size, depth) for size in sizes] for depth in (1, 2, 8, 64)]
            assert all(row == sorted(row) for row in ([row[1], row[0], *row[2:]] for row in grid))
            assert all(list(column) == sorted(column) for column in zip(*grid, strict=True))
            assert min(map(min, grid)) == latency
            for depth in (0, -1, 1):
                assert kernel.tier_time_ns(tier, way, 2**26, depth) == grid[0][5]
            for depth in (2, 8, 64):
                alone = kernel.tier_time_ns(tier, way, depth * 2**30, 1)
                assert abs(kernel.tier_time_ns(tier, way, 2**30, depth) - alone) <= 1
    assert kernel.tier_time_ns("nvme_gen4", "to_tier", 2**26, 1) > kernel.tier_time_ns(
        "nvme_gen4", "from_tier", 2**26, 1
    )


def test_a_tier_name_that_the_core_cannot_hold_is_refused() -> None:
    inputs = fresh()
    inputs.storage = [StorageTier("x" * 64, 1.0, 1.0, 1.0)]
    with pytest.raises(RefusedError, match="more than 63 bytes"):
        pykernel.new(inputs)


# ---- from prefill to decode ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "on_node", "between"),
    [
        (0, 0, 0),
        (1, 6_350, 6_350),
        (16, 6_350, 11_243),
        (1_024, 79_953, 719_585),
        (4_096, 319_815, 2_878_341),
        (32_768, 2_558_525, 23_026_728),
        (131_072, 10_234_101, 92_106_915),
    ],
)
def test_a_handoff_of_deepseek_v3(tokens: int, on_node: int, between: int) -> None:
    # 35,136 bytes a token at 450 GB/s on a node, 50 GB/s between nodes; the floor is that of the narrowest all-to-all.
    inputs = fresh()
    inputs.fabric = fresh(DISAGG).fabric
    kernel = pykernel.new(inputs)
    assert kernel.pd_transfer_time_ns(tokens, HERE, HERE) == on_node
    assert kernel.pd_transfer_time_ns(tokens, HERE, AFAR) == between


def test_the_floor_is_that_of_the_expert_group() -> None:
    inputs = spread(fresh(), enable_expert_parallel=True)
    assert pykernel.new(inputs).pd_transfer_demand(1, HERE, HERE).floor_ns == 7_390


def test_the_law_holds_to_the_nanosecond_at_every_length() -> None:
    inputs = fresh()
    inputs.fabric = fresh(DISAGG).fabric
    kernel = pykernel.new(inputs)
    for source, target, rate in ((HERE, HERE, 450e9), (HERE, AFAR, 50e9)):
        off = [
            tokens
            for tokens in range(1, 131_073)
            if kernel.pd_transfer_time_ns(tokens, source, target)
            != nanoseconds(max(6_350 / 1e9, tokens * 35_136 / rate))
        ]
        assert off == []


@pytest.mark.parametrize("pool", [0, 1])
def test_time_is_the_demands_own_alone(pool: int) -> None:
    kernel = pykernel.new(fresh(DISAGG, pool))
    for target in (HERE, BESIDE, AFAR):
        sizes = []
        for tokens in (-1, 0, 1, 16, 1_024, 4_096, 32_768, 131_072):
            demand = kernel.pd_transfer_demand(tokens, HERE, target)
            demand.check()
            assert demand == kernel.pd_transfer_demand(tokens, HERE, target)
            assert kernel.pd_transfer_time_ns(tokens, HERE, target) == demand.alone_time_ns()
            sizes.append(demand.bytes)
            if tokens <= 0:
                assert (demand.bytes, demand.floor_ns, demand.alone_time_ns()) == (0, 0, 0)
        assert sizes == sorted(sizes)


def random_demands(count: int) -> list[TransferDemand]:
    chance = random.Random(3)
    floors = [0, 15, 30, 60, 63, 120, 6_350, 10**9 + 15, 10**12, INT64_MAX]
    demands = []
    for _ in range(count):
        size = chance.choice([0, 1, chance.randrange(2**20), chance.randrange(2**40), 2**62, INT64_MAX])
        links = [LinkUse(f"link {n}", chance.choice([1.0, 50e9, chance.uniform(1, 1e12)])) for n in range(2)]
        demands.append(TransferDemand(size, chance.choice(floors), tuple(links[: chance.randrange(3)])))
    return demands


def in_c(demand: TransferDemand) -> int:
    struct = ffi.new("pk_transfer_demand *", {"struct_size": ffi.sizeof("pk_transfer_demand")})
    struct.bytes, struct.floor_ns, struct.link_count = demand.bytes, demand.floor_ns, len(demand.links)
    for index, use in enumerate(demand.links):
        struct.links[index] = {"kind": 1, "place": index, "bytes_per_second": use.bytes_per_second}
    return int(lib.pk_alone_time_ns(struct))


def test_python_and_c_agree_on_random_demands() -> None:
    for demand in random_demands(5_000):
        expected = demand.floor_ns
        if demand.links:
            floor = demand.floor_ns // 10**9 + (demand.floor_ns % 10**9) / 1e9
            slowest = min(use.bytes_per_second for use in demand.links)
            expected = nanoseconds(max(floor, float(demand.bytes) / slowest))
        assert demand.alone_time_ns() == in_c(demand) == expected, demand


def test_a_floor_loses_the_nanosecond_that_its_seconds_cannot_hold() -> None:
    assert TransferDemand(0, 15, (LinkUse("a", 1.0),)).alone_time_ns() == 14
    assert TransferDemand(0, 15, ()).alone_time_ns() == 15


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        (TransferDemand(-1, 0, ()), "bytes is -1"),
        (TransferDemand(0, -1, ()), "floor_ns is -1"),
        (TransferDemand(1, 0, ()), "links are empty"),
        (TransferDemand(1, 0, (LinkUse("", 1.0),)), "no name"),
        (TransferDemand(1, 0, (LinkUse("a", 1.0), LinkUse("a", 1.0))), "link a is listed twice"),
        *((TransferDemand(1, 0, (LinkUse("a", rate),)), "bytes_per_second of link a") for rate in (0, -1.0, math.inf)),
        (TransferDemand(1, 0, (LinkUse("a", math.nan),)), "bytes_per_second of link a"),
    ],
)
def test_a_malformed_demand_is_named(demand: TransferDemand, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        demand.check()


def test_a_link_without_bandwidth_takes_for_ever() -> None:
    assert TransferDemand(1, 5, (LinkUse("a", 0.0),)).alone_time_ns() == INT64_MAX
    assert TransferDemand(0, 5, (LinkUse("a", 0.0),)).alone_time_ns() == 5


# ---- what moves ------------------------------------------------------------------------------------------------


def payload(inputs: pykernel.Inputs, tokens: int) -> int:
    return pykernel.new(inputs).pd_transfer_demand(tokens, HERE, AFAR).bytes


def test_each_pool_moves_what_its_own_ranks_hold() -> None:
    # minimax-m2.5: 62 layers, 8 KV heads of 128, fp8; the prefill pool has tp 8, the decode pool tp 4.
    assert payload(fresh(DISAGG, 0), 1) == 62 * 2 * 1 * 128
    assert payload(fresh(DISAGG, 1), 1) == 62 * 2 * 2 * 128


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_decode_context_ranks_change_no_handoff(ranks: int) -> None:
    """Law 45, of what moves between pools."""
    for tokens in (1, 100, 131_072):
        assert payload(spread(fresh(), dcp=ranks), tokens) == payload(fresh(), tokens)


def test_what_moves_is_what_the_cache_holds_without_its_last_page() -> None:
    for name in (DEEPSEEK, "llama-3.1-8b-h100-tp1", "minimax-m2.5-h200-tp8"):
        kernel = pykernel.open(name)
        page = kernel.sequence_variable_bytes(1)
        for tokens in (1, 15, 16, 17, 4096, 99_999):
            held = kernel.sequence_variable_bytes(tokens)
            assert held - page < kernel.pd_transfer_demand(tokens, HERE, AFAR).bytes <= held


def test_windows_move_no_more_than_themselves_and_state_stays() -> None:
    windows = model((2, [gqa(8, 8, 64, 100)]), (3, [gqa(8, 8, 64)]))
    assert payload(windows, 5000) == 2 * 8 * 64 * 2 * (2 * 100 + 3 * 5000)
    assert payload(hybrid(), 5000) == 3 * 2 * 2 * 256 * 2 * 5000


def test_stated_caches_move_by_the_token_by_the_page_or_whole() -> None:
    # At tp 8: latents 60 * 576 a token, keys 20 * 132 for four, rings of 512 in blocks of 32, one head of 8, states.
    for tokens in (1, 32, 33, 512, 544, 545, 4096):
        ring = min(-(-tokens // 32), 512 // 32 + 1) * 30 * 1024 // 8 * 32
        assert payload(stated(), tokens) == 60 * 576 * tokens + 20 * 132 * tokens // 4 + ring + 5 * 8_000
    inputs = stated()
    inputs.model.caches.append(Cache("draft", "growing", 1, entry_bytes=64, owner="draft"))
    assert payload(inputs, 99) == payload(stated(), 99)


# ---- links -----------------------------------------------------------------------------------------------------


def links(kernel: pykernel.CostModel, source: Placement, target: Placement) -> set[LinkUse]:
    return set(kernel.pd_transfer_demand(1024, source, target).links)


def test_both_pools_name_the_same_links() -> None:
    prefill, decode = (pykernel.new(fresh(DISAGG, pool)) for pool in (0, 1))
    for source, target in itertools.product((HERE, BESIDE, AFAR), repeat=2):
        assert links(prefill, source, target) == links(decode, source, target)


def test_links_follow_from_where_the_ranks_are() -> None:
    kernel = pykernel.new(fresh(DISAGG, 1))
    names = {
        name: {use.link for use in links(kernel, *ends)}
        for name, ends in {
            "node": (HERE, HERE),
            "other node": (AFAR, AFAR),
            "out": (HERE, BESIDE),
            "out too": (HERE, AFAR),
            "back": (AFAR, HERE),
        }.items()
    }
    assert all(names.values())
    assert not names["node"] & names["other node"]
    assert len(names["out"] & names["out too"]) == 1
    assert names["back"] == names["out too"]
    assert not names["node"] & names["out"]


@pytest.mark.parametrize(("chip", "one_domain"), [("gb300", True), ("h200", False)])
def test_a_rack_is_one_link_only_where_it_is_one_nvlink_domain(chip: str, one_domain: bool) -> None:
    scenario = {"gb300": "minimax-m2.5-gb300-tp4", "h200": DISAGG}[chip]
    kernel = pykernel.new(fresh(scenario))
    rack, away = (kernel.pd_transfer_demand(1024, HERE, target) for target in (BESIDE, AFAR))
    assert len(rack.links) == (1 if one_domain else 2)
    assert len(away.links) == 2
    if one_domain:
        assert rack.links[0].bytes_per_second == fresh(scenario).chip.intra_node_bw_gbps * 1e9
        assert rack.links[0].link != kernel.pd_transfer_demand(1024, HERE, HERE).links[0].link


def test_only_the_relation_of_placements_matters() -> None:
    kernel = pykernel.new(fresh(DISAGG, 1))
    for source, target in itertools.product((HERE, BESIDE, AFAR), repeat=2):
        moved = [Placement(end.node + 7, end.rack + 7, "elsewhere") for end in (source, target)]
        before, after = kernel.pd_transfer_demand(999, source, target), kernel.pd_transfer_demand(999, *moved)
        assert (before.bytes, before.floor_ns) == (after.bytes, after.floor_ns)
        assert [use.bytes_per_second for use in before.links] == [use.bytes_per_second for use in after.links]
        assert len({use.link for use in before.links} | {use.link for use in after.links}) == 2 * len(before.links)


def test_without_a_fabric_the_nodes_link_serves_between_nodes() -> None:
    demand = deepseek().pd_transfer_demand(1024, HERE, AFAR)
    assert {use.bytes_per_second for use in demand.links} == {450e9}


def test_a_placement_must_be_one() -> None:
    with pytest.raises(ArgumentError, match=r"target is a tuple, accepted is a pykernel\.Placement"):
        deepseek().pd_transfer_demand(1, HERE, (0, 0))  # type: ignore[arg-type]


def test_transfers_too_long_to_count_stop_at_the_largest() -> None:
    kernel = deepseek()
    assert kernel.pd_transfer_demand(2**62, HERE, AFAR).bytes == INT64_MAX
    assert kernel.pd_transfer_time_ns(10**12, HERE, AFAR) == nanoseconds(10**12 * 35_136 / 450e9)
    assert kernel.pd_transfer_time_ns(2**70, HERE, AFAR) == nanoseconds(float(INT64_MAX) / 450e9)
    assert kernel.tier_time_ns("s3", "to_tier", 2**62, 2**40) == INT64_MAX
    assert kernel.tier_time_ns("s3", "to_tier", -(2**80), -(2**80)) == 30_000_000


# ---- host work -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "ns"),
    [
        (-1, 0),
        (0, 0),
        (1, 40_000_350),
        (100, 40_035_000),
        (8000, 42_800_000),
        (131_072, 85_875_200),
        (2**62, INT64_MAX),
    ],
)
def test_admission_costs_a_request_and_each_token(tokens: int, ns: int) -> None:
    assert deepseek().admission_overhead_ns(tokens) == ns


def test_tokens_and_completions_cost_the_host_what_their_coefficients_say() -> None:
    kernel = deepseek()
    assert (kernel.output_token_overhead_ns(), kernel.completion_overhead_ns()) == (45_900, 777_300)


def test_host_work_that_has_no_coefficient_is_free_and_disclosed() -> None:
    inputs = stating(fresh())
    inputs.coefficients = [entries for entries in inputs.coefficients if "host-overheads" not in entries.name]
    kernel = pykernel.new(inputs)
    assert kernel.admission_overhead_ns(99) == kernel.output_token_overhead_ns() == kernel.completion_overhead_ns() == 0
    assumed = {origin.name for origin in kernel.provenance() if origin.scope.startswith("absent: ")}
    assert {"host_admission_per_token", "host_output_token", "host_completion"} <= assumed
