/* Attention: decodes stream the KV cache (HBM), prefills multiply (SM). */
#include "laws.h"

int64_t pk_prefill_pairs4(int64_t scheduled, int64_t computed, int64_t window) {
    return pk__prefill_pairs4(scheduled, computed, window);
}

int64_t pk_read_entries(const pk_read_law *law, int64_t context) { return pk__read_entries(law, context); }
