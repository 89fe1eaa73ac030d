/* The terms of a step, one by one: what pk_step_time adds up, with the amounts of work behind it. */
#include "laws.h"

/* Where the next term goes. Terms past the capacity are counted, not written. */
typedef struct sink {
    pk_term *terms;
    size_t capacity, count;
    int32_t part, pass;
    double times;
} sink;

static void emit(sink *out, pk_term term) {
    if (term.seconds == 0) return;
    term.part = out->part;
    term.draft_pass = out->pass;
    term.times = out->times;
    if (out->count < out->capacity) out->terms[out->count] = term;
    out->count++;
}

static double rate_of(double seconds_per_flop) { return seconds_per_flop > 0 ? 1 / seconds_per_flop : 0; }

static void explain_attention(const pk__layer *layer, const pk__step *step, sink *out) {
    int32_t index = (int32_t)layer->attention_first;
    const pk__attention *attention = pk__attentions(step->kernel) + index;
    const pk__sums *sums = step->sums;
    pk__charge charge = {{0}};
    pk__add_attention(attention, step, &charge);
    double sm_s = charge.seconds[PK_SM], hbm_s = charge.seconds[PK_HBM];
    double read_s = (double)sums->reads[attention->read_slot] * attention->decode_seconds_per_entry;
    double pairs4 = sums->prefills > 0 ? (double)sums->pairs4[attention->window_slot] : 0;
    double work_s = pairs4 * attention->scaled_flops_per_pair4 * step->attention_seconds_per_flop;
    emit(out, (pk_term){.kind = PK_TERM_PREFILL,
                        .resource = PK_SM,
                        .index = index,
                        .seconds = sm_s,
                        .flops = pairs4 * attention->flops_per_pair4,
                        .flop_rate = rate_of(step->attention_seconds_per_flop) * attention->work_scale,
                        .floor_s = sm_s - work_s});
    emit(out, (pk_term){.kind = PK_TERM_DECODE,
                        .resource = PK_HBM,
                        .index = index,
                        .seconds = hbm_s,
                        .bytes = read_s * attention->decode_bytes_per_second,
                        .floor_s = hbm_s - (sums->decodes > 0 ? read_s : 0)});
}

static void explain_scorers(const pk__layer *layer, const pk__step *step, sink *out) {
    for (uint32_t i = 0; i < layer->scorer_count; i++) {
        const pk__scorer *scorer = pk__scorers(step->kernel) + layer->scorer_first + i;
        double seconds = pk__scorer_seconds(scorer, step);
        emit(out, (pk_term){.kind = PK_TERM_SCORER,
                            .resource = PK_HBM,
                            .index = (int32_t)(layer->scorer_first + i),
                            .seconds = seconds,
                            .bytes = (seconds - scorer->floor_s) * scorer->bytes_per_second,
                            .floor_s = scorer->floor_s});
    }
}

static void explain_dense(const pk__layer *layer, const pk__step *step, sink *out) {
    double priced = pk__dense_flops(layer, step), seconds = priced * step->seconds_per_flop;
    double flops = priced - step->tokens * (layer->flops_per_token - layer->work_per_token);
    emit(out, (pk_term){.kind = PK_TERM_DENSE,
                        .resource = PK_SM,
                        .seconds = seconds,
                        .flops = flops,
                        .flop_rate = seconds > 0 ? flops / seconds : 0});
    emit(out, (pk_term){.kind = PK_TERM_WEIGHTS,
                        .resource = PK_HBM,
                        .seconds = layer->weight_seconds,
                        .bytes = layer->weight_bytes});
    emit(out, (pk_term){.kind = PK_TERM_ELEMENTWISE,
                        .resource = PK_HBM,
                        .seconds = step->tokens * layer->elementwise_seconds_per_token,
                        .bytes = step->tokens * layer->elementwise_bytes_per_token});
    emit(out, (pk_term){.kind = PK_TERM_RECURRENT,
                        .resource = PK_SM,
                        .seconds = pk__recurrent_seconds(layer, step->local_tokens),
                        .floor_s = layer->recurrent_floor_s});
}

static void explain_experts(const pk__layer *layer, const pk__step *step, sink *out) {
    for (uint32_t i = 0; i < layer->experts_count; i++) {
        const pk__experts *experts = pk__expert_sets(step->kernel) + layer->experts_first + i;
        double touched = pk__experts_touched(experts, step);
        int32_t index = (int32_t)(layer->experts_first + i);
        emit(out, (pk_term){.kind = PK_TERM_EXPERT_WORK,
                            .resource = PK_SM,
                            .index = index,
                            .seconds = pk__experts_work_seconds(experts, step),
                            .flops = step->tokens * experts->flops_per_token,
                            .flop_rate = rate_of(step->seconds_per_flop)});
        emit(out, (pk_term){.kind = PK_TERM_EXPERT_WEIGHTS,
                            .resource = PK_HBM,
                            .index = index,
                            .seconds = touched * experts->seconds_per_expert,
                            .bytes = touched * experts->bytes_per_expert});
    }
}

static int32_t held_count(double count) { return count < INT32_MAX ? (int32_t)count : INT32_MAX; }

static pk__traffic traffic_of(const pk__collective *collective, const pk__step *step) {
    if (collective->units == PK_UNITS_CONTEXT_CHUNKS) return pk__context_traffic(collective, step);
    double units = pk__units(collective, step);
    if (!(units > 0)) return (pk__traffic){0};
    return (pk__traffic){.launches = 1,
                         .bytes = units * collective->bytes_per_unit,
                         .seconds = pk__launch_seconds(collective, units)};
}

static void explain_collectives(const pk__layer *layer, const pk__step *step, sink *out) {
    uint32_t end = layer->collective_first + layer->collective_count, equals;
    for (uint32_t i = layer->collective_first; i < end; i += equals) {
        const pk__collective *collective = pk__collectives(step->kernel) + i;
        pk__traffic traffic = traffic_of(collective, step);
        equals = pk__equal_launches(collective, i, end);
        emit(out, (pk_term){.kind = PK_TERM_COLLECTIVE,
                            .resource = collective->resource,
                            .index = (int32_t)i,
                            .launches = held_count(equals * traffic.launches),
                            .seconds = equals * traffic.seconds,
                            .bytes = equals * traffic.bytes,
                            .floor_s = equals * traffic.launches * collective->floor_s});
    }
}

/* A measured kernel's time at the SMs and its bytes at memory are two terms. */
static void emit_work(sink *out, const pk__step *step, const pk__work *work, int32_t sm_kind, int32_t hbm_kind,
                      uint32_t index) {
    double sm_s = work->sm * step->derate;
    emit(out, (pk_term){.kind = sm_kind,
                        .resource = PK_SM,
                        .index = (int32_t)index,
                        .seconds = sm_s,
                        .flops = work->flops,
                        .flop_rate = work->flops > 0 ? work->flops / (sm_s + work->hbm) : 0});
    emit(out, (pk_term){.kind = hbm_kind,
                        .resource = PK_HBM,
                        .index = (int32_t)index,
                        .seconds = work->hbm,
                        .bytes = work->hbm * pk__measured_of(step->kernel)->bytes_per_second});
}

static void emit_links(sink *out, const pk__work *work, int32_t kind, uint32_t index) {
    const double seconds[] = {work->link_sm, work->nvlink, work->nic};
    const int32_t resources[] = {PK_SM, PK_NVLINK, PK_NIC};
    for (int i = 0; i < 3; i++)
        emit(out, (pk_term){.kind = kind,
                            .resource = resources[i],
                            .index = (int32_t)index,
                            .launches = 1,
                            .seconds = seconds[i],
                            .bytes = work->link_bytes});
}

static void explain_measured_range(uint32_t layer, uint32_t first, uint32_t count, int32_t kind, int32_t hbm_kind,
                                   const pk__step *step, sink *out) {
    for (uint32_t i = first; i < first + count; i++) {
        pk__work work = pk__measured_part(step, layer, kind, i);
        emit_work(out, step, &work, kind, hbm_kind, i);
        if (kind == PK_TERM_COLLECTIVE) emit_links(out, &work, kind, i);
    }
}

static void explain_measured_layer(uint32_t i, const pk__step *step, sink *out) {
    const pk__layer *layer = pk__layers(step->kernel) + i;
    uint32_t attention = layer->attention_first, attentions = layer->attention_count;
    explain_measured_range(i, 0, 1, PK_TERM_DENSE, PK_TERM_WEIGHTS, step, out);
    explain_measured_range(i, attention, attentions, PK_TERM_PREFILL, PK_TERM_PREFILL, step, out);
    explain_measured_range(i, attention, attentions, PK_TERM_DECODE, PK_TERM_DECODE, step, out);
    explain_measured_range(i, layer->scorer_first, layer->scorer_count, PK_TERM_SCORER, PK_TERM_SCORER, step, out);
    explain_measured_range(i, layer->experts_first, layer->experts_count, PK_TERM_EXPERT_WORK, PK_TERM_EXPERT_WEIGHTS,
                           step, out);
    explain_measured_range(i, 0, 1, PK_TERM_RECURRENT, PK_TERM_RECURRENT, step, out);
    explain_measured_range(i, layer->collective_first, layer->collective_count, PK_TERM_COLLECTIVE, PK_TERM_COLLECTIVE,
                           step, out);
}

static void explain_layers(uint32_t first, uint32_t count, const pk__step *step, sink *out) {
    for (uint32_t i = first; i < first + count; i++) {
        const pk__layer *layer = pk__layers(step->kernel) + i;
        out->part = (int32_t)i;
        out->times = layer->count;
        if (step->kernel->measured_at != 0) {
            explain_measured_layer(i, step, out);
            continue;
        }
        explain_dense(layer, step, out);
        if (layer->attention_count > 0) explain_attention(layer, step, out);
        explain_scorers(layer, step, out);
        explain_experts(layer, step, out);
        explain_collectives(layer, step, out);
    }
}

static void explain_head(const pk__step *step, int64_t rows, sink *out) {
    const pk_kernel *kernel = step->kernel;
    const pk__head *head = &kernel->head;
    if (!head->present || rows == 0) return;
    double work_s = pk__head_flop_seconds(step, (double)rows);
    double flops = (double)rows * head->flops_per_row;
    out->part = PK_PART_HEAD;
    out->times = 1;
    if (kernel->measured_at != 0) {
        pk__work work = pk__measured_head_work(step, rows);
        emit_work(out, step, &work, PK_TERM_DENSE, PK_TERM_WEIGHTS, 0);
        emit_links(out, &work, PK_TERM_GATHER, 0);
        return;
    }
    emit(out, (pk_term){.kind = PK_TERM_DENSE,
                        .resource = PK_SM,
                        .seconds = work_s,
                        .flops = flops,
                        .flop_rate = work_s > 0 ? flops / work_s : 0});
    emit(out, (pk_term){.kind = PK_TERM_WEIGHTS,
                        .resource = PK_HBM,
                        .seconds = head->read_seconds,
                        .bytes = head->read_seconds * kernel->hbm_bytes_per_second});
    if (head->gather.units == 0) return;
    emit(out, (pk_term){.kind = PK_TERM_GATHER,
                        .resource = head->gather.resource,
                        .launches = 1,
                        .seconds = pk__launch_seconds(&head->gather, (double)rows),
                        .bytes = (double)rows * head->gather.bytes_per_unit,
                        .floor_s = head->gather.floor_s});
}

static void explain_host(const pk_kernel *kernel, const pk__sums *sums, bool idle, sink *out) {
    out->part = PK_PART_HOST;
    out->times = 1;
    out->pass = 0;
    bool measured = kernel->measured_at != 0;
    int64_t launch_ns = measured ? pk__measured_host_ns(kernel, sums) : pk__graph_ns(kernel, sums);
    emit(out, (pk_term){.kind = PK_TERM_GRAPH,
                        .resource = PK_HOST,
                        .index = pk__graph_mode(kernel, sums),
                        .seconds = pk__seconds(launch_ns)});
    if (!idle && !measured)
        emit(out, (pk_term){
                      .kind = PK_TERM_DISPATCH, .resource = PK_HOST, .seconds = pk__seconds(kernel->dispatch_ns)});
}

pk_status pk_step_explain(const pk_kernel *kernel, const pk_batch *batch, pk_term *terms, size_t capacity,
                          size_t *count, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (count == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "count", "count is NULL");
    if (terms == NULL && capacity > 0)
        return pk__fail(error, PK_NULL_ARGUMENT, "terms", "terms is NULL with a capacity of %zu", capacity);
    pk__sums sums;
    pk_status status = pk__scan_batch(batch, kernel, &sums, error);
    if (status != PK_OK) return status;
    sink out = {.terms = terms, .capacity = capacity};
    bool idle = sums.scheduled + sums.pad_tokens == 0;
    if (!idle) {
        pk__step step;
        pk__step_of(kernel, batch, &sums, &step);
        explain_layers(0, kernel->layer_count, &step, &out);
        explain_head(&step, pk__head_rows(&step), &out);
        for (int32_t pass = 1; pass <= kernel->draft_passes; pass++) {
            pk__sums draft_sums;
            pk__step draft;
            pk__draft_step(&step, pass, &draft_sums, &draft);
            out.pass = pass;
            if (draft.tokens > 0) explain_layers(kernel->layer_count, kernel->draft_layer_count, &draft, &out);
            explain_head(&draft, draft.sums->attending, &out);
        }
    }
    explain_host(kernel, &sums, idle, &out);
    *count = out.count;
    return PK_OK;
}
