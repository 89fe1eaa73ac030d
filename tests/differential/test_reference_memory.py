"""The kernel and the reference in Python agree on memory, sequences, transfers and host work, or both refuse.

`PYKERNEL_SEED` draws other deployments.
"""

from __future__ import annotations

import os
import random

from pykernel_python_reference.model import PythonReference

import pykernel
from pykernel.errors import RefusedError
from pykernel.interface import CostModel
from tests.differential.deployments import draw

SEED = int(os.environ.get("PYKERNEL_SEED", "20261"))
TOKENS = (0, 1, 63, 4097, 100_000)


def sizes(model: CostModel) -> list[int]:
    fixed = model.fixed_bytes()
    here, there = pykernel.Placement(0, 0), pykernel.Placement(3, 1)
    return [
        *(fixed.weights, fixed.activation_peak, fixed.cuda_graph, fixed.eplb_redundant, fixed.comm_buffers),
        *(model.pre_snapshot_bytes(), model.sequence_fixed_bytes(), model.sequence_admission_bytes()),
        *(model.sequence_variable_bytes(count) for count in TOKENS),
        *(model.sequence_bounded_bytes_at(count, 70) for count in TOKENS),
        *(model.pd_transfer_demand(count, here, there).bytes for count in TOKENS),
        *(model.pd_transfer_time_ns(count, here, there) for count in TOKENS),
        *(model.admission_overhead_ns(count) for count in TOKENS),
    ]


def test_kernel_and_reference_agree_on_random_deployments() -> None:
    compared = 0
    for number in range(120):
        where = f"seed {SEED} draw {number}"
        inputs = draw(random.Random(where))
        try:
            kernel = pykernel.Kernel(inputs)
        except RefusedError:
            continue
        for found, expected in zip(sizes(PythonReference(inputs)), sizes(kernel), strict=True):
            # A byte where the core's doubles cannot hold a third, a nanosecond for that byte.
            assert abs(found - expected) <= 1, (where, found, expected)
        compared += 1
    assert compared > 50
