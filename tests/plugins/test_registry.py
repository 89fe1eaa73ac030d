"""The door for plug-ins: what is offered, in which order, and what is said of a plug-in that is left out."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import pykernel
from pykernel import models, registry
from pykernel.cli import main
from pykernel.documents import StorageTier
from pykernel.errors import ArgumentError, DocumentError, PluginError, RefusedError
from pykernel.hooks import KINDS, CostModelEntry, DocumentEntry, hookimpl
from pykernel.registry import Origin, build, installed

from .distributions import HEAD, ONE_MODEL, Install

SCENARIO = "qwen3-14b-h100-tp1"


def plugin(**hooks: Any) -> SimpleNamespace:
    """A plug-in whose hooks return these values."""

    def returning(value: Any) -> Any:
        return hookimpl(lambda: value)

    return SimpleNamespace(**{name: returning(value) for name, value in hooks.items()})


def fail(_: object) -> Any:
    raise ValueError("out of\nluck")


def test_what_pykernel_has_is_offered_and_loads() -> None:
    found = build({})
    assert found.failures == []
    assert found.names("cost_models") == sorted(models.MODELS) == sorted(models.SUMMARIES)
    for kind in KINDS:
        assert found.names(kind)
        for name in found.names(kind) if kind != "cost_models" else ():
            assert isinstance(found.document(kind, name), KINDS[kind])


def test_built_in_names_look_for_no_plug_in() -> None:
    code = f"import sys, pykernel; pykernel.open({SCENARIO!r}); print('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_an_installed_model_is_priced_by_name(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("pykernel-mine", "1.0", "mine", ONE_MODEL.format(name="mine"))
    batch = pykernel.Batch([pykernel.Request(1, 100, 10)])
    assert pykernel.open(SCENARIO, model="mine").step_time(batch) == pykernel.open(SCENARIO).step_time(batch)
    assert main(["price", SCENARIO, "--model", "mine", "--decode", "1x100"]) == 0
    assert "overlap" in capsys.readouterr().out


def test_order_is_that_of_the_distributions_and_the_first_of_two_keeps_a_name(install: Install) -> None:
    install("b-dist", "2.0", "aaa", ONE_MODEL.format(name="same"))
    install("A-dist", "1.0", "zzz", ONE_MODEL.format(name="same"))
    found = installed()
    assert [str(origin) for origin in found.loaded] == ["pykernel", "zzz (A-dist 1.0)", "aaa (b-dist 2.0)"]
    assert found.find("cost_models", "same").origin == Origin("zzz", "A-dist", "1.0")
    expected = "plug-in aaa (b-dist 2.0): cost model same is offered by zzz (A-dist 1.0) already, which is kept"
    assert [str(failure) for failure in found.failures] == [expected]


def test_no_plug_in_replaces_what_pykernel_has() -> None:
    found = build({Origin("other"): plugin(pykernel_cost_models=[CostModelEntry("blis", fail, "")])})
    assert found.find("cost_models", "blis").origin.plugin == "pykernel"
    assert "cost model blis is offered by pykernel already" in str(found.failures[0])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1/0", "failed: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "failed: SystemExit: 3"),
        (
            HEAD + "@hookimpl\ndef pykernel_cost_model(): return []",
            "there is no hook pykernel_cost_model; did you mean pykernel_cost_models",
        ),
        (HEAD + "@hookimpl\ndef anything(): return []", "there is no hook anything; hooks are pykernel_cost_models"),
        (HEAD + "def pykernel_chips(): return []", "pykernel_chips is not marked"),
        (HEAD + "@hookimpl\ndef pykernel_chips(): return [3]", "returns a int, accepted is a DocumentEntry"),
        (HEAD + "@hookimpl\ndef pykernel_chips(): raise OSError('gone')", "OSError: gone"),
        (HEAD + "@hookimpl\ndef pykernel_chips(): return 3", "TypeError"),
        (
            HEAD + "@hookimpl\ndef pykernel_chips(): return [DocumentEntry('', print)]",
            "pykernel_chips returns an entry without a name",
        ),
    ],
)
def test_a_broken_plug_in_is_named_and_the_others_work(install: Install, source: str, reason: str) -> None:
    install("broken-dist", "0.1", "broken", source)
    install("sound-dist", "0.1", "sound", ONE_MODEL.format(name="sound"))
    found = installed()
    assert len(found.failures) == 1
    assert str(found.failures[0]).startswith("plug-in broken (broken-dist 0.1): ")
    assert reason in str(found.failures[0])
    pykernel.open(SCENARIO, model="sound")
    with pytest.raises(ArgumentError, match=r"did you mean sound; plug-in broken \(broken-dist 0.1\)"):
        pykernel.open(SCENARIO, model="sond")


@pytest.mark.parametrize(
    ("value", "loaded"), [("", []), ("one", ["one"]), (" two , one,", ["one", "two"]), ("absent", [])]
)
def test_the_environment_restricts_plug_ins(
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    loaded: list[str],
) -> None:
    for name in ("one", "two"):
        install(f"dist-{name}", "1", name, ONE_MODEL.format(name=name))
    monkeypatch.setenv(registry.ENVIRONMENT, value)
    found = installed()
    assert [origin.plugin for origin in found.loaded] == ["pykernel", *loaded]
    absent = "plug-in absent: no installed plug-in has this name, which PYKERNEL_PLUGINS holds"
    assert [str(failure) for failure in found.failures] == ([absent] if value == "absent" else [])


def test_a_factory_that_fails_is_named() -> None:
    inputs = pykernel.open_inputs(SCENARIO)
    origin = Origin("mine", "my-dist", "3")
    entries = [CostModelEntry("bad", fail, ""), CostModelEntry("odd", lambda _: object(), "")]  # type: ignore[arg-type, return-value]
    found = build({origin: plugin(pykernel_cost_models=entries)})
    with pytest.raises(
        PluginError, match=r"mine \(my-dist 3\): cost model bad cannot be built: ValueError: out of luck"
    ):
        found.new("bad", inputs)
    with pytest.raises(
        PluginError, match=r"builds a object, which has no admission_overhead_ns.*; accepted is a CostModel"
    ):
        found.new("odd", inputs)


def test_a_refusal_of_a_factory_passes_as_it_is() -> None:
    def refuse(_: object) -> Any:
        raise RefusedError("no experts", "engine.x")

    found = build({Origin("mine"): plugin(pykernel_cost_models=[CostModelEntry("mine", refuse, "")])})
    with pytest.raises(RefusedError, match="no experts"):
        found.new("mine", pykernel.open_inputs(SCENARIO))


def test_documents_with_errors_reach_no_factory() -> None:
    inputs = pykernel.open_inputs(SCENARIO)
    seen = build({Origin("mine"): plugin(pykernel_cost_models=[CostModelEntry("mine", lambda _: pytest.fail(), "")])})
    inputs.chip.bw_peak_tbs = -1.0
    with pytest.raises(DocumentError, match=r"chip\.BwPeakTBs"):
        seen.new("mine", inputs)


def test_documents_are_sound_copies_of_the_right_kind_and_name() -> None:
    tier = StorageTier("tape", 1.0, 1.0, 1e6)
    entries = [
        DocumentEntry("tape", lambda: tier),
        DocumentEntry("disc", lambda: tier),
        DocumentEntry("chip", lambda: pykernel.open_inputs(SCENARIO).chip),
        DocumentEntry("none", lambda: 1 / 0),
        DocumentEntry("void", lambda: StorageTier("void", -1.0, 0.0, 5.0)),
        DocumentEntry("text", lambda: StorageTier("text", "1000", 1.0, 5.0)),  # type: ignore[arg-type]
    ]
    found = build({Origin("mine"): plugin(pykernel_storage_tiers=entries)})
    found.document("storage_tiers", "tape").name = "edited"
    assert found.document("storage_tiers", "tape") == tier
    reasons = {
        "disc": "names itself 'tape'",
        "chip": "loads a Chip",
        "none": "division by zero",
        "void": r"read_bandwidth_mb_s: found -1.0; .*write_bandwidth_mb_s: found 0.0",
        "text": "read_bandwidth_mb_s: found '1000'",
    }
    for name, reason in reasons.items():
        with pytest.raises(PluginError, match=f"mine: storage tier {name}.*{reason}"):
            found.document("storage_tiers", name)


def test_a_name_that_leads_nowhere_names_the_plug_ins_that_failed(install: Install) -> None:
    install("broken-dist", "0.1", "broken", "1/0")
    scenario, deployment = pykernel.load_bundle(pykernel.documents.find_scenario(SCENARIO))
    scenario.cluster.hardware = "mychip"
    with pytest.raises(DocumentError, match=r"no chip 'mychip'.*; plug-in broken \(broken-dist 0.1\): importing"):
        pykernel.documents.repos.assemble(scenario, deployment)
