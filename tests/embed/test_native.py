"""The C library as an embedder meets it: headers, symbols, layout, the same numbers from C, C++ and Python, and what
happens to bytes that are no image. Programs are linked with the static library that comes with the package."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import pykernel
from pykernel import Batch, Kernel
from pykernel._native import ffi, lib
from pykernel.cli import main
from pykernel.cli.embedding import CLIB
from tests.embed import abi

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "csrc" / "examples"
FUZZ = ROOT / "tests" / "fuzz"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
LIBRARY = CLIB / "lib" / "libpykernel.a"

pytestmark = pytest.mark.toolchain


def compiled(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def printed(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    made = pykernel.open("minimax-m2.5-h200-tp8")
    assert isinstance(made, Kernel)
    return made


@pytest.fixture(scope="module")
def image(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "kernel.pkk"
    kernel.save(path)
    return path


# ---- headers -------------------------------------------------------------------------------------------------------

C_HEADERS = ("pykernel.h", "pk_check.h")


@pytest.mark.parametrize("header", [*C_HEADERS, "pykernel.hpp"])
def test_a_header_stands_alone_and_may_be_included_twice_and_from_two_sources(header: str, tmp_path: Path) -> None:
    compilers = [("c++", standard) for standard in ("c++17", "c++20")]
    compilers += [("cc", "c11")] if header in C_HEADERS else []
    for compiler, standard in compilers:
        suffix = "c" if compiler == "cc" else "cpp"
        sources = [tmp_path / f"{name}.{suffix}" for name in ("one", "two")]
        use = "(void)pk_check_model(0, 0, 0, 0);" if header == "pk_check.h" else "(void)pk_version();"
        structs = re.findall(r"#define PK_(\w+)_INIT ", (CLIB / "include" / "pykernel.h").read_text(encoding="utf-8"))
        use += "".join(
            f" pk_{name.lower()} a_{name} = PK_{name}_INIT; if (a_{name}.struct_size == 0) return 1;"
            for name in set(structs)
        )
        for source in sources:
            function = f"int {source.stem}(void)"
            body = f"#include <{header}>\n#include <{header}>\n{function};\n{function} {{ {use} return 0; }}\n"
            source.write_text(body + ("int main(void) { return one(); }\n" if source.stem == "one" else ""))
        compiled(
            compiler,
            f"-std={standard}",
            *WARNINGS,
            f"-I{CLIB / 'include'}",
            *sources,
            LIBRARY,
            "-o",
            tmp_path / "program",
        )
        printed(tmp_path / "program")


def test_every_function_of_the_header_is_documented() -> None:
    text = (ROOT / "csrc" / "pykernel.h").read_text(encoding="utf-8")
    paragraphs = re.split(r"\n\s*\n", text)
    bare = [
        paragraph.splitlines()[0]
        for paragraph in paragraphs
        if re.search(r"^PK_API ", paragraph, re.MULTILINE) and "/*" not in paragraph
    ]
    assert bare == [], "a function, or the group it stands in, begins with a comment"


def test_experiments_come_last() -> None:
    text = (ROOT / "csrc" / "pykernel.h").read_text(encoding="utf-8")
    before, _, after = text.partition("==== experimental ====")
    assert "pk_model" not in re.sub(r"/\*.*?\*/", "", before, flags=re.DOTALL)
    assert "pk_step_time(" not in after


def test_the_page_lists_the_laws_that_are_checked() -> None:
    checked = set(re.findall(r'"([A-Z]\d+)"', (ROOT / "csrc" / "pk_check.h").read_text(encoding="utf-8")))
    table = re.findall(
        r"^\| ((?:[A-Z]\d+ )+)\|", (ROOT / "docs" / "embed.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(" ".join(table).split()) == sorted(checked)


# ---- symbols and layout --------------------------------------------------------------------------------------------


def test_the_binary_interface_is_the_committed_one() -> None:
    assert abi.describe() == abi.COMMITTED.read_text(encoding="utf-8"), "if it is meant: python tests/embed/abi.py"


def test_the_shared_library_exports_the_functions_of_the_header_and_nothing_else(tmp_path: Path) -> None:
    library = tmp_path / "libpykernel.so"
    exports = f"-Wl,--version-script={ROOT / 'csrc' / 'exports.map'}"
    compiled("cc", "-shared", "-Wl,--whole-archive", LIBRARY, "-Wl,--no-whole-archive", exports, "-o", library)
    symbols = printed("nm", "-D", "--defined-only", library).splitlines()
    declared = {name for name in dir(lib) if name.startswith("pk_")}
    assert {line.split()[-1] for line in symbols} == declared
    assert {line.split()[-2] for line in symbols} == {"T"}


def test_the_library_holds_no_writable_data() -> None:
    """Nothing that one call could leave behind for another, and nothing to relocate when it is loaded."""
    rows = [line.split() for line in printed("nm", LIBRARY).splitlines() if len(line.split()) == 3]
    assert len(rows) > 100
    assert [name for _, kind, name in rows if kind in "dDbBC"] == []


STRUCTS = {
    "pk_spec": lambda s: lib.pk_kernel_new(s, ffi.new("pk_kernel **"), ffi.NULL),
    "pk_batch": lambda s: lib.pk_batch_check(s, ffi.NULL),
    "pk_model": lambda s: lib.pk_model_check(s, ffi.NULL),
}


@pytest.mark.parametrize("name", STRUCTS)
def test_a_struct_of_another_size_is_refused_and_not_misread(name: str) -> None:
    right = ffi.sizeof(name)
    for size in (0, 8, right - 8, right + 8, 2**32 - 1):
        refused = STRUCTS[name](ffi.new(f"{name} *", {"struct_size": size}))
        assert ffi.string(lib.pk_status_name(refused)) == b"STRUCT_SIZE"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("pk_memory_breakdown", lambda handle, out: lib.pk_fixed_bytes(handle, out, ffi.NULL)),
        ("pk_capacity", lambda handle, out: lib.pk_kv_capacity(handle, 0, 0, 0, out, ffi.NULL)),
        ("pk_estimate", lambda handle, out: lib.pk_step_time(handle, Batch().struct, out, ffi.NULL)),
        ("pk_model", lambda handle, out: lib.pk_model_of_kernel(handle, out, ffi.NULL)),
    ],
)
def test_a_result_of_another_size_is_refused_and_left_alone(name: str, function: object, kernel: Kernel) -> None:
    for wrong in ({"struct_size": ffi.sizeof(name) - 8}, {"struct_size": ffi.sizeof(name), "flags": 1}):
        out = ffi.new(f"{name} *", wrong)
        before = bytes(ffi.buffer(out))
        assert function(kernel._handle, out) != lib.PK_OK  # type: ignore[operator]
        assert bytes(ffi.buffer(out)) == before


# ---- the same numbers everywhere -----------------------------------------------------------------------------------


def flags(capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    assert main(list(options)) == 0
    return capsys.readouterr().out.split()


def test_the_example_is_built_with_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kernel: Kernel
) -> None:
    assert main(["compile", "minimax-m2.5-h200-tp8", "-o", str(tmp_path / "kernel.pkk")]) == 0
    assert "minimax-m2.5 on h200" in capsys.readouterr().out
    assert (tmp_path / "kernel.pkk").read_bytes() == kernel.to_bytes()
    compiled("cc", EXAMPLES / "embed.c", *flags(capsys, "--cflags", "--libs"), "-o", tmp_path / "embed")
    out = printed(tmp_path / "embed", tmp_path / "kernel.pkk")
    batch = Batch.from_arrays([1, 1, 512], [4_095, 812, 0], [1, 1, 512], decode_threshold=kernel.decode_threshold())
    estimate = kernel.step_time(batch)
    evidence = kernel.evidence()
    assert out.startswith(f"minimax-m2.5 on h200, {evidence.measured} of {evidence.total} numbers with evidence\n")
    assert f"overlap     {estimate.overlap_ns} ns\nno overlap  {estimate.no_overlap_ns} ns\n" in out
    assert re.findall(r"(\w+) +\d+ ns  \(bottleneck\)", out) == [estimate.bottleneck]
    assert dict(re.findall(r"^  (\w+) +(\d+) ns", out, re.MULTILINE)) == {
        name: str(ns) for name, ns in estimate.per_resource_ns.items()
    }


PRICES_C = r"""
#include <pykernel.h>
#include <stdio.h>
int main(int argc, char **argv) {
    static int64_t scheduled[4096], computed[4096];
    pk_kernel *kernel = NULL;
    int64_t head[4];
    if (argc != 3 || pk_kernel_load_file(argv[1], &kernel, NULL) != PK_OK) return 1;
    FILE *file = fopen(argv[2], "rb");
    while (file != NULL && fread(head, sizeof head, 1, file) == 1) {
        pk_batch batch = PK_BATCH_INIT;
        batch.count = head[0];
        batch.decode_threshold = head[1];
        batch.sm_budget = head[2];
        batch.pad_tokens = head[3];
        batch.scheduled = scheduled;
        batch.computed = computed;
        size_t count = (size_t)head[0];
        if (fread(scheduled, 8, count, file) != count || fread(computed, 8, count, file) != count) return 1;
        pk_estimate estimate = PK_ESTIMATE_INIT;
        if (pk_step_time(kernel, &batch, &estimate, NULL) != PK_OK) return 1;
        (void)fwrite(&estimate.overlap_ns, 8, 2 + PK_RESOURCE_COUNT, stdout);
        (void)fwrite(&estimate.bottleneck, 4, 1, stdout);
    }
    pk_kernel_free(kernel);
    return 0;
}
"""
PRICES_CPP = r"""
#include <pykernel.hpp>
#include <cstdio>
#include <fstream>
static pk_status open_based(const pk_model *base, pk_model *model, pk_error *) {
    model->base = base;
    return PK_OK;
}
int main(int, char **argv) {
    pykernel::Kernel kernel = pykernel::Kernel::load_file(argv[1]);
    pykernel::Model model(kernel), based(open_based, model.get());
    try {
        pykernel::Model alone(open_based);
        return 1;
    } catch (const pykernel::Error &error) {
        if (error.status() != PK_MODEL || error.field() != "step_time") return 1;
    }
    std::ifstream file(argv[2], std::ios::binary);
    std::int64_t head[4];
    while (file.read(reinterpret_cast<char *>(head), sizeof head)) {
        std::vector<std::int64_t> scheduled(static_cast<std::size_t>(head[0])), computed(scheduled.size());
        std::streamsize bytes = static_cast<std::streamsize>(8 * scheduled.size());
        file.read(reinterpret_cast<char *>(scheduled.data()), bytes);
        file.read(reinterpret_cast<char *>(computed.data()), bytes);
        pykernel::Batch batch(head[1]);
        batch.sm_budget = head[2];
        batch.pad_tokens = head[3];
        for (std::size_t i = 0; i < scheduled.size(); i++) batch.add(scheduled[i], computed[i]);
        pk_estimate estimate = batch.size() % 2 == 0 ? kernel.step_time(batch) : based.step_time(batch);
        std::fwrite(&estimate.overlap_ns, 8, 2 + PK_RESOURCE_COUNT, stdout);
        std::fwrite(&estimate.bottleneck, 4, 1, stdout);
    }
}
"""


def price_everywhere(count: int, kernel: Kernel, image: Path, folder: Path) -> None:
    """Price `count` random batches in C, in C++ and in Python; compare every member of every estimate."""
    draw = random.Random(11)
    wanted, file = hashlib.sha256(), (folder / "batches").open("wb")
    out = ffi.new("pk_estimate *", {"struct_size": ffi.sizeof("pk_estimate")})
    with file:
        for _ in range(count):
            size = draw.choice([0, 1, 3, 8, 20])
            scheduled = [draw.choice([1, 1, 1, 2, 300]) for _ in range(size)]
            computed = [draw.randrange(1 << draw.randrange(18)) for _ in range(size)]
            head = [size, draw.choice([1, 1, 2]), draw.choice([0, 0, 66]), draw.choice([0, 0, 5])]
            file.write(struct.pack(f"{4 + 2 * size}q", *head, *scheduled, *computed))
            settings = dict(zip(("decode_threshold", "sm_budget", "pad_tokens"), head[1:], strict=True))
            batch = Batch.from_arrays(scheduled, computed, [0] * size, **settings)
            assert lib.pk_step_time(kernel._handle, batch.struct, out, ffi.NULL) == lib.PK_OK
            wanted.update(struct.pack("9qi", out.overlap_ns, out.no_overlap_ns, *out.per_resource_ns, out.bottleneck))
    for compiler, standard, source in (("cc", "c11", PRICES_C), ("c++", "c++17", PRICES_CPP)):
        path = folder / ("prices.c" if compiler == "cc" else "prices.cpp")
        path.write_text(source, encoding="utf-8")
        compiled(
            compiler, f"-std={standard}", *WARNINGS, f"-I{CLIB / 'include'}", path, LIBRARY, "-o", folder / "prices"
        )
        done = subprocess.run([folder / "prices", image, folder / "batches"], capture_output=True, check=True)
        assert len(done.stdout) == count * 76
        assert hashlib.sha256(done.stdout).hexdigest() == wanted.hexdigest(), compiler


def test_c_cpp_and_python_give_the_same_estimates(kernel: Kernel, image: Path, tmp_path: Path) -> None:
    price_everywhere(5_000, kernel, image, tmp_path)


@pytest.mark.slow
def test_c_cpp_and_python_give_the_same_estimates_of_many(kernel: Kernel, image: Path, tmp_path: Path) -> None:
    price_everywhere(100_000, kernel, image, tmp_path)


# ---- images under attack -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core as objects under ASan and UBSan, in a folder."""
    folder = tmp_path_factory.mktemp("guarded")
    shared = (ROOT / "csrc" / "cflags.txt").read_text(encoding="utf-8").split()
    sources = sorted((ROOT / "csrc").glob("*.c"))
    done = subprocess.run(["cc", *shared, *GUARD, "-c", *map(str, sources)], cwd=folder, check=True)
    assert done.returncode == 0
    return folder


GUARD = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def guarded_program(guarded: Path, *sources: str) -> Path:
    program = guarded / sources[0].removesuffix(".c")
    headers = [f"-I{ROOT / part}" for part in ("csrc", "tests/c", "tests/fuzz")]
    shared = (ROOT / "csrc" / "cflags.txt").read_text(encoding="utf-8").split()
    objects = sorted(guarded.glob("*.o"))
    compiled("cc", *shared, *GUARD, *headers, *(FUZZ / source for source in sources), *objects, "-o", program)
    return program


@pytest.mark.parametrize("target", ["image", "spec", "batch"])
def test_what_a_fuzzer_found_stays_harmless(target: str, guarded: Path) -> None:
    corpus = sorted((FUZZ / "corpus" / target).iterdir())
    program = guarded_program(guarded, f"fuzz_{target}.c", "replay.c")
    assert printed(program, *corpus) == f"{len(corpus)} replayed\n"
    assert len(corpus) >= 40


def mutate(guarded: Path, count: int, seed: int, image: Path) -> None:
    out = printed(guarded_program(guarded, "mutate.c"), str(count), str(seed), image)
    refused, made = (int(number) for number in re.findall(r"\d+", out))
    assert refused + made == count
    assert made > count // 100, "some damage is harmless, or the mutator cannot reach behind the checksum"


def test_damaged_images_are_refused_or_make_kernels_that_work(guarded: Path, image: Path) -> None:
    mutate(guarded, 100_000, 1, image)


@pytest.mark.slow
def test_a_million_damaged_images_do_no_harm(guarded: Path, image: Path) -> None:
    mutate(guarded, 1_000_000, 2, image)


# ---- the simulator -------------------------------------------------------------------------------------------------


def trace(path: Path, count: int) -> Path:
    draw, time = random.Random(2), 0
    with path.open("w", encoding="utf-8") as file:
        file.write("arrival_us,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n")
        for _ in range(count):
            time += int(draw.expovariate(1 / 15_000))
            prefix = draw.choice([0, 0, 0, *range(1, 30)])
            shared = 37 * prefix
            prompt = draw.randint(1, 1_500) + shared
            file.write(f"{time},{prompt},{draw.randint(1, 200)},{prefix},{shared}\n")
    return path


@pytest.fixture(scope="module")
def serve_sim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("serve_sim") / "serve_sim"
    source = EXAMPLES / "serve_sim.cpp"
    compiled("c++", "-std=c++17", "-O1", *WARNINGS, f"-I{CLIB / 'include'}", source, LIBRARY, "-pthread", "-o", program)
    return program


def simulate(serve_sim: Path, path: Path, *options: str | Path) -> dict[str, str]:
    """What the simulator printed; it ends itself when memory is over-committed or a token is lost."""
    out = printed(serve_sim, path, *options)
    found = dict(re.findall(r"(requests|handoffs|preemptions|digest) (\w+)", out))
    found["cached"] = re.findall(r"([\d.]+)% of prompt tokens cached", out)[0]
    found["full"] = re.findall(r"([\d.]+)% full", out)[0]
    return found


def disaggregated(folder: Path) -> list[str | Path]:
    paths = [folder / f"pool{pool}.pkk" for pool in (0, 1)]
    for pool, path in enumerate(paths):
        made = pykernel.open_pool("minimax-m2.5-h200-disagg", pool)
        assert isinstance(made, Kernel)
        made.save(path)
    return [paths[1], "--prefill", paths[0]]


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_simulation_is_the_same_on_every_run_and_any_number_of_threads(
    count: int, serve_sim: Path, image: Path, tmp_path: Path
) -> None:
    path = trace(tmp_path / "trace.csv", count)
    for options in ([image], disaggregated(tmp_path)):
        runs = [simulate(serve_sim, path, *options, "--cells", "8", "--threads", n) for n in ("1", "1", "8")]
        assert runs[0] == runs[1] == runs[2]
        assert runs[0]["requests"] == str(count)
        assert float(runs[0]["cached"]) > 1
        assert (runs[0]["handoffs"] != "0") is (len(options) > 1)


def test_a_simulation_takes_what_the_kernel_says(serve_sim: Path, kernel: Kernel, image: Path, tmp_path: Path) -> None:
    """Two requests that never meet, the second with a prompt of two steps, added up here from the kernel's answers."""

    def step(scheduled: int, computed: int) -> int:
        batch = Batch([pykernel.Request(scheduled, computed, 1)], decode_threshold=kernel.decode_threshold())
        return kernel.step_time(batch).no_overlap_ns

    (tmp_path / "two.csv").write_text("header\n0,100,3,0,0\n9000000,40000,2,0,0\n", encoding="utf-8")
    out = " ".join(printed(serve_sim, tmp_path / "two.csv", image).split())
    budget, token = kernel.deployment().engine.max_num_batched_tokens, kernel.output_token_overhead_ns()
    first = [
        kernel.admission_overhead_ns(100) + step(100, 0) + token,
        kernel.admission_overhead_ns(40_000) + step(budget, 0) + step(40_000 - budget, budget) + token,
    ]
    rest = [step(1, 100) + step(1, 101), step(1, 40_000)]
    total = [sum(times) + kernel.completion_overhead_ns() for times in zip(first, rest, strict=True)]
    for name, (low, high) in {"ttft": first, "tpot": [rest[0] // 2, rest[1]], "total": total}.items():
        assert f"{name} p50 {low / 1e6:.3f} ms p90 {high / 1e6:.3f} ms p99 {high / 1e6:.3f} ms" in out


def test_short_of_memory_requests_are_preempted_and_still_finish(
    serve_sim: Path, kernel: Kernel, image: Path, tmp_path: Path
) -> None:
    held = kernel.kv_capacity()
    fixed = held.budget_bytes - held.bytes
    sequence = kernel.sequence_variable_bytes(3_000) + kernel.sequence_admission_bytes()
    mebibytes = int((fixed + 6 * sequence) / held.budget_bytes * held.device_bytes) >> 20
    found = simulate(serve_sim, trace(tmp_path / "trace.csv", 300), image, "--memory", str(mebibytes))
    assert int(found["preemptions"]) > 0
    assert 90 < float(found["full"]) <= 100


@pytest.mark.parametrize("threads", ["1", "4"])
def test_what_fails_on_any_thread_of_a_simulation_is_said(threads: str, serve_sim: Path, image: Path) -> None:
    """An exception that left its thread would end the process without a word of its own."""
    options = ["--memory", "1", "--cells", "4", "--threads", threads]
    done = subprocess.run([serve_sim, EXAMPLES / "trace.csv", image, *options], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"serve_sim: the model does not fit: .*\n", done.stderr)


@pytest.mark.parametrize("option", ["--threads 0", "--memory much", "--cells 2x", "--cels 2", "--cells"])
def test_a_simulation_refuses_options_that_are_none(option: str, serve_sim: Path, image: Path) -> None:
    command = [serve_sim, EXAMPLES / "trace.csv", image, *option.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr[:16]) == (2, "", "usage: serve_sim")


@pytest.mark.slow
def test_threads_that_share_a_kernel_do_not_race(image: Path, tmp_path: Path) -> None:
    shared = (ROOT / "csrc" / "cflags.txt").read_text(encoding="utf-8").split()
    for source in sorted((ROOT / "csrc").glob("*.c")):
        compiled("cc", *shared, "-O1", "-g", "-fsanitize=thread", "-c", source, "-o", tmp_path / f"{source.stem}.o")
    source, program = EXAMPLES / "serve_sim.cpp", tmp_path / "serve_sim"
    objects = sorted(tmp_path.glob("*.o"))
    compiled(
        "c++",
        "-std=c++17",
        "-O1",
        "-fsanitize=thread",
        f"-I{ROOT / 'csrc'}",
        source,
        *objects,
        "-pthread",
        "-o",
        program,
    )
    path = trace(tmp_path / "trace.csv", 2_000)
    runs = [simulate(program, path, image, "--cells", "8", "--threads", n) for n in ("1", "8")]
    assert runs[0] == runs[1]


def test_an_empty_environment_is_enough(serve_sim: Path, image: Path) -> None:
    """A price depends on no variable: the program runs with none, as with odd ones."""
    out = [
        subprocess.run([serve_sim, EXAMPLES / "trace.csv", image], env=env, capture_output=True, check=True).stdout
        for env in ({}, {**os.environ, "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"})
    ]
    assert out[0] == out[1]


@pytest.mark.slow
def test_cmake_builds_installs_and_is_found(tmp_path: Path) -> None:
    assert shutil.which("cmake"), "install cmake"
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    printed("cmake", "-S", ROOT / "csrc", "-B", build, f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib")
    printed("cmake", "--build", build)
    printed("ctest", "--test-dir", build, "--output-on-failure")
    printed("cmake", "--install", build)
    for place in (f"-DCMAKE_PREFIX_PATH={prefix}", f"-Dpykernel_DIR={CLIB / 'lib' / 'cmake' / 'pykernel'}"):
        consumer = tmp_path / f"consumer{len(place)}"
        printed("cmake", "-S", ROOT / "tests" / "embed" / "consumer", "-B", consumer, place)
        printed("cmake", "--build", consumer)
        printed("ctest", "--test-dir", consumer, "--output-on-failure")
