"""The subject that laws are tried on: a model, what is known of how it was made, and twins of it."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pykernel import models
from pykernel.batch import Batch
from pykernel.documents import Fabric, Inputs, PdTransfer, Pool
from pykernel.documents.recent import copy_set
from pykernel.errors import DocumentError, RefusedError
from pykernel.laws.batches import random_batches, standard_batches
from pykernel.laws.law import Refused, Skipped
from pykernel.laws.observations import vector


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
        return copied(self.given)

    @property
    def given(self) -> Inputs:
        """The documents themselves, to be read. Raises `Skipped` where they were not given."""
        if self.inputs is None:
            raise Skipped("the documents of the model were not given")
        return self.inputs

    def again(self) -> Any:
        """An equal model. Raises `Skipped` where it is not known how to make one."""
        if self.factory is not None:
            return self.factory()
        if self.build is not None and self.inputs is not None:
            return self.build(self.documents())
        raise Skipped("no factory was given")

    @cached_property
    def _start(self) -> Inputs:
        """What twins are made of: the documents without entries for other parts, where that changes no answer.

        Most entries are for other parts, and a law may need a hundred twins.
        """
        few = self.documents()
        if self.build is None:
            raise Skipped("no factory that takes documents was given")
        for entries in few.coefficients:
            entries.coefficients = [one for one in entries.coefficients if _concerns(one.scope.hardware, few)]
        few.coefficients = [entries for entries in few.coefficients if entries.coefficients]
        batches = self.standard[:5]
        try:
            alike = vector(self.build(copied(few)), batches) == vector(self.model, batches)
        except Exception:
            alike = False
        return few if alike else self.documents()

    def twin(self, change: Callable[[Inputs], object]) -> Any:
        """A model of changed documents. Raises `Skipped` where that cannot be made."""
        documents = copied(self._start)
        assert self.build is not None
        change(documents)
        try:
            return self.build(documents)
        except (RefusedError, DocumentError) as error:
            raise Refused(f"the changed deployment is refused: {str(error).splitlines()[0]}") from None

    def settings(self, **values: Any) -> Any:
        """A model with other engine settings; `tp` and the like are those of the layout. Kept for other laws."""
        key = repr(sorted(values.items()))
        if key not in self._made:
            self._made[key] = self.twin(partial(settle, **values))
        return self._made[key]

    @cached_property
    def _made(self) -> dict[str, Any]:
        return {}

    @cached_property
    def pools(self) -> list[tuple[Pool, Any]]:
        """Each pool of the deployment with its model; of one pool, those of a deployment that has it twice."""
        documents = self.documents()
        if self.build is None:
            raise Skipped("no factory that takes documents was given")
        if len(documents.deployment.pools) < 2:
            _handed_over(documents)
        pools = documents.deployment.pools
        try:
            return [(pool, self.build(replace(copied(documents), pool=index))) for index, pool in enumerate(pools)]
        except (RefusedError, DocumentError) as error:
            raise Refused(f"a deployment of two pools is refused: {str(error).splitlines()[0]}") from None

    def each(self, name: str, values: Iterable[int], **others: Any) -> list[tuple[int, Any]]:
        """Models by one setting, those that can be made. Raises `Skipped` where fewer than two can."""
        made = []
        for value in values:
            try:
                made.append((value, self.settings(**{name: value}, **others)))
            except Refused:
                continue
        if len(made) < 2:
            raise Skipped(f"fewer than two values of {name} can be made")
        return made


def copied(inputs: Inputs) -> Inputs:
    """A deep copy; the coefficients, which are most of it, by the quick way that their loader has."""
    rest = copy.deepcopy(replace(inputs, coefficients=[]))
    rest.coefficients = [copy_set(entries) for entries in inputs.coefficients]
    return rest


def _concerns(hardware: list[str], documents: Inputs) -> bool:
    return not hardware or documents.chip is None or documents.chip.name in hardware


def settle(documents: Inputs, **values: Any) -> None:
    """State settings of the pool, and give it the nodes that its ranks then need, and these a fabric."""
    pool, cluster = documents.deployment.pools[documents.pool], documents.scenario.cluster
    for name, value in values.items():
        setattr(pool.parallel if hasattr(pool.parallel, name) else pool.engine, name, value)
    missing = max(-(-pool.parallel.ranks() // cluster.gpus_per_node) - pool.nodes, 0)
    pool.nodes, cluster.nodes = pool.nodes + missing, cluster.nodes + missing
    if cluster.nodes > 1 and documents.fabric is None:
        documents.fabric, cluster.fabric = Fabric("a fabric", "vendor_spec", 50.0, True), "a fabric"


def _handed_over(documents: Inputs) -> None:
    """Let one pool prefill and another like it decode, on nodes of their own."""
    (pool,) = documents.deployment.pools
    documents.deployment.pools = [replace(copy.deepcopy(pool), role=role) for role in ("prefill", "decode")]
    documents.deployment.pd_transfer = PdTransfer("NixlConnector")
    documents.scenario.cluster.nodes += pool.nodes
    settle(documents)


def make_subject(model: Any, factory: Callable[..., Any] | str | None = None, inputs: Inputs | None = None) -> Subject:
    """A subject; a factory with one required argument takes documents, any other none."""
    make: Callable[..., Any] | None = Named(factory) if isinstance(factory, str) else factory
    if make is None or not _takes_documents(make):
        return Subject(model, make, None, inputs)
    return Subject(model, None, make, inputs)


@dataclass(frozen=True, slots=True)
class Named:
    """A factory by name, which another process can look up as well: a registered cost model, or `module:attribute`."""

    name: str

    def __call__(self, inputs: Inputs) -> Any:
        module, _, attribute = self.name.partition(":")
        if not attribute:
            return models.new(inputs, model=self.name)
        return getattr(importlib.import_module(module), attribute)(inputs)


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


def unbounded(subject: Subject) -> None:
    """Go on only for models whose every decode reads its whole context, on one rank; raise `Skipped` for others."""
    nodes = [node for kind in subject.given.model.layer_kinds for node in kind.nodes]
    kinds = {node.kind for node in nodes if node.op == "Attention"}
    if kinds - {"gqa", "mha", "mqa", "mla"} or any(node.window for node in nodes):
        raise Skipped("the model has attention that bounds its reads")
    if any(node.op == "RecurrentUpdate" for node in nodes):
        raise Skipped("the model has recurrent layers")
    if subject.model.decode_context_parallel_width() > 1:
        raise Skipped("decode-context ranks round each request")
