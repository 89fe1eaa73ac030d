"""`pykernel compile`: resolve a scenario once, and write the kernel to a file that C, C++ and Python load."""

from __future__ import annotations

import argparse

import pykernel
from pykernel.cli import UsageError
from pykernel.cli.options import add_pool_and_model, add_roots, repos

HELP = """\
The file is an image: what pk_kernel_load_file of the C library and pykernel.Kernel.load make a kernel of, on any
machine and without the documents. It carries where every number comes from. A scenario with several pools needs one
file a pool.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="SCENARIO", help="the path of a file, or the name of a scenario")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write, such as kernel.pkk")
    add_pool_and_model(parser)
    add_roots(parser)


def run(options: argparse.Namespace) -> int:
    inputs = pykernel.open_inputs(options.scenario, repos(options), options.pool)
    kernel = pykernel.new(inputs, model=options.model)
    if not isinstance(kernel, pykernel.Kernel):
        raise UsageError(f"--model: cost model {options.model} has no image; only kernels of the C core do")
    kernel.save(options.output)
    evidence, pool = kernel.evidence(), kernel.deployment()
    print(
        f"{options.output}: {inputs.scenario.name}, {pool.role} pool, {inputs.model.name} on {inputs.chip.name}; "
        f"{evidence.measured} of {evidence.total} entries have evidence"
    )
    return 0
