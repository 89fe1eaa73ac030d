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
    """

    head_on_sampled_rows: bool = True
    vocabulary_gather: bool = True
    unquantized_head: bool = True


NEWEST = LawSwitches()
REFERENCE = LawSwitches(head_on_sampled_rows=False, vocabulary_gather=False, unquantized_head=False)
