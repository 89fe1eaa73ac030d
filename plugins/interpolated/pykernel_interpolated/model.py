"""`Interpolated`: prices a step from measured launches, and leaves everything but the step to the blis kernel.

The operations of a step are those that pykernel's `calibrated` model prices; only the time of each is found otherwise,
on curves through the measured points. Curves are made when the model is, a step only looks them up.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from pykernel.batch import Batch
from pykernel.documents import Inputs
from pykernel.interface import INT64_MAX, RESOURCES, CoefficientOrigin, StepEstimate
from pykernel.kernel import Kernel
from pykernel.measured.laws import host_constants
from pykernel.measured.operations import operations_of
from pykernel.own_step import OwnStep
from pykernel.resolve.disclosures import without_step_laws
from pykernel.switches import LawSwitches
from pykernel_interpolated.building import Builder
from pykernel_interpolated.layers import Spent
from pykernel_interpolated.tables import tables_at
from pykernel_interpolated.work import Work, columns_of, work_of

SWITCHES = LawSwitches(embedding_width="sixteen_bit", engine_weights=True)
"""What the engine holds, as `calibrated` has it."""


class Interpolated(OwnStep):
    """Prices one pool of one deployment from measured tables.

    Parameters
    ----------
    tables : directory of the tables; by default that of the environment, else the installed package's.
    engine : whose serving constants are used for the host, `vllm`, `trtllm` or `sglang`.

    Raises `RefusedError` where there are no tables, or none near enough to what the deployment runs.
    """

    lacks = frozenset({"blis", "monotone"})

    def __init__(self, inputs: Inputs, *, tables: str | None = None, engine: str = "vllm") -> None:
        super().__init__(Kernel(inputs, switches=SWITCHES))
        operations = operations_of(inputs, SWITCHES)
        builder = Builder(operations, inputs.chip, tables_at(tables))
        self._stack, self._draft = builder.layers()
        self._head = builder.head()
        self._drafts = operations.plan.draft_passes
        self._prefill_ranks = operations.resolved.layout.pcp
        self._sms = inputs.chip.sm_count
        self._graphs, self._sizes = operations.resolved.settings.graphs, operations.capture_sizes
        host = host_constants(engine)
        self._host, self._layers = host.values, operations.measured.whole_layers(operations.plan)
        self._prepared = operations.resolved.resolution.async_scheduling
        self._origins = (*builder.origins, *host.origins)

    # ---- the step ----------------------------------------------------------------------------------------------

    def step_time_into(self, batch: Batch, estimate: StepEstimate) -> None:
        batch.validate()
        scheduled, computed = columns_of(batch)
        work = work_of(scheduled, computed, batch.decode_threshold, max(batch.pad_tokens, 0), self._prefill_ranks)
        slower = self._sms / batch.sm_budget if 0 < batch.sm_budget < self._sms else 1.0
        total, overlap = dict.fromkeys(RESOURCES, 0.0), 0.0
        for spent, count in self._spent(work, len(batch) > 0 and bool((scheduled == self._graphs.uniform_width).all())):
            sm = spent.sm * slower + spent.link_sm
            for name, seconds in (("sm", sm), ("hbm", spent.hbm), ("nvlink", spent.nvlink), ("nic", spent.nic)):
                total[name] += seconds * count
            # Kernels of one rank run one after another, so that only links work beside them.
            overlap += max(sm + spent.hbm, spent.nvlink, spent.nic) * count
        total["host"] = self._host_seconds(work)
        ns = [min(int(total[name] * 1e9), INT64_MAX // 8) for name in RESOURCES]
        longest, host = max(ns), ns[RESOURCES.index("host")]
        bound = min(max(int(overlap * 1e9) + host, longest), sum(ns))
        estimate.fill(bound, sum(ns), RESOURCES[ns.index(longest)], ns)

    def _spent(self, work: Work, uniform: bool) -> list[tuple[Spent, int]]:
        """What each kind of layer of each pass spends, and how often."""
        if not work.rows + work.pad_rows:
            return []
        rows = self._rows(work, uniform)
        spent = [(layer.spend(work, rows, self._prefill_ranks), layer.count) for layer in self._stack]
        spent += self._headed(work.sampled_rows)
        for number in range(self._drafts):
            drafting = work if number == 0 else _next(work, number - 1)
            rows = self._rows(drafting, number > 0 or uniform)
            spent += [(layer.spend(drafting, rows, self._prefill_ranks), layer.count) for layer in self._draft]
            spent += self._headed(work.decodes + work.prefills)
        return spent

    def _headed(self, rows: int) -> list[tuple[Spent, int]]:
        return [(self._head.spend(_NO_WORK, rows, 1), 1)] if rows else []

    def _rows(self, work: Work, uniform: bool) -> int:
        """Rows that the dense kernels run: a graph runs the smallest captured size that holds the tokens."""
        rows = work.rows + work.pad_rows
        mode = self._graphs.uniform if uniform else self._graphs.other
        if mode == "NONE" or not self._sizes or rows > self._sizes[-1]:
            return rows
        return self._sizes[bisect_left(self._sizes, rows)]

    def _host_seconds(self, work: Work) -> float:
        host = self._host
        spent = host["layer"] * self._layers
        if not self._prepared:
            spent += host["unprepared_step"] + host["unprepared_request"] * (work.decodes + work.prefills)
        if work.prefills:
            spent += host["prompt_layer"] * self._layers + host["prompt_token"] * work.prefill_rows
        return spent * 1e-6

    def provenance(self) -> tuple[CoefficientOrigin, ...]:
        return (*without_step_laws(self.base.provenance()), *self._origins)


_NONE = np.zeros(0, dtype=np.int64)
_NO_WORK = Work(0, 0, 0, 0, _NONE, _NONE, _NONE)


def _next(target: Work, tokens: int) -> Work:
    """A later pass of the draft module: one token of each request, `tokens` after the target's."""
    contexts = np.concatenate((target.contexts, target.new + target.done)) + tokens
    return Work(len(contexts), 0, len(contexts), 0, contexts, _NONE, _NONE)
