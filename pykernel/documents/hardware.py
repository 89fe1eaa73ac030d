"""The nominal figures of a GPU and of the network between nodes, one file each in a catalog.

Keys carry their unit and are those of inference-sim/blis-catalog 0.2.1. A chip or fabric is named by its file, so
its `name` is no key; nothing measured or fitted belongs here (that is what coefficient sets are for).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pykernel.documents import vocabulary
from pykernel.documents.fieldtypes import IDENTITY, key
from pykernel.documents.findings import Findings, above_zero, at_least, one_of
from pykernel.documents.loading import load_document
from pykernel.documents.nodes import Document
from pykernel.documents.writing import write
from pykernel.errors import Problem

_NAMED_BY_FILE = "the file's name is the name; leave the key out"


@dataclass
class Chip(Document):
    """One GPU: dense peaks in TFLOP/s, memory in GiB and TB/s, links in GB/s per GPU and direction."""

    ACCEPTS_COMMENTS: ClassVar[bool] = True
    MOVED_KEYS: ClassVar[Mapping[str, str]] = {
        "name": _NAMED_BY_FILE,
        "mfuPrefill": "a utilisation is a coefficient, not a fact of the chip; leave the key out",
        "mfuDecode": "a utilisation is a coefficient, not a fact of the chip; leave the key out",
        "InterNodeBwGBps": "the rate between nodes belongs to the fabric's file; leave the key out",
    }

    name: str = field(metadata=IDENTITY)
    provenance: str = field(metadata=key("Provenance", words=vocabulary.PROVENANCES))
    tflops_peak: float = field(metadata=key("TFlopsPeak"))
    bw_peak_tbs: float = field(metadata=key("BwPeakTBs"))
    memory_gib: float = field(metadata=key("MemoryGiB"))
    intra_node_bw_gbps: float = field(metadata=key("IntraNodeBwGBps"))
    sm_count: int = field(metadata=key("SMCount"))
    tflops_fp8: float = field(default=0.0, metadata=key("TFlopsFP8", always=True))
    tflops_nvfp4: float = field(default=0.0, metadata=key("TFlopsNVFP4"))
    gpus_per_node: int = field(default=0, metadata=key("GPUsPerNode"))
    gpus_per_rack: int = field(default=0, metadata=key("GPUsPerRack"))
    intra_rack_bw_gbps: float = field(default=0.0, metadata=key("IntraRackBwGBps"))


@dataclass
class Fabric(Document):
    """The network between nodes: GB/s per GPU and direction at line rate."""

    ACCEPTS_COMMENTS: ClassVar[bool] = True
    MOVED_KEYS: ClassVar[Mapping[str, str]] = {
        "name": _NAMED_BY_FILE,
        "PDTransferBaseLatencyMs": "no transfer latency is a fact of the fabric any more; leave the key out",
    }

    name: str = field(metadata=IDENTITY)
    provenance: str = field(metadata=key("Provenance", words=vocabulary.PROVENANCES))
    inter_node_bw_gbps: float = field(metadata=key("InterNodeBwGBps"))
    rdma: bool = field(default=False, metadata=key("RDMA"))


def load_chip(path: str | os.PathLike[str]) -> Chip:
    """The chip of a file, named by the file. Raises DocumentError."""
    return load_document(Chip, path, "chip", name=Path(path).stem)


def load_fabric(path: str | os.PathLike[str]) -> Fabric:
    """The fabric of a file, named by the file. Raises DocumentError."""
    return load_document(Fabric, path, "fabric", name=Path(path).stem)


def dump(document: Chip | Fabric) -> str:
    """A chip or fabric as YAML text that loads back equal from a file of its name."""
    return write(document)


def check_chip(chip: Chip, prefix: str = "chip") -> list[Problem]:
    """Problems of a well-typed chip."""
    findings = Findings(chip, prefix)
    if not chip.name:
        findings.error("name", "found nothing; accepted: the name of the chip's file")
    one_of(findings, "Provenance", chip.provenance, vocabulary.PROVENANCES)
    peak = above_zero(findings, "TFlopsPeak", chip.tflops_peak)
    above_zero(findings, "BwPeakTBs", chip.bw_peak_tbs)
    above_zero(findings, "MemoryGiB", chip.memory_gib)
    above_zero(findings, "IntraNodeBwGBps", chip.intra_node_bw_gbps)
    above_zero(findings, "SMCount", chip.sm_count)
    at_least(findings, "TFlopsNVFP4", chip.tflops_nvfp4, 0)
    if at_least(findings, "TFlopsFP8", chip.tflops_fp8, 0) and peak and 0 < chip.tflops_fp8 <= chip.tflops_peak:
        message = f"found {chip.tflops_fp8}; accepted: more than TFlopsPeak, which is {chip.tflops_peak}, or 0 for none"
        findings.error("TFlopsFP8", message)
    for name, value in (("GPUsPerNode", chip.gpus_per_node), ("GPUsPerRack", chip.gpus_per_rack)):
        at_least(findings, name, value, 0)
    if chip.gpus_per_node > 0 and chip.gpus_per_rack > 0 and chip.gpus_per_rack % chip.gpus_per_node:
        message = f"found {chip.gpus_per_rack}; accepted: a multiple of GPUsPerNode, which is {chip.gpus_per_node}"
        findings.error("GPUsPerRack", message)
    at_least(findings, "IntraRackBwGBps", chip.intra_rack_bw_gbps, 0)
    if chip.intra_rack_bw_gbps > 0 and chip.gpus_per_rack <= 0:
        message = f"found {chip.intra_rack_bw_gbps} without GPUsPerRack; accepted: both keys or neither"
        findings.error("IntraRackBwGBps", message)
    return findings.problems


def check_fabric(fabric: Fabric, prefix: str = "fabric") -> list[Problem]:
    """Problems of a well-typed fabric."""
    findings = Findings(fabric, prefix)
    if not fabric.name:
        findings.error("name", "found nothing; accepted: the name of the fabric's file")
    one_of(findings, "Provenance", fabric.provenance, vocabulary.PROVENANCES)
    above_zero(findings, "InterNodeBwGBps", fabric.inter_node_bw_gbps)
    return findings.problems
