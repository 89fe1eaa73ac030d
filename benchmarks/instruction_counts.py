"""Counts the instructions of the hot calls of the core with callgrind, and compares them with the committed ones.

    python benchmarks/instruction_counts.py            prints the counts
    python benchmarks/instruction_counts.py --check    exits with 1 when a count is over its limit, or has grown by
                                                       more than 3% over the one committed for this compiler
    python benchmarks/instruction_counts.py --write    commits the counts to instruction_counts.json

A count is exact and the same on every run, so that a change of a few instructions shows; but it belongs to one version
of one compiler. Counts of others are printed, and only held to the limits.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from core import BUILD, build

COMMITTED = Path(__file__).with_name("instruction_counts.json")
GROWTH = 1.03
LIMITS = {
    "deepseek-v3: 1 decode": 700,
    "deepseek-v3: 256 decodes": 3_000,
    "deepseek-v3: next step of 4096 running decodes": 1_000,
    "deepseek-v3: 4096 running decodes advance and step": 1_000,
    "calibrated deepseek-v3: 256 decodes": 3_500,
    "calibrated deepseek-v4-pro: 255 decodes and a prefill": 18_000,
}
"""The most that some calls may take, whatever the compiler."""

MOST_PER_DECODE = 9
COUNTED = ("pk_step_time", "pk_step_time_many", "pk_batch_state_step_time", "pk_batch_state_advance")


def key(compiler: str) -> str:
    """What a count belongs to: `gcc 12.2.0 x86_64`."""
    version = subprocess.run([compiler, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=True)
    return f"{Path(compiler).name} {version.stdout.strip()} {platform.machine()}"


def count(program: Path, index: int) -> tuple[str, int] | None:
    """The name of a call and its instructions; None past the last one."""
    output = BUILD / "callgrind.out"
    inside = [f"--toggle-collect={name}" for name in COUNTED]
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", "--collect-atstart=no", *inside]
    done = subprocess.run([*command, program, str(index)], capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    return (done.stdout.strip(), int(found[1])) if found and done.stdout else None


def counts(compiler: str) -> dict[str, int]:
    """The instructions of every call."""
    program, found = build(compiler), dict[str, int]()
    while one := count(program, len(found)):
        found[one[0]] = one[1]
    return found


def complaints(found: dict[str, int], committed: dict[str, int]) -> list[str]:
    """What is wrong with counts: over a limit, or grown."""
    wrong = [f"{name} has a limit and is not counted" for name in LIMITS if name not in found]
    limits = {name: most for name, most in LIMITS.items() if name in found}
    wrong += [f"{name} takes {found[name]:,}, at most {most:,}" for name, most in limits.items() if found[name] > most]
    decodes = (found["deepseek-v3: 4096 decodes"] - found["deepseek-v3: 256 decodes"]) / (4096 - 256)
    if decodes > MOST_PER_DECODE:
        wrong.append(f"a further decode takes {decodes:.2f}, at most {MOST_PER_DECODE}")
    shallow, deep = found["llama-3.1-70b: 1 decode"], found["llama-3.1-70b, three times as deep: 1 decode"]
    if shallow != deep:
        wrong.append(f"three times the layers take {deep:,} instead of {shallow:,}")
    for name, now in found.items():
        if name in committed and now > committed[name] * GROWTH:
            wrong.append(f"{name} takes {now:,}, committed are {committed[name]:,}")
    return wrong


def main(arguments: list[str]) -> int:
    compiler = os.environ.get("CC", "gcc")
    missing = [tool for tool in (compiler, "valgrind") if not shutil.which(tool)]
    if missing:
        print(f"instructions are not counted: {', '.join(missing)} is not installed")
        return 0
    known: dict[str, dict[str, int]] = json.loads(COMMITTED.read_text(encoding="utf-8"))
    name, found = key(compiler), counts(compiler)
    committed = known.get(name, {})
    print(f"instructions, {name}, -O3" + ("" if committed else f"; committed are only {', '.join(known)}"))
    for call, now in found.items():
        before = f"   committed {committed[call]:>9,}" if call in committed else ""
        print(f"{now:>9,}  {call}{before}")
    if "--write" in arguments:
        known[name] = found
        COMMITTED.write_text(json.dumps(known, indent=4) + "\n", encoding="utf-8")
    if "--check" in arguments:
        for complaint in (wrong := complaints(found, committed)):
            print(complaint, file=sys.stderr)
        return bool(wrong)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
