"""`pykernel fit`: coefficients of the measured laws from tables of measured kernels, and how well they hold.

The work is in `pykernel.fit`, which is imported only when the command runs, so that the rest of the command needs none
of its libraries.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from pykernel.cli import UsageError

HELP = """\
Every law is fitted on a random half of its table's shapes and judged on the other half. Without DIR, the tables
of the installed package aiconfigurator-core are read:

  pip install 'pykernel-llm[fit]' && pip install --no-deps aiconfigurator-core==0.12.0
  pykernel fit --out fitted

writes one coefficient set a part to fitted/coefficients, and fitted/report.md and report.html. The same tables and the
same versions of numpy and scipy give the same coefficients.
"""

NEEDED = ("numpy", "scipy", "pyarrow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "tables", metavar="DIR", nargs="?", help="folder of tables, <part>/<family>/<engine>/<version>/..."
    )
    parser.add_argument("--out", metavar="DIR", default="fitted", help="folder to write to (default: fitted)")
    parser.add_argument("--part", metavar="NAME", action="append", default=[], help="only this part; may be repeated")
    parser.add_argument("--only", metavar="TEXT", default="", help="only laws whose name contains this; no sets then")
    parser.add_argument("--plots", action="store_true", help="draw residuals too (needs matplotlib)")
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def run(options: argparse.Namespace) -> int:
    _require_libraries()
    from pykernel.documents.coefficients import dump
    from pykernel.fit import plots, report
    from pykernel.fit.run import fit_all, sets, summaries
    from pykernel.fit.tables import PARTS, find_tables

    unknown = sorted(set(options.part) - set(PARTS.values()))
    if unknown:
        raise UsageError(f"there are no tables of {', '.join(unknown)}; there are {', '.join(sorted(PARTS.values()))}")
    tables = find_tables(options.tables)
    started = time.monotonic()
    results = fit_all(tables, options.part, options.only, (lambda line: None) if options.quiet else _progress)
    if not results:
        raise UsageError(f"{tables.root}: no table of a law that is fitted")
    out = Path(options.out)
    (out / "coefficients").mkdir(parents=True, exist_ok=True)
    if not options.only:
        for one in sets(results):
            (out / "coefficients" / f"{one.name}.yaml").write_text(f"{_HEADER}{dump(one)}", encoding="utf-8")
    drawn = plots.draw(results, out) if options.plots else []
    (out / "report.md").write_text(report.markdown(results, drawn), encoding="utf-8")
    (out / "report.html").write_text(report.page(results, drawn), encoding="utf-8")
    for group in summaries(results):
        print(
            f"{group.group:20s} median {group.median:6.1%}   p90 {group.p90:6.1%}   "
            f"worst {group.worst:6.1%} ({group.worst_part})"
        )
    print(f"{len(results)} laws in {time.monotonic() - started:.0f} s; report in {out / 'report.md'}")
    return 0


_HEADER = """\
# Coefficients of the measured laws (calibrated.<law>.<parameter>), fitted by `pykernel fit`; regenerate, do not edit.
# Source: measured kernels of ai-dynamo/aiconfigurator, PyPI package aiconfigurator-core (Apache-2.0); each entry cites
# its table. Intervals are of the fit's own noise; where one is missing, the fit does not determine the coefficient.
"""


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _require_libraries() -> None:
    from importlib.util import find_spec

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(f"not installed: {', '.join(missing)}; run pip install 'pykernel-llm[fit]'")
