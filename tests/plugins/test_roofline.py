"""The roofline as its users get it: installed it is a cost model by name, and gone when it is gone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "plugins" / "roofline"
PRICE = ["-m", "pykernel.cli", "price", "qwen3-14b-h100-tp1", "--decode", "8x1024", "--model", "roofline"]


def price(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "PYKERNEL_PLUGINS": "copied"}
    return subprocess.run(
        [sys.executable, *PRICE], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.toolchain
def test_installing_it_is_all_that_it_takes(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    # Under an entry point of its own, so that a roofline that is installed here anyway plays no part.
    project = source / "pyproject.toml"
    project.write_text(project.read_text().replace('roofline = "pykernel_roofline"', 'copied = "pykernel_roofline"'))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([*pip, str(source)], check=True, capture_output=True)
    found = price(tmp_path, site)
    assert (found.returncode, "bottleneck  hbm" in found.stdout) == (0, True), found.stderr
    shutil.rmtree(site)
    gone = price(tmp_path, site)
    assert gone.returncode == 2
    assert "there is no cost model 'roofline'" in gone.stderr
    assert "plug-in copied: no installed plug-in has this name" in gone.stderr
