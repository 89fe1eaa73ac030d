"""How each engine's scheduler forms its steps, by its documentation and the options of published runs.

The step sequence of a closed loop depends on these alone. vLLM cuts prompts and mixes them with decodes; TensorRT-LLM
mixes whole prompts (`enable_chunked_prefill` is off by default); SGLang runs cut prompts first, in steps of their own.
The options of InferenceX runs are in its launch scripts (SemiAnalysisAI/InferenceX, benchmarks/single_node/
fixed_seq_len, and benchmarks/ before it), not in the measured rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.accuracy.catalog import key_of
from benchmarks.accuracy.rows import Row


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What a scheduler does.

    budget : tokens of a step.
    mixed : whether prompts share a step with decodes.
    chunked : whether a prompt that does not fit what is left of a step is cut.
    receive_steps : decode steps between two looks at what has come in; it looks after every step with a prompt.
    hold_steps, hold_tokens : prompts wait for so many decode steps unless a step would hold so many tokens with them.
    """

    budget: int
    mixed: bool = True
    chunked: bool = True
    receive_steps: int = 1
    hold_steps: int = 0
    hold_tokens: float = 0.0


def scheduling(row: Row) -> Scheduling:
    """The scheduler of a row's engine."""
    if row.backend == "sglang":
        return Scheduling(row.budget, mixed=False, receive_steps=_receive_steps(row))
    if row.backend == "trtllm":
        steps, ratio = _hold(row)
        return Scheduling(row.budget, chunked=False, hold_steps=steps, hold_tokens=ratio * row.budget)
    return Scheduling(row.budget)


def _receive_steps(row: Row) -> int:
    """`--scheduler-recv-interval`, which defaults to 1; scripts for Blackwell raise it, and more for many clients."""
    if not row.published or not row.system.startswith(("b", "gb")):
        return 1
    if key_of(row.model).startswith("glm-5"):
        return 10 if "fp4" in row.precision else 1
    return 30 if row.concurrency >= 16 else 10


def _hold(row: Row) -> tuple[int, float]:
    """`batch_wait_timeout_iters` and `batch_wait_max_tokens_ratio`, both 0 unless a script sets them."""
    model, short = key_of(row.model), row.published and (row.isl, row.osl) == (1024, 1024)
    if short and model == "llama-3.1-70b" and row.tp < 8:
        return 20, 0.9
    if short and model == "deepseek-r1" and row.precision == "fp8" and row.concurrency >= 64:
        return 40, 0.8
    return 0, 0.0
