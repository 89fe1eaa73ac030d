"""What one engine release accepts and how it decides: a rules pack, loaded from `pykernel/data/rules/`.

A pack is data, a file for each release under its exact version, so that an engine release changes no code. The rules
that a pack switches on by name are in `engine_rules.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pykernel.documents import engine_rules
from pykernel.documents.deployment import Deployment
from pykernel.documents.fieldtypes import Report, did_you_mean, record
from pykernel.documents.graph import ModelGraph
from pykernel.documents.loading import finish
from pykernel.documents.nodes import shown
from pykernel.documents.reader import read_file
from pykernel.documents.scenario import Scenario
from pykernel.errors import DocumentError, Problem

PACKS = Path(__file__).parent.parent / "data" / "rules"


@dataclass(frozen=True)
class Rules:
    """The facts of one engine release; `rules` names the rules that hold for it.

    Thresholds are in tokens, the page size in bytes. `dcp_comm_backends` is None for a release without such a list.
    A fetch withholds SMs for pages of exactly `offload_fetch_page_bytes`, or where `offload_fetch_below` for smaller
    ones that are a multiple of `offload_fetch_alignment`.
    """

    engine_version: str
    rules: tuple[str, ...]
    all2all_backends: tuple[str, ...]
    sp_moe_backends: tuple[str, ...]
    allreduce_backends: tuple[str, ...]
    custom_allreduce_widths: tuple[int, ...]
    cudagraph_modes: tuple[str, ...]
    cache_dtypes: tuple[str, ...]
    mamba_cache_modes: tuple[str, ...]
    scheduling_policies: tuple[str, ...]
    speculative_methods: tuple[str, ...]
    async_speculative_methods: tuple[str, ...]
    offload_specs: tuple[str, ...]
    eviction_policies: tuple[str, ...]
    connectors: tuple[str, ...]
    quantizations: tuple[str, ...]
    dbo_decode_token_threshold: int
    dbo_prefill_token_threshold: int
    offload_fetch_page_bytes: int
    offload_fetch_sm_count: int
    cascade_attention_opt_in: bool
    dcp_comm_backends: tuple[str, ...] | None = None
    offload_fetch_below: bool = False
    offload_fetch_alignment: int = 1
    dbo_backends: tuple[str, ...] = ()
    replaced_all2all_backends: tuple[str, ...] = ()
    pcp_speculative_methods: tuple[str, ...] = ()

    def sequence_parallel_moe(self, backend: str, expert_parallel: bool, tp: int, dp: int) -> bool:
        """Whether the experts' input is split over the tensor-parallel ranks; an unstated backend ("") never does."""
        return expert_parallel and tp > 1 and dp > 1 and backend in self.sp_moe_backends

    def supports_custom_all_reduce(self, width: int) -> bool:
        """Whether the engine's own all-reduce kernel exists for a group of that many ranks."""
        return width in self.custom_allreduce_widths

    def offload_fetch_sms(self, page_bytes: int) -> int:
        """SMs that a fetch of pages of this size withholds from compute.

        A page is one block of one layer on one rank, in bytes. Where layers differ, the largest decides; a fetch of
        few pages may use the copy engine whatever their size, which this does not know.
        """
        if self.offload_fetch_below:
            runs = 0 < page_bytes < self.offload_fetch_page_bytes and page_bytes % self.offload_fetch_alignment == 0
        else:
            runs = page_bytes == self.offload_fetch_page_bytes
        return self.offload_fetch_sm_count if runs else 0

    def dual_batch_overlap(self, enabled: bool, tokens: int, uniform_decode: bool) -> bool:
        """Whether a batch of that many tokens is split in two."""
        least = self.dbo_decode_token_threshold if uniform_decode else self.dbo_prefill_token_threshold
        return enabled and tokens >= least

    def check(
        self, scenario: Scenario | None, deployment: Deployment | None, model: ModelGraph | None
    ) -> list[Problem]:
        """The findings of the release's rules over documents without field errors; a rule that lacks its document
        finds nothing. None of them stops a price."""
        return engine_rules.findings(self, scenario, deployment, model)


def versions(directory: str | os.PathLike[str] | None = None) -> list[str]:
    """The engine releases that have a pack, sorted."""
    return sorted(path.stem for path in _directory(directory).glob("*.yaml"))


def rules(engine_version: str, directory: str | os.PathLike[str] | None = None) -> Rules:
    """The pack of a release, by its exact version.

    Parameters: `directory`, where the packs are (the package's own by default).
    Raises: DocumentError naming the known versions, or what is wrong with the pack's file.
    """
    known = versions(directory)
    if engine_version not in known:
        raise DocumentError([unknown_version(engine_version, "error", directory)])
    return load(pack_file(engine_version, directory))


def pack_file(engine_version: str, directory: str | os.PathLike[str] | None = None) -> Path:
    """Where the pack of a release is."""
    return _directory(directory) / f"{engine_version}.yaml"


def load(path: str | os.PathLike[str]) -> Rules:
    """The pack in a file. Raises DocumentError, also where the pack names a rule that does not exist."""
    reading = read_file(path, ("rules",))
    root = reading.roots[0]
    report = Report(reading.file, "rules", reading.problems)
    pack = record(Rules).read(root, root.line, None, report)
    for index, name in enumerate(pack.rules if isinstance(pack, Rules) else ()):
        if name not in engine_rules.RULES:
            known = ", ".join(engine_rules.RULES)
            message = f"found {shown(name)}{did_you_mean(name, engine_rules.RULES)}; accepted: {known}"
            report.add(((None, "rules"), index), root.lines["rules"], message)
    finish(reading)
    assert isinstance(pack, Rules)
    return pack


def findings(scenario: Scenario, deployment: Deployment | None, model: ModelGraph | None) -> list[Problem]:
    """The rule layer of a report: the pack's findings, or the one warning that no pack exists for the release."""
    if scenario.engine_version not in versions():
        return [unknown_version(scenario.engine_version, "warning", None, scenario)]
    return rules(scenario.engine_version).check(scenario, deployment, model)


def unknown_version(
    version: str,
    severity: str,
    directory: str | os.PathLike[str] | None = None,
    scenario: Scenario | None = None,
    others: Iterable[str] = (),
) -> Problem:
    """The problem of a release without a pack; `others` are known beside the files."""
    known = sorted({*versions(directory), *others})
    message = f"no rules pack for engine {shown(version)}{did_you_mean(str(version), known)}"
    message += f"; accepted, to the letter: {', '.join(known)}; no rule of the engine was applied"
    source = scenario.source if scenario is not None else None
    file, line = (source.file, source.line("engine_version")) if source else ("", 0)
    return Problem(severity, "scenario.engine_version", message, file, line, "engine-version-known")


def _directory(directory: str | os.PathLike[str] | None) -> Path:
    return PACKS if directory is None else Path(directory)
