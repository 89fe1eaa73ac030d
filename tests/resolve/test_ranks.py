"""Groups of ranks, built rank by rank as the engine does, against what a layout says of them.

The engine numbers ranks data > pipeline > prefill-context > tensor and lays the groups out of that one array
(vllm/distributed/parallel_state.py at v0.31.0); a node, and a rack, hold consecutive ranks.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pykernel import rules
from pykernel.documents import Chip, Cluster, Engine, Parallel
from pykernel.resolve.layout import Layout, resolve_layout

RULES = rules("0.31.0")
Groups = dict[str, list[list[int]]]


def engine_groups(tp: int, pcp: int, dp: int, dcp: int) -> Groups:
    """Every group of one engine, each a list of ranks in the order of the members."""
    ranks = {(d, p, t): number for number, (d, p, t) in enumerate(itertools.product(range(dp), range(pcp), range(tp)))}
    blocks = [[ranks[d, p, t] for p in range(pcp) for t in range(tp)] for d in range(dp)]
    along_prefill = [[ranks[d, p, t] for p in range(pcp)] for d in range(dp) for t in range(tp)]
    tensor = [[ranks[d, p, t] for t in range(tp)] for d in range(dp) for p in range(pcp)]
    if pcp > 1 and dcp == pcp:
        decode = along_prefill
    else:
        # Consecutive runs of a tensor group, or of the whole tensor and prefill-context block.
        runs = blocks if pcp > 1 and dcp > 1 else tensor
        decode = [run[start : start + dcp] for run in runs for start in range(0, len(run), dcp)]
    return {
        "tensor": tensor,
        "expert": [list(range(tp * pcp * dp))],
        "prefill_context": along_prefill,
        "decode_context": decode,
    }


def admissible(tp: int, pcp: int) -> list[int]:
    """Widths of decode-context groups."""
    return sorted({1, pcp, tp * pcp}) if pcp > 1 else [width for width in range(1, tp + 1) if tp % width == 0]


def laid_out(tp: int, pcp: int, dp: int, dcp: int, node: int, rack: int) -> Layout:
    bandwidth = {"gpus_per_rack": rack, "intra_rack_bw_gbps": 900.0} if rack else {}
    chip = Chip("part", "vendor_spec", 1e3, 4.0, 141.0, 450.0, 132, **bandwidth)  # type: ignore[arg-type]
    cluster = Cluster("part", 99, node, gpus_per_rack=rack)
    parallel = Parallel(tp, 1, dp, pcp=pcp, dcp=dcp, enable_expert_parallel=True)
    return resolve_layout(cluster, parallel, Engine(), chip, None, RULES)


LAYOUTS = [
    (tp, pcp, dp, dcp)
    for tp, pcp, dp in itertools.product((1, 2, 4, 8, 16), (1, 2, 4), (1, 2, 4, 9))
    for dcp in admissible(tp, pcp)
]


def test_every_rank_is_in_one_group_of_each_kind() -> None:
    for tp, pcp, dp, dcp in LAYOUTS:
        for groups in engine_groups(tp, pcp, dp, dcp).values():
            assert sorted(itertools.chain(*groups)) == list(range(tp * pcp * dp))


@pytest.mark.parametrize("node", [4, 8])
def test_widths_and_strides_are_those_of_the_engines_groups(node: int) -> None:
    for tp, pcp, dp, dcp in LAYOUTS:
        layout = laid_out(tp, pcp, dp, dcp, node, 0)
        for name, groups in engine_groups(tp, pcp, dp, dcp).items():
            found = layout.groups[name]
            assert {len(group) for group in groups} == {found.width}
            steps = {after - before for group in groups for before, after in itertools.pairwise(group)}
            assert steps <= {found.stride}, (name, tp, pcp, dp, dcp)


@pytest.mark.parametrize("node", [4, 8])
def test_a_group_crosses_nodes_where_its_ranks_do(node: int) -> None:
    """Where groups of a kind lie differently, the widest reach and the fullest node count."""
    seen: Counter[tuple[str, bool]] = Counter()
    for tp, pcp, dp, dcp in LAYOUTS:
        layout = laid_out(tp, pcp, dp, dcp, node, 0)
        for name, groups in engine_groups(tp, pcp, dp, dcp).items():
            nodes = [Counter(rank // node for rank in group) for group in groups]
            found = layout.groups[name]
            crosses = any(len(counts) > 1 for counts in nodes)
            assert found.crosses_nodes is crosses, (name, tp, pcp, dp, dcp)
            assert min(found.per_node, found.width) == max(max(counts.values()) for counts in nodes)
            seen[name, crosses] += 1
    assert min(seen[name, crosses] for name in engine_groups(2, 1, 1, 1) for crosses in (True, False)) > 0


@pytest.mark.parametrize("node", [4, 8])
def test_in_a_rack_of_72_a_group_crosses_where_it_leaves_the_rack(node: int) -> None:
    seen: Counter[bool] = Counter()
    for tp, pcp, dp, dcp in [*LAYOUTS, (8, 1, 10, 1), (4, 1, 18, 1), (8, 2, 9, 2)]:
        layout = laid_out(tp, pcp, dp, dcp, node, 72)
        ranks = tp * pcp * dp
        for name, groups in engine_groups(tp, pcp, dp, dcp).items():
            # The engine starts at the head of a rack. A replica's own groups are as long as their reach, and are laid
            # on one rack wherever they fit one: only a group longer than the rack must leave it.
            reach = max(group[-1] - group[0] + layout.groups[name].stride for group in groups)
            leaves = reach > 72
            assert layout.groups[name].crosses_nodes is leaves, (name, tp, pcp, dp, dcp)
            assert not leaves or ranks > 72
            seen[leaves] += 1
    assert seen[True] > 0 and seen[False] > 0


@pytest.mark.parametrize(
    ("tp", "pcp", "dp", "node", "rack", "spanned"),
    [
        (8, 1, 1, 8, 0, 1),
        (16, 1, 1, 8, 0, 2),
        (1, 1, 16, 8, 0, 2),
        (1, 1, 72, 4, 72, 1),
        (1, 1, 72, 4, 0, 18),
        (8, 2, 1, 8, 0, 2),
        (2, 4, 1, 8, 0, 1),
        (8, 1, 10, 4, 72, 20),
    ],
)
def test_nodes_spanned_of_the_widest_group(tp: int, pcp: int, dp: int, node: int, rack: int, spanned: int) -> None:
    assert laid_out(tp, pcp, dp, 1, node, rack).nodes_spanned == spanned
