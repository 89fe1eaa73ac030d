/* Dense arithmetic: how much of the part's peak a step reaches. */
#include "laws.h"

double pk_gemm_efficiency(const pk_gemm_law *law, double tokens) { return pk__gemm_efficiency(law, tokens); }

static double saturation(double width, double half) { return half > 0 && width > 0 ? width / (width + half) : 1; }

double pk_gemm_shape_factor(const pk_gemm_law *law, double n, double k) {
    if (law->law != PK_GEMM_SHAPE_RAMP) return 1;
    return saturation(k, law->k_half) * saturation(n, law->n_half);
}
