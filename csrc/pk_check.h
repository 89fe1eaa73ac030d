/*
 * The laws that every cost model keeps, for authors in C and C++: hand pk_check_model a pk_model, and it calls back for
 * each violation with the law's id and the case. docs/embed.md lists the laws.
 *
 *     static void report(void *context, const char *law, const char *statement, const char *found) {
 *         fprintf(stderr, "%s: %s: %s\n", law, statement, found);
 *     }
 *     return pk_check_model(&model, NULL, report, NULL) == 0 ? 0 : 1;
 *
 * It takes no model at its word: steps, fixed bytes and handoffs are asked for twice, and the results of a refused call
 * must be untouched. Calls from several threads are not made here; run your tests under ThreadSanitizer for those.
 * Everything is static inline, so the header needs the C library, and the library of pykernel.h for pk_model_*.
 */
#ifndef PK_CHECK_H
#define PK_CHECK_H

#include "pykernel.h"

#include <stdio.h>  /* snprintf */
#include <string.h> /* memcmp */

/* `found` names the case and the values. */
typedef void (*pk_check_report)(void *context, const char *law, const char *statement, const char *found);

/* What a checker cannot find out for itself; NULL for the defaults. */
typedef struct pk_check_options {
    const char *const *tiers;  /* names of storage tiers that the model prices, ended by NULL; NULL = none */
    int64_t tokens_of_a_block; /* of the KV cache; 0 = 16 */
    int64_t largest_batch;     /* tokens of the widest step tried; 0 = 8192 */
    int64_t sm_count;          /* SMs of the part; 0 = unknown, SM budgets are then tried at 1, 64 and 128 */
} pk_check_options;

enum { PK_CHECK_MOST = 1024 }; /* requests of a batch tried here */

typedef struct pk_check_state {
    const pk_model *model;
    pk_check_options options;
    pk_check_report report;
    void *context;
    int64_t violations;
    char what[160]; /* the case at hand */
    int64_t scheduled[PK_CHECK_MOST], computed[PK_CHECK_MOST], prompt_len[PK_CHECK_MOST], cached[PK_CHECK_MOST];
    pk_batch batch;
} pk_check_state;

static inline void pk_check_that(pk_check_state *state, int holds, const char *law, const char *statement, int64_t a,
                                 int64_t b) {
    if (holds) return;
    char found[256];
    (void)snprintf(found, sizeof found, "%s: %lld and %lld", state->what, (long long)a, (long long)b);
    state->violations++;
    if (state->report != NULL) state->report(state->context, law, statement, found);
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

/* Starts a batch without requests, as the model wants its decodes told from prefills. */
static inline void pk_check_clear(pk_check_state *state) {
    pk_batch empty = PK_BATCH_INIT;
    state->batch = empty;
    state->batch.scheduled = state->scheduled;
    state->batch.computed = state->computed;
    state->batch.prompt_len = state->prompt_len;
    state->batch.cached_tokens = state->cached;
    state->batch.decode_threshold = 8;
}

static inline void pk_check_add(pk_check_state *state, int64_t count, int64_t scheduled, int64_t context) {
    for (; count > 0 && state->batch.count < PK_CHECK_MOST; count--) {
        int64_t i = state->batch.count++;
        state->scheduled[i] = scheduled;
        state->computed[i] = context - scheduled;
        state->prompt_len[i] = context > 0 ? context : 1;
        state->cached[i] = 0;
    }
    (void)snprintf(state->what, sizeof state->what, "%lld requests, the last of %lld tokens up to %lld",
                   (long long)state->batch.count, (long long)scheduled, (long long)context);
}

/* `count` equal requests that run `scheduled` tokens each and end at `context`. */
static inline void pk_check_equal(pk_check_state *state, int64_t count, int64_t scheduled, int64_t context) {
    pk_check_clear(state);
    pk_check_add(state, count, scheduled, context);
}

static inline int pk_check_same(const pk_estimate *a, const pk_estimate *b) {
    return a->overlap_ns == b->overlap_ns && a->no_overlap_ns == b->no_overlap_ns && a->bottleneck == b->bottleneck &&
           memcmp(a->per_resource_ns, b->per_resource_ns, sizeof a->per_resource_ns) == 0;
}

/* ---- steps ---------------------------------------------------------------------------------------------------- */

/* The price of the batch at hand, held to the laws of a single estimate. */
static inline pk_estimate pk_check_step(pk_check_state *state) {
    pk_estimate estimate = PK_ESTIMATE_INIT, again = PK_ESTIMATE_INIT;
    memset(again.per_resource_ns, 0x55, sizeof again.per_resource_ns);
    pk_batch before = state->batch;
    pk_status status = pk_model_step_time(state->model, &state->batch, &estimate, NULL);
    pk_check_that(state, status == PK_OK, "B8", "every well-formed batch has a price", (int64_t)status, 0);
    (void)pk_model_step_time(state->model, &state->batch, &again, NULL);
    pk_check_that(state, pk_check_same(&estimate, &again), "P1", "equal calls give equal results, every field written",
                  estimate.no_overlap_ns, again.no_overlap_ns);
    pk_check_that(state, memcmp(&before, &state->batch, sizeof before) == 0, "P5", "arguments are not modified", 0, 0);
    int64_t sum = 0, largest = 0;
    for (int i = 0; i < PK_RESOURCE_COUNT; i++) {
        int64_t share = estimate.per_resource_ns[i];
        pk_check_that(state, share >= 0 && share < INT64_MAX, "S4", "every duration is at least 0 and finite", i, share);
        sum += share;
        largest = share > largest ? share : largest;
    }
    pk_check_that(state, estimate.overlap_ns >= 0 && estimate.no_overlap_ns < INT64_MAX, "S4",
                  "every duration is at least 0 and finite", estimate.overlap_ns, estimate.no_overlap_ns);
    pk_check_that(state, estimate.overlap_ns <= estimate.no_overlap_ns, "S1", "overlapping never takes longer",
                  estimate.overlap_ns, estimate.no_overlap_ns);
    int64_t off = estimate.no_overlap_ns - sum;
    pk_check_that(state, off >= -PK_RESOURCE_COUNT && off <= PK_RESOURCE_COUNT, "S2",
                  "without overlap a step takes the sum of its resources", estimate.no_overlap_ns, sum);
    int known = estimate.bottleneck >= 0 && estimate.bottleneck < PK_RESOURCE_COUNT;
    pk_check_that(state, known && estimate.per_resource_ns[known ? estimate.bottleneck : 0] == largest, "S3",
                  "the bottleneck has the largest share", estimate.bottleneck, largest);
    pk_check_that(state, estimate.overlap_ns >= largest - 1, "S7", "a step takes at least its largest share",
                  estimate.overlap_ns, largest);
    if (state->batch.count > 0)
        pk_check_that(state, estimate.overlap_ns > 0, "S5", "a step with requests takes time", estimate.overlap_ns, 0);
    return estimate;
}

/* `next` costs no less than `last`, but for what the host's share fell by, which another way of launching explains. */
static inline void pk_check_no_less(pk_check_state *state, const pk_estimate *last, const pk_estimate *next,
                                    const char *law, const char *statement) {
    int64_t host = last->per_resource_ns[PK_HOST] - next->per_resource_ns[PK_HOST];
    int64_t allowed = host > 0 ? host : 0;
    pk_check_that(state, next->no_overlap_ns >= last->no_overlap_ns - allowed, law, statement, last->no_overlap_ns,
                  next->no_overlap_ns);
}

static inline void pk_check_monotone_steps(pk_check_state *state) {
    static const int64_t counts[] = {1, 2, 8, 32, 128, 512}, contexts[] = {1024, 2048, 8192, 32768, 131072};
    static const int64_t widths[] = {1, 2, 3, 5, 8}, lengths[] = {16, 17, 100, 512, 1024, 4096, 8192};
    pk_estimate last = PK_ESTIMATE_INIT, next;
    for (int i = 0; i < 6; i++, last = next) {
        pk_check_equal(state, counts[i], 1, 4096);
        next = pk_check_step(state);
        if (i > 0) pk_check_no_less(state, &last, &next, "M1", "more equal decodes never cost less");
    }
    for (int i = 0; i < 5; i++, last = next) {
        pk_check_equal(state, 64, 1, contexts[i]);
        next = pk_check_step(state);
        if (i > 0) pk_check_no_less(state, &last, &next, "M2", "more context of decodes never costs less");
    }
    for (int i = 0; i < 5; i++, last = next) {
        pk_check_equal(state, 32, widths[i], 8192);
        next = pk_check_step(state);
        if (i > 0) pk_check_no_less(state, &last, &next, "M3", "a longer speculative width never costs less");
    }
    for (int i = 0; i < 5; i++, last = next) {
        pk_check_equal(state, 1, 1024, contexts[i]);
        next = pk_check_step(state);
        if (i > 0) pk_check_no_less(state, &last, &next, "M4", "a longer prefix of a prefill never costs less");
    }
    for (int i = 0; i < 7; i++, last = next) {
        pk_check_equal(state, 1, lengths[i], lengths[i]);
        next = pk_check_step(state);
        if (i > 0) pk_check_no_less(state, &last, &next, "M5", "a longer prefill never costs less");
    }
}

/* Two decodes and two prefills, in one order and in the other. */
static inline void pk_check_order(pk_check_state *state) {
    pk_check_equal(state, 2, 1, 32768);
    pk_check_add(state, 1, 2048, 2048);
    pk_check_add(state, 1, 512, 1024);
    pk_estimate one = pk_check_step(state);
    pk_check_equal(state, 1, 512, 1024);
    pk_check_add(state, 1, 1, 32768);
    pk_check_add(state, 1, 2048, 2048);
    pk_check_add(state, 1, 1, 32768);
    pk_estimate other = pk_check_step(state);
    for (int i = 0; i < PK_RESOURCE_COUNT; i++) {
        int64_t off = one.per_resource_ns[i] - other.per_resource_ns[i];
        pk_check_that(state, off >= -1 && off <= 1, "B1", "the order of requests changes nothing",
                      one.per_resource_ns[i], other.per_resource_ns[i]);
    }
}

static inline void pk_check_batch_settings(pk_check_state *state) {
    pk_check_equal(state, 32, 2, 8192);
    pk_estimate plain = pk_check_step(state), other;
    for (int64_t threshold = 2; threshold <= 64; threshold *= 2) {
        state->batch.decode_threshold = threshold;
        other = pk_check_step(state);
        pk_check_that(state, pk_check_same(&plain, &other), "B3", "a threshold only tells decodes from prefills", threshold,
                      other.no_overlap_ns);
    }
    int64_t count = state->options.sm_count > 0 ? state->options.sm_count : 1000000;
    const int64_t whole[] = {-1, count, count + 1}, parts[] = {128, 64, 1};
    pk_check_equal(state, 32, 2, 8192);
    for (int i = 0; i < 3; i++) {
        state->batch.sm_budget = whole[i];
        other = pk_check_step(state);
        pk_check_that(state, pk_check_same(&plain, &other), "B4", "a budget of all SMs is no budget", whole[i],
                      other.no_overlap_ns);
    }
    pk_estimate last = plain;
    for (int i = 0; i < 3; i++, last = other) {
        state->batch.sm_budget = parts[i];
        other = pk_check_step(state);
        pk_check_that(state, other.no_overlap_ns >= last.no_overlap_ns && other.overlap_ns >= last.overlap_ns, "B5",
                      "fewer SMs never make a step cheaper", last.no_overlap_ns, other.no_overlap_ns);
    }
    pk_check_equal(state, 4, 512, 2048);
    last = pk_check_step(state);
    for (int i = 0; i < 4; i++) state->cached[i] = 1024;
    other = pk_check_step(state);
    pk_check_that(state, other.no_overlap_ns >= last.no_overlap_ns, "B7", "cached tokens are taken off already",
                  last.no_overlap_ns, other.no_overlap_ns);
}

/* A refusal is as good as a price, but it leaves the results and later answers alone. */
static inline void pk_check_malformed(pk_check_state *state) {
    static const int64_t wrong[] = {-1, -1000000, INT64_MIN};
    pk_check_equal(state, 8, 1, 1024);
    pk_estimate before = pk_check_step(state);
    for (int i = 0; i < 6; i++) {
        pk_check_equal(state, 8, 1, 1024);
        (i < 3 ? state->scheduled : state->computed)[5] = wrong[i % 3];
        pk_estimate estimate = PK_ESTIMATE_INIT, untouched;
        estimate.overlap_ns = estimate.no_overlap_ns = 77;
        untouched = estimate;
        pk_status status = pk_model_step_time(state->model, &state->batch, &estimate, NULL);
        pk_check_that(state, estimate.overlap_ns >= 0 && estimate.no_overlap_ns >= 0, "B9",
                      "a malformed batch has no negative price", i, estimate.no_overlap_ns);
        pk_check_that(state, status == PK_OK || pk_check_same(&estimate, &untouched), "B9",
                      "a refusal leaves the estimate alone", i, estimate.no_overlap_ns);
    }
    pk_check_equal(state, 8, 1, 1024);
    pk_estimate after = pk_check_step(state);
    pk_check_that(state, pk_check_same(&before, &after), "P2", "answers do not depend on calls before",
                  before.no_overlap_ns, after.no_overlap_ns);
}

static inline void pk_check_steps(pk_check_state *state) {
    int64_t widest = state->options.largest_batch;
    pk_check_clear(state);
    (void)snprintf(state->what, sizeof state->what, "no requests");
    pk_estimate idle = pk_check_step(state);
    pk_check_that(state, idle.no_overlap_ns > 0, "S6", "a step without requests takes time", idle.no_overlap_ns, 0);
    pk_check_equal(state, 1, 1, 1);
    (void)pk_check_step(state);
    pk_check_equal(state, 256, 4, 16384);
    (void)pk_check_step(state);
    pk_check_equal(state, 1, widest, widest);
    (void)pk_check_step(state);
    pk_check_equal(state, 1, 1025, 204785);
    (void)pk_check_step(state);
    pk_check_equal(state, 512, widest, 131072 > widest ? 131072 : widest); /* far above any engine's budget: S9 */
    (void)pk_check_step(state);
    pk_check_monotone_steps(state);
    pk_check_order(state);
    pk_check_batch_settings(state);
    pk_check_malformed(state);
}

/* ---- memory and sequences --------------------------------------------------------------------------------------- */

static inline void pk_check_fixed_bytes(pk_check_state *state) {
    pk_memory_breakdown one = PK_MEMORY_BREAKDOWN_INIT, two = PK_MEMORY_BREAKDOWN_INIT;
    (void)snprintf(state->what, sizeof state->what, "fixed_bytes");
    pk_status status = pk_model_fixed_bytes(state->model, &one, NULL);
    (void)pk_model_fixed_bytes(state->model, &two, NULL);
    pk_check_that(state, status == PK_OK, "F1", "the fixed bytes are told", (int64_t)status, 0);
    int64_t sum = one.weights + one.activation_peak + one.cuda_graph + one.eplb_redundant + one.comm_buffers;
    int positive = one.weights >= 0 && one.activation_peak >= 0 && one.cuda_graph >= 0 && one.eplb_redundant >= 0 &&
                   one.comm_buffers >= 0;
    pk_check_that(state, positive && one.total == sum, "F1", "every part is at least 0, the total is their sum",
                  one.total, sum);
    pk_check_that(state, memcmp(&one, &two, sizeof one) == 0, "F1", "equal calls give equal results", one.total,
                  two.total);
    int64_t before = pk_model_pre_snapshot_bytes(state->model);
    pk_check_that(state, before >= 0 && (before == 0 || one.comm_buffers == 0), "F4",
                  "communicators are counted before the budget or in it, not twice", before, one.comm_buffers);
}

static inline void pk_check_sequences(pk_check_state *state) {
    const pk_model *model = state->model;
    int64_t b = state->options.tokens_of_a_block, last = 0;
    const int64_t tokens[] = {-5, 0, 1, b - 1, b, b + 1, 2 * b, 2 * b + 1, 1000, 4096, 8192, 32768, 131072};
    for (int i = 0; i < 13; i++) {
        (void)snprintf(state->what, sizeof state->what, "a sequence of %lld tokens", (long long)tokens[i]);
        int64_t bytes = pk_model_sequence_variable_bytes(model, tokens[i]);
        if (tokens[i] <= 0)
            pk_check_that(state, bytes == 0, "Q1", "no tokens take no bytes that grow", bytes, 0);
        else
            pk_check_that(state, bytes >= last, "Q2", "more tokens never take fewer bytes", last, bytes);
        int64_t fits = pk_model_max_tokens_for(model, bytes);
        pk_check_that(state, tokens[i] <= 0 || fits >= tokens[i], "C2", "a sequence fits in the bytes it takes", fits,
                      tokens[i]);
        last = bytes;
    }
    int64_t fixed = pk_model_sequence_fixed_bytes(model), admission = pk_model_sequence_admission_bytes(model);
    (void)snprintf(state->what, sizeof state->what, "bounded bytes of a sequence");
    pk_check_that(state, fixed >= 0, "Q10", "the fixed bytes of a sequence are at least 0", fixed, 0);
    pk_check_that(state, fixed <= admission, "G3", "admission takes at least what a decode takes", fixed, admission);
    last = 0;
    for (int64_t in_flight = 1; in_flight <= 16384; in_flight *= 2) {
        int64_t bounded = pk_model_sequence_bounded_bytes(model, in_flight);
        pk_check_that(state, bounded >= last, "G3", "more in flight never takes fewer bytes", last, bounded);
        for (int64_t computed = 0; computed <= 65536; computed = computed == 0 ? 1 : computed * 16) {
            int64_t at = pk_model_sequence_bounded_bytes_at(model, computed, in_flight);
            pk_check_that(state, at >= 0 && at <= bounded, "G5", "a young sequence takes no more than an old one", at,
                          bounded);
        }
        last = bounded;
    }
}

/* ---- transfers ---------------------------------------------------------------------------------------------------- */

static inline void pk_check_tiers(pk_check_state *state) {
    static const int64_t sizes[] = {0, 1, 4096, 1 << 20, 1 << 26, (int64_t)1 << 34};
    static const char *const unknown[] = {"", "no such tier"};
    const pk_model *model = state->model;
    for (int i = 0; i < 2; i++)
        for (int32_t way = PK_TO_TIER; way <= PK_FROM_TIER; way++) {
            (void)snprintf(state->what, sizeof state->what, "tier \"%s\"", unknown[i]);
            int64_t ns = pk_model_tier_time_ns(model, unknown[i], way, 4096, 1);
            pk_check_that(state, ns == INT64_MAX, "T1", "a tier that does not exist takes INT64_MAX", ns, INT64_MAX);
        }
    for (const char *const *name = state->options.tiers; name != NULL && *name != NULL; name++)
        for (int32_t way = PK_TO_TIER; way <= PK_FROM_TIER; way++) {
            int64_t last = 0, latency = pk_model_tier_time_ns(model, *name, way, 0, 1);
            for (int i = 0; i < 6; i++) {
                (void)snprintf(state->what, sizeof state->what, "%lld bytes and tier \"%s\"", (long long)sizes[i], *name);
                int64_t one = pk_model_tier_time_ns(model, *name, way, sizes[i], 1), deeper = one;
                pk_check_that(state, one >= 0 && one < INT64_MAX, "T1", "a tier that exists has a price", one, 0);
                pk_check_that(state, one >= latency && one >= last, "T3", "more bytes never take less", last, one);
                pk_check_that(state, pk_model_tier_time_ns(model, *name, way, sizes[i], 0) == one &&
                                         pk_model_tier_time_ns(model, *name, way, sizes[i], -1) == one,
                              "T4", "a depth of 1 or less is one transfer", one, 0);
                for (int64_t depth = 2; depth <= 64; depth *= 2) {
                    int64_t shared = pk_model_tier_time_ns(model, *name, way, sizes[i], depth);
                    pk_check_that(state, shared >= deeper, "T3", "more transfers at once never take less", deeper, shared);
                    deeper = shared;
                }
                last = one;
            }
        }
}

/* The demand of one handoff, held to the laws of a single demand; 1 when its time could be priced. */
static inline int pk_check_demand(pk_check_state *state, int64_t tokens, const pk_placement *source,
                                  const pk_placement *target, pk_transfer_demand *demand) {
    pk_transfer_demand again = PK_TRANSFER_DEMAND_INIT, fresh = PK_TRANSFER_DEMAND_INIT;
    *demand = fresh;
    (void)snprintf(state->what, sizeof state->what, "a handoff of %lld tokens from node %lld to %lld", (long long)tokens,
                   (long long)source->node, (long long)target->node);
    pk_status status = pk_model_pd_transfer_demand(state->model, tokens, source, target, demand, NULL);
    (void)pk_model_pd_transfer_demand(state->model, tokens, source, target, &again, NULL);
    pk_check_that(state, status == PK_OK, "X1", "every handoff has a demand", (int64_t)status, 0);
    int same = demand->bytes == again.bytes && demand->floor_ns == again.floor_ns &&
               demand->link_count == again.link_count;
    for (int32_t i = 0; same && i < demand->link_count && i < 2; i++)
        same = demand->links[i].kind == again.links[i].kind && demand->links[i].place == again.links[i].place &&
               !(demand->links[i].bytes_per_second < again.links[i].bytes_per_second) &&
               !(demand->links[i].bytes_per_second > again.links[i].bytes_per_second);
    pk_check_that(state, same, "X2", "equal calls give equal demands", demand->bytes, again.bytes);
    if (tokens <= 0) {
        pk_check_that(state, demand->bytes == 0 && demand->floor_ns == 0, "X5", "no tokens move nothing in no time",
                      demand->bytes, demand->floor_ns);
        return 1;
    }
    for (int32_t i = 0; i < demand->link_count && i < 2; i++)
        if (!(demand->links[i].bytes_per_second > 0)) return 0; /* no bandwidth is stated: X11 */
    pk_error error = PK_ERROR_INIT;
    status = pk_transfer_demand_check(demand, &error);
    pk_check_that(state, status == PK_OK, "X1", "a demand is well-formed", (int64_t)status, demand->link_count);
    return status == PK_OK;
}

static inline void pk_check_handoffs(pk_check_state *state) {
    const pk_placement source = {0, 0, 0, 0};
    const pk_placement targets[] = {{0, 0, 1, 0}, {1, 0, 1, 0}, {2, 1, 1, 0}};
    const int64_t tokens[] = {-1, 0, 1, state->options.tokens_of_a_block, 1024, 4096, 32768, 131072};
    for (int place = 0; place < 3; place++) {
        int64_t last_bytes = 0, last_ns = 0, last_floor = 0;
        for (int i = 0; i < 8; i++) {
            pk_transfer_demand demand;
            int priced = pk_check_demand(state, tokens[i], &source, &targets[place], &demand);
            int64_t ns = pk_alone_time_ns(&demand);
            pk_check_that(state, demand.bytes >= last_bytes, "X4", "more tokens never move fewer bytes", last_bytes,
                          demand.bytes);
            if (priced && demand.floor_ns >= last_floor)
                pk_check_that(state, ns >= last_ns, "X6", "more tokens never take less", last_ns, ns);
            if (priced) pk_check_that(state, ns < INT64_MAX / 2, "X11", "a handoff over known links is finite", ns, 0);
            last_bytes = demand.bytes;
            last_ns = ns;
            last_floor = demand.floor_ns;
        }
    }
}

static inline void pk_check_host_work(pk_check_state *state) {
    static const int64_t prompts[] = {1, 2, 100, 1024, 131072};
    (void)snprintf(state->what, sizeof state->what, "host work");
    int64_t last = pk_model_admission_overhead_ns(state->model, 0);
    pk_check_that(state, last == 0, "H1", "admitting no tokens takes no time", last, 0);
    for (int i = 0; i < 5; i++) {
        int64_t ns = pk_model_admission_overhead_ns(state->model, prompts[i]);
        pk_check_that(state, ns >= last, "H1", "a longer prompt is never admitted sooner", last, ns);
        last = ns;
    }
    int64_t token = pk_model_output_token_overhead_ns(state->model), end = pk_model_completion_overhead_ns(state->model);
    pk_check_that(state, token >= 0 && end >= 0, "H3", "host work is at least 0", token, end);
}

static inline void pk_check_settings(pk_check_state *state) {
    const pk_model *model = state->model;
    (void)snprintf(state->what, sizeof state->what, "settings");
    int32_t uniform = pk_model_uniform_graph_mode(model), other = pk_model_other_graph_mode(model);
    pk_check_that(state, uniform >= PK_GRAPH_NONE && uniform <= PK_GRAPH_FULL && other >= PK_GRAPH_NONE &&
                             other <= PK_GRAPH_FULL,
                  "C3", "a graph mode is one of three", uniform, other);
    pk_check_that(state, pk_model_capture_tokens(model) >= 0, "C4", "captured tokens are at least 0",
                  pk_model_capture_tokens(model), 0);
    pk_check_that(state, pk_model_decode_threshold(model) >= 1, "C5", "a decode schedules at least one token",
                  pk_model_decode_threshold(model), 1);
    int32_t decode = pk_model_decode_context_ranks(model), prefill = pk_model_prefill_context_ranks(model);
    pk_check_that(state, decode >= 1 && prefill >= 1, "C6", "a width is at least 1", decode, prefill);
}

/* ---- all of them ---------------------------------------------------------------------------------------------------- */

/* Checks a model; the number of violations. `options` and `report` may be NULL. A model that pk_model_check refuses is
 * one violation, and asked nothing more. */
static inline int64_t pk_check_model(const pk_model *model, const pk_check_options *options, pk_check_report report,
                                     void *context) {
    static const pk_check_options defaults = {NULL, 0, 0, 0};
    pk_error error = PK_ERROR_INIT;
    pk_check_state state;
    memset(&state, 0, sizeof state);
    state.model = model;
    state.options = options != NULL ? *options : defaults;
    if (state.options.tokens_of_a_block <= 0) state.options.tokens_of_a_block = 16;
    if (state.options.largest_batch <= 0) state.options.largest_batch = 8192;
    state.report = report;
    state.context = context;
    if (pk_model_check(model, &error) != PK_OK) {
        if (report != NULL) report(context, "C1", "a model answers every function", error.message);
        return 1;
    }
    pk_check_steps(&state);
    pk_check_fixed_bytes(&state);
    pk_check_sequences(&state);
    pk_check_tiers(&state);
    pk_check_handoffs(&state);
    pk_check_host_work(&state);
    pk_check_settings(&state);
    return state.violations;
}

#endif /* PK_CHECK_H */
