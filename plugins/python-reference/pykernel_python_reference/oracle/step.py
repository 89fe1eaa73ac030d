"""The price of a step: every pass over every layer kind, the head, the host, and how they compose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pykernel.documents import Inputs
from pykernel.errors import RefusedError

from . import refusals
from .batch import Batch, Request, Scheduled, Walk, is_uniform, walk
from .coefficients import coefficients_of
from .exact import GIGA, TERA, Exact, exact, nanoseconds
from .formats import WIDTHS, cache_format_of, interleave_of, is_sm100, peak_of, served_format
from .graphs import graph_mode, host_of, kernels_of, limits_of
from .laws import Ramp, context_chunk
from .layer import Part, Pass, Terms, layer_terms, needed_triples
from .layout import TENSOR, layout_of
from .plan import ACTIVATION_BYTES, KindPlan, Planner
from .settings import NEWEST, Settings

RESOURCES = ("sm", "hbm", "nvlink", "nic", "host")


@dataclass(frozen=True)
class Price:
    """The answer for one batch in nanoseconds; a resource that is not used holds 0."""

    sm: int
    hbm: int
    nvlink: int
    nic: int
    host: int
    overlap_ns: int
    no_overlap_ns: int
    bottleneck: str


class Oracle:
    """Prices batches for one pool of a deployment, from its documents.

    Raises: RefusedError where the pool would not start or cannot be priced.
    """

    def __init__(self, inputs: Inputs, settings: Settings = NEWEST) -> None:
        self.settings = settings
        self.inputs = inputs
        model, chip = inputs.model, inputs.chip
        engine = inputs.deployment.pools[inputs.pool].engine
        self.layout = layout_of(inputs)
        self.coefficients = coefficients_of(inputs, self.layout)
        served = served_format(inputs)
        suffix, peak = peak_of(served, chip)
        planner = Planner(model, self.layout, settings, served, WIDTHS)
        layers = model.stack.layers()
        self.stack = planner.stack(layers)
        self.head = planner.head()
        self.draft = self._draft(planner)
        self.redundant = engine.eplb.num_redundant_experts if engine.eplb and engine.eplb.enable_eplb else 0
        for kinds in (self.stack, self.draft):
            self._check_experts(kinds)
        refusals.check(inputs, self.layout, self.stack, graph_mode(inputs, self.layout, self.stack, settings), settings)
        cache = cache_format_of(inputs, self.layout, served, planner.declared(layers), settings)
        interleave = interleave_of(inputs, self.layout, cache.block_size)
        limits = limits_of(inputs, self.layout, settings)
        combine = engine.dcp_comm_backend or "ag_rs"
        ramp, shape_aware = self._ramp(suffix)
        self.part = Part(
            layout=self.layout,
            coefficients=self.coefficients,
            settings=settings,
            peak=peak,
            hbm_rate=exact(chip.bw_peak_tbs) * TERA * self.coefficients.required("hbm_derate"),
            ramp=ramp,
            shape_aware=shape_aware,
            cache=cache,
            interleave=interleave,
            chunk=context_chunk(engine.max_model_len, limits.sequences, cache.block_size, self.layout.dcp, interleave),
            combine=combine,
            two_launches=is_sm100(chip),
            redundant=self.redundant,
            triples={
                (operation, group): self.coefficients.triple(operation, self.layout.groups[group].width)
                for operation, group in needed_triples(self.layout, combine)
            },
        )
        self.host = host_of(inputs, self.layout, self.coefficients, self.stack, self.head, settings)

    def _draft(self, planner: Planner) -> list[KindPlan]:
        """The layers of the draft module where it drafts and is priced; n-grams and other models have none here."""
        stated = self.inputs.deployment.pools[self.inputs.pool].engine.speculative
        speculator = self.inputs.model.speculator
        self.drafts = stated.num_spec_tokens if stated else 0
        own = speculator.method if speculator else ""
        self.drafts_itself = stated is not None and (stated.method == own or stated.method.endswith("mtp"))
        if not self.settings.speculator or not self.drafts_itself or speculator is None:
            return []
        return planner.stack(speculator.stack.layers())

    def _ramp(self, suffix: str) -> tuple[Ramp, bool]:
        extra = [self.coefficients.has(f"gemm_{axis}_half_{suffix}") for axis in ("n", "k")]
        if any(extra) and not all(extra):
            raise RefusedError(f"one of gemm_n_half_{suffix} and gemm_k_half_{suffix} is missing", "coefficients")
        ramp = Ramp(
            self.coefficients.required(f"gemm_eps_max_{suffix}"),
            self.coefficients.required(f"gemm_m_half_{suffix}"),
            self.coefficients.optional(f"gemm_n_half_{suffix}"),
            self.coefficients.optional(f"gemm_k_half_{suffix}"),
        )
        return ramp, all(extra)

    def _physical_experts(self, kinds: list[KindPlan]) -> int:
        """The largest expert count of these kinds with the redundant ones; 0 where nothing is routed."""
        counts = [node.experts for kind in kinds for node in kind.experts]
        return max(counts) + self.redundant if counts else 0

    def _check_experts(self, kinds: list[KindPlan]) -> None:
        counts = [node.experts + self.redundant for kind in kinds for node in kind.experts]
        if not self.settings.grouped_nodes_apart:
            counts = [count for count in [self._physical_experts(kinds)] if count]
        if any(count < self.layout.expert_width for count in counts):
            raise RefusedError("more expert-parallel ranks than experts", "parallel.enable_expert_parallel")

    def price(
        self, requests: Iterable[Scheduled], decode_threshold: int = 1, sm_budget: int = 0, pad_tokens: int = 0
    ) -> Price:
        """The step of these requests."""
        return self.price_batch(Batch(tuple(requests), decode_threshold, sm_budget, pad_tokens))

    def price_batch(self, batch: Batch) -> Price:
        """The step of a batch."""
        pad = batch.pad_tokens if self.settings.pad_tokens else 0
        walked = walk(batch.requests, batch.decode_threshold, self.layout.pcp, self.layout.dcp)
        tokens = max(walked.batch_tokens + pad, 0)
        graph_ns = self.host.graph_ns(is_uniform(batch.requests, self.host.width), tokens)
        if tokens == 0:
            return Price(0, 0, 0, 0, graph_ns, graph_ns, graph_ns, "host")
        kernels = self.host.kernels
        if self.draft:
            kernels += self.drafts * (kernels_of(self.draft) + self.head.kernels)
        return compose(self.terms(batch), graph_ns + self.host.dispatch_ns(kernels))

    def terms(self, batch: Batch) -> list[Terms]:
        """Every layer kind and head of every pass of a step, in the order they run."""
        pad = batch.pad_tokens if self.settings.pad_tokens else 0
        derate = self._derate(batch.sm_budget)
        walked = walk(batch.requests, batch.decode_threshold, self.layout.pcp, self.layout.dcp)
        rows = walked.sampled_rows if self.settings.head_sampled_rows else walked.tokens
        terms = self._pass(self.stack, Pass(walked, pad, derate), rows)
        if self.draft:
            for number in range(1, self.drafts + 1):
                drafting = Pass(self._draft_walk(walked, number), pad if number == 1 else 0, derate)
                terms += self._pass(self.draft, drafting, len(walked.contexts))
        return terms

    def _draft_walk(self, target: Walk, number: int) -> Walk:
        """The batch of a draft pass: the target's own, then one token more for each request and pass."""
        if number == 1:
            return target
        requests = [Request(1, context + number - 2) for context in target.contexts]
        return walk(requests, 1, self.layout.pcp, self.layout.dcp)

    def _derate(self, sm_budget: int) -> Fraction:
        count = self.inputs.chip.sm_count
        return Fraction(count, sm_budget) if 0 < sm_budget < count else Fraction(1)

    def _pass(self, kinds: list[KindPlan], step: Pass, rows: int) -> list[Terms]:
        if step.tokens <= 0:
            return []
        experts = self._physical_experts(kinds)
        return [*(layer_terms(self.part, kind, step, experts) for kind in kinds), self._head_terms(step, rows)]

    def _head_terms(self, step: Pass, rows: int) -> Terms:
        """The head over so many rows, with the gather of their logits."""
        terms = Terms("head", 1)
        if rows > 0:
            part, tp = self.part, self.layout.tp
            flops = Fraction(rows * self.head.dense_flops, tp)
            if flops:
                terms.add("sm", "head arithmetic", flops / (part.peak * part.ramp.at(rows)) * step.derate)
            terms.add("hbm", "head weights", self.head.dense_bytes / tp / part.hbm_rate)
            if self.settings.vocab_gather and tp > 1 and rows > 0 and self.inputs.model.head:
                payload = rows * self.inputs.model.global_.vocab_size * ACTIVATION_BYTES
                resource, seconds = part.launch("all_gather", TENSOR, payload)
                terms.add(resource, "vocabulary gather", seconds)
        terms.stage = max(terms.sm, terms.hbm, terms.nvlink, terms.nic)
        return terms


def compose(terms: list[Terms], host_ns: int) -> Price:
    """Totals by resource, stages one after another, and the host on top."""
    seconds: dict[str, Any] = {
        name: sum((layer.count * getattr(layer, name) for layer in terms), Fraction(0)) for name in RESOURCES[:-1]
    }
    stages: Exact = sum((layer.count * layer.stage for layer in terms), Fraction(0))
    seconds["host"] = Fraction(host_ns, GIGA)
    whole = {name: nanoseconds(value) for name, value in seconds.items()}
    no_overlap = sum(whole.values())
    bottleneck = max(RESOURCES, key=lambda name: seconds[name])
    if seconds[bottleneck] <= 0:
        bottleneck = "sm"
    return Price(
        **whole,
        overlap_ns=min(nanoseconds(stages) + host_ns, no_overlap),
        no_overlap_ns=no_overlap,
        bottleneck=bottleneck,
    )
