"""Which tables there are, and the measured launches of each operation of a part in them.

What the columns of a table mean is known to `pykernel.fit`, which reads the same tables for the fitted laws. A table is
read once for all models of a process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache

from pykernel.errors import ArgumentError, RefusedError
from pykernel.fit.families import expert_sampler, targets
from pykernel.fit.robust import Sample
from pykernel.fit.tables import DISTRIBUTION, PARTS, Tables, find_tables

VARIABLE = "PYKERNEL_TABLES"
"""Names the directory of the tables; without it they are those of the installed package aiconfigurator-core."""

ROUTING = "power_law_1.2"
"""Distribution of tokens over experts that expert tables are taken at, `balanced` where there is none of it."""

FOLDERS = {part: folder for folder, part in PARTS.items()}

STAND_INS = {
    ("gemm", "fp8"): ("gemm", "fp8_block"),
    ("gemm", "fp8_block"): ("gemm", "fp8"),
    ("experts", "fp8"): ("experts", "fp8_block"),
    ("experts", "fp8_block"): ("experts", "fp8"),
    ("experts", "nvfp4"): ("experts", "mxfp4"),
    ("experts", "mxfp4"): ("experts", "int4"),
    ("experts", "int4"): ("experts", "mxfp4"),
    ("prefill", "fp8"): ("prefill", "bf16"),
    ("latent_prefill", "fp8"): ("latent_prefill", "bf16"),
    ("all_reduce", "graph"): ("all_reduce", "nccl"),
    **{
        (f"{kind}_{phase}", "bf16"): (f"gdn_{phase}", "bf16")
        for kind in ("kda", "mamba2")
        for phase in ("decode", "prefill")
    },
}
"""Where an operation in a format was not measured: one that reads as many bytes and computes in as wide a format."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The launches of one operation in one format; `operation` and `format` as found, which may be a stand-in."""

    operation: str
    format: str
    sample: Sample

    @property
    def name(self) -> str:
        return f"{self.operation} in {self.format}"


def tables_at(path: str | None = None) -> Tables:
    """The tables in a directory: the stated one, else that of the environment, else the installed package's.

    Raises `RefusedError` where there are none.
    """
    stated = path or os.environ.get(VARIABLE)
    try:
        return replace(find_tables(stated), every_kernel=True)  # engines choose a kernel by shape
    except ArgumentError as error:
        if stated:
            raise RefusedError(f"the model interpolated: {error}", "tables") from None
        raise RefusedError(
            f"the model interpolated needs measured tables; name a directory in {VARIABLE}, or pip install --no-deps "
            f"{DISTRIBUTION}==0.12.0",
            "tables",
        ) from None


def measured(tables: Tables, chip: str, operation: str, format_: str) -> Measured:
    """The launches of an operation on a part, or of what stands in. Raises `RefusedError` where there are neither."""
    folder = FOLDERS.get(chip, chip)
    for name in ((operation, format_), STAND_INS.get((operation, format_))):
        sample = _sample(tables, folder, *name) if name else None
        if name and sample is not None:
            return Measured(*name, sample)
    raise RefusedError(
        f"the model interpolated found no table of {operation} in {format_} for {chip} under {tables.root / folder}",
        "cluster.hardware",
    )


@lru_cache(maxsize=256)
def _sample(tables: Tables, folder: str, operation: str, format_: str) -> Sample | None:
    if operation == "experts":
        routed = expert_sampler(format_, ROUTING)(tables, folder)
        return routed or expert_sampler(format_, "balanced")(tables, folder)
    found = (one for one in targets() if (one.primitive, one.suffix) == (operation, format_))
    target = next(found, None)
    return target.sample(tables, folder) if target else None
