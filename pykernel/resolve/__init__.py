"""What the engine would really run for a set of documents, and with which numbers it is priced.

`resolve` turns `Inputs` into a `Resolved`: layout, formats, engine settings and coefficients with nothing left open,
and a record of every setting it filled in or overrode. It prices nothing. Each stage computes values, then the table of
that stage in `refusals` judges them; `examine` walks the same stages and notes every refusal instead of the first.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from pykernel.documents import Inputs, Pool, Rules
from pykernel.documents.inputs import require_valid
from pykernel.documents.nodes import shown
from pykernel.errors import ArgumentError, RefusedError
from pykernel.interface import CoefficientOrigin, Resolution
from pykernel.resolve import refusals
from pykernel.resolve.caches import Caches, resolve_caches
from pykernel.resolve.case import Case
from pykernel.resolve.coefficients import Target, select
from pykernel.resolve.context_parallel import DecodeContext, context_chunk, resolve_decode_context
from pykernel.resolve.decode_path import decode_threshold
from pykernel.resolve.disclosures import record_disclosures
from pykernel.resolve.engine import (
    ENGINE_BEHAVIOUR_COMMIT,
    ENGINE_BEHAVIOUR_VERSION,
    EngineSettings,
    data_center_blackwell,
    resolve_engine,
)
from pykernel.resolve.experts import ExpertPlacement, place_experts
from pykernel.resolve.laws import Laws, lift_laws
from pykernel.resolve.layout import Layout, resolve_layout
from pykernel.resolve.memory import MemoryFacts, memory_names, resolve_memory
from pykernel.resolve.model_facts import ModelFacts, model_facts
from pykernel.resolve.precision import Precision, resolve_precision
from pykernel.resolve.record import KERNEL_ASSUMPTION_SET, Record
from pykernel.resolve.sparse_backend import choose_sparse_backend
from pykernel.resolve.sweeps import find_sweeps
from pykernel.resolve.transfers import Links, resolve_links

__all__ = [
    "ENGINE_BEHAVIOUR_COMMIT",
    "ENGINE_BEHAVIOUR_VERSION",
    "KERNEL_ASSUMPTION_SET",
    "Examination",
    "Resolved",
    "examine",
    "resolve",
]


@dataclass(frozen=True, slots=True)
class Resolved:
    """One pool of one deployment, resolved. Holds no reference to a document but its own copy of the pool."""

    pool: Pool
    sm_count: int
    one_mixed_launch: bool
    """Whether full attention takes the prefills and decodes of a step in one launch."""
    facts: ModelFacts
    layout: Layout
    precision: Precision
    settings: EngineSettings
    context: DecodeContext
    context_chunk: int
    """Tokens of prefix that latent attention gathers at once."""
    decode_threshold: int
    """Tokens up to which the attention backend takes a request as a decode."""
    experts: ExpertPlacement | None
    laws: Laws
    memory: MemoryFacts
    caches: Caches
    links: Links
    resolution: Resolution
    provenance: tuple[CoefficientOrigin, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything that resolution has to say about one pool: every refusal, or what it resolves to."""

    case: Case
    refusals: tuple[RefusedError, ...]
    resolved: Resolved | None
    """None where something is refused."""


def resolve(inputs: Inputs) -> Resolved:
    """Resolve one pool of one deployment.

    Raises `ArgumentError` for inputs that are missing or a pool that does not exist, `DocumentError` for documents
    that do not validate, `RefusedError` for a deployment that the engine would not start or that is not priced.
    The first fault decides, in the order of the tables in `refusals`.
    """
    record = Record()
    return _finish(_judge(inputs, record), record)


def examine(inputs: Inputs) -> Examination:
    """As `resolve`, but with every refusal at once; raises only for what comes before resolution."""
    record = Record(collecting=True)
    case = _judge(inputs, record)
    found = tuple(record.refusals)
    return Examination(case, found, None if found else _finish(case, record))


def _judge(inputs: Inputs, record: Record) -> Case:
    """Fill in the case stage by stage, each stage judged by its table."""
    rules = _checked_rules(inputs)
    require_valid(inputs)
    pool = copy.deepcopy(inputs.deployment.pools[inputs.pool])
    chip, engine = inputs.chip, pool.engine
    layout = resolve_layout(inputs.scenario.cluster, pool.parallel, engine, chip, inputs.fabric, rules)
    target = Target(chip.name, inputs.model.name, layout.tp, layout.ep, layout.nodes_spanned)
    case = Case(inputs, rules, pool, model_facts(inputs.model, engine), layout, select(inputs.coefficients, target))
    known = record.check(refusals.SCOPE, case)
    record.check(refusals.FORMATS, case)
    case.precision = resolve_precision(inputs.model, engine, chip)
    record.check(refusals.LAYOUT, case)
    case.settings = resolve_engine(engine, chip, layout, case.facts, case.precision)
    record.check(refusals.CACHES, case)
    case.context = resolve_decode_context(inputs.deployment, engine, layout, case.settings.block_size)
    record.check(refusals.CONTEXT, case)
    case.sweeps = find_sweeps(case.coefficients, layout, case.context.combine, chip.name)
    if known:
        record.check(refusals.LAWS, case)
    record.check(refusals.GRAPHS, case)
    record.check(refusals.EXPERTS, case)
    if case.facts.dsa:
        case.sparse = choose_sparse_backend(engine, chip, layout, case.query_heads)
    record.check(refusals.SPARSE, case)
    case.memory_names = memory_names(case.coefficients, layout, case.facts, case.settings.graphs.mode)
    if known:
        record.check(refusals.MEMORY, case)
    return case


def _finish(case: Case, record: Record) -> Resolved:
    """The result for a case that nothing refuses, with what it discloses."""
    engine, layout, settings = case.engine, case.layout, case.settings
    case.context_chunk = context_chunk(
        engine, settings.max_num_seqs, settings.block_size, layout, case.context.interleave
    )
    if case.sparse:
        case.precision = replace(case.precision, cache_format=case.sparse.cache_format)
    record_disclosures(case, record)
    laws = lift_laws(case)
    return Resolved(
        pool=case.pool,
        sm_count=case.chip.sm_count,
        # FlashAttention takes both in one launch; FlashInfer, which the engine runs on data-center Blackwell, and the
        # latent backends launch once for each (vllm/platforms/cuda.py at v0.31.0).
        one_mixed_launch=not data_center_blackwell(case.chip) and layout.dcp == 1,
        facts=case.facts,
        layout=layout,
        precision=case.precision,
        settings=settings,
        context=case.context,
        context_chunk=case.context_chunk,
        decode_threshold=decode_threshold(case),
        experts=place_experts(case.facts.priced_kinds, engine, layout),
        laws=laws,
        memory=resolve_memory(
            case.coefficients, case.chip, engine, layout, case.facts, settings, case.model.global_.hidden_size
        ),
        caches=resolve_caches(
            case.model,
            case.facts,
            layout,
            case.precision,
            settings.block_size,
            settings.draft_tokens,
            settings.recurrent_cache_mode,
        ),
        links=resolve_links(
            case.inputs.storage,
            case.chip,
            case.inputs.fabric,
            layout,
            laws.collectives["alltoall", "expert"],
            case.coefficients,
        ),
        resolution=Resolution(
            tensor_parallel_width=layout.tp,
            data_parallel_width=layout.dp,
            expert_parallel_width=layout.ep,
            all_reduce_backend=layout.all_reduce_backend,
            async_scheduling=engine.async_scheduling is not False,
            # Never: vllm/v1/worker/gpu/attn_utils.py at v0.31.0 passes an empty common prefix to every backend.
            cascade_attention=False,
            sequence_parallel_moe=layout.sequence_parallel_moe,
            overrides=tuple(record.overrides),
        ),
        provenance=(*case.coefficients.origins(), *record.assumptions),
    )


def _checked_rules(inputs: Inputs) -> Rules:
    """The rules pack, once nothing is missing; a caller's mistake is reported before any defect of a document."""
    needed = ("scenario", "deployment", "model", "chip")
    missing = [name for name in needed if getattr(inputs, name) is None]
    if missing:
        raise ArgumentError(f"{', '.join(missing)} is missing; a kernel needs {', '.join(needed)}")
    pools = getattr(inputs.deployment, "pools", None)
    if isinstance(pools, (list, tuple)) and not (isinstance(inputs.pool, int) and 0 <= inputs.pool < len(pools)):
        raise ArgumentError(f"pool {inputs.pool!r} does not exist; the deployment has {len(pools)}, counted from 0")
    if inputs.rules is None:
        version = getattr(inputs.scenario, "engine_version", None)
        raise ArgumentError(f"the rules of engine_version {version!r} are missing")
    if not hasattr(inputs.rules, "sequence_parallel_moe"):
        raise ArgumentError(f"rules is {shown(inputs.rules)}; accepted: a rules pack, as pykernel.rules gives one")
    return inputs.rules
