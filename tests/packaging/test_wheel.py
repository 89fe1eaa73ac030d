"""What a user gets: the wheel's name, its contents, its symbols, and that it works without the source tree."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest

import pykernel
import pykernel._native

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = "pykernel/_native.abi3.so"
CLIB = (
    "include/pk_check.h",
    "include/pykernel.h",
    "include/pykernel.hpp",
    "lib/cmake/pykernel/pykernelConfig.cmake",
    "lib/cmake/pykernel/pykernelConfigVersion.cmake",
    "lib/libpykernel.a",
    "lib/pkgconfig/pykernel.pc",
)

pytestmark = pytest.mark.toolchain


def header_version() -> str:
    header = (ROOT / "csrc" / "pykernel.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"#define PK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))


def test_wheel_is_named_for_every_cpython_from_3_10(wheel: Path) -> None:
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    assert wheel.name == f"pykernel_llm-{header_version()}-cp310-abi3-{platform}.whl"


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    built = ROOT / "pykernel" / "clib"  # by an editable install, if there is one
    tree = (
        path.relative_to(ROOT)
        for path in (ROOT / "pykernel").rglob("*")
        if path.is_file() and built not in path.parents
    )
    made = (".pyc", ".so")
    expected = {path.as_posix() for path in tree if path.suffix not in made and "/." not in path.as_posix()}
    expected |= {EXTENSION, *(f"pykernel/clib/{name}" for name in CLIB)}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {"missing": expected - held, "too much": held - expected} == {"missing": set(), "too much": set()}


def test_wheel_carries_its_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.endswith((".dist-info/licenses/LICENSE", ".dist-info/licenses/NOTICE"))]


def test_extension_exports_only_its_init_function(wheel: Path, tmp_path: Path) -> None:
    extension = zipfile.ZipFile(wheel).extract(EXTENSION, tmp_path)
    symbols = subprocess.run(["nm", "-D", "--defined-only", extension], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in symbols.stdout.splitlines()] == ["PyInit__native"]


def test_header_library_and_package_agree_on_the_version() -> None:
    major, minor, patch = (int(part) for part in header_version().split("."))
    assert pykernel.__version__ == header_version()
    assert pykernel._native.lib.pk_version() == major * 10000 + minor * 100 + patch


def test_installed_wheel_is_imported_from_its_own_environment(elsewhere: Path) -> None:
    program = "import pykernel, pykernel._native as n; print(pykernel.__file__); print(n.__file__)"
    printed = run_elsewhere(elsewhere, "python", "-c", program)
    assert all(Path(line).is_relative_to(elsewhere) for line in printed.splitlines())


def test_installed_wheel_prices_a_bundled_scenario_without_the_tree(elsewhere: Path) -> None:
    printed = run_elsewhere(elsewhere, "pykernel", "price", "deepseek-v3-h200-fp8-tp8", "--decode", "32x4096")
    assert "hbm" in printed and "ms" in printed


def test_installed_wheel_brings_the_c_library(elsewhere: Path) -> None:
    run_elsewhere(elsewhere, "pykernel", "compile", "deepseek-v3-h200-fp8-tp8", "-o", "kernel.pkk")
    flags = run_elsewhere(elsewhere, "pykernel", "--cflags", "--libs").split()
    assert all(str(elsewhere) in flag for flag in flags if flag != "-lpykernel")
    source = ROOT / "csrc" / "examples" / "embed.c"
    subprocess.run(["cc", str(source), *flags, "-o", str(elsewhere / "embed")], check=True)
    printed = subprocess.run(
        [elsewhere / "embed", "kernel.pkk"], cwd=elsewhere, capture_output=True, text=True, check=True
    )
    assert printed.stdout.startswith("deepseek-v3 on h200")
    config = Path(run_elsewhere(elsewhere, "pykernel", "--cmake-dir").strip())
    assert {path.name for path in config.iterdir()} == {"pykernelConfig.cmake", "pykernelConfigVersion.cmake"}
    found = (config.parents[1] / "pkgconfig" / "pykernel.pc").read_text(encoding="utf-8")
    assert f"Version: {header_version()}\n" in found and "@" not in found


def run_elsewhere(folder: Path, program: str, *arguments: str) -> str:
    """Return what a program of the fresh environment printed, run where nothing of the tree is in reach."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BLIS_"))}
    command = [str(folder / "fresh" / "bin" / program), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout
