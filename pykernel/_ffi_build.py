"""Describes the extension module `pykernel._native` to cffi: declarations, sources, flags.

setup.py names this file; cffi executes it with the project's root as working directory and the package not
importable, so it imports nothing of the package. The tests load it too, to compare `source_digest()` with the
digest compiled into the extension they run on.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parents[1]
CSRC = ROOT / "csrc"

# What csrc/binding/python.h adds to the public header. The digest is a function because cffi calls those by name
# without a macro or a variable that would have to be exported.
EXTRA_CDEF = """
const char *pykernel_source_digest(void);
typedef struct pykernel_call {
    int64_t values[10];
    const pk_kernel *kernel;
    const pk_batch *batch;
    pk_batch_state *state;
} pykernel_call;
int32_t pykernel_price(pykernel_call *call);
int32_t pykernel_price_batch(const pk_kernel *kernel, const pk_batch *batch, int64_t *values);
pk_model_open_function pykernel_open_library(const char *path, char *message, size_t size);
"""
EXTRA_SOURCE = """
#include "binding/python.h"
static const char *pykernel_source_digest(void) {{ return "{digest}"; }}
"""


def inputs() -> list[Path]:
    """Return every file that the compiled extension depends on, in a fixed order."""
    binding = [CSRC / "binding" / "exports.map", CSRC / "binding" / "python.h"]
    fixed = [CSRC / "cflags.txt", *binding, ROOT / "pykernel" / "_cdef.txt", Path(__file__)]
    return sorted([*CSRC.glob("*.c"), *CSRC.glob("*.h"), *(path.resolve() for path in fixed)])


def source_digest() -> str:
    """Return the SHA-256 (hex) over the names and contents of `inputs()`."""
    digest = hashlib.sha256()
    for path in inputs():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def compile_arguments() -> tuple[list[str], list[str]]:
    """Return the compiler's and the linker's flags.

    The flags that every build of the C core shares are in csrc/cflags.txt. PYKERNEL_SANITIZE, a list for
    -fsanitize such as `address,undefined`, makes a slow build that stops at the first fault.
    """
    shared = (CSRC / "cflags.txt").read_text(encoding="utf-8").split()
    # dlopen was in a library of its own until glibc 2.34.
    link = ["-Wl,--version-script=csrc/binding/exports.map", "-ldl"] if sys.platform.startswith("linux") else []
    sanitize = os.environ.get("PYKERNEL_SANITIZE", "")
    if not sanitize:
        return [*shared, "-O3"], link
    instrument = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"]
    return [*shared, *instrument, "-O1", "-g", "-fno-omit-frame-pointer"], [*link, *instrument]


def builder() -> FFI:
    """Return the description that cffi turns into C; paths are relative, as setuptools wants them."""
    compile_args, link_args = compile_arguments()
    ffi = FFI()
    ffi.cdef((ROOT / "pykernel" / "_cdef.txt").read_text(encoding="utf-8") + EXTRA_CDEF)
    ffi.set_source(
        "pykernel._native",
        EXTRA_SOURCE.format(digest=source_digest()),
        sources=[f"csrc/{path.name}" for path in inputs() if path.suffix == ".c"],
        depends=[path.relative_to(ROOT).as_posix() for path in inputs()],
        include_dirs=["csrc"],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    return ffi
