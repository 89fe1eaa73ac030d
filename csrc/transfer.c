/* Transfers: cache blocks on their way to and from a storage tier, and from a prefill pool to a decode pool. */
#include "internal.h"

#include <math.h> /* INFINITY */
#include <string.h>

/* The longer of a floor and the time that the bytes take; never, on a link without bandwidth. Seconds. */
static double floor_and_rate(int64_t bytes, double bytes_per_second, double floor) {
    if (bytes <= 0) return floor;
    if (!(bytes_per_second > 0)) return (double)INFINITY;
    double moving = (double)bytes / bytes_per_second;
    return moving > floor ? moving : floor;
}

/* Whole seconds and the rest apart, which keeps the nanoseconds of a long duration. */
static double seconds_of(int64_t ns) { return (double)(ns / 1000000000) + (double)(ns % 1000000000) / 1e9; }

/* ---- tiers --------------------------------------------------------------------------------------------------- */

int32_t pk_find_tier(const pk_kernel *kernel, const char *name) {
    for (uint32_t i = 0; name != NULL && i < kernel->tier_count; i++)
        if (strcmp(pk__tiers(kernel)[i].name, name) == 0) return (int32_t)i;
    return -1;
}

int64_t pk_tier_time_ns(const pk_kernel *kernel, int32_t tier, int32_t direction, int64_t bytes, int64_t queue_depth) {
    if (tier < 0 || (uint32_t)tier >= kernel->tier_count) return INT64_MAX;
    const pk_tier *device = &pk__tiers(kernel)[tier];
    double rate = direction == PK_TO_TIER ? device->write_bytes_per_second : device->read_bytes_per_second;
    double host = kernel->links.host_bytes_per_second;
    if (host > 0 && rate > host) rate = host;
    if (queue_depth > 1) rate /= (double)queue_depth;
    return pk_nanoseconds(floor_and_rate(bytes, rate, device->latency_us * 1e-6));
}

/* ---- from prefill to decode ---------------------------------------------------------------------------------- */

static pk_link_use link_use(pk_link_kind kind, int64_t place, double bytes_per_second) {
    return (pk_link_use){.kind = (int32_t)kind, .place = place, .bytes_per_second = bytes_per_second};
}

/* The links between two ranks. The path depends on the relation of the placements alone. */
static int32_t path(const pk_kernel *kernel, const pk_placement *source, const pk_placement *target,
                    pk_link_use *links) {
    const pk_links *rates = &kernel->links;
    if (source->node == target->node) {
        links[0] = link_use(PK_LINK_NODE, source->node, rates->node_bytes_per_second);
        return 1;
    }
    if (rates->rack_is_one_domain && source->rack == target->rack) {
        links[0] = link_use(PK_LINK_RACK, source->rack, rates->node_bytes_per_second);
        return 1;
    }
    links[0] = link_use(PK_LINK_NIC, source->node, rates->fabric_bytes_per_second);
    links[1] = link_use(PK_LINK_NIC, target->node, rates->fabric_bytes_per_second);
    return 2;
}

static pk_transfer_demand demand_of(const pk_kernel *kernel, int64_t tokens, const pk_placement *source,
                                    const pk_placement *target) {
    pk_transfer_demand demand = PK_TRANSFER_DEMAND_INIT;
    demand.link_count = path(kernel, source, target, demand.links);
    if (tokens > 0) {
        demand.bytes = pk__handoff_bytes(kernel, tokens);
        demand.floor_ns = kernel->links.handoff_floor_ns;
    }
    return demand;
}

pk_status pk_pd_transfer_demand(const pk_kernel *kernel, int64_t tokens, const pk_placement *source,
                                const pk_placement *target, pk_transfer_demand *demand, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (source == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "source", "source is NULL");
    if (target == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "target", "target is NULL");
    if (demand == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "demand", "demand is NULL");
    pk_status status = pk__check_struct(demand->struct_size, demand->flags, sizeof *demand, "demand", error);
    if (status == PK_OK) *demand = demand_of(kernel, tokens, source, target);
    return status;
}

int64_t pk_alone_time_ns(const pk_transfer_demand *demand) {
    if (demand->link_count <= 0) return demand->floor_ns;
    double slowest = demand->links[0].bytes_per_second;
    if (demand->link_count > 1 && demand->links[1].bytes_per_second < slowest)
        slowest = demand->links[1].bytes_per_second;
    return pk_nanoseconds(floor_and_rate(demand->bytes, slowest, seconds_of(demand->floor_ns)));
}

int64_t pk_pd_transfer_time_ns(const pk_kernel *kernel, int64_t tokens, const pk_placement *source,
                               const pk_placement *target) {
    pk_transfer_demand demand = demand_of(kernel, tokens, source, target);
    return pk_alone_time_ns(&demand);
}

pk_status pk_transfer_demand_check(const pk_transfer_demand *demand, pk_error *error) {
    if (demand == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "demand", "demand is NULL");
    if (demand->bytes < 0)
        return pk__fail(error, PK_ARGUMENT, "bytes", "bytes is %lld, must be >= 0", (long long)demand->bytes);
    if (demand->floor_ns < 0)
        return pk__fail(error, PK_ARGUMENT, "floor_ns", "floor_ns is %lld, must be >= 0", (long long)demand->floor_ns);
    if (demand->link_count < 0 || demand->link_count > 2)
        return pk__fail(error, PK_ARGUMENT, "link_count", "link_count is %d, must be 0 to 2", (int)demand->link_count);
    if (demand->bytes > 0 && demand->link_count == 0)
        return pk__fail(error, PK_ARGUMENT, "links", "links are empty, but %lld bytes must cross one",
                        (long long)demand->bytes);
    const pk_link_use *links = demand->links;
    for (int32_t i = 0; i < demand->link_count; i++) {
        double rate = links[i].bytes_per_second;
        if (!(rate > 0 && rate < (double)INFINITY))
            return pk__fail(error, PK_ARGUMENT, "links", "bytes_per_second of link %d is %g, must be positive and finite",
                            (int)i, rate);
        if (links[i].kind < PK_LINK_NODE || links[i].kind > PK_LINK_NIC)
            return pk__fail(error, PK_ARGUMENT, "links", "link %d is of kind %d, which is none", (int)i,
                            (int)links[i].kind);
    }
    if (demand->link_count == 2 && links[0].kind == links[1].kind && links[0].place == links[1].place)
        return pk__fail(error, PK_ARGUMENT, "links", "one link is listed twice");
    return PK_OK;
}
