/* Checks a spec field by field before anything is built from it. The first fault found is the one reported. */
#include "checker.h"

#include <string.h>

static void check_gemm(checker *check, const pk_gemm_law *law) {
    enter_part(check, "gemm");
    law_in(check, "law", law->law, PK_GEMM_SHAPE_RAMP);
    unused(check, "reserved", law->reserved);
    number_in(check, "eps_max", law->eps_max, 1e-6, 1.5);
    not_negative(check, "m_half", law->m_half);
    not_negative(check, "n_half", law->n_half);
    not_negative(check, "k_half", law->k_half);
}

static void check_host(checker *check, const pk_host *host) {
    enter_part(check, "host");
    integer_in(check, "uniform_mode", host->uniform_mode, PK_GRAPH_NONE, PK_GRAPH_FULL);
    integer_in(check, "other_mode", host->other_mode, PK_GRAPH_NONE, PK_GRAPH_FULL);
    count(check, "uniform_width", host->uniform_width);
    count(check, "segments", host->segments);
    count(check, "layers", host->layers);
    integer_in(check, "kernels", host->kernels, 0, INT32_MAX);
    integer_in(check, "capture_tokens", host->capture_tokens, 0, INT64_MAX);
    integer_in(check, "decode_threshold", host->decode_threshold, 1, INT64_MAX);
    duration(check, "replay_ns", host->replay_ns);
    duration(check, "eager_layer_ns", host->eager_layer_ns);
    duration(check, "kernel_ns", host->kernel_ns);
    duration(check, "admission_request_ns", host->admission_request_ns);
    duration(check, "admission_token_ns", host->admission_token_ns);
    duration(check, "output_token_ns", host->output_token_ns);
    duration(check, "completion_ns", host->completion_ns);
}

static void check_head(checker *check, const pk_spec *spec) {
    const pk_head *head = &spec->head;
    enter_part(check, "head");
    law_in(check, "rows", head->rows, PK_HEAD_ALL_TOKENS);
    flag(check, "has_gather", head->has_gather);
    if (head->has_gather) {
        index_in(check, "gather_law", head->gather_law, spec->collective_law_count);
        index_in(check, "gather_group", head->gather_group, spec->group_count);
    }
    not_negative(check, "flops_per_row", head->flops_per_row);
    not_negative(check, "bytes", head->bytes);
    not_negative(check, "gather_bytes_per_row", head->gather_bytes_per_row);
    not_negative(check, "stored_bytes", head->stored_bytes);
}

static void check_layer(checker *check, const pk_spec *spec, uint32_t i) {
    const pk_layer *layer = &spec->layers[i];
    enter(check, "layers", i);
    count(check, "count", layer->count);
    range_in(check, "attention_first", layer->attention_first, layer->attention_count, spec->attention_count);
    integer_in(check, "attention_count", layer->attention_count, 0, 1);
    range_in(check, "scorer_first", layer->scorer_first, layer->scorer_count, spec->scorer_count);
    range_in(check, "gemm_first", layer->gemm_first, layer->gemm_count, spec->gemm_count);
    range_in(check, "experts_first", layer->experts_first, layer->experts_count, spec->experts_count);
    range_in(check, "collective_first", layer->collective_first, layer->collective_count, spec->collective_count);
    unused(check, "reserved", layer->reserved);
    not_negative(check, "dense_flops_per_token", layer->dense_flops_per_token);
    not_negative(check, "dense_bytes", layer->dense_bytes);
    not_negative(check, "elementwise_bytes_per_token", layer->elementwise_bytes_per_token);
    not_negative(check, "stored_bytes", layer->stored_bytes);
    not_negative(check, "replicated_bytes", layer->replicated_bytes);
    if (layer->recurrent.law == PK_RECURRENT_NONE) return;
    law_in(check, "recurrent.law", layer->recurrent.law, PK_RECURRENT_FLOOR_RATE);
    unused(check, "recurrent.reserved", layer->recurrent.reserved);
    duration(check, "recurrent.floor_ns", layer->recurrent.floor_ns);
    positive(check, "recurrent.tokens_per_second", layer->recurrent.tokens_per_second);
}

static void check_decode_law(checker *check, const pk_decode_law *law, uint32_t known) {
    law_in(check, "decode.law", law->law, known);
    unused(check, "decode.reserved", law->reserved);
    duration(check, "decode.floor_ns", law->floor_ns);
    if (law->law == PK_DECODE_FLOOR_RATE) positive(check, "decode.bytes_per_second", law->bytes_per_second);
}

static void check_read_law(checker *check, const pk_read_law *law) {
    law_in(check, "read.law", law->law, PK_READ_SELECTED);
    flag(check, "read.sharded", law->sharded);
    if (law->law == PK_READ_ALL) return;
    integer_in(check, "read.window", law->window, law->law == PK_READ_WINDOW, INT64_MAX);
    if (law->law == PK_READ_WINDOW) return;
    integer_in(check, "read.top_k", law->top_k, 0, PK_MAX_REQUEST_TOKENS);
    integer_in(check, "read.compress_ratio", law->compress_ratio, 1, PK_MAX_COMPRESS_RATIO);
}

static void check_gemm_shape(checker *check, const pk_gemm *gemm, uint32_t i) {
    enter(check, "gemms", i);
    not_negative(check, "flops_per_token", gemm->flops_per_token);
    not_negative(check, "n", gemm->n);
    not_negative(check, "k", gemm->k);
}

static void check_scorer(checker *check, const pk_scorer *scorer, uint32_t i) {
    enter(check, "scorers", i);
    not_negative(check, "cache_bytes_per_token", scorer->cache_bytes_per_token);
    integer_in(check, "window", scorer->window, 0, INT64_MAX);
    count(check, "compress_ratio", scorer->compress_ratio);
    flag(check, "sharded", scorer->sharded);
    check_decode_law(check, &scorer->decode, PK_DECODE_FLOOR_RATE);
}

static void check_attention(checker *check, const pk_attention *attention, uint32_t i) {
    enter(check, "attentions", i);
    count(check, "query_heads", attention->query_heads);
    count(check, "head_dim", attention->head_dim);
    integer_in(check, "prefill_window", attention->prefill_window, 0, INT64_MAX);
    not_negative(check, "cache_bytes_per_token", attention->cache_bytes_per_token);
    flag(check, "one_mixed_launch", attention->one_mixed_launch);
    unused(check, "reserved", attention->reserved);
    check_read_law(check, &attention->read);
    check_decode_law(check, &attention->decode, PK_DECODE_HBM);
    law_in(check, "prefill.law", attention->prefill.law, PK_PREFILL_DENSE);
    unused(check, "prefill.reserved", attention->prefill.reserved);
    duration(check, "prefill.floor_ns", attention->prefill.floor_ns);
    if (attention->prefill.law == PK_PREFILL_FLOOR_RAMP)
        positive(check, "prefill.work_scale", attention->prefill.work_scale);
}

static void check_experts(checker *check, const pk_experts *experts, uint32_t i) {
    enter(check, "experts", i);
    count(check, "experts", experts->experts);
    integer_in(check, "local", experts->local, 1, experts->experts);
    integer_in(check, "top_k", experts->top_k, 1, experts->experts);
    count(check, "shards", experts->shards);
    count(check, "funnel", experts->funnel);
    count(check, "token_slices", experts->token_slices);
    not_negative(check, "flops_per_token_and_expert", experts->flops_per_token_and_expert);
    not_negative(check, "bytes_per_expert", experts->bytes_per_expert);
    positive(check, "imbalance", experts->imbalance);
    not_negative(check, "stored_bytes_per_expert", experts->stored_bytes_per_expert);
    integer_in(check, "redundant", experts->redundant, 0, (int64_t)experts->experts - 1);
    count(check, "ranks", experts->ranks);
}

static void check_collective(checker *check, const pk_spec *spec, uint32_t i) {
    const pk_collective *collective = &spec->collectives[i];
    enter(check, "collectives", i);
    index_in(check, "law", collective->law, spec->collective_law_count);
    index_in(check, "group", collective->group, spec->group_count);
    law_in(check, "span", collective->span, PK_SPAN_ALL_TO_ALL);
    law_in(check, "units", collective->units, PK_UNITS_CONTEXT_CHUNKS);
    flag(check, "on_sm", collective->on_sm);
    unused(check, "reserved", collective->reserved);
    not_negative(check, "bytes_per_unit", collective->bytes_per_unit);
}

static void check_collective_law(checker *check, const pk_collective_law *law, uint32_t i) {
    enter(check, "collective_laws", i);
    law_in(check, "law", law->law, PK_COLLECTIVE_TWO_RATES);
    unused(check, "reserved", law->reserved);
    duration(check, "floor_ns", law->floor_ns);
    not_negative(check, "transition_bytes_per_second", law->transition_bytes_per_second);
    positive(check, "peak_bytes_per_second", law->peak_bytes_per_second);
}

static void check_group(checker *check, const pk_group *group, uint32_t i) {
    enter(check, "groups", i);
    count(check, "width", group->width);
    count(check, "per_node", group->per_node);
    flag(check, "crosses_nodes", group->crosses_nodes);
    unused(check, "reserved", group->reserved);
}

/* Bytes of a rank: 2^60 at most, so that a sum of a few of them is exact. */
static void bytes(checker *check, const char *field, int64_t value) {
    integer_in(check, field, value, 0, (int64_t)1 << 60);
}

static void check_memory(checker *check, const pk_memory *memory) {
    enter_part(check, "memory");
    integer_in(check, "device_bytes", memory->device_bytes, 1, (int64_t)1 << 60);
    number_in(check, "utilization", memory->utilization, 1e-30, 1);
    not_negative(check, "embedding_bytes", memory->embedding_bytes);
    not_negative(check, "activation_buffers", memory->activation_buffers);
    integer_in(check, "activation_tokens", memory->activation_tokens, 1, INT64_MAX);
    integer_in(check, "activation_width", memory->activation_width, 1, INT64_MAX);
    bytes(check, "activation_floor_bytes", memory->activation_floor_bytes);
    bytes(check, "graph_bytes", memory->graph_bytes);
    bytes(check, "communicator_bytes", memory->communicator_bytes);
    bytes(check, "workspace_bytes", memory->workspace_bytes);
    flag(check, "inside_budget", memory->inside_budget);
    integer_in(check, "draft_tokens", memory->draft_tokens, 0, INT32_MAX);
    integer_in(check, "block", memory->block, 1, INT64_MAX);
    integer_in(check, "in_flight_tokens", memory->in_flight_tokens, 1, INT64_MAX);
    integer_in(check, "model_length", memory->model_length, 0, INT64_MAX);
    not_negative(check, "pool_block_bytes", memory->pool_block_bytes);
}

static void check_links(checker *check, const pk_links *links) {
    enter_part(check, "links");
    not_negative(check, "host_bytes_per_second", links->host_bytes_per_second);
    not_negative(check, "node_bytes_per_second", links->node_bytes_per_second);
    not_negative(check, "fabric_bytes_per_second", links->fabric_bytes_per_second);
    duration(check, "handoff_floor_ns", links->handoff_floor_ns);
    flag(check, "rack_is_one_domain", links->rack_is_one_domain);
    unused(check, "reserved", links->reserved);
}

static void check_resolution(checker *check, const pk_resolution *resolution) {
    enter_part(check, "resolution");
    integer_in(check, "tensor_parallel", resolution->tensor_parallel, 0, INT32_MAX);
    integer_in(check, "data_parallel", resolution->data_parallel, 0, INT32_MAX);
    integer_in(check, "expert_parallel", resolution->expert_parallel, 0, INT32_MAX);
    flag(check, "async_scheduling", resolution->async_scheduling);
    flag(check, "cascade_attention", resolution->cascade_attention);
    flag(check, "sequence_parallel_moe", resolution->sequence_parallel_moe);
}

static void check_cache(checker *check, const pk_cache_group *group, uint32_t i) {
    enter(check, "caches", i);
    law_in(check, "kind", group->kind, PK_CACHE_CHECKPOINTS);
    count(check, "layers", group->layers);
    count(check, "tokens_per_entry", group->tokens_per_entry);
    integer_in(check, "sharded", group->sharded, 0, group->kind == PK_CACHE_TOKENS);
    integer_in(check, "pages", group->pages, 0, INT32_MAX);
    flag(check, "handed_over", group->handed_over);
    integer_in(check, "block", group->block, 1, INT64_MAX);
    integer_in(check, "window", group->window, group->kind == PK_CACHE_RING, INT64_MAX);
    not_negative(check, "entry_bytes", group->entry_bytes);
}

/* A name ends inside its array and is neither empty nor another tier's. */
static void check_tier_name(checker *check, const pk_tier *tiers, uint32_t i) {
    if (check->status != PK_OK) return;
    const char *problem = NULL;
    if (memchr(tiers[i].name, '\0', sizeof tiers[i].name) == NULL) problem = "is not terminated";
    else if (tiers[i].name[0] == '\0') problem = "is empty";
    for (uint32_t other = 0; problem == NULL && other < i; other++)
        if (strcmp(tiers[other].name, tiers[i].name) == 0) problem = "is that of another tier";
    if (problem == NULL) return;
    char name[96];
    field_name(check, "name", name, sizeof name);
    check->status = pk__fail(check->error, PK_SPEC_VALUE, name, "%s %s; accepted are at most %zu bytes, each name once",
                             name, problem, sizeof tiers[i].name - 1);
}

static void check_tier(checker *check, const pk_tier *tiers, uint32_t i) {
    enter(check, "tiers", i);
    check_tier_name(check, tiers, i);
    positive(check, "read_bytes_per_second", tiers[i].read_bytes_per_second);
    positive(check, "write_bytes_per_second", tiers[i].write_bytes_per_second);
    not_negative(check, "latency_us", tiers[i].latency_us);
}

static void check_arrays(checker *check, const pk_spec *spec) {
    integer_in(check, "layer_count", spec->layer_count, 1, PK__MAX_ARRAY);
    integer_in(check, "draft_layer_count", spec->draft_layer_count, 0, PK__MAX_ARRAY);
    array(check, "layers", spec->layers, spec->layer_count);
    array(check, "attentions", spec->attentions, spec->attention_count);
    array(check, "scorers", spec->scorers, spec->scorer_count);
    array(check, "gemms", spec->gemms, spec->gemm_count);
    array(check, "experts", spec->experts, spec->experts_count);
    array(check, "collectives", spec->collectives, spec->collective_count);
    array(check, "collective_laws", spec->collective_laws, spec->collective_law_count);
    array(check, "groups", spec->groups, spec->group_count);
    array(check, "caches", spec->caches, spec->cache_count);
    array(check, "tiers", spec->tiers, spec->tier_count);
    array(check, "origins", spec->origins, spec->origin_count);
    array(check, "overrides", spec->overrides, spec->override_count);
    array(check, "notes", spec->notes, spec->note_count);
}

static void check_part(checker *check, const pk_spec *spec) {
    count(check, "tensor_parallel", spec->tensor_parallel);
    integer_in(check, "prefill_context_parallel", spec->prefill_context_parallel, 1, PK_MAX_CONTEXT_RANKS);
    integer_in(check, "decode_context_parallel", spec->decode_context_parallel, 1, PK_MAX_CONTEXT_RANKS);
    count(check, "interleave", spec->interleave);
    integer_in(check, "context_chunk", spec->context_chunk, 1, PK_MAX_REQUEST_TOKENS);
    integer_in(check, "draft_passes", spec->draft_passes, 0, PK_MAX_DRAFT_PASSES);
    integer_in(check, "sm_count", spec->sm_count, 0, INT32_MAX);
    positive(check, "peak_flops", spec->peak_flops);
    positive(check, "hbm_bytes_per_second", spec->hbm_bytes_per_second);
    positive(check, "link_ratio", spec->link_ratio);
}

pk_status pk__check_spec(const pk_spec *spec, pk_error *error) {
    pk_status status = pk__check_struct(spec->struct_size, spec->flags, sizeof *spec, "spec", error);
    if (status != PK_OK) return status;
    checker check = {.error = error, .status = PK_OK};
    check_part(&check, spec);
    check_arrays(&check, spec);
    check_gemm(&check, &spec->gemm);
    check_host(&check, &spec->host);
    check_head(&check, spec);
    check_memory(&check, &spec->memory);
    check_links(&check, &spec->links);
    check_resolution(&check, &spec->resolution);
    leave(&check);
    if (check.status == PK_OK) check.status = pk__check_texts(spec, error);
    uint32_t layers = spec->layer_count + spec->draft_layer_count;
    for (uint32_t i = 0; check.status == PK_OK && i < layers; i++) check_layer(&check, spec, i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->attention_count; i++)
        check_attention(&check, &spec->attentions[i], i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->scorer_count; i++)
        check_scorer(&check, &spec->scorers[i], i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->gemm_count; i++)
        check_gemm_shape(&check, &spec->gemms[i], i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->experts_count; i++)
        check_experts(&check, &spec->experts[i], i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->collective_count; i++) check_collective(&check, spec, i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->collective_law_count; i++)
        check_collective_law(&check, &spec->collective_laws[i], i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->group_count; i++)
        check_group(&check, &spec->groups[i], i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->cache_count; i++) check_cache(&check, &spec->caches[i], i);
    for (uint32_t i = 0; check.status == PK_OK && i < spec->tier_count; i++) check_tier(&check, spec->tiers, i);
    if (check.status == PK_OK && spec->measured.present != 0) return pk__check_measured(spec, error);
    return check.status;
}
