"""A cost model in C: loaded from a shared library, on its own and over a kernel, and held to the laws for C authors."""

from __future__ import annotations

import pickle
import re
import subprocess
from pathlib import Path

import pytest

import pykernel
from pykernel import Batch, BatchError, Kernel, Placement, PluginError, Request
from pykernel.c_model import c_model_factory
from pykernel.cli import main
from pykernel.cli.embedding import CLIB

ROOT = Path(__file__).resolve().parents[2]
LINEAR = ROOT / "plugins" / "linear-c" / "linear.c"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off"]

BATCH = Batch([Request(1, 4_095, 1_024)] * 32)

pytestmark = pytest.mark.toolchain


def shared(source: Path, folder: Path, *flags: str) -> Path:
    library = folder / f"{source.stem}.so"
    command = ["cc", "-shared", "-fPIC", "-O1", *STRICT, *flags, f"-I{ROOT / 'csrc'}", str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(LINEAR, tmp_path_factory.mktemp("linear"))


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    made = pykernel.open("deepseek-v3-h200-fp8-tp8")
    assert isinstance(made, Kernel)
    return made


def test_a_model_on_its_own_answers_everything(linear: Path) -> None:
    model = pykernel.load_c_model(linear)
    estimate = model.step_time(BATCH)
    weights, cache = 16e9, 32 * 4_096 * 131_072
    assert estimate.per_resource_ns["hbm"] == int((weights + cache) / 3.35e12 * 1e9)
    assert estimate.bottleneck == "hbm"
    assert estimate.no_overlap_ns == sum(estimate.per_resource_ns.values())
    assert model.fixed_bytes().weights == model.fixed_bytes().total == 16_000_000_000
    assert model.kv_capacity(gpu_memory_bytes=80 << 30, gpu_memory_utilization=0.9).blocks == 29_234
    assert model.max_tokens_for(model.sequence_variable_bytes(1_000)) == 1_008
    assert model.tier_time_ns("cpu_dram", "to_tier", 1, 1) == 2**63 - 1
    assert model.pd_transfer_demand(10, Placement(0, 0, ""), Placement(1, 0, "")).bytes == 1_310_720
    assert (model.graph_modes(), model.decode_threshold(), model.capture_tokens()) == (("NONE", "NONE"), 1, 0)
    assert model.resolved().tensor_parallel() == 1
    assert [origin.method for origin in model.provenance()] == ["vendor_spec", "vendor_spec", "assumed"]
    with pytest.raises(PluginError, match="tells no deployment"):
        model.deployment()


def test_over_a_kernel_it_prices_steps_and_the_kernel_answers_the_rest(linear: Path, kernel: Kernel) -> None:
    model = pykernel.load_c_model(linear, kernel)
    assert repr(model) == f"<CModel of {linear} over {kernel!r}>"
    assert model.step_time(BATCH) != kernel.step_time(BATCH)
    read = (kernel.fixed_bytes().weights + 32 * 4_096 * kernel.sequence_variable_bytes(1_024) / 1_024) / 3.35e12
    assert model.step_time(BATCH).per_resource_ns["hbm"] == pytest.approx(read * 1e9, abs=1)
    for name in ("fixed_bytes", "sequence_admission_bytes", "deployment", "resolved", "graph_modes"):
        assert getattr(model, name)() == getattr(kernel, name)()
    assert model.tier_time_ns("cpu_dram", "to_tier", 1 << 26, 1) == kernel.tier_time_ns(
        "cpu_dram", "to_tier", 1 << 26, 1
    )
    assert model.kv_capacity().blocks == kernel.kv_capacity().blocks
    assert model.provenance() != kernel.provenance()


def test_it_takes_the_place_of_a_named_model(linear: Path) -> None:
    inputs = pykernel.open_inputs("deepseek-v3-h200-fp8-tp8")
    by_path = pykernel.new(inputs, model=str(linear))
    assert by_path.step_time(BATCH) == c_model_factory(linear)(inputs).step_time(BATCH)
    assert pickle.loads(pickle.dumps(by_path)).step_time(BATCH) == by_path.step_time(BATCH)


def test_the_laws_are_tried_on_it_by_path(linear: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(linear), "--lacks", "blis", "--scenario", "qwen3-14b-h100-tp1", "--quiet"]) == 0
    assert re.match(r"qwen3-14b-h100-tp1: 1?\d\d passed, 0 broken, \d+ skipped\n", capsys.readouterr().out)


def test_a_law_that_it_breaks_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "forgetful.c"
    budget = "if (batch->sm_budget > 0 && batch->sm_budget < SM_COUNT)"
    text = LINEAR.read_text(encoding="utf-8")
    assert budget in text
    source.write_text(text.replace(budget, "if (batch->sm_budget > SM_COUNT)"), encoding="utf-8")
    laws = ["--law", "B5", "--law", "S1"]
    library = str(shared(source, tmp_path))
    assert main(["check", library, "--scenario", "qwen3-14b-h100-tp1", "--quiet", *laws]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("qwen3-14b-h100-tp1: 1 passed, 1 broken\n")
    assert "broken B5" in printed
    assert main(["check", str(tmp_path / "missing.so"), "--quiet"]) == 1
    assert "missing.so cannot be loaded" in capsys.readouterr().err


def test_its_refusal_of_a_batch_is_an_error_with_its_words(linear: Path) -> None:
    with pytest.raises(BatchError, match=r"batch\.computed is negative"):
        pykernel.load_c_model(linear).step_time(Batch([Request(1, -1, 1)]))


MODELS = {
    "nothing": ("", "has no function pk_model_open"),
    "refuses": ("(void)base; (void)model; (void)error; return PK_MODEL;", "a cost model could not be loaded"),
    "incomplete": ("(void)base; (void)model; (void)error; return PK_OK;", "does not answer step_time"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_library_that_is_no_model_says_why(name: str, tmp_path: Path) -> None:
    body, said = MODELS[name]
    head = "PK_API pk_status pk_model_open(const pk_model *base, pk_model *model, pk_error *error);\n"
    define = head + head.rstrip(";\n").removeprefix("PK_API ") + f" {{ {body} }}\n" if body else "int pk_nothing;\n"
    source = tmp_path / f"{name}.c"
    source.write_text(f"#include <pykernel.h>\n{define}", encoding="utf-8")
    with pytest.raises(PluginError, match=said) as caught:
        pykernel.load_c_model(shared(source, tmp_path))
    assert f"{name}.so" in str(caught.value)


ABSURD = """#include <pykernel.h>
static pk_status step_time(const void *context, const pk_batch *batch, pk_estimate *estimate, pk_error *error) {
    (void)context, (void)batch, (void)error;
    estimate->bottleneck = 7;
    return PK_OK;
}
static pk_status demand(const void *context, int64_t tokens, const pk_placement *source, const pk_placement *target,
                        pk_transfer_demand *demand, pk_error *error) {
    (void)context, (void)source, (void)target, (void)error;
    demand->link_count = (int32_t)tokens;
    return PK_OK;
}
static int32_t mode(const void *context) { (void)context; return 3; }
PK_API pk_status pk_model_open(const pk_model *base, pk_model *model, pk_error *error);
pk_status pk_model_open(const pk_model *base, pk_model *model, pk_error *error) {
    (void)error;
    model->base = base;
    model->step_time = step_time;
    model->pd_transfer_demand = demand;
    model->uniform_graph_mode = mode;
    return PK_OK;
}
"""


def test_an_answer_that_means_nothing_is_the_models_fault(tmp_path: Path, kernel: Kernel) -> None:
    (tmp_path / "absurd.c").write_text(ABSURD, encoding="utf-8")
    model = pykernel.load_c_model(shared(tmp_path / "absurd.c", tmp_path), kernel)
    here = Placement(0, 0)
    with pytest.raises(PluginError, match="bottleneck of a step is 7"):
        model.step_time(BATCH)
    for links in (-1, 3):
        with pytest.raises(PluginError, match=f"crosses {links} links"):
            model.pd_transfer_demand(links, here, here)
    with pytest.raises(PluginError, match="answers 0, accepted is one of 1, 2, 3"):
        model.pd_transfer_demand(1, here, here)  # a link of no kind
    with pytest.raises(PluginError, match="answers 3, accepted is one of 0, 1, 2"):
        model.graph_modes()


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(PluginError, match=r"text\.so cannot be loaded"):
        pykernel.load_c_model(tmp_path / "text.so")
    with pytest.raises(PluginError, match=r"missing\.so cannot be loaded"):
        pykernel.load_c_model(tmp_path / "missing.so")


# ---- the laws for C authors ----------------------------------------------------------------------------------------

CHECK = r"""
#include <pk_check.h>
#include <stdlib.h>
static void report(void *context, const char *law, const char *statement, const char *found) {
    (void)context;
    printf("%s %s (%s)\n", law, statement, found);
}
@MODEL@
int main(int argc, char **argv) {
    pk_kernel *kernel = NULL;
    pk_model base = PK_MODEL_INIT, model = PK_MODEL_INIT;
    if (argc > 1 && pk_kernel_load_file(argv[1], &kernel, NULL) != PK_OK) return 2;
    if (kernel != NULL && pk_model_of_kernel(kernel, &base, NULL) != PK_OK) return 2;
    if (OPEN(kernel != NULL ? &base : NULL, &model, NULL) != PK_OK) return 2;
    static const char *const tiers[] = {"cpu_dram", "nvme_gen4", NULL};
    pk_check_options options = {kernel != NULL ? tiers : NULL, 0, 0, 132};
    long long violations = (long long)pk_check_model(&model, &options, report, NULL);
    printf("%lld violations\n", violations);
    pk_model_close(&model);
    pk_kernel_free(kernel);
    return violations != 0;
}
"""
PLAIN = """
static pk_status open_plain(const pk_model *base, pk_model *model, pk_error *error) {
    (void)error;
    model->base = base;
    return PK_OK;
}
#define OPEN open_plain
"""


def check(model: str, folder: Path, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
    """Build the checker with a model and run it; what it printed."""
    source, program = folder / "check.c", folder / "check"
    source.write_text(CHECK.replace("@MODEL@", model), encoding="utf-8")
    library = str(CLIB / "lib" / "libpykernel.a")
    command = ["cc", *STRICT, f"-I{CLIB / 'include'}", str(source), *flags, library, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran
    return ran.stdout.splitlines()


@pytest.fixture(scope="module")
def image(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("image") / "kernel.pkk"
    kernel.save(path)
    return str(path)


def test_the_built_in_kernel_keeps_the_laws(image: str, tmp_path: Path) -> None:
    assert check(PLAIN, tmp_path, image) == ["0 violations"]


@pytest.mark.parametrize("based", [True, False])
def test_the_example_keeps_the_laws(based: bool, image: str, tmp_path: Path) -> None:
    opened = "#define OPEN pk_model_open\nPK_API pk_status pk_model_open(const pk_model *, pk_model *, pk_error *);\n"
    assert check(opened, tmp_path, *([image] if based else []), flags=(str(LINEAR),)) == ["0 violations"]


STEP = """
static const pk_model *own_base;
static pk_status broken(const void *context, const pk_batch *batch, pk_estimate *estimate, pk_error *error) {
    (void)context;
    %s
}
static pk_status open_broken(const pk_model *base, pk_model *model, pk_error *error) {
    (void)error;
    model->base = own_base = base;
    model->step_time = broken;
    return PK_OK;
}
#define OPEN open_broken
"""
ASK = "pk_status status = own_base->step_time(own_base->context, batch, estimate, error);"
OTHER = """
static %(result)s broken(const void *context%(parameters)s) { %(body)s }
static pk_status open_broken(const pk_model *base, pk_model *model, pk_error *error) {
    (void)error;
    model->base = base;
    model->%(name)s = broken;
    return PK_OK;
}
#define OPEN open_broken
"""


def other(name: str, parameters: str, body: str, result: str = "int64_t") -> str:
    return OTHER % {"name": name, "parameters": parameters, "body": f"(void)context; {body}", "result": result}


MUTANTS = {
    "P1": STEP % f"static int64_t calls; {ASK} estimate->no_overlap_ns += calls++; return status;",
    "S1": STEP % f"{ASK} estimate->overlap_ns = estimate->no_overlap_ns + 1; return status;",
    "S2": STEP % f"{ASK} estimate->no_overlap_ns += 1000; return status;",
    "S3": STEP % f"{ASK} estimate->bottleneck = PK_PCIE; return status;",
    "S4": STEP % f"{ASK} estimate->per_resource_ns[PK_PCIE] = -5; return status;",
    "S5": STEP % f"{ASK} estimate->overlap_ns = 0; return status;",
    "S7": STEP % f"{ASK} estimate->overlap_ns = estimate->per_resource_ns[PK_HOST] / 2; return status;",
    "B1": STEP % f"{ASK} if (batch->count > 0) estimate->per_resource_ns[PK_NIC] += batch->computed[0]; return status;",
    "B3": STEP % f"{ASK} estimate->per_resource_ns[PK_NIC] += batch->decode_threshold; return status;",
    "B4": STEP % f"{ASK} if (batch->sm_budget < 0) estimate->per_resource_ns[PK_NIC] += 1; return status;",
    "B5": STEP % f"{ASK} if (batch->sm_budget == 1) estimate->no_overlap_ns = 1; return status;",
    "B7": STEP % f"{ASK} if (batch->cached_tokens[0] > 0) estimate->no_overlap_ns /= 2; return status;",
    "B8": STEP % "(void)batch; (void)estimate; (void)error; return PK_BATCH_LIMIT;",
    "B9": STEP % f"{ASK} if (status != PK_OK) estimate->no_overlap_ns = -1; return status;",
    "M1": STEP % f"{ASK} if (batch->count == 512) estimate->no_overlap_ns /= 4; return status;",
    "M2": STEP % f"{ASK} if (batch->computed[0] > 100000) estimate->no_overlap_ns /= 4; return status;",
    "C2": other("max_tokens_for", ", int64_t bytes", "return bytes > 0 ? 1 : 0;"),
    "C3": other("other_graph_mode", "", "return 7;", "int32_t"),
    "C5": other("decode_threshold", "", "return 0;"),
    "C6": other("decode_context_ranks", "", "return 0;", "int32_t"),
    "F4": other("pre_snapshot_bytes", "", "return -1;"),
    "G3": other("sequence_bounded_bytes", ", int64_t in_flight", "return 1000000 - in_flight;"),
    "H1": other("admission_overhead_ns", ", int64_t prompt_tokens", "return 5 - prompt_tokens;"),
    "H3": other("completion_overhead_ns", "", "return -1;"),
    "Q1": other("sequence_variable_bytes", ", int64_t tokens", "return tokens + 9;"),
    "Q2": other("sequence_variable_bytes", ", int64_t tokens", "return tokens > 9 ? 1 : tokens > 0 ? 2 : 0;"),
    "T1": other(
        "tier_time_ns",
        ", const char *tier, int32_t direction, int64_t bytes, int64_t queue_depth",
        "(void)tier; (void)direction; (void)bytes; (void)queue_depth; return 7;",
    ),
    "T3": other(
        "tier_time_ns",
        ", const char *tier, int32_t direction, int64_t bytes, int64_t queue_depth",
        "(void)tier; (void)direction; return 1000000 - bytes % 1000 - queue_depth;",
    ),
    "X1": other(
        "pd_transfer_demand",
        ", int64_t tokens, const pk_placement *source, const pk_placement *target, pk_transfer_demand *demand, "
        "pk_error *error",
        "(void)source; (void)target; (void)error; demand->bytes = tokens > 0 ? tokens : 0; return PK_OK;",
        "pk_status",
    ),
}


@pytest.mark.parametrize("law", MUTANTS)
def test_a_model_that_breaks_a_law_is_caught_by_it(law: str, image: str, tmp_path: Path) -> None:
    printed = check(MUTANTS[law], tmp_path, image)
    assert law in {line.split()[0] for line in printed[:-1]}, printed[-1]
