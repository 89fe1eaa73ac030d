"""For pytest: a test of one's own, run once for each law. Imported by name, since it needs pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import pytest

from pykernel.documents import Inputs
from pykernel.laws import ADVICE, LAWS, Report, check_model


def parametrize_with_laws(
    build: Callable[[Inputs], Any],
    inputs: Callable[[], Inputs],
    *,
    lacks: Iterable[str] | None = None,
    laws: Iterable[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a test the argument `law`, a function that raises unless the model holds that law.

        @parametrize_with_laws(MyModel, lambda: pykernel.open_inputs("qwen3-14b-h100-tp1"), lacks={"blis"})
        def test_laws(law):
            law()

    `laws` are ids, by default of all that can fail. A law in `expected_failures` becomes a strict xfail with its
    reason; one that cannot be tried is skipped.
    """
    expected, chosen = dict(expected_failures or {}), None if laws is None else set(laws)

    @lru_cache(maxsize=1)
    def made() -> tuple[Any, Inputs]:
        documents = inputs()
        return build(documents), documents

    def holds(id: str) -> Callable[[], None]:
        def hold() -> None:
            model, documents = made()
            _raise(check_model(model, factory=build, inputs=documents, lacks=lacks, laws=[id]))

        return hold

    marks = {id: [pytest.mark.xfail(strict=True, reason=reason)] for id, reason in expected.items()}
    parameters = [
        pytest.param(holds(law.id), id=law.id, marks=marks.get(law.id, []))
        for law in LAWS.values()
        if law.standing != ADVICE and (chosen is None or law.id in chosen)
    ]
    return pytest.mark.parametrize("law", parameters)


def _raise(report: Report) -> None:
    if report.skipped:
        pytest.skip(report.skipped[0].reason)
    if report.violations:
        pytest.fail(str(report.violations[0]), pytrace=False)
