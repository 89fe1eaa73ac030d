"""The laws that any cost model is held to, and ways to try them.

`check_model` tries them on one model; `pykernel check` does so by name, and `pykernel.laws.testing` inside pytest.
docs/laws.md says what they are. They look at a model from outside only, whatever it is made of.
"""

from __future__ import annotations

from importlib import import_module

from pykernel.laws.checking import REPRESENTATIVE, Report, Skip, Violation, check_model
from pykernel.laws.handoffs import PDCase, check_links_agree, check_pd_transfer, pd_cases, test_pd_transfer
from pykernel.laws.law import ADVICE, CAPABILITIES, CONTRACT, LAWS, MODEL, Law, put_in_order

_MODULES = "purity step batch work memory sequences bounded transfers handover accessors provenance crossing placement"
for _module in _MODULES.split():
    import_module(f"pykernel.laws.{_module}")  # each enters its laws
put_in_order()

__all__ = [
    "ADVICE",
    "CAPABILITIES",
    "CONTRACT",
    "LAWS",
    "MODEL",
    "REPRESENTATIVE",
    "Law",
    "PDCase",
    "Report",
    "Skip",
    "Violation",
    "check_links_agree",
    "check_model",
    "check_pd_transfer",
    "parametrize_with_laws",
    "pd_cases",
    "test_pd_transfer",
]


def __getattr__(name: str) -> object:
    """`parametrize_with_laws` needs pytest, which is imported when it is asked for."""
    if name == "parametrize_with_laws":
        from pykernel.laws.testing import parametrize_with_laws

        return parametrize_with_laws
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
