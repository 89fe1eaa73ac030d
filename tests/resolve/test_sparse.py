"""Sparse attention of the DeepSeek-V3.2 family: which deployments start, how the cache lies, what is disclosed.

The tables are those of vllm/platforms/cuda.py and vllm/v1/attention/backends/mla at v0.31.0, for a model of 64 query
heads (GLM-5), or 128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pykernel
from pykernel import Inputs, RefusedError
from pykernel.resolve import resolve
from pykernel.resolve.precision import PACKED_CELL_BYTES

from .edits import apply

Fresh = Callable[..., Inputs]

GLM = "glm-5-h200-tp8"
HOPPER, BLACKWELL = "h200", "b200"


def made(fresh: Fresh, part: str, tp: int, pcp: int, dcp: int, cache: str, **more: Any) -> Inputs:
    settings = {"parallel.tp": tp, "parallel.pcp": pcp, "parallel.dcp": dcp, "engine.cache_dtype": cache}
    if pcp > 1 and dcp == 1:
        settings["engine.cudagraph_mode"] = "NONE"
    return apply(fresh(GLM), {"chip": part, **settings, **more})


STARTS = [
    # part, tp, pcp, dcp, cache, whether it starts; 64 heads
    (HOPPER, 4, 1, 2, "fp8", True),
    (HOPPER, 2, 1, 2, "fp8", False),  # 32 heads a rank
    (HOPPER, 8, 1, 2, "fp8_e4m3", False),
    (HOPPER, 4, 1, 2, "auto", False),
    (HOPPER, 4, 1, 2, "bfloat16", False),
    (HOPPER, 8, 1, 1, "fp8_e4m3", True),
    (HOPPER, 8, 1, 1, "auto", True),
    (HOPPER, 8, 1, 1, "nvfp4_ds_mla", False),
    (BLACKWELL, 8, 1, 1, "nvfp4_ds_mla", True),
    (BLACKWELL, 2, 4, 4, "fp8", True),
    (BLACKWELL, 2, 4, 4, "bfloat16", False),
    (BLACKWELL, 2, 1, 2, "fp8", True),
    (BLACKWELL, 4, 1, 2, "auto", True),
    (BLACKWELL, 2, 1, 2, "auto", False),  # 32 heads a rank put FlashMLA first, which shares no 16-bit cache
    (HOPPER, 8, 1, 1, "fp8_e5m2", False),
]


@pytest.mark.parametrize(("part", "tp", "pcp", "dcp", "cache", "starts"), STARTS)
def test_which_deployments_start(
    part: str, tp: int, pcp: int, dcp: int, cache: str, starts: bool, fresh: Fresh
) -> None:
    documents = made(fresh, part, tp, pcp, dcp, cache)
    if starts:
        assert pykernel.new(documents).decode_context_parallel_width() == dcp
        return
    with pytest.raises(RefusedError) as caught:
        pykernel.new(documents)
    assert caught.value.rule.startswith("sparse-")


@pytest.mark.parametrize(
    ("tp", "pcp", "dcp", "heads", "combine", "starts"),
    [
        (8, 1, 8, 128, "ag_rs", False),
        (8, 1, 4, 128, "ag_rs", True),
        (4, 2, 8, 64, "ag_rs", True),  # gathers the 64 heads of the block
        (4, 2, 8, 128, "ag_rs", False),
        (4, 2, 2, 128, "ag_rs", True),
        (8, 1, 2, 64, "a2a", False),
        (8, 1, 2, 64, "ag_rs", True),
    ],
)
def test_shared_caches_need_heads_that_pad_alike_and_one_combine(
    tp: int, pcp: int, dcp: int, heads: int, combine: str, starts: bool, fresh: Fresh
) -> None:
    more = {"heads": {"query": heads}, "engine.dcp_comm_backend": combine}
    documents = made(fresh, HOPPER, tp, pcp, dcp, "fp8", **more)
    if starts:
        pykernel.new(documents)
        return
    with pytest.raises(RefusedError) as caught:
        pykernel.new(documents)
    assert caught.value.rule == ("sparse-context-combine" if combine == "a2a" else "sparse-context-padding")


@pytest.mark.parametrize(
    ("part", "pcp", "dcp", "cache", "bytes_per_token", "overridden"),
    [
        (HOPPER, 1, 1, "fp8_ds_mla", 656, False),
        (BLACKWELL, 1, 1, "nvfp4_ds_mla", 352, False),
        (HOPPER, 1, 1, "fp8", 656, True),
        (BLACKWELL, 1, 1, "fp8", 576, False),
        (HOPPER, 1, 1, "fp8_e4m3", 576, False),
        (HOPPER, 1, 1, "auto", 1_152, False),
        (BLACKWELL, 4, 1, "fp8", 576, False),
        (BLACKWELL, 4, 4, "fp8", 656, True),
    ],
)
def test_a_cell_has_the_bytes_of_its_layout(
    part: str, pcp: int, dcp: int, cache: str, bytes_per_token: int, overridden: bool, fresh: Fresh
) -> None:
    found = resolve(made(fresh, part, 8 // pcp, pcp, dcp, cache))
    plain = 576 * found.precision.cache_element_bytes
    assert PACKED_CELL_BYTES.get(found.precision.cache_format, plain) == bytes_per_token
    assert [entry.field for entry in found.resolution.overrides] == (["cache_dtype"] if overridden else [])
    disclosed = {origin.name for origin in found.provenance if origin.set == pykernel.KERNEL_ASSUMPTION_SET}
    assert ("sparse_mla_backend" in disclosed) is (cache == "fp8_e4m3")


@pytest.mark.parametrize(("block", "accepted"), [(16, False), (32, False), (64, True), (128, True), (0, True)])
def test_pages_are_multiples_of_64(block: int, accepted: bool, fresh: Fresh) -> None:
    documents = apply(fresh(GLM), {"engine.block_size": block})
    if not accepted:
        with pytest.raises(RefusedError, match="block_size") as caught:
            pykernel.new(documents)
        assert caught.value.rule == "sparse-block" and "the nearest: 64" in str(caught.value)
        return
    assert resolve(documents).settings.block_size == (block or 64)


def test_parts_before_hopper_run_dense_latent_attention_only(fresh: Fresh) -> None:
    with pytest.raises(RefusedError, match="compute capability"):
        pykernel.new(apply(fresh(GLM), {"chip": "l40s"}))
    dense = apply(fresh("deepseek-v3-h200-fp8-tp8"), {"chip": "l40s", "engine.cache_dtype": "auto"})
    assert pykernel.new(dense).decode_threshold() == 1
