/* Construction: every field of a spec is checked and named, a bad one leaves nothing behind, a good one is copied. */
#include "check.h"
#include "example.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Builds the changed example: the status and the field are as stated, and nothing was made. */
static void refuses(const pk_spec *spec, pk_status status, const char *field, int line) {
    pk_kernel *const before = (pk_kernel *)&check_memory_is_out;
    pk_kernel *kernel = before;
    pk_error error = PK_ERROR_INIT;
    int found = (int)pk_kernel_new(spec, &kernel, &error);
    int as_stated = found == (int)status && error.status == found && strcmp(error.field, field) == 0;
    if (!as_stated)
        printf("found %s \"%s\" instead of %s\n", pk_status_name(found), error.field, pk_status_name(status));
    check_that(as_stated, field, __FILE__, line);
    check_that(error.message[0] != '\0', "the error says something", __FILE__, line);
    check_that(kernel == before, "the kernel pointer is untouched", __FILE__, line);
    check_that((int)pk_kernel_new(spec, &kernel, NULL) == found, "no error struct, same status", __FILE__, line);
}

#define REFUSED(status, field, change)                                                                                 \
    do {                                                                                                               \
        example e;                                                                                                     \
        example_make(&e);                                                                                              \
        change;                                                                                                        \
        refuses(&e.spec, status, field, __LINE__);                                                                     \
    } while (0)

#define REFUSED_VALUES(field, place, low, high)                                                                        \
    REFUSED(PK_SPEC_VALUE, field, place = (low));                                                                      \
    REFUSED(PK_SPEC_VALUE, field, place = (high))

/* A number that must be positive, or may also be 0 when `low` is negative. */
#define REFUSED_NUMBERS(field, place, low)                                                                             \
    REFUSED(PK_SPEC_VALUE, field, place = NAN);                                                                        \
    REFUSED_VALUES(field, place, low, INFINITY)

#define REFUSED_COUNT(field, place) REFUSED_VALUES(field, place, 0, -1)
#define REFUSED_DURATION(field, place) REFUSED_VALUES(field, place, -1, INT64_MAX)

static void every_number_of_the_part_is_checked(void) {
    REFUSED_COUNT("tensor_parallel", e.spec.tensor_parallel);
    REFUSED_VALUES("prefill_context_parallel", e.spec.prefill_context_parallel, 0, PK_MAX_CONTEXT_RANKS + 1);
    REFUSED_VALUES("decode_context_parallel", e.spec.decode_context_parallel, 0, PK_MAX_CONTEXT_RANKS + 1);
    REFUSED_COUNT("interleave", e.spec.interleave);
    REFUSED_COUNT("context_chunk", e.spec.context_chunk);
    REFUSED_VALUES("draft_passes", e.spec.draft_passes, -1, PK_MAX_DRAFT_PASSES + 1);
    REFUSED(PK_SPEC_VALUE, "sm_count", e.spec.sm_count = -1);
    REFUSED_NUMBERS("peak_flops", e.spec.peak_flops, 0);
    REFUSED_NUMBERS("hbm_bytes_per_second", e.spec.hbm_bytes_per_second, 0);
    REFUSED_NUMBERS("link_ratio", e.spec.link_ratio, -1);
    REFUSED(PK_SPEC_LAW, "gemm.law", e.spec.gemm.law = 0);
    REFUSED_NUMBERS("gemm.eps_max", e.spec.gemm.eps_max, 0);
    REFUSED(PK_SPEC_VALUE, "gemm.eps_max", e.spec.gemm.eps_max = 1.6);
    REFUSED_NUMBERS("gemm.m_half", e.spec.gemm.m_half, -1);
    REFUSED_NUMBERS("gemm.n_half", e.spec.gemm.n_half, -1);
    REFUSED_NUMBERS("gemm.k_half", e.spec.gemm.k_half, -1);
}

static void every_number_of_the_host_is_checked(void) {
    REFUSED_VALUES("host.uniform_mode", e.spec.host.uniform_mode, -1, 3);
    REFUSED_VALUES("host.other_mode", e.spec.host.other_mode, -1, 3);
    REFUSED_COUNT("host.uniform_width", e.spec.host.uniform_width);
    REFUSED_COUNT("host.segments", e.spec.host.segments);
    REFUSED_COUNT("host.layers", e.spec.host.layers);
    REFUSED(PK_SPEC_VALUE, "host.kernels", e.spec.host.kernels = -1);
    REFUSED(PK_SPEC_VALUE, "host.capture_tokens", e.spec.host.capture_tokens = -1);
    REFUSED(PK_SPEC_VALUE, "host.decode_threshold", e.spec.host.decode_threshold = 0);
    REFUSED_DURATION("host.replay_ns", e.spec.host.replay_ns);
    REFUSED_DURATION("host.eager_layer_ns", e.spec.host.eager_layer_ns);
    REFUSED_DURATION("host.kernel_ns", e.spec.host.kernel_ns);
}

static void every_number_of_the_head_is_checked(void) {
    REFUSED(PK_SPEC_LAW, "head.rows", e.spec.head.rows = 0);
    REFUSED(PK_SPEC_VALUE, "head.has_gather", e.spec.head.has_gather = 2);
    REFUSED(PK_SPEC_INDEX, "head.gather_law", e.spec.head.gather_law = 2);
    REFUSED(PK_SPEC_INDEX, "head.gather_group", e.spec.head.gather_group = 2);
    REFUSED_NUMBERS("head.flops_per_row", e.spec.head.flops_per_row, -1);
    REFUSED_NUMBERS("head.bytes", e.spec.head.bytes, -1);
    REFUSED_NUMBERS("head.gather_bytes_per_row", e.spec.head.gather_bytes_per_row, -1);
}

static void every_number_of_a_layer_is_checked(void) {
    REFUSED_COUNT("layers[1].count", e.layers[1].count);
    REFUSED(PK_SPEC_INDEX, "layers[1].attention_first", e.layers[1].attention_first = 3);
    REFUSED(PK_SPEC_VALUE, "layers[1].attention_count", e.layers[1].attention_count = 2);
    REFUSED(PK_SPEC_INDEX, "layers[2].scorer_first", e.layers[2].scorer_first = 1);
    REFUSED(PK_SPEC_INDEX, "layers[1].gemm_first", e.layers[1].gemm_first = 1);
    REFUSED(PK_SPEC_INDEX, "layers[1].experts_first", e.layers[1].experts_first = UINT32_MAX);
    REFUSED(PK_SPEC_INDEX, "layers[1].collective_first", e.layers[1].collective_count = UINT32_MAX);
    REFUSED_NUMBERS("layers[2].dense_flops_per_token", e.layers[2].dense_flops_per_token, -1);
    REFUSED_NUMBERS("layers[0].dense_bytes", e.layers[0].dense_bytes, -1);
    REFUSED_NUMBERS("layers[0].elementwise_bytes_per_token", e.layers[0].elementwise_bytes_per_token, -1);
    REFUSED(PK_SPEC_LAW, "layers[2].recurrent.law", e.layers[2].recurrent.law = 99);
    REFUSED_DURATION("layers[2].recurrent.floor_ns", e.layers[2].recurrent.floor_ns);
    REFUSED_NUMBERS("layers[2].recurrent.tokens_per_second", e.layers[2].recurrent.tokens_per_second, 0);
    REFUSED_COUNT("layers[3].count", e.layers[3].count);
    REFUSED_NUMBERS("gemms[1].flops_per_token", e.gemms[1].flops_per_token, -1);
    REFUSED_NUMBERS("gemms[0].n", e.gemms[0].n, -1);
    REFUSED_NUMBERS("gemms[0].k", e.gemms[0].k, -1);
}

static void every_number_of_an_attention_is_checked(void) {
    REFUSED_COUNT("attentions[0].query_heads", e.attentions[0].query_heads);
    REFUSED_COUNT("attentions[1].head_dim", e.attentions[1].head_dim);
    REFUSED(PK_SPEC_VALUE, "attentions[1].prefill_window", e.attentions[1].prefill_window = -1);
    REFUSED(PK_SPEC_LAW, "attentions[2].read.law", e.attentions[2].read.law = 0);
    REFUSED_VALUES("attentions[2].read.sharded", e.attentions[2].read.sharded, -1, 2);
    REFUSED(PK_SPEC_VALUE, "attentions[2].read.top_k", e.attentions[2].read.top_k = -1);
    REFUSED_VALUES("attentions[2].read.compress_ratio", e.attentions[2].read.compress_ratio, 0,
                   PK_MAX_COMPRESS_RATIO + 1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].read.window", e.attentions[1].read.window = -1);
    REFUSED_NUMBERS("attentions[0].cache_bytes_per_token", e.attentions[0].cache_bytes_per_token, -1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].one_mixed_launch", e.attentions[1].one_mixed_launch = 2);
    REFUSED(PK_SPEC_LAW, "attentions[1].decode.law", e.attentions[1].decode.law = 999);
    REFUSED_DURATION("attentions[1].decode.floor_ns", e.attentions[1].decode.floor_ns);
    REFUSED_NUMBERS("attentions[0].decode.bytes_per_second", e.attentions[0].decode.bytes_per_second, 0);
    REFUSED(PK_SPEC_LAW, "attentions[0].prefill.law", e.attentions[0].prefill.law = 0);
    REFUSED_DURATION("attentions[1].prefill.floor_ns", e.attentions[1].prefill.floor_ns);
    REFUSED_NUMBERS("attentions[0].prefill.work_scale", e.attentions[0].prefill.work_scale, 0);
}

static void every_number_of_a_scorer_is_checked(void) {
    REFUSED_NUMBERS("scorers[0].cache_bytes_per_token", e.scorers[0].cache_bytes_per_token, -1);
    REFUSED(PK_SPEC_VALUE, "scorers[0].window", e.scorers[0].window = -1);
    REFUSED_COUNT("scorers[0].compress_ratio", e.scorers[0].compress_ratio);
    REFUSED_VALUES("scorers[0].sharded", e.scorers[0].sharded, -1, 2);
    REFUSED(PK_SPEC_LAW, "scorers[0].decode.law", e.scorers[0].decode.law = 0);
    REFUSED_DURATION("scorers[0].decode.floor_ns", e.scorers[0].decode.floor_ns);
    REFUSED_NUMBERS("scorers[0].decode.bytes_per_second", e.scorers[0].decode.bytes_per_second, 0);
}

static void every_number_of_the_experts_is_checked(void) {
    REFUSED_COUNT("experts[0].experts", e.experts[0].experts);
    REFUSED_VALUES("experts[0].local", e.experts[0].local, 0, 129);
    REFUSED_VALUES("experts[0].top_k", e.experts[0].top_k, 0, 129);
    REFUSED_COUNT("experts[0].shards", e.experts[0].shards);
    REFUSED_COUNT("experts[0].funnel", e.experts[0].funnel);
    REFUSED_COUNT("experts[0].token_slices", e.experts[0].token_slices);
    REFUSED_NUMBERS("experts[0].flops_per_token_and_expert", e.experts[0].flops_per_token_and_expert, -1);
    REFUSED_NUMBERS("experts[0].bytes_per_expert", e.experts[0].bytes_per_expert, -1);
    REFUSED_NUMBERS("experts[0].imbalance", e.experts[0].imbalance, 0);
}

static void every_number_of_a_collective_is_checked(void) {
    REFUSED(PK_SPEC_INDEX, "collectives[2].law", e.collectives[2].law = 2);
    REFUSED(PK_SPEC_INDEX, "collectives[2].group", e.collectives[2].group = UINT32_MAX);
    REFUSED(PK_SPEC_LAW, "collectives[2].span", e.collectives[2].span = 0);
    REFUSED(PK_SPEC_LAW, "collectives[1].units", e.collectives[1].units = 0);
    REFUSED_VALUES("collectives[1].on_sm", e.collectives[1].on_sm, -1, 2);
    REFUSED_NUMBERS("collectives[0].bytes_per_unit", e.collectives[0].bytes_per_unit, -1);
    REFUSED(PK_SPEC_LAW, "collective_laws[1].law", e.laws[1].law = 0);
    REFUSED_DURATION("collective_laws[1].floor_ns", e.laws[1].floor_ns);
    REFUSED_NUMBERS("collective_laws[1].transition_bytes_per_second", e.laws[1].transition_bytes_per_second, -1);
    REFUSED_NUMBERS("collective_laws[0].peak_bytes_per_second", e.laws[0].peak_bytes_per_second, 0);
    REFUSED_COUNT("groups[1].width", e.groups[1].width);
    REFUSED_COUNT("groups[1].per_node", e.groups[1].per_node);
    REFUSED_VALUES("groups[1].crosses_nodes", e.groups[1].crosses_nodes, -1, 2);
}

static void every_number_of_the_memory_is_checked(void) {
    REFUSED_VALUES("memory.device_bytes", e.spec.memory.device_bytes, 0, INT64_MAX);
    REFUSED_NUMBERS("memory.utilization", e.spec.memory.utilization, 0);
    REFUSED(PK_SPEC_VALUE, "memory.utilization", e.spec.memory.utilization = 1.1);
    REFUSED_NUMBERS("memory.embedding_bytes", e.spec.memory.embedding_bytes, -1);
    REFUSED_NUMBERS("memory.activation_buffers", e.spec.memory.activation_buffers, -1);
    REFUSED_COUNT("memory.activation_tokens", e.spec.memory.activation_tokens);
    REFUSED_COUNT("memory.activation_width", e.spec.memory.activation_width);
    REFUSED_VALUES("memory.activation_floor_bytes", e.spec.memory.activation_floor_bytes, -1, INT64_MAX);
    REFUSED_VALUES("memory.graph_bytes", e.spec.memory.graph_bytes, -1, INT64_MAX);
    REFUSED_VALUES("memory.communicator_bytes", e.spec.memory.communicator_bytes, -1, INT64_MAX);
    REFUSED_VALUES("memory.workspace_bytes", e.spec.memory.workspace_bytes, -1, INT64_MAX);
    REFUSED_VALUES("memory.inside_budget", e.spec.memory.inside_budget, -1, 2);
    REFUSED(PK_SPEC_VALUE, "memory.draft_tokens", e.spec.memory.draft_tokens = -1);
    REFUSED_COUNT("memory.block", e.spec.memory.block);
    REFUSED_COUNT("memory.in_flight_tokens", e.spec.memory.in_flight_tokens);
    REFUSED(PK_SPEC_VALUE, "memory.model_length", e.spec.memory.model_length = -1);
    REFUSED_NUMBERS("memory.pool_block_bytes", e.spec.memory.pool_block_bytes, -1);
    REFUSED_NUMBERS("layers[1].stored_bytes", e.layers[1].stored_bytes, -1);
    REFUSED_NUMBERS("layers[1].replicated_bytes", e.layers[1].replicated_bytes, -1);
    REFUSED_NUMBERS("head.stored_bytes", e.spec.head.stored_bytes, -1);
    REFUSED_NUMBERS("experts[0].stored_bytes_per_expert", e.experts[0].stored_bytes_per_expert, -1);
    REFUSED_VALUES("experts[0].redundant", e.experts[0].redundant, -1, 128);
    REFUSED_COUNT("experts[0].ranks", e.experts[0].ranks);
    REFUSED(PK_SPEC_LAW, "caches[0].kind", e.caches[0].kind = 5);
    REFUSED_COUNT("caches[0].layers", e.caches[0].layers);
    REFUSED_COUNT("caches[1].tokens_per_entry", e.caches[1].tokens_per_entry);
    REFUSED_VALUES("caches[0].sharded", e.caches[0].sharded, -1, 2);
    REFUSED(PK_SPEC_VALUE, "caches[2].sharded", e.caches[2].sharded = 1);
    REFUSED(PK_SPEC_VALUE, "caches[3].pages", e.caches[3].pages = -1);
    REFUSED_VALUES("caches[3].handed_over", e.caches[3].handed_over, -1, 2);
    REFUSED_COUNT("caches[4].block", e.caches[4].block);
    REFUSED(PK_SPEC_VALUE, "caches[0].window", e.caches[0].window = -1);
    REFUSED_COUNT("caches[2].window", e.caches[2].window);
    REFUSED_NUMBERS("caches[2].entry_bytes", e.caches[2].entry_bytes, -1);
}

static void every_number_of_the_transfers_is_checked(void) {
    REFUSED_NUMBERS("links.host_bytes_per_second", e.spec.links.host_bytes_per_second, -1);
    REFUSED_NUMBERS("links.node_bytes_per_second", e.spec.links.node_bytes_per_second, -1);
    REFUSED_NUMBERS("links.fabric_bytes_per_second", e.spec.links.fabric_bytes_per_second, -1);
    REFUSED_DURATION("links.handoff_floor_ns", e.spec.links.handoff_floor_ns);
    REFUSED_VALUES("links.rack_is_one_domain", e.spec.links.rack_is_one_domain, -1, 2);
    REFUSED(PK_SPEC_VALUE, "tiers[0].name", e.tiers[0].name[0] = '\0');
    REFUSED(PK_SPEC_VALUE, "tiers[1].name", memset(e.tiers[1].name, 'x', sizeof e.tiers[1].name));
    REFUSED(PK_SPEC_VALUE, "tiers[1].name", memcpy(e.tiers[1].name, e.tiers[0].name, sizeof e.tiers[0].name));
    REFUSED_NUMBERS("tiers[1].read_bytes_per_second", e.tiers[1].read_bytes_per_second, 0);
    REFUSED_NUMBERS("tiers[1].write_bytes_per_second", e.tiers[1].write_bytes_per_second, 0);
    REFUSED_NUMBERS("tiers[1].latency_us", e.tiers[1].latency_us, -1);
    REFUSED_DURATION("host.admission_request_ns", e.spec.host.admission_request_ns);
    REFUSED_DURATION("host.admission_token_ns", e.spec.host.admission_token_ns);
    REFUSED_DURATION("host.output_token_ns", e.spec.host.output_token_ns);
    REFUSED_DURATION("host.completion_ns", e.spec.host.completion_ns);
}

static void arrays_must_be_there_and_of_a_sane_length(void) {
    REFUSED_VALUES("layer_count", e.spec.layer_count, 0, UINT32_MAX);
    REFUSED(PK_SPEC_VALUE, "draft_layer_count", e.spec.draft_layer_count = UINT32_MAX);
    REFUSED(PK_NULL_ARGUMENT, "layers", e.spec.layers = NULL);
    REFUSED(PK_NULL_ARGUMENT, "attentions", e.spec.attentions = NULL);
    REFUSED(PK_NULL_ARGUMENT, "scorers", e.spec.scorers = NULL);
    REFUSED(PK_NULL_ARGUMENT, "gemms", e.spec.gemms = NULL);
    REFUSED(PK_NULL_ARGUMENT, "experts", e.spec.experts = NULL);
    REFUSED(PK_NULL_ARGUMENT, "collectives", e.spec.collectives = NULL);
    REFUSED(PK_NULL_ARGUMENT, "collective_laws", e.spec.collective_laws = NULL);
    REFUSED(PK_NULL_ARGUMENT, "groups", e.spec.groups = NULL);
    REFUSED(PK_NULL_ARGUMENT, "caches", e.spec.caches = NULL);
    REFUSED(PK_NULL_ARGUMENT, "tiers", e.spec.tiers = NULL);
    REFUSED(PK_SPEC_LIMIT, "groups", e.spec.group_count = UINT32_MAX);
}

static void reserved_fields_must_be_zero(void) {
    REFUSED(PK_STRUCT_SIZE, "spec", e.spec.struct_size = 0);
    REFUSED(PK_STRUCT_SIZE, "spec", e.spec.struct_size = UINT32_MAX);
    REFUSED(PK_RESERVED, "spec", e.spec.flags = 1);
    REFUSED(PK_SPEC_VALUE, "gemm.reserved", e.spec.gemm.reserved = 1);
    REFUSED(PK_SPEC_VALUE, "layers[2].recurrent.reserved", e.layers[2].recurrent.reserved = 1);
    REFUSED(PK_SPEC_VALUE, "scorers[0].decode.reserved", e.scorers[0].decode.reserved = 1);
    REFUSED(PK_SPEC_VALUE, "collectives[0].reserved", e.collectives[0].reserved = 1);
    REFUSED(PK_SPEC_VALUE, "layers[0].reserved", e.layers[0].reserved = 1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].reserved", e.attentions[1].reserved = 1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].decode.reserved", e.attentions[1].decode.reserved = 1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].prefill.reserved", e.attentions[1].prefill.reserved = 1);
    REFUSED(PK_SPEC_VALUE, "collective_laws[0].reserved", e.laws[0].reserved = 1);
    REFUSED(PK_SPEC_VALUE, "groups[0].reserved", e.groups[0].reserved = 1);
    REFUSED(PK_SPEC_VALUE, "links.reserved", e.spec.links.reserved = 1);
}

static void more_different_reads_than_supported_are_refused(void) {
    pk_attention attentions[PK_MAX_READS + 1];
    example e;
    example_make(&e);
    attentions[0] = e.attentions[0];
    attentions[0].read.sharded = 0;
    for (int i = 1; i <= PK_MAX_READS; i++) {
        attentions[i] = e.attentions[1];
        attentions[i].read.window = 100 + i;
    }
    e.spec.attentions = attentions;
    e.spec.attention_count = PK_MAX_READS + 1;
    refuses(&e.spec, PK_SPEC_LIMIT, "attentions", __LINE__);
    e.spec.attention_count = PK_MAX_READS;
    pk_kernel *kernel = NULL;
    CHECK(pk_kernel_new(&e.spec, &kernel, NULL) == PK_OK);
    pk_kernel_free(kernel);
}

static void running_out_of_memory_is_an_error(void) {
    check_memory_is_out = 1;
    REFUSED(PK_NO_MEMORY, "kernel", (void)0);
    check_memory_is_out = 0;
}

static void a_kernel_keeps_nothing_of_its_spec(void) {
    example *e = malloc(sizeof *e);
    pk_kernel *kernel = NULL, *reference = check_example_kernel();
    example_make(e);
    CHECK(pk_kernel_new(&e->spec, &kernel, NULL) == PK_OK);
    memset(e, 0xff, sizeof *e);
    free(e);
    CHECK(pk_kernel_size(kernel) > 0 && pk_kernel_size(kernel) == pk_kernel_size(reference));
    CHECK(memcmp(kernel, reference, pk_kernel_size(kernel)) == 0);
    pk_kernel_free(kernel);
    pk_kernel_free(reference);
    pk_kernel_free(NULL);
}

void test_spec(void) {
    every_number_of_the_part_is_checked();
    every_number_of_the_host_is_checked();
    every_number_of_the_head_is_checked();
    every_number_of_a_layer_is_checked();
    every_number_of_an_attention_is_checked();
    every_number_of_a_scorer_is_checked();
    every_number_of_the_experts_is_checked();
    every_number_of_a_collective_is_checked();
    every_number_of_the_memory_is_checked();
    every_number_of_the_transfers_is_checked();
    arrays_must_be_there_and_of_a_sane_length();
    reserved_fields_must_be_zero();
    more_different_reads_than_supported_are_refused();
    running_out_of_memory_is_an_error();
    a_kernel_keeps_nothing_of_its_spec();
}
