/*
 * The contract of pykernel.h, from C: ownership, errors, untouched results, purity. The prices themselves are tested
 * from Python; here is what only C sees, and what sanitizers with leak detection need a program without Python for.
 * test_c_core.py compiles this with the core's sources, and with calloc wrapped so that it can be made to fail.
 */
#include "check.h"
#include "example.h"
#include "pykernel.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int memory_is_out;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) { return memory_is_out ? NULL : __real_calloc(count, size); }

static pk_kernel *example_kernel(void) {
    example e;
    example_make(&e);
    pk_kernel *kernel = NULL;
    pk_error error = PK_ERROR_INIT;
    if (pk_kernel_new(&e.spec, &kernel, &error) != PK_OK) {
        printf("the example is refused: %s: %s\n", error.field, error.message);
        exit(1);
    }
    return kernel;
}

/* ---- construction -------------------------------------------------------------------------------------------- */

/* Builds the changed example: the status and the field are as stated, and nothing was made. */
static void refuses(const pk_spec *spec, pk_status status, const char *field, int line) {
    pk_kernel *const before = (pk_kernel *)&memory_is_out;
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
    REFUSED(PK_SPEC_VALUE, "sm_count", e.spec.sm_count = -1);
    REFUSED_NUMBERS("peak_flops", e.spec.peak_flops, 0);
    REFUSED_NUMBERS("hbm_bytes_per_second", e.spec.hbm_bytes_per_second, 0);
    REFUSED_NUMBERS("link_ratio", e.spec.link_ratio, -1);
    REFUSED(PK_SPEC_LAW, "gemm.law", e.spec.gemm.law = 0);
    REFUSED_NUMBERS("gemm.eps_max", e.spec.gemm.eps_max, 0);
    REFUSED(PK_SPEC_VALUE, "gemm.eps_max", e.spec.gemm.eps_max = 1.6);
    REFUSED_NUMBERS("gemm.m_half", e.spec.gemm.m_half, -1);
}

static void every_number_of_the_host_is_checked(void) {
    REFUSED_VALUES("host.uniform_mode", e.spec.host.uniform_mode, -1, 3);
    REFUSED_VALUES("host.other_mode", e.spec.host.other_mode, -1, 3);
    REFUSED_COUNT("host.uniform_width", e.spec.host.uniform_width);
    REFUSED_COUNT("host.segments", e.spec.host.segments);
    REFUSED_COUNT("host.layers", e.spec.host.layers);
    REFUSED(PK_SPEC_VALUE, "host.kernels", e.spec.host.kernels = -1);
    REFUSED(PK_SPEC_VALUE, "host.capture_tokens", e.spec.host.capture_tokens = -1);
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
    REFUSED(PK_SPEC_INDEX, "layers[1].attention_first", e.layers[1].attention_first = 2);
    REFUSED(PK_SPEC_INDEX, "layers[1].experts_first", e.layers[1].experts_first = UINT32_MAX);
    REFUSED(PK_SPEC_INDEX, "layers[1].collective_first", e.layers[1].collective_count = UINT32_MAX);
    REFUSED_NUMBERS("layers[2].dense_flops_per_token", e.layers[2].dense_flops_per_token, -1);
    REFUSED_NUMBERS("layers[0].dense_bytes", e.layers[0].dense_bytes, -1);
    REFUSED_NUMBERS("layers[0].elementwise_bytes_per_token", e.layers[0].elementwise_bytes_per_token, -1);
}

static void every_number_of_an_attention_is_checked(void) {
    REFUSED_COUNT("attentions[0].query_heads", e.attentions[0].query_heads);
    REFUSED_COUNT("attentions[1].head_dim", e.attentions[1].head_dim);
    REFUSED(PK_SPEC_VALUE, "attentions[1].window", e.attentions[1].window = -1);
    REFUSED_NUMBERS("attentions[0].cache_bytes_per_token", e.attentions[0].cache_bytes_per_token, -1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].one_mixed_launch", e.attentions[1].one_mixed_launch = 2);
    REFUSED(PK_SPEC_LAW, "attentions[1].decode.law", e.attentions[1].decode.law = 999);
    REFUSED_DURATION("attentions[1].decode.floor_ns", e.attentions[1].decode.floor_ns);
    REFUSED_NUMBERS("attentions[0].decode.bytes_per_second", e.attentions[0].decode.bytes_per_second, 0);
    REFUSED(PK_SPEC_LAW, "attentions[0].prefill.law", e.attentions[0].prefill.law = 0);
    REFUSED_DURATION("attentions[1].prefill.floor_ns", e.attentions[1].prefill.floor_ns);
    REFUSED_NUMBERS("attentions[0].prefill.work_scale", e.attentions[0].prefill.work_scale, 0);
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
    REFUSED_VALUES("collectives[0].launches", e.collectives[0].launches, 0, UINT32_MAX);
    REFUSED_NUMBERS("collectives[0].bytes_per_token", e.collectives[0].bytes_per_token, -1);
    REFUSED(PK_SPEC_LAW, "collective_laws[1].law", e.laws[1].law = 0);
    REFUSED_DURATION("collective_laws[1].floor_ns", e.laws[1].floor_ns);
    REFUSED_NUMBERS("collective_laws[1].transition_bytes_per_second", e.laws[1].transition_bytes_per_second, -1);
    REFUSED_NUMBERS("collective_laws[0].peak_bytes_per_second", e.laws[0].peak_bytes_per_second, 0);
    REFUSED_COUNT("groups[1].width", e.groups[1].width);
    REFUSED_COUNT("groups[1].per_node", e.groups[1].per_node);
    REFUSED_VALUES("groups[1].crosses_nodes", e.groups[1].crosses_nodes, -1, 2);
}

static void arrays_must_be_there_and_of_a_sane_length(void) {
    REFUSED(PK_SPEC_VALUE, "layer_count", e.spec.layer_count = 0);
    REFUSED(PK_NULL_ARGUMENT, "layers", e.spec.layers = NULL);
    REFUSED(PK_NULL_ARGUMENT, "attentions", e.spec.attentions = NULL);
    REFUSED(PK_NULL_ARGUMENT, "experts", e.spec.experts = NULL);
    REFUSED(PK_NULL_ARGUMENT, "collectives", e.spec.collectives = NULL);
    REFUSED(PK_NULL_ARGUMENT, "collective_laws", e.spec.collective_laws = NULL);
    REFUSED(PK_NULL_ARGUMENT, "groups", e.spec.groups = NULL);
    REFUSED(PK_SPEC_LIMIT, "layers", e.spec.layer_count = UINT32_MAX);
    REFUSED(PK_SPEC_LIMIT, "groups", e.spec.group_count = UINT32_MAX);
}

static void reserved_fields_must_be_zero(void) {
    REFUSED(PK_STRUCT_SIZE, "spec", e.spec.struct_size = 0);
    REFUSED(PK_STRUCT_SIZE, "spec", e.spec.struct_size = UINT32_MAX);
    REFUSED(PK_RESERVED, "spec", e.spec.flags = 1);
    REFUSED(PK_SPEC_VALUE, "gemm.reserved", e.spec.gemm.reserved = 1);
    REFUSED(PK_SPEC_VALUE, "layers[0].reserved", e.layers[0].reserved = 1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].reserved", e.attentions[1].reserved = 1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].decode.reserved", e.attentions[1].decode.reserved = 1);
    REFUSED(PK_SPEC_VALUE, "attentions[1].prefill.reserved", e.attentions[1].prefill.reserved = 1);
    REFUSED(PK_SPEC_VALUE, "collective_laws[0].reserved", e.laws[0].reserved = 1);
    REFUSED(PK_SPEC_VALUE, "groups[0].reserved", e.groups[0].reserved = 1);
}

static void more_windows_than_supported_are_refused(void) {
    pk_attention attentions[PK_MAX_WINDOWS + 1];
    example e;
    example_make(&e);
    for (int i = 0; i <= PK_MAX_WINDOWS; i++) {
        attentions[i] = e.attentions[1];
        attentions[i].window = 100 + i;
    }
    e.spec.attentions = attentions;
    e.spec.attention_count = PK_MAX_WINDOWS + 1;
    refuses(&e.spec, PK_SPEC_LIMIT, "attentions", __LINE__);
    e.spec.attention_count = PK_MAX_WINDOWS;
    pk_kernel *kernel = NULL;
    CHECK(pk_kernel_new(&e.spec, &kernel, NULL) == PK_OK);
    pk_kernel_free(kernel);
}

static void running_out_of_memory_is_an_error(void) {
    memory_is_out = 1;
    REFUSED(PK_NO_MEMORY, "kernel", (void)0);
    memory_is_out = 0;
}

static void a_kernel_keeps_nothing_of_its_spec(void) {
    example *e = malloc(sizeof *e);
    pk_kernel *kernel = NULL, *reference = example_kernel();
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

/* ---- batches ------------------------------------------------------------------------------------------------- */

/* A batch of three requests with one thing wrong is refused by both functions, and the estimate stays as it was. */
static void refuses_batch(const pk_kernel *kernel, const pk_batch *batch, pk_status status, const char *field,
                          int line) {
    pk_estimate estimate = {sizeof estimate, 0, 1, 2, {3, 4, 5, 6, 7, 8, 9}, 10, 11}, before = estimate;
    pk_error error = PK_ERROR_INIT;
    int found = (int)pk_step_time(kernel, batch, &estimate, &error);
    int as_stated = found == (int)status && error.status == found && strcmp(error.field, field) == 0;
    if (!as_stated)
        printf("found %s \"%s\" instead of %s\n", pk_status_name(found), error.field, pk_status_name(status));
    check_that(as_stated, field, __FILE__, line);
    check_that(memcmp(&estimate, &before, sizeof before) == 0, "the estimate is untouched", __FILE__, line);
    check_that(pk_batch_check(batch, NULL) == status, "pk_batch_check agrees", __FILE__, line);
}

#define BATCH_REFUSED(status, field, change)                                                                           \
    do {                                                                                                               \
        int64_t scheduled[3] = {1, 500, 1}, computed[3] = {4095, 0, 70}, prompt[3] = {9, 9, 9}, cached[3] = {0, 8, 0}; \
        pk_batch batch = PK_BATCH_INIT;                                                                                \
        batch.count = 3;                                                                                               \
        batch.scheduled = scheduled;                                                                                   \
        batch.computed = computed;                                                                                     \
        batch.prompt_len = prompt;                                                                                     \
        batch.cached_tokens = cached;                                                                                  \
        change;                                                                                                        \
        refuses_batch(kernel, &batch, status, field, __LINE__);                                                        \
    } while (0)

static void every_number_of_a_batch_is_checked(const pk_kernel *kernel) {
    BATCH_REFUSED(PK_STRUCT_SIZE, "batch", batch.struct_size = 4);
    BATCH_REFUSED(PK_RESERVED, "batch", batch.flags = 1);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.count", batch.count = -1);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.count", batch.count = INT64_MAX);
    BATCH_REFUSED(PK_NULL_ARGUMENT, "batch.scheduled", batch.scheduled = NULL);
    BATCH_REFUSED(PK_NULL_ARGUMENT, "batch.computed", batch.computed = NULL);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.scheduled[0]", scheduled[0] = -1);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.scheduled[2]", scheduled[2] = PK_MAX_REQUEST_TOKENS + 1LL);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.scheduled[1]", scheduled[1] = INT64_MIN);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.computed[1]", computed[1] = INT64_MAX);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.computed[1]", computed[1] = -1);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.computed[0]", computed[0] = PK_MAX_REQUEST_TOKENS);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.prompt_len[1]", prompt[1] = -1);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.cached_tokens[2]", cached[2] = -1);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.decode_threshold", batch.decode_threshold = -1);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.pad_tokens", batch.pad_tokens = -1);
    BATCH_REFUSED(PK_BATCH_VALUE, "batch.pad_tokens", batch.pad_tokens = INT64_MAX);
    BATCH_REFUSED(PK_BATCH_LIMIT, "batch", batch.pad_tokens = PK_MAX_BATCH_TOKENS - 501);
    BATCH_REFUSED(PK_BATCH_LIMIT, "batch", scheduled[0] = scheduled[1] = PK_MAX_REQUEST_TOKENS; computed[0] = 0);
}

static void missing_arguments_are_errors(const pk_kernel *kernel) {
    pk_batch batch = PK_BATCH_INIT;
    pk_estimate estimate = PK_ESTIMATE_INIT;
    pk_error error = PK_ERROR_INIT;
    example e;
    example_make(&e);
    CHECK(pk_kernel_new(NULL, NULL, &error) == PK_NULL_ARGUMENT && strcmp(error.field, "spec") == 0);
    CHECK(pk_kernel_new(&e.spec, NULL, &error) == PK_NULL_ARGUMENT && strcmp(error.field, "kernel") == 0);
    CHECK(pk_step_time(NULL, &batch, &estimate, &error) == PK_NULL_ARGUMENT && strcmp(error.field, "kernel") == 0);
    CHECK(pk_step_time(kernel, NULL, &estimate, &error) == PK_NULL_ARGUMENT && strcmp(error.field, "batch") == 0);
    CHECK(pk_step_time(kernel, &batch, NULL, &error) == PK_NULL_ARGUMENT && strcmp(error.field, "estimate") == 0);
    CHECK(pk_step_time(NULL, NULL, NULL, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_batch_check(NULL, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_kernel_size(NULL) == 0);
    estimate.struct_size = 1;
    CHECK(pk_step_time(kernel, &batch, &estimate, &error) == PK_STRUCT_SIZE && strcmp(error.field, "estimate") == 0);
}

static void an_error_struct_of_unknown_size_is_left_alone(void) {
    pk_error error = PK_ERROR_INIT;
    error.struct_size = 8;
    CHECK(pk_batch_check(NULL, &error) == PK_NULL_ARGUMENT);
    CHECK(error.status == 0 && error.field[0] == '\0' && error.message[0] == '\0');
}

static void an_empty_batch_costs_host_time_only(const pk_kernel *kernel) {
    pk_batch batch = PK_BATCH_INIT;
    pk_estimate estimate = PK_ESTIMATE_INIT;
    CHECK(pk_step_time(kernel, &batch, &estimate, NULL) == PK_OK);
    CHECK(estimate.bottleneck == PK_HOST && estimate.overlap_ns == estimate.per_resource_ns[PK_HOST]);
    CHECK(estimate.no_overlap_ns == estimate.overlap_ns);
}

static void the_largest_batch_is_priced_without_overflow(const pk_kernel *kernel) {
    int64_t scheduled[2] = {PK_MAX_REQUEST_TOKENS, PK_MAX_REQUEST_TOKENS - 1}, computed[2] = {0, 1};
    pk_batch batch = PK_BATCH_INIT;
    batch.count = 2;
    batch.scheduled = scheduled;
    batch.computed = computed;
    pk_estimate estimate = PK_ESTIMATE_INIT;
    CHECK(pk_step_time(kernel, &batch, &estimate, NULL) == PK_OK);
    CHECK(estimate.overlap_ns > 0 && estimate.overlap_ns <= estimate.no_overlap_ns);
    for (int i = 0; i < PK_RESOURCE_COUNT; i++) CHECK(estimate.per_resource_ns[i] >= 0);
}

/* ---- purity -------------------------------------------------------------------------------------------------- */

static pk_estimate priced(const pk_kernel *kernel, uint32_t seed) {
    example_batch b;
    example_batch_make(&b, seed);
    pk_estimate estimate = PK_ESTIMATE_INIT;
    CHECK(pk_step_time(kernel, &b.batch, &estimate, NULL) == PK_OK);
    return estimate;
}

static int same(pk_estimate a, pk_estimate b) { return memcmp(&a, &b, sizeof a) == 0; }

static void bounds_hold_for_any_batch(const pk_kernel *kernel) {
    for (uint32_t seed = 0; seed < 2000; seed++) {
        pk_estimate estimate = priced(kernel, seed);
        int64_t sum = 0;
        int32_t largest = 0;
        for (int i = 0; i < PK_RESOURCE_COUNT; i++) {
            sum += estimate.per_resource_ns[i];
            if (estimate.per_resource_ns[i] > estimate.per_resource_ns[largest]) largest = i;
        }
        CHECK(estimate.no_overlap_ns == sum);
        CHECK(0 < estimate.overlap_ns && estimate.overlap_ns <= estimate.no_overlap_ns);
        CHECK(estimate.bottleneck == largest);
    }
}

static void pricing_changes_neither_kernel_nor_batch(const pk_kernel *kernel) {
    size_t size = pk_kernel_size(kernel);
    void *before = malloc(size);
    memcpy(before, kernel, size);
    for (uint32_t seed = 0; seed < 200; seed++) {
        example_batch b, copy;
        memset(&b, 0, sizeof b);
        example_batch_make(&b, seed);
        memcpy(&copy, &b, sizeof b);
        pk_estimate first = PK_ESTIMATE_INIT, again = PK_ESTIMATE_INIT;
        CHECK(pk_step_time(kernel, &b.batch, &first, NULL) == PK_OK);
        (void)priced(kernel, seed + 1);
        CHECK(pk_step_time(kernel, &b.batch, &again, NULL) == PK_OK);
        CHECK(same(first, again) && memcmp(&b, &copy, sizeof b) == 0);
    }
    CHECK(memcmp(before, kernel, size) == 0);
    free(before);
}

static void the_order_of_requests_plays_no_part(const pk_kernel *kernel) {
    for (uint32_t seed = 0; seed < 200; seed++) {
        example_batch b;
        example_batch_make(&b, seed);
        for (int64_t i = 0, j = b.batch.count - 1; i < j; i++, j--) {
            int64_t scheduled = b.scheduled[i], computed = b.computed[i];
            b.scheduled[i] = b.scheduled[j], b.computed[i] = b.computed[j];
            b.scheduled[j] = scheduled, b.computed[j] = computed;
        }
        pk_estimate reversed = PK_ESTIMATE_INIT;
        CHECK(pk_step_time(kernel, &b.batch, &reversed, NULL) == PK_OK);
        CHECK(same(reversed, priced(kernel, seed)));
    }
}

static void old_contents_of_an_estimate_play_no_part(const pk_kernel *kernel) {
    example_batch b;
    example_batch_make(&b, 5);
    pk_estimate dirty;
    memset(&dirty, 0xa5, sizeof dirty);
    dirty.struct_size = sizeof dirty;
    dirty.flags = 0;
    CHECK(pk_step_time(kernel, &b.batch, &dirty, NULL) == PK_OK);
    CHECK(same(dirty, priced(kernel, 5)));
}

enum { THREADS = 4, SHARED_BATCHES = 200 };
static pk_estimate in_thread[THREADS][SHARED_BATCHES];

typedef struct share {
    const pk_kernel *kernel;
    const example_batch *batches;
    pk_estimate *estimates;
} share;

static void *price_share(void *argument) {
    const share *mine = argument;
    for (int i = 0; i < SHARED_BATCHES; i++) {
        mine->estimates[i] = (pk_estimate)PK_ESTIMATE_INIT;
        (void)pk_step_time(mine->kernel, &mine->batches[i].batch, &mine->estimates[i], NULL);
    }
    return NULL;
}

static void threads_share_a_kernel_and_batches(const pk_kernel *kernel) {
    example_batch *batches = calloc(SHARED_BATCHES, sizeof *batches);
    for (uint32_t seed = 0; seed < SHARED_BATCHES; seed++) example_batch_make(&batches[seed], seed);
    pthread_t threads[THREADS];
    share shares[THREADS];
    for (int t = 0; t < THREADS; t++) {
        shares[t] = (share){kernel, batches, in_thread[t]};
        CHECK(pthread_create(&threads[t], NULL, price_share, &shares[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
    for (uint32_t seed = 0; seed < SHARED_BATCHES; seed++)
        for (int t = 0; t < THREADS; t++) CHECK(same(in_thread[t][seed], priced(kernel, seed)));
    free(batches);
}

/* ---- small functions ----------------------------------------------------------------------------------------- */

static void every_status_has_a_name_and_a_sentence(void) {
#define NAMED(name, value, text)                                                                                       \
    CHECK(PK_##name == value && strcmp(pk_status_name(value), #name) == 0 && strcmp(pk_status_text(value), text) == 0);
    PK_STATUS_MAP(NAMED)
#undef NAMED
    CHECK(strcmp(pk_status_name(-1), "UNKNOWN") == 0 && pk_status_text(-1)[0] != '\0');
}

static void seconds_become_nanoseconds_by_truncation(void) {
    CHECK(pk_nanoseconds(1.9999e-9) == 1);
    CHECK(pk_nanoseconds(972 * 3.2e-6) == 3110399); /* the product lies just below 3,110,400 ns */
    CHECK(pk_nanoseconds(-1) == 0 && pk_nanoseconds(NAN) == 0 && pk_nanoseconds(-INFINITY) == 0);
    CHECK(pk_nanoseconds(1e300) == INT64_MAX && pk_nanoseconds(INFINITY) == INT64_MAX);
    CHECK(pk_nanoseconds(9e9) == 9000000000000000000);
}

/* Query by query, as the header describes it: the prefix and half of the chunk up to the query, or a full window. */
static int64_t pairs4_one_by_one(int64_t scheduled, int64_t computed, int64_t window) {
    int64_t pairs4 = 0;
    for (int64_t query = 0; query < scheduled; query++) {
        int64_t seen4 = 4 * (computed + query) + 2;
        pairs4 += window > 0 && seen4 > 4 * window ? 4 * window : seen4;
    }
    return pairs4;
}

static void prefill_pairs_are_the_sum_over_queries(void) {
    for (int64_t scheduled = 0; scheduled < 12; scheduled++)
        for (int64_t computed = 0; computed < 12; computed++)
            for (int64_t window = 0; window < 26; window++)
                CHECK(pk_prefill_pairs4(scheduled, computed, window) == pairs4_one_by_one(scheduled, computed, window));
}

static void experts_touched_follow_the_expectation(void) {
    CHECK(pk_experts_touched(0, 128, 8, 16) == 0);
    CHECK(pk_experts_touched(1, 128, 8, 16) == 1);
    CHECK(pk_experts_touched(5, 8, 8, 2) == 2);
    CHECK(fabs(pk_experts_touched(37, 128, 8, 16) - 16 * (1 - pow(120.0 / 128, 37))) < 1e-12);
    CHECK(pk_experts_touched(INT64_MAX, 128, 8, 16) == 16);
}

static void spans_cost_by_the_hops_that_cross(void) {
    pk_group inside = {.width = 8, .per_node = 8}, outside = {.width = 16, .per_node = 8, .crosses_nodes = 1};
    pk_group ragged = {.width = 12, .per_node = 8, .crosses_nodes = 1};
    CHECK(pk_span_factor(&inside, PK_SPAN_RING, 9) == 1 && pk_span_factor(&outside, PK_SPAN_RING, 0.5) == 1);
    CHECK(fabs(pk_span_factor(&outside, PK_SPAN_RING, 9) - (1 + 8.0 / 15)) < 1e-12);
    CHECK(fabs(pk_span_factor(&outside, PK_SPAN_ALL_TO_ALL, 9) - (1 + 8 * 8.0 / 15)) < 1e-12);
    CHECK(pk_span_factor(&ragged, PK_SPAN_RING, 9) == 9);
}

int main(void) {
    every_number_of_the_part_is_checked();
    every_number_of_the_host_is_checked();
    every_number_of_the_head_is_checked();
    every_number_of_a_layer_is_checked();
    every_number_of_an_attention_is_checked();
    every_number_of_the_experts_is_checked();
    every_number_of_a_collective_is_checked();
    arrays_must_be_there_and_of_a_sane_length();
    reserved_fields_must_be_zero();
    more_windows_than_supported_are_refused();
    running_out_of_memory_is_an_error();
    a_kernel_keeps_nothing_of_its_spec();

    pk_kernel *kernel = example_kernel();
    every_number_of_a_batch_is_checked(kernel);
    missing_arguments_are_errors(kernel);
    an_error_struct_of_unknown_size_is_left_alone();
    an_empty_batch_costs_host_time_only(kernel);
    the_largest_batch_is_priced_without_overflow(kernel);
    bounds_hold_for_any_batch(kernel);
    pricing_changes_neither_kernel_nor_batch(kernel);
    the_order_of_requests_plays_no_part(kernel);
    old_contents_of_an_estimate_play_no_part(kernel);
    threads_share_a_kernel_and_batches(kernel);
    pk_kernel_free(kernel);

    every_status_has_a_name_and_a_sentence();
    seconds_become_nanoseconds_by_truncation();
    prefill_pairs_are_the_sum_over_queries();
    experts_touched_follow_the_expectation();
    spans_cost_by_the_hops_that_cross();
    CHECK(pk_arithmetic_is_exact() == 1);
    CHECK(pk_version() == PK_VERSION);
    return check_report();
}
