"""Engine settings as vLLM 0.31.0 would fill them in: block size, scheduler limits, CUDA graphs.

Values only: what is refused is in `refusals`, what is disclosed of a value in `disclosures`. A setting that is refused
resolves as if it were not stated, so that everything else about the deployment can still be judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Chip, Engine
from pykernel.resolve.caches import aligned_block
from pykernel.resolve.layout import Layout
from pykernel.resolve.model_facts import ModelFacts
from pykernel.resolve.precision import Precision

ENGINE_BEHAVIOUR_VERSION = "0.31.0"
ENGINE_BEHAVIOUR_COMMIT = "db9527a46873454610df6dbedf79a36d6bf1a7f6"

PRE_HOPPER = frozenset({"a100-80", "a100-sxm", "l40s"})

GRAPH_MODES: dict[str, tuple[str, str]] = {
    "NONE": ("NONE", "NONE"),
    "PIECEWISE": ("PIECEWISE", "PIECEWISE"),
    "FULL": ("FULL", "FULL"),
    "FULL_DECODE_ONLY": ("FULL", "NONE"),
    "FULL_AND_PIECEWISE": ("FULL", "PIECEWISE"),
}
"""Graph of a uniform decode batch and of any other batch, by mode (vllm/config/compilation.py at v0.31.0)."""

DEFAULT_GRAPH_MODE = "FULL_AND_PIECEWISE"

WIDEST_CAPTURE = 1 << 20  # tokens; far beyond any real graph, it bounds the list of sizes below it
_LOW_LATENCY_BACKENDS = frozenset({"deepep_low_latency", "nixl_ep"})
_LOW_LATENCY_BUDGET = 256


@dataclass(frozen=True, slots=True)
class Graphs:
    """CUDA graphs of a deployment: the mode by name, what it means for a batch, and the widest captured step."""

    mode: str
    uniform: str
    other: str
    uniform_width: int
    capture_tokens: int


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Engine settings with nothing left unset. Sizes in tokens, `max_num_seqs` in sequences."""

    block_size: int
    block_reason: str
    """Why an unstated block has this size."""
    block_is_final: bool
    """Whether the engine runs exactly this block: it may still raise one that was chosen for, or with, a hybrid."""
    max_num_seqs: int
    max_num_batched_tokens: int
    draft_tokens: int
    recurrent_cache_mode: str
    graphs: Graphs


def data_center_blackwell(chip: Chip) -> bool:
    """Compute capability 10.x, which a chip document shows by a native NVFP4 peak."""
    return chip.tflops_nvfp4 > 0


def pre_hopper(chip: Chip) -> bool:
    """Compute capability below 9.0, which a chip document shows by its name alone."""
    return chip.name.lower() in PRE_HOPPER


def resolve_engine(
    engine: Engine, chip: Chip, layout: Layout, facts: ModelFacts, precision: Precision
) -> EngineSettings:
    """The settings the engine would run with."""
    draft_tokens = engine.speculative.num_spec_tokens if engine.speculative else 0
    recurrent_mode = _recurrent_cache_mode(engine, facts)
    default_block, why = _default_block(chip, layout, facts, precision, draft_tokens, recurrent_mode)
    budget, sequences = _scheduler_limits(engine, chip, layout)
    mode = _graph_mode(engine, layout, facts)
    return EngineSettings(
        block_size=engine.block_size or default_block,
        block_reason=why,
        block_is_final=not facts.recurrent_kinds and bool(engine.block_size or facts.dsa),
        max_num_seqs=sequences,
        max_num_batched_tokens=budget,
        draft_tokens=draft_tokens,
        recurrent_cache_mode=recurrent_mode,
        graphs=_graphs(mode, engine, chip, budget, sequences, 1 + draft_tokens),
    )


# ---- caches ----------------------------------------------------------------------------------------------------

RECURRENT_CACHE_MODES = ("none", "align", "all")
DSA_BLOCK = 64


def _recurrent_cache_mode(engine: Engine, facts: ModelFacts) -> str:
    """How recurrent state is kept (vllm/model_executor/models/config.py at v0.31.0)."""
    stated = engine.mamba_cache_mode
    caching = engine.enable_prefix_caching is not False
    if facts.recurrent_kinds and caching and stated in ("", "none"):
        return "align"
    return stated or "none"


def _default_block(
    chip: Chip, layout: Layout, facts: ModelFacts, precision: Precision, draft_tokens: int, recurrent_mode: str
) -> tuple[int, str]:
    """The page of a deployment that states none: what its attention backend asks for, raised for a hybrid."""
    size, why = _backend_block(chip, facts, precision.cache_element_bytes)
    # In mode `all` the engine aligns to the mixer's chunk instead, which no graph states.
    aligned = size if recurrent_mode == "all" else aligned_block(size, facts, layout, precision, draft_tokens)
    if aligned != size:
        why = f"{size} tokens raised until a page of attention holds one of recurrent state"
    return aligned, why


def _backend_block(chip: Chip, facts: ModelFacts, cache_element_bytes: float) -> tuple[int, str]:
    """The page the attention backend asks for (vllm/platforms/interface.py and cuda.py at v0.31.0)."""
    if not facts.dsa and any(node.compress_ratio > 1 for node in facts.attentions):
        return 256, "compressed latent caches take pages of 256 tokens"
    if facts.sparse_latent_width:
        return DSA_BLOCK, f"the sparse attention backends take pages of {DSA_BLOCK} tokens"
    if "mla" in facts.attention_kinds:
        if data_center_blackwell(chip):
            return 32, "latent attention runs on FlashInfer, which takes pages of 32 tokens"
        if not pre_hopper(chip) and cache_element_bytes < 2:
            return 64, "latent attention with an 8-bit cache runs on FlashMLA, which takes pages of 64 tokens"
    return 16, "every attention backend of this model takes pages of 16 tokens"


# ---- scheduler limits ------------------------------------------------------------------------------------------


def _scheduler_limits(engine: Engine, chip: Chip, layout: Layout) -> tuple[int, int]:
    """Token budget and sequence cap of a step (vllm/engine/arg_utils.py at v0.31.0, API server).

    Only unstated values are adjusted: a low-latency dispatch caps the budget, the budget never exceeds what the
    sequences could fill, and there are never more sequences than budget.
    """
    budget, sequences = _limits_by_memory(chip)
    if engine.all2all_backend in _LOW_LATENCY_BACKENDS and layout.expert_parallel and layout.dp > 1:
        budget = _LOW_LATENCY_BUDGET
    sequences = engine.max_num_seqs or sequences
    if engine.max_num_batched_tokens:
        budget = engine.max_num_batched_tokens
    elif engine.max_model_len:
        budget = min(budget, sequences * engine.max_model_len)
    if not engine.max_num_seqs:
        sequences = min(sequences, budget)
    return budget, sequences


def _limits_by_memory(chip: Chip) -> tuple[int, int]:
    if chip.memory_gib >= 160:
        return 16384, 1024
    if chip.memory_gib >= 70 and "a100" not in chip.name.lower():
        return 8192, 1024
    return 2048, 256


# ---- CUDA graphs -----------------------------------------------------------------------------------------------


def _graph_mode(engine: Engine, layout: Layout, facts: ModelFacts) -> str:
    if dispatch_forbids_graphs(engine, layout, facts):
        return "NONE"
    stated = engine.cudagraph_mode.upper()
    return stated if stated in GRAPH_MODES else DEFAULT_GRAPH_MODE


def dispatch_forbids_graphs(engine: Engine, layout: Layout, facts: ModelFacts) -> bool:
    """Whether the MoE dispatch cannot run inside the graphs of a compiled model (vllm/config/vllm.py at v0.31.0)."""
    dispatches = engine.all2all_backend == "deepep_high_throughput" and layout.dp > 1 and facts.experts > 0
    return dispatches and not facts.interruptible_graphs


def _graphs(mode: str, engine: Engine, chip: Chip, budget: int, sequences: int, width: int) -> Graphs:
    uniform, other = GRAPH_MODES[mode]
    ceiling = 0
    if mode != "NONE":
        platform = 1024 if data_center_blackwell(chip) else 512
        sizes = capture_sizes(
            sequences,
            budget,
            width,
            platform,
            stated=tuple(engine.cudagraph_capture_sizes),
            stated_maximum=engine.max_cudagraph_capture_size,
        )
        ceiling = max(sizes, default=0)
    return Graphs(mode, uniform, other, width, ceiling)


def capture_sizes(
    sequences: int,
    budget: int,
    width: int,
    platform: int,
    *,
    stated: tuple[int, ...] = (),
    stated_maximum: int = 0,
) -> list[int]:
    """Token counts for which the engine captures graphs, ascending (vllm/config/vllm.py at v0.31.0).

    Parameters
    ----------
    sequences, budget : `max_num_seqs` and `max_num_batched_tokens`.
    width : tokens of one request in a uniform decode, 1 and one more for each draft token.
    platform : widest graph by default, 1,024 on data-center Blackwell and 512 elsewhere.
    stated, stated_maximum : the user's own list or maximum; they are limited by the budget alone. A list decides over
        a maximum, which the engine wants to agree with it.
    """
    if stated:
        return sorted({size for size in stated if size <= budget})
    if stated_maximum:
        return _grid(min(stated_maximum, budget, WIDEST_CAPTURE))
    ceiling = min(2 * sequences * width, platform)
    sizes = set(_grid(min(budget, ceiling)))
    if budget <= ceiling:
        sizes.add(budget)
    if width == 1 and sequences <= ceiling:
        sizes.add(sequences)
    if width > 1:
        requests = {*_grid(min(sequences, platform)), min(sequences, platform)}
        sizes.update(count * width for count in requests if count * width <= ceiling)
    return sorted(size for size in sizes if size <= budget)


def _grid(top: int) -> list[int]:
    """1, 2, 4, then steps of 8 below 256, then steps of 16, up to and including `top`."""
    return [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16)) if size <= top]
