"""Writes the tables of docs/laws.md from the laws themselves; `python docs/write_laws.py`. A test compares the two."""

from __future__ import annotations

from pathlib import Path

from pykernel.laws import ADVICE, CAPABILITIES, LAWS, MODEL

PAGE = Path(__file__).parent / "laws.md"

HEAD = """\
# Laws of a cost model

What any cost model must hold to, whatever it is made of. A law looks from outside only: at documents, batches and
answers. `pykernel check NAME` tries them, `pykernel.laws.check_model` and `parametrize_with_laws` do so in Python; see
[plug-ins](plugins.md).

A **contract** law holds for every model. A **model-specific** one holds for a model that claims to reproduce the BLIS
cost model. An **advisory** one is reported and fails nothing. Laws were taken from the published contract of
inference-sim/blis-schemas and the tests of inference-sim/blis-latency-kernel; tolerances are exact unless stated.

A model is taken to be capable of everything but what it lists in `lacks`:

"""

FAMILIES = {
    "P": "Purity",
    "S": "The estimate of a step",
    "B": "Batches",
    "M": "More work",
    "F": "Fixed bytes",
    "Q": "Bytes that grow with a sequence",
    "G": "Bounded bytes of a sequence",
    "T": "Storage tiers",
    "X": "Handoffs",
    "H": "Host work",
    "V": "Provenance",
    "R": "What would run",
    "D": "The deployment",
}

FOOT = """
Two models of one deployment must also name the links of a handoff alike: `check_links_agree(first, second, tokens,
source, target)`.

## What no law sees

A term that is wrong by a constant factor, such as half the work of a prefix, keeps every direction; so does a divisor
that is missing on both sides of an identity. An independent oracle and published figures are there for these.
"""


def page() -> str:
    text = HEAD + "".join(f"- `{name}`: {meaning}\n" for name, meaning in CAPABILITIES.items())
    for letter, title in FAMILIES.items():
        text += f"\n## {title}\n\n"
        for law in (law for law in LAWS.values() if law.id[0] == letter):
            text += f"- **{law.id}** ({_about(law)}). {law.statement} *Tried on:* {law.sweep}.\n"
    return text + FOOT


def _about(law) -> str:  # type: ignore[no-untyped-def]
    tolerance = "" if law.tolerance == "exact" else f"; {law.tolerance}"
    waived = f"; waived without `{law.needs}`" if law.needs and law.standing not in (MODEL, ADVICE) else ""
    return f"{law.standing}{tolerance}{waived}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
