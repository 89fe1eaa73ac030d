/* The measured laws: one kernel at a time, each held to the roofline of its work and its bytes. */
#include "measured_laws.h"

#include <stddef.h>
#include <string.h>

double pk_matrix_seconds(const pk_matrix_law *law, double bytes_per_second, double sms, double m, double n, double k,
                         double weight_bytes) {
    pk__matrix matrix = pk__prepared(law, bytes_per_second, sms, n, k, weight_bytes);
    return pk__matrix_seconds(&matrix, m);
}

double pk_stream_seconds(const pk_stream_law *law, double bytes_per_second, double sms, double rows, double tokens,
                         double kv_heads, double bytes, double flops) {
    double streams = kv_heads * pk__larger(rows, tokens / 256);
    double read = bytes / (bytes_per_second * law->memory) * (1 + law->occupancy * sms / streams);
    double arithmetic = flops / (law->peak_flops * law->compute);
    double dispatch = rows * (law->per_row + law->per_stream * kv_heads);
    double floor = law->floor + (rows > 1 ? law->regroup : 0);
    return floor + pk__norm(law->exponent, read + arithmetic, dispatch);
}

double pk_link_seconds(const pk_link_law *law, double ranks, double bytes) {
    double moved = bytes * law->volume * (ranks - 1) / ranks / law->bytes_per_second;
    return pk__norm(law->exponent, law->floor + law->per_peer * (ranks - 1), moved);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

static const void *part(const pk__measured *measured, uint32_t offset) {
    return (const unsigned char *)measured + offset;
}

static void *table(pk__measured *measured, uint32_t offset) { return (unsigned char *)measured + offset; }

/* Adds a kernel: its bytes to memory at the full rate, the rest of its time to the SMs. However small a law's
 * coefficients, it takes as long as its bytes at the full rate and its FLOP at the peak. */
static void add_kernel(const pk__measured *measured, double seconds, double flops, double peak, double bytes,
                       pk__work *work) {
    double moved = bytes / measured->bytes_per_second;
    double taken = pk__larger(seconds * measured->host.kernel_scale, pk__larger(moved, flops / peak));
    work->hbm += moved;
    work->sm += taken - moved;
    work->flops += flops;
}

static void add_matrix(const pk__measured *measured, uint32_t index, double m, pk__work *work) {
    const pk__matrix *matrix = (const pk__matrix *)part(measured, measured->prepared_at) + index;
    double seconds = pk__matrix_seconds(matrix, m);
    add_kernel(measured, seconds, m * matrix->flops_per_row, matrix->peak_flops, matrix->bytes, work);
}

/* `bytes` are those that the law counts, `read` those that come from memory at least once. */
static void add_stream(const pk__measured *measured, uint32_t index, double rows, double tokens, double heads,
                       double bytes, double read, double flops, pk__work *work) {
    if (!(rows > 0)) return;
    const pk_stream_law *law = (const pk_stream_law *)part(measured, measured->stream_laws_at) + index;
    double seconds =
        pk_stream_seconds(law, measured->bytes_per_second, measured->sms, rows, tokens, heads, bytes, flops);
    add_kernel(measured, seconds, flops, law->peak_flops, read, work);
}

/* Cache entries that the queries of prefills read at least once on this rank, where they look `window` back (0: to the
 * beginning) and make `pairs` with them. */
static double prefill_entries(const pk_kernel *kernel, const pk__sums *sums, double window, double pairs) {
    double held = (double)(sums->context - sums->reads[0]) / ((double)kernel->decode_ranks * kernel->prefill_ranks);
    if (window > 0) held = pk__smaller(held, (double)sums->prefill_tokens + window * (double)sums->prefills);
    return pk__smaller(held, pairs);
}

static void add_tiles(const pk__measured *measured, const pk__sums *sums, const pk_measured_attention *attention,
                      double pairs, double read, pk__work *work) {
    const pk_tile_law *law = (const pk_tile_law *)part(measured, measured->tile_laws_at) + attention->prefill_law;
    double tokens = (double)sums->prefill_tokens, flops = pairs * attention->prefill_flops;
    double tiles = attention->heads * pk__larger(1, tokens / 128);
    double products = flops / (law->peak_flops * law->compute);
    double exponentials = flops / law->peak_flops * law->head_half / attention->head_dim;
    double arithmetic = pk__norm(law->exponent, products, exponentials) * (1 + law->occupancy * measured->sms / tiles);
    double moved = tokens * (attention->query_bytes / law->memory + law->kv_passes * attention->kv_bytes);
    double streams = law->per_stream * (double)sums->prefills * attention->heads;
    double seconds = law->floor + streams + arithmetic + moved / measured->bytes_per_second;
    add_kernel(measured, seconds, flops, law->peak_flops, tokens * attention->query_bytes + read, work);
}

static void add_attention(const pk_kernel *kernel, const pk__sums *sums, uint32_t index, pk__work *work) {
    const pk__measured *measured = pk__measured_of(kernel);
    const pk__attention *plain = pk__attentions(kernel) + index;
    const pk_measured_attention *attentions = part(measured, measured->attentions_at), *attention = attentions + index;
    if (sums->decodes > 0) {
        double tokens = (double)sums->reads[plain->read_slot] / plain->read_unit;
        /* Each of a request's tokens multiplies what the request reads once. */
        double width = pk__larger(1, (double)sums->decode_rows / (double)sums->decodes);
        add_stream(measured, attention->decode_law, (double)sums->decodes, tokens, attention->kv_heads,
                   tokens * attention->decode_bytes, tokens * attention->decode_bytes,
                   tokens * attention->decode_flops * width, work);
    }
    if (sums->prefills == 0) return;
    double pairs = (double)sums->pairs4[plain->window_slot] / 4;
    double window = (double)kernel->windows[plain->window_slot];
    double read = prefill_entries(kernel, sums, window, pairs) * attention->decode_bytes;
    if (attention->prefill_streams)
        add_stream(measured, attention->prefill_law, (double)sums->prefill_tokens, pairs, attention->kv_heads, 0, read,
                   pairs * attention->decode_flops, work);
    else
        add_tiles(measured, sums, attention, pairs, read, work);
}

static void add_scorer(const pk_kernel *kernel, const pk__sums *sums, uint32_t index, pk__work *work) {
    const pk__measured *measured = pk__measured_of(kernel);
    const pk__scorer *plain = pk__scorers(kernel) + index;
    const pk_measured_scorer *scorer = (const pk_measured_scorer *)part(measured, measured->scorers_at) + index;
    double decode = (double)sums->reads[0], prefill = (double)sums->pairs4[0] / 4;
    double bytes = plain->seconds_per_entry * plain->bytes_per_second / plain->compress_ratio;
    double keys = prefill_entries(kernel, sums, 0, prefill);
    add_stream(measured, scorer->law, (double)sums->decodes, decode, 1, 0, decode / kernel->decode_ranks * bytes,
               decode * scorer->flops, work);
    add_stream(measured, scorer->law, (double)sums->prefill_tokens, prefill, 1, 0, keys * bytes,
               prefill * scorer->flops, work);
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
    double seconds = law->floor + law->ramp * tokens / (tokens + 16) + pk__norm(law->exponent, arithmetic, weights) +
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

/* Of a collective, which takes as long as its bytes on the link. */
static double link_seconds(const pk__measured *measured, uint32_t index, double ranks, double bytes) {
    const pk_link_law *law = (const pk_link_law *)part(measured, measured->link_laws_at) + index;
    double seconds = pk_link_seconds(law, ranks, bytes) * measured->host.kernel_scale;
    return pk__larger(seconds, bytes * law->volume * (ranks - 1) / ranks / law->bytes_per_second);
}

static void add_collective(const pk__measured *measured, const pk__collective *plain, pk_measured_collective own,
                           double units, pk__work *work) {
    if (!(units > 0) || !(plain->ranks > 1)) return;
    double bytes = units * plain->bytes_per_unit;
    work->link_bytes += bytes;
    bool large = bytes > own.most_bytes;
    double seconds = link_seconds(measured, own.law, plain->ranks, large ? own.most_bytes : bytes);
    /* A larger tensor never takes less, though another kernel reduces it. */
    if (large) seconds = pk__larger(seconds, link_seconds(measured, own.large_law, plain->ranks, bytes));
    if (plain->resource == PK_SM && !large)
        work->link_sm += seconds;
    else if (plain->resource == PK_NIC)
        work->nic += seconds;
    else
        work->nvlink += seconds;
}

/* ---- what is priced once --------------------------------------------------------------------------------------- */

/* Work of a step by its place in an array; `known` has a bit for each that has been priced. Layers of different kinds
 * hold many equal kernels; those beyond the last bit are priced each time. */
enum { REMEMBERED = 64 };
typedef struct memory {
    uint64_t known;
    pk__work work[REMEMBERED];
} memory;

typedef struct memories {
    memory matrices, attentions, experts, collectives;
} memories;

static void forget(memories *all) {
    all->matrices.known = all->attentions.known = all->experts.known = all->collectives.known = 0;
}

/* Whether the work at `place` has yet to be priced, to `*slot`. */
static bool unknown(memory *own, uint32_t place, pk__work *spare, pk__work **slot) {
    *slot = place < REMEMBERED ? &own->work[place] : spare;
    if (place < REMEMBERED && (own->known >> place & 1)) return false;
    **slot = (pk__work){0};
    if (place < REMEMBERED) own->known |= (uint64_t)1 << place;
    return true;
}

static void add_work(const pk__work *one, pk__work *total) {
    total->sm += one->sm;
    total->hbm += one->hbm;
    total->link_sm += one->link_sm;
    total->nvlink += one->nvlink;
    total->nic += one->nic;
    total->flops += one->flops;
    total->link_bytes += one->link_bytes;
}

/* An array, of each of whose entries the first bytes say whether it equals another. */
typedef struct entries {
    const void *first;
    size_t size, compared;
} entries;

static bool equal(entries array, uint32_t i, uint32_t j) {
    const unsigned char *bytes = array.first;
    return memcmp(bytes + i * array.size, bytes + j * array.size, array.compared) == 0;
}

/* The first place at which two arrays of `count` both equal their entry i, for every i. */
static void find_twins(uint32_t *twins, uint32_t count, entries one, entries other) {
    for (uint32_t i = 0; i < count; i++) {
        twins[i] = 0;
        while (!equal(one, twins[i], i) || !equal(other, twins[i], i)) twins[i]++;
    }
}

/* ---- what depends on a count alone ---------------------------------------------------------------------------- */

/* The matrices, norms and tensor collectives of a layer at `rows` rows. */
static pk__work dense_work(const pk_kernel *kernel, uint32_t index, double rows, memories *priced) {
    const pk__measured *measured = pk__measured_of(kernel);
    const pk__layer *layer = pk__layers(kernel) + index;
    const pk_measured_layer *own = (const pk_measured_layer *)part(measured, measured->layers_at) + index;
    const pk_measured_collective *links = part(measured, measured->collectives_at);
    const uint32_t *twins = part(measured, measured->matrix_twins_at);
    pk__work work = {0}, spare, *slot;
    for (uint32_t i = own->matrix_first; i < own->matrix_first + own->matrix_count; i++) {
        if (unknown(&priced->matrices, twins[i], &spare, &slot)) add_matrix(measured, i, rows, slot);
        add_work(slot, &work);
    }
    work.hbm += rows * layer->elementwise_bytes_per_token / measured->bytes_per_second;
    twins = part(measured, measured->collective_twins_at);
    for (uint32_t i = layer->collective_first; i < layer->collective_first + layer->collective_count; i++) {
        const pk__collective *collective = pk__collectives(kernel) + i;
        if (collective->units != PK_UNITS_TOKENS) continue;
        if (unknown(&priced->collectives, twins[i], &spare, &slot))
            add_collective(measured, collective, links[i], rows, slot);
        add_work(slot, &work);
    }
    return work;
}

static pk__work fresh_dense_work(const pk_kernel *kernel, uint32_t index, double rows) {
    memories nothing;
    forget(&nothing);
    return dense_work(kernel, index, rows, &nothing);
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
    add_matrix(measured, measured->head_matrix, rows, &work);
    /* NCCL gathers logits of any size. */
    pk_measured_collective own = {.law = measured->gather_law, .most_bytes = 1e30};
    if (gather->units != 0) add_collective(measured, gather, own, rows, &work);
    return work;
}

void pk__tabulate(pk_kernel *kernel) {
    pk__measured *measured = (pk__measured *)(void *)((unsigned char *)kernel + kernel->measured_at);
    const pk_capture_size *sizes = part(measured, measured->capture_sizes_at);
    pk__work *dense = table(measured, measured->dense_at), *routed = table(measured, measured->routed_at);
    pk__work *headed = table(measured, measured->headed_at);
    uint32_t layers = kernel->layer_count + kernel->draft_layer_count, counts = measured->tabulated + 1;
    const pk_matrix *matrices = part(measured, measured->matrices_at);
    const pk_matrix_law *laws = part(measured, measured->matrix_laws_at);
    pk__matrix *ready = table(measured, measured->prepared_at);
    for (uint32_t i = 0; i < measured->matrix_count; i++)
        ready[i] = pk__prepared(laws + matrices[i].law, measured->bytes_per_second, measured->sms, matrices[i].n,
                            matrices[i].k, matrices[i].weight_bytes);
#define PK__WHOLE(array, type) (entries){array, sizeof(type), sizeof(type)}
    entries gemms = PK__WHOLE(matrices, pk_matrix);
    find_twins(table(measured, measured->matrix_twins_at), measured->matrix_count, gemms, gemms);
    find_twins(table(measured, measured->attention_twins_at), measured->attention_count,
               PK__WHOLE(part(measured, measured->attentions_at), pk_measured_attention),
               PK__WHOLE(pk__attentions(kernel), pk__attention));
    find_twins(table(measured, measured->expert_twins_at), measured->expert_sets,
               PK__WHOLE(part(measured, measured->experts_at), pk_measured_experts),
               PK__WHOLE(pk__expert_sets(kernel), pk__experts));
    find_twins(table(measured, measured->collective_twins_at), measured->collective_count,
               PK__WHOLE(part(measured, measured->collectives_at), pk_measured_collective),
               (entries){pk__collectives(kernel), sizeof(pk__collective), offsetof(pk__collective, equals)});
#undef PK__WHOLE
    for (uint32_t layer = 0; layer < layers; layer++)
        for (uint32_t i = 0; i < measured->capture_size_count; i++)
            *dense++ = fresh_dense_work(kernel, layer, (double)sizes[i].tokens);
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
    bool graph = mode != PK_GRAPH_NONE && high > 0 && tokens <= sizes[high - 1].tokens;
    if (!graph) return (dense_rows){(double)tokens, high};
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (sizes[middle].tokens < tokens)
            low = middle + 1;
        else
            high = middle;
    }
    return (dense_rows){(double)sizes[low].tokens, low};
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
        add_collective(measured, collective, links[i], units, work);
    }
}

static pk__work layer_work(const pk__step *step, uint32_t index, dense_rows rows, memories *priced) {
    const pk_kernel *kernel = step->kernel;
    const pk__sums *sums = step->sums;
    const pk__measured *measured = pk__measured_of(kernel);
    const pk__layer *layer = pk__layers(kernel) + index;
    const pk_measured_layer *own = (const pk_measured_layer *)part(measured, measured->layers_at) + index;
    const pk__work *dense = part(measured, measured->dense_at), *routed = part(measured, measured->routed_at);
    bool captured = rows.size < measured->capture_size_count;
    pk__work work = captured ? dense[index * measured->capture_size_count + rows.size]
                             : dense_work(kernel, index, rows.rows, priced);
    const uint32_t *attention_twins = part(measured, measured->attention_twins_at);
    const uint32_t *expert_twins = part(measured, measured->expert_twins_at);
    pk__work spare, *slot;
    for (uint32_t i = layer->attention_first; i < layer->attention_first + layer->attention_count; i++) {
        if (unknown(&priced->attentions, attention_twins[i], &spare, &slot)) add_attention(kernel, sums, i, slot);
        add_work(slot, &work);
    }
    for (uint32_t i = layer->scorer_first; i < layer->scorer_first + layer->scorer_count; i++)
        add_scorer(kernel, sums, i, &work);
    for (uint32_t i = layer->experts_first; i < layer->experts_first + layer->experts_count; i++) {
        /* Pad rows are routed nowhere. */
        int64_t tokens = sums->local_tokens;
        bool known = tokens <= measured->tabulated;
        if (known) {
            add_work(&routed[(uint32_t)tokens + i * (measured->tabulated + 1)], &work);
            continue;
        }
        if (unknown(&priced->experts, expert_twins[i], &spare, &slot)) *slot = routed_work(kernel, i, (double)tokens);
        add_work(slot, &work);
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
    return count * pk__larger(sm + work->hbm, pk__larger(work->nvlink, work->nic));
}

double pk__price_measured_layers(const pk__layer *layers, uint32_t count, const pk__step *step, pk__charge *total) {
    dense_rows rows = rows_of(pk__measured_of(step->kernel), step);
    uint32_t first = (uint32_t)(layers - pk__layers(step->kernel));
    double overlap_s = 0;
    memories priced;
    forget(&priced);
    for (uint32_t i = 0; i < count; i++) {
        pk__work work = layer_work(step, first + i, rows, &priced);
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
    double per_layer = host->layer + (sums->prefills > 0 ? host->prompt_layer : 0);
    double seconds = per_layer * kernel->host.layers + host->unprepared_step;
    seconds += host->unprepared_request * (double)sums->attending;
    if (sums->prefills > 0) seconds += host->prompt_token * (double)sums->prefill_tokens;
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
        work = fresh_dense_work(kernel, index, rows_of(measured, step).rows);
        work.link_sm = work.nvlink = work.nic = work.link_bytes = 0;
    } else if (kind == PK_TERM_DECODE || kind == PK_TERM_PREFILL) {
        if (kind == PK_TERM_DECODE)
            sums.prefills = 0;
        else
            sums.decodes = 0;
        add_attention(kernel, &sums, i, &work);
    } else if (kind == PK_TERM_SCORER) {
        add_scorer(kernel, &sums, i, &work);
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
        add_collective(measured, collective, links[i], tokens ? rows_of(measured, step).rows : units, &work);
    }
    return work;
}

pk__work pk__measured_head_work(const pk__step *step, int64_t rows) {
    pk__work none = {0};
    return step->kernel->head.present && rows > 0 ? head_work(step->kernel, (double)rows) : none;
}
