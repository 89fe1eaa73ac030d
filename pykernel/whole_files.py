"""Files that appear whole or not at all, whoever reads them meanwhile."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(target: Path, content: bytes) -> None:
    """Write a file beside its place and move it there. Raises `OSError` and leaves nothing behind where that fails."""
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(target)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
