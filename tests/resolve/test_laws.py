"""From coefficients to laws: units, which width of a collective is used, what each attention kind is priced with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from pykernel import KERNEL_ASSUMPTION_SET, Batch, Inputs, Kernel, Request
from pykernel.documents import Coefficient, CoefficientSet, LayerKind, Node, Scope, Stack
from pykernel.errors import RefusedError
from pykernel.resolve import resolve
from pykernel.resolve.coefficients import Coefficients, Target, select
from pykernel.resolve.laws import DecodeLaw, Laws
from pykernel.resolve.memory import snapped
from pykernel.resolve.sweeps import measured_widths

Fresh = Callable[..., Inputs]

DEEPSEEK, MINIMAX, EP16 = "deepseek-v3-h200-fp8-tp8", "minimax-m2.5-h200-tp8", "minimax-m2.5-h200-ep16"
WINDOWED = "gpt-oss-120b-h100-fp4-tp2"
PARTS = ("floor", "transition_rate", "peak_rate")
DECODE, PREFILL = Batch([Request(1, 4_095, 1)] * 32), Batch([Request(512, 0, 512)])


def drop(documents: Inputs, *names: str) -> None:
    for entries in documents.coefficients:
        entries.coefficients = [entry for entry in entries.coefficients if entry.name not in names]


def change(documents: Inputs, edit: Callable[[float], float], *beginnings: str) -> int:
    """Edit the value of every coefficient whose name begins so; returns how many names that were."""
    changed = set()
    for entries in documents.coefficients:
        for index, entry in enumerate(entries.coefficients):
            if entry.name.startswith(beginnings):
                entries.coefficients[index] = dataclasses.replace(entry, value=edit(entry.value), ci95=None)
                changed.add(entry.name)
    return len(changed)


def add(documents: Inputs, **values: float) -> None:
    """Add coefficients that hold for this deployment's part."""
    scope = Scope(hardware=[documents.chip.name])
    documents.coefficients[-1].coefficients += [
        Coefficient(name, value, "dimensionless", "measured", False, scope) for name, value in values.items()
    ]


def add_collective(documents: Inputs, operation: str, width: int) -> None:
    suffix = documents.chip.name.replace("-", "_")
    names = [f"collective_{part}_{operation}_fp16_{width}rank_{suffix}" for part in PARTS]
    add(documents, **dict(zip(names, (float(width), 7e4, 9e4), strict=True)))


def laws(documents: Inputs) -> Laws:
    return resolve(documents).laws


def pair(law: DecodeLaw) -> tuple[int, float]:
    return law.floor_ns, law.bytes_per_second


def absent(documents: Inputs) -> set[str]:
    """Coefficients that were found missing and disclosed."""
    return {
        origin.name
        for origin in resolve(documents).provenance
        if origin.set == KERNEL_ASSUMPTION_SET and origin.scope.startswith("absent: ")
    }


def scoped(*names: str) -> Coefficients:
    scope = Scope(hardware=["h200"])
    entries = [Coefficient(name, 1.0, "dimensionless", "measured", False, scope) for name in ("other", *names)]
    return select([CoefficientSet("CoefficientSet", "one", entries)], Target("h200", "m", 1, 1, 1))


def triple(operation: str, width: Any, chip: str = "h200", dtype: str = "fp16") -> list[str]:
    return [f"collective_{part}_{operation}_{dtype}_{width}rank_{chip}" for part in PARTS]


# ---- units ---------------------------------------------------------------------------------------------------------


def test_the_laws_of_the_published_example(fresh: Fresh) -> None:
    found = laws(fresh())
    assert found.hbm_bytes_per_second == pytest.approx(3.84e12, rel=1e-15)
    assert (found.gemm.eps_max, found.gemm.m_half, found.gemm.by_shape) == (0.736, 113.0, False)
    assert {kind: pair(law) for kind, law in found.decode.items()} == {"mla": (13_500, 2.928e12)}
    assert (found.prefill.floor_ns, found.prefill.work_scale) == (18_500, 0.4)
    assert found.imbalance == 0.999
    for operation, numbers in (
        ("all_reduce", (4_710, 104_250e6, 134_260e6)),
        ("all_gather", (10_300, 148_500e6, 192_431e6)),
    ):
        law = found.collectives[operation, "tensor"]
        assert (law.floor_ns, law.transition_bytes_per_second, law.peak_bytes_per_second) == numbers
    assert (found.host.replay_ns, found.host.eager_layer_ns, found.host.kernel_ns) == (7_000, 7_000, 3_200)


@pytest.mark.parametrize(("microseconds", "ns"), [(13.5, 13_500), (0.0019, 1), (0.0009, 0), (7.0078, 7_007)])
def test_floors_are_whole_nanoseconds_cut_off(microseconds: float, ns: int, fresh: Fresh) -> None:
    documents = fresh()
    assert change(documents, lambda value: microseconds, "attention_prefill_floor") == 1
    assert laws(documents).prefill.floor_ns == ns


@pytest.mark.parametrize("missing", ["hbm_derate", "gemm_eps_max_fp8", "gemm_m_half_fp8"])
def test_a_required_coefficient_is_refused_by_name_when_it_is_missing(missing: str, fresh: Fresh) -> None:
    documents = fresh()
    drop(documents, missing)
    with pytest.raises(RefusedError, match=missing):
        resolve(documents)


def test_memory_that_delivers_nothing_is_refused(fresh: Fresh) -> None:
    documents = fresh()
    change(documents, lambda value: -value, "hbm_derate")
    with pytest.raises(RefusedError, match="hbm_derate"):
        resolve(documents)


@pytest.mark.parametrize("given", ["n_half", "k_half"])
def test_half_of_a_shape_aware_ramp_is_refused_and_all_of_it_is_used(given: str, fresh: Fresh) -> None:
    documents = fresh()
    add(documents, **{f"gemm_{given}_fp8": 300.0})
    with pytest.raises(RefusedError) as caught:
        resolve(documents)
    assert all(word in str(caught.value) for word in ("fp8", "gemm_n_half_fp8", "gemm_k_half_fp8"))
    other = {"n_half": "k_half", "k_half": "n_half"}[given]
    add(documents, **{f"gemm_{other}_fp8": 200.0})
    gemm = laws(documents).gemm
    assert (gemm.m_half, gemm.by_shape) == (113.0, True)
    assert {"n_half": gemm.n_half, "k_half": gemm.k_half} == {given: 300.0, other: 200.0}
    assert (
        Kernel(documents).step_time(DECODE).per_resource_ns["sm"]
        > Kernel(fresh()).step_time(DECODE).per_resource_ns["sm"]
    )


@pytest.mark.parametrize(
    ("n", "k", "one_rank"),
    [(9_216, 3_072, (9_216 / 8, 3_072)), (3_072, 8_192, (3_072, 8_192 / 8)), (3_072, 3_072, (3_072, 3_072 / 8))],
)
def test_a_shape_is_the_part_of_a_matrix_that_one_rank_holds(
    n: int, k: int, one_rank: tuple[float, float], fresh: Fresh
) -> None:
    documents = fresh(MINIMAX)
    add(documents, gemm_n_half_fp8=300.0, gemm_k_half_fp8=200.0)
    attention = next(node for node in documents.model.layer_kinds[0].nodes if node.op == "Attention")
    documents.model.layer_kinds = [LayerKind("only", [attention, Node("GEMM", n=n, k=k)])]
    documents.model.stack, documents.model.head, documents.model.speculator = Stack(["only"] * 3), [], None
    documents.model.global_.hidden_size = 3_072
    gemm, peak = laws(documents).gemm, documents.chip.tflops_fp8 * 1e12
    rate = peak * gemm.eps_max * 32 / (32 + gemm.m_half)
    rate *= one_rank[0] / (one_rank[0] + 300) * one_rank[1] / (one_rank[1] + 200)
    expected = 3 * 32 * 2 * n * k / 8 / rate * 1e9
    assert Kernel(documents).step_time(DECODE).per_resource_ns["sm"] == pytest.approx(expected, abs=1)


def test_a_ramp_of_another_format_plays_no_part(fresh: Fresh) -> None:
    documents = fresh()
    add(documents, gemm_n_half_bf16=300.0, gemm_m_half_fp8_block=1.0)
    assert laws(documents) == laws(fresh())


# ---- attention -----------------------------------------------------------------------------------------------------


def test_a_kind_uses_its_own_pair_and_full_attention_the_part_wide_one(fresh: Fresh) -> None:
    """Law 31."""
    found = laws(fresh(WINDOWED)).decode
    assert set(found) == {"gqa", "swa"} and pair(found["gqa"]) != pair(found["swa"])
    documents = fresh(WINDOWED)
    drop(documents, "attention_decode_rate_swa")
    assert pair(laws(documents).decode["swa"]) == pair(found["gqa"]), "a floor without a rate is not used"
    assert absent(documents) == {"attention_decode_rate_swa"}
    assert Kernel(documents).step_time(DECODE) != Kernel(fresh(WINDOWED)).step_time(DECODE)


def test_a_rate_without_a_floor_takes_the_part_wide_floor(fresh: Fresh) -> None:
    """Law 31."""
    documents = fresh(WINDOWED)
    before = laws(documents).decode
    drop(documents, "attention_decode_floor_swa")
    assert pair(laws(documents).decode["swa"]) == (before["gqa"].floor_ns, before["swa"].bytes_per_second)
    assert absent(documents) == {"attention_decode_floor_swa"}


def test_without_any_rate_the_cache_is_read_at_the_memory_rate(fresh: Fresh) -> None:
    documents = fresh(MINIMAX)
    for entries in documents.coefficients:
        for index, entry in enumerate(entries.coefficients):
            if entry.name == "attention_decode_rate":
                free = {"value": 0.0, "ci95": None, "method": "not_charged", "fitted": False, "rationale": "a test"}
                entries.coefficients[index] = dataclasses.replace(entry, **free)
    assert laws(documents).decode["gqa"].bytes_per_second == 0
    assert absent(documents) == set(), "a deliberate zero is not missing"
    drop(documents, "attention_decode_rate", "attention_decode_floor")
    assert absent(documents) == {"attention_decode_rate", "attention_decode_floor"}
    kernel = Kernel(documents)
    near, far = (kernel.step_time(Batch([Request(1, context, 1)])).per_resource_ns["hbm"] for context in (0, 10_000))
    layers = documents.model.stack.layer_count()
    assert far - near == pytest.approx(
        layers * 10_000 * 2 * 128 * 1 / laws(documents).hbm_bytes_per_second * 1e9, abs=2
    )


@pytest.mark.parametrize(
    ("scenario", "missing", "batch", "moves"),
    [
        (DEEPSEEK, "attention_decode_rate_mla", DECODE, True),
        (DEEPSEEK, "attention_prefill_work_scale", PREFILL, True),
        (DEEPSEEK, "attention_prefill_floor", PREFILL, True),
        (DEEPSEEK, "moe_routing_imbalance_median", DECODE, True),
        (DEEPSEEK, "host_launch_per_kernel", DECODE, True),
        (DEEPSEEK, "attention_decode_rate_swa", DECODE, False),
        (DEEPSEEK, "recurrent_decode_rate_mamba2", DECODE, False),
        ("llama-3.1-8b-h100-tp1", "moe_routing_imbalance_median", DECODE, False),
        (WINDOWED, "attention_decode_rate_mla", DECODE, False),
    ],
)
def test_an_optional_coefficient_is_disclosed_where_it_is_needed(
    scenario: str, missing: str, batch: Batch, moves: bool, fresh: Fresh
) -> None:
    whole, without = fresh(scenario), fresh(scenario)
    drop(without, missing)
    assert (Kernel(without).step_time(batch) != Kernel(whole).step_time(batch)) is moves
    assert absent(without) - absent(whole) == ({missing} if moves else set())


@pytest.mark.parametrize(("value", "factor"), [(1.5, 1.5), (0.5, 0.5), (-1.0, 1.0)])
def test_uneven_routing_is_a_factor_and_even_where_it_makes_no_sense(value: float, factor: float, fresh: Fresh) -> None:
    documents = fresh()
    change(documents, lambda old: value, "moe_routing_imbalance_median")
    assert laws(documents).imbalance == factor
    assert laws(fresh("llama-3.1-8b-h100-tp1")).imbalance == 1.0


# ---- collectives ---------------------------------------------------------------------------------------------------

MEASURED = [name for width in (2, 4, 8) for name in triple("all_reduce", width)]


def floor_used(documents: Inputs, operation: str = "all_reduce", group: str = "tensor") -> int:
    return laws(documents).collectives[operation, group].floor_ns


@pytest.mark.parametrize("spoiled", PARTS)
def test_a_width_counts_when_all_three_numbers_are_there(spoiled: str) -> None:
    """Law 41."""
    assert measured_widths(scoped(*MEASURED), "all_reduce", "h200") == [2, 4, 8]
    names = [name for name in MEASURED if not (spoiled in name and "_4rank_" in name)]
    assert measured_widths(scoped(*names), "all_reduce", "h200") == [2, 8]


@pytest.mark.parametrize(
    "others",
    [
        triple("all_reduce", 32, chip="h100"),
        triple("all_reduce", 32, dtype="int8"),
        triple("all_gather", 32),
        triple("all_reduce", ""),
        triple("all_reduce", "x"),
        triple("all_reduce", 0),
        triple("all_reduce", -4),
        triple("all_reduce", "032"),
        triple("all_reduce", 32, chip="h200_sxm"),
        [f"{name}_x" for name in triple("all_reduce", 32)],
        [f"x_{name}" for name in triple("all_reduce", 32)],
    ],
    ids=lambda names: names[0],
)
def test_a_width_of_something_else_does_not_count(others: list[str]) -> None:
    """Law 41."""
    assert measured_widths(scoped(*MEASURED, *others), "all_reduce", "h200") == [2, 4, 8]
    assert measured_widths(scoped(*MEASURED, *triple("all_reduce", 32)), "all_reduce", "h200") == [2, 4, 8, 32]


def test_a_part_with_a_hyphen_is_found_by_its_name_with_underscores() -> None:
    names = triple("alltoall", 2, chip="gb200_nvl72")
    assert measured_widths(scoped(*names), "alltoall", "gb200-nvl72") == [2]


@pytest.mark.parametrize(("width", "used"), [(1, 2), (2, 2), (4, 4), (8, 8), (24, 8), (32, 8)])
def test_a_group_uses_its_own_width_the_narrowest_or_the_widest(width: int, used: int, fresh: Fresh) -> None:
    """Law 41."""
    documents, operations = fresh(EP16), ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
    drop(documents, *(name for operation in operations for name in triple(operation, 16)))
    for size in (2, 4, 8):  # floors by width, so that they show which one was taken
        for operation in operations:
            change(documents, lambda value, size=size: float(size), *triple(operation, size)[:1])
    documents.scenario.cluster.nodes = documents.deployment.pools[0].nodes = 4
    parallel = documents.deployment.pools[0].parallel
    parallel.tp, parallel.dp = width, 1
    documents.deployment.pools[0].parallel.enable_expert_parallel = width > 1
    for kind in documents.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "Attention":
                node.n_q = 96
    for operation in operations:
        group = "expert" if operation == "alltoall" else "tensor"
        assert floor_used(documents, operation, group) == used * 1_000, operation


def test_a_width_in_the_swept_range_must_have_been_measured(fresh: Fresh) -> None:
    """Law 41."""
    documents = fresh(EP16)
    drop(documents, *triple("alltoall", 16))
    with pytest.raises(RefusedError) as caught:
        resolve(documents)
    assert all(word in str(caught.value) for word in ("alltoall", "16 ranks", "h200", "2, 4, 8"))
    add_collective(documents, "alltoall", 16)
    assert floor_used(documents, "alltoall", "expert") == 16_000


def test_a_newly_measured_width_is_used_by_its_name_alone(fresh: Fresh) -> None:
    """Law 41."""
    documents = fresh(EP16)
    documents.scenario.cluster.nodes = documents.deployment.pools[0].nodes = 4
    documents.deployment.pools[0].parallel.dp = 4
    assert floor_used(documents, "alltoall", "expert") != 32_000
    add_collective(documents, "alltoall", 32)
    assert floor_used(documents, "alltoall", "expert") == 32_000


def test_values_never_decide_which_width_is_used(fresh: Fresh) -> None:
    documents = fresh(MINIMAX)
    before = laws(documents).collectives
    change(documents, lambda value: value * 10, "collective_floor_")
    after = laws(documents).collectives
    assert {key: law.floor_ns for key, law in after.items()} == {key: law.floor_ns * 10 for key, law in before.items()}


def test_an_all_to_all_uses_the_width_of_the_experts(fresh: Fresh) -> None:
    documents = fresh("minimax-m2.5-b200-fp4-tp2-ep4-dp2")
    suffix = documents.chip.name
    for width in (2, 4):
        change(
            documents, lambda value, width=width: float(width), f"collective_floor_alltoall_fp16_{width}rank_{suffix}"
        )
        change(
            documents, lambda value, width=width: float(width), f"collective_floor_all_reduce_fp16_{width}rank_{suffix}"
        )
    assert floor_used(documents, "alltoall", "expert") == 4_000
    assert floor_used(documents, "all_reduce", "tensor") == 2_000


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
def test_a_part_without_a_collective_is_refused_even_on_one_gpu(operation: str, fresh: Fresh) -> None:
    documents = fresh("llama-3.1-8b-h100-tp1")
    drop(documents, *(name for width in (2, 4, 8, 16) for name in triple(operation, width, chip="h100")))
    with pytest.raises(RefusedError, match=f"{operation} over 1 ranks"):
        resolve(documents)


# ---- memory, of which the price is independent ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "missing",
    [
        "engine_workspace_bytes",
        "cudagraph_capture_bytes_piecewise",
        "activation_scratch_floor_bytes",
        "activation_buffer_count_moe_8rank",
        "nccl_communicator_bytes_8rank",
    ],
)
def test_memory_that_could_not_be_sized_is_refused_by_name(missing: str, fresh: Fresh) -> None:
    documents = fresh()
    family = missing.rpartition("_")[0] if missing.endswith("rank") else missing
    for entries in documents.coefficients:
        entries.coefficients = [entry for entry in entries.coefficients if not entry.name.startswith(family)]
    with pytest.raises(RefusedError, match=family) as caught:
        resolve(documents)
    assert "cost-model-memory" in str(caught.value)


def test_memory_magnitudes_move_no_price(fresh: Fresh) -> None:
    documents = fresh()
    families = ("engine_workspace", "cudagraph_capture", "activation_", "nccl_communicator")
    assert change(documents, lambda value: value * 3, *families) > 10
    for batch in (DECODE, PREFILL, Batch()):
        assert Kernel(documents).step_time(batch) == Kernel(fresh()).step_time(batch)


@pytest.mark.parametrize(
    ("declared", "width", "chosen"),
    [([2, 4, 8], 16, 8), ([2, 4, 8], 8, 8), ([2, 4, 8], 3, 2), ([2, 4, 8], 1, 2), ([], 4, 4), ([4, 32], 40, 4)],
)
def test_a_vendors_table_is_read_at_the_widest_entry_that_fits(declared: list[int], width: int, chosen: int) -> None:
    table = scoped(*(f"nccl_communicator_bytes_{size}rank" for size in declared))
    assert snapped(table, "nccl_communicator_bytes", width) == f"nccl_communicator_bytes_{chosen}rank"


# ---- recurrent mixers ----------------------------------------------------------------------------------------------


def with_mixers(documents: Inputs, kind: str = "mamba2") -> Inputs:
    """The same model, half of its attention replaced."""
    for node in documents.model.layer_kinds[0].nodes:
        if node.op == "Attention":
            replaced = Node(
                "RecurrentUpdate",
                recurrent_kind=kind,
                n_heads=64,
                state_size=128,
                n_groups=8,
                conv_kernel=4,
                intermediate_size=4_096,
            )
            vars(node).update(vars(replaced))
    return documents


@pytest.mark.parametrize("kind", ["mamba2", "kda", "gdn"])
def test_a_mixer_is_charged_where_both_its_numbers_are_known(kind: str, fresh: Fresh) -> None:
    documents = with_mixers(fresh(WINDOWED), kind)
    found = laws(documents).recurrent
    assert set(found) == {kind} and found[kind].floor_ns > 0 and found[kind].tokens_per_second > 1e5
    for missing in (f"recurrent_decode_floor_{kind}", f"recurrent_decode_rate_{kind}"):
        without = with_mixers(fresh(WINDOWED), kind)
        drop(without, missing)
        assert laws(without).recurrent == {}
        assert absent(without) == {missing}
