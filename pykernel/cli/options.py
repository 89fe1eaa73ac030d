"""Options that several subcommands take: what is priced, the roots that documents are under, checked integers."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path

from pykernel.cli import UsageError
from pykernel.documents import Inputs, Repos, list_chips

ROOTS = {"scenarios": "BLIS_SCENARIOS", "catalog": "BLIS_CATALOG", "registry": "BLIS_REGISTRY"}
"""Each root and the environment variable that gives it where the option does not."""

LARGEST = 2**31 - 1
"""Of any count on the command line or in a batch file; the most tokens that a step can have."""


def add_roots(parser: argparse.ArgumentParser) -> None:
    """Add one option for each root."""
    group = parser.add_argument_group("where documents are (by default those that come with pykernel)")
    for root, variable in ROOTS.items():
        group.add_argument(f"--{root}", metavar="DIR", help=f"folder of the {root}; or set {variable}")


def add_pool_and_model(parser: argparse.ArgumentParser) -> None:
    """Add which pool of the deployment is priced, and by which cost model."""
    parser.add_argument("--pool", metavar="N", type=count(), default=0, help="pool of the deployment, from 0")
    known = "blis (published laws; the default), calibrated (fitted to measurements), or a plug-in's"
    parser.add_argument("--model", metavar="NAME", default="blis", help=f"cost model: {known}")


def repos(options: argparse.Namespace) -> Repos:
    """The roots that the options name, else the environment. Raises `UsageError` for one that is no folder."""
    found: dict[str, str | None] = {}
    for root, variable in ROOTS.items():
        given = getattr(options, root)
        path = given or os.environ.get(variable) or None
        if path is not None and not Path(path).is_dir():
            raise UsageError(f"{f'--{root}' if given else variable} is {path!r}, which is no folder")
        found[root] = path
    return Repos(**found)


def count(least: int = 0) -> Callable[[str], int]:
    """A type for argparse: a whole number from `least` to `LARGEST`."""

    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,10}", text, re.ASCII) or not least <= int(text) <= LARGEST:
            raise argparse.ArgumentTypeError(f"found {text!r}, accepted is a whole number from {least} to {LARGEST}")
        return int(text)

    return parse


# ---- a model without a scenario --------------------------------------------------------------------------------

_WIDTHS = {"tp": "tensor-parallel", "dp": "data-parallel", "pcp": "prefill-context-parallel", "dcp": "decode-context"}
_SETTINGS: dict[str, type] = {
    "quantization": str,
    "cache_dtype": str,
    "block_size": int,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "max_model_len": int,
    "cudagraph_mode": str,
    "all2all_backend": str,
    "mamba_cache_mode": str,
    "gpu_memory_utilization": float,
}
"""Engine settings that a model without a scenario is priced with; what is left out is the engine's default."""


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Add what is priced: a scenario, or in its place a model's config and the layout that serves it."""
    parser.add_argument("scenario", metavar="SCENARIO", nargs="?", help="the path of a file, or the name of a scenario")
    group = parser.add_argument_group("in the place of a scenario")
    group.add_argument("--config", metavar="FILE", help="a HuggingFace config.json, or the folder that holds one")
    group.add_argument("--chip", metavar="NAME", help="a chip of the catalog or of a plug-in")
    group.add_argument(
        "--coefficients", metavar="SET", action="append", help="a coefficient set beside those of the registry"
    )
    for width, meaning in _WIDTHS.items():
        group.add_argument(f"--{width}", metavar="N", type=count(1), help=f"{meaning} ranks")
    group.add_argument("--ep", action="store_true", help="divide the experts over the ranks")
    group.add_argument("--fabric", metavar="NAME", help="the network, where one node is too small")
    for setting, kind in _SETTINGS.items():
        group.add_argument(f"--{setting.replace('_', '-')}", metavar="N" if kind is not str else "NAME", type=_of(kind))


def _of(kind: type) -> Callable[[str], object]:
    return count() if kind is int else kind


def check_subject(options: argparse.Namespace) -> None:
    """Raise `UsageError` unless the options name one thing to price, and nothing that goes with the other."""
    given = [name for name in (*_WIDTHS, *_SETTINGS, "chip", "coefficients", "ep", "fabric") if getattr(options, name)]
    if options.config is None:
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} goes with --config; a scenario states it in its file")
        if options.scenario is None:
            raise UsageError("name a SCENARIO, or a model's --config with a --chip")
    elif options.scenario is not None:
        raise UsageError(f"--config stands for a scenario; leave out {options.scenario!r}, or --config")
    elif not options.chip:
        from pykernel.registry import installed

        known = sorted({*list_chips(repos(options)), *installed().plugged_in("chips")})
        raise UsageError(f"--config needs a --chip; there are {', '.join(known)}")


def open_subject(options: argparse.Namespace, pool: int = 0) -> Inputs:
    """The inputs that the options name. Raises `UsageError` as `check_subject`, otherwise as loading does."""
    import pykernel

    check_subject(options)
    if options.config is None:
        return pykernel.open_inputs(options.scenario, repos(options), pool)
    if pool:
        raise UsageError("a model without a scenario is one pool; leave out --pool")
    return pykernel.inputs_from_config(
        options.config,
        options.chip,
        repos=repos(options),
        enable_expert_parallel=options.ep,
        fabric=options.fabric or "",
        coefficients=options.coefficients or (),
        **{name: getattr(options, name) for name in (*_WIDTHS, *_SETTINGS) if getattr(options, name) is not None},
    )
