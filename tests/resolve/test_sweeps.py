"""Which measured width prices a group: narrower groups the narrowest, groups above 16 the widest, others their own."""

from __future__ import annotations

import itertools

import pytest

from pykernel import rules
from pykernel.documents import Chip, Cluster, Engine, Parallel
from pykernel.resolve.layout import Layout, resolve_layout
from pykernel.resolve.memory import snapped
from pykernel.resolve.sweeps import Sweep, find_sweeps, measured_widths

PARTS = ("floor", "peak_rate", "transition_rate")


def names(*widths: int, operation: str = "all_reduce", chip: str = "h200", parts: tuple[str, ...] = PARTS) -> set[str]:
    return {f"collective_{part}_{operation}_fp16_{width}rank_{chip}" for part in parts for width in widths}


@pytest.mark.parametrize(
    ("width", "measured", "chosen"),
    [
        (1, (2, 4, 8), 2),
        (2, (2, 4, 8), 2),
        (4, (2, 4, 8), 4),
        (8, (2, 4, 8), 8),
        (3, (2, 4, 8), 0),
        (16, (2, 4, 8), 0),
        (17, (2, 4, 8), 8),
        (32, (2, 4, 8), 8),
        (32, (2, 4, 8, 32), 32),
        (24, (2, 4, 8, 32), 32),
        (8, (2, 4), 0),
        (8, (), 0),
    ],
)
def test_the_width_that_prices_a_group(width: int, measured: tuple[int, ...], chosen: int) -> None:
    assert Sweep("all_reduce", "tensor", width, measured).chosen == chosen


def test_a_width_is_measured_where_all_three_numbers_are_in_scope() -> None:
    held = names(2, 4, 8)
    assert measured_widths(held, "all_reduce", "h200") == [2, 4, 8]
    for part in PARTS:
        assert measured_widths(held - names(4, parts=(part,)), "all_reduce", "h200") == [2, 8]
    for other in (names(16, operation="all_gather"), names(16, chip="h100"), names(16, chip="h200_x")):
        assert measured_widths(held | other, "all_reduce", "h200") == [2, 4, 8]


@pytest.mark.parametrize("token", ["", "x", "0", "-4", "04", "16x", "1e1"])
def test_a_malformed_width_is_none(token: str) -> None:
    odd = {f"collective_{part}_all_reduce_fp16_{token}rank_h200" for part in PARTS}
    assert measured_widths(names(2) | odd, "all_reduce", "h200") == [2]


def test_the_letter_case_of_a_part_does_not_matter() -> None:
    for chip, written in (("H200", "h200"), ("h200", "H200"), ("GB200-NVL72", "gb200_nvl72")):
        assert measured_widths(names(2, chip=written), "all_reduce", chip) == [2]
    both = names(2, chip="H200") | names(4, chip="h200")
    assert measured_widths(both, "all_reduce", "h200") == [4], "the chip's own spelling goes first"


def test_a_hyphen_of_a_part_is_an_underscore_in_its_names() -> None:
    assert measured_widths(names(2, chip="gb200_nvl72"), "all_reduce", "gb200-nvl72") == [2]


def layout(tp: int, dp: int = 1, pcp: int = 1, dcp: int = 1) -> Layout:
    chip = Chip("h200", "vendor_spec", 1e3, 4.0, 141.0, 450.0, 132)
    parallel = Parallel(tp, 1, dp, pcp=pcp, dcp=dcp, enable_expert_parallel=True)
    return resolve_layout(Cluster("h200", 9, 8), parallel, Engine(), chip, None, rules("0.29.0"))


@pytest.mark.parametrize(
    ("shape", "combine", "more"),
    [
        ((2, 4, 1, 1), "ag_rs", set()),
        ((8, 1, 1, 4), "ag_rs", {("all_gather", "decode_context", 4), ("reduce_scatter", "decode_context", 4)}),
        ((8, 1, 1, 4), "a2a", {("all_gather", "decode_context", 4), ("alltoall", "decode_context", 4)}),
        ((2, 1, 4, 1), "ag_rs", {("all_gather", "prefill_context", 4)}),
        (
            (2, 1, 4, 8),
            "ag_rs",
            {
                ("all_gather", "prefill_context", 4),
                ("all_gather", "decode_context", 8),
                ("all_reduce", "decode_context", 8),
            },
        ),
    ],
)
def test_every_collective_is_looked_up_over_its_own_group(
    shape: tuple[int, int, int, int], combine: str, more: set[tuple[str, str, int]]
) -> None:
    found = layout(*shape)
    tensor = {(operation, "tensor", found.tp) for operation in ("all_reduce", "all_gather", "reduce_scatter")}
    sweeps = find_sweeps(set(), found, combine, "h200")
    expected = tensor | {("alltoall", "expert", found.moe_width)} | more
    assert {(sweep.operation, sweep.group, sweep.width) for sweep in sweeps} == expected
    assert len(sweeps) == len(expected)


def test_a_vendors_table_gives_the_widest_entry_that_is_not_too_wide() -> None:
    for declared, (width, chosen) in itertools.product(
        [(2, 4, 8)], [(1, 2), (2, 2), (3, 2), (4, 4), (8, 8), (16, 8), (72, 8)]
    ):
        held = dict.fromkeys((f"nccl_communicator_bytes_{size}rank" for size in declared), 1.0)
        assert snapped(held, "nccl_communicator_bytes", width) == f"nccl_communicator_bytes_{chosen}rank"  # type: ignore[arg-type]
    assert snapped({}, "nccl_communicator_bytes", 16) == "nccl_communicator_bytes_16rank"  # type: ignore[arg-type]
