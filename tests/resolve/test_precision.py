"""Number formats: what the weights are served in, what the part computes in, what the cache stores, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykernel import Batch, Inputs, Kernel, Request
from pykernel.documents import Chip
from pykernel.errors import RefusedError
from pykernel.resolve import examine
from pykernel.resolve.precision import WEIGHT_BYTES, Precision
from pykernel.resolve.refusals import FORMATS

JUDGES = {"compute-peak", *(row.id for row in FORMATS)}

Fresh = Callable[..., Inputs]

DEEPSEEK, DENSE, WINDOWED = "deepseek-v3-h200-fp8-tp8", "llama-3.1-8b-h100-tp1", "gpt-oss-120b-h100-fp4-tp2"


def precision(documents: Inputs, **changes: Any) -> Precision:
    """The formats of the priced pool after setting some of its engine's; raises what refuses one of them."""
    settings = documents.deployment.pools[0].engine
    for name, value in changes.items():
        setattr(settings, name, value)
    found = examine(documents)
    for error in found.refusals:
        if error.rule in JUDGES:
            raise error
    return found.case.precision


def with_peaks(chip: Chip, bf16: float, fp8: float, nvfp4: float) -> None:
    chip.tflops_peak, chip.tflops_fp8, chip.tflops_nvfp4 = bf16, fp8, nvfp4


# ---- weights -------------------------------------------------------------------------------------------------------

SERVED = {
    "fp8": "fp8",
    "ptpc_fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "modelopt": "fp8",
    "modelopt_fp4": "nvfp4",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "": "int4",
    "bitsandbytes": "int4",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "compressed-tensors": "int4",
}


@pytest.mark.parametrize(("quantization", "served"), SERVED.items())
def test_a_quantization_is_served_in_its_format_or_the_checkpoints(
    quantization: str, served: str, fresh: Fresh
) -> None:
    documents = fresh(DENSE)
    documents.model.global_.weight_dtype = "int4"
    assert precision(documents, quantization=quantization).served == served


@pytest.mark.parametrize("quantization", ["fp8_per_block", "gpt_oss_mxfp4", "auto_awq", "FP8", "fp8 ", "int8", "none"])
def test_a_quantization_of_unknown_width_is_refused_by_name(quantization: str, fresh: Fresh) -> None:
    with pytest.raises(RefusedError) as caught:
        precision(fresh(DENSE), quantization=quantization)
    assert repr(quantization) in str(caught.value)
    assert all(name in str(caught.value) for name in SERVED if name)


def test_weights_take_the_bytes_of_their_format(fresh: Fresh) -> None:
    assert {
        **dict.fromkeys(("bf16", "fp16"), 2),
        **dict.fromkeys(("fp8", "int8"), 1),
        **dict.fromkeys(("nvfp4", "mxfp4", "int4"), 0.5),
        "fp32": 4,
    } == WEIGHT_BYTES
    served = precision(fresh(DENSE), quantization="fp8")
    assert (served.weight_bytes(""), served.weight_bytes("bf16"), served.weight_bytes("nvfp4")) == (1, 2, 0.5)


@pytest.mark.parametrize(
    ("served", "peaks", "suffix", "tflops"),
    [
        *((name, (100, 200, 400), "bf16", 100) for name in ("bf16", "fp16", "fp32", "int4")),
        ("fp8", (100, 200, 400), "fp8", 200),
        ("fp8", (100, 0, 400), "bf16", 100),
        *((name, (100, 200, 400), "nvfp4", 400) for name in ("nvfp4", "mxfp4")),
        *((name, (100, 200, 0), "fp8", 200) for name in ("nvfp4", "mxfp4")),
        *((name, (100, 0, 0), "bf16", 100) for name in ("nvfp4", "mxfp4")),
        ("int8", (100, 200, 400), "fp8", 200),
    ],
)
def test_a_part_computes_in_the_widest_native_format(
    served: str, peaks: tuple[float, float, float], suffix: str, tflops: float, fresh: Fresh
) -> None:
    documents = fresh(DENSE)
    documents.model.global_.weight_dtype = served
    with_peaks(documents.chip, *peaks)
    found = precision(documents, quantization="")
    assert (found.served, found.suffix, found.peak_flops) == (served, suffix, tflops * 1e12)


def test_eight_bit_integers_need_a_part_that_has_them(fresh: Fresh) -> None:
    documents = fresh(DENSE)
    documents.model.global_.weight_dtype = "int8"
    with_peaks(documents.chip, 100, 0, 0)
    with pytest.raises(RefusedError, match="int8"):
        precision(documents)


def test_serving_in_8_bits_leaves_activations_and_collectives_alone(fresh: Fresh) -> None:
    half, quarter = fresh("llama-3.1-70b-h200-fp8-tp4"), fresh("llama-3.1-70b-h200-fp8-tp4")
    batch = Batch([Request(64, 0, 64)])
    found = []
    for documents, quantization in ((half, ""), (quarter, "fp8")):
        settings = documents.deployment.pools[0].engine
        settings.quantization, settings.cache_dtype = quantization, "bfloat16"
        found.append(Kernel(documents).step_time(batch).per_resource_ns)
    assert half.model.global_.weight_dtype == "bf16"
    assert found[0]["nvlink"] == found[1]["nvlink"] and found[0]["host"] == found[1]["host"]
    assert found[0]["hbm"] > 1.5 * found[1]["hbm"]


# ---- cache ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "auto"),
    [("fp32", 4), ("bf16", 2), ("fp16", 2), ("fp8", 2), ("int8", 2), ("nvfp4", 2), ("mxfp4", 2), ("int4", 2)],
)
@pytest.mark.parametrize("cache", ["", "auto"])
def test_an_unstated_cache_follows_the_model_and_no_quantized_format(
    weights: str, auto: int, cache: str, fresh: Fresh
) -> None:
    documents = fresh(DENSE)
    documents.model.global_.weight_dtype = weights
    assert precision(documents, cache_dtype=cache).cache_element_bytes == auto


@pytest.mark.parametrize(
    ("cache", "width"),
    [
        ("float16", 2),
        ("bfloat16", 2),
        ("fp8", 1),
        ("fp8_e4m3", 1),
        ("fp8_e5m2", 1),
        ("nvfp4", 0.5625),
        ("nvfp4_4over6", 0.5625),
    ],
)
def test_a_stated_cache_takes_its_own_bytes(cache: str, width: float, fresh: Fresh) -> None:
    assert precision(fresh(DENSE), cache_dtype=cache).cache_element_bytes == width


@pytest.mark.parametrize(
    ("scenario", "cache", "accepted"),
    [
        *((scenario, "fp8_inc", False) for scenario in (DENSE, DEEPSEEK)),
        *(
            (scenario, cache, False)
            for scenario in (DENSE, DEEPSEEK, WINDOWED)
            for cache in ("fp8_ds_mla", "nvfp4_ds_mla")
        ),
        *((DEEPSEEK, cache, False) for cache in ("nvfp4", "nvfp4_4over6")),
        *((scenario, cache, True) for scenario in (DENSE, WINDOWED) for cache in ("nvfp4", "nvfp4_4over6")),
        *((DENSE, f"turboquant_{name}", False) for name in ("k8v4", "4bit_nc", "k3v4_nc", "3bit_nc")),
        *((DENSE, f"{name}_per_token_head", False) for name in ("int4", "int8", "fp8")),
        *((DENSE, name, False) for name in ("bogus", "FP8", "float32", "fp4")),
        *((scenario, cache, True) for scenario in (DENSE, DEEPSEEK) for cache in ("", "auto", "float16", "fp8_e5m2")),
    ],
)
def test_a_cache_is_refused_by_name_where_no_backend_takes_it(
    scenario: str, cache: str, accepted: bool, fresh: Fresh
) -> None:
    if accepted:
        precision(fresh(scenario), cache_dtype=cache)
        return
    with pytest.raises(RefusedError) as caught:
        precision(fresh(scenario), cache_dtype=cache)
    assert repr(cache) in str(caught.value)
    assert caught.value.field == "engine.cache_dtype"


@pytest.mark.parametrize(
    ("cache", "reason"),
    [
        ("fp8_inc", "NVIDIA"),
        ("turboquant_k8v4", "layout of its pages"),
        ("int8_per_token_head", "layout of its pages"),
        ("bogus", "auto, "),
    ],
)
def test_a_refused_cache_says_why(cache: str, reason: str, fresh: Fresh) -> None:
    with pytest.raises(RefusedError, match=reason):
        precision(fresh(DENSE), cache_dtype=cache)


@pytest.mark.parametrize("cache", ["fp8_ds_mla", "nvfp4_ds_mla"])
def test_a_packed_latent_cache_needs_sparse_latent_attention(cache: str, fresh: Fresh) -> None:
    documents = fresh(DEEPSEEK)
    with pytest.raises(RefusedError, match="mla"):
        precision(documents, cache_dtype=cache)
    for kind in documents.model.layer_kinds:
        for node in kind.nodes:
            if node.op == "Attention":
                node.kind, node.index_topk = "sparse_mla", 2_048
    assert precision(documents, cache_dtype=cache).cache_format == cache


@pytest.mark.parametrize(
    ("cache", "accepted"),
    [*((name, True) for name in ("", "auto", "float32", "float16", "bfloat16")), ("fp8", False), ("float64", False)],
)
def test_recurrent_state_is_kept_in_a_float_of_16_or_32_bits(cache: str, accepted: bool, fresh: Fresh) -> None:
    documents = fresh(DENSE)
    if accepted:
        precision(documents, mamba_cache_dtype=cache)
        return
    with pytest.raises(RefusedError, match=cache) as caught:
        precision(documents, mamba_cache_dtype=cache)
    assert caught.value.field == "engine.mamba_cache_dtype"


def test_the_cache_of_the_published_example(fresh: Fresh) -> None:
    documents = fresh(DEEPSEEK)
    layers = documents.model.stack.layer_count()
    bytes_per_token = [
        layers * 576 * precision(documents, cache_dtype=cache).cache_element_bytes for cache in ("fp8", "bfloat16")
    ]
    assert bytes_per_token == [35_136, 70_272]
