"""`pykernel plugins`: who offers what, who was left out, and whether it passes."""

from __future__ import annotations

import json

import pytest

from pykernel.cli import main
from pykernel.registry import Registry

from .distributions import HEAD, ONE_MODEL, Install


def test_plug_ins_are_listed_with_what_they_offer(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("pykernel-mine", "1.0", "mine", ONE_MODEL.format(name="mine"))
    assert main(["plugins"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("pykernel\n            cost models: blis")
    assert out.endswith("mine (pykernel-mine 1.0)\n            cost models: mine\n")


def test_the_list_is_data_as_well(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("pykernel-mine", "1.0", "mine", ONE_MODEL.format(name="mine"))
    install("broken", "2.0", "broken", "1/0")
    assert main(["plugins", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [plugin["name"] for plugin in report["plugins"]] == ["pykernel", "mine"]
    offer = {"kind": "cost_models", "name": "mine", "summary": "a model", "source": "nowhere", "problem": ""}
    assert report["plugins"][1]["offers"] == [offer]
    assert [(failure["distribution"], failure["version"]) for failure in report["left_out"]] == [("broken", "2.0")]


BROKEN_ENTRIES = (
    HEAD
    + """
from pykernel import Kernel

class Wrong(Kernel):
    def completion_overhead_ns(self):
        return -1

@hookimpl
def pykernel_cost_models():
    return [CostModelEntry("wrong", Wrong, "a wrong model")]

@hookimpl
def pykernel_chips():
    return [DocumentEntry("nothing", lambda: None)]
"""
)


def test_check_tells_what_does_not_pass(
    install: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pykernel.cli.plugins as command

    problem = command._problem

    def of_plug_ins(registry: Registry, kind: str, name: str) -> str:
        return problem(registry, kind, name) if name in ("wrong", "nothing") else ""

    monkeypatch.setattr(command, "_problem", of_plug_ins)
    install("pykernel-wrong", "1.0", "wrong", BROKEN_ENTRIES)
    assert main(["plugins", "--check"]) == 1
    out = capsys.readouterr().out
    assert "0 of 2 pass" in out
    assert "cost models wrong: breaks the laws H3" in out
    assert "chips nothing: plug-in wrong (pykernel-wrong 1.0): chip nothing loads a NoneType" in " ".join(out.split())
