"""Writes steps.csv: the price of every bundled scenario on a fixed set of batches.

Run it after a change that is meant to move prices and commit the new table with the reason:

    python testdata/golden/write_steps.py
"""

from __future__ import annotations

from pathlib import Path

import pykernel
from pykernel.documents import find_scenario, list_scenarios

BATCHES = {
    "empty": [],
    "1 decode at 1": [(1, 1, 0)],
    "8 decodes at 1024": [(8, 1, 1023)],
    "256 decodes at 8192": [(256, 1, 8191)],
    "1024 decodes at 512": [(1024, 1, 511)],
    "64 decodes of 2 tokens at 4096": [(64, 2, 4094)],
    "1 prefill of 2048": [(1, 2048, 0)],
    "4 prefills of 8192": [(4, 8192, 0)],
    "2 chunks of 1024 on 16384": [(2, 1024, 16384)],
    "32 decodes at 4096 and a prefill of 512": [(32, 1, 4095), (1, 512, 0)],
}
"""Groups of (requests, scheduled, computed)."""

COLUMNS = ("overlap_ns", "no_overlap_ns", *(f"{name}_ns" for name in pykernel.RESOURCES))


def batch(groups: list[tuple[int, int, int]]) -> pykernel.Batch:
    requests = [
        pykernel.Request(scheduled, computed, scheduled + computed)
        for count, scheduled, computed in groups
        for _ in range(count)
    ]
    return pykernel.Batch(requests, decode_threshold=8)


def table() -> str:
    """The whole file."""
    lines = [",".join(("scenario", "pool", "batch", "bottleneck", *COLUMNS))]
    for name in list_scenarios():
        _, deployment = pykernel.load_bundle(find_scenario(name))
        for pool in range(len(deployment.pools)):
            kernel = pykernel.open_pool(name, pool)
            for label, groups in BATCHES.items():
                estimate = kernel.step_time(batch(groups))
                resources = [estimate.per_resource_ns.get(resource, 0) for resource in pykernel.RESOURCES]
                numbers = [estimate.overlap_ns, estimate.no_overlap_ns, *resources]
                lines.append(",".join([name, str(pool), label, estimate.bottleneck, *map(str, numbers)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("steps.csv").write_text(table(), encoding="utf-8")
