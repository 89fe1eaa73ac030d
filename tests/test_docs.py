"""Runs every example of the README and of the pages in docs/, and compares every output shown to what comes out.

A page is read from top to bottom in a folder of its own, which keeps what its examples write:

    python        executed, all blocks of a page in one namespace
    text          exactly what the Python block before it prints; a block that none follows prints nothing
    console       `$ pykernel ...` lines, each with its output (both streams) under it
    LANG FILE     a block with a file's name behind its language is that file
    c, cpp        compiled against the header, warnings being errors; one with a main is run in the page's folder,
                  after the page's commands, and a text block after it is exactly what it prints

Other blocks (commands of a shell, listings) are for reading only. Beside the folder lie copies of the bundled data
under the names that a reader's own checkouts would have.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel.cli import main
from pykernel.cli.embedding import CLIB

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(pykernel.__file__).parent / "data"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file it is (or none), its text and the line its text starts on."""

    language: str
    file: str
    body: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, _, file = match["info"].strip().partition(" ")
        found.append(Block(language, file.strip(), match["body"], text.count("\n", 0, match.start("body")) + 1))
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a page's examples run in, with what a reader is supposed to have beside it."""
    for name, part in {"blis-catalog": "catalog", "blis-registry": "registry", "my-scenarios": "scenarios"}.items():
        (tmp_path / name).symlink_to(DATA / part)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(str(work))  # a page's Python files can be imported by its examples
    for variable in ("BLIS_CATALOG", "BLIS_REGISTRY", "BLIS_SCENARIOS"):
        monkeypatch.delenv(variable, raising=False)
    return work


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_print_what_the_page_shows(page: Path, folder: Path) -> None:
    namespace: dict[str, Any] = {}
    found = blocks(page)
    for block, after in zip(found, [*found, None][1:], strict=True):
        where = f"{page.name}:{block.line}"
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.body, encoding="utf-8")
        elif block.language == "python":
            assert run_python(block, where, namespace) == shown(after), where
        elif block.language == "console":
            for command, output in commands(block.body):
                assert run_command(command, where) == output, f"{where}: $ {command}"


STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
COMPILERS = {"c": ["cc", "-std=c11"], "cpp": ["c++", "-std=c++17"]}


def compiled(block: Block, folder: Path, where: str) -> Path | None:
    """Compile a C or C++ example; the program, if it is one."""
    source, program = folder / f"example.{block.language}", folder / "example"
    source.write_text(block.body, encoding="utf-8")
    whole = "main(" in block.body
    output = [str(CLIB / "lib" / "libpykernel.a"), "-o", str(program)] if whole else ["-fsyntax-only"]
    command = [*COMPILERS[block.language], *STRICT, f"-I{CLIB / 'include'}", str(source), *output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}\n{done.stderr}"
    return program if whole else None


@pytest.mark.toolchain
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_c_examples_compile_and_print_what_the_page_shows(page: Path, folder: Path) -> None:
    found = blocks(page)
    if not any(block.language in COMPILERS for block in found):
        return
    for block, after in zip(found, [*found, None][1:], strict=True):
        where = f"{page.name}:{block.line}"
        if block.language == "console":
            for command, _ in commands(block.body):
                run_command(command, where)
        elif block.language in COMPILERS and (program := compiled(block, folder, where)):
            done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60)
            assert done.stdout + done.stderr == shown(after), where


def test_pages_have_the_examples_that_readers_are_promised() -> None:
    kinds = {page.name: Counter(block.language for block in blocks(page)) for page in PAGES}
    assert all(kinds["README.md"][language] >= 1 for language in ("python", "console", "c"))
    assert kinds["price-a-batch.md"]["python"] >= 8
    assert kinds["price-a-batch.md"]["console"] >= 3
    assert kinds["data.md"]["python"] >= 1
    assert kinds["memory.md"]["python"] >= 8 and kinds["memory.md"]["console"] >= 1
    assert kinds["plugins.md"]["python"] >= 4
    assert kinds["models.md"]["python"] >= 3
    assert kinds["models.md"]["console"] >= 4
    for page in ("simulator.md", "boundary.md"):
        assert all(kinds[page][language] >= 1 for language in ("python", "c", "cpp"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_output_shown_belongs_to_an_example(page: Path) -> None:
    found = blocks(page)
    stray = [
        block.line
        for before, block in zip([None, *found][:-1], found, strict=True)
        if block.language == "text" and (before is None or before.language not in ("python", *COMPILERS))
    ]
    assert stray == [], "text blocks that follow no Python or C; give a listing no language"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def shown(block: Block | None) -> str:
    return block.body if block is not None and block.language == "text" else ""


def run_python(block: Block, where: str, namespace: dict[str, Any]) -> str:
    # Blank lines in front, so that a traceback names the line of the page.
    code = compile("\n" * (block.line - 1) + block.body, where, "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def commands(body: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, lines continued with a backslash joined, and the output below it."""
    assert body.startswith("$ "), "a console block starts with a command"
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", "").partition("\n")
        yield command, output


def run_command(command: str, where: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "pykernel", f"{where}: only pykernel runs in a console block, found {program}"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        main(arguments)
    return printed.getvalue()
