#!/bin/sh
# Checks what `make` needs and cannot install itself, and names the Debian package of each missing piece. It runs
# the interpreter instead of looking for files: a pyenv shim exists for versions that do not, and on Debian the venv
# module is there while ensurepip, without which it is of no use, comes with python3-venv.
#
#   sh .ci/prerequisites.sh [PYTHON [test]]     exits with 1 when anything is missing; `test` asks for what tests need

python=${1:-python3}
packages=

missing() { # package, what is missing
    echo "missing: $2 (Debian package: $1)" >&2
    packages="$packages $1"
}

has() { # a Python program
    "$python" -c "$1" >/dev/null 2>&1
}

if ! has ''; then
    missing python3 "a Python interpreter; '$python' does not run"
    missing python3-venv "Python's venv and ensurepip"
    missing python3-dev "Python.h, the headers of Python"
elif ! has 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    missing python3 "Python 3.10 or later; '$python' is $("$python" -V 2>&1), name another with: make PYTHON=..."
else
    has 'import ensurepip, venv' || missing python3-venv "Python's venv and ensurepip"
    has 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        missing python3-dev "Python.h, the headers of Python"
fi

# The compiler that Python's build tools will call, which need not be named cc.
compiler=${CC:-$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")' 2>/dev/null || echo cc)}
if ! command -v "${compiler%% *}" >/dev/null 2>&1; then
    missing "gcc libc6-dev" "a C compiler; '${compiler%% *}' does not run"
elif ! echo '#include <stdlib.h>' | $compiler -fsyntax-only -x c - >/dev/null 2>&1; then
    missing libc6-dev "the headers of the C library; '$compiler' cannot compile with <stdlib.h>"
fi

if [ "${2:-}" = test ]; then
    command -v c++ >/dev/null 2>&1 || missing g++ "a C++ compiler, for the tests of the C++ face"
    command -v cmake >/dev/null 2>&1 || missing cmake "cmake, for the tests of the installed library"
    command -v nm >/dev/null 2>&1 || missing binutils "nm, for the tests of exported symbols"
fi

if [ -n "$packages" ]; then
    echo "install what is missing, on Debian or Ubuntu: apt-get install$packages" >&2
    exit 1
fi
