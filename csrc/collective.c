/* Collectives: latency and bandwidth of one launch, and what leaving the node adds. */
#include "internal.h"

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
    if (!group->crosses_nodes || width <= per_node || !(link_ratio > 1)) return 1;
    if (span == PK_SPAN_ALL_TO_ALL) return slowed(link_ratio, width - per_node, width - 1);
    /* A ring that does not divide into whole nodes is as slow as its slowest link throughout. */
    if (width % per_node != 0) return link_ratio;
    return slowed(link_ratio, width / per_node - 1, width - 1);
}

void pk__add_collective(const pk__collective *collective, double units, pk__charge *charge) {
    double seconds =
        collective->launches * pk_collective_seconds(&collective->law, units * collective->bytes_per_token);
    if (collective->resource == PK_NIC)
        charge->nic += seconds;
    else
        charge->nvlink += seconds;
}
