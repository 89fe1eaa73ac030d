"""The case that the tables of resolution judge: one pool of one deployment, and what is known of it so far.

Each stage of `resolve` adds its part. A row of a table reads parts of its own or an earlier stage only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from pykernel.documents import Chip, Cluster, Deployment, Engine, Inputs, ModelGraph, Node, Pool, Rules
from pykernel.resolve.coefficients import Coefficients
from pykernel.resolve.context_parallel import DecodeContext
from pykernel.resolve.engine import EngineSettings
from pykernel.resolve.experts import redundant_experts
from pykernel.resolve.layout import Layout
from pykernel.resolve.memory import MemoryNames
from pykernel.resolve.model_facts import ModelFacts
from pykernel.resolve.precision import Precision
from pykernel.resolve.sparse_backend import SparseChoice
from pykernel.resolve.sweeps import Sweep


@dataclass
class Case:
    """A pool under its documents; the fields below the line are filled in stage by stage."""

    inputs: Inputs
    rules: Rules
    pool: Pool
    facts: ModelFacts
    layout: Layout
    coefficients: Coefficients
    # ---------------------------------
    precision: Precision = field(init=False)
    settings: EngineSettings = field(init=False)
    context: DecodeContext = field(init=False)
    sweeps: list[Sweep] = field(init=False)
    sparse: SparseChoice | None = None
    """The sparse attention backend; None where the model has none of that family, or none accepts the deployment."""
    memory_names: MemoryNames = field(init=False)
    context_chunk: int = 0
    """Tokens of prefix that latent attention gathers at once."""

    @property
    def engine(self) -> Engine:
        return self.pool.engine

    @property
    def deployment(self) -> Deployment:
        return self.inputs.deployment

    @property
    def cluster(self) -> Cluster:
        return self.inputs.scenario.cluster

    @property
    def chip(self) -> Chip:
        return self.inputs.chip

    @property
    def model(self) -> ModelGraph:
        return self.inputs.model

    @cached_property
    def drafting(self) -> int:
        """Draft tokens of a step."""
        return self.engine.speculative.num_spec_tokens if self.engine.speculative else 0

    def nodes(self, op: str) -> list[Node]:
        """Every node of one primitive in the layer kinds that a step runs."""
        return [node for kind in self.facts.priced_kinds for node in kind.nodes(op)]

    @cached_property
    def priced_attentions(self) -> frozenset[str]:
        """Kinds of the attentions that a step runs, scorers included."""
        return frozenset(node.kind for node in self.nodes("Attention"))

    @cached_property
    def priced_mixers(self) -> frozenset[str]:
        """Kinds of the recurrent mixers that a step runs."""
        return frozenset(node.recurrent_kind for node in self.nodes("RecurrentUpdate"))

    @cached_property
    def fewest_experts(self) -> int:
        """Routed experts of the layer that has the fewest, replicas included; 0 without routed experts."""
        counts = [node.experts for kind in self.facts.priced_kinds for node in kind.routed_experts]
        return min(counts) + redundant_experts(self.engine) if counts else 0

    @cached_property
    def connectors(self) -> frozenset[str]:
        """Names of the KV connectors that the deployment configures."""
        parts = (self.deployment.pd_transfer, self.deployment.offload)
        return frozenset(part.connector for part in parts if part and part.connector)

    @property
    def query_heads(self) -> int:
        """Query heads of the widest sparse latent layer on one rank."""
        heads = (node.n_q for node in self.facts.attentions if node.kind == "sparse_mla")
        return max(heads, default=0) // self.layout.tp
