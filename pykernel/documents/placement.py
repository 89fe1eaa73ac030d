"""The checks of a Deployment against the cluster of its Scenario: node sums, rank fit, and where replicas land.

They need both documents, so neither document's own module can hold them. Rank arithmetic is exact.
"""

from __future__ import annotations

from pykernel.documents.deployment import Deployment, Pool
from pykernel.documents.findings import Findings
from pykernel.documents.scenario import Cluster, Scenario
from pykernel.errors import Problem

_MOST_SHARES = 100_000  # shares tried before a placement is called unverified; real nodes have at most 72 GPUs


def check(scenario: Scenario, deployment: Deployment, prefix: str = "deployment") -> list[Problem]:
    """Problems of a well-typed pair."""
    findings = Findings(deployment, prefix)
    cluster = scenario.cluster
    total = sum(pool.nodes for pool in deployment.pools)
    if deployment.pools and total != cluster.nodes:
        message = f"found {total} nodes in sum; accepted: the cluster's nodes, which are {cluster.nodes}"
        findings.error("pools", message)
    for index, pool in enumerate(deployment.pools):
        _check_pool(findings, f"pools[{index}].parallel", pool, cluster)
    if cluster.storage and deployment.offload is not None:
        for index, tier in enumerate(deployment.offload.tiers):
            if tier.tier and tier.tier not in cluster.storage:
                message = f"found {tier.tier!r}; accepted: the cluster's storage: {', '.join(cluster.storage)}"
                findings.error(f"offload.tiers[{index}].tier", message)
    _check_names(findings, scenario, deployment)
    return findings.problems


def _check_names(findings: Findings, scenario: Scenario, deployment: Deployment) -> None:
    """In one file both documents carry one name; a pair from two files may differ."""
    together = scenario.source and deployment.source and scenario.source.file == deployment.source.file
    if together and deployment.name and scenario.name and deployment.name != scenario.name:
        findings.warning("name", f"found {deployment.name!r} beside the scenario's {scenario.name!r} in one file")


def _check_pool(findings: Findings, at: str, pool: Pool, cluster: Cluster) -> None:
    parallel, node = pool.parallel, cluster.gpus_per_node
    if parallel.dp_local > 0 and node >= 1 and node % parallel.dp_local:
        message = f"found {parallel.dp_local}; accepted: a divisor of gpus_per_node, which is {node}"
        findings.error(f"{at}.dp_local", message)
    widths = min(parallel.tp, parallel.pp, parallel.dp, pool.nodes, node)
    if widths < 1 or parallel.pcp < 0:
        return
    ranks, gpus = parallel.ranks(), pool.nodes * node
    if ranks > gpus:
        product = f"pp {parallel.pp} x tp {parallel.tp} x pcp {max(parallel.pcp, 1)} x dp {parallel.dp}"
        message = f"one engine takes {ranks} ranks ({product}); accepted: at most the pool's {gpus} GPUs"
        findings.error(at, message)
    elif 1 <= parallel.dp_local <= parallel.dp:
        _check_local_replicas(findings, at, pool, node)


def _check_local_replicas(findings: Findings, at: str, pool: Pool, node: int) -> None:
    """Local replicas start one after another on a node's devices, and the last one must end on the node.

    A replica may be split evenly over the nodes its group of replicas has; then only its share must fit.
    """
    replica, local = pool.parallel.replica_ranks(), pool.parallel.dp_local
    last = (local - 1) * replica
    if last >= node:
        message = f"found {local}; the last local replica would start at device {last} of a node with {node} GPUs"
        findings.error(f"{at}.dp_local", message + f"; accepted: at most {-(-node // replica)}")
        return
    room = node - last
    splits = min(max(1, pool.nodes // (pool.parallel.dp // local)), replica)
    tried = min(splits, _MOST_SHARES)
    if any(replica % split == 0 and replica // split <= room for split in range(1, tried + 1)):
        return
    if tried < splits:
        findings.warning(at, f"whether {local} replicas of {replica} ranks fit a node was not verified")
        return
    message = f"the last of {local} local replicas of {replica} ranks has {room} GPUs left on its node of {node}"
    findings.error(at, message + "; accepted: a smaller dp_local, or widths that divide into that room")
