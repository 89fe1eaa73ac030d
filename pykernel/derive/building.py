"""From a config to a model graph: every layer built by its family's recipe, equal layers made one kind.

Layers are compared by their nodes, so a checkpoint that stores some layers otherwise, or a model whose layers differ
in width, gets a kind for each without any recipe knowing of it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykernel.derive import config as configs
from pykernel.derive.blocks import Builder, Part, around_mlp, expert_part, mlp_reduction
from pykernel.derive.config import Config
from pykernel.derive.families import BY_ARCHITECTURE, FAMILIES, MIXER_IDS, MIXERS, MLP_IDS, MLPS, Family
from pykernel.derive.formats import Formats
from pykernel.derive.latent import indexed_layers
from pykernel.derive.layouts import nemotron_blocks
from pykernel.derive.sequence import compressed
from pykernel.documents import graph as graphs
from pykernel.documents.graph import DerivedFrom, Global, LayerKind, ModelGraph, Node, Speculator, Stack
from pykernel.errors import DocumentError, Problem

DERIVER_VERSION = 1

ConfigSource = Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class Derived:
    """A model graph, the family it was derived by, and the parameters that are in no node of the stack."""

    graph: ModelGraph
    family: str
    unpriced: dict[str, int]


def build(source: ConfigSource, name: str = "", quantization: str = "") -> Derived:
    """The graph of a config; see `pykernel.derive`."""
    config, path, digest = configs.read(source)
    family = find_family(config)
    config.family = family.name
    _require(config, family)
    formats = Formats(config, quantization, family.traits.unquantized)
    formats.overrides = dict(family.modules)
    builder = Builder(config, formats, family.traits)
    kinds, layers, unpriced = _stack(builder, family)
    speculator = _speculator(builder, family, kinds)
    hidden, vocabulary = config.integer("hidden_size"), config.integer("vocab_size")
    head = Node("GEMM", role="lm_head", n=vocabulary, k=hidden, weight_dtype=_head_format(builder))
    unpriced["norms"] += hidden * family.traits.norm_vectors
    graph = ModelGraph(
        kind="ModelGraph",
        name=name or _name(source, config),
        derived_from=DerivedFrom("hf_config_json", path, digest, DERIVER_VERSION),
        global_=Global(hidden, vocabulary, formats.overall, _tied(config, family)),
        layer_kinds=[LayerKind(id_, nodes, _chain(nodes)) for id_, nodes in kinds.items()],
        stack=compressed(layers),
        head=[Node("Elementwise", role="final_norm"), head],
        speculator=speculator,
        modality="text_decoder_of_multimodal" if config.nested else "",
    )
    faults = [problem for problem in graphs.check(graph) if problem.severity == "error"]
    if faults:  # a recipe let something through: say so as a fault of the config, not of a graph nobody has seen
        raise DocumentError(
            [Problem("error", "config", f"derives no valid graph: {p.path}: {p.message}", config.file) for p in faults]
        )
    return Derived(graph, family.name, {key: number for key, number in unpriced.items() if number})


def _require(config: Config, family: Family) -> None:
    """Raise for everything at once that no config of the family may leave out."""
    problems: list[Problem] = []
    for concept in ("hidden_size", "vocab_size", *family.states):
        try:
            if not config.states(concept):
                config.missing(concept)
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)


def find_family(config: Config) -> Family:
    """The recipe of a config's architecture. Raises `DocumentError` with the nearest known one."""
    architecture = config.architecture()
    if architecture in BY_ARCHITECTURE:
        return BY_ARCHITECTURE[architecture]
    near = difflib.get_close_matches(architecture, BY_ARCHITECTURE, n=1, cutoff=0.0)[0]
    place = "config" if config.outer.get("architectures") else config.place
    known = ", ".join(family.name for family in FAMILIES)
    message = f"no family has the architecture {architecture[:80]!r}; the nearest is {near}, of the family "
    message += f"{BY_ARCHITECTURE[near].name}; families: {known}"
    raise DocumentError([Problem("error", f"{place}.architectures", message, config.file)])


def _name(source: ConfigSource, config: Config) -> str:
    """The model's name: that of its folder or file, else what the config calls itself, else its family."""
    if isinstance(source, Mapping):
        called = config.outer.get("_name_or_path")
        text = called.rstrip("/").rpartition("/")[2] if isinstance(called, str) else ""
    else:
        path = Path(source).absolute()
        path = path / "config.json" if path.is_dir() else path
        text = path.parent.name if path.name == "config.json" else path.stem.removesuffix("_config")
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or config.family


def _tied(config: Config, family: Family) -> bool:
    for values, place in ((config.values, config.place), (config.outer, "config")):
        found = values.get("tie_word_embeddings")
        if isinstance(found, bool):
            return found
        if found is not None:
            config.fault("tie_word_embeddings", "found no flag; accepted: true or false", within=place)
    return family.traits.tied


def _head_format(b: Builder) -> str:
    if b.traits.state_head and b.formats.overall != b.formats.base:
        return b.formats.base
    return b.formats.head()


def _chain(nodes: list[Node]) -> list[list[int]]:
    return [[index, index + 1] for index in range(len(nodes) - 1)]


# ---- layers ------------------------------------------------------------------------------------------------------


def _stack(b: Builder, family: Family) -> tuple[dict[str, list[Node]], list[str], Counter[str]]:
    """The kinds by id in the order they appear, the id of every layer, and the parameters outside the nodes."""
    mixers, mlps = _settled(b, family.mixers(b.config)), family.mlps(b.config)
    kinds: dict[str, list[Node]] = {}
    layers: list[str] = []
    unpriced: Counter[str] = Counter()
    for b.layer, (mixer, mlp) in enumerate(zip(mixers, mlps, strict=True)):
        part = MIXERS[mixer](b) + MLPS[mlp](b)
        if not part.nodes:
            part = Part([Node("Elementwise", role="skipped_layer", bytes_per_token=1)])
        layers.append(_filed(kinds, kind_id(family, mixer, mlp, mixers, mlps), part.nodes))
        unpriced += part.unpriced
    return kinds, layers, unpriced


def _settled(b: Builder, mixers: list[str]) -> list[str]:
    """Mixers with the layers named that run their indexer, where the model has one."""
    if "latent_indexable" not in mixers:
        return mixers
    return ["latent_indexed" if indexed else "latent" for indexed in indexed_layers(b, len(mixers))]


def _filed(kinds: dict[str, list[Node]], id_: str, nodes: list[Node]) -> str:
    """The id of the kind with these nodes, a new one where there is none; ids taken get a number."""
    number, name = 1, id_
    while name in kinds:
        if kinds[name] == nodes:
            return name
        number += 1
        name = f"{id_}_{number}"
    kinds[name] = nodes
    return name


def kind_id(family: Family, mixer: str, mlp: str, mixers: list[str], mlps: list[str]) -> str:
    """How a layer kind is called."""
    if (mixer, mlp) in family.ids:
        return family.ids[mixer, mlp]
    if {*mixers} == {"attention"} and {*mlps} == {"dense"}:
        return "dense"
    attention = "full" if "sliding" in mixers else "attn"
    name = f"{MIXER_IDS.get(mixer, attention)}_{MLP_IDS.get(mlp, mlp)}"
    if {"latent", "latent_indexed"} <= {*mixers}:
        name += "_indexed" if mixer == "latent_indexed" else "_noindex"
    return name


# ---- the draft module --------------------------------------------------------------------------------------------


def _speculator(b: Builder, family: Family, kinds: dict[str, list[Node]]) -> Speculator | None:
    """The draft module that a config states; adds its layer kind where the stack has none."""
    draft, config = family.draft, b.config
    key = draft.key if draft else "drafts"
    count = config.optional(key)
    if not count or family.ignores_drafts:
        return None
    if draft is None:
        config.fault(config.key(key), f"found {count} draft layers, and none are described for the family")
    pattern = _draft_layers(b, family, kinds)
    return Speculator(draft.method, count, Stack(pattern=pattern, repeat=1))


def _draft_layers(b: Builder, family: Family, kinds: dict[str, list[Node]]) -> list[str]:
    draft, config = family.draft, b.config
    assert draft is not None
    blocks = nemotron_blocks(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    last = next(reversed(kinds))
    if blocks:
        named = [family.ids.get(pair, "") for pair in blocks]
        return [name if name in kinds else last for name in named]
    if draft.kind is None or (draft.only_if_mixed and not any(name.endswith("_noindex") for name in kinds)):
        return [last]
    b.layer, b.draft = config.layers(), True
    b.formats.draft_layer = b.layer
    mixer, mlp = draft.kind
    part = MIXERS[mixer](b) + (
        around_mlp(b, expert_part(b) + Part([mlp_reduction()])) if mlp == "moe" else MLPS[mlp](b)
    )
    nodes = part.nodes
    if draft.projection:
        before = [
            Node("Elementwise", role="mtp_enorm"),
            Node("Elementwise", role="mtp_hnorm"),
            b.gemm("mtp_eh_proj", b.hidden, 2 * b.hidden, "draft"),
        ]
        nodes = [*before, *nodes, Node("Elementwise", role="mtp_shared_head_norm")]
    same = next((name for name, known in kinds.items() if known == nodes), "")
    if same and not draft.own:
        return [same]
    kinds["mtp_moe"] = nodes
    return ["mtp_moe"]
