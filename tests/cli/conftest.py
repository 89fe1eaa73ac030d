"""Runs the command in this process, away from the roots that the environment may name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel.cli import main

DATA = Path(pykernel.__file__).parent / "data"


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def fails(self, code: int, *words: str) -> None:
        """Hold that the command failed with `code` and one error line that has all of the words."""
        assert (self.code, self.out) == (code, "")
        [line] = self.err.splitlines()
        assert line.startswith("pykernel: error: ")
        assert [word for word in words if word not in line] == [], line


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Call with the arguments of the command; runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for variable in ("BLIS_CATALOG", "BLIS_REGISTRY", "BLIS_SCENARIOS"):
        monkeypatch.delenv(variable, raising=False)

    def run(*arguments: str) -> Done:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def scenario() -> Callable[[str], str]:
    """The text of a bundled scenario, by name."""
    return lambda name: (DATA / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8")
