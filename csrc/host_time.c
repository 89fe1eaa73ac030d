/* Host time: launching the step, as graphs or layer by layer. */
#include "internal.h"

int64_t pk__graph_ns(const pk_kernel *kernel, const pk__sums *sums) {
    const pk_host *host = &kernel->host;
    int32_t mode = sums->uniform_decode ? host->uniform_mode : host->other_mode;
    /* A step wider than the widest captured graph runs without one, whatever the mode. */
    if (sums->scheduled + sums->pad_tokens > host->capture_tokens) mode = PK_GRAPH_NONE;
    return kernel->graph_ns[mode];
}
