"""`pykernel check`: hold a cost model to the laws, over one or more scenarios."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pykernel
from pykernel.c_model import SHARED_LIBRARY
from pykernel.cli import UsageError
from pykernel.cli.options import add_roots, repos
from pykernel.documents import Inputs
from pykernel.errors import ArgumentError, PykernelError, RefusedError
from pykernel.laws import CAPABILITIES, LAWS, REPRESENTATIVE, Law, Report, check_model
from pykernel.laws.law import known_laws

HELP = """\
Tries the laws of docs/laws.md on a cost model, pykernel's own or that of a plug-in, and prints those that it breaks.
Laws that no model may waive are tried whatever it claims. The exit code is 1 when a law is broken.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a cost model")
    parser.add_argument("--scenario", metavar="S", action="append", help=f"by default {', '.join(REPRESENTATIVE)}")
    parser.add_argument("--law", metavar="ID", action="append", help="a law to try; by default all")
    parser.add_argument(
        "--lacks",
        metavar="WHAT",
        action="append",
        choices=sorted(CAPABILITIES),
        help=f"what the model does not claim, of {', '.join(sorted(CAPABILITIES))}; by default what its plug-in states",
    )
    parser.add_argument("--junit", metavar="FILE", help="write the results there as JUnit XML")
    parser.add_argument("--quiet", action="store_true", help="show no progress on standard error")
    add_roots(parser)


def run(options: argparse.Namespace) -> int:
    try:
        laws = None if options.law is None else [law.id for law in known_laws(options.law)]
    except ArgumentError as error:
        raise UsageError(str(error)) from None
    if options.junit and not Path(options.junit).absolute().parent.is_dir():
        raise UsageError(f"--junit {options.junit}: there is no folder {Path(options.junit).absolute().parent}")
    progress = Progress(laws or list(LAWS)) if sys.stderr.isatty() and not options.quiet else None
    reports: dict[str, Report] = {}
    for scenario in options.scenario or REPRESENTATIVE:
        inputs = pykernel.open_inputs(scenario, repos(options))
        try:
            shown = progress.of(scenario) if progress else None
            reports[scenario] = check_named(options.name, inputs, laws, options.lacks, shown)
        except RefusedError as error:
            print(f"{scenario}: not priced: {error}")
            continue
        finally:
            if progress:
                progress.clear()
        print(f"{scenario}: {_summary(reports[scenario])}")
        for line in _lines(reports[scenario]):
            print(f"  {line}")
    if not reports:
        raise PykernelError(f"{options.name} prices none of these scenarios")
    if options.junit:
        write_junit(Path(options.junit), options.name, reports)
    return 0 if all(reports.values()) else 1


class Progress:
    """Which law is being tried, on one line of a terminal's standard error."""

    def __init__(self, laws: list[str]) -> None:
        self.laws = laws

    def of(self, subject: str) -> Callable[[Law], None]:
        """To be called with each law of a scenario or model."""

        def show(law: Law) -> None:
            line = f"{subject}: {self.laws.index(law.id) + 1} of {len(self.laws)}, {law.id}: {law.statement}"
            print(line[:79].ljust(79), end="\r", file=sys.stderr, flush=True)

        return show

    def clear(self) -> None:
        print(" " * 79, end="\r", file=sys.stderr, flush=True)


def check_named(
    name: str,
    inputs: Inputs,
    laws: list[str] | None = None,
    lacks: Iterable[str] | None = None,
    progress: Callable[[Law], None] | None = None,
) -> Report:
    """The laws tried on a cost model by name or path. Raises as `pykernel.new`."""
    build = partial(pykernel.new, model=name)
    if lacks is None and not name.endswith(SHARED_LIBRARY):
        lacks = _registered(name)
    return check_model(build(inputs), factory=build, inputs=inputs, lacks=lacks, laws=laws, progress=progress)


def _registered(name: str) -> frozenset[str]:
    """What a plug-in says that its model does not claim."""
    from pykernel.registry import installed

    lacks: frozenset[str] = installed().find("cost_models", name).entry.lacks
    return lacks


def _summary(report: Report) -> str:
    counts = {"passed": len(report.passed), "broken": len(report.violations)}
    some = {"skipped": len(report.skipped), "advice": len(report.advice)}
    return ", ".join(f"{count} {name}" for name, count in {**counts, **some}.items() if count or name in counts)


def _lines(report: Report) -> list[str]:
    found = [("broken ", violation) for violation in report.violations]
    found += [("advice ", violation) for violation in report.advice]
    lines = [mark + line for mark, violation in found for line in str(violation).splitlines()]
    return lines + [f"skipped {skip}" for skip in report.skipped]


def write_junit(path: Path, name: str, reports: dict[str, Report]) -> None:
    """One suite for each scenario, one case for each law."""
    root = ElementTree.Element("testsuites", name=f"pykernel check {name}")
    for scenario, report in reports.items():
        broken = {violation.law: violation for violation in report.violations}
        skipped = {skip.law: skip for skip in report.skipped}
        counts = {"tests": len(report.seconds), "failures": len(broken), "skipped": len(skipped)}
        attributes = {"name": scenario, **{key: str(count) for key, count in counts.items()}}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for law, seconds in report.seconds.items():
            case = ElementTree.SubElement(suite, "testcase", classname=name, name=law, time=f"{seconds:.3f}")
            if law in broken:
                failure = ElementTree.SubElement(case, "failure", message=broken[law].messages[0])
                failure.text = str(broken[law])
            elif law in skipped:
                ElementTree.SubElement(case, "skipped", message=skipped[law].reason)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="unicode", xml_declaration=True)
