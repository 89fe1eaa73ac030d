"""The ModelGraph: what a forward pass runs on the GPU, one small acyclic graph for each distinct kind of layer.

Types, loading and writing; the checks are in `graph_checks.py`. Keys are those of inference-sim/blis-schemas v0.2.2,
with two additions that its readers do not know: `gated` on an expert node, and the top-level list `caches`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar

from pykernel.documents import graph_checks, vocabulary
from pykernel.documents.fieldtypes import key, words
from pykernel.documents.loading import load_document
from pykernel.documents.nodes import Document
from pykernel.documents.writing import write
from pykernel.errors import Problem


@dataclass
class DerivedFrom:
    """The file a graph was derived from, with its digest."""

    format: str
    path: str
    sha256: str
    deriver_version: int


@dataclass
class Global:
    """Facts of the whole model."""

    hidden_size: int
    vocab_size: int
    weight_dtype: str = field(metadata=words(vocabulary.DTYPES))
    tie_word_embeddings: bool = False


@dataclass
class Node:
    """One primitive. `op` decides which of the other fields have a meaning; the rest stay at absence."""

    op: str = field(metadata=words(vocabulary.OPS))
    role: str = ""
    emit: str = ""
    n: int = 0
    k: int = 0
    weight_dtype: str = ""
    experts: int = 0
    top_k: int = 0
    shared_experts: int = 0
    shared_intermediate_size: int = 0
    latent_size: int = 0
    gated: bool = True
    kind: str = ""
    n_q: int = 0
    n_kv: int = 0
    d_h: int = 0
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    window: int = 0
    index_topk: int = 0
    compress_ratio: int = 0
    recurrent_kind: str = ""
    n_heads: int = 0
    state_size: int = 0
    n_groups: int = 0
    conv_kernel: int = 0
    intermediate_size: int = 0
    state_dtype: str = ""
    bytes_per_token: int = 0


@dataclass
class LayerKind:
    """One kind of layer: its nodes, and edges as pairs of node indices."""

    id: str
    nodes: list[Node]
    edges: list[list[int]] = field(default_factory=list)


@dataclass
class Stack:
    """The order of the layers: prologue, pattern x repeat, epilogue."""

    prologue: list[str] = field(default_factory=list)
    pattern: list[str] = field(default_factory=list)
    repeat: int = 0
    epilogue: list[str] = field(default_factory=list)

    def layer_count(self) -> int:
        """How many layers the stack has."""
        return len(self.prologue) + len(self.pattern) * self.repeat + len(self.epilogue)

    def layers(self) -> list[str]:
        """The layer-kind ids in the order they run."""
        return [*self.prologue, *list(self.pattern) * self.repeat, *self.epilogue]


@dataclass
class Speculator:
    """The draft module of the checkpoint, as layers; whether it runs is the deployment's choice."""

    method: str
    num_spec_tokens: int
    stack: Stack


@dataclass
class Cache:
    """One cache that layers keep: sizes in bytes a layer before sharding, tokens where a name says so."""

    id: str
    class_: str = field(metadata=key("class", words=vocabulary.CACHE_CLASSES))
    layers: int
    entry_bytes: float = 0.0
    page_bytes: int = 0
    tokens_per_entry: int = 1
    window: int = 0
    block: int = 0
    heads: int = 0
    shards: list[str] | None = None
    owner: str = "target"
    dtype: str = ""

    def sharded_by(self) -> list[str]:
        """The widths that divide the cache: as stated, else tp where it has heads."""
        if self.shards is not None:
            return list(self.shards)
        return ["tp"] if self.heads else []


@dataclass
class ModelGraph(Document):
    """The priced part of a model: layer kinds, their order, the head, and the draft module."""

    KIND: ClassVar[str] = "ModelGraph"

    kind: str
    name: str
    derived_from: DerivedFrom
    global_: Global = field(metadata=key("global"))
    layer_kinds: list[LayerKind]
    stack: Stack
    head: list[Node] = field(default_factory=list)
    speculator: Speculator | None = None
    modality: str = ""
    caches: list[Cache] = field(default_factory=list)


def load(path: str | os.PathLike[str]) -> ModelGraph:
    """The graph of a file. Raises DocumentError."""
    return load_document(ModelGraph, path, "model")


def dump(graph: ModelGraph) -> str:
    """The graph as YAML text that loads back equal."""
    return write(graph)


def check(graph: ModelGraph, prefix: str = "model") -> list[Problem]:
    """Problems of a well-typed graph."""
    return graph_checks.check(graph, prefix)
