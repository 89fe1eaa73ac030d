"""Prints benchmarks/RESULTS.md: everything that is measured, on this machine, in one run.

python benchmarks/report.py > benchmarks/RESULTS.md       (make bench-peers)
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import peers
from core import build, times
from instruction_counts import COMMITTED, LIMITS, key
from measures import SIZES, STARTS, array, building, no_op, opening, running, scalar, start_ns

import pykernel

HEAD = """# Results

Written by `make bench-peers`; every figure below comes from that one run. Times are the best of many short runs, which
is what a call takes when nothing else disturbs it; a busy machine still moves them by some 10%, which is why the
limits that a change is held to are instruction counts and ratios of one run.
"""

BESIDE = """\
## Beside aiconfigurator-core

{steps} random steps for each row, tensor-parallel over {width}. The peer interpolates tables of measured operations, so
it answers a different question with different means; what is compared is what a simulator waits for. *New* is a step
that the peer has not seen, the median over all; *again* one that was asked for just before. `into` is `step_time_into`
on prepared batches, new ones being the mean of the best of ten passes, since it keeps no answers; `core` is an entry of
`step_time_many`.
"""


def machine() -> str:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text(encoding="utf-8") if info.exists() else "")
    load = os.getloadavg()[0]
    lines = [
        f"- {model[1] if model else platform.machine()}, {os.cpu_count()} CPUs, {platform.system()} "
        f"{platform.release().split('-')[0]}, load {load:.1f} while measuring",
        f"- {key(os.environ.get('CC', 'gcc'))}, -O3; Python {platform.python_version()}",
        f"- {datetime.date.today().isoformat()}, pykernel {pykernel.__version__}, "
        f"aiconfigurator-core {importlib.metadata.version('aiconfigurator-core')}",
    ]
    return "\n".join(lines)


def amount(ns: float) -> str:
    """A time with three figures."""
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    align = [":--"] + ["--:"] * (len(heads) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, tuple(align), *rows)) + "\n"


def core_table(core_ns: dict[str, float]) -> str:
    counts = json.loads(COMMITTED.read_text(encoding="utf-8")).get(key(os.environ.get("CC", "gcc")), {})
    rows = [
        (name, amount(ns), f"{counts[name]:,}" if name in counts else "", f"{LIMITS[name]:,}" if name in LIMITS else "")
        for name, ns in core_ns.items()
    ]
    return table(("call", "time", "instructions", "at most"), rows)


def python_table(core_ns: dict[str, float]) -> str:
    call = no_op().ns()
    rows = [(no_op().name, amount(call), "")]
    for count in SIZES:
        unit = call + core_ns[f"deepseek-v3: {'1 decode' if count == 1 else f'{count} decodes'}"]
        rows += [(one.name, amount(ns), f"{ns / unit:.2f} c") for one in scalar(count) for ns in [one.ns()]]
    others = [*running(1), *running(4_096), *array(), *(one for count in SIZES for one in building(count)), *opening()]
    rows += [(one.name, amount(one.ns()), "") for one in others]
    rows += [(name, amount(start_ns(name)), "") for name in STARTS]
    return table(("call", "time", "in units of c"), rows)


def peer_table() -> str:
    rows = []
    for row in peers.rows():
        new, again = row.peer_new / row.into_new, row.peer_again / row.into_again
        times = (row.peer_new, row.peer_again, row.into_new, row.into_again, row.core)
        rows.append((row.what, *map(amount, times), f"{new:,.0f}", f"{again:.1f}", f"{row.peer_new / row.core:,.0f}"))
    heads = ("step", "peer, new", "peer, again", "into, new", "into, again", "core", "new / into", "again / into")
    return table((*heads, "new / core"), rows)


def main() -> None:
    core_ns = times(build())
    print(HEAD)
    print(machine())
    print("\n## The core\n\nC, by `benchmarks/c/time_calls.c`; instructions by callgrind as committed.\n")
    print(core_table(core_ns))
    print("## From Python\n\nOn deepseek-v3; c is a bare cffi call and the core's time of the same step.\n")
    print(python_table(core_ns))
    print(BESIDE.format(steps=peers.STEPS, width=peers.TENSOR_PARALLEL))
    print(peer_table(), end="")


if __name__ == "__main__":
    main()
