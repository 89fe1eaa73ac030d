"""Compiles the core without Python and runs C programs on it: its contract under sanitizers, and equal bits.

The programs are built with the flags that every build of the core shares (csrc/cflags.txt) and differ in what must
not matter: the compiler, its optimisation, the instructions it may use.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]
CROSS = [compiler for compiler in ("aarch64-linux-gnu-gcc",) if shutil.which(compiler) and shutil.which("qemu-aarch64")]
BUILDS = [
    "-O2",
    "-O3 -march=native",
    *(pytest.param(one, marks=pytest.mark.slow) for one in ("-O0", "-O1", "-O3", "-Os", "-O3 -march=x86-64-v3")),
]

pytestmark = pytest.mark.toolchain


def build(programs: str, folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    """Compile the sources of this folder that match a pattern, together with the core."""
    binary = folder / "program"
    shared = (CSRC / "cflags.txt").read_text(encoding="utf-8").split()
    sources = [str(path) for path in (*sorted(Path(__file__).parent.glob(programs)), *sorted(CSRC.glob("*.c")))]
    command = [compiler, *shared, *flags, f"-I{CSRC}", *sources, "-o", str(binary), "-pthread", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return binary


def run(binary: Path, **environment: str) -> str:
    """Return what the program printed; it must end well."""
    done = subprocess.run([binary], env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("sanitizers", ["", "address,undefined", "thread"])
def test_contract_of_the_header_holds(sanitizers: str, tmp_path: Path) -> None:
    instrument = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-g"] if sanitizers else []
    binary = build("test_*.c", tmp_path, "-O1", *instrument, "-Wl,--wrap=calloc")
    counted = re.fullmatch(r"(\d+) passed, 0 failed", run(binary, ASAN_OPTIONS="detect_leaks=1").splitlines()[-1])
    assert counted and int(counted[1]) > 1000


@pytest.fixture(scope="module")
def plain_prices(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(build("print_prices.c", tmp_path_factory.mktemp("plain"), "-O0"))


@pytest.mark.parametrize("optimisation", BUILDS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_prices_are_the_same_bits_in_every_build(
    compiler: str, optimisation: str, plain_prices: str, tmp_path: Path
) -> None:
    prices = run(build("print_prices.c", tmp_path, *optimisation.split(), compiler=compiler))
    assert len(prices.splitlines()) == 12_002
    assert prices == plain_prices


@pytest.mark.slow
@pytest.mark.parametrize("optimisation", ["-O0", "-O3"])
@pytest.mark.parametrize("compiler", CROSS)
def test_prices_are_the_same_bits_on_another_processor(
    compiler: str, optimisation: str, plain_prices: str, tmp_path: Path
) -> None:
    """aarch64 contracts a * b + c by default, and has other rounding of conversions in hardware."""
    binary = build("print_prices.c", tmp_path, optimisation, "-static", compiler=compiler)
    done = subprocess.run(["qemu-aarch64", str(binary)], capture_output=True, text=True, check=True)
    assert done.stdout == plain_prices
