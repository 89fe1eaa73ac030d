# Everything a developer runs. `make demo` needs only Python 3.10+ with its headers and venv, a C compiler, and PyPI;
# `make test` a C++ compiler too. PYTHON and CC choose others than python3 and the compiler Python was built with.
#
# Tests run through the environment's `pytest`, never `python -m pytest`, which would put this folder on sys.path
# and test the source tree instead of what is installed.

PYTHON ?= python3
VENV := .venv
SANITIZE := build/sanitize
PEERS := build/peers
PLUGINS := build/plugins
SCORE := build/score
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
CFLAGS_SHARED := $(shell cat csrc/cflags.txt)
C_SOURCES := $(wildcard csrc/*.c)
C_FILES := $(C_SOURCES) $(wildcard csrc/*.h csrc/*.hpp csrc/*.txt csrc/binding/* csrc/cmake/*)
BUILD_FILES := $(C_FILES) setup.py pyproject.toml pykernel/_ffi_build.py pykernel/_cdef.txt
PIP := python -m pip install --quiet --disable-pip-version-check

# The tests of a file stay in one process, so that what they share is built once.
PARALLEL := --numprocesses auto --dist loadfile

SCORE_ROWS ?= benchmarks/accuracy/measured.csv

.PHONY: demo test plugins installed-plugins slow lint bench bench-counts bench-peers score fit configs cdef cmake fuzz c-warnings sanitize
.PHONY: prerequisites test-prerequisites rebuild clean

demo: $(VENV)/created
	rm -f $(VENV)/developed
	$(VENV)/bin/$(PIP) .
	$(VENV)/bin/pykernel price deepseek-v3-h200-fp8-tp8 --decode 32x4096

test: test-prerequisites $(VENV)/developed
	$(VENV)/bin/pytest $(PARALLEL)

# Each distribution under plugins/, installed as its users get it and held to its own tests. They are put in a folder of
# their own, since the other tests are to see none of them.
PLUGIN_TESTS := env --unset=PYKERNEL_PLUGINS PYTHONPATH=$(CURDIR)/$(PLUGINS) $(VENV)/bin/pytest --numprocesses auto plugins

plugins: installed-plugins
	$(PLUGIN_TESTS)

installed-plugins: $(VENV)/developed
	rm -rf $(PLUGINS) plugins/*/build
	$(VENV)/bin/$(PIP) --no-deps --no-build-isolation --target $(PLUGINS) $(dir $(wildcard plugins/*/pyproject.toml))
	rm -rf plugins/*/*.egg-info # which would make a plug-in of the oracle's folder, where the other tests find it

slow: installed-plugins
	$(VENV)/bin/pytest $(PARALLEL) -m slow
	$(PLUGIN_TESTS) -m slow

lint: $(VENV)/developed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# Ratios of one run and tables of pytest-benchmark.
bench: $(VENV)/developed
	$(VENV)/bin/pytest --benchmark-enable --benchmark-only benchmarks

# The instructions of the hot calls, held to the committed ones where those are of this compiler.
bench-counts: $(VENV)/developed
	$(VENV)/bin/python benchmarks/instruction_counts.py --check

# Side by side with what a user would take instead, from PyPI, on the same models and batches in one run; then the
# table of benchmarks/RESULTS.md, with the figures of this machine.
bench-peers: $(PEERS)/created $(BUILD_FILES)
	$(PEERS)/bin/$(PIP) . 'aiconfigurator-core==0.12.0' numpy
	$(PEERS)/bin/python benchmarks/report.py

$(PEERS)/created: | prerequisites
	$(PYTHON) -m venv --clear $(PEERS)
	touch $@

# Every config of a package that ships many, of which only the data is read.
configs: $(VENV)/developed
	$(VENV)/bin/$(PIP) --no-deps aiconfigurator-core==0.12.0
	$(VENV)/bin/pytest tests/derive/test_published_configs.py

# Accuracy on measured serving rows: ours, plug-ins and the peer, which brings its data and what it needs of PyPI.
score: $(SCORE)/created $(BUILD_FILES)
	$(SCORE)/bin/$(PIP) --editable '.[plot]' numpy 'aiconfigurator-core==0.12.0'
	for plugin in roofline interpolated; do test ! -d plugins/$$plugin || $(SCORE)/bin/$(PIP) ./plugins/$$plugin || exit 1; done
	$(SCORE)/bin/python -m benchmarks.accuracy.results --rows $(SCORE_ROWS)

$(SCORE)/created: | prerequisites
	$(PYTHON) -m venv --clear $(SCORE)
	touch $@

# Refits every coefficient from the tables, then the serving constants from the training rows.
fit: $(VENV)/developed
	$(VENV)/bin/$(PIP) --editable '.[fit]' matplotlib
	$(VENV)/bin/$(PIP) --no-deps aiconfigurator-core==0.12.0
	$(VENV)/bin/pykernel fit --out build/fitted --plots
	cp build/fitted/coefficients/*.yaml pykernel/data/registry/coefficients/
	$(VENV)/bin/python -m benchmarks.accuracy.constants --rows $(SCORE_ROWS) \
	  --out pykernel/data/registry/coefficients/calibrated-host.yaml

rebuild:

cdef:
	$(PYTHON) csrc/binding/make_cdef.py

prerequisites:
	@sh .ci/prerequisites.sh "$(PYTHON)"

test-prerequisites:
	@sh .ci/prerequisites.sh "$(PYTHON)" test

$(VENV)/created: | prerequisites
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

# An editable install: Python changes count at once, and C changes lead here again, as does a lost extension.
$(VENV)/developed: $(VENV)/created $(BUILD_FILES) $(if $(wildcard pykernel/_native*.so),,rebuild)
	$(VENV)/bin/python csrc/binding/make_cdef.py --check
	$(VENV)/bin/$(PIP) --editable '.[dev]'
	touch $@

# The library as its embedders build it: examples and their tests, an installation, and a project that finds that.
cmake:
	cmake -S csrc -B build/cmake -DCMAKE_INSTALL_PREFIX=$(CURDIR)/build/prefix -DCMAKE_INSTALL_LIBDIR=lib
	cmake --build build/cmake
	ctest --test-dir build/cmake --output-on-failure
	cmake --install build/cmake
	cmake -S tests/embed/consumer -B build/consumer -DCMAKE_PREFIX_PATH=$(CURDIR)/build/prefix
	cmake --build build/consumer
	ctest --test-dir build/consumer --output-on-failure

# Looks for inputs that break a promise of the header; what it finds goes to tests/fuzz/corpus, which the tests replay.
# Needs Debian's clang with libclang-rt-14-dev.
FUZZ_SECONDS ?= 60
fuzz:
	for target in image spec batch; do mkdir -p build/fuzz/$$target && \
	  clang $(CFLAGS_SHARED) -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Icsrc -Itests/c \
	    tests/fuzz/fuzz_$$target.c $(C_SOURCES) -o build/fuzz/fuzz_$$target && \
	  build/fuzz/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) build/fuzz/$$target tests/fuzz/corpus/$$target || exit 1; \
	done

# The core without Python: every source, the header alone, twice, and from C++.
c-warnings:
	@mkdir -p build/warnings
	for source in $(C_SOURCES); do \
	  gcc $(CFLAGS_SHARED) $(WARNINGS) -O3 -c $$source -o build/warnings/$$(basename $$source .c).o || exit 1; done
	printf '#include "pykernel.h"\n#include "pykernel.h"\n' > build/warnings/header.c
	gcc $(CFLAGS_SHARED) $(WARNINGS) -Icsrc -fsyntax-only build/warnings/header.c
	g++ -std=c++17 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Icsrc -fsyntax-only -x c++ build/warnings/header.c

# The tests with the core under ASan and UBSan. Leaks are not reported, the interpreter's own would be: those of the
# core are looked for by the C programs in tests/c, which `make test` runs under the same sanitizers. The fits call
# nothing of the core, and need libraries that nothing else does.
$(SANITIZE)/created: | prerequisites
	$(PYTHON) -m venv --clear $(SANITIZE)
	touch $@

sanitize: $(SANITIZE)/created
	PYKERNEL_SANITIZE=address,undefined $(SANITIZE)/bin/$(PIP) '.[test]'
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 PYKERNEL_EXPECT_SANITIZER=1 $(SANITIZE)/bin/pytest $(PARALLEL) -m 'not toolchain and not slow' \
	  --ignore tests/fit

clean:
	rm -rf build dist $(VENV) *.egg-info pykernel/*.so pykernel/clib .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -exec rm -rf {} +
