/* Dense arithmetic: how much of the part's peak a step reaches, and what withheld SMs take from it. */
#include "internal.h"

double pk_gemm_efficiency(const pk_gemm_law *law, double tokens) {
    if (!(tokens > 0)) return 0;
    return law->eps_max * tokens / (tokens + law->m_half);
}

static double saturation(double width, double half) { return half > 0 && width > 0 ? width / (width + half) : 1; }

double pk_gemm_shape_factor(const pk_gemm_law *law, double n, double k) {
    if (law->law != PK_GEMM_SHAPE_RAMP) return 1;
    return saturation(k, law->k_half) * saturation(n, law->n_half);
}

double pk__sm_derate(const pk_kernel *kernel, int64_t sm_budget) {
    if (sm_budget <= 0 || sm_budget >= kernel->sm_count) return 1;
    return (double)kernel->sm_count / (double)sm_budget;
}
