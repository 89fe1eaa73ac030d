"""The switches between the newest laws and the older ones that published figures still rest on.

The product carries few of these; the oracle carries all that touch a step, so that every published figure can be
recomputed here, each under the settings it was published with.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One setting of each switch; the defaults are the newest ones.

    head_sampled_rows: the head runs over sampled rows; else over all tokens of the rank.
    vocab_gather: the logits are gathered over the tensor group, inside the head's stage.
    head_16_bit: the head weighs at least two bytes a parameter unless its node states a format; else as served.
    swa_reads_window: a windowed layer's decode reads at most its window; else the whole context.
    sparse_reads_union: selected or compressed entries plus the window; else selection plus a compressed remainder.
    kv_per_kind: each layer kind's own cache geometry; else the last declared one for all.
    latent_experts: routed experts read the latent width where the node states one.
    grouped_nodes_apart: every expert node is priced by itself, an always-selected one as shared work; else summed.
    sp_moe_pair: a reduce-scatter and an all-gather replace the all-reduce that sequence-parallel experts drop.
    speculator: draft passes are priced when the deployment speculates.
    pad_tokens: lockstep padding counts; else it is ignored.
    engine_capture_sizes: the ceiling is the largest entry of the engine's size list, stated sizes honoured; else
        min(2 x sequences x width, 512 or 1024) whatever is stated.
    engine_defaults: unstated block sizes by attention backend, the 256-token budget of low-latency dispatch, no
        graphs under high-throughput DeepEP dispatch; else 16 (64 for DSA), the budget by memory, no exception.
    """

    head_sampled_rows: bool = True
    vocab_gather: bool = True
    head_16_bit: bool = True
    swa_reads_window: bool = True
    sparse_reads_union: bool = True
    kv_per_kind: bool = True
    latent_experts: bool = True
    grouped_nodes_apart: bool = True
    sp_moe_pair: bool = True
    speculator: bool = True
    pad_tokens: bool = True
    engine_capture_sizes: bool = True
    engine_defaults: bool = True


NEWEST = Settings()

REFERENCE = Settings(
    head_sampled_rows=False,
    vocab_gather=False,
    head_16_bit=False,
    swa_reads_window=False,
    sparse_reads_union=False,
    kv_per_kind=False,
    latent_experts=False,
    grouped_nodes_apart=False,
    sp_moe_pair=False,
    speculator=False,
    pad_tokens=False,
    engine_capture_sizes=False,
    engine_defaults=False,
)
