"""Kernels kept as images in a folder of the caller's choice: a scenario is resolved once and not in every process.

An entry holds the image and the digest of every file that it was made from. It is used while all of them still hold
the same bytes, so nothing is trusted for its name or date; what else an answer depends on (the pool, the cost model,
the version of the package and of its core) is part of the entry's name. Whoever edits the package itself should not
keep a cache: the Python sources are not among the files.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pykernel._native import ffi, lib
from pykernel._status import library_version
from pykernel.errors import ArgumentError, ImageError
from pykernel.kernel import Kernel
from pykernel.whole_files import write_whole

if TYPE_CHECKING:
    from pykernel.documents import Inputs, Repos
    from pykernel.interface import CostModel


def entry_for(folder: str | os.PathLike[str], scenario: Path, pool: int, repos: Repos, model: str) -> Path:
    """The file that keeps the kernel of a scenario's pool."""
    roots = (repos.scenarios_root(), repos.catalog_root(), repos.registry_root())
    code = ffi.string(lib.pykernel_source_digest()).decode()
    parts = [library_version(), code, model, str(pool), *(str(path.absolute()) for path in (scenario, *roots))]
    return Path(folder) / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}.kernel"


def recall(entry: Path) -> Kernel | None:
    """The kernel of an entry; None where there is none, a file has changed since, or the entry is damaged."""
    try:
        head, _, image = entry.read_bytes().partition(b"\n")
        files: dict[str, str | None] = json.loads(head)
        fresh = all(_digest(name) == digest for name, digest in files.items())
        return Kernel.from_bytes(image) if files and fresh else None
    except (OSError, ValueError, AttributeError, ImageError):
        return None


def open_cached(
    scenario: str | os.PathLike[str], index: int, repos: Repos | None, model: str, folder: str | os.PathLike[str]
) -> CostModel:
    """As `pykernel.open_pool`, by way of a folder. Raises ArgumentError where the folder cannot be written."""
    from pykernel.documents import Repos, find_scenario, open_inputs
    from pykernel.models import new

    repos = repos or Repos()
    path = find_scenario(scenario, repos)
    entry = entry_for(folder, path, index, repos, model)
    known = recall(entry)
    if known is not None:
        return known
    inputs = open_inputs(path, repos, index)
    made = new(inputs, model=model)
    files = {name: _digest(name) for name in (*_files(inputs, repos), *_own_sets(made, inputs))}
    # Read once more, so that the digests are those of what was read even when a file is being edited.
    if type(made) is Kernel and all(files) and open_inputs(path, repos, index) == inputs:
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            write_whole(entry, json.dumps(files).encode() + b"\n" + made.to_bytes())
        except OSError as error:
            raise ArgumentError(f"the cache {os.fspath(folder)} cannot be written: {error.strerror or error}") from None
    return made


def _files(inputs: Inputs, repos: Repos) -> list[str]:
    """Every file that the inputs were read from, and that of the storage classes, whether it exists or not."""
    from pykernel.documents.rules import pack_file

    documents: list[Any] = [inputs.scenario, inputs.deployment, inputs.model, inputs.chip, *inputs.coefficients]
    if inputs.fabric is not None:
        documents.append(inputs.fabric)
    read = [document.source.file if document.source else "" for document in documents]
    storage = repos.catalog_root() / "devices" / "storage.yaml"
    return [*read, str(storage), str(pack_file(inputs.scenario.engine_version))]


def _own_sets(made: CostModel, inputs: Inputs) -> list[str]:
    """The files of the package's own coefficient sets that a cost model used beside those of the scenario."""
    from pykernel.documents import Repos

    folder = Repos().registry_root() / "coefficients"
    used = {origin.set for origin in made.provenance()} - {stated.name for stated in inputs.coefficients}
    return [str(path) for path in sorted(folder.glob("*.yaml")) if path.stem in used]


def _digest(name: str) -> str | None:
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    except OSError:
        return None
