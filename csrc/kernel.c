/* Builds the frozen kernel: everything of a price that the batch cannot change is worked out here, once. */
#include "laws.h"

#include <stdlib.h>
#include <string.h>

typedef struct layout {
    size_t layers, attentions, scorers, experts, collectives, caches, tiers, measured, record, record_size, total;
} layout;

static layout lay_out(const pk_spec *spec) {
    layout at;
    at.layers = pk__aligned(sizeof(pk_kernel));
    at.attentions = pk__aligned(at.layers + pk__all_layers(spec) * sizeof(pk__layer));
    at.scorers = pk__aligned(at.attentions + spec->attention_count * sizeof(pk__attention));
    at.experts = pk__aligned(at.scorers + spec->scorer_count * sizeof(pk__scorer));
    at.collectives = pk__aligned(at.experts + spec->experts_count * sizeof(pk__experts));
    at.caches = pk__aligned(at.collectives + spec->collective_count * sizeof(pk__collective));
    at.tiers = pk__aligned(at.caches + spec->cache_count * sizeof(pk_cache_group));
    at.measured = pk__aligned(at.tiers + spec->tier_count * sizeof(pk_tier));
    at.record = pk__aligned(at.measured + pk__measured_size(spec));
    at.record_size = pk__record_size(spec);
    at.total = pk__aligned(at.record + at.record_size);
    return at;
}

/* Layers that read alike share one scan of the batch. */
static pk_status read_slot(pk_kernel *kernel, pk_read_law law, uint32_t *slot, pk_error *error) {
    if (kernel->decode_ranks <= 1) law.sharded = 0;
    if (law.law != PK_READ_SELECTED) law.top_k = law.compress_ratio = 0;
    if (law.law == PK_READ_ALL) law.window = 0;
    for (*slot = 0; *slot < kernel->read_count; ++*slot) {
        const pk_read_law *known = &kernel->reads[*slot];
        if (known->law == law.law && known->sharded == law.sharded && known->top_k == law.top_k &&
            known->compress_ratio == law.compress_ratio && known->window == law.window)
            return PK_OK;
    }
    if (kernel->read_count == PK_MAX_READS)
        return pk__fail(error, PK_SPEC_LIMIT, "attentions", "more than %d different read laws", PK_MAX_READS);
    kernel->reads[kernel->read_count++] = law;
    return PK_OK;
}

static pk_status window_slot(pk_kernel *kernel, int64_t window, uint32_t *slot, pk_error *error) {
    if (window > PK_MAX_REQUEST_TOKENS) window = 0; /* wider than any context: no bound */
    for (*slot = 0; *slot < kernel->window_count; ++*slot)
        if (kernel->windows[*slot] == window) return PK_OK;
    if (kernel->window_count == PK_MAX_READS)
        return pk__fail(error, PK_SPEC_LIMIT, "attentions", "more than %d different windows", PK_MAX_READS);
    kernel->windows[kernel->window_count++] = window;
    return PK_OK;
}

/* Adds the matrices priced by their shape: as much work more as their shape is less efficient. */
static void add_shaped_flops(const pk_spec *spec, const pk_layer *layer, double *priced, double *work) {
    for (uint32_t i = 0; i < layer->gemm_count; i++) {
        const pk_gemm *gemm = &spec->gemms[layer->gemm_first + i];
        *priced += gemm->flops_per_token / pk_gemm_shape_factor(&spec->gemm, gemm->n, gemm->k);
        *work += gemm->flops_per_token;
    }
}

static void fold_layer(const pk_spec *spec, const pk_layer *in, pk__layer *out) {
    double tp = spec->tensor_parallel, memory = spec->hbm_bytes_per_second;
    bool recurs = in->recurrent.law != PK_RECURRENT_NONE;
    double priced = 0, work = 0;
    add_shaped_flops(spec, in, &priced, &work);
    *out = (pk__layer){
        .count = in->count,
        .flops_per_token = (in->dense_flops_per_token + priced) / tp,
        .work_per_token = (in->dense_flops_per_token + work) / tp,
        .weight_seconds = in->dense_bytes / tp / memory,
        .weight_bytes = in->dense_bytes / tp,
        .elementwise_seconds_per_token = in->elementwise_bytes_per_token / tp / memory,
        .elementwise_bytes_per_token = in->elementwise_bytes_per_token / tp,
        .recurrent_floor_s = recurs ? pk__seconds(in->recurrent.floor_ns) : 0,
        .recurrent_seconds_per_token = recurs ? 1 / in->recurrent.tokens_per_second : 0,
        .attention_first = in->attention_first,
        .attention_count = in->attention_count,
        .scorer_first = in->scorer_first,
        .scorer_count = in->scorer_count,
        .experts_first = in->experts_first,
        .experts_count = in->experts_count,
        .collective_first = in->collective_first,
        .collective_count = in->collective_count,
    };
}

static pk_status fold_attention(pk_kernel *kernel, const pk_spec *spec, const pk_attention *in, pk__attention *out,
                                pk_error *error) {
    bool has_rate = in->decode.law == PK_DECODE_FLOOR_RATE, has_scale = in->prefill.law == PK_PREFILL_FLOOR_RAMP;
    double rate = has_rate ? in->decode.bytes_per_second : spec->hbm_bytes_per_second;
    double decode_floor_s = has_rate ? pk__seconds(in->decode.floor_ns) : 0;
    double prefill_floor_s = has_scale ? pk__seconds(in->prefill.floor_ns) : 0;
    double flops_per_pair4 = (double)in->query_heads * in->head_dim / spec->tensor_parallel;
    bool counts_whole = in->read.law != PK_READ_SELECTED || (in->read.sharded && kernel->decode_ranks > 1);
    bool spares = in->one_mixed_launch && has_rate && has_scale;
    bool decode_is_less = decode_floor_s < prefill_floor_s;
    *out = (pk__attention){
        .decode_floor_s = decode_floor_s,
        .decode_seconds_per_entry = in->cache_bytes_per_token / rate / (counts_whole ? 1 : in->read.compress_ratio),
        .decode_bytes_per_second = rate,
        .prefill_floor_s = prefill_floor_s,
        .flops_per_pair4 = flops_per_pair4,
        .scaled_flops_per_pair4 = has_scale ? flops_per_pair4 / in->prefill.work_scale : 0,
        .dense_flops_per_pair4 = has_scale ? 0 : flops_per_pair4,
        .work_scale = has_scale ? in->prefill.work_scale : 1,
        .mixed_spares_sm_s = spares && !decode_is_less ? prefill_floor_s : 0,
        .mixed_spares_hbm_s = spares && decode_is_less ? decode_floor_s : 0,
        .read_unit = counts_whole ? 1 : in->read.compress_ratio,
    };
    pk_status status = read_slot(kernel, in->read, &out->read_slot, error);
    return status != PK_OK ? status : window_slot(kernel, in->prefill_window, &out->window_slot, error);
}

static void fold_scorer(const pk_scorer *in, pk__scorer *out) {
    *out = (pk__scorer){
        .floor_s = pk__seconds(in->decode.floor_ns),
        .seconds_per_entry = in->cache_bytes_per_token / in->decode.bytes_per_second,
        .bytes_per_second = in->decode.bytes_per_second,
        .window = in->window,
        .compress_ratio = in->compress_ratio,
        .sharded = in->sharded,
    };
}

static void fold_experts(const pk_spec *spec, const pk_experts *in, pk__experts *out) {
    double share = (double)in->local / in->experts;
    *out = (pk__experts){
        .flops_per_token = (double)in->funnel * in->top_k * share * in->flops_per_token_and_expert * in->imbalance /
                           in->token_slices,
        .bytes_per_expert = in->bytes_per_expert / in->shards,
        .seconds_per_expert = in->bytes_per_expert / in->shards / spec->hbm_bytes_per_second,
        .missed = pk__experts_missed(in->experts, in->top_k),
        .local = in->local,
        .funnel = in->funnel,
        .experts = in->experts,
        .top_k = in->top_k,
    };
}

static pk__collective fold_collective(const pk_spec *spec, const pk_collective *in) {
    const pk_group *group = &spec->groups[in->group];
    const pk_collective_law *law = &spec->collective_laws[in->law];
    double bytes = in->bytes_per_unit * pk_span_factor(group, in->span, spec->link_ratio);
    double transition = law->transition_bytes_per_second;
    int32_t link = group->crosses_nodes ? PK_NIC : PK_NVLINK;
    return (pk__collective){
        .floor_s = pk__seconds(law->floor_ns),
        .ramp_seconds_per_unit = transition > 0 ? bytes / transition : 0,
        .peak_seconds_per_unit = bytes / law->peak_bytes_per_second,
        .bytes_per_unit = bytes,
        .units = in->units,
        .resource = in->on_sm ? PK_SM : link,
        .equals = 1,
        .ranks = group->width,
    };
}

static bool same_collective(const pk__collective *a, const pk__collective *b) {
    return a->floor_s == b->floor_s && a->ramp_seconds_per_unit == b->ramp_seconds_per_unit &&
           a->peak_seconds_per_unit == b->peak_seconds_per_unit && a->bytes_per_unit == b->bytes_per_unit &&
           a->units == b->units && a->resource == b->resource;
}

/* From the last to the first, so that each entry knows how many like it follow. */
static void fold_collectives(const pk_spec *spec, pk__collective *out) {
    for (uint32_t i = spec->collective_count; i-- > 0;) {
        out[i] = fold_collective(spec, &spec->collectives[i]);
        if (i + 1 < spec->collective_count && same_collective(&out[i], &out[i + 1])) out[i].equals += out[i + 1].equals;
    }
}

static void fold_head(const pk_spec *spec, pk__head *out) {
    const pk_head *in = &spec->head;
    double tp = spec->tensor_parallel;
    *out = (pk__head){
        .flops_per_row = in->flops_per_row / tp,
        .read_seconds = in->bytes / tp / spec->hbm_bytes_per_second,
        .rows = in->rows,
        .present = in->flops_per_row > 0,
    };
    if (in->has_gather) {
        pk_collective gather = {
            .law = in->gather_law,
            .group = in->gather_group,
            .span = PK_SPAN_RING,
            .units = PK_UNITS_TOKENS, /* the caller counts rows instead */
            .bytes_per_unit = in->gather_bytes_per_row,
        };
        out->gather = fold_collective(spec, &gather);
    }
}

/* Behind the name stays what the kernel's block was zeroed to. */
static void fold_tier(const pk_tier *in, pk_tier *out) {
    for (size_t i = 0; in->name[i] != '\0'; i++) out->name[i] = in->name[i];
    out->read_bytes_per_second = in->read_bytes_per_second;
    out->write_bytes_per_second = in->write_bytes_per_second;
    out->latency_us = in->latency_us;
}

static void fold_host(const pk_host *host, pk_kernel *kernel) {
    kernel->host = *host;
    kernel->graph_ns[PK_GRAPH_NONE] = pk__multiply(host->eager_layer_ns, host->layers);
    kernel->graph_ns[PK_GRAPH_PIECEWISE] = pk__multiply(host->replay_ns, host->segments);
    kernel->graph_ns[PK_GRAPH_FULL] = host->replay_ns;
    kernel->dispatch_ns = pk_nanoseconds(pk__seconds(host->kernel_ns) * host->kernels);
}

static pk_status fold(const pk_spec *spec, pk_kernel *kernel, pk_error *error) {
    unsigned char *block = (unsigned char *)kernel;
    pk__layer *layers = (void *)(block + kernel->layers_at);
    pk__attention *attentions = (void *)(block + kernel->attentions_at);
    pk__scorer *scorers = (void *)(block + kernel->scorers_at);
    pk__experts *experts = (void *)(block + kernel->experts_at);
    pk__collective *collectives = (void *)(block + kernel->collectives_at);
    pk_cache_group *caches = (void *)(block + kernel->caches_at);
    pk_tier *tiers = (void *)(block + kernel->tiers_at);
    for (uint32_t i = 0; i < pk__all_layers(spec); i++) fold_layer(spec, &spec->layers[i], &layers[i]);
    for (uint32_t i = 0; i < spec->attention_count; i++) {
        pk_status status = fold_attention(kernel, spec, &spec->attentions[i], &attentions[i], error);
        if (status != PK_OK) return status;
    }
    for (uint32_t i = 0; i < spec->scorer_count; i++) fold_scorer(&spec->scorers[i], &scorers[i]);
    for (uint32_t i = 0; i < spec->experts_count; i++) fold_experts(spec, &spec->experts[i], &experts[i]);
    fold_collectives(spec, collectives);
    for (uint32_t i = 0; i < spec->collective_count; i++)
        kernel->gathers_context |= spec->collectives[i].units == PK_UNITS_CONTEXT_CHUNKS;
    for (uint32_t i = 0; i < spec->cache_count; i++) caches[i] = spec->caches[i];
    for (uint32_t i = 0; i < spec->tier_count; i++) fold_tier(&spec->tiers[i], &tiers[i]);
    fold_head(spec, &kernel->head);
    pk__fold_memory(spec, kernel);
    fold_host(&spec->host, kernel);
    return PK_OK;
}

static void copy_scalars(const pk_spec *spec, pk_kernel *kernel) {
    kernel->sm_count = spec->sm_count;
    kernel->draft_passes = spec->draft_layer_count > 0 ? spec->draft_passes : 0;
    kernel->prefill_ranks = spec->prefill_context_parallel;
    kernel->decode_ranks = spec->decode_context_parallel;
    kernel->interleave = spec->interleave;
    kernel->context_chunk = spec->context_chunk;
    kernel->peak_flops = spec->peak_flops;
    kernel->hbm_bytes_per_second = spec->hbm_bytes_per_second;
    kernel->gemm = spec->gemm;
    kernel->links = spec->links;
    kernel->cache_count = spec->cache_count;
    kernel->tier_count = spec->tier_count;
    kernel->layer_count = spec->layer_count;
    kernel->draft_layer_count = spec->draft_layer_count;
    kernel->reads[0].law = PK_READ_ALL;
    kernel->read_count = 1;
    kernel->window_count = 1;
}

pk_status pk_kernel_new(const pk_spec *spec, pk_kernel **kernel, pk_error *error) {
    if (spec == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "spec", "spec is NULL");
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    pk_status status = pk__check_spec(spec, error);
    if (status != PK_OK) return status;
    layout at = lay_out(spec);
    pk_kernel *made = calloc(1, at.total); /* zeroed, so that padding bytes are the same in equal kernels */
    if (made == NULL) return pk__fail(error, PK_NO_MEMORY, "kernel", "%zu bytes could not be allocated", at.total);
    copy_scalars(spec, made);
    made->size = at.total;
    made->layers_at = (uint32_t)at.layers;
    made->attentions_at = (uint32_t)at.attentions;
    made->scorers_at = (uint32_t)at.scorers;
    made->experts_at = (uint32_t)at.experts;
    made->collectives_at = (uint32_t)at.collectives;
    made->caches_at = (uint32_t)at.caches;
    made->tiers_at = (uint32_t)at.tiers;
    made->record_at = (uint32_t)at.record;
    made->record_size = (uint32_t)at.record_size;
    pk__record_write(spec, (unsigned char *)made + at.record);
    if (spec->measured.present) {
        made->measured_at = (uint32_t)at.measured;
        pk__fold_measured(spec, (pk__measured *)(void *)((unsigned char *)made + at.measured));
    }
    status = fold(spec, made, error);
    if (status != PK_OK) {
        pk_kernel_free(made);
        return status;
    }
    if (made->measured_at != 0) pk__tabulate(made);
    *kernel = made;
    return PK_OK;
}

void pk_kernel_free(pk_kernel *kernel) { free(kernel); }

size_t pk_kernel_size(const pk_kernel *kernel) { return kernel == NULL ? 0 : (size_t)kernel->size; }
