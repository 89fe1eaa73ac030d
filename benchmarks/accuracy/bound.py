"""How near to some rows any serving constants could come, whatever rows they were fitted to.

    python -m benchmarks.accuracy.bound --rows measured.csv --split val --backend sglang

The kernels' prices and their scale stay; of all non-negative host constants it finds those that miss these very rows
least, in the group-macro MAPE of TPOT. What then remains is in the kernels, or in how the rows were run. It is no fit:
nothing is kept of it, and rows that chose their own constants judge none. Needs numpy, scipy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from benchmarks.accuracy.constants import KERNELS, LAYERS, NORMS, PROMPT_LAYERS, PROMPT_TOKENS, REQUESTS, STEPS, sums_of
from benchmarks.accuracy.rows import read_rows
from benchmarks.accuracy.simulator import Floats
from pykernel.measured.laws import host_constants

HOST = (LAYERS, PROMPT_LAYERS, PROMPT_TOKENS, STEPS, REQUESTS)


def least_errors(kernels: Floats, host: Floats, measured: Floats, weights: Floats) -> Floats:
    """Relative errors of each row (first axis) under the constants, one for each column of `host`, that make the
    weighted sum of their absolute values least."""
    count, constants = host.shape
    shares, missing = host / measured[:, None], 1 - kernels / measured
    found = linprog(
        np.concatenate([np.zeros(constants), weights]),
        A_ub=np.block([[shares, -np.eye(count)], [-shares, -np.eye(count)]]),
        b_ub=np.concatenate([missing, -missing]),
        bounds=(0, None),
    )
    return np.asarray(shares @ found.x[:constants] - missing)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.bound", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True, metavar="FILE")
    parser.add_argument("--split", default="val")
    parser.add_argument("--backend", required=True)
    options = parser.parse_args(argv)
    rows = [row for row in read_rows(options.rows, options.split) if row.backend == options.backend]
    if not rows:
        parser.error(f"{options.rows}: no rows of {options.backend} in the split {options.split}")
    groups = [row.group for row in rows]
    weights = np.array([1 / groups.count(group) for group in groups])
    sums = sums_of(rows).tpot
    kernels = host_constants("vllm").values["kernel_scale"] * sums[:, KERNELS] + sums[:, NORMS]
    measured = np.array([row.tpot_ms for row in rows]) * 1e-3
    errors = least_errors(kernels, sums[:, HOST], measured, weights)
    means = {group: float(np.abs(errors[[g == group for g in groups]]).mean()) for group in sorted(set(groups))}
    for group, mean in means.items():
        print(f"{' '.join(group):44s} {100 * mean:5.1f} %")
    print(f"least group-macro TPOT MAPE of any host constants: {100 * sum(means.values()) / len(means):.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
