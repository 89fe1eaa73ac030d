"""Checks, before any test runs, that the pykernel under test is the one the developer believes it is.

Editable installs never recompile C, and a run from the project's root could pick up the source tree in place of an
installed wheel. Both give green tests for code that was not tested, so both end the run with what to do.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILDER = ROOT / "pykernel" / "_ffi_build.py"


# No test of this folder depends on the plug-ins of the environment; those about plug-ins install their own. Theirs are
# run by `make plugins`.
os.environ["PYKERNEL_PLUGINS"] = ""


def pytest_report_header() -> str:
    return f"pykernel: {imported_from()}"


def pytest_sessionstart() -> None:
    for check in (missing_extension, stale_extension, shadowed_install, missing_sanitizer):
        if complaint := check():
            pytest.exit(complaint, returncode=3)


def imported_from() -> Path:
    """Return the folder of the package under test."""
    import pykernel

    return Path(str(pykernel.__file__)).resolve().parent


def missing_extension() -> str:
    """Import it here and not at the top, where a failure would be a traceback about this file."""
    try:
        import pykernel._native  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "pykernel._native":
            raise
        return f"{error}; build it: {sys.executable} -m pip install --editable {ROOT}"
    return ""


def stale_extension() -> str:
    """Compare the digest compiled into the extension with that of the sources beside these tests."""
    if not BUILDER.exists():
        return ""
    spec = importlib.util.spec_from_file_location("ffi_build", BUILDER)
    assert spec is not None and spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    import pykernel._native as native

    compiled = native.ffi.string(native.lib.pykernel_source_digest()).decode()
    if compiled == builder.source_digest():
        return ""
    editable = "--editable " if imported_from() == ROOT / "pykernel" else ""
    rebuild = f"{sys.executable} -m pip install {editable}{ROOT}"
    return f"{native.__file__} was built from other sources; rebuild it: {rebuild}"


def shadowed_install() -> str:
    """Compare where pykernel was imported from with where the environment has installed it, if it has."""
    try:
        files = importlib.metadata.files("pykernel-llm") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    installed = [Path(str(file.locate())).resolve().parent for file in files if str(file) == "pykernel/__init__.py"]
    if imported_from() in (installed or [ROOT / "pykernel"]):
        return ""
    found = f"pykernel is installed in {installed[0]} but imported from {imported_from()}"
    return f"{found}; run pytest, not python -m pytest"


def missing_sanitizer() -> str:
    """Hold a run that is meant for an instrumented extension to that."""
    if not os.environ.get("PYKERNEL_EXPECT_SANITIZER"):
        return ""
    import pykernel._native as native

    if b"__asan_report" in Path(str(native.__file__)).read_bytes():
        return ""
    return "the extension is not instrumented; rebuild it: PYKERNEL_SANITIZE=address,undefined python -m pip install ."
