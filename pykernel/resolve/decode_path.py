"""Up to how many tokens the engine treats a request as a decode: the threshold that its attention backend sorts by.

A backend may take short prefills on its decode kernels, and drafts where those kernels run several tokens a request.
Ranks that share a context take one token a request, unless the backend knows how to mask more of them. Where layers
differ, the narrowest decides (vllm/v1/attention/backends at v0.31.0, `reorder_batch_threshold`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pykernel.resolve.case import Case
from pykernel.resolve.engine import data_center_blackwell, pre_hopper


@dataclass(frozen=True, slots=True)
class DecodePath:
    """What a backend's decode kernels take: tokens of a request in any case, drafts beside the one token, and both
    under decode-context parallelism."""

    backend: str
    tokens: int = 1
    drafts: bool = True
    under_dcp: bool = False


FLASH_ATTN = DecodePath("FLASH_ATTN", under_dcp=True)  # does not sort; a request with drafts is one like any other
FLASHINFER = DecodePath("FLASHINFER")
FLASH_ATTN_MLA = DecodePath("FLASH_ATTN_MLA", tokens=512, under_dcp=True)
FLASHMLA = DecodePath("FLASHMLA", tokens=128)
FLASHINFER_MLA = DecodePath("FLASHINFER_MLA")
TRITON_MLA = DecodePath("TRITON_MLA", drafts=False)
SPARSE = DecodePath("sparse latent attention")
RECURRENT = DecodePath("recurrent mixers")

DECODE_PATHS = (FLASH_ATTN, FLASHINFER, FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, TRITON_MLA, SPARSE, RECURRENT)


def decode_threshold(case: Case) -> int:
    """The most tokens that a request of a decode schedules."""
    width = 1 + case.drafting
    return min((_threshold(path, width, case) for path in decode_paths(case)), default=width)


def decode_paths(case: Case) -> set[DecodePath]:
    """The decode kernels of a model's layers on this part."""
    paths = {_attention_path(kind, case) for kind in case.facts.attention_kinds}
    return paths | ({RECURRENT} if case.facts.recurrent_kinds else set())


def _attention_path(kind: str, case: Case) -> DecodePath:
    blackwell = data_center_blackwell(case.chip)
    if kind == "sparse_mla":
        return SPARSE
    if kind != "mla":
        return FLASHINFER if blackwell else FLASH_ATTN
    if blackwell:
        return FLASHINFER_MLA
    if pre_hopper(case.chip):
        return TRITON_MLA
    return FLASHMLA if case.precision.cache_element_bytes < 2 else FLASH_ATTN_MLA


def _threshold(path: DecodePath, width: int, case: Case) -> int:
    if case.layout.dcp > 1 and not (path.under_dcp and case.context.interleave == 1):
        return 1
    return max(path.tokens, width if path.drafts else 1)
