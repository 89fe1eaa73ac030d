"""Where ranks are: widths, groups and what leaves a node, checked against groups built rank by rank."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pykernel import open_inputs, rules
from pykernel.documents import Chip, Cluster, Engine, Fabric, Parallel, Pool
from pykernel.resolve.case import Case
from pykernel.resolve.coefficients import Target, select
from pykernel.resolve.disclosures import OVERRIDES
from pykernel.resolve.layout import Layout, resolve_layout
from pykernel.resolve.model_facts import model_facts

RULES = rules("0.29.0")
SEQUENCE_PARALLEL = (
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "flashinfer_nvlink_one_sided",
    "mori_high_throughput",
    "mori_low_latency",
    "nixl_ep",
)


def chip(rack: int = 0, rack_bandwidth: float = 0.0, **changes: Any) -> Chip:
    """A part of 450 GB/s on its node; with a rack when one is given."""
    facts = {"tflops_peak": 1e3, "bw_peak_tbs": 4.0, "memory_gib": 141.0, "intra_node_bw_gbps": 450.0, "sm_count": 132}
    rack_facts = {"gpus_per_rack": rack, "intra_rack_bw_gbps": rack_bandwidth}
    return Chip("part", "vendor_spec", **(facts | rack_facts | changes))


def laid_out(
    tp: int = 1,
    dp: int = 1,
    *,
    ep: bool = False,
    pcp: int = 0,
    dcp: int = 0,
    node: int = 8,
    rack: int = 0,
    part: Chip | None = None,
    fabric: Fabric | None = None,
    **engine: Any,
) -> Layout:
    cluster = Cluster("part", 99, node, gpus_per_rack=rack)
    parallel = Parallel(tp, 1, dp, pcp=pcp, dcp=dcp, enable_expert_parallel=ep)
    return resolve_layout(cluster, parallel, Engine(**engine), part or chip(), fabric, RULES)


# ---- widths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tp", "dp", "pcp"), list(itertools.product([1, 2, 8], [1, 2, 4], [0, 1, 2])))
@pytest.mark.parametrize("ep", [False, True])
def test_experts_are_shared_by_every_rank_of_the_engine(tp: int, dp: int, pcp: int, ep: bool) -> None:
    """Law 37."""
    layout = laid_out(tp, dp, ep=ep, pcp=pcp)
    block = tp * dp * max(pcp, 1)
    assert layout.ep == (block if ep else 1)
    # Without expert parallelism, data-parallel replicas still meet at the experts.
    assert layout.moe_width == (block if ep or dp > 1 else 1)
    assert (layout.tp, layout.dp, layout.pcp, layout.dcp) == (tp, dp, max(pcp, 1), 1)


@pytest.mark.parametrize("ep", [False, True])
def test_doubling_the_replicas_doubles_the_experts_ranks_where_they_are_parallel(ep: bool) -> None:
    four, eight = laid_out(2, 4, ep=ep), laid_out(2, 8, ep=ep)
    assert eight.dp == 2 * four.dp
    assert eight.ep == (2 * four.ep if ep else 1)


@pytest.mark.parametrize(
    ("layout", "nodes"),
    [
        ({"tp": 8}, 1),
        ({"tp": 16}, 2),
        ({"tp": 9}, 2),
        ({"dp": 16, "ep": True}, 2),
        ({"dp": 16}, 2),
        ({"tp": 8, "pcp": 2}, 2),
        ({"tp": 2, "pcp": 4}, 1),
        ({"dp": 72, "ep": True, "node": 4, "rack": 72, "part": chip(72, 900.0)}, 1),
        ({"dp": 72, "ep": True, "node": 4, "rack": 72}, 18),
        ({"dp": 72, "ep": True, "node": 4, "part": chip(72, 900.0)}, 18),  # the cluster states no rack
        ({"dp": 144, "ep": True, "node": 4, "rack": 72, "part": chip(72, 900.0)}, 36),
    ],
)
def test_nodes_spanned_are_those_of_the_widest_group(layout: dict[str, Any], nodes: int) -> None:
    assert laid_out(**layout).nodes_spanned == nodes


@pytest.mark.parametrize(
    ("inside", "between", "ratio"),
    [(450, 50, 9), (450, 25, 18), (900, 900, 1), (450, 900, 0.5), (450, 0, 1), (0, 50, 1)],
)
def test_the_link_ratio_is_node_over_network(inside: float, between: float, ratio: float) -> None:
    part, network = chip(intra_node_bw_gbps=inside), Fabric("net", "vendor_spec", between)
    assert laid_out(part=part, fabric=network).link_ratio == ratio
    assert laid_out(part=part).link_ratio == 1


# ---- groups --------------------------------------------------------------------------------------------------------


def members(group: str, tp: int, pcp: int, dp: int, dcp: int) -> list[list[int]]:
    """Every instance of a group as rank numbers, with rank(d, p, t) = (d * pcp + p) * tp + t."""
    ranks = [[[(d * pcp + p) * tp + t for t in range(tp)] for p in range(pcp)] for d in range(dp)]
    if group == "tensor":
        return [ranks[d][p] for d in range(dp) for p in range(pcp)]
    if group == "expert":
        return [[rank for replica in ranks for row in replica for rank in row]]
    along_context = [[ranks[d][p][t] for p in range(pcp)] for d in range(dp) for t in range(tp)]
    if group == "prefill_context":
        return along_context
    if 1 < dcp == pcp:
        return along_context
    if pcp > 1 and dcp > 1:  # the whole block of one replica
        return [[rank for row in replica for rank in row] for replica in ranks]
    return [row[first : first + dcp] for replica in ranks for row in replica for first in range(0, tp, dcp)]


def admissible_dcp(tp: int, pcp: int) -> list[int]:
    return [1, pcp, tp * pcp] if pcp > 1 else [width for width in range(1, tp + 1) if tp % width == 0]


PLACEMENTS = [
    (node, tp, pcp, dp, dcp)
    for node, tp, pcp, dp in itertools.product([4, 8], [1, 2, 4, 8], [1, 2, 4], [1, 2])
    for dcp in dict.fromkeys(admissible_dcp(tp, pcp))
]


@pytest.mark.parametrize(("node", "tp", "pcp", "dp", "dcp"), PLACEMENTS)
def test_groups_lie_on_nodes_as_their_ranks_do(node: int, tp: int, pcp: int, dp: int, dcp: int) -> None:
    layout = laid_out(tp, dp, ep=True, pcp=pcp, dcp=dcp, node=node)
    for name, group in layout.groups.items():
        instances = members(name, tp, pcp, dp, dcp)
        assert {len(instance) for instance in instances} == {group.width}, name
        if group.width == 1:
            assert not group.crosses_nodes
            continue
        nodes = [[rank // node for rank in instance] for instance in instances]
        assert group.crosses_nodes == any(len(set(instance)) > 1 for instance in nodes), name
        busiest = max(instance.count(place) for instance in nodes for place in instance)
        assert min(group.per_node, group.width) == busiest, name


def test_some_placement_has_every_group_on_and_off_its_node() -> None:
    found = {
        (name, group.crosses_nodes)
        for node, tp, pcp, dp, dcp in PLACEMENTS
        for name, group in laid_out(tp, dp, ep=True, pcp=pcp, dcp=dcp, node=node).groups.items()
    }
    assert found == set(itertools.product(["tensor", "expert", "prefill_context", "decode_context"], [False, True]))


@pytest.mark.parametrize(
    ("part", "rack", "width", "crosses"),
    [
        (chip(72, 900.0), 0, 72, False),  # the part's own rack counts where the cluster states none
        (chip(72, 900.0), 0, 73, True),
        (chip(72, 900.0), 36, 36, False),
        (chip(72, 900.0), 36, 40, True),
        (chip(72, 0.0), 72, 8, True),  # a rack without a domain is a rack of nodes
        (chip(), 72, 8, True),
        (chip(), 0, 4, False),
    ],
)
def test_a_group_inside_one_rack_scale_domain_does_not_cross(part: Chip, rack: int, width: int, crosses: bool) -> None:
    layout = laid_out(1, width, ep=True, node=4, rack=rack, part=part)
    assert layout.groups["expert"].crosses_nodes is crosses
    assert layout.rack_domain is (part.gpus_per_rack > 0 and part.intra_rack_bw_gbps > 0)


def test_a_strided_group_stays_inside_a_rack_by_its_whole_reach() -> None:
    part = chip(72, 900.0)
    near, far = (laid_out(tp, pcp=4, node=4, part=part).groups["prefill_context"] for tp in (16, 32))
    assert (near.width, near.stride, near.crosses_nodes) == (4, 16, False)
    assert (far.width, far.stride, far.crosses_nodes) == (4, 32, True)


def test_the_bundled_rack_scale_part_is_one_domain() -> None:
    part = open_inputs("minimax-m2.5-gb300-tp4").chip
    wide = laid_out(16, 4, ep=True, node=4, part=part)
    assert wide.rack_domain and not any(group.crosses_nodes for group in wide.groups.values())
    assert laid_out(16, 8, ep=True, node=4, part=part).groups["expert"].crosses_nodes


# ---- all-reduce ----------------------------------------------------------------------------------------------------


def overridden(found: Layout, node: int = 8, **engine: Any) -> list[str]:
    """The reasons of what is overridden of an all-reduce under a layout."""
    documents = open_inputs("llama-3.1-8b-h100-tp1")
    documents.scenario.cluster = Cluster("part", 99, node)
    pool = Pool("colocated", 99, Parallel(found.tp, 1, found.dp), Engine(**engine))
    none = select([], Target("part", "model", found.tp, found.ep, found.nodes_spanned))
    case = Case(documents, RULES, pool, model_facts(documents.model, pool.engine), found, none)
    rows = [row for row in OVERRIDES if row.field == "allreduce_backend" and row.applies(case)]
    assert all((row.requested(case), row.resolved(case)) == ("custom", "nccl") for row in rows)
    return [row.reason(case) for row in rows]


def test_a_custom_all_reduce_on_a_node_is_honoured_without_a_word() -> None:
    assert laid_out(8).all_reduce_backend == "custom"
    assert overridden(laid_out(8)) == []


@pytest.mark.parametrize("tp", [1, 3, 5, 12, 32])
def test_a_width_the_custom_kernel_does_not_support_falls_back(tp: int) -> None:
    found = laid_out(tp, node=32)
    assert found.all_reduce_backend == "nccl"
    (reason,) = overridden(found, node=32)
    assert f"{tp} ranks" in reason and "unsupported rank count" in reason


def test_ranks_beyond_a_node_fall_back_unless_nvlink_joins_the_nodes() -> None:
    assert laid_out(16).all_reduce_backend == "nccl"
    (reason,) = overridden(laid_out(16))
    assert all(word in reason for word in ("16 ranks", "8 GPUs", "no multi-node NVLink"))
    joined = laid_out(16, part=chip(72, 900.0))
    assert joined.all_reduce_backend == "custom"
    assert overridden(joined) == []


@pytest.mark.parametrize(
    ("engine", "backend"),
    [
        ({"disable_custom_all_reduce": True}, "nccl"),
        ({"disable_custom_all_reduce": False}, "custom"),
        ({"allreduce_backend": "nccl"}, "nccl"),
        ({"allreduce_backend": "custom"}, "custom"),
        ({"allreduce_backend": "nccl", "disable_custom_all_reduce": False}, "nccl"),
    ],
)
@pytest.mark.parametrize("tp", [3, 8])
def test_who_opts_out_of_the_custom_all_reduce_is_not_overridden(tp: int, engine: dict[str, Any], backend: str) -> None:
    found = laid_out(tp, **engine)
    assert found.all_reduce_backend == (backend if tp == 8 else "nccl")
    assert bool(overridden(found, **engine)) is (tp == 3 and backend == "custom")


# ---- experts' traffic ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["", "naive", "pplx", "deepep_v2", *SEQUENCE_PARALLEL])
@pytest.mark.parametrize(("tp", "dp", "ep"), list(itertools.product([1, 2], [1, 2], [False, True])))
def test_sequence_parallel_experts_need_a_backend_and_every_axis(tp: int, dp: int, ep: bool, backend: str) -> None:
    found = laid_out(tp, dp, ep=ep, all2all_backend=backend).sequence_parallel_moe
    assert found is (backend in SEQUENCE_PARALLEL and ep and tp > 1 and dp > 1)


@pytest.mark.parametrize("backend", ["", "naive", "allgather_reducescatter", "pplx", "deepep_low_latency", "nixl_ep"])
@pytest.mark.parametrize("ep", [False, True])
def test_tokens_are_routed_by_expert_parallelism_and_a_backend_that_does(backend: str, ep: bool) -> None:
    gathers = backend in ("", "naive", "allgather_reducescatter")
    assert laid_out(2, 2, ep=ep, all2all_backend=backend).routed_dispatch is (ep and not gathers)
