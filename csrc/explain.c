/* The terms of a step, one by one: what pk_step_time adds up, with the amounts of work behind it. */
#include "internal.h"

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

static void explain_attention(const pk__layer *layer, const pk__step *step, sink *out) {
    int32_t index = (int32_t)layer->attention_first;
    const pk__attention *attention = pk__attentions(step->kernel) + index;
    pk__charge charge = pk__attention_charge(attention, step);
    /* Seconds per entry over seconds per byte: the bytes are those at the rate of the law that was charged. */
    bool has_rate = attention->decode.law == PK_DECODE_FLOOR_RATE;
    double rate = has_rate ? attention->decode.bytes_per_second : step->kernel->hbm_bytes_per_second;
    double read_s = (double)step->sums->reads[attention->read_slot] * attention->decode_seconds_per_entry;
    double flop_rate = step->attention_flop_rate * attention->prefill.work_scale / step->derate;
    double work_s = charge.sm > 0 ? pk__flop_seconds(pk__prefill_flops(attention, step), flop_rate) : 0;
    emit(out, (pk_term){.kind = PK_TERM_PREFILL,
                        .resource = PK_SM,
                        .index = index,
                        .seconds = charge.sm,
                        .flops = pk__prefill_flops(attention, step),
                        .flop_rate = flop_rate,
                        .floor_s = charge.sm - work_s});
    emit(out, (pk_term){.kind = PK_TERM_DECODE,
                        .resource = PK_HBM,
                        .index = index,
                        .seconds = charge.hbm,
                        .bytes = read_s * rate,
                        .floor_s = charge.hbm - (step->sums->decodes > 0 ? read_s : 0)});
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
    double memory = step->kernel->hbm_bytes_per_second;
    double flops = pk__dense_flops(layer, step);
    double elementwise = step->tokens * layer->elementwise_bytes_per_token;
    emit(out, (pk_term){.kind = PK_TERM_DENSE,
                        .resource = PK_SM,
                        .seconds = pk__flop_seconds(flops, step->flop_rate) * step->derate,
                        .flops = flops,
                        .flop_rate = step->flop_rate / step->derate});
    emit(out, (pk_term){.kind = PK_TERM_WEIGHTS,
                        .resource = PK_HBM,
                        .seconds = layer->weight_bytes / memory,
                        .bytes = layer->weight_bytes});
    emit(out, (pk_term){.kind = PK_TERM_ELEMENTWISE,
                        .resource = PK_HBM,
                        .seconds = elementwise / memory,
                        .bytes = elementwise});
    emit(out, (pk_term){.kind = PK_TERM_RECURRENT,
                        .resource = PK_SM,
                        .seconds = pk__recurrent_seconds(&layer->recurrent, (double)step->sums->local_tokens),
                        .floor_s = pk__recurrent_seconds(&layer->recurrent, 0)});
}

static void explain_experts(const pk__layer *layer, const pk__step *step, sink *out) {
    for (uint32_t i = 0; i < layer->experts_count; i++) {
        const pk__experts *experts = pk__expert_sets(step->kernel) + layer->experts_first + i;
        pk__charge charge = pk__experts_charge(experts, step);
        int32_t index = (int32_t)(layer->experts_first + i);
        emit(out, (pk_term){.kind = PK_TERM_EXPERT_WORK,
                            .resource = PK_SM,
                            .index = index,
                            .seconds = charge.sm,
                            .flops = step->tokens * experts->flops_per_token,
                            .flop_rate = step->flop_rate / step->derate});
        emit(out, (pk_term){.kind = PK_TERM_EXPERT_WEIGHTS,
                            .resource = PK_HBM,
                            .index = index,
                            .seconds = charge.hbm,
                            .bytes = pk__experts_bytes(experts, step)});
    }
}

static void explain_collectives(const pk__layer *layer, const pk__step *step, sink *out) {
    for (uint32_t i = 0; i < layer->collective_count; i++) {
        const pk__collective *collective = pk__collectives(step->kernel) + layer->collective_first + i;
        pk__traffic traffic = pk__collective_traffic(collective, step);
        emit(out, (pk_term){.kind = PK_TERM_COLLECTIVE,
                            .resource = collective->resource,
                            .index = (int32_t)(layer->collective_first + i),
                            .launches = (int32_t)traffic.launches,
                            .seconds = traffic.seconds,
                            .bytes = traffic.bytes,
                            .floor_s = traffic.launches * pk__seconds(collective->law.floor_ns)});
    }
}

static void explain_layers(uint32_t first, uint32_t count, const pk__step *step, sink *out) {
    for (uint32_t i = first; i < first + count; i++) {
        const pk__layer *layer = pk__layers(step->kernel) + i;
        out->part = (int32_t)i;
        out->times = layer->count;
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
    pk__charge charge = pk__head_charge(step, rows);
    double gather_bytes = (double)rows * head->gather.bytes_per_unit;
    double gather_s = charge.nvlink + charge.nic;
    out->part = PK_PART_HEAD;
    out->times = 1;
    emit(out, (pk_term){.kind = PK_TERM_DENSE,
                        .resource = PK_SM,
                        .seconds = charge.sm,
                        .flops = (double)rows * head->flops_per_row,
                        .flop_rate = kernel->peak_flops * pk_gemm_efficiency(&kernel->gemm, (double)rows) /
                                     step->derate});
    emit(out, (pk_term){.kind = PK_TERM_WEIGHTS,
                        .resource = PK_HBM,
                        .seconds = charge.hbm,
                        .bytes = charge.hbm * kernel->hbm_bytes_per_second});
    emit(out, (pk_term){.kind = PK_TERM_GATHER,
                        .resource = head->gather.resource,
                        .launches = 1,
                        .seconds = gather_s,
                        .bytes = gather_bytes,
                        .floor_s = pk__seconds(head->gather.law.floor_ns)});
}

static void explain_host(const pk_kernel *kernel, const pk__sums *sums, bool idle, sink *out) {
    out->part = PK_PART_HOST;
    out->times = 1;
    out->pass = 0;
    emit(out, (pk_term){.kind = PK_TERM_GRAPH,
                        .resource = PK_HOST,
                        .index = pk__graph_mode(kernel, sums),
                        .seconds = pk__seconds(pk__graph_ns(kernel, sums))});
    if (!idle)
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
        pk__step step = pk__step_of(kernel, batch, &sums);
        explain_layers(0, kernel->layer_count, &step, &out);
        explain_head(&step, pk__head_rows(&step), &out);
        for (int32_t pass = 1; pass <= kernel->draft_passes; pass++) {
            pk__sums draft_sums;
            pk__step draft = pk__draft_step(&step, pass, &draft_sums);
            out.pass = pass;
            if (draft.tokens > 0) explain_layers(kernel->layer_count, kernel->draft_layer_count, &draft, &out);
            explain_head(&draft, draft.sums->attending, &out);
        }
    }
    explain_host(kernel, &sums, idle, &out);
    *count = out.count;
    return PK_OK;
}
