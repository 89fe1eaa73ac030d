"""What a developer relies on: the generated declarations, the digest that finds stale builds, the demo's checks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREREQUISITES = ROOT / ".ci" / "prerequisites.sh"

pytestmark = pytest.mark.toolchain


def load(path: Path) -> ModuleType:
    """Execute a Python file that is not part of the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_declarations_are_those_of_the_header() -> None:
    generator = load(ROOT / "csrc" / "binding" / "make_cdef.py")
    assert generator.generate() == (ROOT / "pykernel" / "_cdef.txt").read_text(encoding="utf-8")


def test_generator_drops_what_cffi_cannot_read(tmp_path: Path) -> None:
    header = tmp_path / "awkward.h"
    header.write_text(
        """
        #include <stdint.h>
        #define EACH(X) X(A, 1) X(B, 2)
        enum names {
        #define NAME(name, value) PK_##name = value,
        EACH(NAME)
        };
        _Static_assert(sizeof(int) == (4 + (0)), "int");
        static inline int twice(int x) { if (x) { return 2 * x; } return 0; }
        __attribute__((visibility("default"))) int f(int x) __attribute__((pure));
        """,
        encoding="utf-8",
    )
    lines = load(ROOT / "csrc" / "binding" / "make_cdef.py").generate(header).splitlines()[1:]
    assert lines == ["enum names {", "    PK_A = 1,", "    PK_B = 2,", "};", "int f(int x);"]


def test_digest_changes_with_every_file_that_is_compiled(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    (tmp_path / "pykernel").mkdir()
    for name in ("_ffi_build.py", "_cdef.txt"):
        shutil.copy(ROOT / "pykernel" / name, tmp_path / "pykernel" / name)
    builder = load(tmp_path / "pykernel" / "_ffi_build.py")
    watched = [*tmp_path.glob("csrc/*.[ch]"), tmp_path / "csrc" / "cflags.txt", tmp_path / "pykernel" / "_cdef.txt"]
    seen = {builder.source_digest()}
    for path in watched:
        path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        seen.add(builder.source_digest())
    assert len(seen) == 1 + len(watched)


def test_c_is_reached_through_the_compiled_extension_alone() -> None:
    package = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pykernel").rglob("*.py"))
    assert "import ctypes" not in package and "ffi.dlopen" not in package


def test_sanitizers_are_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = load(ROOT / "pykernel" / "_ffi_build.py")
    monkeypatch.setenv("PYKERNEL_SANITIZE", "address,undefined")
    compiling, linking = builder.compile_arguments()
    assert "-fsanitize=address,undefined" in compiling and "-fsanitize=address,undefined" in linking
    assert "-ffp-contract=off" in compiling
    monkeypatch.delenv("PYKERNEL_SANITIZE")
    compiling, linking = builder.compile_arguments()
    assert not [flag for flag in [*compiling, *linking] if "sanitize" in flag]


def test_source_distribution_holds_what_tests_and_builds_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").rglob("*.[ch]")}
    assert sources <= held
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "plugins").glob("*/pyproject.toml")} <= held
    assert not [name for name in held if name.startswith("plugins/") and ("/build/" in name or ".egg-info" in name)]
    assert {"csrc/cflags.txt", "csrc/binding/exports.map", "Makefile", "tests/conftest.py"} <= held


def test_prerequisites_are_found_where_the_tests_run() -> None:
    assert check_prerequisites(sys.executable).returncode == 0


@pytest.mark.parametrize(
    ("program", "package"),
    [("ensurepip", "python3-venv"), ("Python.h", "python3-dev"), ("3, 10", "python3"), ("", "python3")],
)
def test_missing_python_part_is_named_with_its_package(program: str, package: str, tmp_path: Path) -> None:
    """The interpreter is a stand-in that fails when it is asked for the missing part."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\ncase "$*" in *"{program}"*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    stand_in.chmod(0o755)
    checked = check_prerequisites(str(stand_in))
    assert checked.returncode == 1
    assert f"(Debian package: {package})" in checked.stderr
    assert package in checked.stderr.splitlines()[-1].partition("apt-get install")[2].split()


def test_missing_compiler_is_named_with_its_package() -> None:
    checked = check_prerequisites(sys.executable, CC="no-such-compiler")
    assert checked.returncode == 1
    assert checked.stderr.splitlines()[-1].endswith("apt-get install gcc libc6-dev")


def test_what_only_the_tests_need_is_asked_for_by_them_alone(tmp_path: Path) -> None:
    for program in ("sh", "gcc", "cc", "cc1", "as", "env"):
        if found := shutil.which(program):
            (tmp_path / program).symlink_to(found)
    bare = {"PATH": str(tmp_path)}
    assert "g++" not in check_prerequisites(sys.executable, **bare).stderr
    checked = check_prerequisites(sys.executable, "test", **bare)
    assert checked.returncode == 1
    assert {"g++", "cmake", "binutils"} <= set(checked.stderr.splitlines()[-1].partition("apt-get install")[2].split())


def check_prerequisites(python: str, *asked: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(PREREQUISITES), python, *asked]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
