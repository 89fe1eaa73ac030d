/* Host time: launching the step, as graphs or layer by layer, and the work around the steps. */
#include "internal.h"

int32_t pk__graph_mode(const pk_kernel *kernel, const pk__sums *sums) {
    const pk_host *host = &kernel->host;
    /* A step wider than the widest captured graph runs without one, whatever the mode. */
    if (sums->scheduled + sums->pad_tokens > host->capture_tokens) return PK_GRAPH_NONE;
    return sums->uniform_decode ? host->uniform_mode : host->other_mode;
}

int64_t pk__graph_ns(const pk_kernel *kernel, const pk__sums *sums) {
    return kernel->graph_ns[pk__graph_mode(kernel, sums)];
}

/* ---- outside the steps --------------------------------------------------------------------------------------- */

int64_t pk_admission_overhead_ns(const pk_kernel *kernel, int64_t prompt_tokens) {
    if (prompt_tokens <= 0) return 0;
    return pk__add(kernel->host.admission_request_ns,
                   pk__whole((double)kernel->host.admission_token_ns * (double)prompt_tokens));
}

int64_t pk_output_token_overhead_ns(const pk_kernel *kernel) { return kernel->host.output_token_ns; }

int64_t pk_completion_overhead_ns(const pk_kernel *kernel) { return kernel->host.completion_ns; }
