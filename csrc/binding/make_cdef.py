"""Writes pykernel/_cdef.txt, the declarations that cffi reads, from csrc/pykernel.h.

cffi parses plain C declarations only. The C preprocessor resolves the header's conditionals and X-macros (with
PK_CDEF defined, so that the header can hide what Python has no use for); what the system headers contributed, and
the few constructs that cffi cannot read, are dropped here. The result is committed, so that building the package
needs no second tool and a change of the interface shows up in review. It lives beside the C sources because it is
run by people who change them, never by an installation.

    python csrc/binding/make_cdef.py          rewrites the file
    python csrc/binding/make_cdef.py --check  exits with 1 when the file is not what the header says
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "csrc" / "pykernel.h"
CDEF = ROOT / "pykernel" / "_cdef.txt"
TITLE = "/* Generated from csrc/pykernel.h by csrc/binding/make_cdef.py; edit the header instead. */\n"


def generate(header: Path = HEADER) -> str:
    """Return the cdef text of `header`; raises CalledProcessError when the preprocessor fails ($CC, else cc)."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-E", "-std=c11", "-DPK_CDEF=1", header.name]
    output = subprocess.run(command, cwd=header.parent, check=True, capture_output=True, text=True).stdout
    text = drop_static_inline(drop_calls(own_lines(output, header.name), ("__attribute__", "_Static_assert")))
    return TITLE + layout(re.sub(r"\b__extension__\b", "", text))


def layout(text: str) -> str:
    """Lay the declarations out one to a line, whatever line breaks the preprocessor at hand chose."""
    text = re.sub(r" (?=[;,)])", "", re.sub(r"\s+", " ", text))
    text = re.sub(r"(\benum\b[^{};]*\{)([^}]*)", lambda found: found[1] + found[2].replace(",", ",\n"), text)
    text = re.sub(r"([{;])", r"\1\n", text).replace("}", "\n}")
    lines = [line for line in (line.strip() for line in text.splitlines()) if line not in ("", ";")]
    depth = 0
    for index, line in enumerate(lines):
        depth -= line.startswith("}")
        lines[index] = "    " * depth + line
        depth += line.endswith("{")
    return "\n".join(lines) + "\n"


def own_lines(preprocessed: str, name: str) -> str:
    """Keep the lines that come from the file `name` itself, by the preprocessor's line markers."""
    kept: list[str] = []
    inside = False
    for line in preprocessed.splitlines():
        marker = re.match(r'#\s*(?:line\s+)?\d+\s+"([^"]*)"', line)
        if marker:
            inside = os.path.basename(marker.group(1)) == name
        elif inside and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept)


def drop_calls(text: str, names: tuple[str, ...]) -> str:
    """Remove every `name ( ... )`, nested parentheses included."""
    pattern = re.compile(r"\b(?:" + "|".join(names) + r")\s*(?=\()")
    while found := pattern.search(text):
        text = text[: found.start()] + text[closing(text, found.end(), "()") :]
    return text


def drop_static_inline(text: str) -> str:
    """Remove every static inline function with its body."""
    pattern = re.compile(r"\bstatic\s+inline\b[^{;]*(?=\{)")
    while found := pattern.search(text):
        text = text[: found.start()] + text[closing(text, found.end(), "{}") :]
    return text


def closing(text: str, start: int, pair: str) -> int:
    """Return the offset after the bracket that closes the one at `start`."""
    depth = 0
    for offset in range(start, len(text)):
        depth += (text[offset] == pair[0]) - (text[offset] == pair[1])
        if depth == 0:
            return offset + 1
    raise ValueError(f"the {pair[0]!r} at offset {start} is never closed")


def main(arguments: list[str]) -> int:
    """Rewrite the committed text, or with `--check` compare it."""
    text = generate()
    if arguments == ["--check"]:
        if text == CDEF.read_text(encoding="utf-8"):
            return 0
        print(f"{CDEF} is not what {HEADER} says; run: python csrc/binding/make_cdef.py", file=sys.stderr)
        return 1
    CDEF.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
