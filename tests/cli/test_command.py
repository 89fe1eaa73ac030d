"""The command as a whole: how it starts, what it says to a wrong call, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykernel
from pykernel.cli import SUBCOMMANDS, listing, main

Command = Callable[..., Any]


def test_version_is_that_of_the_package(command: Command) -> None:
    assert command("--version").out == f"pykernel {pykernel.__version__}\n"


def test_help_names_every_subcommand_and_each_has_its_own(command: Command) -> None:
    overview = command("--help")
    assert overview.code == 0
    for name, (_, summary) in SUBCOMMANDS.items():
        assert name in overview.out and summary in overview.out
        own = command(name, "--help")
        assert own.code == 0 and own.out.startswith(f"usage: pykernel {name}")


def test_unknown_subcommand_suggests_the_nearest(command: Command) -> None:
    command("prize").fails(2, "'prize'", "did you mean price", f"there are {', '.join(SUBCOMMANDS)}")


def test_missing_subcommand_is_a_usage_error(command: Command) -> None:
    command().fails(2, "subcommand is missing", ", ".join(SUBCOMMANDS))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--jason"], ["--jason"]),
        (["list", "--jason"], ["--jason", "pykernel list --help"]),
        (["list", "--js"], ["--js"]),
        (["price"], ["SCENARIO"]),
        (["price", "--decode"], ["--decode"]),
    ],
)
def test_wrong_options_are_usage_errors(command: Command, arguments: list[str], words: list[str]) -> None:
    command(*arguments).fails(2, *words)


def test_interrupt_ends_quietly(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "run", interrupted)
    done = command("list")
    assert (done.code, done.out, done.err) == (130, "", "")


def test_reader_that_went_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pykernel.cli", "list", "fabrics"],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_output_that_cannot_be_written_is_an_error_of_one_line() -> None:
    with open(os.devnull) as not_for_writing:
        command = [sys.executable, "-m", "pykernel.cli", "list", "fabrics"]
        done = subprocess.run(command, stdout=not_for_writing, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "pykernel: error: the output: Bad file descriptor\n")


def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "missing" / "fitted"
    monkeypatch.setattr(listing, "run", lambda options: folder.mkdir())
    done = command("list")
    assert (done.code, done.out, done.err) == (1, "", f"pykernel: error: {folder}: No such file or directory\n")


@pytest.mark.parametrize(("arguments", "code"), [(["list", "fabrics"], 0), (["bogus"], 2)])
def test_a_process_without_an_output_still_runs(
    arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it where a daemon closed it
    assert main(arguments) == code
    assert ("bogus" in capsys.readouterr().err) is (code == 2)


def test_subcommands_are_imported_only_when_called() -> None:
    program = (
        "import sys; from pykernel.cli import main; main(['--version']);"
        "print([name for name in sys.modules if name in ('pykernel.cli.price', 'pykernel.cli.listing', 'json')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"
