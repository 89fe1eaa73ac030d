/* Collectives: latency and bandwidth of one launch, and what leaving the node adds. */
#include "laws.h"

#include <math.h>

double pk_collective_seconds(const pk_collective_law *law, double bytes) {
    double floor_s = pk__seconds(law->floor_ns);
    if (!(bytes > 0)) return floor_s;
    double ramp = floor_s;
    if (law->transition_bytes_per_second > 0) ramp += bytes / law->transition_bytes_per_second;
    double peak = bytes / law->peak_bytes_per_second;
    return ramp > peak ? ramp : peak;
}

/* Of `hops` steps of the algorithm, `crossing` run over the network at 1 / ratio of the speed. */
static double slowed(double ratio, int32_t crossing, int32_t hops) {
    return 1 + (ratio - 1) * (double)crossing / (double)hops;
}

double pk_span_factor(const pk_group *group, uint32_t span, double link_ratio) {
    int32_t width = group->width, per_node = group->per_node;
    bool slower = link_ratio > 1 && isfinite(link_ratio);
    if (!group->crosses_nodes || width <= per_node || !slower) return 1;
    if (span == PK_SPAN_ALL_TO_ALL) return slowed(link_ratio, width - per_node, width - 1);
    /* A ring that does not divide into whole nodes is as slow as its slowest link throughout. */
    if (width % per_node != 0) return link_ratio;
    return slowed(link_ratio, width / per_node - 1, width - 1);
}

/* The context of the prefills, gathered run by run, each run in equal launches of at most a chunk. */
pk__traffic pk__context_traffic(const pk__collective *collective, const pk__step *step) {
    pk__traffic traffic = {0};
    if (step->sums->prefills == 0) return traffic;
    int64_t from = 0, tokens;
    while ((tokens = pk__next_context_run(step->batch, &from)) > 0) {
        int64_t chunk = step->kernel->context_chunk;
        double launches = (double)((tokens + chunk - 1) / chunk);
        traffic.launches += launches;
        traffic.bytes += (double)tokens * collective->bytes_per_unit;
        traffic.seconds += launches * pk__launch_seconds(collective, (double)tokens / launches);
    }
    return traffic;
}
