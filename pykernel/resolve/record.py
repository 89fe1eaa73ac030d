"""What resolution has to tell the user: refusals, settings filled in, requests overridden, numbers that are missing.

One `Record` collects them while a deployment is resolved. It either stops at the first refusal, which is what building
a kernel needs, or notes every one, for a report on a whole deployment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykernel.documents.vocabulary import RESERVED_SET
from pykernel.errors import RefusedError
from pykernel.interface import CoefficientOrigin, Override

if TYPE_CHECKING:
    from pykernel.resolve.case import Case
    from pykernel.resolve.refusals import Refusal

KERNEL_ASSUMPTION_SET = RESERVED_SET
"""The coefficient set named by the kernel's own assumptions."""


class Record:
    """The refusals, assumptions and overrides of one resolution, each in the order in which it was found.

    `collecting`: note refusals instead of raising the first.
    """

    def __init__(self, *, collecting: bool = False) -> None:
        self.collecting = collecting
        self.refusals: list[RefusedError] = []
        self.assumptions: list[CoefficientOrigin] = []
        self.overrides: list[Override] = []

    def check(self, rows: Iterable[Refusal], case: Case) -> bool:
        """Whether no row refuses the case. Raises `RefusedError` for the first that does, unless it collects."""
        held = True
        for row in rows:
            found = row.finds(case)
            if found:
                held = False
                error = row.error(found, case)
                if not self.collecting:
                    raise error
                self.refusals.append(error)
        return held

    def assume(self, name: str, value: object, reason: str) -> None:
        """Note that `name` was not stated and `value` is used, because of `reason`."""
        self.assumptions.append(CoefficientOrigin(name, KERNEL_ASSUMPTION_SET, "assumed", f"{value}: {reason}"))

    def override(self, field: str, requested: object, resolved: object, reason: str) -> None:
        """Note that the engine runs `resolved` where `requested` was asked for, because of `reason`."""
        self.overrides.append(Override(field, str(requested), str(resolved), reason))
