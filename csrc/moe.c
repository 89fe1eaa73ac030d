/* Routed experts: the arithmetic of the fullest rank, and the weights of the experts that its tokens wake. */
#include "internal.h"

/* base^exponent by squaring: the same bits everywhere, which libm's pow does not promise. */
static double power(double base, int64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result *= base;
        base *= base;
    }
    return result;
}

double pk_experts_touched(int64_t tokens, int32_t experts, int32_t top_k, int32_t local) {
    if (tokens <= 0 || local <= 0) return 0;
    if (top_k >= experts) return local;
    double missed = (double)(experts - top_k) / (double)experts;
    return local * (1 - power(missed, tokens));
}

double pk__experts_bytes(const pk__experts *experts, const pk__step *step) {
    int64_t met = pk__multiply(step->sums->local_tokens + step->sums->pad_tokens, experts->funnel);
    return pk_experts_touched(met, experts->experts, experts->top_k, experts->local) * experts->bytes_per_expert;
}

pk__charge pk__experts_charge(const pk__experts *experts, const pk__step *step) {
    pk__charge charge = {0};
    charge.sm = pk__flop_seconds(step->tokens * experts->flops_per_token, step->flop_rate) * step->derate;
    charge.hbm = pk__experts_bytes(experts, step) / step->kernel->hbm_bytes_per_second;
    return charge;
}
