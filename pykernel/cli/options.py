"""Options that several subcommands take: the roots that documents are looked up under, and checked integers."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path

from pykernel.cli import UsageError
from pykernel.documents import Repos

ROOTS = {"scenarios": "BLIS_SCENARIOS", "catalog": "BLIS_CATALOG", "registry": "BLIS_REGISTRY"}
"""Each root and the environment variable that gives it where the option does not."""

LARGEST = 2**31 - 1
"""Of any count on the command line or in a batch file; the most tokens that a step can have."""


def add_roots(parser: argparse.ArgumentParser) -> None:
    """Add one option for each root."""
    group = parser.add_argument_group("where documents are (by default those that come with pykernel)")
    for root, variable in ROOTS.items():
        group.add_argument(f"--{root}", metavar="DIR", help=f"folder of the {root}; or set {variable}")


def repos(options: argparse.Namespace) -> Repos:
    """The roots that the options name, else the environment. Raises `UsageError` for one that is no folder."""
    found: dict[str, str | None] = {}
    for root, variable in ROOTS.items():
        given = getattr(options, root)
        path = given or os.environ.get(variable) or None
        if path is not None and not Path(path).is_dir():
            raise UsageError(f"{f'--{root}' if given else variable} is {path!r}, which is no folder")
        found[root] = path
    return Repos(**found)


def count(least: int = 0) -> Callable[[str], int]:
    """A type for argparse: a whole number from `least` to `LARGEST`."""

    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,10}", text, re.ASCII) or not least <= int(text) <= LARGEST:
            raise argparse.ArgumentTypeError(f"found {text!r}, accepted is a whole number from {least} to {LARGEST}")
        return int(text)

    return parse
