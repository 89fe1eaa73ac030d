"""Each distribution under `plugins/`, and that of the plug-ins page: installed it works, uninstalled it is gone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

import pykernel

ROOT = Path(__file__).resolve().parents[2]
PLUGINS, PAGE = ROOT / "plugins", ROOT / "docs" / "plugins.md"
NAMES = sorted(path.parent.name for path in PLUGINS.glob("*/pyproject.toml"))
ENTRY = "copied"
"""An entry point of its own for each, so that a plug-in that is installed here anyway plays no part."""

EXAMPLE = "halved"
"""The plug-in that the page about plug-ins makes."""

USES = {
    EXAMPLE: ["price", "qwen3-14b-h100-tp1", "--decode", "8x1024", "--model", "halved"],
    "chips": ["price", "chips/example.yaml", "--decode", "8x1024"],
    "python-reference": ["price", "qwen3-14b-h100-tp1", "--decode", "8x1024", "--model", "python-reference"],
    "roofline": ["price", "qwen3-14b-h100-tp1", "--decode", "8x1024", "--model", "roofline"],
    "tiers": ["price", "tiers/example.yaml", "--decode", "8x1024"],
}
"""By plug-in: a command that works with it alone, run beside its folder."""

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that borrows pykernel and what builds a wheel from this one, by a .pth file."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(pykernel.__file__).parents[1])}
    (site / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n", encoding="utf-8")
    return folder / "bin" / "python"


@pytest.fixture(params=[*NAMES, EXAMPLE])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a plug-in's folder, of the plug-in's name, or the files of the page, with the entry point renamed."""
    name: str = request.param
    copy = tmp_path / name
    if name == EXAMPLE:
        copy.mkdir()
        for file, text in re.findall(r"^```\w+ (\S+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
            (copy / file).write_text(text)
    else:
        shutil.copytree(PLUGINS / name, copy, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    project = copy / "pyproject.toml"
    head, _, tail = project.read_text().partition("[project.entry-points.pykernel]\n")
    project.write_text(f"{head}[project.entry-points.pykernel]\n{ENTRY} = {tail.partition('= ')[2]}")
    return copy


def run(python: Path, source: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYKERNEL_PLUGINS": ENTRY}
    whole = [str(python), "-m", "pykernel.cli", *command]
    return subprocess.run(whole, cwd=source.parent, env=environment, capture_output=True, text=True, check=False)


def plugins(python: Path, source: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run(python, source, "plugins", "--json").stdout)
    return report


def pip(python: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_installing_it_is_all_that_it_takes(python: Path, source: Path) -> None:
    pip(python, "install", "--no-index", "--no-deps", "--no-build-isolation", str(source))
    try:
        installed = plugins(python, source)
        assert installed["left_out"] == []
        [_, mine] = installed["plugins"]
        assert (mine["name"], mine["distribution"]) == (ENTRY, f"pykernel-{source.name}")
        assert mine["offers"] and all(offer["source"] for offer in mine["offers"])
        if source.name in USES:
            used = run(python, source, *USES[source.name])
            assert used.returncode == 0 and "bottleneck  hbm" in used.stdout, used.stderr
    finally:
        pip(python, "uninstall", "--yes", f"pykernel-{source.name}")
    gone = plugins(python, source)
    assert [plugin["name"] for plugin in gone["plugins"]] == ["pykernel"]
    assert [failure["name"] for failure in gone["left_out"]] == [ENTRY]
    if source.name in USES:
        unknown = run(python, source, *USES[source.name])
        assert unknown.returncode != 0
        assert "plug-in copied: no installed plug-in has this name" in unknown.stderr


def test_each_has_what_a_distribution_needs() -> None:
    for name in NAMES:
        files = {path.relative_to(PLUGINS / name).as_posix() for path in (PLUGINS / name).rglob("*")}
        package = f"pykernel_{name.replace('-', '_')}"
        assert {"README.md", f"{package}/__init__.py", f"{package}/py.typed"} <= files
        assert any(file.startswith("tests/test_") for file in files)
