"""aiconfigurator as a step-time model: the peer, scored by the same simulator as ours.

Its compiled engine (`EngineHandle` of PyPI package aiconfigurator-core, Apache-2.0) interpolates measured tables for a
pass with so many prompt tokens and decodes. It is handed the real widths of a row, and takes one of two labels for its
number formats: what the checkpoint of that precision states, or the plain format of that precision everywhere. Neither
fits every model, so the score takes for each group of rows the label that does better, which favours the peer.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from benchmarks.accuracy.models import Pricer
from benchmarks.accuracy.rows import Row
from benchmarks.accuracy.simulator import Floats, Step
from pykernel.errors import ArgumentError, RefusedError

NAME = "aiconfigurator"
LABELS = ("checkpoint", "plain")

CHECKPOINTS = {
    ("deepseek-r1", "fp8"): "deepseek-ai/DeepSeek-R1",
    ("deepseek-r1", "fp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("glm-5", "fp8"): "zai-org/GLM-5-FP8",
    ("glm-5", "fp4"): "nvidia/GLM-5-NVFP4",
    ("gpt-oss-120b", "fp4"): "openai/gpt-oss-120b",
    ("kimi-k2.5", "int4"): "moonshotai/Kimi-K2.5",
    ("kimi-k2.5", "fp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("llama-3.1-8b", "bf16"): "meta-llama/Meta-Llama-3.1-8B",
    ("llama-3.1-70b", "bf16"): "meta-llama/Meta-Llama-3.1-70B",
    ("llama-3.1-70b", "fp8"): "nvidia/Llama-3.1-70B-Instruct-FP8",
    ("minimax-m2.5", "fp8"): "MiniMaxAI/MiniMax-M2.5",
    ("minimax-m2.5", "fp4"): "nvidia/MiniMax-M2.5-NVFP4",
    ("qwen3-32b", "bf16"): "Qwen/Qwen3-32B",
    ("qwen3-32b", "fp8"): "Qwen/Qwen3-32B-FP8",
    ("qwen3-235b-a22b", "bf16"): "Qwen/Qwen3-235B-A22B",
    ("qwen3-235b-a22b", "fp8"): "Qwen/Qwen3-235B-A22B-FP8",
    ("qwen3-235b-a22b", "fp4"): "nvidia/Qwen3-235B-A22B-NVFP4",
    ("qwen3.5-397b-a17b", "fp8"): "Qwen/Qwen3.5-397B-A17B",
    ("qwen3.5-397b-a17b", "fp4"): "nvidia/Qwen3.5-397B-A17B-NVFP4",
}
"""The checkpoint of a model in a precision, of those whose configs the package ships."""
DENSE = ("llama", "qwen3-32b")
PLAIN = {"bf16": None, "fp8": "fp8", "fp4": "nvfp4", "int4": "int4_wo"}
"""The format of all matrices where a row's precision is taken at its word."""
MXFP4 = {"gpt-oss-120b": "w4a8_mxfp4_mxfp8"}
"""Checkpoints with experts alone in 4 bits; the package takes 16-bit activations unless told of 8."""

CONTEXT_STEP = 16
"""Tokens that contexts and prompts are rounded to, so that steps that hardly differ are looked up once."""


def installed() -> None:
    """Raises `ArgumentError` where the package, or what it needs, is missing."""
    missing = [name for name in ("aiconfigurator_core", "pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise ArgumentError(
            f"{NAME} needs {', '.join(missing)}, which is not installed; run pip install aiconfigurator-core==0.12.0"
        )


def pricer(row: Row, label: str) -> Pricer:
    """Prices steps of a row's deployment. It and what it returns raise `RefusedError` where there is no table."""
    engine = _engine(row.model, row.precision, row.system, row.backend, row.tp, row.dp, row.ep, row.kv, label)
    known: dict[tuple[int, int, int, int], float] = {}

    def price(steps: Sequence[Step]) -> Floats:
        seconds = np.empty(len(steps))
        for index, step in enumerate(steps):
            counts = _counts(step)
            if counts not in known:
                try:
                    known[counts] = _milliseconds(engine, *counts) * 1e-3
                except Exception as error:  # as in `_engine`
                    raise RefusedError(_brief(error)) from None
            seconds[index] = known[counts]
        return seconds

    return price


@cache
def _engine(
    model: str, precision: str, system: str, backend: str, tp: int, dp: int, ep: int, kv: str, label: str
) -> Any:
    from aiconfigurator_core.sdk.engine import EngineHandle

    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    if (model, precision) not in CHECKPOINTS:
        raise RefusedError(f"no checkpoint of {model} in {precision} is known for {NAME}")
    mixed = not model.startswith(DENSE)
    gemm = experts = None
    if label == "plain":
        gemm = None if model in MXFP4 else PLAIN[precision]
        experts = MXFP4.get(model, gemm) if mixed else None
    # Where its tables of prefill attention have no FP8, the package's own estimates take the 16-bit ones.
    for attention in (None, "bfloat16"):
        try:
            engine = EngineHandle.compile(
                CHECKPOINTS[model, precision],
                system,
                backend,
                tp_size=tp,
                attention_dp_size=dp,
                moe_tp_size=tp * dp // ep if mixed else tp,
                moe_ep_size=ep if mixed else 1,
                gemm_quant_mode=gemm,
                moe_quant_mode=experts,
                fmha_quant_mode=attention,
                kvcache_quant_mode="fp8" if kv.startswith("fp8") else "bfloat16",
            )
            engine.mixed_step_latency(64, 1, 64, 2)
            return engine
        except Exception as error:  # the package has no class that all of its errors share
            refused = RefusedError(_brief(error))
    raise refused


def _counts(step: Step) -> tuple[int, int, int, int]:
    """Prompt tokens, decodes, and the mean lengths of prompts so far and of the decodes' contexts."""
    decoding = (step.scheduled == 1) & (step.computed > 0)
    reached = step.scheduled + step.computed
    prompts, contexts = reached[~decoding], reached[decoding]
    return int(step.scheduled[~decoding].sum()), len(contexts), _rounded(prompts), _rounded(contexts)


def _rounded(lengths: np.ndarray) -> int:
    return max(round(float(lengths.mean()) / CONTEXT_STEP) * CONTEXT_STEP, 2) if len(lengths) else 0


def _milliseconds(engine: Any, tokens: int, decodes: int, prompt: int, context: int) -> float:
    # Contexts are stated as a prompt and an output of 2 tokens, of which the engine takes the middle and adds 1.
    before = max(context - 2, 1)
    if not tokens:
        return float(engine.decode_step_latency(decodes, before, 2))
    _, shared, prefill, decode = engine.mixed_step_breakdown(tokens, decodes, prompt, 2)
    if decodes:
        decode = engine.mixed_step_breakdown(tokens, decodes, before, 2)[3]
    return float(shared + prefill + decode)


def _brief(error: Exception) -> str:
    """The first line, without the folder of the tables."""
    return str(error).splitlines()[0].split(" at /")[0][:200]
