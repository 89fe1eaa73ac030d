/* Routed experts: the weights of the experts that a step's tokens wake. */
#include "laws.h"

double pk_experts_touched(int64_t tokens, int32_t experts, int32_t top_k, int32_t local) {
    if (tokens <= 0 || local <= 0) return 0;
    return local * (1 - pk__power(pk__experts_missed(experts, top_k), tokens));
}
