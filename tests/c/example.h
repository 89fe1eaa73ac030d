/*
 * A small deployment that uses every part of a spec, and batches to price on it: what the C programs beside this file
 * share. The figures are made up; only their variety matters (a window, latent heads, experts, both spans, a gather).
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include "pykernel.h"

typedef struct example {
    pk_layer layers[3];
    pk_attention attentions[2];
    pk_experts experts[1];
    pk_collective collectives[3];
    pk_collective_law laws[2];
    pk_group groups[2];
    pk_spec spec;
} example;

/* The spec points into `e`, so an example is made where it stays. */
static inline void example_make(example *e) {
    *e = (example){
        .groups = {{.width = 4, .per_node = 4}, {.width = 16, .per_node = 4, .crosses_nodes = 1}},
        .laws = {{PK_COLLECTIVE_TWO_RATES, 0, 11000, 0, 371e9}, {PK_COLLECTIVE_TWO_RATES, 0, 23000, 97e9, 43e9}},
        .collectives = {{.law = 0, .group = 0, .span = PK_SPAN_RING, .launches = 2, .bytes_per_token = 14336},
                        {.law = 1, .group = 1, .span = PK_SPAN_ALL_TO_ALL, .launches = 1, .bytes_per_token = 57344},
                        {.law = 1, .group = 1, .span = PK_SPAN_RING, .launches = 1, .bytes_per_token = 14336}},
        .attentions = {{.query_heads = 64,
                        .head_dim = 576,
                        .cache_bytes_per_token = 576,
                        .decode = {PK_DECODE_FLOOR_RATE, 0, 7000, 1.9e12},
                        .prefill = {PK_PREFILL_FLOOR_RAMP, 0, 9000, 0.7}},
                       {.query_heads = 64,
                        .head_dim = 128,
                        .window = 1000,
                        .cache_bytes_per_token = 2048,
                        .one_mixed_launch = 1,
                        .decode = {PK_DECODE_FLOOR_RATE, 0, 5000, 2.3e12},
                        .prefill = {PK_PREFILL_FLOOR_RAMP, 0, 3000, 0.9}}},
        .experts = {{.experts = 128,
                     .local = 8,
                     .top_k = 6,
                     .shards = 1,
                     .funnel = 4,
                     .token_slices = 1,
                     .flops_per_token_and_expert = 8.8e7,
                     .bytes_per_expert = 4.4e7,
                     .imbalance = 1.3}},
        .layers = {{.count = 3,
                    .attention_count = 1,
                    .collective_count = 1,
                    .dense_flops_per_token = 1.1e9,
                    .dense_bytes = 5.3e8,
                    .elementwise_bytes_per_token = 28672},
                   {.count = 17,
                    .attention_first = 1,
                    .attention_count = 1,
                    .experts_count = 1,
                    .collective_first = 1,
                    .collective_count = 2,
                    .dense_flops_per_token = 3.7e8,
                    .dense_bytes = 1.9e8,
                    .elementwise_bytes_per_token = 28672},
                   {.count = 1, .dense_flops_per_token = 1e8, .dense_bytes = 1e8}},
        .spec =
            {
                .struct_size = sizeof(pk_spec),
                .tensor_parallel = 4,
                .sm_count = 132,
                .peak_flops = 1.979e15,
                .hbm_bytes_per_second = 4.1e12,
                .link_ratio = 9,
                .gemm = {PK_GEMM_TOKEN_RAMP, 0, 0.77, 95},
                .host = {.uniform_mode = PK_GRAPH_FULL,
                         .other_mode = PK_GRAPH_PIECEWISE,
                         .uniform_width = 1,
                         .segments = 22,
                         .layers = 21,
                         .kernels = 300,
                         .capture_tokens = 512,
                         .replay_ns = 41000,
                         .eager_layer_ns = 310000,
                         .kernel_ns = 3200},
                .head = {.rows = PK_HEAD_SAMPLED_ROWS,
                         .has_gather = 1,
                         .flops_per_row = 1.8e9,
                         .bytes = 1.8e9,
                         .gather_bytes_per_row = 258560},
            },
    };
    e->spec.layers = e->layers;
    e->spec.attentions = e->attentions;
    e->spec.experts = e->experts;
    e->spec.collectives = e->collectives;
    e->spec.collective_laws = e->laws;
    e->spec.groups = e->groups;
    e->spec.layer_count = sizeof e->layers / sizeof e->layers[0];
    e->spec.attention_count = sizeof e->attentions / sizeof e->attentions[0];
    e->spec.experts_count = sizeof e->experts / sizeof e->experts[0];
    e->spec.collective_count = sizeof e->collectives / sizeof e->collectives[0];
    e->spec.collective_law_count = sizeof e->laws / sizeof e->laws[0];
    e->spec.group_count = sizeof e->groups / sizeof e->groups[0];
}

enum { EXAMPLE_REQUESTS = 64 };

/* Batch number `seed`: up to 64 requests, decodes and prefills mixed in shares that the seed decides. */
typedef struct example_batch {
    int64_t scheduled[EXAMPLE_REQUESTS];
    int64_t computed[EXAMPLE_REQUESTS];
    pk_batch batch;
} example_batch;

static inline uint32_t example_random(uint32_t *state) { /* Numerical Recipes' linear congruential generator */
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static inline void example_batch_make(example_batch *b, uint32_t seed) {
    uint32_t state = seed * 2654435761u + 1u;
    uint32_t prefill_share = example_random(&state) % 5;
    *b = (example_batch){.batch = PK_BATCH_INIT};
    b->batch.count = example_random(&state) % (EXAMPLE_REQUESTS + 1);
    for (int64_t i = 0; i < b->batch.count; i++) {
        int prefill = example_random(&state) % 4 < prefill_share;
        b->scheduled[i] = prefill ? 2 + example_random(&state) % 3000 : 1;
        b->computed[i] = example_random(&state) % (1u << (example_random(&state) % 17));
    }
    b->batch.scheduled = b->scheduled;
    b->batch.computed = b->computed;
    b->batch.sm_budget = example_random(&state) % 3 == 0 ? example_random(&state) % 200 : 0;
    b->batch.pad_tokens = example_random(&state) % 4 == 0 ? example_random(&state) % 100 : 0;
}

#endif
