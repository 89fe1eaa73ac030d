"""Builds the source distribution and, from it and nothing else, the wheel that the tests beside this file examine.

Both are built from a copy of the tree, so that no left-over of an earlier build in this folder can hide a mistake,
and without a network: the build tools are those of the environment that runs the tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.so", "*.egg-info", "__pycache__")


def run(*command: str | Path, cwd: Path) -> str:
    """Return what `command` printed; fail the test with both streams when it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed in {cwd}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
    run(sys.executable, "-c", f"from setuptools import build_meta as b; b.build_sdist({str(folder)!r})", cwd=tree)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder, sdist, cwd=folder)
    (archive,) = folder.glob("*.whl")
    return archive


@pytest.fixture(scope="session")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder far from the tree with an environment `fresh` in it that has the wheel.

    What the package depends on comes from the testing environment, by a .pth file: Python adds the folder that such
    a file names but does not read the .pth files inside it, so an editable install there stays out of sight.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "fresh", with_pip=False, symlinks=True)
    python = folder / "fresh" / "bin" / "python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(site, "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n", encoding="utf-8")
    return folder
