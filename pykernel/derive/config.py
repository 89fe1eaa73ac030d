"""A HuggingFace config.json as facts: reading the file, and typed access by concept instead of by key.

The same fact goes by several keys in different families, so a recipe asks for a concept and `ALIASES` says which keys
may hold it; the first that is present and not null wins. A fact that is missing or of the wrong kind is reported with
the file, the dotted key and the family that needs it. Nothing is assumed in its place.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pykernel.documents.fieldtypes import did_you_mean
from pykernel.documents.nodes import shown
from pykernel.errors import ArgumentError, DocumentError, Problem

LARGEST = 1 << 24
"""Of any count or width; far above every published one, and low enough that products of three stay exact doubles."""

MOST_LAYERS = 1024
"""Layers of a model; the deepest published one has 126."""

ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "d_model", "n_embd"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "mlp_width": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "top_k": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "experts_per_token", "top_k_experts"),
    "expert_width": ("moe_intermediate_size", "expert_intermediate_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "shared_width": (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "share_expert_dim",
        "shared_intermediate_size",
    ),
    "window": ("sliding_window", "sliding_window_size"),
    "drafts": ("num_nextn_predict_layers", "mtp_num_hidden_layers"),
    "latent_width": ("moe_latent_size", "routed_expert_hidden_size"),
    "dtype": ("torch_dtype", "dtype"),
    "mamba_heads": ("mamba_num_heads", "mamba_n_heads", "num_heads"),
    "mamba_head_dim": ("mamba_head_dim", "mamba_d_head"),
    "mamba_state": ("ssm_state_size", "mamba_d_state", "state_size"),
    "mamba_groups": ("n_groups", "mamba_n_groups"),
    "mamba_conv": ("conv_kernel", "mamba_d_conv"),
}
"""Concept to keys, in the order they are looked for. A name that is not here is a key itself."""


class Config:
    """The text part of a config and the whole it sits in.

    Attributes: `values` and `outer`, the objects that hold the facts (equal where nothing is nested); `file`, where
    they were read from; `family`, the recipe that reads them, named in every message.
    """

    def __init__(self, outer: Mapping[str, Any], file: str = "", quantization: Mapping[str, Any] | None = None) -> None:
        self.outer = outer
        self.file = file
        self.companion = quantization
        self.family = ""
        nested = outer.get("text_config")
        if nested is not None and not isinstance(nested, Mapping):
            self.fault("text_config", f"found {shown(nested)}; accepted: an object", within="config")
        self.nested = nested is not None
        self.values: Mapping[str, Any] = nested if nested is not None else outer
        self.place = "config.text_config" if self.nested else "config"

    # ---- faults -----------------------------------------------------------------------------------------------

    def fault(self, key: str, message: str, within: str = "") -> NoReturn:
        """Raise for one key."""
        needs = f"; the family {self.family} needs it" if self.family else ""
        path = f"{within or self.place}.{key}"
        raise DocumentError([Problem("error", path, message + needs, self.file)])

    # ---- access -----------------------------------------------------------------------------------------------

    def key(self, concept: str) -> str:
        """The key that holds a concept here, empty where none does."""
        keys = ALIASES.get(concept, (concept,))
        return next((key for key in keys if self.values.get(key) is not None), "")

    def missing(self, concept: str) -> NoReturn:
        keys = ALIASES.get(concept, (concept,))
        others = f"; looked for {', '.join(keys)}" if len(keys) > 1 else ""
        near = did_you_mean(keys[0], [key for key in self.values if isinstance(key, str)])
        self.fault(keys[0], f"the key is missing{near}{others}")

    def states(self, concept: str) -> bool:
        """Whether a key of a concept is there, null included."""
        return any(key in self.values for key in ALIASES.get(concept, (concept,)))

    def integer(self, concept: str, least: int = 1) -> int:
        """A count that must be stated."""
        key = self.key(concept)
        return self._integer(key, self.values[key], least) if key else self.missing(concept)

    def optional(self, concept: str, least: int = 0) -> int:
        """A count, 0 where it is not stated."""
        key = self.key(concept)
        return self._integer(key, self.values[key], least) if key else 0

    def _integer(self, key: str, value: Any, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            self.fault(key, f"found {shown(value)}; accepted: a whole number from {least} to {LARGEST}")
        return int(value)

    def flag(self, key: str, unstated: bool = False) -> bool:
        """A switch; `unstated` is what the architecture's own definition says of a config without the key."""
        value = self.values.get(key)
        if value is None:
            return unstated
        if not isinstance(value, bool):
            self.fault(key, f"found {shown(value)}; accepted: true or false")
        return value

    def text(self, concept: str) -> str:
        """Text, empty where it is not stated."""
        key = self.key(concept)
        value = self.values[key] if key else ""
        if not isinstance(value, str):
            self.fault(key, f"found {shown(value)}; accepted: text")
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object that must be stated."""
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            return self.missing(key) if value is None else self.fault(key, f"found {shown(value)}; accepted: an object")
        return value

    def inside(self, key: str) -> Config:
        """The object under a key, read in the same way."""
        inner = Config(self.mapping(key), self.file)
        inner.place, inner.family = f"{self.place}.{key}", self.family
        return inner

    def sequence(self, key: str) -> list[Any] | None:
        """A list, None where it is not stated."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > 4 * MOST_LAYERS:
            self.fault(key, f"found {shown(value)}; accepted: a list")
        return list(value)

    def numbers(self, key: str) -> list[int]:
        """A list of whole numbers that must be stated."""
        found = self.sequence(key)
        if found is None:
            self.missing(key)
        return [self._integer(f"{key}[{index}]", value, 0) for index, value in enumerate(found)]

    def words(self, key: str, accepted: Sequence[str], count: int) -> list[str] | None:
        """One word a layer out of a closed set, None where the list is not stated."""
        found = self.sequence(key)
        if found is None:
            return None
        if len(found) != count:
            self.fault(key, f"found {len(found)} entries for {count} layers; accepted: one a layer")
        for index, word in enumerate(found):
            if word not in accepted:
                near = did_you_mean(word, accepted) if isinstance(word, str) else ""
                self.fault(f"{key}[{index}]", f"found {shown(word)}{near}; accepted: {', '.join(accepted)}")
        return list(found)

    def layers(self) -> int:
        """Depth of the model."""
        count = self.integer("layers")
        if count > MOST_LAYERS:
            self.fault(self.key("layers"), f"found {count}; accepted: at most {MOST_LAYERS}")
        return count

    def unsupported(self, key: str, why: str) -> None:
        """Refuse a config that switches on what no recipe describes."""
        if self.values.get(key):
            self.fault(key, f"found {shown(self.values[key])}: {why}; accepted: the key absent, 0 or false")

    def head_dim(self) -> int:
        """Width of an attention head: as stated, else the hidden width shared out, which must come out even."""
        if self.key("head_dim"):
            return self.integer("head_dim")
        hidden, heads = self.integer("hidden_size"), self.integer("heads")
        if hidden % heads:
            self.fault("head_dim", f"the key is missing, and hidden_size {hidden} does not divide by {heads} heads")
        return hidden // heads

    def architecture(self) -> str:
        """The first architecture named, outside first. Raises `DocumentError` where there is none."""
        for values, place in ((self.outer, "config"), (self.values, self.place)):
            found = values.get("architectures")
            if found is None or found == []:
                continue
            if isinstance(found, (str, bytes)) or not isinstance(found, Sequence) or not isinstance(found[0], str):
                self.fault("architectures", f"found {shown(found)}; accepted: a list of names", within=place)
            return str(found[0])
        self.fault("architectures", "the key is missing; accepted: a list with the name of the architecture")


# ---- reading -----------------------------------------------------------------------------------------------------


def read(config: Mapping[str, Any] | str | os.PathLike[str]) -> tuple[Config, str, str]:
    """The config, the file name to record, and the SHA-256 of what was read.

    Parameters: `config`, an object, or the path of a config.json or of the folder that holds one. Beside a file its
    companion hf_quant_config.json is read where there is one.
    Raises: DocumentError for a file that is no JSON object, ArgumentError for an argument of another type.
    """
    if isinstance(config, Mapping):
        try:
            text = json.dumps(config, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"config is no object of JSON: {error}") from None
        return Config(config), "(in memory)", hashlib.sha256(text.encode()).hexdigest()
    if not isinstance(config, (str, os.PathLike)):
        raise ArgumentError(f"config is a {type(config).__name__}; accepted: a dictionary, or the path of a file")
    path = Path(config)
    if path.is_dir():
        path = path / "config.json"
    raw, outer = _json(path)
    companion = path.with_name(path.name.removesuffix("config.json") + "hf_quant_config.json")
    beside = _json(companion)[1] if path.name.endswith("config.json") and companion.is_file() else None
    return Config(outer, os.fspath(path), beside), path.name, hashlib.sha256(raw).hexdigest()


def _json(path: Path) -> tuple[bytes, Mapping[str, Any]]:
    """Bytes and object of a file."""

    def fault(message: str) -> NoReturn:
        raise DocumentError([Problem("error", "config", message, os.fspath(path))])

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """An object whose keys hold one value each."""
        held: dict[str, Any] = {}
        for key, value in pairs:
            if held.setdefault(key, value) != value:
                fault(f"the key {shown(key)} is written twice, with {shown(held[key])} and with {shown(value)}")
        return held

    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        fault(f"the file cannot be read: {getattr(error, 'strerror', None) or error}")
    try:
        found = json.loads(raw, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        fault(f"the file is no JSON: {error}; accepted: a HuggingFace config.json")
    if not isinstance(found, dict):
        fault(f"found {shown(found)}; accepted: a JSON object")
    return raw, found
