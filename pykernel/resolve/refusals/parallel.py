"""Refusals of parallel layouts: what does not divide, and what the laws or the engine lack."""

from __future__ import annotations

import math

from pykernel.resolve.case import Case
from pykernel.resolve.refusals.row import ENGINE, PRICE, REFERENCE, Refusal, listed, when

# ---- layout against the graph --------------------------------------------------------------------------------------


def _undivided(case: Case, op: str, key: str, what: str) -> str:
    for kind in case.facts.kinds:
        for node in kind.nodes(op):
            heads = getattr(node, key)
            if not node.role and heads % case.layout.tp:
                return f"tp is {case.layout.tp}, which does not divide the {heads} {what} heads of {kind.kind.id}"
    return ""


def _head_widths(case: Case) -> str:
    """The widths of tp that divide every layer's heads."""
    heads = [node.n_q for kind in case.facts.kinds for node in kind.nodes("Attention") if not node.role]
    heads += [node.n_heads for kind in case.facts.kinds for node in kind.nodes("RecurrentUpdate")]
    common = math.gcd(*heads)
    return f"widths that do: {listed(width for width in range(1, common + 1) if common % width == 0)}"


MOST_DRAFT_PASSES = 64
"""Passes of a speculator that the core prices in one step."""

LAYOUT = (
    Refusal(
        "pipeline-parallel",
        "parallel.pp",
        PRICE,
        "`pp` above 1",
        "pipeline parallelism has no law",
        "pp 1 with a wider tp has a price",
        REFERENCE,
        lambda case: when(case.pool.parallel.pp > 1, f"pp is {case.pool.parallel.pp}"),
        lambda case: f"the nearest with a price: pp 1 and tp {case.layout.tp * case.pool.parallel.pp}",
    ),
    Refusal(
        "speculator-layers",
        "model.speculator.stack",
        PRICE,
        "the deployment drafts with a speculator whose stack names a layer kind that the graph does not declare",
        "the graph does not declare it",
        "declare the layer kind, or leave out engine.speculative",
        REFERENCE,
        lambda case: when(
            bool(case.facts.undeclared_drafts),
            f"the speculator names layer kind {listed(case.facts.undeclared_drafts)}",
        ),
    ),
    Refusal(
        "draft-tokens",
        "engine.speculative.num_spec_tokens",
        PRICE,
        f"the deployment drafts more than {MOST_DRAFT_PASSES} tokens with the graph's speculator",
        "no engine drafts that many in a step",
        f"at most {MOST_DRAFT_PASSES} have a price",
        "pykernel",
        lambda case: when(
            case.drafting > MOST_DRAFT_PASSES and bool(case.facts.draft_kinds),
            f"num_spec_tokens is {case.drafting}",
        ),
    ),
    Refusal(
        "query-heads",
        "parallel.tp",
        ENGINE,
        "`tp` does not divide the query heads of a layer",
        "the engine splits whole heads over the ranks",
        "take a `tp` that divides them",
        "vllm/config/model.py",
        lambda case: _undivided(case, "Attention", "n_q", "query"),
        _head_widths,
    ),
    Refusal(
        "mixer-heads",
        "parallel.tp",
        ENGINE,
        "`tp` does not divide the heads of a recurrent mixer",
        "the engine splits whole heads over the ranks",
        "take a `tp` that divides them",
        "vllm/model_executor/layers/mamba/mamba_utils.py",
        lambda case: _undivided(case, "RecurrentUpdate", "n_heads", "mixer"),
        _head_widths,
    ),
    Refusal(
        "dual-batch-overlap",
        "engine.dbo.enable_dbo",
        PRICE,
        "`dbo.enable_dbo` is true",
        "a step split in two overlapping halves has no law",
        "leave it out or state false",
        "vllm/v1/worker/ubatch_utils.py",
        lambda case: when(
            case.engine.dbo is not None and case.engine.dbo.enable_dbo, "dual-batch overlap is switched on"
        ),
    ),
)

# ---- experts -------------------------------------------------------------------------------------------------------

EXPERTS = (
    Refusal(
        "experts",
        "parallel.enable_expert_parallel",
        ENGINE,
        "the expert-parallel width exceeds the experts of a layer, replicas included",
        "some rank would hold none",
        "a width up to the number of experts",
        "vllm/model_executor/layers/fused_moe/expert_map_manager.py",
        lambda case: when(
            0 < case.fewest_experts < case.layout.ep,
            f"expert-parallel width {case.layout.ep} exceeds the {case.fewest_experts} experts of a layer",
        ),
        lambda case: f"the widest that works is {case.fewest_experts}",
    ),
)
