"""What a law is, the list of all laws, and the subject that they are tried on.

A law is a plain generator function that yields one line for each violation it finds; the decorator `law` gives it its
id, class, statement, tolerance and sweep and enters it into `LAWS`. Laws see a model from outside only. A law that
needs what the caller did not give raises `Skipped` with the reason.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pykernel.batch import Batch
from pykernel.documents import Inputs, Pool
from pykernel.errors import DocumentError, RefusedError
from pykernel.laws.batches import random_batches, standard_batches

CONTRACT, MODEL, ADVICE = "contract", "model-specific", "advisory"

CAPABILITIES: dict[str, str] = {
    "monotone": "more work never costs less (laws M)",
    "memory": "it sizes what a rank holds (laws F)",
    "sequences": "it sizes what a sequence holds (laws Q and G)",
    "host": "it prices host work around the steps (laws H)",
    "coefficients": "it is priced from coefficients and says which (laws V)",
    "blis": "it claims to reproduce the BLIS cost model (all model-specific laws)",
}
"""What a model is taken to be capable of unless it says that it is not."""

Check = Callable[["Subject"], Iterator[str]]


class Skipped(Exception):  # noqa: N818 - it is no error
    """A law cannot be tried here; the message says why."""


@dataclass(frozen=True, slots=True)
class Law:
    """One law. `needs` is the capability that a model may waive it with, empty where it may not."""

    id: str
    standing: str
    statement: str
    tolerance: str
    sweep: str
    needs: str
    check: Check = field(repr=False, compare=False)


LAWS: dict[str, Law] = {}
"""Every law by id, in the order of docs/laws.md."""


def law(
    id: str,
    statement: str,
    *,
    sweep: str,
    tolerance: str = "exact",
    standing: str = CONTRACT,
    needs: str = "",
) -> Callable[[Check], Check]:
    """Enter a function into `LAWS`."""

    def enter(check: Check) -> Check:
        assert id not in LAWS, id
        waived_by = "blis" if standing == MODEL else needs
        LAWS[id] = Law(id, standing, statement, tolerance, sweep, waived_by, check)
        return check

    return enter


@dataclass(frozen=True, slots=True)
class Priced:
    """The values of an estimate at the time it was returned."""

    overlap: int
    no_overlap: int
    bottleneck: str
    resources: dict[str, int]

    @classmethod
    def of(cls, estimate: Any) -> Priced:
        return cls(
            estimate.overlap_ns, estimate.no_overlap_ns, str(estimate.bottleneck), dict(estimate.per_resource_ns)
        )

    def get(self, resource: str) -> int:
        return self.resources.get(resource, 0)


@dataclass
class Subject:
    """A model under test, and what is known of how it was made.

    factory : makes an equal model.
    build, inputs : makes a model of documents, and those that `model` was made of.
    """

    model: Any
    factory: Callable[[], Any] | None = None
    build: Callable[[Inputs], Any] | None = None
    inputs: Inputs | None = None

    @cached_property
    def standard(self) -> list[tuple[str, Batch]]:
        return standard_batches()

    @cached_property
    def drawn(self) -> list[tuple[str, Batch]]:
        return random_batches()

    @cached_property
    def batches(self) -> list[tuple[str, Batch]]:
        """All batches of the sweep."""
        return self.standard + self.drawn

    @cached_property
    def prices(self) -> list[tuple[str, Batch, Priced]]:
        """The whole sweep, priced once for all laws that only look at values."""
        return [(name, batch, self.price(batch)) for name, batch in self.batches]

    def price(self, batch: Batch) -> Priced:
        return Priced.of(self.model.step_time(batch))

    @cached_property
    def pool(self) -> Pool:
        pool: Pool = self.model.deployment()
        return pool

    @property
    def drafts(self) -> int:
        """Draft tokens of each step."""
        speculative = self.pool.engine.speculative
        return speculative.num_spec_tokens if speculative else 0

    @cached_property
    def page_tokens(self) -> int:
        """Tokens of a sequence in one page on all ranks that share it: the most that hold what one token does."""
        one, most = self.model.sequence_variable_bytes(1), 1
        while most < 1 << 20 and self.model.sequence_variable_bytes(2 * most) == one:
            most *= 2
        low, high = most, 2 * most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.model.sequence_variable_bytes(middle) == one else (low, middle)
        return low

    def documents(self) -> Inputs:
        """A copy of the documents. Raises `Skipped` where they were not given."""
        if self.inputs is None:
            raise Skipped("the documents of the model were not given")
        return copy.deepcopy(self.inputs)

    def again(self) -> Any:
        """An equal model. Raises `Skipped` where it is not known how to make one."""
        if self.factory is not None:
            return self.factory()
        if self.build is not None and self.inputs is not None:
            return self.build(self.documents())
        raise Skipped("no factory was given")

    def twin(self, change: Callable[[Inputs], object]) -> Any:
        """A model of changed documents. Raises `Skipped` where that cannot be made."""
        documents = self.documents()
        if self.build is None:
            raise Skipped("no factory that takes documents was given")
        change(documents)
        try:
            return self.build(documents)
        except (RefusedError, DocumentError) as error:
            raise Skipped(f"the changed deployment is refused: {str(error).splitlines()[0]}") from None

    def settings(self, **values: Any) -> Any:
        """A model with other engine settings; `tp` and the like are those of the layout."""

        def change(documents: Inputs) -> None:
            pool = documents.deployment.pools[documents.pool]
            for name, value in values.items():
                setattr(pool.parallel if hasattr(pool.parallel, name) else pool.engine, name, value)

        return self.twin(change)


def make_subject(model: Any, factory: Callable[..., Any] | None = None, inputs: Inputs | None = None) -> Subject:
    """A subject; a factory with one required argument takes documents, any other none."""
    if factory is None or not _takes_documents(factory):
        return Subject(model, factory, None, inputs)
    return Subject(model, None, factory, inputs)


def _takes_documents(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [one for one in parameters if one.default is one.empty and one.kind in (0, 1)]
    return len(required) == 1


def rising(values: Iterable[tuple[str, int]], allowance: Callable[[int], int] = lambda _: 0) -> Iterator[str]:
    """Violations of a sequence that must not fall; `allowance` is by how much the step to an index may."""
    before: tuple[str, int] | None = None
    for index, (name, value) in enumerate(values):
        if before is not None and value < before[1] - allowance(index):
            yield f"{before[0]} is {before[1]}, and {name} is less: {value}"
        before = (name, value)
