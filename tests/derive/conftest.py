"""Small configs of real models, written for these tests: public facts, the keys that matter and a few that do not."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIGS = Path(__file__).resolve().parents[2] / "testdata" / "configs"


# Needs the package aiconfigurator-core, which only `make configs` installs.
collect_ignore = [] if importlib.util.find_spec("aiconfigurator_core") else ["test_published_configs.py"]


@pytest.fixture
def config() -> Callable[..., dict[str, Any]]:
    """The config of a model as an object to be changed; keys given replace those of its text part, `...` drops one."""

    def load(name: str, **changes: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((CONFIGS / name / "config.json").read_text())
        text = found.get("text_config", found)
        for key, value in changes.items():
            if value is ...:
                text.pop(key, None)
                found.pop(key, None)
            else:
                text[key] = value
        return found

    return load
