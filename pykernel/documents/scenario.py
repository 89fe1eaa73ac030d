"""The Scenario: the part of a run that stays fixed while configurations are compared.

Types, loading, writing, and the checks that need no other document. Keys and ranges are those of
inference-sim/blis-schemas v0.2.2; what the cluster means for a deployment is checked in `placement.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pykernel.documents import vocabulary
from pykernel.documents.fieldtypes import words
from pykernel.documents.findings import Findings, at_least, digest, one_of, stated, within
from pykernel.documents.loading import load_document
from pykernel.documents.nodes import Document
from pykernel.documents.writing import write
from pykernel.errors import Problem


@dataclass
class Cluster:
    """The machines: one chip model on every node."""

    hardware: str
    nodes: int
    gpus_per_node: int
    fabric: str = ""
    gpus_per_rack: int = 0
    storage: list[str] = field(default_factory=list)


@dataclass
class SloTarget:
    """Latency bounds of one request class, in milliseconds; 0 leaves a bound open."""

    ttft_ms: float = 0.0
    itl_ms: float = 0.0
    e2e_ms: float = 0.0


@dataclass
class TraceServer:
    """The server a trace was recorded on, as far as recorded."""

    type: str = ""
    model: str = ""
    tensor_parallel: int = 0
    max_num_seqs: int = 0
    block_size: int = 0
    max_model_len: int = 0
    gpu_memory_utilization: float = 0.0


@dataclass
class TraceHeader:
    """How to read the rows of a trace."""

    trace_version: int
    time_unit: str = field(metadata=words(vocabulary.TIME_UNITS))
    mode: str = field(metadata=words(vocabulary.TRACE_MODES))
    workload_seed: int | None = None
    server: TraceServer | None = None
    goodput_slo_targets: dict[str, SloTarget] | None = None


@dataclass
class Trace:
    """A recorded list of requests."""

    data: str
    header: TraceHeader
    sha256: str = ""
    rows: int = 0


@dataclass
class Workload:
    """What is served: the name of a shape, or a trace; never both."""

    shape: str = ""
    trace: Trace | None = None


@dataclass
class Scenario(Document):
    """The fixed problem: model, machines, engine release, and the coefficient sets in the order they apply."""

    KIND: ClassVar[str] = "Scenario"
    MOVED_KEYS: ClassVar[Mapping[str, str]] = {
        "hardware": "write cluster.hardware, the key this older form has been replaced by",
        "fabric": "write cluster.fabric, the key this older form has been replaced by",
        "pools": "write it in the Deployment, the second document of the file",
        "offload": "write it in the Deployment, the second document of the file",
        "pd_transfer": "write it in the Deployment, the second document of the file",
    }

    kind: str
    name: str
    model: str
    coefficients: list[str]
    engine_version: str
    cluster: Cluster
    workload: Workload | None = None


def load(path: str | os.PathLike[str]) -> Scenario:
    """The Scenario of a file that holds nothing else. Raises DocumentError."""
    return load_document(Scenario, path, "scenario")


def dump(scenario: Scenario) -> str:
    """The Scenario as YAML text that loads back equal."""
    return write(scenario)


def check(scenario: Scenario, prefix: str = "scenario") -> list[Problem]:
    """Problems of a well-typed Scenario by itself."""
    findings = Findings(scenario, prefix)
    if scenario.source is not None and scenario.source.remark:
        findings.warning("", scenario.source.remark)
    one_of(findings, "kind", scenario.kind, (Scenario.KIND,))
    for name in ("name", "model", "engine_version"):
        stated(findings, name, getattr(scenario, name))
    if not scenario.coefficients:
        findings.error("coefficients", "found an empty list; accepted: at least one coefficient set")
    for index, name in enumerate(scenario.coefficients):
        stated(findings, f"coefficients[{index}]", name)
    _check_cluster(findings, scenario.cluster)
    if scenario.workload is not None:
        _check_workload(findings, scenario.workload)
    return findings.problems


def _check_cluster(findings: Findings, cluster: Cluster) -> None:
    stated(findings, "cluster.hardware", cluster.hardware)
    at_least(findings, "cluster.nodes", cluster.nodes, 1)
    at_least(findings, "cluster.gpus_per_node", cluster.gpus_per_node, 1)
    rack, node = cluster.gpus_per_rack, cluster.gpus_per_node
    at_least(findings, "cluster.gpus_per_rack", rack, 0)
    if rack > 0 and node >= 1 and rack % node:
        findings.error("cluster.gpus_per_rack", f"found {rack}; accepted: a multiple of gpus_per_node, which is {node}")
    if cluster.nodes > 1 and not cluster.fabric:
        message = f"no fabric is named while nodes is {cluster.nodes}; accepted: the name of a fabric"
        findings.error("cluster.fabric", message)
    for index, name in enumerate(cluster.storage):
        path = f"cluster.storage[{index}]"
        stated(findings, path, name)
        if name and name in cluster.storage[:index]:
            first = cluster.storage.index(name)
            findings.error(path, f"found {name!r} again, first at storage[{first}]; accepted: each class once")


def _check_workload(findings: Findings, workload: Workload) -> None:
    if bool(workload.shape) == (workload.trace is not None):
        found = "both shape and trace" if workload.shape else "neither shape nor trace"
        findings.error("workload", f"found {found}; accepted: exactly one of them")
    if workload.trace is not None:
        _check_trace(findings, workload.trace)


def _check_trace(findings: Findings, trace: Trace) -> None:
    at = "workload.trace"
    stated(findings, f"{at}.data", trace.data)
    if trace.sha256:
        digest(findings, f"{at}.sha256", trace.sha256, hexadecimal=True)
    at_least(findings, f"{at}.rows", trace.rows, 0)
    header = trace.header
    at_least(findings, f"{at}.header.trace_version", header.trace_version, 1)
    one_of(findings, f"{at}.header.time_unit", header.time_unit, vocabulary.TIME_UNITS)
    one_of(findings, f"{at}.header.mode", header.mode, vocabulary.TRACE_MODES)
    if header.server is not None:
        for name in ("tensor_parallel", "max_num_seqs", "block_size", "max_model_len"):
            at_least(findings, f"{at}.header.server.{name}", getattr(header.server, name), 0)
        within(findings, f"{at}.header.server.gpu_memory_utilization", header.server.gpu_memory_utilization, 0, 1)
    for name, target in (header.goodput_slo_targets or {}).items():
        path = f"{at}.header.goodput_slo_targets.{name}"
        if not name:
            findings.error(path, "found a class without a name; accepted: a name")
        bounds = (target.ttft_ms, target.itl_ms, target.e2e_ms)
        for bound, value in zip(("ttft_ms", "itl_ms", "e2e_ms"), bounds, strict=True):
            at_least(findings, f"{path}.{bound}", value, 0)
        if not any(bounds):
            findings.error(path, "no bound is set; accepted: at least one of ttft_ms, itl_ms, e2e_ms above 0")
