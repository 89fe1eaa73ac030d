/* The measured laws: one kernel at a time, each held to the roofline of its work and its bytes. */
#include "laws.h"

#include <math.h>

/* (a^p + b^p)^(1/p), from the larger term, so that nothing overflows and equal terms cost no accuracy. */
static double norm(uint32_t exponent, double a, double b) {
    double large = a > b ? a : b, small = a > b ? b : a;
    if (!(small > 0) || !(large > 0)) return large;
    if (exponent == 16) return large + small;
    double p = (double)exponent / 16;
    double share = pk_power(small / large, p);
    /* Below half a unit in the last place the smaller term is not there. */
    return share < 0x1p-53 ? large : large * pk_power(1 + share, 1 / p);
}

static double larger(double a, double b) { return a > b ? a : b; }

double pk_matrix_seconds(const pk_matrix_law *law, double bytes_per_second, double sms, double m, double n, double k,
                         double weight_bytes) {
    double arithmetic = 2 * m * n * k / (law->peak_flops * law->compute) * (1 + law->k_half / k) *
                        (1 + law->wave * sms * 16384 / (m * n));
    double weights = weight_bytes * n * k / (bytes_per_second * law->memory);
    double activations = (law->input_passes * 2 * m * k + law->output_passes * 2 * m * n) / bytes_per_second;
    /* sqrt is exact in IEEE 754, unlike the rest of libm. */
    return law->floor + law->depth * sqrt(k) + law->per_row * m + norm(law->exponent, arithmetic, weights) + activations;
}

double pk_stream_seconds(const pk_stream_law *law, double bytes_per_second, double sms, double rows, double tokens,
                         double kv_heads, double bytes, double flops) {
    double streams = kv_heads * larger(rows, tokens / 256);
    double read = bytes / (bytes_per_second * law->memory) * (1 + law->occupancy * sms / streams);
    double arithmetic = flops / (law->peak_flops * law->compute);
    double dispatch = rows * (law->per_row + law->per_stream * kv_heads);
    return law->floor + norm(law->exponent, read + arithmetic, dispatch);
}

double pk_link_seconds(const pk_link_law *law, double ranks, double bytes) {
    double moved = bytes * law->volume * (ranks - 1) / ranks / law->bytes_per_second;
    return norm(law->exponent, law->floor + law->per_rank * ranks, moved);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

static const void *part(const pk__measured *measured, uint32_t offset) {
    return (const unsigned char *)measured + offset;
}

/* Adds a kernel: its bytes to memory at the full rate, the rest of its time to the SMs. */
static void add_kernel(const pk__measured *measured, double seconds, double flops, double peak, double bytes,
                       pk__work *work) {
    double moved = bytes / measured->bytes_per_second;
    double taken = larger(seconds * measured->host.kernel_scale, larger(moved, flops / peak));
    work->hbm += moved;
    work->sm += taken - moved;
}

static void add_matrix(const pk__measured *measured, const pk_matrix *matrix, double m, pk__work *work) {
    const pk_matrix_law *law = (const pk_matrix_law *)part(measured, measured->matrix_laws_at) + matrix->law;
    double bytes = matrix->weight_bytes * matrix->n * matrix->k;
    double seconds = pk_matrix_seconds(law, measured->bytes_per_second, measured->sms, m, matrix->n, matrix->k,
                                       matrix->weight_bytes);
    add_kernel(measured, seconds, 2 * m * matrix->n * matrix->k, law->peak_flops, bytes, work);
}

static void add_stream(const pk__measured *measured, uint32_t index, double rows, double tokens, double heads,
                       double bytes, double flops, pk__work *work) {
    if (!(rows > 0)) return;
    const pk_stream_law *law = (const pk_stream_law *)part(measured, measured->stream_laws_at) + index;
    double seconds = pk_stream_seconds(law, measured->bytes_per_second, measured->sms, rows, tokens, heads, bytes, flops);
    add_kernel(measured, seconds, flops, law->peak_flops, bytes, work);
}

static void add_tiles(const pk__measured *measured, const pk__sums *sums, const pk_measured_attention *attention,
                      double pairs, pk__work *work) {
    const pk_tile_law *law = (const pk_tile_law *)part(measured, measured->tile_laws_at) + attention->prefill_law;
    double tokens = (double)sums->prefill_tokens, flops = pairs * attention->prefill_flops;
    double tiles = attention->heads * larger(1, tokens / 128);
    double arithmetic = flops / (law->peak_flops * law->compute) * (1 + law->head_half / attention->head_dim) *
                        (1 + law->occupancy * measured->sms / tiles);
    double moved = tokens * (attention->query_bytes / law->memory + law->kv_passes * attention->kv_bytes);
    double streams = law->per_stream * (double)sums->prefills * attention->heads;
    double seconds = law->floor + streams + arithmetic + moved / measured->bytes_per_second;
    add_kernel(measured, seconds, flops, law->peak_flops, 0, work);
}

static void add_attention(const pk__measured *measured, const pk__sums *sums, const pk__attention *plain,
                          const pk_measured_attention *attention, pk__work *work) {
    if (sums->decodes > 0) {
        double tokens = (double)sums->reads[plain->read_slot] / plain->read_unit;
        /* Each of a request's tokens multiplies what the request reads once. */
        double width = larger(1, (double)sums->decode_rows / (double)sums->decodes);
        add_stream(measured, attention->decode_law, (double)sums->decodes, tokens, attention->kv_heads,
                   tokens * attention->decode_bytes, tokens * attention->decode_flops * width, work);
    }
    if (sums->prefills == 0) return;
    double pairs = (double)sums->pairs4[plain->window_slot] / 4;
    if (attention->prefill_streams)
        add_stream(measured, attention->prefill_law, (double)sums->prefill_tokens, pairs, attention->kv_heads, 0,
                   pairs * attention->decode_flops, work);
    else
        add_tiles(measured, sums, attention, pairs, work);
}

static void add_scorer(const pk__measured *measured, const pk__sums *sums, const pk_measured_scorer *scorer,
                       pk__work *work) {
    double decode = (double)sums->reads[0], prefill = (double)sums->pairs4[0] / 4;
    add_stream(measured, scorer->law, (double)sums->decodes, decode, 1, 0, decode * scorer->flops, work);
    add_stream(measured, scorer->law, (double)sums->prefill_tokens, prefill, 1, 0, prefill * scorer->flops, work);
}

static void add_experts(const pk__measured *measured, const pk__experts *plain, const pk_measured_experts *experts,
                        double rank_tokens, pk__work *work) {
    if (!(rank_tokens > 0)) return;
    const pk_expert_law *law = (const pk_expert_law *)part(measured, measured->expert_laws_at) + experts->law;
    double tokens = rank_tokens * (double)plain->funnel, slots = tokens * plain->top_k, local = plain->local;
    double rows = slots * local / plain->experts * experts->busiest;
    double active = local * (1 - pk_power(1 + slots / (plain->experts * experts->shape), -experts->shape));
    double flops = experts->flops_per_row * rows, bytes = experts->bytes_per_expert * active;
    double arithmetic = experts->flops_per_row * (rows + law->padding * active) / (law->peak_flops * law->compute) *
                        (1 + law->width_half / experts->width);
    double moved = law->row_passes * 4 * rows * (experts->hidden + experts->width) +
                   law->slot_passes * 2 * slots * experts->hidden;
    double weights = bytes / (measured->bytes_per_second * law->memory);
    double seconds = law->floor + law->ramp * tokens / (tokens + 16) + norm(law->exponent, arithmetic, weights) +
                     moved / measured->bytes_per_second;
    add_kernel(measured, seconds, flops, law->peak_flops, bytes, work);
}

static void add_mixer(const pk__measured *measured, const pk_measured_layer *layer, uint32_t index, int64_t requests,
                      int64_t tokens, pk__work *work) {
    if (tokens == 0) return;
    const pk_mixer_law *law = (const pk_mixer_law *)part(measured, measured->mixer_laws_at) + index;
    double state = (double)requests * layer->state_bytes, flops = (double)tokens * layer->token_flops;
    double moved = law->state_passes * state + law->token_passes * (double)tokens * layer->token_bytes;
    double seconds = law->floor + moved / measured->bytes_per_second + flops / (law->peak_flops * law->compute);
    add_kernel(measured, seconds, flops, law->peak_flops, state, work);
}

static void add_collective(const pk__measured *measured, const pk__collective *plain, uint32_t index, double units,
                           pk__work *work) {
    if (!(units > 0) || !(plain->ranks > 1)) return;
    const pk_link_law *law = (const pk_link_law *)part(measured, measured->link_laws_at) + index;
    double seconds = pk_link_seconds(law, plain->ranks, units * plain->bytes_per_unit) * measured->host.kernel_scale;
    if (plain->resource == PK_SM)
        work->link_sm += seconds;
    else if (plain->resource == PK_NIC)
        work->nic += seconds;
    else
        work->nvlink += seconds;
}

/* ---- what depends on a count alone ---------------------------------------------------------------------------- */

/* The matrices, norms and tensor collectives of a layer at `rows` rows. */
static pk__work dense_work(const pk_kernel *kernel, uint32_t index, double rows) {
    const pk__measured *measured = pk__measured_of(kernel);
    const pk__layer *layer = pk__layers(kernel) + index;
    const pk_measured_layer *own = (const pk_measured_layer *)part(measured, measured->layers_at) + index;
    const pk_matrix *matrices = part(measured, measured->matrices_at);
    const pk_measured_collective *links = part(measured, measured->collectives_at);
    pk__work work = {0};
    for (uint32_t i = 0; i < own->matrix_count; i++) add_matrix(measured, matrices + own->matrix_first + i, rows, &work);
    work.hbm += rows * layer->elementwise_bytes_per_token / measured->bytes_per_second;
    for (uint32_t i = layer->collective_first; i < layer->collective_first + layer->collective_count; i++) {
        const pk__collective *collective = pk__collectives(kernel) + i;
        if (collective->units == PK_UNITS_TOKENS) add_collective(measured, collective, links[i].law, rows, &work);
    }
    return work;
}

/* A set of experts at `tokens` tokens of this rank. */
static pk__work routed_work(const pk_kernel *kernel, uint32_t index, double tokens) {
    const pk__measured *measured = pk__measured_of(kernel);
    const pk_measured_experts *experts = (const pk_measured_experts *)part(measured, measured->experts_at) + index;
    pk__work work = {0};
    add_experts(measured, pk__expert_sets(kernel) + index, experts, tokens, &work);
    return work;
}

/* The output projection on `rows` rows, and the gather of their logits. */
static pk__work head_work(const pk_kernel *kernel, double rows) {
    const pk__measured *measured = pk__measured_of(kernel);
    const pk__collective *gather = &kernel->head.gather;
    pk__work work = {0};
    if (!(rows > 0)) return work;
    add_matrix(measured, (const pk_matrix *)part(measured, measured->matrices_at) + measured->head_matrix, rows, &work);
    if (gather->units != 0) add_collective(measured, gather, measured->gather_law, rows, &work);
    return work;
}

void pk__tabulate(pk_kernel *kernel) {
    pk__measured *measured = (pk__measured *)(void *)((unsigned char *)kernel + kernel->measured_at);
    const pk_capture_size *sizes = part(measured, measured->capture_sizes_at);
    pk__work *dense = (pk__work *)(void *)((unsigned char *)measured + measured->dense_at);
    pk__work *routed = (pk__work *)(void *)((unsigned char *)measured + measured->routed_at);
    pk__work *headed = (pk__work *)(void *)((unsigned char *)measured + measured->headed_at);
    uint32_t layers = kernel->layer_count + kernel->draft_layer_count, counts = measured->tabulated + 1;
    for (uint32_t layer = 0; layer < layers; layer++)
        for (uint32_t i = 0; i < measured->capture_size_count; i++)
            *dense++ = dense_work(kernel, layer, (double)sizes[i].tokens);
    for (uint32_t index = 0; index < measured->expert_sets; index++)
        for (uint32_t tokens = 0; tokens < counts; tokens++) *routed++ = routed_work(kernel, index, tokens);
    if (!kernel->head.present) return;
    for (uint32_t rows = 0; rows < counts; rows++) *headed++ = head_work(kernel, rows);
}

/* ---- a step --------------------------------------------------------------------------------------------------- */

/* Rows that the dense kernels run: a graph runs the smallest captured size that holds the tokens, an eager step what it
 * has. `size` is the captured size's place, or the number of sizes for an eager step. */
typedef struct dense_rows {
    double rows;
    uint32_t size;
} dense_rows;

static dense_rows rows_of(const pk__measured *measured, const pk__step *step) {
    const pk_kernel *kernel = step->kernel;
    const pk_capture_size *sizes = part(measured, measured->capture_sizes_at);
    int32_t mode = step->sums->uniform_decode ? kernel->host.uniform_mode : kernel->host.other_mode;
    int64_t tokens = step->sums->local_tokens + step->sums->pad_tokens;
    uint32_t low = 0, high = measured->capture_size_count;
    if (mode == PK_GRAPH_NONE || high == 0 || tokens > sizes[high - 1].tokens) return (dense_rows){(double)tokens, high};
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (sizes[middle].tokens < tokens)
            low = middle + 1;
        else
            high = middle;
    }
    return (dense_rows){(double)sizes[low].tokens, low};
}

static void add_work(const pk__work *one, pk__work *total) {
    total->sm += one->sm;
    total->hbm += one->hbm;
    total->link_sm += one->link_sm;
    total->nvlink += one->nvlink;
    total->nic += one->nic;
}

/* Context that prefills gather, in tokens. */
static double gathered_context(const pk__step *step) {
    int64_t from = 0, tokens, total = 0;
    if (step->sums->prefills == 0) return 0;
    while ((tokens = pk__next_context_run(step->batch, &from)) > 0) total = pk__add(total, tokens);
    return (double)total;
}

static void add_context_collectives(const pk__measured *measured, const pk__layer *layer, const pk__step *step,
                                    pk__work *work) {
    const pk_measured_collective *links = part(measured, measured->collectives_at);
    for (uint32_t i = layer->collective_first; i < layer->collective_first + layer->collective_count; i++) {
        const pk__collective *collective = pk__collectives(step->kernel) + i;
        if (collective->units == PK_UNITS_TOKENS) continue;
        bool chunks = collective->units == PK_UNITS_CONTEXT_CHUNKS;
        double units = chunks ? gathered_context(step) : pk__units(collective, step);
        add_collective(measured, collective, links[i].law, units, work);
    }
}

static pk__work layer_work(const pk__step *step, uint32_t index, dense_rows rows) {
    const pk_kernel *kernel = step->kernel;
    const pk__sums *sums = step->sums;
    const pk__measured *measured = pk__measured_of(kernel);
    const pk__layer *layer = pk__layers(kernel) + index;
    const pk_measured_layer *own = (const pk_measured_layer *)part(measured, measured->layers_at) + index;
    const pk__work *dense = part(measured, measured->dense_at), *routed = part(measured, measured->routed_at);
    bool captured = rows.size < measured->capture_size_count;
    pk__work work = captured ? dense[index * measured->capture_size_count + rows.size] : dense_work(kernel, index, rows.rows);
    const pk_measured_attention *attentions = part(measured, measured->attentions_at);
    for (uint32_t i = layer->attention_first; i < layer->attention_first + layer->attention_count; i++)
        add_attention(measured, sums, pk__attentions(kernel) + i, attentions + i, &work);
    const pk_measured_scorer *scorers = part(measured, measured->scorers_at);
    for (uint32_t i = layer->scorer_first; i < layer->scorer_first + layer->scorer_count; i++)
        add_scorer(measured, sums, scorers + i, &work);
    for (uint32_t i = layer->experts_first; i < layer->experts_first + layer->experts_count; i++) {
        /* Pad rows are routed nowhere. */
        int64_t tokens = sums->local_tokens;
        bool known = tokens <= measured->tabulated;
        pk__work one = known ? routed[(uint32_t)tokens + i * (measured->tabulated + 1)]
                             : routed_work(kernel, i, (double)tokens);
        add_work(&one, &work);
    }
    if (own->mixer) {
        add_mixer(measured, own, own->decode_law, sums->decodes, sums->decode_rows, &work);
        add_mixer(measured, own, own->prefill_law, sums->prefills, sums->prefill_tokens, &work);
    }
    add_context_collectives(measured, layer, step, &work);
    return work;
}

/* Kernels of one rank run one after another, so that only links can work beside them. */
static double charge_work(const pk__work *work, const pk__step *step, double count, pk__charge *total) {
    double sm = work->sm * step->derate + work->link_sm;
    total->seconds[PK_SM] += count * sm;
    total->seconds[PK_HBM] += count * work->hbm;
    total->seconds[PK_NVLINK] += count * work->nvlink;
    total->seconds[PK_NIC] += count * work->nic;
    return count * larger(sm + work->hbm, larger(work->nvlink, work->nic));
}

double pk__price_measured_layers(const pk__layer *layers, uint32_t count, const pk__step *step, pk__charge *total) {
    dense_rows rows = rows_of(pk__measured_of(step->kernel), step);
    uint32_t first = (uint32_t)(layers - pk__layers(step->kernel));
    double overlap_s = 0;
    for (uint32_t i = 0; i < count; i++) {
        pk__work work = layer_work(step, first + i, rows);
        overlap_s += charge_work(&work, step, layers[i].count, total);
    }
    return overlap_s;
}

double pk__price_measured_head(const pk__step *step, int64_t rows, pk__charge *total) {
    const pk__measured *measured = pk__measured_of(step->kernel);
    if (!step->kernel->head.present || rows == 0) return 0;
    const pk__work *headed = part(measured, measured->headed_at);
    bool known = rows <= measured->tabulated;
    pk__work work = known ? headed[rows] : head_work(step->kernel, (double)rows);
    return charge_work(&work, step, 1, total);
}

int64_t pk__measured_host_ns(const pk_kernel *kernel, const pk__sums *sums) {
    const pk_measured_host *host = &pk__measured_of(kernel)->host;
    double seconds = host->layer * kernel->host.layers + host->unprepared_step;
    seconds += host->unprepared_request * (double)sums->attending;
    if (sums->prefills > 0) seconds += host->prompt_step + host->prompt_token * (double)sums->prefill_tokens;
    return pk_nanoseconds(seconds);
}

/* ---- explaining ------------------------------------------------------------------------------------------------ */

pk__work pk__measured_part(const pk__step *step, uint32_t index, int32_t kind, uint32_t i) {
    const pk_kernel *kernel = step->kernel;
    const pk__measured *measured = pk__measured_of(kernel);
    const pk_measured_layer *own = (const pk_measured_layer *)part(measured, measured->layers_at) + index;
    pk__sums sums = *step->sums;
    pk__work work = {0};
    if (kind == PK_TERM_DENSE) {
        work = dense_work(kernel, index, rows_of(measured, step).rows);
        work.link_sm = work.nvlink = work.nic = 0;
    } else if (kind == PK_TERM_DECODE || kind == PK_TERM_PREFILL) {
        if (kind == PK_TERM_DECODE)
            sums.prefills = 0;
        else
            sums.decodes = 0;
        add_attention(measured, &sums, pk__attentions(kernel) + i,
                      (const pk_measured_attention *)part(measured, measured->attentions_at) + i, &work);
    } else if (kind == PK_TERM_SCORER) {
        add_scorer(measured, &sums, (const pk_measured_scorer *)part(measured, measured->scorers_at) + i, &work);
    } else if (kind == PK_TERM_EXPERT_WORK) {
        work = routed_work(kernel, i, (double)sums.local_tokens);
    } else if (kind == PK_TERM_RECURRENT && own->mixer) {
        add_mixer(measured, own, own->decode_law, sums.decodes, sums.decode_rows, &work);
        add_mixer(measured, own, own->prefill_law, sums.prefills, sums.prefill_tokens, &work);
    } else if (kind == PK_TERM_COLLECTIVE) {
        const pk__collective *collective = pk__collectives(kernel) + i;
        const pk_measured_collective *links = part(measured, measured->collectives_at);
        bool tokens = collective->units == PK_UNITS_TOKENS, chunks = collective->units == PK_UNITS_CONTEXT_CHUNKS;
        double units = chunks ? gathered_context(step) : pk__units(collective, step);
        add_collective(measured, collective, links[i].law, tokens ? rows_of(measured, step).rows : units, &work);
    }
    return work;
}

pk__work pk__measured_head_work(const pk__step *step, int64_t rows) {
    pk__work none = {0};
    return step->kernel->head.present && rows > 0 ? head_work(step->kernel, (double)rows) : none;
}
