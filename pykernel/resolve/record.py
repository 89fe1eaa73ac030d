"""What resolution has to tell the user: settings filled in, requests overridden, numbers that are missing.

One `Record` collects them while a deployment is resolved, in the order in which they are found.
"""

from __future__ import annotations

from pykernel.interface import CoefficientOrigin, Override

KERNEL_ASSUMPTION_SET = "pykernel"
"""The coefficient set named by the kernel's own assumptions; no registry set may have this name."""


class Record:
    """The assumptions and overrides of one resolution."""

    def __init__(self) -> None:
        self.assumptions: list[CoefficientOrigin] = []
        self.overrides: list[Override] = []

    def assume(self, name: str, value: object, reason: str) -> None:
        """Note that `name` was not stated and `value` is used, because of `reason`."""
        self.assumptions.append(CoefficientOrigin(name, KERNEL_ASSUMPTION_SET, "assumed", f"{value}: {reason}"))

    def override(self, field: str, requested: object, resolved: object, reason: str) -> None:
        """Note that the engine runs `resolved` where `requested` was asked for, because of `reason`."""
        self.overrides.append(Override(field, str(requested), str(resolved), reason))
