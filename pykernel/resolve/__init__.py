"""What the engine would really run for a set of documents, and with which numbers it is priced.

`resolve` turns `Inputs` into a `Resolved`: layout, formats, engine settings and coefficients with nothing left open,
and a record of every setting it filled in or overrode. It prices nothing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from pykernel.documents import Inputs, Pool, Rules
from pykernel.documents.inputs import require_valid
from pykernel.errors import ArgumentError, RefusedError
from pykernel.interface import CoefficientOrigin, Resolution
from pykernel.resolve.caches import Caches, resolve_caches
from pykernel.resolve.coefficients import Target, select
from pykernel.resolve.context_parallel import (
    DecodeContext,
    check_context_parallel,
    context_chunk,
    resolve_decode_context,
)
from pykernel.resolve.engine import (
    ENGINE_BEHAVIOUR_COMMIT,
    ENGINE_BEHAVIOUR_VERSION,
    EngineSettings,
    data_center_blackwell,
    record_engine_version,
    resolve_cascade,
    resolve_engine,
)
from pykernel.resolve.experts import ExpertPlacement, place_experts
from pykernel.resolve.laws import Laws, lift_laws
from pykernel.resolve.layout import Layout, resolve_layout
from pykernel.resolve.memory import MemoryFacts, resolve_memory
from pykernel.resolve.model_facts import ModelFacts, model_facts
from pykernel.resolve.precision import Precision, resolve_precision
from pykernel.resolve.record import KERNEL_ASSUMPTION_SET, Record
from pykernel.resolve.sparse_backend import resolve_sparse_cache
from pykernel.resolve.transfers import Links, resolve_links
from pykernel.resolve.unpriced import refuse_unpriced

__all__ = [
    "ENGINE_BEHAVIOUR_COMMIT",
    "ENGINE_BEHAVIOUR_VERSION",
    "KERNEL_ASSUMPTION_SET",
    "Resolved",
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
    experts: ExpertPlacement | None
    laws: Laws
    memory: MemoryFacts
    caches: Caches
    links: Links
    resolution: Resolution
    provenance: tuple[CoefficientOrigin, ...]


def resolve(inputs: Inputs) -> Resolved:
    """Resolve one pool of one deployment.

    Raises `ArgumentError` for inputs that are missing or a pool that does not exist, `DocumentError` for documents
    that do not validate, `RefusedError` for a deployment that the engine would not start or that is not priced.
    The first fault decides, in the order of the steps below.
    """
    rules = _checked_rules(inputs)
    require_valid(inputs)
    record = Record()
    pool = copy.deepcopy(inputs.deployment.pools[inputs.pool])
    chip, engine = inputs.chip, pool.engine
    layout = resolve_layout(inputs.scenario.cluster, pool.parallel, engine, chip, inputs.fabric, rules, record)
    target = Target(chip.name, inputs.model.name, layout.tp, layout.ep, layout.nodes_spanned)
    coefficients = select(inputs.coefficients, target, record)
    facts = model_facts(inputs.model)
    precision = resolve_precision(inputs.model, facts, engine, chip)
    refuse_unpriced(inputs.model, engine)
    _check_heads(facts, layout)
    settings = resolve_engine(engine, chip, layout, facts, precision, record)
    check_context_parallel(facts, engine, layout, settings.graphs.mode)
    context = resolve_decode_context(
        inputs.deployment, engine, layout, rules, settings.block_size, settings.block_is_final, record
    )
    laws = lift_laws(coefficients, chip, layout, precision, facts, settings, context.combine)
    links = resolve_links(
        inputs.storage, chip, inputs.fabric, layout, laws.collectives["alltoall", "expert"], coefficients
    )
    memory = resolve_memory(coefficients, chip, engine, layout, facts, settings, inputs.model.global_.hidden_size)
    chunk = context_chunk(engine, settings.max_num_seqs, settings.block_size, layout, context.interleave)
    if layout.dcp > 1 and facts.latent and not engine.max_model_len:
        record.assume("mla_context_chunk", chunk, "max_model_len is not stated, which would bound it")
    if facts.dsa:
        heads = max(node.n_q for node in facts.attentions if node.kind == "sparse_mla")
        precision = replace(
            precision, cache_format=resolve_sparse_cache(engine, chip, layout, heads, context.combine, record)
        )
    experts = place_experts(facts.priced_kinds(settings.draft_tokens > 0), engine, layout)
    caches = resolve_caches(
        inputs.model,
        facts,
        layout,
        precision,
        settings.block_size,
        settings.draft_tokens,
        settings.recurrent_cache_mode,
    )
    cascade = resolve_cascade(engine, record)
    record_engine_version(inputs.scenario.engine_version, record)
    return Resolved(
        pool=pool,
        sm_count=chip.sm_count,
        # FlashAttention takes both in one launch; FlashInfer, which the engine runs on data-center Blackwell, and the
        # latent backends launch once for each (vllm/platforms/cuda.py at v0.31.0).
        one_mixed_launch=not data_center_blackwell(chip) and layout.dcp == 1,
        facts=facts,
        layout=layout,
        precision=precision,
        settings=settings,
        context=context,
        context_chunk=chunk,
        experts=experts,
        laws=laws,
        memory=memory,
        caches=caches,
        links=links,
        resolution=Resolution(
            tensor_parallel_width=layout.tp,
            data_parallel_width=layout.dp,
            expert_parallel_width=layout.ep,
            all_reduce_backend=layout.all_reduce_backend,
            async_scheduling=engine.async_scheduling is not False,
            cascade_attention=cascade,
            sequence_parallel_moe=layout.sequence_parallel_moe,
            overrides=tuple(record.overrides),
        ),
        provenance=(*coefficients.origins(), *record.assumptions),
    )


def _checked_rules(inputs: Inputs) -> Rules:
    """The rules pack, once nothing is missing; a caller's mistake is reported before any defect of a document."""
    needed = ("scenario", "deployment", "model", "chip")
    missing = [name for name in needed if getattr(inputs, name) is None]
    if missing:
        raise ArgumentError(f"{', '.join(missing)} is missing; a kernel needs {', '.join(needed)}")
    pools = len(inputs.deployment.pools)
    if not isinstance(inputs.pool, int) or not 0 <= inputs.pool < pools:
        raise ArgumentError(f"pool {inputs.pool!r} does not exist; the deployment has {pools}, counted from 0")
    if inputs.rules is None:
        raise ArgumentError(f"the rules of engine_version {inputs.scenario.engine_version!r} are missing")
    return inputs.rules


def _check_heads(facts: ModelFacts, layout: Layout) -> None:
    """The engine splits query and mixer heads over the tensor-parallel ranks and starts only where they divide."""
    for kind in facts.kinds:
        heads = [(node.n_q, "query") for node in kind.nodes("Attention") if not node.role]
        heads += [(node.n_heads, "mixer") for node in kind.nodes("RecurrentUpdate")]
        for count, what in heads:
            if count % layout.tp:
                fitting = ", ".join(str(width) for width in range(1, count + 1) if count % width == 0)
                raise RefusedError(
                    f"tp is {layout.tp}, which does not divide the {count} {what} heads of layer kind {kind.kind.id}; "
                    f"widths that do: {fitting}",
                    "parallel.tp",
                )
