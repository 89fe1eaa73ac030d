/* A step: the layers one after the other, then the head; the host on top. */
#include "laws.h"

PK__INLINE double largest(const pk__charge *charge) {
    const double *s = charge->seconds;
    double ab = s[0] > s[1] ? s[0] : s[1], cd = s[2] > s[3] ? s[2] : s[3];
    return ab > cd ? ab : cd;
}

PK__INLINE void add_collectives(const pk__layer *layer, const pk__step *step, bool gathers, pk__charge *charge) {
    uint32_t end = layer->collective_first + layer->collective_count, equals;
    for (uint32_t i = layer->collective_first; i < end; i += equals) {
        const pk__collective *collective = pk__collectives(step->kernel) + i;
        equals = pk__equal_launches(collective, i, end);
        pk__add_collective(collective, equals * pk__collective_seconds(collective, step, gathers), charge);
    }
}

/* What a layer does but for its routed experts. */
PK__INLINE void rest_of_layer(const pk__layer *layer, const pk__step *step, bool gathers, pk__charge *rest) {
    const pk_kernel *kernel = step->kernel;
    if (layer->attention_count > 0) pk__add_attention(pk__attentions(kernel) + layer->attention_first, step, rest);
    for (uint32_t i = 0; i < layer->scorer_count; i++)
        rest->seconds[PK_HBM] += pk__scorer_seconds(pk__scorers(kernel) + layer->scorer_first + i, step);
    rest->seconds[PK_SM] += pk__dense_flops(layer, step) * step->seconds_per_flop;
    rest->seconds[PK_SM] += pk__recurrent_seconds(layer, step->local_tokens);
    rest->seconds[PK_HBM] += layer->weight_seconds + step->tokens * layer->elementwise_seconds_per_token;
    add_collectives(layer, step, gathers, rest);
}

/* Adds one kind of layer to the totals and returns the seconds of its stages. The routed experts run after the rest
 * of the layer, so they are added to its longest resource instead of hiding behind it. */
PK__INLINE double price_layer(const pk__layer *layer, const pk__step *step, bool gathers, pk__charge *total) {
    pk__charge rest = {{0}};
    double routed_sm_s = 0, routed_hbm_s = 0;
    rest_of_layer(layer, step, gathers, &rest);
    double overlap_s = largest(&rest);
    for (uint32_t i = 0; i < layer->experts_count; i++) {
        const pk__experts *experts = pk__expert_sets(step->kernel) + layer->experts_first + i;
        routed_sm_s += pk__experts_work_seconds(experts, step);
        routed_hbm_s += pk__experts_touched(experts, step) * experts->seconds_per_expert;
    }
    rest.seconds[PK_SM] += routed_sm_s;
    rest.seconds[PK_HBM] += routed_hbm_s;
    for (int i = 0; i < PK__CHARGED; i++) total->seconds[i] += layer->count * rest.seconds[i];
    return layer->count * (overlap_s + (routed_sm_s + routed_hbm_s));
}

int64_t pk__head_rows(const pk__step *step) {
    return step->kernel->head.rows == PK_HEAD_ALL_TOKENS ? step->sums->local_tokens : step->sums->sampled_rows;
}

double pk__head_flop_seconds(const pk__step *step, double rows) {
    const pk_kernel *kernel = step->kernel;
    double rate = kernel->peak_flops * pk__gemm_efficiency(&kernel->gemm, rows);
    return rows * kernel->head.flops_per_row * pk__seconds_per_flop(rate, step->derate);
}

PK__INLINE double price_head(const pk__step *step, int64_t rows, pk__charge *total) {
    const pk__head *head = &step->kernel->head;
    if (step->kernel->measured_at != 0) return pk__price_measured_head(step, rows, total);
    if (!head->present || rows == 0) return 0;
    pk__charge charge = {{0}};
    charge.seconds[PK_SM] = pk__head_flop_seconds(step, (double)rows);
    charge.seconds[PK_HBM] = head->read_seconds;
    if (head->gather.units != 0)
        pk__add_collective(&head->gather, pk__launch_seconds(&head->gather, (double)rows), &charge);
    for (int i = 0; i < PK__CHARGED; i++) total->seconds[i] += charge.seconds[i];
    return largest(&charge);
}

PK__INLINE double price_layers(uint32_t first, uint32_t count, const pk__step *step, bool gathers, pk__charge *total) {
    const pk__layer *layers = pk__layers(step->kernel) + first;
    double overlap_s = 0;
    if (step->kernel->measured_at != 0) return pk__price_measured_layers(layers, count, step, total);
    for (uint32_t i = 0; i < count; i++) overlap_s += price_layer(layers + i, step, gathers, total);
    return overlap_s;
}

PK__APART double price_any_layers(uint32_t first, uint32_t count, const pk__step *step, pk__charge *total) {
    return price_layers(first, count, step, true, total);
}

/* The speculator's passes run one after another: the first over the step's own tokens, to fill its cache, the others
 * over the one token that each request drafts. */
void pk__draft_step(const pk__step *first, int32_t pass, pk__sums *sums, pk__step *step) {
    if (pass == 1) {
        *step = *first;
        return;
    }
    pk__scan_draft(first->batch, first->kernel, pass, first->sums, sums);
    pk__step_of(first->kernel, first->batch, sums, step);
}

PK__APART double price_drafts(const pk__step *first, pk__charge *total) {
    const pk_kernel *kernel = first->kernel;
    uint32_t behind = kernel->layer_count, count = kernel->draft_layer_count;
    double overlap_s = 0;
    for (int32_t pass = 1; pass <= kernel->draft_passes; pass++) {
        pk__sums sums;
        pk__step step;
        pk__draft_step(first, pass, &sums, &step);
        if (step.tokens > 0) overlap_s += price_any_layers(behind, count, &step, total);
        overlap_s += price_head(&step, step.sums->attending, total);
    }
    return overlap_s;
}

/* The resource with the largest share, in seconds before truncation; the earlier one on a tie. */
PK__INLINE int32_t bottleneck_of(const pk__charge *total, double host_s) {
    int32_t slowest = PK_SM;
    for (int32_t i = 1; i < PK__CHARGED; i++)
        if (total->seconds[i] > total->seconds[slowest]) slowest = i;
    return host_s > total->seconds[slowest] ? PK_HOST : slowest;
}

/* What no step is charged for stays 0. */
PK__INLINE void clear(pk_estimate *estimate) {
    estimate->flags = 0;
    estimate->per_resource_ns[PK_PCIE] = estimate->per_resource_ns[PK_COPY_ENGINE] = 0;
    estimate->reserved = 0;
}

PK__APART void idle_step(int64_t host_ns, pk_estimate *estimate) {
    clear(estimate);
    for (int32_t i = 0; i < PK__CHARGED; i++) estimate->per_resource_ns[i] = 0;
    estimate->per_resource_ns[PK_HOST] = host_ns;
    estimate->overlap_ns = estimate->no_overlap_ns = host_ns;
    estimate->bottleneck = PK_HOST;
}

/* The same for any numbers: nothing wraps, and what is no number is no time. */
PK__APART void extreme_step(const pk__charge *total, double overlap_s, int64_t host_ns, pk_estimate *estimate) {
    int64_t no_overlap_ns = host_ns;
    for (int32_t i = 0; i < PK__CHARGED; i++) {
        estimate->per_resource_ns[i] = pk__nanoseconds(total->seconds[i]);
        no_overlap_ns = pk__add(no_overlap_ns, estimate->per_resource_ns[i]);
    }
    estimate->no_overlap_ns = no_overlap_ns;
    estimate->overlap_ns = pk__min(pk__add(pk__nanoseconds(overlap_s), host_ns), no_overlap_ns);
}

PK__INLINE void busy_step(const pk__charge *total, double overlap_s, int64_t host_ns, pk_estimate *estimate) {
    const double *s = total->seconds;
    clear(estimate);
    /* The host's share is a count of nanoseconds already; a round trip through seconds could lose one. */
    estimate->per_resource_ns[PK_HOST] = host_ns;
    estimate->bottleneck = bottleneck_of(total, pk__seconds(host_ns));
    double years = 1e9;
    if (!(s[0] + s[1] + s[2] + s[3] + overlap_s < years) || host_ns > INT64_MAX / 2) {
        extreme_step(total, overlap_s, host_ns, estimate);
        return;
    }
    int64_t no_overlap_ns = host_ns;
    for (int32_t i = 0; i < PK__CHARGED; i++) {
        int64_t ns = (int64_t)(s[i] * 1e9);
        estimate->per_resource_ns[i] = ns;
        no_overlap_ns += ns;
    }
    estimate->no_overlap_ns = no_overlap_ns;
    estimate->overlap_ns = pk__min((int64_t)(overlap_s * 1e9) + host_ns, no_overlap_ns);
}

void pk__price(const pk_kernel *kernel, const pk_batch *batch, const pk__sums *sums, pk_estimate *estimate) {
    bool measured = kernel->measured_at != 0;
    int64_t graph_ns = measured ? pk__measured_host_ns(kernel, sums) : pk__graph_ns(kernel, sums);
    if (sums->scheduled + sums->pad_tokens == 0) {
        idle_step(graph_ns, estimate);
        return;
    }
    pk__step step;
    pk__step_of(kernel, batch, sums, &step);
    pk__charge total = {{0}};
    double overlap_s;
    if (kernel->gathers_context && sums->prefills > 0)
        overlap_s = price_any_layers(0, kernel->layer_count, &step, &total);
    else
        overlap_s = price_layers(0, kernel->layer_count, &step, false, &total);
    overlap_s += price_head(&step, pk__head_rows(&step), &total);
    if (kernel->draft_passes > 0) overlap_s += price_drafts(&step, &total);
    busy_step(&total, overlap_s, pk__add(graph_ns, measured ? 0 : kernel->dispatch_ns), estimate);
}

pk_status pk_step_time(const pk_kernel *kernel, const pk_batch *batch, pk_estimate *estimate, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (estimate == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "estimate", "estimate is NULL");
    pk_status status =
        pk__check_struct(estimate->struct_size, estimate->flags, sizeof *estimate, "estimate", error);
    if (status != PK_OK) return status;
    pk__sums sums;
    status = pk__scan_batch(batch, kernel, &sums, error);
    if (status != PK_OK) return status;
    pk__price(kernel, batch, &sums, estimate);
    return PK_OK;
}
