"""The plug-in of docs/plugins.md, installed and tested as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"


@pytest.mark.toolchain
def test_the_example_is_a_plug_in_that_holds_the_laws(tmp_path: Path) -> None:
    files = re.findall(r"^```python (\S+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for name, body in files:
        (tmp_path / name).write_text(body, encoding="utf-8")
    test_file = dict(files)["test_halved.py"]
    assert len([line for line in test_file.splitlines() if line.strip()]) <= 10
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_halved.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"[6-9]\d passed", done.stdout)

    info = tmp_path / "pykernel_halved-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pykernel-halved\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[pykernel]\nhalved = halved\n")
    environment["PYKERNEL_PLUGINS"] = "halved"
    check = ["check", "halved", "--scenario", "qwen3-14b-h100-tp1", "--law", "S6b", "--law", "S2"]
    command = [sys.executable, "-m", "pykernel.cli", *check]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("qwen3-14b-h100-tp1: 1 passed, 0 broken, 1 skipped\n"), done.stderr
