"""The switches of the laws: where two published figures of the reference cost model need different rules.

A switch exists only where a published figure depends on it. The newest settings are the default; the reference
settings reproduce the figures published earlier. Each is data by the time the C core sees it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LawSwitches:
    """One setting of every switch.

    head_on_sampled_rows : the output projection runs on sampled rows (each decode's tokens, one row of each prefill);
        otherwise on every token of the step.
    vocabulary_gather : logits are gathered over the tensor-parallel group, 2 bytes a row and vocabulary entry.
    unquantized_head : the output projection's weights take at least 2 bytes a parameter unless the graph states their
        width; otherwise the served width.
    embedding_width : bytes a parameter of the embedding in memory: `checkpoint` takes the checkpoint's format;
        `unpacked` does so too, but 2 bytes for a format below one byte, in which nobody stores an embedding;
        `sixteen_bit` takes 2 bytes at least, as the engine does.
    communicator_before_snapshot : the communicator's buffers and the engine's workspace are held before the engine
        takes its budget; otherwise they count as fixed bytes inside it.
    engine_weights : a rank holds the matrices that measured laws say its steps read, with the formats and copies of
        the engine (whole routers, down-projections and, on shares of tokens, shared experts; the queries of other
        ranks; projections that a graph leaves out), and beside them what no step reads; recurrent state is padded to a
        page of attention. Otherwise tensor parallelism divides every matrix of the graph, there is nothing beside them,
        and a state takes what it is.
    measured : every kernel is priced by a law fitted to measurements of it, and where the published descriptions and
        the engine differ, the engine's way is taken.
    engine : whose host constants measured laws use, `vllm`, `trtllm` or `sglang`; nothing else follows it.
    """

    head_on_sampled_rows: bool = True
    vocabulary_gather: bool = True
    unquantized_head: bool = True
    embedding_width: str = "unpacked"
    communicator_before_snapshot: bool = True
    engine_weights: bool = False
    measured: bool = False
    engine: str = "vllm"


NEWEST = LawSwitches()
REFERENCE = LawSwitches(
    head_on_sampled_rows=False,
    vocabulary_gather=False,
    unquantized_head=False,
    embedding_width="checkpoint",
    communicator_before_snapshot=False,
)
CALIBRATED = LawSwitches(embedding_width="sixteen_bit", engine_weights=True, measured=True)
