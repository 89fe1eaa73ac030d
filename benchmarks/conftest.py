"""Lets the suite import the modules beside it, which are programs as well and so in no package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
