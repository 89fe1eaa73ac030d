/* Running batches and arrays of batches: the same bits as pricing each step from scratch, over random histories. */
#include "check.h"
#include "example.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 200, THRESHOLD = 3 };

/* The requests that a state should hold, kept the plain way. */
typedef struct mirror {
    int64_t scheduled[ROOM], computed[ROOM], id[ROOM];
    int64_t count, sm_budget, pad_tokens;
} mirror;

static pk_batch batch_of(const mirror *m) {
    pk_batch batch = PK_BATCH_INIT;
    batch.count = m->count;
    batch.scheduled = m->scheduled;
    batch.computed = m->computed;
    batch.decode_threshold = THRESHOLD;
    batch.sm_budget = m->sm_budget;
    batch.pad_tokens = m->pad_tokens;
    return batch;
}

static int64_t some_scheduled(uint32_t *random, uint32_t flavour) {
    uint32_t roll = example_random(random) % 20;
    if (flavour == 0 || roll < 14) return 1;
    if (roll < 17) return example_random(random) % (THRESHOLD + 1);
    return flavour == 1 ? THRESHOLD : example_random(random) % 3000;
}

static int64_t some_computed(uint32_t *random) {
    return example_random(random) % 5 == 0 ? 0 : example_random(random) % (1u << (example_random(random) % 17));
}

/* One thing that happens to a running batch, to both. */
static void happen(pk_batch_state *state, mirror *m, uint32_t *random, uint32_t flavour) {
    uint32_t what = example_random(random) % 10;
    int64_t at = m->count > 0 ? example_random(random) % m->count : -1;
    int64_t scheduled = some_scheduled(random, flavour), computed = some_computed(random);
    if (what < 3 && m->count < ROOM) {
        at = m->count++;
        m->scheduled[at] = scheduled, m->computed[at] = computed;
        CHECK(pk_batch_state_add(state, scheduled, computed, &m->id[at], NULL) == PK_OK);
    } else if (what < 5 && at >= 0) {
        m->scheduled[at] = scheduled, m->computed[at] = computed;
        CHECK(pk_batch_state_set(state, m->id[at], scheduled, computed, NULL) == PK_OK);
    } else if (what < 6 && at >= 0) {
        CHECK(pk_batch_state_remove(state, m->id[at], NULL) == PK_OK);
        int64_t last = --m->count;
        m->scheduled[at] = m->scheduled[last], m->computed[at] = m->computed[last], m->id[at] = m->id[last];
    } else if (what < 9) {
        int64_t steps = example_random(random) % 3;
        CHECK(pk_batch_state_advance(state, steps, NULL) == PK_OK);
        for (int64_t i = 0; i < m->count; i++) m->computed[i] += steps * m->scheduled[i];
    } else {
        m->sm_budget = example_random(random) % 150, m->pad_tokens = example_random(random) % 3 * 7;
        CHECK(pk_batch_state_settings(state, m->sm_budget, m->pad_tokens, NULL) == PK_OK);
    }
}

static int64_t sum(const int64_t *values, int64_t count) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += values[i];
    return total;
}

static void holds_the_same(pk_batch_state *state, const mirror *m) {
    for (int64_t i = 0; i < m->count; i++) {
        int64_t scheduled = -1, computed = -1;
        CHECK(pk_batch_state_get(state, m->id[i], &scheduled, &computed, NULL) == PK_OK);
        CHECK(scheduled == m->scheduled[i] && computed == m->computed[i]);
    }
    pk_batch seen = PK_BATCH_INIT;
    CHECK(pk_batch_state_view(state, &seen, NULL) == PK_OK && seen.count == m->count);
    CHECK(sum(seen.scheduled, seen.count) == sum(m->scheduled, m->count));
    CHECK(sum(seen.computed, seen.count) == sum(m->computed, m->count));
    CHECK(seen.sm_budget == m->sm_budget && seen.pad_tokens == m->pad_tokens);
}

static void random_walks_price_as_from_scratch(const pk_kernel *kernel, uint32_t flavour, uint32_t seed) {
    pk_batch_state *state = NULL;
    CHECK(pk_batch_state_new(THRESHOLD, &state, NULL) == PK_OK);
    mirror m = {0};
    uint32_t random = seed;
    for (int step = 0; step < 400; step++) {
        happen(state, &m, &random, flavour);
        pk_batch batch = batch_of(&m);
        pk_estimate running = PK_ESTIMATE_INIT, scratch = PK_ESTIMATE_INIT;
        CHECK(pk_batch_state_step_time(kernel, state, &running, NULL) == PK_OK);
        CHECK(pk_step_time(kernel, &batch, &scratch, NULL) == PK_OK);
        CHECK(memcmp(&running, &scratch, sizeof running) == 0);
        if (step % 50 == 0) holds_the_same(state, &m);
    }
    pk_batch_state_free(state);
}

static void an_array_prices_as_one_by_one(const pk_kernel *kernel, uint32_t seed) {
    enum { BATCHES = 9, TOTAL = BATCHES * EXAMPLE_REQUESTS };
    static int64_t scheduled[TOTAL], computed[TOTAL];
    int64_t offsets[BATCHES + 1] = {0};
    pk_estimate one[BATCHES];
    for (uint32_t i = 0; i < BATCHES; i++) {
        example_batch b;
        example_batch_make(&b, seed + i);
        b.batch.sm_budget = 66, b.batch.pad_tokens = 5;
        for (int64_t r = 0; r < b.batch.count; r++) {
            scheduled[offsets[i] + r] = b.scheduled[r];
            computed[offsets[i] + r] = b.computed[r];
        }
        offsets[i + 1] = offsets[i] + b.batch.count;
        one[i] = (pk_estimate)PK_ESTIMATE_INIT;
        CHECK(pk_step_time(kernel, &b.batch, &one[i], NULL) == PK_OK);
    }
    pk_batches batches = {sizeof batches, 0, BATCHES, offsets, scheduled, computed, 1, 66, 5};
    int64_t overlap[BATCHES], no_overlap[BATCHES], resources[BATCHES][PK_RESOURCE_COUNT];
    int8_t bottleneck[BATCHES];
    pk_estimates out = {sizeof out, 0, overlap, no_overlap, resources[0], bottleneck};
    CHECK(pk_step_time_many(kernel, &batches, &out, NULL) == PK_OK);
    for (int i = 0; i < BATCHES; i++) {
        CHECK(overlap[i] == one[i].overlap_ns && no_overlap[i] == one[i].no_overlap_ns);
        CHECK(bottleneck[i] == one[i].bottleneck);
        CHECK(memcmp(resources[i], one[i].per_resource_ns, sizeof resources[i]) == 0);
    }
    pk_estimates nothing = PK_ESTIMATES_INIT;
    CHECK(pk_step_time_many(kernel, &batches, &nothing, NULL) == PK_OK);
}

static void a_bad_array_is_refused_and_writes_nothing(const pk_kernel *kernel) {
    int64_t offsets[4] = {0, 1, 1, 3}, scheduled[3] = {1, 1, 1}, computed[3] = {5, 6, 7};
    int64_t overlap[3] = {-1, -2, -3};
    pk_batches batches = {sizeof batches, 0, 3, offsets, scheduled, computed, 1, 0, 0};
    pk_estimates out = PK_ESTIMATES_INIT;
    pk_error error = PK_ERROR_INIT;
    out.overlap_ns = overlap;
#define REFUSED(wanted, place)                                                                                         \
    CHECK(pk_step_time_many(kernel, &batches, &out, &error) == (wanted) && strcmp(error.field, place) == 0);           \
    CHECK(overlap[0] == -1 && overlap[1] == -2 && overlap[2] == -3)
    scheduled[2] = -1;
    REFUSED(PK_BATCH_VALUE, "batches[2].scheduled[1]");
    scheduled[2] = 1, offsets[1] = 2;
    REFUSED(PK_ARGUMENT, "batches.offsets[2]");
    offsets[1] = 1, offsets[0] = -1;
    REFUSED(PK_ARGUMENT, "batches.offsets[0]");
    offsets[0] = 0, batches.pad_tokens = -1;
    REFUSED(PK_BATCH_VALUE, "batches[0].pad_tokens");
    batches.pad_tokens = 0, batches.computed = NULL;
    REFUSED(PK_NULL_ARGUMENT, "batches[0].computed");
    batches.computed = computed, batches.count = -1;
    REFUSED(PK_ARGUMENT, "batches.count");
    batches.count = 3, batches.offsets = NULL;
    REFUSED(PK_NULL_ARGUMENT, "batches.offsets");
    batches.offsets = offsets, batches.struct_size = 1;
    REFUSED(PK_STRUCT_SIZE, "batches");
#undef REFUSED
    batches.struct_size = sizeof batches, batches.count = 0;
    CHECK(pk_step_time_many(kernel, &batches, &out, NULL) == PK_OK && overlap[0] == -1);
    CHECK(pk_step_time_many(NULL, &batches, &out, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_step_time_many(kernel, NULL, &out, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_step_time_many(kernel, &batches, NULL, NULL) == PK_NULL_ARGUMENT);
}

/* Together too large for one step, each small enough. */
static void batches_of_an_array_are_limited_one_by_one(const pk_kernel *kernel) {
    int64_t offsets[3] = {0, 1, 2}, overlap[2];
    int64_t scheduled[2] = {PK_MAX_BATCH_TOKENS, PK_MAX_BATCH_TOKENS - 1}, computed[2] = {0, 1};
    pk_batches batches = {sizeof batches, 0, 2, offsets, scheduled, computed, 1, 0, 0};
    pk_estimates out = PK_ESTIMATES_INIT;
    out.overlap_ns = overlap;
    CHECK(pk_step_time_many(kernel, &batches, &out, NULL) == PK_OK && overlap[0] > 0 && overlap[1] > 0);
    computed[1] = 2;
    CHECK(pk_step_time_many(kernel, &batches, &out, NULL) == PK_BATCH_VALUE);
}

static void a_state_refuses_what_a_batch_would(const pk_kernel *kernel) {
    pk_batch_state *state = NULL;
    pk_estimate estimate = PK_ESTIMATE_INIT;
    pk_error error = PK_ERROR_INIT;
    int64_t id = -7, other = -7, computed = -7;
    CHECK(pk_batch_state_new(-1, &state, NULL) == PK_ARGUMENT && state == NULL);
    CHECK(pk_batch_state_new(1, NULL, NULL) == PK_NULL_ARGUMENT);
    check_memory_is_out = 1;
    CHECK(pk_batch_state_new(1, &state, NULL) == PK_NO_MEMORY && state == NULL);
    check_memory_is_out = 0;
    CHECK(pk_batch_state_new(1, &state, NULL) == PK_OK);
    check_memory_is_out = 1;
    CHECK(pk_batch_state_add(state, 1, 1, &id, NULL) == PK_NO_MEMORY && id == -7);
    check_memory_is_out = 0;
    CHECK(pk_batch_state_add(state, -1, 1, &id, &error) == PK_BATCH_VALUE && strcmp(error.field, "scheduled") == 0);
    CHECK(pk_batch_state_add(state, 1, -1, &id, &error) == PK_BATCH_VALUE && strcmp(error.field, "computed") == 0);
    CHECK(pk_batch_state_add(state, 1, PK_MAX_REQUEST_TOKENS, &id, NULL) == PK_BATCH_VALUE && id == -7);
    CHECK(pk_batch_state_add(state, 1, PK_MAX_REQUEST_TOKENS - 3, &id, NULL) == PK_OK);
    CHECK(pk_batch_state_add(state, PK_MAX_REQUEST_TOKENS, 0, &other, NULL) == PK_BATCH_LIMIT);
    CHECK(pk_batch_state_set(state, id, PK_MAX_REQUEST_TOKENS, 0, NULL) == PK_OK); /* instead of the one token */
    CHECK(pk_batch_state_set(state, id, 1, PK_MAX_REQUEST_TOKENS - 3, NULL) == PK_OK);
    CHECK(pk_batch_state_advance(state, 2, NULL) == PK_OK);
    CHECK(pk_batch_state_advance(state, 1, &error) == PK_BATCH_VALUE && strcmp(error.field, "steps") == 0);
    CHECK(pk_batch_state_advance(state, INT64_MAX, NULL) == PK_BATCH_VALUE);
    CHECK(pk_batch_state_advance(state, -1, NULL) == PK_ARGUMENT);
    CHECK(pk_batch_state_get(state, id, NULL, &computed, NULL) == PK_OK && computed == PK_MAX_REQUEST_TOKENS - 1);
    CHECK(pk_batch_state_settings(state, 0, -1, NULL) == PK_ARGUMENT);
    CHECK(pk_batch_state_settings(state, 0, PK_MAX_BATCH_TOKENS, NULL) == PK_OK);
    CHECK(pk_batch_state_step_time(kernel, state, &estimate, NULL) == PK_BATCH_LIMIT && estimate.overlap_ns == 0);
    CHECK(pk_batch_state_settings(state, 0, 0, NULL) == PK_OK);
    CHECK(pk_batch_state_step_time(NULL, state, &estimate, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_batch_state_step_time(kernel, NULL, &estimate, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_batch_state_step_time(kernel, state, NULL, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_batch_state_remove(state, id, NULL) == PK_OK);
    CHECK(pk_batch_state_remove(state, id, &error) == PK_ARGUMENT && strcmp(error.field, "id") == 0);
    CHECK(pk_batch_state_advance(state, INT64_MAX, NULL) == PK_OK); /* nobody is there to grow */
    CHECK(pk_batch_state_add(state, 0, 0, &other, NULL) == PK_OK && other == id);
    pk_batch_state_free(state);
    pk_batch_state_free(NULL);
}

/* Requests that live on while others of many tokens come and go, for longer than any of them could. */
static void a_state_grows_old(const pk_kernel *kernel) {
    pk_batch_state *state = NULL;
    pk_estimate estimate = PK_ESTIMATE_INIT;
    int64_t idle = 0, id = 0, computed = 0;
    CHECK(pk_batch_state_new(1, &state, NULL) == PK_OK);
    CHECK(pk_batch_state_add(state, 0, 77, &idle, NULL) == PK_OK);
    for (int i = 0; i < 40; i++) {
        int64_t steps = PK_MAX_REQUEST_TOKENS / (i + 1) - 2;
        CHECK(pk_batch_state_add(state, i + 1, 1, &id, NULL) == PK_OK);
        CHECK(pk_batch_state_advance(state, steps, NULL) == PK_OK);
        CHECK(pk_batch_state_get(state, id, NULL, &computed, NULL) == PK_OK && computed == 1 + steps * (i + 1));
        CHECK(pk_batch_state_step_time(kernel, state, &estimate, NULL) == PK_OK);
        CHECK(pk_batch_state_remove(state, id, NULL) == PK_OK);
    }
    CHECK(pk_batch_state_get(state, idle, NULL, &computed, NULL) == PK_OK && computed == 77);
    pk_batch_state_free(state);
}

/* Kernels that need less and less of each request: everything, no context parallelism, sums alone. */
static pk_kernel *variant(int which) {
    example e;
    example_make(&e);
    if (which >= 1) e.spec.prefill_context_parallel = e.spec.decode_context_parallel = 1;
    if (which >= 2) {
        for (int i = 1; i < 3; i++) e.attentions[i] = e.attentions[0];
        e.collectives[5].units = PK_UNITS_TOKENS;
        e.spec.host.uniform_width = which;
    }
    pk_kernel *kernel = NULL;
    CHECK(pk_kernel_new(&e.spec, &kernel, NULL) == PK_OK);
    return kernel;
}

void test_batch_state(void) {
    for (int which = 0; which < 4; which++) {
        pk_kernel *kernel = variant(which);
        for (uint32_t flavour = 0; flavour < 3; flavour++)
            for (uint32_t seed = 0; seed < 12; seed++) random_walks_price_as_from_scratch(kernel, flavour, seed);
        for (uint32_t seed = 0; seed < 60; seed++) an_array_prices_as_one_by_one(kernel, seed);
        pk_kernel_free(kernel);
    }
    pk_kernel *kernel = check_example_kernel();
    a_bad_array_is_refused_and_writes_nothing(kernel);
    batches_of_an_array_are_limited_one_by_one(kernel);
    a_state_refuses_what_a_batch_would(kernel);
    a_state_grows_old(kernel);
    pk_kernel_free(kernel);
}
