"""The command `pykernel`: which subcommands there are, and how any of them ends.

Each subcommand is a module of this package with `add_arguments(parser)` and `run(options)`, imported only when it is
the one called. Here is what they share: exit codes, errors on standard error, and an output that closes early.

Exit codes: 0 success; 1 a document, the deployment or the batch is at fault; 2 the command line is; 130 interrupted;
141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

SUBCOMMANDS = {
    "price": ("pykernel.cli.price", "price one step of a scenario"),
    "memory": ("pykernel.cli.memory", "size what a scenario holds on each GPU, and how many requests fit"),
    "check-deployment": (
        "pykernel.cli.check_deployment",
        "show what the engine would run of a deployment, and everything that is refused",
    ),
    "model": ("pykernel.cli.model", "show what a model adds up to: parameters, layers, caches, work"),
    "derive": ("pykernel.cli.derive", "derive a model graph from a HuggingFace config.json"),
    "list": ("pykernel.cli.listing", "list scenarios, models, chips, fabrics, storage tiers and coefficient sets"),
    "compile": ("pykernel.cli.compile", "write the kernel of a scenario to a file that C and C++ load"),
    "fit": ("pykernel.cli.fit", "fit the laws of the model calibrated to tables of measured kernels"),
    "plugins": ("pykernel.cli.plugins", "list what pykernel and the installed plug-ins offer"),
    "check": ("pykernel.cli.check", "hold a cost model to the laws"),
}
"""Module and one-line summary of every subcommand, in the order of the help."""

FAULT, USAGE, INTERRUPTED, NO_READER = 1, 2, 130, 141


class UsageError(Exception):
    """The command line is at fault."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError` and takes no abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv`, by default the arguments of the process; returns the exit code."""
    _tolerate_unprintable_names()
    try:
        code = _guarded(list(sys.argv[1:] if argv is None else argv))
        _flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return NO_READER
    except OSError as error:  # a file or folder that a subcommand may not write to, or a full disk behind the output
        if error.filename is None:
            _drop_output()
        return _report(OSError(f"{error.filename or 'the output'}: {error.strerror or error}"), FAULT)
    except KeyboardInterrupt:
        return INTERRUPTED


def _guarded(arguments: list[str]) -> int:
    from pykernel.errors import ArgumentError, PykernelError

    try:
        return _dispatch(arguments)
    except SystemExit as end:  # argparse has printed the help or the version
        return end.code if isinstance(end.code, int) else 0
    except (UsageError, ArgumentError) as error:
        return _report(error, USAGE)
    except PykernelError as error:
        return _report(error, FAULT)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        parser = _top_parser()
        options = parser.parse_args(arguments)
        if any(vars(options).values()):
            from pykernel.cli import embedding

            return embedding.run(options)
        parser.error("a subcommand is missing; there are " + ", ".join(SUBCOMMANDS))
    name = arguments[0]
    if name not in SUBCOMMANDS:
        near = difflib.get_close_matches(name, SUBCOMMANDS, n=1)
        hint = f"; did you mean {near[0]}" if near else ""
        raise UsageError(f"there is no subcommand {name!r}{hint}; there are {', '.join(SUBCOMMANDS)}")
    module, summary = SUBCOMMANDS[name]
    command = importlib.import_module(module)
    parser = Parser(prog=f"pykernel {name}", description=f"{summary[0].upper()}{summary[1:]}.\n\n{command.HELP}")
    command.add_arguments(parser)
    run: Callable[[argparse.Namespace], int] = command.run
    return run(parser.parse_args(arguments[1:]))


def _top_parser() -> Parser:
    from pykernel import __version__
    from pykernel.cli import embedding

    listed = "\n".join(f"  {name:<18}{summary}" for name, (_, summary) in SUBCOMMANDS.items())
    parser = Parser(
        prog="pykernel",
        usage="pykernel [--version] [--help] SUBCOMMAND ...\n       pykernel [--cmake-dir] [--cflags] [--libs]",
        description="How long one step of an LLM-serving engine takes.",
        epilog=f"subcommands:\n{listed}\n\nHelp on one: pykernel SUBCOMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"pykernel {__version__}")
    for option, what in embedding.OPTIONS.items():
        parser.add_argument(option, action="store_true", help=what)
    return parser


def _report(error: Exception, code: int) -> int:
    """Print an error, each of its lines marked, since a document may have several problems."""
    _flush()
    for line in str(error).splitlines() or [type(error).__name__]:
        print(f"pykernel: error: {line}", file=sys.stderr)
    return code


def _flush() -> None:
    if sys.stdout is not None:  # as it is where the process was started without one
        sys.stdout.flush()


def _drop_output() -> None:
    """Python flushes standard output once more when it ends; let that go nowhere instead of failing again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tolerate_unprintable_names() -> None:
    """A file name that the terminal's encoding cannot show is no reason to fail."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
