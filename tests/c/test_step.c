/* Pricing: a bad batch is refused and named, and a good one has one price, whatever happened before or beside it. */
#include "check.h"
#include "example.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* What no price reads is only looked at by the check. */
static void refuses_to_pass(const pk_kernel *kernel, const pk_batch *batch, pk_status status, const char *field,
                            int line) {
    pk_estimate estimate = PK_ESTIMATE_INIT;
    pk_error error = PK_ERROR_INIT;
    int as_stated = pk_batch_check(batch, &error) == status && strcmp(error.field, field) == 0;
    check_that(as_stated, field, __FILE__, line);
    check_that(pk_step_time(kernel, batch, &estimate, NULL) == PK_OK, "it is priced", __FILE__, line);
}

#define BATCH_REFUSED(status, field, change) BATCH_IS(refuses_batch, status, field, change)
#define BATCH_IS(refused, status, field, change)                                                                           \
    do {                                                                                                               \
        int64_t scheduled[3] = {1, 500, 1}, computed[3] = {4095, 0, 70}, prompt[3] = {9, 9, 9}, cached[3] = {0, 8, 0}; \
        pk_batch batch = PK_BATCH_INIT;                                                                                \
        batch.count = 3;                                                                                               \
        batch.scheduled = scheduled;                                                                                   \
        batch.computed = computed;                                                                                     \
        batch.prompt_len = prompt;                                                                                     \
        batch.cached_tokens = cached;                                                                                  \
        change;                                                                                                        \
        refused(kernel, &batch, status, field, __LINE__);                                                              \
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
    BATCH_IS(refuses_to_pass, PK_BATCH_VALUE, "batch.prompt_len[1]", prompt[1] = -1);
    BATCH_IS(refuses_to_pass, PK_BATCH_VALUE, "batch.cached_tokens[2]", cached[2] = -1);
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

static void is_priced_without_overflow(const pk_kernel *kernel, const pk_batch *batch) {
    pk_estimate estimate = PK_ESTIMATE_INIT;
    CHECK(pk_step_time(kernel, batch, &estimate, NULL) == PK_OK);
    CHECK(0 < estimate.overlap_ns && estimate.overlap_ns <= estimate.no_overlap_ns);
    for (int i = 0; i < PK_RESOURCE_COUNT; i++) CHECK(estimate.per_resource_ns[i] >= 0);
}

static void the_longest_prefills_fit(const pk_kernel *kernel) {
    int64_t scheduled[2] = {PK_MAX_BATCH_TOKENS / 2, PK_MAX_BATCH_TOKENS - PK_MAX_BATCH_TOKENS / 2};
    int64_t computed[2] = {PK_MAX_REQUEST_TOKENS - scheduled[0], PK_MAX_REQUEST_TOKENS - scheduled[1]};
    pk_batch batch = PK_BATCH_INIT;
    batch.count = 2;
    batch.scheduled = scheduled;
    batch.computed = computed;
    is_priced_without_overflow(kernel, &batch);
    scheduled[0] = PK_MAX_REQUEST_TOKENS;
    computed[0] = 0;
    batch.count = 1;
    is_priced_without_overflow(kernel, &batch);
}

static void the_most_and_longest_decodes_fit(const pk_kernel *kernel) {
    int64_t *scheduled = malloc(PK_MAX_REQUESTS * sizeof *scheduled);
    int64_t *computed = malloc(PK_MAX_REQUESTS * sizeof *computed);
    for (int64_t i = 0; i < PK_MAX_REQUESTS; i++) scheduled[i] = 1, computed[i] = PK_MAX_REQUEST_TOKENS - 1;
    pk_batch batch = PK_BATCH_INIT;
    batch.count = PK_MAX_REQUESTS;
    batch.scheduled = scheduled;
    batch.computed = computed;
    is_priced_without_overflow(kernel, &batch);
    free(scheduled);
    free(computed);
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

void test_step(void) {
    pk_kernel *kernel = check_example_kernel();
    every_number_of_a_batch_is_checked(kernel);
    missing_arguments_are_errors(kernel);
    an_error_struct_of_unknown_size_is_left_alone();
    an_empty_batch_costs_host_time_only(kernel);
    the_longest_prefills_fit(kernel);
    the_most_and_longest_decodes_fit(kernel);
    bounds_hold_for_any_batch(kernel);
    pricing_changes_neither_kernel_nor_batch(kernel);
    the_order_of_requests_plays_no_part(kernel);
    old_contents_of_an_estimate_play_no_part(kernel);
    threads_share_a_kernel_and_batches(kernel);
    pk_kernel_free(kernel);
}
