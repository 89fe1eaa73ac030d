"""The hooks by which plug-ins extend pykernel: cost models, and documents found by name.

A plug-in is a module (or object) with functions marked `hookimpl`, named by an entry point of its distribution:

    [project.entry-points.pykernel]
    roofline = "pykernel_roofline"

Each hook returns a list of the small frozen records below. Hooks are called once, when a name is first looked up that
is not pykernel's own; they should be quick and load nothing that they can leave to the record's callable.

In the examples `hardware`, `coefficients` and `graph` are modules of `pykernel.documents`, `rules` is `pykernel.rules`,
and HERE is the plug-in's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pluggy

from pykernel.documents import (
    Chip,
    CoefficientSet,
    Fabric,
    Inputs,
    ModelGraph,
    Rules,
    StorageTier,
)
from pykernel.interface import CostModel

PROJECT = "pykernel"
"""Name of the pluggy project and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class CostModelEntry:
    """A cost model by name.

    factory : builds it for one pool of a deployment; raises `RefusedError` for what it does not price.
    summary : what it is, in one line.
    source : where its laws and numbers come from.
    lacks : capabilities of `pykernel.laws` that it does not claim. Laws that no model may waive hold regardless.
    """

    name: str
    factory: Callable[[Inputs], CostModel]
    summary: str
    source: str = ""
    lacks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DocumentEntry:
    """A document by name: `load` returns it, `source` says where its figures come from, in one line."""

    name: str
    load: Callable[[], Any]
    source: str = ""


class Hooks:
    """The hook specifications."""

    @hookspec
    def pykernel_cost_models(self) -> Sequence[CostModelEntry]:  # type: ignore[empty-body]
        """Cost models.

        @hookimpl
        def pykernel_cost_models():
            return [CostModelEntry("roofline", Roofline, "datasheet peaks and bandwidth", "chip documents")]
        """

    @hookspec
    def pykernel_chips(self) -> Sequence[DocumentEntry]:  # type: ignore[empty-body]
        """Chips; each entry loads a `pykernel.documents.Chip` of its own name.

        @hookimpl
        def pykernel_chips():
            return [DocumentEntry("mi300x", lambda: hardware.load_chip(HERE / "mi300x.yaml"), "AMD data sheet")]
        """

    @hookspec
    def pykernel_fabrics(self) -> Sequence[DocumentEntry]:  # type: ignore[empty-body]
        """Fabrics between nodes; each entry loads a `pykernel.documents.Fabric`.

        @hookimpl
        def pykernel_fabrics():
            return [DocumentEntry("ib-800g", lambda: hardware.load_fabric(HERE / "ib-800g.yaml"), "line rate")]
        """

    @hookspec
    def pykernel_storage_tiers(self) -> Sequence[DocumentEntry]:  # type: ignore[empty-body]
        """Tiers for KV offload; each entry loads a `pykernel.documents.StorageTier`.

        @hookimpl
        def pykernel_storage_tiers():
            return [DocumentEntry("cxl", lambda: StorageTier("cxl", 28000, 28000, 0.4), "vendor figures")]
        """

    @hookspec
    def pykernel_coefficient_sets(self) -> Sequence[DocumentEntry]:  # type: ignore[empty-body]
        """Coefficient sets that a scenario may list; each entry loads a `pykernel.documents.CoefficientSet`.

        @hookimpl
        def pykernel_coefficient_sets():
            return [DocumentEntry("my-cluster", lambda: coefficients.load(HERE / "my-cluster.yaml"), "own sweep")]
        """

    @hookspec
    def pykernel_model_graphs(self) -> Sequence[DocumentEntry]:  # type: ignore[empty-body]
        """Model graphs; each entry loads a `pykernel.documents.ModelGraph` of its own name.

        @hookimpl
        def pykernel_model_graphs():
            return [DocumentEntry("my-model", lambda: graph.load(HERE / "graph.yaml"), "own checkpoint")]
        """

    @hookspec
    def pykernel_rules_packs(self) -> Sequence[DocumentEntry]:  # type: ignore[empty-body]
        """Rules of an engine release, named by its exact version; each entry loads a `pykernel.Rules`.

        @hookimpl
        def pykernel_rules_packs():
            return [DocumentEntry("0.32.0", lambda: rules("0.32.0", HERE), "vLLM 0.32.0")]
        """


KINDS: dict[str, type] = {
    "cost_models": CostModelEntry,
    "chips": Chip,
    "fabrics": Fabric,
    "storage_tiers": StorageTier,
    "coefficient_sets": CoefficientSet,
    "model_graphs": ModelGraph,
    "rules_packs": Rules,
}
"""What can be registered: the hook is `pykernel_` and the key, the value what an entry is or loads."""
