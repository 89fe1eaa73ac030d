"""Refusals of engine settings: number formats, caches, CUDA graphs."""

from __future__ import annotations

from pykernel.resolve.case import Case
from pykernel.resolve.engine import DSA_BLOCK, GRAPH_MODES, RECURRENT_CACHE_MODES, WIDEST_CAPTURE
from pykernel.resolve.precision import CACHE_BYTES, RECURRENT_CACHES, SERVED_AS, UNSIZED_CACHES
from pykernel.resolve.refusals.row import ENGINE, PRICE, REFERENCE, Refusal, listed, when

# ---- number formats ------------------------------------------------------------------------------------------------


def _cache(case: Case, fault: bool) -> str:
    return when(fault, f"cache_dtype is {case.engine.cache_dtype!r}")


def _kinds_with(case: Case, text: str) -> str:
    return f"{text}; this model has {listed(sorted(case.facts.attention_kinds))} attention"


def _cache_name(case: Case) -> str:
    """The stated cache format; empty where the model's own is taken."""
    return "" if case.engine.cache_dtype == "auto" else case.engine.cache_dtype


def _packed(case: Case) -> bool:
    return _cache_name(case).endswith("_ds_mla")


FORMATS = (
    Refusal(
        "quantization-unknown",
        "engine.quantization",
        PRICE,
        "`quantization` is none of the names whose weight width is known",
        "its weight width is not known",
        f"state one of {listed(sorted(name for name in SERVED_AS if name))}, or none for the checkpoint's own format",
        REFERENCE,
        lambda case: when(case.engine.quantization not in SERVED_AS, f"quantization is {case.engine.quantization!r}"),
    ),
    Refusal(
        "cache-inc",
        "engine.cache_dtype",
        ENGINE,
        "`cache_dtype` is `fp8_inc`",
        "no attention backend on an NVIDIA part takes it",
        "fp8 stores the same bytes",
        "vllm/v1/attention/backends",
        lambda case: _cache(case, _cache_name(case) == "fp8_inc"),
    ),
    Refusal(
        "cache-packed",
        "engine.cache_dtype",
        ENGINE,
        "`cache_dtype` ends in `_ds_mla` on a model whose attention is not all sparse latent",
        "the packed latent format needs sparse latent attention",
        "state fp8, or auto",
        "vllm/v1/attention/backends/mla/flashmla_sparse.py",
        lambda case: _cache(case, _packed(case) and case.facts.attention_kinds != {"sparse_mla"}),
        lambda case: _kinds_with(case, "state fp8, or auto"),
    ),
    Refusal(
        "cache-nvfp4-latent",
        "engine.cache_dtype",
        ENGINE,
        "`cache_dtype` begins with `nvfp4`, not the packed one, on a model with latent attention",
        "no latent attention backend takes it",
        "state fp8, or auto",
        "vllm/v1/attention/backends/mla",
        lambda case: _cache(case, _cache_name(case).startswith("nvfp4") and not _packed(case) and case.facts.latent),
        lambda case: _kinds_with(case, "state fp8, or auto"),
    ),
    Refusal(
        "cache-unsized",
        "engine.cache_dtype",
        PRICE,
        f"`cache_dtype` is one of {listed(sorted(UNSIZED_CACHES))}",
        "the layout of its pages is not modelled, so neither bytes nor reads of the cache are known",
        "state fp8, or auto",
        "vllm/v1/attention/backends/triton_attn.py",
        lambda case: _cache(case, _cache_name(case) in UNSIZED_CACHES),
    ),
    Refusal(
        "cache-unknown",
        "engine.cache_dtype",
        ENGINE,
        "`cache_dtype` is no name of the engine's",
        "the engine has no such cache type",
        f"accepted are auto, {listed(sorted(CACHE_BYTES))}",
        "vllm/config/cache.py",
        lambda case: _cache(
            case, _cache_name(case) not in ("", "fp8_inc", *UNSIZED_CACHES) and _cache_name(case) not in CACHE_BYTES
        ),
    ),
    *(
        Refusal(
            row,
            f"engine.{name}",
            ENGINE,
            f"`{name}` is no name of the engine's",
            "recurrent state has no such type",
            f"accepted are {listed(RECURRENT_CACHES)}",
            "vllm/config/cache.py",
            lambda case, name=name: when(  # type: ignore[misc]
                getattr(case.engine, name) not in ("", *RECURRENT_CACHES),
                f"{name} is {getattr(case.engine, name)!r}",
            ),
        )
        for row, name in (("mamba-cache-type", "mamba_cache_dtype"), ("mamba-state-type", "mamba_ssm_cache_dtype"))
    ),
)


# ---- caches --------------------------------------------------------------------------------------------------------


def _nearest_multiple(case: Case) -> str:
    below = case.engine.block_size // DSA_BLOCK * DSA_BLOCK
    return f"the nearest: {below or DSA_BLOCK}"


CACHES = (
    Refusal(
        "mamba-mode",
        "engine.mamba_cache_mode",
        ENGINE,
        "`mamba_cache_mode` is no name of the engine's",
        "recurrent state is not kept in such a way",
        f"accepted are {listed(RECURRENT_CACHE_MODES)}",
        "vllm/config/cache.py",
        lambda case: when(
            case.engine.mamba_cache_mode not in ("", *RECURRENT_CACHE_MODES),
            f"mamba_cache_mode is {case.engine.mamba_cache_mode!r}",
        ),
    ),
    Refusal(
        "sparse-block",
        "engine.block_size",
        ENGINE,
        f"`block_size` is no multiple of {DSA_BLOCK} on the DeepSeek-V3.2 family",
        f"its sparse attention backends take multiples of {DSA_BLOCK}",
        f"a multiple of {DSA_BLOCK}",
        "vllm/v1/attention/backends/mla/indexer.py",
        lambda case: when(
            case.facts.dsa and case.engine.block_size % DSA_BLOCK != 0, f"block_size is {case.engine.block_size}"
        ),
        _nearest_multiple,
    ),
)


# ---- CUDA graphs ---------------------------------------------------------------------------------------------------


def _largest_stated(case: Case) -> int:
    """The widest capture size of a stated list within the token budget."""
    budget = case.settings.max_num_batched_tokens
    return max((size for size in case.engine.cudagraph_capture_sizes if size <= budget), default=0)


def _sizes_disagree(case: Case) -> bool:
    stated = case.engine.max_cudagraph_capture_size
    both = bool(stated and case.engine.cudagraph_capture_sizes) and _captures(case)
    return both and stated != _largest_stated(case)


def _captures(case: Case) -> bool:
    return case.settings.graphs.mode != "NONE"


_MODE = "engine.cudagraph_mode"

GRAPHS = (
    Refusal(
        "graph-mode",
        _MODE,
        PRICE,
        f"`cudagraph_mode` is none of {listed(GRAPH_MODES)}",
        "there is no such mode",
        f"accepted are {listed(GRAPH_MODES)}",
        "vllm/config/compilation.py",
        lambda case: when(
            bool(case.engine.cudagraph_mode) and case.engine.cudagraph_mode.upper() not in GRAPH_MODES,
            f"cudagraph_mode is {case.engine.cudagraph_mode!r}",
        ),
    ),
    Refusal(
        "capture-sizes",
        "engine.max_cudagraph_capture_size",
        ENGINE,
        "`max_cudagraph_capture_size` is not the largest of the stated `cudagraph_capture_sizes` within the token "
        "budget",
        "the largest of cudagraph_capture_sizes within the token budget must equal it",
        "state one of the two, or make them agree",
        "vllm/config/vllm.py",
        lambda case: when(
            _sizes_disagree(case), f"max_cudagraph_capture_size is {case.engine.max_cudagraph_capture_size}"
        ),
        lambda case: f"state {_largest_stated(case)}, or only one of the two",
    ),
    Refusal(
        "capture-maximum",
        "engine.max_cudagraph_capture_size",
        PRICE,
        f"`max_cudagraph_capture_size` and the token budget are both above {WIDEST_CAPTURE}",
        "no part captures graphs that wide",
        f"accepted is up to {WIDEST_CAPTURE}",
        "pykernel",
        lambda case: when(
            not case.engine.cudagraph_capture_sizes
            and _captures(case)
            and min(case.engine.max_cudagraph_capture_size, case.settings.max_num_batched_tokens) > WIDEST_CAPTURE,
            f"max_cudagraph_capture_size is {case.engine.max_cudagraph_capture_size} with a token budget of "
            f"{case.settings.max_num_batched_tokens}",
        ),
    ),
    Refusal(
        "sparse-prefill-context-graphs",
        _MODE,
        ENGINE,
        "`pcp` above 1 with `dcp` 1 on sparse latent attention, and a graph mode other than `NONE`",
        "sparse latent attention under pcp without dcp runs without graphs only",
        "state NONE",
        "vllm/config/vllm.py",
        lambda case: when(
            case.layout.pcp > 1
            and case.layout.dcp == 1
            and "sparse_mla" in case.facts.attention_kinds
            and _captures(case),
            f"cudagraph_mode is {case.settings.graphs.mode} with pcp {case.layout.pcp}",
        ),
    ),
    Refusal(
        "prefill-context-graphs",
        _MODE,
        ENGINE,
        "`pcp` above 1 with graph mode `FULL`",
        "prefills of several ranks cannot be captured whole",
        "FULL_AND_PIECEWISE keeps full graphs for decodes",
        "vllm/config/vllm.py",
        lambda case: when(
            case.layout.pcp > 1 and case.settings.graphs.mode == "FULL",
            f"cudagraph_mode is FULL with pcp {case.layout.pcp}",
        ),
    ),
)
