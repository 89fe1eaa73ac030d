/* A step: the layers one after the other, then the head; the host on top. */
#include "internal.h"

static double largest(double a, double b, double c, double d) {
    double ab = a > b ? a : b, cd = c > d ? c : d;
    return ab > cd ? ab : cd;
}

double pk__dense_flops(const pk__layer *layer, const pk__step *step) {
    double flops = step->tokens * layer->flops_per_token;
    if (layer->attention_count == 0 || step->sums->prefills == 0) return flops;
    const pk__attention *attention = pk__attentions(step->kernel) + layer->attention_first;
    return attention->prefill.law == PK_PREFILL_DENSE ? flops + pk__prefill_flops(attention, step) : flops;
}

/* What a layer does but for its routed experts. */
static pk__charge rest_of_layer(const pk__layer *layer, const pk__step *step) {
    const pk_kernel *kernel = step->kernel;
    pk__charge rest = {0};
    if (layer->attention_count > 0)
        rest = pk__attention_charge(pk__attentions(kernel) + layer->attention_first, step);
    for (uint32_t i = 0; i < layer->scorer_count; i++)
        rest.hbm += pk__scorer_seconds(pk__scorers(kernel) + layer->scorer_first + i, step);
    rest.sm += pk__flop_seconds(pk__dense_flops(layer, step), step->flop_rate) * step->derate;
    rest.sm += pk__recurrent_seconds(&layer->recurrent, (double)step->sums->local_tokens);
    rest.hbm += (layer->weight_bytes + step->tokens * layer->elementwise_bytes_per_token) /
                kernel->hbm_bytes_per_second;
    for (uint32_t i = 0; i < layer->collective_count; i++) {
        const pk__collective *collective = pk__collectives(kernel) + layer->collective_first + i;
        pk__add_collective(collective, pk__collective_traffic(collective, step).seconds, &rest);
    }
    return rest;
}

/* Adds one kind of layer to the totals and returns the seconds of its stages. The routed experts run after the rest
 * of the layer, so they are added to its longest resource instead of hiding behind it. */
static double price_layer(const pk__layer *layer, const pk__step *step, pk__charge *total) {
    pk__charge rest = rest_of_layer(layer, step), routed = {0};
    for (uint32_t i = 0; i < layer->experts_count; i++) {
        pk__charge one = pk__experts_charge(pk__expert_sets(step->kernel) + layer->experts_first + i, step);
        routed.sm += one.sm;
        routed.hbm += one.hbm;
    }
    total->sm += layer->count * (rest.sm + routed.sm);
    total->hbm += layer->count * (rest.hbm + routed.hbm);
    total->nvlink += layer->count * rest.nvlink;
    total->nic += layer->count * rest.nic;
    return layer->count * (largest(rest.sm, rest.hbm, rest.nvlink, rest.nic) + (routed.sm + routed.hbm));
}

int64_t pk__head_rows(const pk__step *step) {
    return step->kernel->head.rows == PK_HEAD_ALL_TOKENS ? step->sums->local_tokens : step->sums->sampled_rows;
}

pk__charge pk__head_charge(const pk__step *step, int64_t rows) {
    const pk_kernel *kernel = step->kernel;
    const pk__head *head = &kernel->head;
    pk__charge charge = {0};
    if (!head->present || rows == 0) return charge;
    double rate = kernel->peak_flops * pk_gemm_efficiency(&kernel->gemm, (double)rows);
    charge.sm = pk__flop_seconds((double)rows * head->flops_per_row, rate) * step->derate;
    charge.hbm = head->read_seconds;
    if (head->gather.units != 0) {
        double bytes = (double)rows * head->gather.bytes_per_unit;
        pk__add_collective(&head->gather, pk_collective_seconds(&head->gather.law, bytes), &charge);
    }
    return charge;
}

static double price_head(const pk__step *step, int64_t rows, pk__charge *total) {
    if (step->kernel->measured_at != 0) return pk__price_measured_head(step, rows, total);
    pk__charge charge = pk__head_charge(step, rows);
    total->sm += charge.sm;
    total->hbm += charge.hbm;
    total->nvlink += charge.nvlink;
    total->nic += charge.nic;
    return largest(charge.sm, charge.hbm, charge.nvlink, charge.nic);
}

static double price_layers(const pk__layer *layers, uint32_t count, const pk__step *step, pk__charge *total) {
    double overlap_s = 0;
    if (step->kernel->measured_at != 0) return pk__price_measured_layers(layers, count, step, total);
    for (uint32_t i = 0; i < count; i++) overlap_s += price_layer(layers + i, step, total);
    return overlap_s;
}

/* The speculator's passes run one after another: the first over the step's own tokens, to fill its cache, the others
 * over the one token that each request drafts. */
pk__step pk__draft_step(const pk__step *first, int32_t pass, pk__sums *sums) {
    if (pass == 1) return *first;
    pk__scan_draft(first->batch, first->kernel, pass, sums);
    return pk__step_of(first->kernel, first->batch, sums);
}

static double price_drafts(const pk__step *first, pk__charge *total) {
    const pk_kernel *kernel = first->kernel;
    const pk__layer *layers = pk__layers(kernel) + kernel->layer_count;
    double overlap_s = 0;
    for (int32_t pass = 1; pass <= kernel->draft_passes; pass++) {
        pk__sums sums;
        pk__step step = pk__draft_step(first, pass, &sums);
        if (step.tokens > 0) overlap_s += price_layers(layers, kernel->draft_layer_count, &step, total);
        overlap_s += price_head(&step, step.sums->attending, total);
    }
    return overlap_s;
}

/* The resource with the largest share, in seconds before truncation; the earlier one on a tie. */
static int32_t bottleneck_of(const double seconds[PK_RESOURCE_COUNT]) {
    int32_t slowest = PK_SM;
    for (int32_t i = 1; i < PK_RESOURCE_COUNT; i++)
        if (seconds[i] > seconds[slowest]) slowest = i;
    return slowest;
}

static void idle_step(int64_t host_ns, pk_estimate *estimate) {
    *estimate = (pk_estimate){
        .struct_size = sizeof *estimate,
        .overlap_ns = host_ns,
        .no_overlap_ns = host_ns,
        .bottleneck = PK_HOST,
    };
    estimate->per_resource_ns[PK_HOST] = host_ns;
}

static void busy_step(const pk__charge *total, double overlap_s, int64_t host_ns, pk_estimate *estimate) {
    double seconds[PK_RESOURCE_COUNT] = {0};
    seconds[PK_SM] = total->sm;
    seconds[PK_HBM] = total->hbm;
    seconds[PK_NVLINK] = total->nvlink;
    seconds[PK_NIC] = total->nic;
    seconds[PK_HOST] = pk__seconds(host_ns);
    pk_estimate result = {.struct_size = sizeof result, .bottleneck = bottleneck_of(seconds)};
    for (int32_t i = 0; i < PK_RESOURCE_COUNT; i++) {
        /* The host's share is a count of nanoseconds already; a round trip through seconds could lose one. */
        result.per_resource_ns[i] = i == PK_HOST ? host_ns : pk_nanoseconds(seconds[i]);
        result.no_overlap_ns = pk__add(result.no_overlap_ns, result.per_resource_ns[i]);
    }
    int64_t overlap_ns = pk__add(pk_nanoseconds(overlap_s), host_ns);
    result.overlap_ns = pk__min(overlap_ns, result.no_overlap_ns);
    *estimate = result;
}

pk__step pk__step_of(const pk_kernel *kernel, const pk_batch *batch, const pk__sums *sums) {
    double tokens = (double)(sums->local_tokens + sums->pad_tokens);
    return (pk__step){
        .kernel = kernel,
        .batch = batch,
        .sums = sums,
        .tokens = tokens,
        .flop_rate = kernel->peak_flops * pk_gemm_efficiency(&kernel->gemm, tokens),
        .attention_flop_rate = kernel->peak_flops * pk_gemm_efficiency(&kernel->gemm, (double)sums->local_tokens),
        .derate = pk__sm_derate(kernel, batch->sm_budget),
    };
}

static void price(const pk_kernel *kernel, const pk_batch *batch, const pk__sums *sums, pk_estimate *estimate) {
    bool measured = kernel->measured_at != 0;
    int64_t graph_ns = measured ? pk__measured_host_ns(kernel, sums) : pk__graph_ns(kernel, sums);
    if (sums->scheduled + sums->pad_tokens == 0) {
        idle_step(graph_ns, estimate);
        return;
    }
    pk__step step = pk__step_of(kernel, batch, sums);
    pk__charge total = {0};
    double overlap_s = price_layers(pk__layers(kernel), kernel->layer_count, &step, &total);
    overlap_s += price_head(&step, pk__head_rows(&step), &total);
    overlap_s += price_drafts(&step, &total);
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
    price(kernel, batch, &sums, estimate);
    return PK_OK;
}
