"""The storage classes a KV cache can be offloaded to: one file of a catalog, a mapping from class name to figures.

Bandwidths in MB/s (powers of ten), latency in microseconds per transfer, as in inference-sim/blis-catalog 0.2.1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pykernel.documents.fieldtypes import IDENTITY, Report, record
from pykernel.documents.findings import Findings, above_zero
from pykernel.documents.loading import finish
from pykernel.documents.nodes import Document, Source
from pykernel.documents.nodes import Mapping as MappingNode
from pykernel.documents.reader import read_file
from pykernel.documents.writing import to_yaml
from pykernel.errors import Problem


@dataclass
class StorageTier(Document):
    """One storage class: MB/s read and written, and microseconds before a transfer starts to move."""

    ACCEPTS_COMMENTS: ClassVar[bool] = True
    IGNORED_KEYS: ClassVar[frozenset[str]] = frozenset({"name"})
    RENAMED_KEYS: ClassVar[Mapping[str, str]] = {
        "read_bandwidth": "read_bandwidth_mb_s",
        "write_bandwidth": "write_bandwidth_mb_s",
        "base_latency": "base_latency_us",
    }

    name: str = field(metadata=IDENTITY)
    read_bandwidth_mb_s: float
    write_bandwidth_mb_s: float
    base_latency_us: float


def load(path: str | os.PathLike[str]) -> list[StorageTier]:
    """The storage classes of a file, sorted by name. Raises DocumentError."""
    reading = read_file(path, ("device:",))
    root = reading.roots[0]
    report = Report(reading.file, "device:", reading.problems)
    if not root.entries:
        report.add(None, root.line, "found no storage class; accepted: at least one")
    tiers = []
    for name in sorted(root.entries):
        node = root.entries[name]
        tier = record(StorageTier).read(node, root.lines[name], (None, name), report, name=name)
        if isinstance(tier, StorageTier) and isinstance(node, MappingNode):
            tier.remember(Source(reading.file, node))
            tiers.append(tier)
    finish(reading)
    return tiers


def dump(tiers: Iterable[StorageTier]) -> str:
    """Storage classes as the YAML text of one file, sorted by name, that loads back equal."""
    plain = record(StorageTier).plain
    return to_yaml({tier.name: plain(tier) for tier in sorted(tiers, key=lambda tier: tier.name)})


def check(tier: StorageTier, prefix: str = "") -> list[Problem]:
    """Problems of a well-typed storage class; paths begin with `device:<class>` unless a prefix is given."""
    findings = Findings(tier, prefix or f"device:{tier.name}")
    if not tier.name:
        findings.error("name", "found nothing; accepted: the name of the class")
    above_zero(findings, "read_bandwidth_mb_s", tier.read_bandwidth_mb_s)
    above_zero(findings, "write_bandwidth_mb_s", tier.write_bandwidth_mb_s)
    above_zero(findings, "base_latency_us", tier.base_latency_us)
    return findings.problems
