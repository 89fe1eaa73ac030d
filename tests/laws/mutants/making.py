"""How a mutant is made: a correct kernel that answers otherwise in one way, and the laws that must notice.

Each is made of documents as a kernel is, so that the laws can build twins of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pykernel import Batch, Kernel, Placement, Request, StepEstimate, TransferDemand
from pykernel.documents import Cache, Inputs
from pykernel.interface import RESOURCES

DENSE, TENSOR, EXPERTS = "qwen3-14b-h100-tp1", "llama-3.1-70b-h200-fp8-tp4", "minimax-m2.5-h200-ep16"
LATENT, WINDOWS, SPARSE = "deepseek-v3-h200-fp8-tp8", "gpt-oss-120b-h100-fp4-tp2", "glm-5-h200-tp8"
RECURRENT, DRAFTS = "nemotron-3.5-lightning-bf16-h100-tp2", "nemotron-3-ultra-h100-tp8-mtp"
REPLICAS, PAIR = "qwen3-30b-a3b-h200-dp4", "minimax-m2.5-h200-disagg"


class Wrapper:
    """A correct model, method by method that of a kernel."""

    def __init__(self, inputs: Inputs) -> None:
        self.kernel = Kernel(inputs)

    def __getattr__(self, name: str) -> Any:
        if name == "kernel":
            raise AttributeError(name)
        return getattr(self.kernel, name)

    def step_time(self, batch: Batch) -> StepEstimate:
        return self.kernel.step_time(batch)

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        priced = self.step_time(batch)
        values = [priced.per_resource_ns.get(name, 0) for name in RESOURCES]
        estimate.fill(priced.overlap_ns, priced.no_overlap_ns, priced.bottleneck, values)

    def pd_transfer_time_ns(self, tokens: int, source: Placement, target: Placement) -> int:
        return int(self.pd_transfer_demand(tokens, source, target).alone_time_ns())

    def pd_transfer_time_many(self, tokens: Iterable[int], source: Placement, target: Placement) -> list[int]:
        return [self.pd_transfer_time_ns(count, source, target) for count in tokens]

    def pd_transfer_demand(self, tokens: int, source: Placement, target: Placement) -> TransferDemand:
        return self.kernel.pd_transfer_demand(tokens, source, target)


@dataclass(frozen=True)
class Mutant:
    """`edit` changes the scenario's documents first; `patches` are put in place of parts of pykernel meanwhile."""

    name: str
    build: Callable[[Inputs], Any]
    laws: tuple[str, ...]
    scenario: str
    edit: Callable[[Inputs], None] | None = None
    patches: dict[str, Any] = field(default_factory=dict)


MUTANTS: list[Mutant] = []


def states_rings(inputs: Inputs) -> None:
    """A graph that states its caches: one that grows, rings of 512 tokens, and a state."""
    assert inputs.model is not None
    inputs.model.caches = [
        Cache("keys", "growing", 60, entry_bytes=576),
        Cache("window", "ring", 30, entry_bytes=1024, window=512, block=32),
        Cache("state", "fixed", 5, page_bytes=8_000),
    ]


def mutant(*laws: str, on: str = DENSE, edit: Callable[[Inputs], None] | None = None) -> Callable[[type], type]:
    def enter(model: type) -> type:
        MUTANTS.append(Mutant(model.__name__, model, laws, on, edit))
        return model

    return enter


def stepped(*laws: str, on: str = DENSE) -> Callable[[Any], Any]:
    """A mutant of the step: a function of the correct estimate as a dictionary, the batch, and the kernel."""

    def enter(change: Any) -> Any:
        class Model(Wrapper):
            def step_time(self, batch: Batch) -> StepEstimate:
                values = taken(self.kernel.step_time(batch))
                return made(change(values, batch, self.kernel) or values)

        MUTANTS.append(Mutant(change.__name__, Model, laws, on))
        return change

    return enter


def answering(
    name: str, *laws: str, on: str = DENSE, edit: Callable[[Inputs], None] | None = None
) -> Callable[[Any], Any]:
    """A mutant of one method: a function of the kernel and the arguments."""

    def enter(change: Any) -> Any:
        model = type("Model", (Wrapper,), {name: lambda self, *arguments: change(self.kernel, *arguments)})
        MUTANTS.append(Mutant(change.__name__, model, laws, on, edit))
        return change

    return enter


def taken(estimate: Any) -> dict[str, Any]:
    """An estimate as a dictionary to be changed."""
    parts = {name: estimate.per_resource_ns.get(name, 0) for name in RESOURCES}
    return {
        "overlap": estimate.overlap_ns,
        "total": estimate.no_overlap_ns,
        "most": estimate.bottleneck,
        **parts,
    }


def made(values: dict[str, Any]) -> StepEstimate:
    """And back, whatever it holds."""
    estimate = StepEstimate()
    estimate.fill(values["overlap"], values["total"], values["most"], [values[name] for name in RESOURCES])
    return estimate


def totalled(values: dict[str, Any]) -> dict[str, Any]:
    """The estimate with its sum, bottleneck and least overlap made right again."""
    shares = {name: values[name] for name in RESOURCES}
    values["total"] = sum(shares.values())
    values["most"] = max(shares, key=lambda name: shares[name])
    values["overlap"] = min(max(values["overlap"], *shares.values()), values["total"])
    return values


def priced(model: Any, requests: list[Request], like: Batch) -> dict[str, Any]:
    """The correct estimate of other requests."""
    settings = {"decode_threshold": like.decode_threshold, "sm_budget": like.sm_budget, "pad_tokens": like.pad_tokens}
    return taken(model.step_time(Batch(requests, **settings)))
