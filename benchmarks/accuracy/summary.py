"""Errors of a model's answers over rows: the figures of a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.accuracy.rows import Row

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A model's answer to one row, milliseconds; NaN where it did not answer, then `refused` says why."""

    row: Row
    tpot_ms: float = NAN
    ttft_ms: float = NAN
    steady_ms: float = NAN
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors over some rows, fractions. `group_macro` is the headline; `signed` is the mean of signed errors."""

    rows: int
    answered: int
    group_macro: float = NAN
    mape: float = NAN
    median: float = NAN
    p90: float = NAN
    signed: float = NAN
    ttft_group_macro: float = NAN
    ttft_mape: float = NAN
    steady_group_macro: float = NAN
    """As `group_macro`, with the steady formula in place of the simulator."""
    steady_mape: float = NAN
    simulator_to_steady: float = NAN

    @property
    def coverage(self) -> float:
        return self.answered / self.rows if self.rows else NAN


def summarize(predictions: Sequence[Prediction]) -> Summary:
    """The errors of a model over rows; those that it does not answer are counted, but are in no mean."""
    answered = [p for p in predictions if not p.refused]
    if not answered:
        return Summary(len(predictions), 0)
    errors = np.array([p.tpot_ms / p.row.tpot_ms - 1 for p in answered])
    timed = [p for p in answered if p.row.ttft_ms > 0]
    first = np.array([p.ttft_ms / p.row.ttft_ms - 1 for p in timed])
    steady = np.array([p.steady_ms / p.row.tpot_ms - 1 for p in answered])
    return Summary(
        rows=len(predictions),
        answered=len(answered),
        group_macro=_macro(answered, errors),
        mape=float(np.mean(np.abs(errors))),
        median=float(np.median(np.abs(errors))),
        p90=float(np.quantile(np.abs(errors), 0.9)),
        signed=float(np.mean(errors)),
        ttft_group_macro=_macro(timed, first),
        ttft_mape=float(np.mean(np.abs(first))) if timed else NAN,
        steady_group_macro=_macro(answered, steady),
        steady_mape=float(np.mean(np.abs(steady))),
        simulator_to_steady=float(np.median([abs(p.tpot_ms / p.steady_ms - 1) for p in answered])),
    )


def _macro(predictions: Sequence[Prediction], errors: np.ndarray) -> float:
    """The mean over groups of each group's mean absolute error."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for prediction, error in zip(predictions, errors, strict=True):
        groups.setdefault(prediction.row.group, []).append(abs(error))
    return float(np.mean([np.mean(own) for own in groups.values()])) if groups else NAN


def grouped(predictions: Sequence[Prediction]) -> dict[tuple[str, ...], list[Prediction]]:
    """The predictions of each group, in the order of their names."""
    groups: dict[tuple[str, ...], list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault(prediction.row.group, []).append(prediction)
    return {group: groups[group] for group in sorted(groups)}


def better(*answers: Sequence[Prediction]) -> list[Prediction]:
    """For each group the answers that miss least, of several to the same rows; more answers come before fewer."""
    tables = [grouped(one) for one in answers]
    best = {group: min(range(len(answers)), key=lambda k: _badness(tables[k][group])) for group in tables[0]}
    return [answers[best[prediction.row.group]][index] for index, prediction in enumerate(answers[0])]


def _badness(predictions: Sequence[Prediction]) -> tuple[int, float]:
    summary = summarize(predictions)
    return -summary.answered, summary.mape if summary.answered else 0.0


def refusals(predictions: Sequence[Prediction]) -> list[tuple[str, int]]:
    """Why rows were not answered, and how many for each reason, the most frequent first."""
    return Counter(p.refused for p in predictions if p.refused).most_common()
