"""CUDA graphs and the host: limits that a deployment leaves unstated, capture sizes, launch time of a step."""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.documents import Chip, Inputs
from pykernel.errors import RefusedError

from .coefficients import Coefficients
from .exact import float_nanoseconds
from .formats import is_sm100
from .layout import Layout
from .plan import KindPlan
from .settings import Settings

# What runs for a uniform decode, and for any other batch.
MODES = {
    "FULL": ("full", "full"),
    "PIECEWISE": ("piecewise", "piecewise"),
    "FULL_AND_PIECEWISE": ("full", "piecewise"),
    "FULL_DECODE_ONLY": ("full", "eager"),
    "NONE": ("eager", "eager"),
}


@dataclass(frozen=True)
class Limits:
    """Sequences and tokens of one step, the rows of a uniform decode, and the largest graph the part captures."""

    sequences: int
    budget: int
    width: int
    largest_graph: int


def limits_of(inputs: Inputs, layout: Layout, settings: Settings) -> Limits:
    """Stated limits, else those that vllm v0.31.0 takes by the part's memory (API server) and fits to each other."""
    engine, chip = inputs.deployment.pools[inputs.pool].engine, inputs.chip
    sequences, budget = _by_memory(chip)
    small = engine.all2all_backend in ("deepep_low_latency", "nixl_ep") and layout.expert_parallel and layout.dp > 1
    if small and settings.engine_defaults:
        budget = 256
    sequences, budget = engine.max_num_seqs or sequences, engine.max_num_batched_tokens or budget
    if settings.engine_defaults and not engine.max_num_batched_tokens and engine.max_model_len > 0:
        budget = min(budget, sequences * engine.max_model_len)
    if settings.engine_defaults and not engine.max_num_seqs:
        sequences = min(sequences, budget)
    drafts = engine.speculative.num_spec_tokens if engine.speculative else 0
    return Limits(sequences, budget, 1 + max(drafts, 0), 1024 if is_sm100(chip) else 512)


def _by_memory(chip: Chip) -> tuple[int, int]:
    if chip.memory_gib < 70 or "a100" in chip.name.lower():
        return 256, 2048
    return 1024, 16384 if chip.memory_gib >= 160 else 8192


def grid(ceiling: int) -> list[int]:
    """1, 2, 4, multiples of 8 below 256, multiples of 16 from there."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, max(ceiling, 0) + 1, 16)]
    return [size for size in sizes if size <= ceiling]


def default_capture_sizes(limits: Limits) -> list[int]:
    """The sizes that the engine captures when none is stated (vllm/config/vllm.py at v0.31.0)."""
    sequences, budget, width = limits.sequences, limits.budget, limits.width
    wanted = min(2 * sequences * width, limits.largest_graph)
    sizes = set(grid(min(budget, wanted)))
    if budget <= wanted:
        sizes.add(budget)
    if width == 1 and sequences <= wanted:
        sizes.add(sequences)
    if width > 1:
        most = min(sequences, limits.largest_graph)
        sizes.update(count * width for count in {*grid(most), most} if count * width <= wanted)
    return sorted(size for size in sizes if size <= budget)


def capture_sizes(limits: Limits, stated: list[int], stated_most: int) -> list[int]:
    """Stated sizes within the budget, else the grid up to a stated maximum, else the default list."""
    if stated:
        kept = sorted({size for size in stated if size <= limits.budget})
        if stated_most > 0 and stated_most != (kept[-1] if kept else 0):
            message = f"{stated_most} is not the largest of the stated sizes"
            raise RefusedError(message, "engine.max_cudagraph_capture_size")
        return kept
    return grid(min(stated_most, limits.budget)) if stated_most > 0 else default_capture_sizes(limits)


@dataclass(frozen=True)
class Host:
    """Launch costs in whole nanoseconds and what they multiply; `modes` as in `MODES`, the ceiling in tokens."""

    modes: tuple[str, str]
    ceiling: int
    width: int
    replay_ns: int
    eager_ns: int
    launch_ns: int
    layers: int
    segments: int
    kernels: int

    def graph_ns(self, uniform: bool, tokens: int) -> int:
        """The part of the host's time that the graph mode decides; `tokens` are those of the whole batch."""
        mode = self.modes[0 if uniform else 1]
        if tokens > self.ceiling or mode == "eager":
            return self.eager_ns * self.layers
        return self.replay_ns * (self.segments if mode == "piecewise" else 1)

    def dispatch_ns(self, kernels: int) -> int:
        """The launches of that many kernels, computed in doubles because the last nanosecond depends on it."""
        return float_nanoseconds(self.launch_ns / 1e9 * kernels)


def host_of(
    inputs: Inputs,
    layout: Layout,
    coefficients: Coefficients,
    stack: list[KindPlan],
    head: KindPlan,
    settings: Settings,
) -> Host:
    """The host's side of a step. Raises RefusedError for an unknown graph mode."""
    engine = inputs.deployment.pools[inputs.pool].engine
    limits = limits_of(inputs, layout, settings)
    mode = graph_mode(inputs, layout, stack, settings)
    if mode == "NONE":
        ceiling = 0
    elif settings.engine_capture_sizes:
        stated = capture_sizes(limits, engine.cudagraph_capture_sizes, engine.max_cudagraph_capture_size)
        ceiling = stated[-1] if stated else 0
    else:
        ceiling = min(2 * limits.sequences * limits.width, limits.largest_graph)
    layers = sum(kind.count for kind in stack)
    indexed = sum(k.count for k in stack if k.scorers and k.primary and k.primary.kind == "sparse_mla")
    return Host(
        MODES[mode],
        ceiling,
        limits.width,
        coefficients.whole_nanoseconds("host_replay_graph_per_step"),
        coefficients.whole_nanoseconds("host_launch_eager_per_layer"),
        coefficients.whole_nanoseconds("host_launch_per_kernel"),
        layers,
        layers + indexed + 1,
        kernels_of(stack) + head.kernels,
    )


def kernels_of(stack: list[KindPlan]) -> int:
    """Launches of one pass over these layers."""
    return sum(kind.kernels * kind.count for kind in stack)


def graph_mode(inputs: Inputs, layout: Layout, stack: list[KindPlan], settings: Settings) -> str:
    """The mode that runs, in capitals. High-throughput DeepEP dispatch turns graphs off for a compiled model."""
    engine = inputs.deployment.pools[inputs.pool].engine
    mode = (engine.cudagraph_mode or "FULL_AND_PIECEWISE").upper()
    if mode not in MODES:
        raise RefusedError(f"unknown graph mode {engine.cudagraph_mode!r}", "engine.cudagraph_mode")
    off = engine.all2all_backend == "deepep_high_throughput" and layout.dp > 1 and any(kind.experts for kind in stack)
    return "NONE" if settings.engine_defaults and off and is_compiled(stack) else mode


def is_compiled(stack: list[KindPlan]) -> bool:
    """Whether torch.compile builds the model's graphs: vllm v0.31.0 breaks them at sparse, indexed and KDA layers."""
    broken = any(kind.scorers or kind.recurrent_kind == "kda" for kind in stack)
    return not broken and not any(kind.primary and kind.primary.kind == "sparse_mla" for kind in stack)
