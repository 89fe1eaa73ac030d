"""What number format each weight of a checkpoint is stored in, as its config and quantization record state it.

A record names a format for the model, and exceptions by module name, in one of several dialects: a list of modules
that stay as they were (plain names, globs or `re:` patterns), or a list of every quantized module. Both are brought
to one question here: the format of a component (`qkv`, `experts`, ...) of a layer. A component is known by the names
its modules have in the checkpoints of the families; the first dialect is vLLM's `modules_to_not_convert`,
compressed-tensors' `ignore` and ModelOpt's `exclude_modules`, the second ModelOpt's `quantized_layers`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from pykernel.derive.config import ALIASES, Config
from pykernel.documents.fieldtypes import did_you_mean
from pykernel.documents.nodes import shown
from pykernel.documents.vocabulary import DTYPES
from pykernel.errors import ArgumentError

DECLARED = {
    **dict.fromkeys(("bfloat16", "bf16"), "bf16"),
    **dict.fromkeys(("float16", "fp16", "half"), "fp16"),
    **dict.fromkeys(("float32", "fp32", "float"), "fp32"),
    **dict.fromkeys(("float8_e4m3fn", "fp8"), "fp8"),
    **{name: name for name in ("nvfp4", "mxfp4", "int8")},
}
"""Declared dtype of a config, with or without `torch.` in front."""

ALGORITHMS = {
    **dict.fromkeys(("FP8", "W8A8_FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "FP8_PB_REAL", "MXFP8"), "fp8"),
    **dict.fromkeys(("NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8", "NVFP4_AWQ"), "nvfp4"),
    **dict.fromkeys(("MXFP4", "W4A16_MXFP4", "W4A8_MXFP4_FP8"), "mxfp4"),
    **dict.fromkeys(("INT8", "INT8_SQ", "W8A16", "W8A16_INT8", "W8A8_SQ_PER_CHANNEL"), "int8"),
    **dict.fromkeys(("INT4", "INT4_AWQ", "W4A16_AWQ", "W4A16", "W4A8_AWQ"), "int4"),
}
"""ModelOpt's names for weight formats (modelopt/torch/export)."""

COMPONENTS: dict[str, tuple[str, ...]] = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.qkv_proj", "mixer.q_proj"),
    "o": ("self_attn.o_proj", "mixer.o_proj", "attn.wo_a"),
    "qkv_a": ("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa", "attn.wq_a"),
    "q_b": ("self_attn.q_b_proj", "self_attn.q_proj", "attn.wq_b"),
    "kv_b": ("self_attn.kv_b_proj",),
    "indexer": ("self_attn.indexer.wq_b", "self_attn.index_q_proj", "attn.indexer.wq_b"),
    "kda": ("self_attn.q_proj", "linear_attn.q_proj"),
    "mixer_in": ("mixer.in_proj", "linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz", "mamba.in_proj"),
    "mixer_out": ("mixer.out_proj", "linear_attn.out_proj", "mamba.out_proj"),
    "mlp": ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "mixer.up_proj", "ffn.w1", "feed_forward.gate_proj"),
    "experts": (
        "mlp.experts.0.gate_proj",
        "block_sparse_moe.experts.0.w1",
        "mixer.experts.0.up_proj",
        "ffn.experts.0.w1",
        "feed_forward.experts.gate_up_proj",
    ),
    "shared": (
        "mlp.shared_experts.gate_proj",
        "mlp.shared_expert.gate_proj",
        "block_sparse_moe.shared_experts.gate_proj",
        "mixer.shared_experts.up_proj",
        "ffn.shared_experts.w1",
        "feed_forward.shared_expert.gate_proj",
    ),
    "latent": ("mixer.fc1_latent_proj", "block_sparse_moe.routed_expert_down_proj"),
    "draft": ("eh_proj",),
}
"""Component to the names that one of its matrices has inside a layer of the families that have it."""

HEADS = ("lm_head", "head")

BY_BITS = ("awq", "gptq", "auto-round")
"""Methods whose record states the width of a weight as `bits`."""


class Formats:
    """The formats of a checkpoint: `overall`, and what deviates from it by layer and component."""

    def __init__(self, config: Config, quantization: str = "", unquantized: str = "") -> None:
        """`quantization`: the format to take in place of the record's; `unquantized`: a family's own base format."""
        self._config = config
        self._unquantized = unquantized
        self._listed: dict[tuple[int, str], str] | None = None
        self._kept: _Kept | None = None
        self._experts = ""
        self._unlisted = ""
        self._place = ""
        self.draft_layer = -1
        """The number of the draft module where it is counted on from the layers; -1 for a model without."""
        self.overrides: dict[str, tuple[str, ...]] = {}
        """Module names that a family has instead of those of `COMPONENTS`."""
        if quantization:
            if quantization not in DTYPES:
                near = did_you_mean(quantization, DTYPES)
                raise ArgumentError(f"quantization is {quantization!r}{near}; accepted: {', '.join(DTYPES)}")
            self.overall = quantization
            return
        record, place = _record(config)
        self._place = place
        self.overall = self._decide(record) if record else self.base
        expert_dtype = config.text("expert_dtype")
        if expert_dtype and self._listed is None:
            self._experts = {"fp4": "mxfp4", "fp8": "fp8"}.get(expert_dtype, "")
            if not self._experts:
                config.fault("expert_dtype", f"found {shown(expert_dtype)}; accepted: fp4, fp8")

    @property
    def base(self) -> str:
        """The format of what is not quantized."""
        config = self._config
        for values, place in ((config.values, config.place), (config.outer, "config")):
            key = next((key for key in ALIASES["dtype"] if values.get(key) is not None), "")
            if not key:
                continue
            declared = values[key]
            found = DECLARED.get(declared.removeprefix("torch.")) if isinstance(declared, str) else None
            if found is None:
                config.fault(key, f"found {shown(declared)}; accepted: {', '.join(DECLARED)}", within=place)
            return found
        if self._unquantized:
            return self._unquantized
        config.fault("torch_dtype", "the key is missing; looked for torch_dtype, dtype")

    def of(self, layer: int, component: str) -> str:
        """The format that a node states: empty where it is the overall one."""
        found = self._format(layer, component)
        return "" if found == self.overall else found

    def head(self) -> str:
        """The format that the output matrix states: only where a record lists it as quantized."""
        return (self._listed or {}).get((-1, "lm_head"), "")

    def _format(self, layer: int, component: str) -> str:
        names = self.overrides.get(component, COMPONENTS[component])
        if self._listed is not None:
            found = {self._listed[layer, name] for name in _without_index(names) if (layer, name) in self._listed}
            if len(found) > 1:
                path = f"quantized_layers.layers.{layer}"
                self._fault(path, f"found {', '.join(sorted(found))} within {component}; accepted: one format")
            return found.pop() if found else self._unlisted
        if self._experts and component in ("experts", "shared"):
            return self._experts
        if self._kept and any(self._kept.covers(layer, name, layer == self.draft_layer) for name in names):
            return self.base
        return self.overall

    # ---- reading a record ---------------------------------------------------------------------------------------

    def _fault(self, key: str, message: str) -> NoReturn:
        self._config.fault(key, message, within=self._place)

    def _decide(self, record: Mapping[str, Any]) -> str:
        """The overall format of a record, and its exceptions kept for later."""
        method = record.get("quant_method")
        if method is not None and not isinstance(method, str):
            self._fault("quant_method", f"found {shown(method)}; accepted: text")
        method = (method or "").lower()
        listed = record.get("quantized_layers")
        if listed:
            self._unlisted = "fp8" if method == "fp8" else self.base
            self._listed = self._enumerated(listed)
            return self._unlisted
        kept = self._exceptions(record)
        if method == "mxfp4" and kept:
            self._experts = "mxfp4"
            return self.base
        self._kept = _Kept(kept) if kept else None
        return self._named(record, method)

    def _named(self, record: Mapping[str, Any], method: str) -> str:
        algorithm = record.get("quant_algo")
        if algorithm is not None:
            return self._algorithm("quant_algo", algorithm)
        for part, found in (("nvfp4", "nvfp4"), ("modelopt_fp4", "nvfp4"), ("mxfp8", "fp8"), ("fp8", "fp8")):
            if part in method:
                return found
        if method in ("mxfp4", "gpt_oss_mxfp4"):
            return "mxfp4"
        groups = record.get("config_groups")
        if groups:
            return self._groups(groups, record)
        if method == "compressed-tensors" and record.get("weight_block_size"):
            return "fp8"
        bits = record.get("bits")
        if method in BY_BITS:
            if bits not in (4, 8):
                self._fault("bits", f"found {shown(bits)} with {method}; accepted: 4, 8")
            return f"int{bits}"
        if method or bits is not None:
            found = f"found {shown(method)}, whose weight width is not known" if method else "the key is missing"
            known = ("fp8", "nvfp4", "mxfp4", *BY_BITS, "modelopt with a quant_algo", "any with config_groups")
            self._fault("quant_method", f"{found}; accepted: {', '.join(known)}")
        return self.base

    def _algorithm(self, key: str, algorithm: Any) -> str:
        found = ALGORITHMS.get(algorithm.upper()) if isinstance(algorithm, str) else None
        if found is None:
            self._fault(key, f"found {shown(algorithm)}; accepted: {', '.join(ALGORITHMS)}")
        return found

    def _groups(self, groups: Any, record: Mapping[str, Any]) -> str:
        """The format of the group with the most targets."""
        if not isinstance(groups, Mapping) or not all(isinstance(group, Mapping) for group in groups.values()):
            self._fault("config_groups", f"found {shown(groups)}; accepted: an object of objects")

        def targets(name: str) -> int:
            found = groups[name].get("targets")
            return len(found) if isinstance(found, (list, tuple)) else 0

        name = max(groups, key=targets)
        weights = groups[name].get("weights")
        at = f"config_groups.{name}.weights"
        if not isinstance(weights, Mapping):
            self._fault(at, f"found {shown(weights)}; accepted: an object")
        bits, kind, size = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
        spelled = f"{groups[name].get('format') or ''} {record.get('format') or ''}".lower()
        if (bits, kind) == (4, "float"):
            by_name = next((found for found in ("mxfp4", "nvfp4") if found in spelled), "")
            found = by_name or {32: "mxfp4", 16: "nvfp4"}.get(size if isinstance(size, int) else 0, "")
        else:
            narrow = {(8, "float"): "fp8", (8, "int"): "int8", (4, "int"): "int4"}
            found = next((name for pair, name in narrow.items() if pair == (bits, kind)), "")
        if not found:
            self._fault(at, f"found {shown(bits)} bits of type {shown(kind)}; accepted: 4 or 8 bits of float or int")
        return found

    def _exceptions(self, record: Mapping[str, Any]) -> list[str]:
        for key in ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"):
            found = record.get(key)
            if not found:
                continue
            if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) for name in found):
                self._fault(key, f"found {shown(found)}; accepted: a list of module names")
            return list(found)
        return []

    def _enumerated(self, listed: Any) -> dict[tuple[int, str], str]:
        """Every quantized module by layer and name; experts of one layer count as one."""
        if not isinstance(listed, Mapping):
            self._fault("quantized_layers", f"found {shown(listed)}; accepted: an object")
        formats: dict[tuple[int, str], str] = {}
        for name, entry in listed.items():
            algorithm = entry.get("quant_algo") if isinstance(entry, Mapping) else entry
            found = self._algorithm(f"quantized_layers.{name}", algorithm)
            layer, module = _located(str(name))
            if formats.setdefault((layer, module), found) != found:
                message = f"found {found} beside {formats[layer, module]}; accepted: one format for all experts"
                self._fault(f"quantized_layers.{name}", message)
            if module.endswith(".experts"):  # the experts named as one module
                for sample in _without_index(COMPONENTS["experts"]):
                    if sample.startswith(f"{module}."):
                        formats[layer, sample] = found
        return formats


def _record(config: Config) -> tuple[Mapping[str, Any], str]:
    """The quantization record and its place: in the config, outside first, else in the companion file."""
    for values, place in ((config.outer, "config"), (config.values, config.place)):
        found = values.get("quantization_config")
        if isinstance(found, str):
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(found)
        if found is None or found == {}:
            continue
        if not isinstance(found, Mapping):
            config.fault("quantization_config", f"found {shown(found)}; accepted: an object", within=place)
        return found, f"{place}.quantization_config"
    if config.companion is not None:
        found = config.companion.get("quantization")
        if not isinstance(found, Mapping):
            config.fault("quantization", f"found {shown(found)}; accepted: an object", within="hf_quant_config")
        return found, "hf_quant_config.quantization"
    return {}, ""


_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.(.+)")
_INDEX = re.compile(r"\.experts\.\d+\.")


def _located(name: str) -> tuple[int, str]:
    """Layer and name inside it of a full module name; -1 outside the layers."""
    match = None if name.startswith("mtp") or _ELSEWHERE.match(name) else _LAYER.search(name)
    if match is None or len(match[1]) > 6:
        return -1, "lm_head" if name.rpartition(".")[2] in HEADS else name
    return int(match[1]), _INDEX.sub(".experts.", match[2])


def _without_index(names: tuple[str, ...]) -> list[str]:
    return [_INDEX.sub(".experts.", name) for name in names]


_ELSEWHERE = re.compile(r"(?:model\.)?(?:vis|audio|mm_|multi_modal)")
_ONE_LAYER = re.compile(r"layers\.(\d{1,6})\.")


class _Kept:
    """The modules that a list keeps unquantized, as one pattern a layer: a list may name each layer's on their own."""

    def __init__(self, kept: list[str]) -> None:
        self._everywhere: list[str] = []
        self._by_layer: dict[int, list[str]] = {}
        self._compiled: dict[int, re.Pattern[str]] = {}
        drafts: list[str] = []
        for name in kept:
            bare = name[max(name.find("layers."), 0) :]
            if name.startswith("mtp"):
                drafts.append(_expression(name, name))
                continue
            if _ELSEWHERE.match(name):
                continue
            one = None if name.startswith("re:") else _ONE_LAYER.match(bare)
            parts = self._by_layer.setdefault(int(one[1]), []) if one else self._everywhere
            parts.append(_expression(name, bare))
        self._drafts = re.compile("|".join(f"(?:{part})" for part in drafts) or "(?!)")

    def covers(self, layer: int, module: str, draft: bool = False) -> bool:
        """Whether a module of a layer stays as it was; `draft` where the layer is the draft module."""
        if draft and self._drafts.search(f"mtp.layers.0.{module}"):
            return True
        if layer not in self._compiled:
            parts = [*self._everywhere, *self._by_layer.get(layer, [])]
            self._compiled[layer] = re.compile("|".join(f"(?:{part})" for part in parts) or "(?!)")
        return self._compiled[layer].search(f"layers.{layer}.{module}") is not None


def _expression(name: str, bare: str) -> str:
    """One entry of a list: `re:` and an expression, a glob over the whole name, or a name or part of one."""
    if name.startswith("re:"):
        return _checked(name[3:])
    if "*" in bare:
        return "^" + ".*".join(map(re.escape, bare.split("*"))) + r"(?:\.|$)"
    return rf"(?:^|\.){re.escape(bare)}(?:\.|$)"


def _checked(expression: str) -> str:
    """A regular expression of a list, or a pattern that matches nothing where it is none."""
    try:
        re.compile(expression)
    except (re.error, RecursionError, OverflowError):
        return r"(?!)"
    return expression
