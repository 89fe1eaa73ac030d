"""Documents of plug-ins are as good as bundled ones wherever a name is taken: used, listed, suggested."""

from __future__ import annotations

from pathlib import Path

import pytest

import pykernel
from pykernel.cli import main
from pykernel.documents import Deployment, Repos, Scenario, list_chips
from pykernel.errors import DocumentError

from .distributions import Install, documents_plugin

SCENARIO = "qwen3-14b-h100-tp1"
CONFIG = str(Path(__file__).parents[2] / "testdata" / "configs" / "qwen3-32b")
ORIGIN = "docs (docs-dist 1)"


@pytest.fixture
def bundle(install: Install) -> tuple[Scenario, Deployment]:
    """A bundled scenario to edit, where a plug-in offers one document of each kind."""
    install("docs-dist", "1", "docs", documents_plugin())
    return pykernel.load_bundle(pykernel.documents.find_scenario(SCENARIO))


def listed(section: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["list", section]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_scenario_names_documents_of_plug_ins(bundle: tuple[Scenario, Deployment]) -> None:
    scenario, deployment = bundle
    scenario.model, scenario.cluster.hardware, scenario.cluster.fabric = "mymodel", "mychip", "myfabric"
    scenario.cluster.storage, scenario.engine_version = ["mytier"], "9.9.9"
    scenario.coefficients.append("myset")
    inputs = pykernel.documents.repos.assemble(scenario, deployment)
    assert (inputs.model.name, inputs.chip.name) == ("mymodel", "mychip")
    assert inputs.fabric is not None and inputs.fabric.name == "myfabric"
    assert inputs.storage[-1].name == "mytier"
    assert inputs.coefficients[-1].name == "myset"
    assert inputs.rules is not None and inputs.rules.engine_version == "9.9.9"


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("chips", "mychip"),
        ("fabrics", "myfabric"),
        ("storage", "mytier"),
        ("coefficients", "myset"),
        ("models", "mymodel"),
    ],
)
@pytest.mark.usefixtures("bundle")
def test_they_are_listed_with_the_plug_in_that_brings_them(
    section: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *bundled, mine = listed(section, capsys)
    assert mine.startswith(name) and mine.endswith(ORIGIN)
    assert bundled and not [line for line in bundled if ORIGIN in line]


def test_a_document_that_cannot_be_loaded_hides_no_other(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    broken = documents_plugin().replace('StorageTier("mytier", 1000.0, 1000.0, 5.0)', "1 / 0")
    install("docs-dist", "1", "docs", broken)
    *bundled, mine = listed("storage", capsys)
    assert mine.startswith("mytier  error: plug-in docs (docs-dist 1): storage tier mytier cannot be loaded")
    assert bundled[0].startswith("cpu_dram")
    assert listed("chips", capsys)[-1].startswith("mychip")


@pytest.mark.parametrize(
    ("field", "wrong", "known"),
    [("hardware", "mychop", "mychip"), ("fabric", "myfabrik", "myfabric"), ("storage", ["mytears"], "mytier")],
)
def test_an_unknown_name_is_answered_with_theirs(
    bundle: tuple[Scenario, Deployment], field: str, wrong: object, known: str
) -> None:
    scenario, deployment = bundle
    setattr(scenario.cluster, field, wrong)
    with pytest.raises(DocumentError, match=rf"known: .*{known}"):
        pykernel.documents.repos.assemble(scenario, deployment)


def test_an_unknown_release_is_answered_with_theirs(bundle: tuple[Scenario, Deployment]) -> None:
    scenario, deployment = bundle
    scenario.engine_version = "9.9.8"
    with pytest.raises(DocumentError, match=r"accepted, to the letter: 0\.29\.0, .*9\.9\.9"):
        pykernel.documents.repos.assemble(scenario, deployment)


@pytest.mark.usefixtures("bundle")
def test_a_config_is_priced_on_their_chip_with_their_coefficients(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = pykernel.inputs_from_config(CONFIG, "mychip", coefficients=["myset"])
    assert (inputs.chip.name, inputs.coefficients[-1].name) == ("mychip", "myset")
    with pytest.raises(DocumentError, match=r"no coefficient set 'mysett'.*did you mean myset"):
        pykernel.inputs_from_config(CONFIG, "mychip", coefficients=["mysett"])
    command = ["check-deployment", "--config", CONFIG, "--chip"]
    assert main([*command, "mychip", "--coefficients", "myset"]) == 1
    assert "no coefficient of cost-model-primitives" in " ".join(capsys.readouterr().out.split())
    assert main(["price", "--config", CONFIG]) == 2
    assert "mychip" in capsys.readouterr().err
    assert main(["price", SCENARIO, "--coefficients", "myset"]) == 2
    assert "--coefficients goes with --config" in capsys.readouterr().err


@pytest.mark.usefixtures("bundle")
def test_their_model_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "mymodel"]) == 0
    assert capsys.readouterr().out.split()[:2] == ["model", "mymodel,"]
    assert main(["model", "mymodl"]) == 2
    assert "did you mean mymodel" in capsys.readouterr().err


@pytest.mark.usefixtures("bundle")
def test_their_chip_is_among_those_that_a_model_might_fit() -> None:
    from pykernel.cli.memory import _chips

    assert [chip.name for chip in _chips(Repos())] == [*list_chips(), "mychip"]
