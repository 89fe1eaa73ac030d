# Everything a developer runs. `make demo` and `make test` need only Python 3.10+ with its headers and venv, a C
# compiler, and PyPI; PYTHON and CC choose others than python3 and the compiler Python was built with.
#
# Tests run through the environment's `pytest`, never `python -m pytest`, which would put this folder on sys.path
# and test the source tree instead of what is installed.

PYTHON ?= python3
VENV := .venv
SANITIZE := build/sanitize
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
CFLAGS_SHARED := $(shell cat csrc/cflags.txt)
C_SOURCES := $(wildcard csrc/*.c)
C_FILES := $(C_SOURCES) $(wildcard csrc/*.h csrc/*.txt csrc/binding/*)
BUILD_FILES := $(C_FILES) setup.py pyproject.toml pykernel/_ffi_build.py pykernel/_cdef.txt
PIP := python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test slow lint bench configs cdef c-warnings sanitize prerequisites rebuild clean

demo: $(VENV)/created
	rm -f $(VENV)/developed
	$(VENV)/bin/$(PIP) .
	$(VENV)/bin/pykernel price deepseek-v3-h200-fp8-tp8 --decode 32x4096

test: $(VENV)/developed
	$(VENV)/bin/pytest

slow: $(VENV)/developed
	$(VENV)/bin/pytest -m slow

lint: $(VENV)/developed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(VENV)/developed
	$(VENV)/bin/pytest --benchmark-enable --benchmark-only

# Every config of a package that ships many, of which only the data is read.
configs: $(VENV)/developed
	$(VENV)/bin/$(PIP) --no-deps aiconfigurator-core==0.12.0
	$(VENV)/bin/pytest tests/derive/test_published_configs.py

rebuild:

cdef:
	$(PYTHON) csrc/binding/make_cdef.py

prerequisites:
	@sh .ci/prerequisites.sh "$(PYTHON)"

$(VENV)/created: | prerequisites
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

# An editable install: Python changes count at once, and C changes lead here again, as does a lost extension.
$(VENV)/developed: $(VENV)/created $(BUILD_FILES) $(if $(wildcard pykernel/_native*.so),,rebuild)
	$(VENV)/bin/python csrc/binding/make_cdef.py --check
	$(VENV)/bin/$(PIP) --editable '.[dev]'
	touch $@

# The core without Python: every source, the header alone, twice, and from C++.
c-warnings:
	@mkdir -p build/warnings
	for source in $(C_SOURCES); do \
	  gcc $(CFLAGS_SHARED) $(WARNINGS) -O3 -c $$source -o build/warnings/$$(basename $$source .c).o || exit 1; done
	printf '#include "pykernel.h"\n#include "pykernel.h"\n' > build/warnings/header.c
	gcc $(CFLAGS_SHARED) $(WARNINGS) -Icsrc -fsyntax-only build/warnings/header.c
	g++ -std=c++17 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Icsrc -fsyntax-only -x c++ build/warnings/header.c

# The tests with the core under ASan and UBSan. Leaks are not reported, the interpreter's own would be: those of the
# core are looked for by the C programs in tests/c, which `make test` runs under the same sanitizers.
$(SANITIZE)/created: | prerequisites
	$(PYTHON) -m venv --clear $(SANITIZE)
	touch $@

sanitize: $(SANITIZE)/created
	PYKERNEL_SANITIZE=address,undefined $(SANITIZE)/bin/$(PIP) '.[test]'
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 PYKERNEL_EXPECT_SANITIZER=1 $(SANITIZE)/bin/pytest -m 'not toolchain and not slow'

clean:
	rm -rf build dist $(VENV) *.egg-info pykernel/*.so .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -exec rm -rf {} +
