"""`pykernel plugins`: what pykernel and the installed plug-ins offer by name, and who was left out."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import pykernel
from pykernel.cli import text
from pykernel.errors import PykernelError
from pykernel.hooks import KINDS
from pykernel.registry import Registry, installed

HELP = """\
Plug-ins are distributions with an entry point in the group `pykernel`. PYKERNEL_PLUGINS names those to load,
separated by commas; empty, it switches all off. With --check every document is loaded, and the laws are tried on
every cost model.
The exit code is 1 when a plug-in was left out or did not pass.
"""

CHECKED_ON = "qwen3-14b-h100-tp1"
"""The scenario on which --check tries cost models; `pykernel check` takes others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--check", action="store_true", help="load every document, and try the laws on every cost model"
    )


def run(options: argparse.Namespace) -> int:
    registry = installed()
    report = _report(registry, options.check)
    print(json.dumps(report, indent=2) if options.json else "\n".join(_page(report)))
    faults = any(entry["problem"] for plugin in report["plugins"] for entry in plugin["offers"])
    return 1 if report["left_out"] or faults else 0


def _report(registry: Registry, check: bool) -> dict[str, Any]:
    plugins = []
    for origin in registry.loaded:
        offers = [
            {
                "kind": kind,
                "name": name,
                "summary": getattr(offer.entry, "summary", ""),
                "source": offer.entry.source,
                "problem": _problem(registry, kind, name) if check else "",
            }
            for kind in KINDS
            for name, offer in sorted(registry.offers[kind].items())
            if offer.origin == origin
        ]
        about = {"name": origin.plugin, "distribution": origin.distribution, "version": origin.version}
        plugins.append({**about, "offers": offers})
    left_out = [
        {
            "name": failure.origin.plugin,
            "distribution": failure.origin.distribution,
            "version": failure.origin.version,
            "reason": failure.reason,
        }
        for failure in registry.failures
    ]
    return {"checked": check, "plugins": plugins, "left_out": left_out}


def _problem(registry: Registry, kind: str, name: str) -> str:
    """Why an offer does not pass; empty when it does."""
    try:
        if kind != "cost_models":
            registry.document(kind, name)
            return ""
        from pykernel.cli.check import Progress, check_named
        from pykernel.laws import LAWS

        progress = Progress(list(LAWS)) if sys.stderr.isatty() else None
        try:
            report = check_named(
                name, pykernel.open_inputs(CHECKED_ON), progress=progress.of(name) if progress else None
            )
        finally:
            if progress:
                progress.clear()
    except PykernelError as error:
        return str(error)
    broken = ", ".join(violation.law for violation in report.violations)
    return f"breaks the laws {broken}; pykernel check {name} says how" if broken else ""


def _page(report: dict[str, Any]) -> list[str]:
    lines = []
    for plugin in report["plugins"]:
        by = f" ({plugin['distribution']} {plugin['version']})" if plugin["distribution"] else ""
        lines.append(f"{plugin['name']}{by}")
        for kind in KINDS:
            offers = [offer for offer in plugin["offers"] if offer["kind"] == kind]
            if offers:
                lines.append(text.labelled("", f"{kind.replace('_', ' ')}: {', '.join(one['name'] for one in offers)}"))
        passed = [offer for offer in plugin["offers"] if not offer["problem"]]
        if report["checked"]:
            lines.append(text.labelled("", f"{len(passed)} of {len(plugin['offers'])} pass"))
        lines += [
            text.labelled("", f"{offer['kind'].replace('_', ' ')} {offer['name']}: {offer['problem']}")
            for offer in plugin["offers"]
            if offer["problem"]
        ]
    for failure in report["left_out"]:
        by = f" ({failure['distribution']} {failure['version']})" if failure["distribution"] else ""
        lines.append(text.labelled("left out", f"{failure['name']}{by}: {failure['reason']}"))
    return lines
