"""The binary interface of the C library as text: every function, and where every member of every struct lies.

`abi.txt` beside this file is the committed copy. A test compares the two, so that nothing changes unnoticed; after a
change that is meant, run `python tests/embed/abi.py` and raise PK_VERSION_MINOR.
"""

from __future__ import annotations

from pathlib import Path

from pykernel._native import ffi, lib

COMMITTED = Path(__file__).with_name("abi.txt")


def describe() -> str:
    """One line a function, constant or member, in a fixed order."""
    lines = [f"version {lib.pk_version() // 100 * 100}"]
    for name in sorted(dir(lib)):
        value = getattr(lib, name)
        if name.startswith("PK_"):
            lines.append(f"constant {name} {value}")
        elif name.startswith("pk_"):
            lines.append(f"function {name} {ffi.typeof(getattr(lib, name)).cname}" if callable(value) else name)
    typedefs, _, _ = ffi.list_types()
    for name in sorted(name for name in typedefs if name.startswith("pk_")):
        kind = ffi.typeof(name)
        if name == "pk_kernel" or kind.kind != "struct":
            continue
        lines.append(f"struct {name} {ffi.sizeof(name)}")
        lines += [f"    {member} {field.offset} {field.type.cname}" for member, field in kind.fields]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    COMMITTED.write_text(describe(), encoding="utf-8")
