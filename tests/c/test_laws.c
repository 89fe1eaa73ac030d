/* The laws that the header offers one by one, against the same numbers worked out in another way. */
#include "check.h"

#include <math.h>
#include <string.h>

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

static void reads_are_those_of_the_law(void) {
    pk_read_law all = {.law = PK_READ_ALL}, window = {.law = PK_READ_WINDOW, .window = 128};
    pk_read_law selected = {.law = PK_READ_SELECTED, .top_k = 10, .compress_ratio = 4, .window = 16};
    CHECK(pk_read_entries(&all, 5000) == 5000);
    CHECK(pk_read_entries(&window, 100) == 100 && pk_read_entries(&window, 5000) == 128);
    /* Times 4: the quarter of 30 tokens is 7.5 entries, below top_k, and the window adds 16; never more than all. */
    CHECK(pk_read_entries(&selected, 30) == 4 * 16 + 30);
    CHECK(pk_read_entries(&selected, 10) == 4 * 10);
    CHECK(pk_read_entries(&selected, 5000) == 4 * (10 + 16));
}

static void decode_ranks_share_in_turns(void) {
    for (int32_t ranks = 1; ranks < 6; ranks++)
        for (int32_t interleave = 1; interleave < 5; interleave++)
            for (int64_t tokens = 0; tokens < 60; tokens++) {
                int64_t first = 0; /* the first rank is dealt to first, so no rank has more */
                for (int64_t i = 0; i < tokens; i++) first += i / interleave % ranks == 0;
                CHECK(pk_decode_shard(tokens, ranks, interleave) == first);
            }
}

static void one_rank_does_all_of_a_prefill(void) {
    pk_prefill_share share = pk_share_prefill(500, 70, 1, 1);
    CHECK(share.tokens == 500 && share.pairs4 == pk_prefill_pairs4(500, 70, 0));
    CHECK(share.run_tokens[0] + share.run_tokens[1] == 500 && share.run_computed[0] == 70);
}

static void prefill_ranks_take_a_chunk_of_each_end(void) {
    pk_prefill_share share = pk_share_prefill(800, 100, 4, 1); /* 8 chunks of 100; each rank takes 200 tokens */
    CHECK(share.tokens == 200);
    for (int rank = 0; rank < 4; rank++) {
        int64_t early = pk_prefill_pairs4(100, 100 + 100 * rank, 0);
        int64_t late = pk_prefill_pairs4(100, 100 + 100 * (7 - rank), 0);
        CHECK(share.pairs4 == early + late); /* and so every rank multiplies the same */
    }
}

static void shapes_lower_the_efficiency(void) {
    pk_gemm_law law = {PK_GEMM_SHAPE_RAMP, 0, 0.8, 100, 300, 50};
    CHECK(fabs(pk_gemm_efficiency(&law, 100) - 0.4) < 1e-12 && pk_gemm_efficiency(&law, 0) == 0);
    CHECK(fabs(pk_gemm_shape_factor(&law, 300, 150) - 0.5 * 0.75) < 1e-12);
    law.law = PK_GEMM_TOKEN_RAMP;
    CHECK(pk_gemm_shape_factor(&law, 300, 150) == 1);
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

void test_laws(void) {
    every_status_has_a_name_and_a_sentence();
    seconds_become_nanoseconds_by_truncation();
    prefill_pairs_are_the_sum_over_queries();
    reads_are_those_of_the_law();
    decode_ranks_share_in_turns();
    one_rank_does_all_of_a_prefill();
    prefill_ranks_take_a_chunk_of_each_end();
    shapes_lower_the_efficiency();
    experts_touched_follow_the_expectation();
    spans_cost_by_the_hops_that_cross();
    CHECK(pk_arithmetic_is_exact() == 1);
    CHECK(pk_version() == PK_VERSION);
}
