"""How a batch is written: on the command line as `32x4096` and `2x2048+8192`, in a file as JSON.

A notation stands for requests only once the width of a decode is known, which the deployment decides, so parsing
(which can fail before anything is loaded) and expanding into a `Batch` are two steps.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pykernel.batch import Batch
from pykernel.cli.options import LARGEST
from pykernel.errors import BatchError

MOST_REQUESTS = 1_000_000
"""Of one batch; far above what an engine schedules, and little enough to hold in memory."""

_DECODES = re.compile(r"(?P<number>[0-9]+)x(?P<context>[0-9]+)(?:x(?P<width>[0-9]+))?", re.ASCII)
_PREFILLS = re.compile(r"(?P<number>[0-9]+)x(?P<new>[0-9]+)(?:\+(?P<computed>[0-9]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Decodes:
    """`number` requests that end this step with `context` tokens; a `width` of 0 leaves theirs to the deployment."""

    number: int
    context: int
    width: int
    text: str


@dataclass(frozen=True, slots=True)
class Prefills:
    """`number` requests that run `new` prompt tokens after `computed` ones."""

    number: int
    new: int
    computed: int
    text: str


def decodes(text: str) -> Decodes:
    """Parse NxCONTEXT or NxCONTEXTxTOKENS; a type for argparse."""
    values = _numbers(_DECODES, text, "NxCONTEXT or NxCONTEXTxTOKENS, such as 32x4096")
    number, context, width = values["number"], values["context"], values.get("width")
    if context < 1 or width == 0:
        raise argparse.ArgumentTypeError(f"found {text!r}, a decode has a context and runs a token of at least 1")
    if width is not None and width > context:
        raise argparse.ArgumentTypeError(f"found {text!r}, whose context does not hold the {width} tokens of the step")
    return Decodes(number, context, width or 0, text)


def prefills(text: str) -> Prefills:
    """Parse NxNEW or NxNEW+COMPUTED; a type for argparse."""
    values = _numbers(_PREFILLS, text, "NxNEW or NxNEW+COMPUTED, such as 2x2048+8192")
    if values["new"] < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, a prefill runs at least 1 new token")
    return Prefills(values["number"], values["new"], values.get("computed", 0), text)


def _numbers(pattern: re.Pattern[str], text: str, accepted: str) -> dict[str, int]:
    match = pattern.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, accepted is {accepted}")
    values = {name: int(digits) for name, digits in match.groupdict().items() if digits is not None}
    if values["number"] < 1 or values["number"] > MOST_REQUESTS:
        raise argparse.ArgumentTypeError(f"found {text!r}, accepted are 1 to {MOST_REQUESTS} requests")
    if max(values.values()) > LARGEST:
        raise argparse.ArgumentTypeError(f"found {text!r}, accepted are numbers up to {LARGEST}")
    return values


@dataclass
class BatchText:
    """A batch as it was written, in the columns of `Batch.from_arrays`; settings are None where not stated."""

    scheduled: array[int] = field(default_factory=lambda: array("q"))
    computed: array[int] = field(default_factory=lambda: array("q"))
    prompt_len: array[int] = field(default_factory=lambda: array("q"))
    cached_tokens: array[int] = field(default_factory=lambda: array("q"))
    decode_threshold: int | None = None
    sm_budget: int | None = None
    pad_tokens: int | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, scheduled: int, computed: int, number: int = 1) -> None:
        """Append `number` equal requests whose prompt is all that they have."""
        columns = (self.scheduled, self.computed, self.prompt_len, self.cached_tokens)
        for column, value in zip(columns, (scheduled, computed, scheduled + computed, 0), strict=True):
            column.extend(array("q", [value]) * number)

    def batch(self, decode_threshold: int) -> Batch:
        """The batch, with the deployment's threshold unless the text states another. Raises `BatchError`."""
        if len(self.scheduled) > MOST_REQUESTS:
            raise BatchError(f"found {len(self.scheduled)} requests, accepted are at most {MOST_REQUESTS}")
        return Batch.from_arrays(
            self.scheduled,
            self.computed,
            self.prompt_len,
            self.cached_tokens,
            decode_threshold=decode_threshold if self.decode_threshold is None else self.decode_threshold,
            sm_budget=self.sm_budget or 0,
            pad_tokens=self.pad_tokens or 0,
        )


def expand(decoding: Sequence[Decodes], prefilling: Sequence[Prefills], width: int, threshold: int) -> BatchText:
    """The requests of a notation, with `width` tokens for a decode that states none.

    A request counts as a decode by its tokens alone, up to `threshold` of them, whichever option it was written with; a
    note says so where the two differ. Raises `BatchError` for a context shorter than the width.
    """
    text = BatchText()
    for group in decoding:
        tokens = group.width or width
        if group.context < tokens:
            raise BatchError(
                f"--decode {group.text}: a context of {group.context} does not hold the {tokens} tokens that a decode "
                "of this deployment runs"
            )
        text.add(tokens, group.context - tokens, group.number)
        if tokens > threshold:
            text.notes.append(
                f"--decode {group.text} is priced as prefill: {tokens} tokens exceed the decode threshold of "
                f"{threshold}"
            )
    for prefill in prefilling:
        text.add(prefill.new, prefill.computed, prefill.number)
        if prefill.new <= threshold:
            text.notes.append(
                f"--prefill {prefill.text} is priced as decode: new tokens within the decode threshold of {threshold}"
            )
    return text


# ---- batch files -----------------------------------------------------------------------------------------------

_SETTINGS = {"decode_threshold": 0, "sm_budget": -LARGEST, "pad_tokens": 0}
_REQUEST = ("scheduled", "computed", "prompt_len", "cached_tokens")
_REQUIRED = ("scheduled", "computed")


def read_batch(path: str) -> BatchText:
    """The batch of a JSON file, of standard input for `-`. Raises `BatchError` naming the file and the field."""
    name = _file_name(path)
    try:
        return _batch(_load(path))
    except OSError as error:
        raise BatchError(f"{name}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except json.JSONDecodeError as error:
        raise BatchError(f"{name}:{error.lineno}: this is no JSON: {error.msg.lower()}, column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise BatchError(f"{name}: this is no UTF-8, byte {error.start} does not fit") from None
    except RecursionError:
        raise BatchError(f"{name}: nested too deeply; accepted is an object with a list of requests") from None
    except BatchError as error:
        raise BatchError(f"{name}: {error}") from None


def named(error: BatchError, path: str | None) -> BatchError:
    """A refusal of the C core in the words of a batch file, with the file's name where there is one."""
    message = re.sub(r"\bbatch\.(\w+)\[(\d+)\]", r"requests[\2].\1", str(error))
    return BatchError(f"{_file_name(path)}: {message}" if path else message)


def _file_name(path: str) -> str:
    return "standard input" if path == "-" else path


def _load(path: str) -> Any:
    if path == "-":
        content = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            content = file.read()
    return json.loads(content.decode("utf-8-sig"), object_pairs_hook=_without_duplicates, parse_int=_integer)


def _integer(digits: str) -> int:
    """An integer, or for one too long to convert, another that is out of range too."""
    return int(digits) if len(digits) < 20 else LARGEST + 1


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BatchError(f"{name}: stated twice in one object")
        found[name] = value
    return found


def _batch(document: Any) -> BatchText:
    _check_fields(document, "", ("requests", *_SETTINGS), ("requests",))
    requests = document["requests"]
    if not isinstance(requests, list):
        raise BatchError(f"requests: found {_shown(requests)}, accepted is a list")
    text = BatchText()
    for index, request in enumerate(requests):
        place = f"requests[{index}]"
        _check_fields(request, place, _REQUEST, _REQUIRED)
        scheduled, computed = (_value(request[name], f"{place}.{name}", 0) for name in _REQUIRED)
        text.add(scheduled, computed)
        for name in ("prompt_len", "cached_tokens"):
            if name in request:
                getattr(text, name)[-1] = _value(request[name], f"{place}.{name}", 0)
    for name, least in _SETTINGS.items():
        if name in document:
            setattr(text, name, _value(document[name], name, least))
    return text


def _check_fields(found: Any, place: str, known: Sequence[str], required: Sequence[str]) -> None:
    """Raise `BatchError` unless `found` is an object with the required fields and no unknown one."""
    if not isinstance(found, dict):
        raise BatchError(f"{place or 'the file'}: found {_shown(found)}, accepted is an object with {', '.join(known)}")
    prefix = f"{place}." if place else ""
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}" if near else ""
            raise BatchError(f"{prefix}{name}: no such field{hint}; accepted are {', '.join(known)}")
    for name in required:
        if name not in found:
            raise BatchError(f"{prefix}{name}: missing")


def _value(found: Any, place: str, least: int) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= LARGEST:
        raise BatchError(f"{place}: found {_shown(found)}, accepted is a whole number from {least} to {LARGEST}")
    return found


def _shown(found: Any) -> str:
    if isinstance(found, (dict, list)):
        return "an object" if isinstance(found, dict) else "a list"
    text = json.dumps(found)
    return text if len(text) <= 40 else f"{text[:37]}..."
