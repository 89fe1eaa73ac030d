"""The roofline as a cost model: kernel by kernel, the larger of arithmetic at the peak and bytes at the full rate.

It is the measured model with ideal coefficients, so both count the same work and the same bytes, and what separates
them is only what kernels and hosts lose.
"""

from __future__ import annotations

from pykernel.documents import Inputs
from pykernel.fit.forms import COLLECTIVE, DECODE, EXPERTS, GEMM, PREFILL, RECURRENT, Form
from pykernel.kernel import Kernel
from pykernel.measured import flattening
from pykernel.measured.laws import HostConstants, Law, MeasuredLaws
from pykernel.switches import CALIBRATED

IDEAL = {"compute_efficiency": 1.0, "memory_efficiency": 1.0, "link_efficiency": 1.0, "exponent": 16.0}
"""Everything else that a law loses is 0; a norm of this exponent is the maximum to within 5%."""

FORMS = {
    "gemm": GEMM,
    "experts": EXPERTS,
    "all_reduce": COLLECTIVE,
    "all_gather": COLLECTIVE,
    "reduce_scatter": COLLECTIVE,
    "alltoall": COLLECTIVE,
    "prefill": PREFILL,
    "latent_prefill": PREFILL,
}


class IdealLaws(MeasuredLaws):
    def law(self, primitive: str, suffix: str) -> tuple[Law, str]:
        form: Form = FORMS.get(primitive, DECODE)
        if primitive.endswith(("gdn_decode", "gdn_prefill", "kda_decode", "kda_prefill")):
            form = RECURRENT
        return {name: IDEAL.get(name, 0.0) for name in form.names}, suffix


HOST = HostConstants(
    {
        "kernel_scale": 1.0,
        "layer": 0.0,
        "prompt_step": 0.0,
        "prompt_token": 0.0,
        "unprepared_step": 0.0,
        "unprepared_request": 0.0,
        "shape": 1e6,
    },
    (),
)


def roofline_kernel(inputs: Inputs) -> Kernel:
    """A kernel of ideal laws. Raises as `Kernel` does."""
    kept = flattening.measured_laws, flattening.host_constants
    try:
        flattening.measured_laws = lambda chip, record: IdealLaws(chip.name, chip.name, {}, "roofline", record)
        flattening.host_constants = lambda engine: HOST
        return Kernel(inputs, switches=CALIBRATED)
    finally:
        flattening.measured_laws, flattening.host_constants = kept
