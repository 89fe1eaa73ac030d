"""The checks of a ModelGraph: its frame, the shape of its layers, and what each op demands of a node.

What an op demands is a table, because that is what a reader wants to look up and a test wants to walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykernel.documents import vocabulary
from pykernel.documents.findings import Findings, above_zero, at_least, digest, one_of, stated
from pykernel.documents.nodes import shown
from pykernel.errors import Problem

if TYPE_CHECKING:
    from pykernel.documents.graph import Cache, Global, LayerKind, ModelGraph, Node, Speculator, Stack

MAX_LAYERS = 100_000
"""The most layers a stack may expand to; the deepest published graph has 108."""


@dataclass(frozen=True)
class OpRule:
    """What one op demands of a node: keys of at least 1, keys of at least 0, and keys that it must not state."""

    positive: tuple[str, ...] = ()
    not_negative: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


_COLLECTIVE = OpRule(unused=("n", "k", "experts", "n_q", "n_kv", "state_size", "weight_dtype"))

OP_RULES = {
    "GEMM": OpRule(positive=("n", "k"), unused=("experts", "top_k", "n_q", "n_kv", "state_size")),
    "GroupedGEMM": OpRule(
        positive=("n", "k", "experts", "top_k"),
        not_negative=("shared_experts", "shared_intermediate_size", "latent_size"),
        unused=("n_q", "state_size"),
    ),
    "Attention": OpRule(
        positive=("n_q", "n_kv", "d_h"),
        not_negative=("kv_lora_rank", "qk_rope_head_dim", "window"),
        unused=("experts", "state_size", "weight_dtype"),
    ),
    "RecurrentUpdate": OpRule(
        positive=("n_heads", "state_size"),
        not_negative=("n_groups", "conv_kernel", "intermediate_size"),
        unused=("experts", "n_q", "weight_dtype"),
    ),
    "Elementwise": OpRule(not_negative=("bytes_per_token",), unused=("weight_dtype",)),
    **dict.fromkeys(vocabulary.COLLECTIVES, _COLLECTIVE),
}


def check(graph: ModelGraph, prefix: str) -> list[Problem]:
    """Problems of a well-typed graph, warnings included."""
    findings = Findings(graph, prefix)
    one_of(findings, "kind", graph.kind, ("ModelGraph",))
    stated(findings, "name", graph.name)
    if graph.modality:
        one_of(findings, "modality", graph.modality, vocabulary.MODALITIES)
    stated(findings, "derived_from.format", graph.derived_from.format)
    stated(findings, "derived_from.path", graph.derived_from.path)
    digest(findings, "derived_from.sha256", graph.derived_from.sha256, hexadecimal=False)
    at_least(findings, "derived_from.deriver_version", graph.derived_from.deriver_version, 1)
    _check_global(findings, graph.global_)
    _check_layer_kinds(findings, graph)
    _check_stack(findings, graph.stack, [kind.id for kind in graph.layer_kinds])
    for index, node in enumerate(graph.head):
        _check_node(findings, f"head[{index}]", node)
    if graph.speculator is not None:
        _check_speculator(findings, graph.speculator, [kind.id for kind in graph.layer_kinds])
    _check_caches(findings, graph.caches)
    return findings.problems


def _check_global(findings: Findings, facts: Global) -> None:
    at_least(findings, "global.hidden_size", facts.hidden_size, 1)
    at_least(findings, "global.vocab_size", facts.vocab_size, 1)
    one_of(findings, "global.weight_dtype", facts.weight_dtype, vocabulary.DTYPES)


def _check_layer_kinds(findings: Findings, graph: ModelGraph) -> None:
    if not graph.layer_kinds:
        findings.error("layer_kinds", "found no layer kind; accepted: at least one")
    used = {*graph.stack.prologue, *graph.stack.pattern, *graph.stack.epilogue}
    if graph.speculator is not None:
        draft = graph.speculator.stack
        used.update(draft.prologue, draft.pattern, draft.epilogue)
    seen: dict[str, int] = {}
    for index, kind in enumerate(graph.layer_kinds):
        at = f"layer_kinds[{index}]"
        first = seen.setdefault(kind.id, index)
        if not kind.id:
            findings.error(f"{at}.id", "found nothing; accepted: an id")
        elif first != index:
            message = f"found {kind.id!r} again, first at layer_kinds[{first}]; accepted: each id once"
            findings.error(f"{at}.id", message)
        elif kind.id not in used:
            findings.warning(at, f"neither the stack nor the speculator uses {kind.id!r}")
        if not kind.nodes:
            findings.error(f"{at}.nodes", "found no node; accepted: at least one")
        for number, node in enumerate(kind.nodes):
            _check_node(findings, f"{at}.nodes[{number}]", node)
        _check_edges(findings, at, kind)


def _check_edges(findings: Findings, at: str, kind: LayerKind) -> None:
    """Edges are pairs of indices of existing nodes and give no cycle; a repeated edge is harmless."""
    count = len(kind.nodes)
    after: dict[int, list[int]] = {}
    for index, edge in enumerate(kind.edges):
        path = f"{at}.edges[{index}]"
        if len(edge) != 2:
            findings.error(path, f"found {len(edge)} indices; accepted: two, from and to")
        elif not all(0 <= end < count for end in edge):
            findings.error(path, f"found {shown(list(edge))}; accepted: indices from 0 to {count - 1}")
        elif edge[0] == edge[1]:
            findings.error(path, f"found an edge from node {edge[0]} to itself; accepted: an edge between two nodes")
        else:
            after.setdefault(edge[0], []).append(edge[1])
    if _has_cycle(after):
        findings.error(f"{at}.edges", "the edges close a cycle; accepted: an acyclic graph")


def _has_cycle(after: dict[int, list[int]]) -> bool:
    """Whether following edges can lead back; counts incoming edges down, so that no depth limits it."""
    incoming: dict[int, int] = {}
    for targets in after.values():
        for target in targets:
            incoming[target] = incoming.get(target, 0) + 1
    nodes = set(after) | set(incoming)
    ready = [node for node in nodes if node not in incoming]
    done = 0
    while ready:
        done += 1
        for target in after.get(ready.pop(), ()):
            incoming[target] -= 1
            if not incoming[target]:
                ready.append(target)
    return done < len(nodes)


def _check_stack(findings: Findings, stack: Stack, ids: Sequence[str]) -> None:
    at_least(findings, "stack.repeat", stack.repeat, 0)
    if stack.pattern and stack.repeat == 0:
        findings.error("stack.repeat", "found 0 while a pattern is given; accepted: 1 or more")
    if stack.repeat > 0 and not stack.pattern:
        findings.error("stack.pattern", f"no pattern is given while repeat is {stack.repeat}; accepted: layer-kind ids")
    count = stack.layer_count()
    if stack.repeat >= 0 and not (stack.prologue or stack.pattern or stack.epilogue) and not stack.repeat:
        findings.error("stack", "the stack has no layer; accepted: at least one")
    elif count > MAX_LAYERS:
        findings.error("stack.repeat", f"the stack has {count} layers; accepted: at most {MAX_LAYERS}")
    for name in ("prologue", "pattern", "epilogue"):
        for index, used in enumerate(getattr(stack, name)):
            if ids and used not in ids:
                one_of(findings, f"stack.{name}[{index}]", used, ids)


def _check_speculator(findings: Findings, speculator: Speculator, ids: Sequence[str]) -> None:
    stated(findings, "speculator.method", speculator.method)
    at_least(findings, "speculator.num_spec_tokens", speculator.num_spec_tokens, 1)
    stack = speculator.stack
    if not stack.pattern:
        findings.error("speculator.stack.pattern", "found no layer; accepted: at least one layer-kind id")
    at_least(findings, "speculator.stack.repeat", stack.repeat, 1)
    if stack.layer_count() > MAX_LAYERS:
        message = f"the stack has {stack.layer_count()} layers; accepted: at most {MAX_LAYERS}"
        findings.error("speculator.stack.repeat", message)
    for name in ("prologue", "pattern", "epilogue"):
        for index, used in enumerate(getattr(stack, name)):
            if used not in ids:
                message = f"{shown(used)} names no layer kind; its draft layers cannot be priced"
                findings.warning(f"speculator.stack.{name}[{index}]", message)


def _check_node(findings: Findings, at: str, node: Node) -> None:
    if not one_of(findings, f"{at}.op", node.op, vocabulary.OPS):
        return  # nothing else can be said of an unknown op
    rule = OP_RULES[node.op]
    for name in rule.positive:
        _required(findings, f"{at}.{name}", getattr(node, name), node.op)
    for name in rule.not_negative:
        at_least(findings, f"{at}.{name}", getattr(node, name), 0)
    for name in rule.unused:
        _check_unused(findings, at, node, name)
    if not (node.op == "Attention" and node.kind == "sparse_mla"):
        for name in ("index_topk", "compress_ratio"):
            _check_unused(findings, at, node, name, "; accepted only on Attention of kind sparse_mla")
    _check_emit(findings, at, node)
    if node.op in ("GEMM", "GroupedGEMM") and node.weight_dtype:
        one_of(findings, f"{at}.weight_dtype", node.weight_dtype, vocabulary.DTYPES)
    if node.op == "GroupedGEMM":
        _check_experts(findings, at, node)
    elif node.op == "Attention":
        _check_attention(findings, at, node)
    elif node.op == "RecurrentUpdate":
        _check_recurrent(findings, at, node)


def _required(findings: Findings, path: str, value: float, where: str) -> None:
    """A size that must be stated; 0 is how absence is kept."""
    if value == 0:
        findings.error(path, f"the key is missing, or 0, on {where}; accepted: 1 or more")
    else:
        at_least(findings, path, value, 1)


def _check_unused(findings: Findings, at: str, node: Node, name: str, accepted: str = "") -> None:
    value = getattr(node, name)
    if value:
        what = f"{node.op} of kind {node.kind}" if node.op == "Attention" else node.op
        findings.error(f"{at}.{name}", f"found {shown(value)} on {what}, which does not use the key{accepted}")


def _check_emit(findings: Findings, at: str, node: Node) -> None:
    collective = node.op in vocabulary.COLLECTIVES
    if collective and not node.emit:
        findings.error(f"{at}.emit", f"the key is missing on {node.op}; accepted: {', '.join(vocabulary.EMITS)}")
    elif node.emit:
        one_of(findings, f"{at}.emit", node.emit, vocabulary.EMITS)
        if not collective:
            findings.warning(f"{at}.emit", f"found {shown(node.emit)} on {node.op}; only collectives are conditional")


def _check_experts(findings: Findings, at: str, node: Node) -> None:
    if node.experts >= 1 and node.top_k > node.experts:
        message = f"found {node.top_k}; accepted: at most experts, which is {node.experts}"
        findings.error(f"{at}.top_k", message)
    if node.shared_intermediate_size > 0 and node.shared_experts <= 0:
        message = f"found {node.shared_intermediate_size} without shared_experts; accepted: both keys or neither"
        findings.error(f"{at}.shared_intermediate_size", message)


def _check_attention(findings: Findings, at: str, node: Node) -> None:
    if not one_of(findings, f"{at}.kind", node.kind, vocabulary.ATTENTION_KINDS):
        return
    if node.kind in vocabulary.LATENT_KINDS:
        if node.n_kv > 1:
            message = f"found {node.n_kv}; accepted: 1, since a {node.kind} cache holds one vector a token"
            findings.error(f"{at}.n_kv", message)
    elif node.n_q >= 1 and node.n_kv > node.n_q:
        findings.error(f"{at}.n_kv", f"found {node.n_kv}; accepted: at most n_q, which is {node.n_q}")
    if node.kind == "swa" and node.window == 0:
        findings.error(f"{at}.window", "the key is missing on kind swa; accepted: the window in tokens, 1 or more")
    if node.kind == "sparse_mla":
        at_least(findings, f"{at}.index_topk", node.index_topk, 0)
        at_least(findings, f"{at}.compress_ratio", node.compress_ratio, 0)
        if node.index_topk == 0 and node.compress_ratio == 0:
            message = "index_topk and compress_ratio are both missing on kind sparse_mla; accepted: either one, or both"
            findings.error(f"{at}.index_topk", message)


def _check_recurrent(findings: Findings, at: str, node: Node) -> None:
    known = one_of(findings, f"{at}.recurrent_kind", node.recurrent_kind, vocabulary.RECURRENT_KINDS)
    if known and node.recurrent_kind == "mamba2":
        for name in ("n_groups", "conv_kernel", "intermediate_size"):
            if getattr(node, name) == 0:
                _required(findings, f"{at}.{name}", 0, "recurrent_kind mamba2")
    if node.state_dtype:
        one_of(findings, f"{at}.state_dtype", node.state_dtype, vocabulary.DTYPES)


def _check_caches(findings: Findings, caches: Sequence[Cache]) -> None:
    seen: dict[str, int] = {}
    for index, cache in enumerate(caches):
        at = f"caches[{index}]"
        stated(findings, f"{at}.id", cache.id)
        first = seen.setdefault(cache.id, index)
        if cache.id and first != index:
            findings.error(f"{at}.id", f"found {cache.id!r} again, first at caches[{first}]; accepted: each id once")
        at_least(findings, f"{at}.layers", cache.layers, 1)
        at_least(findings, f"{at}.tokens_per_entry", cache.tokens_per_entry, 1)
        for name in ("window", "block", "heads"):
            at_least(findings, f"{at}.{name}", getattr(cache, name), 0)
        one_of(findings, f"{at}.owner", cache.owner, vocabulary.CACHE_OWNERS)
        if cache.dtype:
            one_of(findings, f"{at}.dtype", cache.dtype, vocabulary.DTYPES)
        for number, width in enumerate(cache.shards or ()):
            one_of(findings, f"{at}.shards[{number}]", width, vocabulary.CACHE_SHARDS)
        if one_of(findings, f"{at}.class", cache.class_, vocabulary.CACHE_CLASSES):
            _check_cache_class(findings, at, cache)


def _check_cache_class(findings: Findings, at: str, cache: Cache) -> None:
    """A fixed cache is a page; the others are entries, a ring with a window."""
    wanted, unwanted = ("page_bytes", "entry_bytes") if cache.class_ == "fixed" else ("entry_bytes", "page_bytes")
    if getattr(cache, wanted) == 0:
        findings.error(
            f"{at}.{wanted}", f"the key is missing, or 0, on a {cache.class_} cache; accepted: bytes above 0"
        )
    else:
        above_zero(findings, f"{at}.{wanted}", getattr(cache, wanted))
    if getattr(cache, unwanted):
        message = f"found {shown(getattr(cache, unwanted))} on a {cache.class_} cache; accepted: {wanted} instead"
        report = findings.error if cache.class_ == "fixed" else findings.warning
        report(f"{at}.{unwanted}", message)
    if cache.class_ == "ring" and cache.window == 0:
        findings.error(f"{at}.window", "the key is missing on a ring cache; accepted: the window in tokens, 1 or more")
    if cache.class_ != "ring" and cache.window:
        findings.warning(f"{at}.window", f"found {cache.window} on a {cache.class_} cache, which has no window")
