"""The package as it is imported: every name there, nothing loaded before it is asked for."""

from __future__ import annotations

import subprocess
import sys
from types import FunctionType

import pytest

import pykernel


def fresh(program: str) -> str:
    """What a program prints in a process of its own."""
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("name", [*pykernel.__all__, "__version__"])
def test_every_name_leads_somewhere(name: str) -> None:
    assert getattr(pykernel, name) is getattr(pykernel, name)
    assert name in dir(pykernel)


def test_a_name_that_is_none_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'pykernel' has no attribute 'prize'"):
        _ = pykernel.prize  # type: ignore[attr-defined]


def test_importing_loads_nothing_else() -> None:
    loaded = fresh("import sys, pykernel; print([name for name in sys.modules if name.startswith('pykernel.')])")
    assert loaded == "[]"
    heavy = "('yaml', 'cffi', 'numpy', 'pluggy', 'importlib.metadata')"
    assert fresh(f"import sys, pykernel; print([name for name in {heavy} if name in sys.modules])") == "[]"


def test_the_package_of_recipes_does_not_take_the_place_of_the_function() -> None:
    assert fresh("import pykernel.derive.config, pykernel; print(callable(pykernel.derive))") == "True"
    assert isinstance(pykernel.derive, FunctionType)
