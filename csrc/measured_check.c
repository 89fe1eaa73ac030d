/* Checks the measured part of a spec field by field before it is frozen. */
#include "checker.h"

static void exponent(checker *check, uint32_t value) { number_in(check, "exponent", value, 1, 256); }
static void share(checker *check, const char *field, double value) { number_in(check, field, value, 1e-6, 1); }
static void seconds(checker *check, const char *field, double value) { number_in(check, field, value, 0, 1000); }

/* What laws of kernels begin with: how their terms are joined, and what shares of the peaks they reach. */
static void check_shares(checker *check, uint32_t joined, uint32_t reserved, double peak_flops, double compute,
                         double memory) {
    exponent(check, joined);
    unused(check, "reserved", reserved);
    positive(check, "peak_flops", peak_flops);
    share(check, "compute", compute);
    share(check, "memory", memory);
}

static void check_matrix_law(checker *check, const pk_matrix_law *law) {
    check_shares(check, law->exponent, law->reserved, law->peak_flops, law->compute, law->memory);
    not_negative(check, "k_half", law->k_half);
    not_negative(check, "wave", law->wave);
    not_negative(check, "input_passes", law->input_passes);
    not_negative(check, "output_passes", law->output_passes);
    seconds(check, "floor", law->floor);
    seconds(check, "depth", law->depth);
    seconds(check, "per_row", law->per_row);
}

static void check_stream_law(checker *check, const pk_stream_law *law) {
    check_shares(check, law->exponent, law->reserved, law->peak_flops, law->compute, law->memory);
    not_negative(check, "occupancy", law->occupancy);
    seconds(check, "floor", law->floor);
    seconds(check, "per_row", law->per_row);
    seconds(check, "per_stream", law->per_stream);
    seconds(check, "regroup", law->regroup);
}

static void check_tile_law(checker *check, const pk_tile_law *law) {
    check_shares(check, law->exponent, law->reserved, law->peak_flops, law->compute, law->memory);
    not_negative(check, "occupancy", law->occupancy);
    not_negative(check, "head_half", law->head_half);
    not_negative(check, "kv_passes", law->kv_passes);
    seconds(check, "floor", law->floor);
    seconds(check, "per_stream", law->per_stream);
}

static void check_expert_law(checker *check, const pk_expert_law *law) {
    check_shares(check, law->exponent, law->reserved, law->peak_flops, law->compute, law->memory);
    not_negative(check, "width_half", law->width_half);
    not_negative(check, "padding", law->padding);
    not_negative(check, "row_passes", law->row_passes);
    not_negative(check, "slot_passes", law->slot_passes);
    seconds(check, "floor", law->floor);
    seconds(check, "ramp", law->ramp);
}

static void check_link_law(checker *check, const pk_link_law *law) {
    exponent(check, law->exponent);
    unused(check, "reserved", law->reserved);
    not_negative(check, "volume", law->volume);
    positive(check, "bytes_per_second", law->bytes_per_second);
    seconds(check, "floor", law->floor);
    seconds(check, "per_peer", law->per_peer);
}

static void check_mixer_law(checker *check, const pk_mixer_law *law) {
    unused(check, "reserved", law->reserved[0] | law->reserved[1]);
    positive(check, "peak_flops", law->peak_flops);
    share(check, "compute", law->compute);
    not_negative(check, "state_passes", law->state_passes);
    not_negative(check, "token_passes", law->token_passes);
    seconds(check, "floor", law->floor);
}

static void check_laws(checker *check, const pk_measured *in) {
#define PK__EACH(member, kind)                                                                                        \
    for (uint32_t i = 0; check->status == PK_OK && i < in->kind##_count; i++) {                                       \
        enter(check, "measured." #member, i);                                                                         \
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
    number_in(check, "prefill_streams", attention->prefill_streams, 0, 1);
    index_in(check, "prefill_law", attention->prefill_law,
             attention->prefill_streams ? in->stream_law_count : in->tile_law_count);
    unused(check, "reserved", attention->reserved);
    positive(check, "heads", attention->heads);
    positive(check, "kv_heads", attention->kv_heads);
    positive(check, "head_dim", attention->head_dim);
    not_negative(check, "decode_bytes", attention->decode_bytes);
    not_negative(check, "decode_flops", attention->decode_flops);
    not_negative(check, "prefill_flops", attention->prefill_flops);
    not_negative(check, "query_bytes", attention->query_bytes);
    not_negative(check, "kv_bytes", attention->kv_bytes);
}

static void check_experts(checker *check, const pk_measured *in, const pk_measured_experts *experts) {
    index_in(check, "law", experts->law, in->expert_law_count);
    unused(check, "reserved", experts->reserved);
    positive(check, "hidden", experts->hidden);
    positive(check, "width", experts->width);
    not_negative(check, "flops_per_row", experts->flops_per_row);
    not_negative(check, "bytes_per_expert", experts->bytes_per_expert);
    number_in(check, "shape", experts->shape, 1e-3, 1e6);
    number_in(check, "busiest", experts->busiest, 1, 1e6);
}

static void check_layer(checker *check, const pk_measured *in, const pk_measured_layer *layer) {
    if (layer->matrix_count > in->matrix_count) index_in(check, "matrix_count", layer->matrix_count, in->matrix_count);
    if (layer->matrix_count > 0)
        index_in(check, "matrix_first", layer->matrix_first, in->matrix_count - layer->matrix_count + 1);
    number_in(check, "mixer", layer->mixer, 0, 1);
    if (layer->mixer) {
        index_in(check, "decode_law", layer->decode_law, in->mixer_law_count);
        index_in(check, "prefill_law", layer->prefill_law, in->mixer_law_count);
    }
    unused(check, "reserved", layer->reserved);
    not_negative(check, "state_bytes", layer->state_bytes);
    not_negative(check, "token_bytes", layer->token_bytes);
    not_negative(check, "token_flops", layer->token_flops);
}

static void check_parts(checker *check, const pk_spec *spec) {
    const pk_measured *in = &spec->measured;
    for (uint32_t i = 0; check->status == PK_OK && i < pk__all_layers(spec); i++) {
        enter(check, "measured.layers", i);
        check_layer(check, in, &in->layers[i]);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < spec->attention_count; i++) {
        enter(check, "measured.attentions", i);
        check_attention(check, in, &in->attentions[i]);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < spec->scorer_count; i++) {
        enter(check, "measured.scorers", i);
        index_in(check, "law", in->scorers[i].law, in->stream_law_count);
        unused(check, "reserved", in->scorers[i].reserved);
        not_negative(check, "flops", in->scorers[i].flops);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < spec->experts_count; i++) {
        enter(check, "measured.experts", i);
        check_experts(check, in, &in->experts[i]);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < spec->collective_count; i++) {
        enter(check, "measured.collectives", i);
        index_in(check, "law", in->collectives[i].law, in->link_law_count);
        index_in(check, "large_law", in->collectives[i].large_law, in->link_law_count);
        not_negative(check, "most_bytes", in->collectives[i].most_bytes);
    }
    for (uint32_t i = 0; check->status == PK_OK && i < in->matrix_count; i++) {
        enter(check, "measured.matrices", i);
        index_in(check, "law", in->matrices[i].law, in->matrix_law_count);
        unused(check, "reserved", in->matrices[i].reserved);
        positive(check, "n", in->matrices[i].n);
        positive(check, "k", in->matrices[i].k);
        positive(check, "weight_bytes", in->matrices[i].weight_bytes);
    }
}

static void check_top(checker *check, const pk_spec *spec) {
    const pk_measured *in = &spec->measured;
    enter_part(check, "measured");
    if (spec->head.flops_per_row > 0) index_in(check, "head_matrix", in->head_matrix, in->matrix_count);
    if (spec->head.has_gather) index_in(check, "gather_law", in->gather_law, in->link_law_count);
    for (uint32_t i = 0; check->status == PK_OK && i < in->capture_size_count; i++) {
        double least = i == 0 ? 1 : (double)in->capture_sizes[i - 1].tokens + 1;
        number_in(check, "capture_sizes", (double)in->capture_sizes[i].tokens, least, PK_MAX_BATCH_TOKENS);
    }
    positive(check, "bytes_per_second", in->bytes_per_second);
    number_in(check, "host.kernel_scale", in->host.kernel_scale, 1e-6, 2);
    seconds(check, "host.layer", in->host.layer);
    seconds(check, "host.prompt_layer", in->host.prompt_layer);
    seconds(check, "host.prompt_token", in->host.prompt_token);
    seconds(check, "host.unprepared_step", in->host.unprepared_step);
    seconds(check, "host.unprepared_request", in->host.unprepared_request);
}

/* The parts are companions of the spec's own. */
static void check_lengths(checker *check, const pk_spec *spec) {
    const pk_measured *in = &spec->measured;
    enter_part(check, "measured");
    number_in(check, "present", in->present, 0, 1);
    number_in(check, "layer_count", in->layer_count, pk__all_layers(spec), pk__all_layers(spec));
    number_in(check, "attention_count", in->attention_count, spec->attention_count, spec->attention_count);
    number_in(check, "scorer_count", in->scorer_count, spec->scorer_count, spec->scorer_count);
    number_in(check, "experts_count", in->experts_count, spec->experts_count, spec->experts_count);
    number_in(check, "collective_count", in->collective_count, spec->collective_count, spec->collective_count);
}

pk_status pk__check_measured(const pk_spec *spec, pk_error *error) {
    const pk_measured *in = &spec->measured;
    checker check = {.error = error, .status = PK_OK};
    check_lengths(&check, spec);
#define PK__ARRAY(member, type, number) array(&check, "measured." #member, in->member, number);
    PK__MEASURED_ARRAYS(PK__ARRAY)
#undef PK__ARRAY
    check_laws(&check, in);
    check_parts(&check, spec);
    if (check.status == PK_OK) check_top(&check, spec);
    return check.status;
}
