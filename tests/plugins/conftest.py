"""Fixtures of the plug-in tests."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from pykernel import registry

from .distributions import Install


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a plug-in: `install("my-dist", "1.2", "entry", SOURCE)`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv(registry.ENVIRONMENT, raising=False)

    def entry_points(group: str) -> list[metadata.EntryPoint]:
        """Those of this folder alone, whatever else is installed where the tests run."""
        found = [point for one in metadata.distributions(path=[str(site)]) for point in one.entry_points]
        return [point for point in found if point.group == group]

    monkeypatch.setattr(registry.metadata, "entry_points", entry_points)

    def write(distribution: str, version: str, entry: str, source: str) -> None:
        module = f"plugin_{entry.replace('-', '_')}_{abs(hash((str(site), distribution))):x}"
        (site / f"{module}.py").write_text(source, encoding="utf-8")
        info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[pykernel]\n{entry} = {module}\n")
        registry.installed.cache_clear()

    registry.installed.cache_clear()
    yield write
    registry.installed.cache_clear()
