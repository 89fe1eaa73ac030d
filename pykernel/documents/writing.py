"""From a document to YAML text, in the ecosystem's layout: block style, short lists and leaf mappings in flow style.

Written by hand rather than by PyYAML's emitter so that key order, quoting and layout stay the same for ever: text is
quoted wherever any reader of YAML 1.1 or 1.2 could take it for something else, and numbers take a form that all of
them read as a number.
"""

from __future__ import annotations

import re
from typing import Any

from pykernel.documents.fieldtypes import record

_WIDTH = 110  # columns that a line in flow style may fill

_SAFE = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+=()-]*(?: [A-Za-z0-9_./+=()-]+)*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_LIKE_A_NUMBER = re.compile(r"[-+]?\.?[0-9][0-9a-fox_.:+-]*(?:[tz ][0-9:.+ z-]*)?|[-+]?\.(?:inf|nan|[0-9e_+-]*)", re.I)
_ESCAPED = re.compile(r'[\x00-\x1f"\\\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]')


def write(document: Any) -> str:
    """A document as YAML text, only its stated keys, in the order of its fields."""
    return to_yaml(record(type(document)).plain(document))


def to_yaml(data: dict[str, Any]) -> str:
    """Plain data (dictionaries, lists, text, numbers, flags) as block-style YAML text ending in a newline."""
    return "\n".join(_block(data, "")) + "\n"


def _block(data: dict[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for name, value in data.items():
        head = f"{indent}{_key(name)}:"
        flow = _flow(value, len(head)) if isinstance(value, list) else None
        if isinstance(value, dict) and value:
            lines.append(head)
            lines += _block(value, indent + "  ")
        elif isinstance(value, list) and value and flow is None:
            lines.append(head)
            lines += _items(value, indent + "  ")
        else:
            lines.append(f"{head} {flow if flow is not None else _scalar(value)}")
    return lines


def _items(items: list[Any], indent: str) -> list[str]:
    lines: list[str] = []
    for item in items:
        flow = _flow(item, len(indent) + 2)
        if flow is not None or not item:
            lines.append(f"{indent}- {flow if flow is not None else _scalar(item)}")
            continue
        inner = _block(item, indent + "  ") if isinstance(item, dict) else _items(item, indent + "  ")
        lines.append(f"{indent}- {inner[0].lstrip()}")
        lines += inner[1:]
    return lines


def _flow(value: Any, column: int) -> str | None:
    """A scalar, a list of scalars or pairs, or a mapping of scalars on one line; None where it is too long or deep."""
    if isinstance(value, dict):
        if any(isinstance(item, (dict, list)) for item in value.values()):
            return None
        text = "{" + ", ".join(f"{_key(name)}: {_scalar(item)}" for name, item in value.items()) + "}"
    elif isinstance(value, list):
        if any(isinstance(item, dict) or (isinstance(item, list) and not _is_pair(item)) for item in value):
            return None
        text = "[" + ", ".join(str(_flow(item, 0)) for item in value) + "]"
    else:
        return _scalar(value)
    return text if column + len(text) <= _WIDTH else None


def _is_pair(item: list[Any]) -> bool:
    return len(item) <= 3 and not any(isinstance(part, (dict, list)) for part in item)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    return _text(value)


def _number(value: float) -> str:
    """The shortest digits that give the same double, with a point: `1e-05` alone is text to a YAML 1.1 reader."""
    digits, exponent, power = repr(value).partition("e")
    if exponent and "." not in digits:
        digits += ".0"
    return digits + exponent + power


def _key(name: str) -> str:
    """A key; `n` stays bare as in every graph, though the text of YAML 1.1 (no parser) calls it a flag."""
    return name if name == "n" else _text(name)


def _text(value: str) -> str:
    plain = _SAFE.fullmatch(value) and value.lower() not in _WORDS and not _LIKE_A_NUMBER.fullmatch(value)
    return value if plain else '"' + _ESCAPED.sub(_escape, value) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character in '"\\':
        return "\\" + character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
