"""`pykernel --cmake-dir`, `--cflags`, `--libs`: where the C library that comes with the package lies.

The build puts header, static library and the files by which CMake and pkg-config find them into `pykernel/clib`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykernel.errors import PykernelError

OPTIONS = {
    "--cmake-dir": "print the folder for CMake's -Dpykernel_DIR",
    "--cflags": "print the flags to compile C or C++ against pykernel.h",
    "--libs": "print the flags to link",
}
"""Options of the command without a subcommand; given together, their answers stand on one line."""

CLIB = Path(__file__).resolve().parents[1] / "clib"


def run(options: argparse.Namespace) -> int:
    """Print what was asked for. Raises `PykernelError` where the package was built without the C library."""
    if not (CLIB / "lib" / "libpykernel.a").is_file():
        raise PykernelError(f"{CLIB} holds no C library; build the package again: pip install --editable .")
    answers = {
        "cmake_dir": str(CLIB / "lib" / "cmake" / "pykernel"),
        "cflags": f"-I{CLIB / 'include'}",
        "libs": f"-L{CLIB / 'lib'} -lpykernel",
    }
    print(" ".join(answer for name, answer in answers.items() if getattr(options, name)))
    return 0
