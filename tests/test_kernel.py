"""`Kernel` and the ways to one: what it is built of, what it keeps, what it refuses, and that it goes away.

Each refusal is tested beside a control that differs in the setting at fault alone and is accepted.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import gc
import pickle
import weakref
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

import pykernel
from pykernel import (
    ArgumentError,
    Batch,
    BatchError,
    CostModel,
    DocumentError,
    Inputs,
    Kernel,
    RefusedError,
    Request,
    StepEstimate,
)
from pykernel import kernel as kernel_module
from pykernel._native import ffi, lib
from pykernel.documents import Dbo, Engine, Offload, OffloadTier, Parallel, Speculative
from pykernel.models import MODELS, OwnModel
from pykernel.switches import NEWEST, REFERENCE

DEEPSEEK = "deepseek-v3-h200-fp8-tp8"
MINIMAX = "minimax-m2.5-h200-tp8"
DISAGGREGATED = "minimax-m2.5-h200-disagg"

BATCHES = {
    "idle": Batch(),
    "decode": Batch([Request(1, 4_095, 1_024)] * 32),
    "prefill": Batch([Request(2_048, 8_192, 10_240)]),
    "mixed": Batch([Request(1, 4_095, 1_024)] * 32 + [Request(480, 0, 480)]),
}


@cache
def loaded(scenario: str, pool: int = 0) -> Inputs:
    return pykernel.open_inputs(scenario, pool=pool)


def fresh(scenario: str = DEEPSEEK, pool: int = 0) -> Inputs:
    """Documents of a scenario that a test may edit, but for the entries of coefficient sets, which are shared."""
    documents = copy.copy(loaded(scenario, pool))
    for name in ("scenario", "deployment", "model", "chip", "fabric"):
        setattr(documents, name, copy.deepcopy(getattr(documents, name)))
    documents.coefficients = [copy.copy(entries) for entries in documents.coefficients]
    for entries in documents.coefficients:
        entries.coefficients = list(entries.coefficients)
    return documents


def edit_coefficient(documents: Inputs, name: str, value: float) -> None:
    for entries in documents.coefficients:
        entries.coefficients = [
            dataclasses.replace(entry, value=value, ci95=None) if entry.name == name else entry
            for entry in entries.coefficients
        ]


def engine(documents: Inputs) -> Engine:
    return documents.deployment.pools[documents.pool].engine


def parallel(documents: Inputs) -> Parallel:
    return documents.deployment.pools[documents.pool].parallel


def prices(kernel: CostModel) -> dict[str, StepEstimate]:
    return {name: kernel.step_time(batch) for name, batch in BATCHES.items()}


def image(kernel: CostModel) -> bytes:
    """The frozen block of a kernel, byte by byte."""
    assert isinstance(kernel, Kernel)
    return bytes(ffi.buffer(ffi.cast("char *", kernel._handle), lib.pk_kernel_size(kernel._handle)))


# ---- ways to a kernel ----------------------------------------------------------------------------------------------


def test_every_way_to_a_kernel_gives_the_same_one() -> None:
    ways = [
        pykernel.open(DEEPSEEK),
        pykernel.open(f"{DEEPSEEK}.yaml", model="blis"),
        pykernel.open_pool(DEEPSEEK, 0),
        pykernel.new(fresh()),
        Kernel(fresh()),
        Kernel(fresh(), switches=NEWEST),
    ]
    assert len({image(kernel) for kernel in ways}) == 1
    assert all(prices(kernel) == prices(ways[0]) for kernel in ways)


def test_a_path_opens_what_its_name_opens(tmp_path: Path) -> None:
    bundled = Path(str(pykernel.__file__)).parent / "data" / "scenarios" / f"{DEEPSEEK}.yaml"
    path = tmp_path / "mine.yaml"
    path.write_bytes(bundled.read_bytes())
    assert image(pykernel.open(path)) == image(pykernel.open(DEEPSEEK))


def test_equal_documents_give_equal_kernels_each_built_anew() -> None:
    documents = fresh()
    first, second = pykernel.new(documents), pykernel.new(documents)
    assert first is not second
    assert image(first) == image(second)
    engine(documents).cache_dtype = "bfloat16"
    assert image(pykernel.new(documents)) != image(first)


def test_each_pool_has_a_kernel_of_its_own() -> None:
    first, second = (pykernel.open_pool(DISAGGREGATED, pool) for pool in (0, 1))
    assert [kernel.deployment().role for kernel in (first, second)] == ["prefill", "decode"]
    assert [kernel.deployment().engine.max_num_batched_tokens for kernel in (first, second)] == [8_192, 2_048]
    assert [kernel.resolved().tensor_parallel() for kernel in (first, second)] == [8, 4]
    assert [kernel.resolved().data_parallel() for kernel in (first, second)] == [1, 2]
    assert prices(first) != prices(second)
    assert prices(pykernel.open(DISAGGREGATED)) == prices(first)
    assert prices(pykernel.new(fresh(DISAGGREGATED, 1))) == prices(second)


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_a_pool_that_does_not_exist_is_named_with_the_file_and_what_it_has(index: int) -> None:
    for attempt in (pykernel.open_pool, lambda name, pool: pykernel.open_inputs(name, pool=pool)):
        with pytest.raises(ArgumentError) as caught:
            attempt(DISAGGREGATED, index)
        message = str(caught.value)
        assert f"{DISAGGREGATED}.yaml" in message and str(index) in message and "2 pools" in message


@pytest.mark.parametrize("model", ["blsi", "Blis", "blis-referense", "", "nonsense"])
def test_an_unknown_cost_model_is_refused_with_the_nearest(model: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        pykernel.new(fresh(), model=model)
    message = str(caught.value)
    assert repr(model) in message and "blis-reference" in message
    assert ("did you mean" in message) is (model not in ("", "nonsense"))
    with pytest.raises(ArgumentError, match="cost model"):
        pykernel.open(DEEPSEEK, model=model)


def test_the_names_that_give_a_kernel_are_those_that_type_checkers_know() -> None:
    assert set(get_args(OwnModel)) == set(MODELS)
    for name in MODELS:
        assert isinstance(pykernel.open("llama-3.1-8b-h100-tp1", model=name), Kernel)


def test_a_cost_model_may_be_chosen_by_name() -> None:
    reference = pykernel.open(DEEPSEEK, model="blis-reference")
    assert image(reference) == image(Kernel(fresh(), switches=REFERENCE))
    assert prices(reference) != prices(pykernel.open(DEEPSEEK))


# ---- what a kernel keeps -------------------------------------------------------------------------------------------


def ruin(document: Any) -> None:
    """Change every number, text and list of a document, however deep."""
    for field in dataclasses.fields(document):
        member = getattr(document, field.name)
        if isinstance(member, bool):
            setattr(document, field.name, not member)
        elif isinstance(member, int | float):
            setattr(document, field.name, member * 3 + 1)
        elif isinstance(member, str):
            setattr(document, field.name, f"other {member}")
        elif isinstance(member, list):
            for item in filter(dataclasses.is_dataclass, member):
                ruin(item)
            del member[len(member) // 2 :]
        elif dataclasses.is_dataclass(member):
            ruin(member)


def test_editing_the_documents_afterwards_changes_no_answer() -> None:
    documents = copy.deepcopy(loaded(DISAGGREGATED))
    kernel = pykernel.new(documents)
    before = (prices(kernel), image(kernel), kernel.provenance(), kernel.resolved(), kernel.deployment())
    for document in (documents.scenario, documents.deployment, documents.model, documents.chip, documents.fabric):
        ruin(document)
    for entries in documents.coefficients:
        ruin(entries)
    documents.pool, documents.rules = 1, None
    assert (prices(kernel), image(kernel), kernel.provenance(), kernel.resolved(), kernel.deployment()) == before


def test_a_cache_of_another_width_is_another_price_and_leaves_the_first_kernel_alone() -> None:
    documents = fresh()
    first = pykernel.new(documents)
    before = prices(first)
    engine(documents).cache_dtype = "bfloat16"
    wider = pykernel.new(documents)
    assert prices(first) == before
    assert first.deployment().engine.cache_dtype == "fp8"
    read_ns = 32 * 4_096 * 576 / 2_928_000e6 * 61 * 1e9  # one more byte for each element that 32 decodes read
    grown = {
        name: ns - before["decode"].per_resource_ns[name]
        for name, ns in wider.step_time(BATCHES["decode"]).per_resource_ns.items()
    }
    assert grown.pop("hbm") == pytest.approx(read_ns, abs=2)
    assert set(grown.values()) == {0}
    assert wider.step_time(BATCHES["prefill"]) == before["prefill"]


def test_the_deployment_is_the_pool_as_stated_and_a_copy() -> None:
    documents = fresh()
    engine(documents).block_size = 0
    engine(documents).cudagraph_mode = ""
    kernel = pykernel.new(documents)
    given = kernel.deployment()
    assert given == documents.deployment.pools[0]
    assert (given.engine.block_size, given.engine.cudagraph_mode) == (0, "")
    ruin(given)
    again = kernel.deployment()
    assert again is not given and again == documents.deployment.pools[0]


def test_optional_blocks_of_the_deployment_are_copied_too() -> None:
    documents = fresh(MINIMAX)
    engine(documents).speculative = Speculative("ngram", 2)
    engine(documents).dbo = Dbo(enable_dbo=False)
    kernel = pykernel.new(documents)
    given = kernel.deployment()
    assert given.engine.speculative is not None and given.engine.speculative is not engine(documents).speculative
    given.engine.speculative.num_spec_tokens = 9
    assert kernel.deployment().engine.speculative == Speculative("ngram", 2)
    assert kernel.decode_threshold() == 3


def test_the_interface_answers_for_the_published_example() -> None:
    kernel = pykernel.open(DEEPSEEK)
    assert isinstance(kernel, CostModel)
    assert kernel.graph_modes() == ("PIECEWISE", "PIECEWISE")
    assert (kernel.capture_tokens(), kernel.decode_threshold()) == (512, 128)
    assert (kernel.decode_context_parallel_width(), kernel.prefill_context_parallel_width()) == (1, 1)
    resolved = kernel.resolved()
    assert (resolved.tensor_parallel(), resolved.data_parallel(), resolved.expert_parallel()) == (8, 1, 1)
    assert (resolved.all_reduce_backend, resolved.async_scheduling) == ("custom", True)
    assert (resolved.cascade_attention, resolved.sequence_parallel_moe, resolved.overrides) == (False, False, ())


# ---- pricing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, [], [Request(1, 1, 1)], 7, "batch"], ids=repr)
def test_something_that_is_no_batch_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=type(wrong).__name__):
        pykernel.open(DEEPSEEK).step_time(wrong)


@pytest.mark.parametrize("wrong", [None, 7, {}], ids=repr)
def test_something_that_is_no_estimate_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"estimate is a {type(wrong).__name__}"):
        pykernel.open(DEEPSEEK).step_time_into(BATCHES["decode"], wrong)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda kernel: pykernel.open(None), "scenario is None"),
        (lambda kernel: pykernel.open(DEEPSEEK, "folder"), "repos is 'folder'"),
        (lambda kernel: pykernel.new(DEEPSEEK), "inputs is a str"),
        (lambda kernel: Batch([(1, 1, 1)]), "requests are no iterable of pykernel.Request"),
        (lambda kernel: Batch(Request(1, 1, 1)), "requests are no iterable of pykernel.Request"),
        (lambda kernel: pykernel.BatchState([(1, 1, 1)]), "requests are no iterable of pykernel.Request"),
        (lambda kernel: pykernel.load_c_model("model.so", DEEPSEEK), "kernel is a str"),
        (lambda kernel: kernel.explain(pykernel.BatchState()), "batch is a BatchState"),
        (lambda kernel: kernel.tier_time_ns(7, pykernel.Direction.TO_TIER, 1, 1), "tier is 7"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        call(pykernel.open(DEEPSEEK))


def test_a_share_of_memory_may_be_any_real_number() -> None:
    kernel = pykernel.open(DEEPSEEK)
    assert kernel.kv_capacity(gpu_memory_utilization=Fraction(3, 4)) == kernel.kv_capacity(gpu_memory_utilization=0.75)


def test_a_kernel_is_shown_by_what_it_prices() -> None:
    shown = f"<Kernel of {DISAGGREGATED}, decode pool, minimax-m2.5 on h200>"
    assert repr(pykernel.open_pool(DISAGGREGATED, 1)) == shown


def test_a_batch_no_scheduler_makes_is_refused_and_leaves_the_estimate_alone() -> None:
    kernel, estimate = pykernel.open(DEEPSEEK), StepEstimate()
    kernel.step_time_into(BATCHES["decode"], estimate)
    before = copy.copy(estimate)
    for request, place in (
        (Request(-1, 5, 5), "scheduled"),
        (Request(1, -5, 5), "computed"),
    ):
        with pytest.raises(BatchError, match=rf"{place}\[1\]"):
            kernel.step_time_into(Batch([Request(1, 1, 1), request]), estimate)
        assert estimate == before


def test_an_estimate_is_a_value() -> None:
    kernel = pykernel.open(DEEPSEEK)
    estimate = kernel.step_time(BATCHES["decode"])
    for other in (
        copy.copy(estimate),
        copy.deepcopy(estimate),
        pickle.loads(pickle.dumps(estimate)),
        eval(repr(estimate)),
    ):
        assert other == estimate and other is not estimate
    kept = estimate.per_resource_ns
    kept["hbm"] = 0
    assert estimate.per_resource_ns["hbm"] > 0
    assert estimate != kernel.step_time(BATCHES["prefill"])
    assert estimate != 5
    with pytest.raises(AttributeError):
        estimate.overlap_ns = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        hash(estimate)


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_a_number_beyond_the_core_names_its_field() -> None:
    documents = fresh()
    (attention,) = [node for kind in documents.model.layer_kinds[:1] for node in kind.nodes if node.n_q]
    attention.n_q = 2**40
    documents.deployment.offload = Offload([OffloadTier("cpu_dram", 2**41)])  # a size that no price is made of
    with pytest.raises(RefusedError, match=rf"nodes\[\d\]\.n_q is {2**40}: larger than can be priced") as refusal:
        pykernel.new(documents)
    assert refusal.value.field.endswith("n_q") and "offload" not in str(refusal.value)


@pytest.mark.parametrize("document", ["scenario", "deployment", "model", "chip"])
def test_a_missing_document_is_reported_before_any_defect(document: str) -> None:
    documents = fresh()
    parallel(documents).tp = -8
    setattr(documents, document, None)
    with pytest.raises(ArgumentError, match=f"{document} is missing"):
        pykernel.new(documents)


@pytest.mark.parametrize("pool", [-1, 1, 99, None, "0", 0.0])
def test_a_pool_out_of_range_is_reported_before_any_defect(pool: Any) -> None:
    documents = fresh()
    parallel(documents).tp = -8
    documents.pool = pool
    with pytest.raises(ArgumentError, match="pool") as caught:
        pykernel.new(documents)
    assert repr(pool) in str(caught.value)


@pytest.mark.parametrize("value", ["x", 3, object()])
@pytest.mark.parametrize("name", ["scenario", "deployment", "model", "chip", "fabric", "storage", "coefficients"])
def test_a_document_of_another_type_is_a_fault_of_the_documents(name: str, value: Any) -> None:
    documents = fresh()
    setattr(documents, name, value)
    with pytest.raises(DocumentError, match=name):
        pykernel.new(documents)


@pytest.mark.parametrize("pools", [None, 3, "x", 1.5])
def test_pools_that_are_no_list_are_a_fault_of_the_deployment(pools: Any) -> None:
    documents = fresh()
    documents.deployment.pools = pools
    with pytest.raises(DocumentError, match=r"deployment\.pools: found .*; accepted: a list"):
        pykernel.new(documents)


@pytest.mark.parametrize("value", ["0.31.0", 3, []])
def test_rules_of_another_type_are_a_fault_of_the_caller(value: Any) -> None:
    documents = fresh()
    documents.rules = value
    with pytest.raises(ArgumentError, match=r"rules is .*; accepted: a rules pack"):
        pykernel.new(documents)


def test_missing_rules_are_reported_by_the_release_before_any_defect() -> None:
    documents = fresh()
    parallel(documents).tp = -8
    documents.rules = None
    with pytest.raises(ArgumentError, match=r"engine_version.*0\.29\.0"):
        pykernel.new(documents)


def test_every_defect_of_the_documents_is_reported_at_once() -> None:
    documents = fresh()
    parallel(documents).tp = -8
    documents.chip.bw_peak_tbs = 0.0
    documents.model.layer_kinds[1].nodes[1].n = 0
    edit_coefficient(documents, "attention_decode_floor", 0.0)
    engine(documents).cache_dtype = "fp8_inc"  # refused later, and not reported here
    with pytest.raises(DocumentError) as caught:
        pykernel.new(documents)
    paths = {problem.path for problem in caught.value.problems}
    assert paths >= {
        "deployment.pools[0].parallel.tp",
        "chip.BwPeakTBs",
        "model.layer_kinds[1].nodes[1].n",
        "coefficients:cost-model-attention.coefficients[0].value",
    }
    assert not any("cache_dtype" in path for path in paths)
    assert all(path in str(caught.value) for path in paths)


def test_warnings_stop_nothing() -> None:
    documents = fresh("gpt-oss-120b-h100-fp4-tp2")
    assert engine(documents).quantization == "nvfp4", "which the release's list of names does not have"
    pykernel.new(documents)


# ---- going away ----------------------------------------------------------------------------------------------------


def test_a_kernel_goes_with_its_last_reference() -> None:
    gc.collect()
    gc.disable()
    try:
        kernel = pykernel.new(fresh())
        kernel.step_time(BATCHES["decode"])
        gone = weakref.ref(kernel)
        assert gone() is kernel
        del kernel
        assert gone() is None, "a reference cycle keeps it"
    finally:
        gc.enable()


def test_closing_kernels_gives_their_memory_back() -> None:
    class Memory(ctypes.Structure):
        _fields_ = [
            (name, ctypes.c_size_t)
            for name in (
                "arena",
                "ordblks",
                "smblks",
                "hblks",
                "hblkhd",
                "usmblks",
                "fsmblks",
                "uordblks",
                "fordblks",
                "keepcost",
            )
        ]

    in_use = ctypes.CDLL(None).mallinfo2
    in_use.restype = Memory
    documents = fresh("llama-3.1-8b-h100-tp1")
    resolved = kernel_module.resolve(documents)
    spec = kernel_module.Spec(kernel_module.make_plan(documents.model, resolved, NEWEST), resolved, NEWEST)
    size = lib.pk_kernel_size(kernel_module._new_handle(spec))
    gc.collect()
    before = in_use().uordblks
    for _ in range(1_000):
        kernel_module._new_handle(spec)
    gc.collect()
    assert in_use().uordblks - before < 100 * size
