"""Measured serving rows, and the deployment that each describes as documents a cost model is built from."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.accuracy.catalog import WEIGHT_ONLY, graph_of, part_of
from benchmarks.accuracy.cells import Cells, read_cells
from pykernel.documents import (
    Cluster,
    Deployment,
    Engine,
    Inputs,
    ModelGraph,
    Parallel,
    Pool,
    Repos,
    Scenario,
)
from pykernel.documents import coefficients as coefficient_files
from pykernel.documents.hardware import Fabric, load_fabric
from pykernel.documents.rules import rules
from pykernel.errors import ArgumentError

ENGINE_VERSION = "0.29.0"
"""The rules pack that all rows are resolved with; their engines are older."""

SETS = (
    "cost-model-primitives",
    "cost-model-collectives",
    "cost-model-host-overheads",
    "cost-model-attention",
    "cost-model-recurrent",
    "cost-model-memory",
)

DEFAULT_BUDGET = 8192
"""Tokens of a step where a row states none."""

CACHES = ("auto", "bf16", "bfloat16", "fp16", "float16")
"""Names of a cache in the model's own 16 bits."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. Times in milliseconds; `concurrency` is that of the whole deployment."""

    id: str
    split: str
    model: str
    precision: str
    system: str
    backend: str
    version: str
    source: str
    isl: int
    osl: int
    isl_mean: float
    osl_mean: float
    concurrency: int
    tp: int
    pp: int
    dp: int
    ep: int
    kv: str
    budget: int
    ttft_ms: float
    tpot_ms: float

    @property
    def group(self) -> tuple[str, str, str, str]:
        return self.backend, self.system, self.model, self.precision

    @property
    def published(self) -> bool:
        """Whether it is an InferenceX run, which also shows in the lengths drawn below the nominal ones."""
        return self.source.startswith("IX") or self.isl_mean < self.isl

    @property
    def rank_concurrency(self) -> int:
        """Requests of one step of an attention rank. A pipeline runs as many batches as stages, each through all of
        them in turn, so a request sees the step of the whole model on its share of the requests."""
        return max(round(self.concurrency / (self.dp * self.pp)), 1)

    @property
    def deployment(self) -> tuple[object, ...]:
        """What a cost model depends on: rows that share it share a kernel."""
        return (
            self.backend, self.system, self.model, self.precision, self.tp, self.dp, self.ep, self.kv,
            self.budget, self.asynchronous,
        )  # fmt: skip

    @property
    def asynchronous(self) -> bool:
        """Whether the engine prepares a step while the one before runs: vLLM since 0.14, and the other two engines."""
        release = re.match(r"v?(\d+)\.(\d+)", self.version)
        return self.backend != "vllm" or not release or (int(release[1]), int(release[2])) >= (0, 14)


COLUMNS = (
    "id", "split", "model", "prec", "system", "backend", "backend_version", "isl", "osl", "isl_mean", "osl_mean", "C",
    "tp", "dp", "ep", "kv", "mbt", "silicon_ttft_ms", "silicon_tpot_ms",
)  # fmt: skip


def read_rows(path: str | Path, split: str = "") -> list[Row]:
    """The rows of a file with the columns of `measured.csv`, of one split or of all; other columns are ignored.

    Raises `ArgumentError` with the line and the column that cannot be read, `OSError` where there is no file.
    """
    rows = [_row(cells) for cells in read_cells(path, COLUMNS)]
    return [row for row in rows if not split or row.split == split]


def _row(cells: Cells) -> Row:
    isl, osl = cells.whole("isl"), cells.whole("osl")
    return Row(
        id=cells.text("id"),
        split=cells.text("split", ""),
        model=cells.text("model"),
        precision=cells.text("prec").lower(),
        system=cells.text("system").lower(),
        backend=cells.text("backend").lower(),
        version=cells.text("backend_version", ""),
        source=cells.text("src", ""),
        isl=isl,
        osl=osl,
        isl_mean=cells.number("isl_mean", isl),
        osl_mean=cells.number("osl_mean", osl),
        concurrency=cells.whole("C"),
        tp=cells.whole("tp", 1),
        pp=cells.whole("pp", 1),
        dp=cells.whole("dp", 1),
        ep=cells.whole("ep", 1),
        kv=cells.text("kv", "auto").lower(),
        budget=cells.whole("mbt", DEFAULT_BUDGET),
        ttft_ms=cells.number("silicon_ttft_ms", math.nan),
        tpot_ms=cells.number("silicon_tpot_ms"),
    )


# ---- documents -------------------------------------------------------------------------------------------------


def inputs_of(row: Row) -> Inputs:
    """The documents of a row's deployment. Raises `ArgumentError` for a part, model or format that is not known."""
    chip = part_of(row.system)
    model = graph_of(row.model, row.precision)
    per_node = chip.gpus_per_node or 8
    nodes = -(-row.tp * row.dp // per_node)
    fabric = _fabric() if nodes > 1 else None
    scenario = Scenario(
        kind="Scenario",
        name="row",
        model=model.name,
        coefficients=list(SETS),
        engine_version=ENGINE_VERSION,
        cluster=Cluster(
            hardware=chip.name,
            nodes=nodes,
            gpus_per_node=per_node,
            fabric=fabric.name if fabric else "",
            gpus_per_rack=chip.gpus_per_rack,
        ),
    )
    engine = Engine(
        quantization=_quantization(row, model),
        cache_dtype=_cache_dtype(row),
        max_num_batched_tokens=row.budget,
        async_scheduling=None if row.asynchronous else False,
    )
    parallel = Parallel(tp=row.tp, pp=1, dp=row.dp, enable_expert_parallel=row.ep > 1)
    pool = Pool(role="colocated", nodes=nodes, parallel=parallel, engine=engine)
    deployment = Deployment(kind="Deployment", name="row", pools=[pool])
    return Inputs(
        scenario, deployment, 0, model, chip, fabric, [], list(_sets()), rules=rules(ENGINE_VERSION)
    )  # fmt: skip


def _cache_dtype(row: Row) -> str:
    if row.kv.startswith("fp8"):
        return "fp8"
    if row.kv in CACHES:
        return "auto"
    raise ArgumentError(f"no cache format is known as {row.kv}; known are {', '.join(CACHES)} and fp8")


def _quantization(row: Row, model: ModelGraph) -> str:
    mixed = any(node.weight_dtype in ("mxfp4", "nvfp4") for kind in model.layer_kinds for node in kind.nodes)
    if row.precision.startswith("fp8"):
        return "" if model.global_.weight_dtype == "fp8" else "fp8"
    if "fp4" in row.precision:
        return "" if mixed or model.global_.weight_dtype == "nvfp4" else "nvfp4"
    if row.precision in WEIGHT_ONLY:
        return ""
    raise ArgumentError(f"no precision is known as {row.precision}; known are fp8, fp4 and {', '.join(WEIGHT_ONLY)}")


@cache
def _fabric() -> Fabric:
    """Between nodes, which no row names: the fastest of the catalog."""
    return load_fabric(Repos().catalog_root() / "networks" / "ib-400g.yaml")


@cache
def _sets() -> tuple[coefficient_files.CoefficientSet, ...]:
    root = Repos().registry_root() / "coefficients"
    return tuple(coefficient_files.load(root / f"{name}.yaml") for name in SETS)
