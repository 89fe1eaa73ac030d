/* Checks and freezes the measured part of a spec. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

enum { PK__MAX_LAWS = 4096, PK__MAX_TABLE = 2048 };

/* Counts up to the widest graph are tabulated, within reason: beyond it a step takes milliseconds anyway. */
static uint32_t tabulated(const pk_measured *in) {
    if (in->capture_size_count == 0) return 0;
    int64_t widest = in->capture_sizes[in->capture_size_count - 1].tokens;
    return (uint32_t)pk__min(widest, PK__MAX_TABLE);
}

static uint32_t layer_total(const pk_spec *spec) { return spec->layer_count + spec->draft_layer_count; }

/* Every array of pk_measured, in the order in which it is frozen: member, element type, number of elements. */
#define PK__MEASURED_ARRAYS(X)                                                                                        \
    X(layers, pk_measured_layer, layer_total(spec))                                                                   \
    X(attentions, pk_measured_attention, spec->attention_count)                                                       \
    X(scorers, pk_measured_scorer, spec->scorer_count)                                                                \
    X(experts, pk_measured_experts, spec->experts_count)                                                              \
    X(collectives, pk_measured_collective, spec->collective_count)                                                    \
    X(matrices, pk_matrix, spec->measured.matrix_count)                                                              \
    X(matrix_laws, pk_matrix_law, spec->measured.matrix_law_count)                                                   \
    X(stream_laws, pk_stream_law, spec->measured.stream_law_count)                                                   \
    X(tile_laws, pk_tile_law, spec->measured.tile_law_count)                                                         \
    X(expert_laws, pk_expert_law, spec->measured.expert_law_count)                                                   \
    X(link_laws, pk_link_law, spec->measured.link_law_count)                                                         \
    X(mixer_laws, pk_mixer_law, spec->measured.mixer_law_count)                                                      \
    X(capture_sizes, pk_capture_size, spec->measured.capture_size_count)

/* The tables behind them. */
#define PK__MEASURED_TABLES(X)                                                                                        \
    X(dense, pk__work, (size_t)spec->measured.capture_size_count * layer_total(spec))                                \
    X(routed, pk__work, ((size_t)tabulated(&spec->measured) + 1) * spec->experts_count)                                \
    X(headed, pk__work, (size_t)tabulated(&spec->measured) + 1)                                                      \
    X(prepared, pk__matrix, spec->measured.matrix_count)                                                             \
    X(collective_twins, uint32_t, spec->collective_count)                                                            \
    X(matrix_twins, uint32_t, spec->measured.matrix_count)                                                           \
    X(attention_twins, uint32_t, spec->attention_count)                                                              \
    X(expert_twins, uint32_t, spec->experts_count)

static size_t aligned(size_t offset) { return (offset + 15) & ~(size_t)15; }

size_t pk__measured_size(const pk_spec *spec) {
    if (!spec->measured.present) return 0;
    size_t size = aligned(sizeof(pk__measured));
#define PK__ADD(member, type, number) size = aligned(size + (number) * sizeof(type));
    PK__MEASURED_ARRAYS(PK__ADD)
    PK__MEASURED_TABLES(PK__ADD)
#undef PK__ADD
    return size;
}

void pk__fold_measured(const pk_spec *spec, pk__measured *out) {
    const pk_measured *in = &spec->measured;
    unsigned char *block = (unsigned char *)out;
    size_t at = aligned(sizeof *out);
    out->host = in->host;
    out->head_matrix = in->head_matrix;
    out->gather_law = in->gather_law;
    out->bytes_per_second = in->bytes_per_second;
    out->sms = spec->sm_count > 0 ? spec->sm_count : 1;
    out->capture_size_count = in->capture_size_count;
#define PK__COPY(member, type, number)                                                                                \
    out->member##_at = (uint32_t)at;                                                                                  \
    if ((number) > 0) memcpy(block + at, in->member, (number) * sizeof(type));                                        \
    at = aligned(at + (number) * sizeof(type));
    PK__MEASURED_ARRAYS(PK__COPY)
#undef PK__COPY
    out->tabulated = tabulated(in);
    out->expert_sets = spec->experts_count;
    out->matrix_count = in->matrix_count;
    out->attention_count = spec->attention_count;
    out->collective_count = spec->collective_count;
#define PK__PLACE(member, type, number)                                                                               \
    out->member##_at = (uint32_t)at;                                                                                  \
    at = aligned(at + (number) * sizeof(type));
    PK__MEASURED_TABLES(PK__PLACE)
#undef PK__PLACE
}

/* ---- checks --------------------------------------------------------------------------------------------------- */

typedef struct checker {
    pk_error *error;
    pk_status status;
    char place[64];
} checker;

static void enter(checker *check, const char *array, uint32_t index) {
    (void)snprintf(check->place, sizeof check->place, "measured.%s[%u].", array, (unsigned)index);
}

static void fault(checker *check, pk_status status, const char *field, double value, double low, double high) {
    char name[96];
    (void)snprintf(name, sizeof name, "%s%s", check->place, field);
    check->status = pk__fail(check->error, status, name, "%s is %g, accepted is %g to %g", name, value, low, high);
}

/* Written so that NaN fails. */
static void number(checker *check, const char *field, double value, double low, double high) {
    if (check->status == PK_OK && !(value >= low && value <= high))
        fault(check, PK_SPEC_VALUE, field, value, low, high);
}

static void index_in(checker *check, const char *field, uint32_t index, uint32_t size) {
    if (check->status == PK_OK && index >= size)
        fault(check, PK_SPEC_INDEX, field, index, 0, size == 0 ? 0 : (double)size - 1);
}

static void exponent(checker *check, uint32_t value) { number(check, "exponent", value, 1, 256); }
static void amount(checker *check, const char *field, double value) { number(check, field, value, 0, 1e30); }
static void positive(checker *check, const char *field, double value) { number(check, field, value, 1e-30, 1e30); }
static void share(checker *check, const char *field, double value) { number(check, field, value, 1e-6, 1); }
static void seconds(checker *check, const char *field, double value) { number(check, field, value, 0, 1000); }
static void unused(checker *check, const char *field, double value) { number(check, field, value, 0, 0); }

static void check_matrix_law(checker *check, const pk_matrix_law *law) {
    exponent(check, law->exponent);
    unused(check, "reserved", law->reserved);
    positive(check, "peak_flops", law->peak_flops);
    share(check, "compute", law->compute);
    share(check, "memory", law->memory);
    amount(check, "k_half", law->k_half);
    amount(check, "wave", law->wave);
    amount(check, "input_passes", law->input_passes);
    amount(check, "output_passes", law->output_passes);
    seconds(check, "floor", law->floor);
    seconds(check, "depth", law->depth);
    seconds(check, "per_row", law->per_row);
}

static void check_stream_law(checker *check, const pk_stream_law *law) {
    exponent(check, law->exponent);
    unused(check, "reserved", law->reserved);
    positive(check, "peak_flops", law->peak_flops);
    share(check, "compute", law->compute);
    share(check, "memory", law->memory);
    amount(check, "occupancy", law->occupancy);
    seconds(check, "floor", law->floor);
    seconds(check, "per_row", law->per_row);
    seconds(check, "per_stream", law->per_stream);
    seconds(check, "regroup", law->regroup);
}

static void check_tile_law(checker *check, const pk_tile_law *law) {
    exponent(check, law->exponent);
    unused(check, "reserved", law->reserved);
    positive(check, "peak_flops", law->peak_flops);
    share(check, "compute", law->compute);
    share(check, "memory", law->memory);
    amount(check, "occupancy", law->occupancy);
    amount(check, "head_half", law->head_half);
    amount(check, "kv_passes", law->kv_passes);
    seconds(check, "floor", law->floor);
    seconds(check, "per_stream", law->per_stream);
}

static void check_expert_law(checker *check, const pk_expert_law *law) {
    exponent(check, law->exponent);
    unused(check, "reserved", law->reserved);
    positive(check, "peak_flops", law->peak_flops);
    share(check, "compute", law->compute);
    share(check, "memory", law->memory);
    amount(check, "width_half", law->width_half);
    amount(check, "padding", law->padding);
    amount(check, "row_passes", law->row_passes);
    amount(check, "slot_passes", law->slot_passes);
    seconds(check, "floor", law->floor);
    seconds(check, "ramp", law->ramp);
}

static void check_link_law(checker *check, const pk_link_law *law) {
    exponent(check, law->exponent);
    unused(check, "reserved", law->reserved);
    amount(check, "volume", law->volume);
    positive(check, "bytes_per_second", law->bytes_per_second);
    seconds(check, "floor", law->floor);
    seconds(check, "per_peer", law->per_peer);
}

static void check_mixer_law(checker *check, const pk_mixer_law *law) {
    unused(check, "reserved", law->reserved[0] | law->reserved[1]);
    positive(check, "peak_flops", law->peak_flops);
    share(check, "compute", law->compute);
    amount(check, "state_passes", law->state_passes);
    amount(check, "token_passes", law->token_passes);
    seconds(check, "floor", law->floor);
}

static void check_laws(checker *check, const pk_measured *in) {
#define PK__EACH(member, kind)                                                                                        \
    for (uint32_t i = 0; check->status == PK_OK && i < in->kind##_count; i++) {                                       \
        enter(check, #member, i);                                                                                     \
        check_##kind(check, &in->member[i]);                                                                          \
    }
    PK__EACH(matrix_laws, matrix_law)
    PK__EACH(stream_laws, stream_law)
    PK__EACH(tile_laws, tile_law)
    PK__EACH(expert_laws, expert_law)
    PK__EACH(link_laws, link_law)
    PK__EACH(mixer_laws, mixer_law)
#undef PK__EACH
}

static void check_attention(checker *check, const pk_measured *in, const pk_measured_attention *attention) {
    index_in(check, "decode_law", attention->decode_law, in->stream_law_count);
    number(check, "prefill_streams", attention->prefill_streams, 0, 1);
    index_in(check, "prefill_law", attention->prefill_law,
             attention->prefill_streams ? in->stream_law_count : in->tile_law_count);
    unused(check, "reserved", attention->reserved);
    positive(check, "heads", attention->heads);
    positive(check, "kv_heads", attention->kv_heads);
    positive(check, "head_dim", attention->head_dim);
    amount(check, "decode_bytes", attention->decode_bytes);
    amount(check, "decode_flops", attention->decode_flops);
    amount(check, "prefill_flops", attention->prefill_flops);
    amount(check, "query_bytes", attention->query_bytes);
    amount(check, "kv_bytes", attention->kv_bytes);
}

static void check_experts(checker *check, const pk_measured *in, const pk_measured_experts *experts) {
    index_in(check, "law", experts->law, in->expert_law_count);
    unused(check, "reserved", experts->reserved);
    positive(check, "hidden", experts->hidden);
    positive(check, "width", experts->width);
    amount(check, "flops_per_row", experts->flops_per_row);
    amount(check, "bytes_per_expert", experts->bytes_per_expert);
    number(check, "shape", experts->shape, 1e-3, 1e6);
    number(check, "busiest", experts->busiest, 1, 1e6);
}

static void check_layer(checker *check, const pk_measured *in, const pk_measured_layer *layer) {
    if (layer->matrix_count > in->matrix_count) index_in(check, "matrix_count", layer->matrix_count, in->matrix_count);
    if (layer->matrix_count > 0)
        index_in(check, "matrix_first", layer->matrix_first, in->matrix_count - layer->matrix_count + 1);
    number(check, "mixer", layer->mixer, 0, 1);
    if (layer->mixer) {
        index_in(check, "decode_law", layer->decode_law, in->mixer_law_count);
        index_in(check, "prefill_law", layer->prefill_law, in->mixer_law_count);
    }
    unused(check, "reserved", layer->reserved);
    amount(check, "state_bytes", layer->state_bytes);
    amount(check, "token_bytes", layer->token_bytes);
    amount(check, "token_flops", layer->token_flops);
}

static void check_parts(checker *check, const pk_spec *spec) {
    const pk_measured *in = &spec->measured;
    for (uint32_t i = 0; check->status == PK_OK && i < layer_total(spec); i++) {
        enter(check, "layers", i);
        check_layer(check, in, &in->layers[i]);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < spec->attention_count; i++) {
        enter(check, "attentions", i);
        check_attention(check, in, &in->attentions[i]);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < spec->scorer_count; i++) {
        enter(check, "scorers", i);
        index_in(check, "law", in->scorers[i].law, in->stream_law_count);
        unused(check, "reserved", in->scorers[i].reserved);
        amount(check, "flops", in->scorers[i].flops);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < spec->experts_count; i++) {
        enter(check, "experts", i);
        check_experts(check, in, &in->experts[i]);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < spec->collective_count; i++) {
        enter(check, "collectives", i);
        index_in(check, "law", in->collectives[i].law, in->link_law_count);
        index_in(check, "large_law", in->collectives[i].large_law, in->link_law_count);
        amount(check, "most_bytes", in->collectives[i].most_bytes);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < in->matrix_count; i++) {
        enter(check, "matrices", i);
        index_in(check, "law", in->matrices[i].law, in->matrix_law_count);
        unused(check, "reserved", in->matrices[i].reserved);
        positive(check, "n", in->matrices[i].n);
        positive(check, "k", in->matrices[i].k);
        positive(check, "weight_bytes", in->matrices[i].weight_bytes);
    }
}

static void check_top(checker *check, const pk_spec *spec) {
    const pk_measured *in = &spec->measured;
    (void)snprintf(check->place, sizeof check->place, "measured.");
    if (spec->head.flops_per_row > 0) index_in(check, "head_matrix", in->head_matrix, in->matrix_count);
    if (spec->head.has_gather) index_in(check, "gather_law", in->gather_law, in->link_law_count);
    for (uint32_t i = 0; check->status == PK_OK && i < in->capture_size_count; i++) {
        double least = i == 0 ? 1 : (double)in->capture_sizes[i - 1].tokens + 1;
        number(check, "capture_sizes", (double)in->capture_sizes[i].tokens, least, PK_MAX_BATCH_TOKENS);
    }
    positive(check, "bytes_per_second", in->bytes_per_second);
    number(check, "host.kernel_scale", in->host.kernel_scale, 1e-6, 2);
    seconds(check, "host.layer", in->host.layer);
    seconds(check, "host.prompt_step", in->host.prompt_step);
    seconds(check, "host.prompt_token", in->host.prompt_token);
    seconds(check, "host.unprepared_step", in->host.unprepared_step);
    seconds(check, "host.unprepared_request", in->host.unprepared_request);
}

static void check_array(checker *check, const char *name, const void *first, uint32_t size) {
    if (check->status != PK_OK) return;
    (void)snprintf(check->place, sizeof check->place, "measured.");
    if (size > PK__MAX_LAWS) fault(check, PK_SPEC_LIMIT, name, size, 0, PK__MAX_LAWS);
    else if (size > 0 && first == NULL) fault(check, PK_NULL_ARGUMENT, name, 0, 1, 1);
}

/* The parts are companions of the spec's own. */
static void check_lengths(checker *check, const pk_spec *spec) {
    const pk_measured *in = &spec->measured;
    (void)snprintf(check->place, sizeof check->place, "measured.");
    number(check, "present", in->present, 0, 1);
    number(check, "layer_count", in->layer_count, layer_total(spec), layer_total(spec));
    number(check, "attention_count", in->attention_count, spec->attention_count, spec->attention_count);
    number(check, "scorer_count", in->scorer_count, spec->scorer_count, spec->scorer_count);
    number(check, "experts_count", in->experts_count, spec->experts_count, spec->experts_count);
    number(check, "collective_count", in->collective_count, spec->collective_count, spec->collective_count);
}

pk_status pk__check_measured(const pk_spec *spec, pk_error *error) {
    const pk_measured *in = &spec->measured;
    checker check = {.error = error, .status = PK_OK};
    check_lengths(&check, spec);
#define PK__ARRAY(member, type, number) check_array(&check, #member, in->member, number);
    PK__MEASURED_ARRAYS(PK__ARRAY)
#undef PK__ARRAY
    check_laws(&check, in);
    check_parts(&check, spec);
    if (check.status == PK_OK) check_top(&check, spec);
    return check.status;
}
