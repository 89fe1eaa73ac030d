"""The documents of the ecosystem as typed Python objects: strict loading, validation, writing.

One module for each kind; each has the types, `load` and `dump`, and a `check` for what needs no other document.
`inputs` checks all documents of a kernel together, `repos` finds them by name, `rules` holds the facts of an engine
release. Reading is string-only first (`reader`) and typed by the dataclasses' annotations after (`fieldtypes`).
"""

from pykernel.documents import coefficients, deployment, graph, hardware, inputs, repos, scenario, storage
from pykernel.documents.coefficients import Coefficient, CoefficientSet, CoefficientSource, Scope
from pykernel.documents.deployment import (
    Dbo,
    Deployment,
    Engine,
    Eplb,
    Offload,
    OffloadTier,
    Parallel,
    PdTransfer,
    Pool,
    Speculative,
)
from pykernel.documents.graph import Cache, DerivedFrom, Global, LayerKind, ModelGraph, Node, Speculator, Stack
from pykernel.documents.hardware import Chip, Fabric
from pykernel.documents.inputs import Inputs, require_valid, validate
from pykernel.documents.nodes import Document, Source
from pykernel.documents.repos import (
    Repos,
    find_scenario,
    list_chips,
    list_coefficient_sets,
    list_fabrics,
    list_models,
    list_scenarios,
    list_storage,
    load_bundle,
    open_inputs,
)
from pykernel.documents.rules import Rules, rules
from pykernel.documents.scenario import (
    Cluster,
    Scenario,
    SloTarget,
    Trace,
    TraceHeader,
    TraceServer,
    Workload,
)
from pykernel.documents.storage import StorageTier

__all__ = [
    "Cache",
    "Chip",
    "Cluster",
    "Coefficient",
    "CoefficientSet",
    "CoefficientSource",
    "Dbo",
    "Deployment",
    "DerivedFrom",
    "Document",
    "Engine",
    "Eplb",
    "Fabric",
    "Global",
    "Inputs",
    "LayerKind",
    "ModelGraph",
    "Node",
    "Offload",
    "OffloadTier",
    "Parallel",
    "PdTransfer",
    "Pool",
    "Repos",
    "Rules",
    "Scenario",
    "Scope",
    "SloTarget",
    "Source",
    "Speculative",
    "Speculator",
    "Stack",
    "StorageTier",
    "Trace",
    "TraceHeader",
    "TraceServer",
    "Workload",
    "coefficients",
    "deployment",
    "find_scenario",
    "graph",
    "hardware",
    "inputs",
    "list_chips",
    "list_coefficient_sets",
    "list_fabrics",
    "list_models",
    "list_scenarios",
    "list_storage",
    "load_bundle",
    "open_inputs",
    "repos",
    "require_valid",
    "rules",
    "scenario",
    "storage",
    "validate",
]
