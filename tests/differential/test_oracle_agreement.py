"""The kernel prices as the oracle does, on random deployments and batches, or both refuse.

Time is compared to 2 ns a resource: the core adds up doubles, the oracle fractions. `PYKERNEL_SEED` draws others.
"""

from __future__ import annotations

import os
import random

import pytest
from pykernel_python_reference import oracle

import pykernel
from pykernel.documents import Inputs
from pykernel.errors import DocumentError, RefusedError
from pykernel.switches import NEWEST, REFERENCE, LawSwitches
from tests.differential.batches import random_batch
from tests.differential.deployments import draw

SEED = int(os.environ.get("PYKERNEL_SEED", "20261"))
TOLERANCE_NS = 2
SWITCHES: dict[LawSwitches, oracle.Settings] = {
    NEWEST: oracle.NEWEST,
    REFERENCE: oracle.Settings(head_sampled_rows=False, vocab_gather=False, head_16_bit=False),
}


def judge(inputs: Inputs, switches: LawSwitches) -> oracle.Oracle | None:
    try:
        return oracle.Oracle(inputs, SWITCHES[switches])
    except RefusedError:
        return None


def batch_of(drawn: oracle.Batch) -> pykernel.Batch:
    return pykernel.Batch(
        [pykernel.Request(one.scheduled, one.computed, one.scheduled + one.computed) for one in drawn.requests],
        decode_threshold=drawn.decode_threshold,
        sm_budget=drawn.sm_budget,
        pad_tokens=drawn.pad_tokens,
    )


def compare(kernel: pykernel.CostModel, judged: oracle.Oracle, drawn: oracle.Batch, where: str) -> None:
    estimate, price = kernel.step_time(batch_of(drawn)), judged.price_batch(drawn)
    found = estimate.per_resource_ns
    for name in ("sm", "hbm", "nvlink", "nic", "host"):
        expected = getattr(price, name)
        assert abs(found.get(name, 0) - expected) <= TOLERANCE_NS, (where, name, found, price, drawn)
    assert abs(estimate.overlap_ns - price.overlap_ns) <= 2 * TOLERANCE_NS, (where, estimate, price, drawn)
    assert abs(estimate.no_overlap_ns - price.no_overlap_ns) <= 4 * TOLERANCE_NS, (where, estimate, price, drawn)


def agree(deployments: int, batches: int, seed: int) -> int:
    """Compare that many priced deployments; the number of refused draws."""
    refused = priced = 0
    while priced < deployments:
        where = f"seed {seed} draw {priced + refused}"
        rng = random.Random(where)
        inputs = draw(rng)
        switches = rng.choice((NEWEST, NEWEST, REFERENCE))
        judged = judge(inputs, switches)
        try:
            kernel = pykernel.Kernel(inputs, switches=switches)
        except RefusedError as error:
            assert judged is None, (where, "only the kernel refuses", str(error))
            refused += 1
            continue
        except DocumentError as error:
            raise AssertionError((where, "the generator drew an invalid document", str(error))) from error
        assert judged is not None, (where, "only the oracle refuses")
        for _ in range(batches):
            compare(kernel, judged, random_batch(rng, inputs), where)
        priced += 1
    return refused


def test_kernel_and_oracle_agree_on_random_deployments() -> None:
    refused = agree(deployments=400, batches=50, seed=SEED)
    assert refused > 50, "the generator should draw deployments that are refused as well"


@pytest.mark.slow
def test_kernel_and_oracle_agree_on_many_deployments() -> None:
    agree(deployments=20_000, batches=10, seed=SEED + 1)
