"""Every file of `testdata/bad/` is refused with exactly the problems that its sidecar states, quickly.

A sidecar `<name>.expect.yaml` lists each expected error as line, dotted field and a part of the message. The files
are read with libyaml's parser and with PyYAML's own, which must agree.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pykernel.documents import Repos, coefficients, deployment, graph, hardware, open_inputs, reader, scenario, storage
from pykernel.documents.inputs import validate
from pykernel.errors import DocumentError, Problem

BAD = Path(__file__).resolve().parents[2] / "testdata" / "bad"
REPOS = Repos(*(BAD / "repo" / name for name in ("scenarios", "catalog", "registry")))
FILES = sorted(
    path for path in BAD.glob("*/*.yaml") if not path.name.endswith(".expect.yaml") and path.parent.name != "repo"
)
SECONDS = 2.0  # far above what any of them takes, far below what an expanded alias bomb would


def _bundle(path: Path) -> list[Problem]:
    return validate(open_inputs(path, REPOS))


LOADERS: dict[str, Callable[[Path], list[Problem]]] = {
    "bundle": _bundle,
    "scenario": lambda path: scenario.check(scenario.load(path)),
    "deployment": lambda path: deployment.check(deployment.load(path)),
    "model": lambda path: graph.check(graph.load(path)),
    "chip": lambda path: hardware.check_chip(hardware.load_chip(path)),
    "fabric": lambda path: hardware.check_fabric(hardware.load_fabric(path)),
    "storage": lambda path: [problem for tier in storage.load(path) for problem in storage.check(tier)],
    "coefficients": lambda path: coefficients.check(coefficients.load(path)),
}


def _errors(kind: str, path: Path) -> list[Problem]:
    try:
        problems = LOADERS[kind](path)
    except DocumentError as error:
        problems = list(error.problems)
    return [problem for problem in problems if problem.severity == "error"]


@pytest.fixture(params=["libyaml", "pure"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The parser that documents are read with: PyYAML's binding of libyaml, or its parser in Python."""
    name: str = request.param
    if name == "libyaml":
        assert yaml.__with_libyaml__, "PyYAML without libyaml: install a wheel of PyYAML to run these tests"
    else:
        monkeypatch.setattr(yaml, "__with_libyaml__", False)
    return name


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_malformed_file_is_refused_with_exactly_its_problems(path: Path, parser: str) -> None:
    expected = yaml.safe_load(path.with_suffix(".expect.yaml").read_text(encoding="utf-8"))
    start = time.perf_counter()
    errors = _errors(expected["kind"], path)
    assert time.perf_counter() - start < SECONDS
    found = [(problem.file, problem.line, problem.path) for problem in errors]
    wanted = [(str(path), problem["line"], problem["field"]) for problem in expected["problems"]]
    assert sorted(found) == sorted(wanted)
    for problem in expected["problems"]:
        messages = [error.message for error in errors if error.path == problem["field"]]
        assert any(problem["says"] in message for message in messages), messages


def test_the_corpus_is_large_and_every_file_has_its_sidecar() -> None:
    assert len(FILES) >= 60
    sidecars = set(BAD.glob("*/*.expect.yaml"))
    assert sidecars == {path.with_suffix(".expect.yaml") for path in FILES}


def test_every_error_message_says_what_is_accepted_or_what_to_do() -> None:
    for path in FILES:
        kind = yaml.safe_load(path.with_suffix(".expect.yaml").read_text(encoding="utf-8"))["kind"]
        for problem in _errors(kind, path):
            assert problem.message[0].islower(), problem
            assert "!" not in problem.message.replace("'!", "").replace("!!", ""), problem
            advice = ("accepted", "does not use the key", "known:", "not YAML:", "unknown key;", "written twice")
            syntax = ("names no anchor", "stands inside")
            assert any(part in problem.message for part in advice + syntax), problem


DAMAGE = [
    b"- ", b": ", b"{", b"}", b"[", b"]", b"&a ", b"*a", b"!!str ", b"!x ", b"|", b">", b'"', b"'", b"#", b"\n",
    b"---\n", b"...\n", b"%YAML 1.2\n", b"?", b"\t", b"\xff", b"\0", b"~", b"<<: ", b"1e999", b".nan",
    b"\xc2\x85", b",", b"@",
]  # fmt: skip


def test_damaged_files_raise_nothing_but_document_errors(tmp_path: Path, parser: str) -> None:
    generator = random.Random(parser)
    for _ in range(400):
        origin = generator.choice(FILES)
        data = bytearray(origin.read_bytes())
        for _ in range(generator.randint(1, 4)):
            at = generator.randrange(len(data) + 1)
            if generator.random() < 0.6:
                data[at:at] = generator.choice(DAMAGE)
            else:
                del data[at : at + generator.randint(1, 12)]
        path = tmp_path / origin.name
        path.write_bytes(data)
        start = time.perf_counter()
        for problem in _errors(origin.parent.name, path):
            assert problem.message
        assert time.perf_counter() - start < SECONDS


def test_the_repository_beside_the_corpus_is_sound() -> None:
    assert validate(open_inputs("chat-h200", REPOS)) == []


def test_both_parsers_build_equal_trees_of_the_sound_files() -> None:
    for path in sorted((BAD / "repo").rglob("*.yaml")):
        prefixes = ("scenario", "deployment") if path.parent.name == "scenarios" else ("document",)
        trees = [reader.read_file(path, prefixes, pure=pure).roots for pure in (False, True)]
        assert [_plain(root) for root in trees[0]] == [_plain(root) for root in trees[1]]


def _plain(node: object) -> object:
    entries = getattr(node, "entries", None)
    if entries is not None:
        return (node.line, {key: (node.lines[key], _plain(item)) for key, item in entries.items()})  # type: ignore[attr-defined]
    items = getattr(node, "items", None)
    if items is not None:
        return (node.line, [_plain(item) for item in items])  # type: ignore[attr-defined]
    return (node.line, node.value, node.plain)  # type: ignore[attr-defined]
