"""What this version cannot price is refused by its field, every entry of the table and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykernel import Inputs, RefusedError
from pykernel.documents import Dbo, list_scenarios
from pykernel.resolve.unpriced import UNPRICED, refuse_unpriced

Fresh = Callable[..., Inputs]


def overlap(documents: Inputs) -> None:
    documents.deployment.pools[0].engine.dbo = Dbo(enable_dbo=True)


def overlap_turned_off(documents: Inputs) -> None:
    documents.deployment.pools[0].engine.dbo = Dbo(False, 32, 512)


ASKED: dict[str, tuple[Callable[[Inputs], None], Callable[[Inputs], None]]] = {
    "engine.dbo.enable_dbo": (overlap, overlap_turned_off),
}


def check(documents: Inputs) -> None:
    refuse_unpriced(documents.model, documents.deployment.pools[0].engine)


def test_every_entry_of_the_table_is_tested_here() -> None:
    assert [entry.field for entry in UNPRICED] == list(ASKED)


@pytest.mark.parametrize("field", ASKED)
def test_an_unpriced_feature_is_refused_by_its_field_and_accepted_without(field: str, fresh: Fresh) -> None:
    ask, do_not = ASKED[field]
    documents = fresh()
    ask(documents)
    with pytest.raises(RefusedError) as caught:
        check(documents)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ") and "not priced" in str(caught.value)
    control = fresh()
    do_not(control)
    check(control)


@pytest.mark.parametrize("scenario", list_scenarios())
def test_no_bundled_scenario_asks_for_anything_unpriced(scenario: str, fresh: Fresh) -> None:
    check(fresh(scenario))
