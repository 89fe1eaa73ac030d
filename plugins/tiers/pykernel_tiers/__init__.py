"""The plug-in: the storage tiers of `storage.yaml`, whose comments say where each figure is from."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from pykernel.documents import StorageTier, storage
from pykernel.hooks import DocumentEntry, hookimpl

FILE = Path(__file__).parent / "storage.yaml"

SOURCES = {
    "cxl_gen5_x8": "line rate of CXL 2.0 on PCIe 5.0 x8; latency of Melody (ASPLOS 2025), start assumed",
    "cxl_box_gen5_x16": "Samsung CMM-B, figures of the maker; start assumed",
    "dram_gen5_x16": "line rate of PCIe 5.0 x16; start assumed",
    "gds_nvme_gen5": "Micron 9550 MAX, figures of the maker",
    "gds_nvme_gen5_x4": "four Micron 9550 MAX, striped without loss",
    "rdma_kv_400g": "line rate of one 400 Gb/s port; latency assumed",
    "rdma_kv_mooncake_400g": "Mooncake Transfer Engine over 8 x 400 Gb/s RoCE, a port's share; latency assumed",
}
"""Where the figures of each tier come from, in one line."""


@cache
def _tiers() -> dict[str, StorageTier]:
    return {tier.name: tier for tier in storage.load(FILE)}


def _loader(name: str) -> Callable[[], StorageTier]:
    return lambda: _tiers()[name]


@hookimpl
def pykernel_storage_tiers() -> list[DocumentEntry]:
    return [DocumentEntry(name, _loader(name), source) for name, source in SOURCES.items()]
