/*
 * A small deployment that uses every part of a spec, and batches to price on it: what the C programs beside this file
 * share. The figures are made up; only their variety matters.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include "pykernel.h"

#define EXAMPLE_COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef struct example {
    pk_layer layers[4];
    pk_attention attentions[3];
    pk_scorer scorers[1];
    pk_gemm gemms[2];
    pk_experts experts[1];
    pk_collective collectives[6];
    pk_collective_law laws[2];
    pk_group groups[2];
    pk_cache_group caches[5];
    pk_tier tiers[2];
    pk_origin origins[3];
    pk_override overrides[1];
    pk_note notes[5];
    pk_spec spec;
} example;

/* Latent attention that reads everything, a sliding window, and a compressed cache that a scorer chooses from. */
static inline void example_attentions(example *e) {
    e->attentions[0] = (pk_attention){
        .query_heads = 64,
        .head_dim = 576,
        .cache_bytes_per_token = 576,
        .read = {.law = PK_READ_ALL, .sharded = 1, .compress_ratio = 1},
        .decode = {PK_DECODE_FLOOR_RATE, 0, 7000, 1.9e12},
        .prefill = {PK_PREFILL_FLOOR_RAMP, 0, 9000, 0.7},
    };
    e->attentions[1] = (pk_attention){
        .query_heads = 64,
        .head_dim = 128,
        .prefill_window = 1000,
        .cache_bytes_per_token = 2048,
        .one_mixed_launch = 1,
        .read = {.law = PK_READ_WINDOW, .compress_ratio = 1, .window = 1000},
        .decode = {PK_DECODE_FLOOR_RATE, 0, 5000, 2.3e12},
        .prefill = {PK_PREFILL_FLOOR_RAMP, 0, 3000, 0.9},
    };
    e->attentions[2] = (pk_attention){
        .query_heads = 32,
        .head_dim = 576,
        .cache_bytes_per_token = 656,
        .read = {.law = PK_READ_SELECTED, .sharded = 1, .top_k = 512, .compress_ratio = 4, .window = 128},
        .decode = {PK_DECODE_FLOOR_RATE, 0, 6000, 1.7e12},
        .prefill = {PK_PREFILL_FLOOR_RAMP, 0, 4000, 0.8},
    };
    e->scorers[0] = (pk_scorer){
        .cache_bytes_per_token = 132,
        .window = 30000,
        .compress_ratio = 4,
        .sharded = 1,
        .decode = {PK_DECODE_FLOOR_RATE, 0, 2000, 1.3e12},
    };
}

static inline void example_collectives(example *e) {
    e->groups[0] = (pk_group){.width = 4, .per_node = 4};
    e->groups[1] = (pk_group){.width = 16, .per_node = 4, .crosses_nodes = 1};
    e->laws[0] = (pk_collective_law){PK_COLLECTIVE_TWO_RATES, 0, 11000, 0, 371e9};
    e->laws[1] = (pk_collective_law){PK_COLLECTIVE_TWO_RATES, 0, 23000, 97e9, 43e9};
    e->collectives[0] = (pk_collective){0, 0, PK_SPAN_RING, PK_UNITS_TOKENS, 0, 0, 14336};
    e->collectives[1] = (pk_collective){1, 1, PK_SPAN_ALL_TO_ALL, PK_UNITS_TOKENS, 1, 0, 57344};
    e->collectives[2] = (pk_collective){1, 1, PK_SPAN_RING, PK_UNITS_DECODE_ROWS, 0, 0, 9216};
    e->collectives[3] = (pk_collective){0, 0, PK_SPAN_RING, PK_UNITS_CONTEXT_ROWS, 0, 0, 2048};
    e->collectives[4] = (pk_collective){1, 1, PK_SPAN_RING, PK_UNITS_PREFILL_ROWS, 0, 0, 1152};
    e->collectives[5] = (pk_collective){0, 0, PK_SPAN_RING, PK_UNITS_CONTEXT_CHUNKS, 0, 0, 1152};
}

/* Three kinds of layers in the stack, and one of the speculator. */
static inline void example_layers(example *e) {
    e->gemms[0] = (pk_gemm){2.3e8, 1536, 7168};
    e->gemms[1] = (pk_gemm){4.7e8, 7168, 2048};
    e->experts[0] = (pk_experts){128, 8, 6, 1, 4, 1, 8.8e7, 4.4e7, 1.3, 4.7e7, 16, 16};
    e->layers[0] = (pk_layer){
        .count = 3,
        .attention_count = 1,
        .collective_count = 1,
        .dense_flops_per_token = 1.1e9,
        .dense_bytes = 5.3e8,
        .elementwise_bytes_per_token = 28672,
        .stored_bytes = 5.4e8,
        .replicated_bytes = 3e6,
    };
    e->layers[1] = (pk_layer){
        .count = 17,
        .attention_first = 1,
        .attention_count = 1,
        .gemm_count = 2,
        .experts_count = 1,
        .collective_first = 1,
        .collective_count = 2,
        .dense_flops_per_token = 3.7e8,
        .dense_bytes = 1.9e8,
        .elementwise_bytes_per_token = 28672,
    };
    e->layers[2] = (pk_layer){
        .count = 2,
        .attention_first = 2,
        .attention_count = 1,
        .scorer_count = 1,
        .collective_first = 3,
        .collective_count = 3,
        .dense_flops_per_token = 1e8,
        .dense_bytes = 1e8,
        .recurrent = {PK_RECURRENT_FLOOR_RATE, 0, 8000, 3.1e8},
    };
    e->layers[3] = (pk_layer){.count = 1, .attention_count = 1, .dense_flops_per_token = 9e8, .dense_bytes = 7e8};
}

/* Every token, a window, a ring, and state that is constant or grows with the sequence; two tiers. */
static inline void example_memory(example *e) {
    e->caches[0] = (pk_cache_group){PK_CACHE_TOKENS, 3, 1, 1, 0, 1, 16, 0, 576};
    e->caches[1] = (pk_cache_group){PK_CACHE_TOKENS, 17, 4, 1, 0, 1, 16, 1000, 2048};
    e->caches[2] = (pk_cache_group){PK_CACHE_RING, 2, 1, 0, 0, 1, 64, 1000, 656.5};
    e->caches[3] = (pk_cache_group){PK_CACHE_STATE, 2, 1, 0, 3, 0, 16, 0, 1062400};
    e->caches[4] = (pk_cache_group){PK_CACHE_CHECKPOINTS, 1, 1, 0, 1, 0, 16, 0, 99.5};
    e->tiers[0] = (pk_tier){"cpu_dram", 20e9, 20e9, 1};
    e->tiers[1] = (pk_tier){"nvme_gen4", 7e9, 5e9, 80};
}

/* Text of every kind: empty, repeated, beyond ASCII. */
static inline void example_notes(example *e) {
    e->origins[0] = (pk_origin){"hbm_derate", "cost-model-memory", "measured", "h200"};
    e->origins[1] = (pk_origin){"nvlink_peak", "cost-model-collectives", "vendor_spec", ""};
    e->origins[2] = (pk_origin){"block_size", "pykernel", "assumed", "16: not stated; the engine's default"};
    e->overrides[0] = (pk_override){"all2all_backend", "pplx", "naive", "caf\xc3\xa9"};
    e->notes[0] = (pk_note){"model", "example"};
    e->notes[1] = (pk_note){"engine.max_num_seqs", "256"};
    e->notes[2] = (pk_note){"engine.cache_dtype", "fp8"};
    e->notes[3] = (pk_note){"assumed.block_size", "16"};
    e->notes[4] = (pk_note){"assumed.max_num_seqs", "1024"};
}

static inline void example_spec(example *e) {
    e->spec = (pk_spec){
        .struct_size = sizeof(pk_spec),
        .tensor_parallel = 4,
        .prefill_context_parallel = 2,
        .decode_context_parallel = 4,
        .interleave = 16,
        .context_chunk = 4096,
        .draft_passes = 2,
        .sm_count = 132,
        .peak_flops = 1.979e15,
        .hbm_bytes_per_second = 4.1e12,
        .link_ratio = 9,
        .gemm = {PK_GEMM_SHAPE_RAMP, 0, 0.77, 95, 310, 170},
        .host = {PK_GRAPH_FULL, PK_GRAPH_PIECEWISE, 1, 22, 22, 300, 512, 1, 41000, 310000, 3200, 40000000, 350, 45900,
                 777300},
        .head = {PK_HEAD_SAMPLED_ROWS, 1, 0, 0, 1.8e9, 1.8e9, 258560, 1.9e9},
        .memory = {(int64_t)141 << 30, 0.9, 1e9, 10, 8192, 7168, 73400320, 858783744, 411041792, 3758096384, 0, 1, 16,
                   16384, 131072, 0},
        .links = {64e9, 450e9, 50e9, 6350, 0, 0},
        .resolution = {4, 1, 16, 1, 0, 0, "nccl"},
        .layers = e->layers,
        .attentions = e->attentions,
        .scorers = e->scorers,
        .gemms = e->gemms,
        .experts = e->experts,
        .collectives = e->collectives,
        .collective_laws = e->laws,
        .groups = e->groups,
        .caches = e->caches,
        .tiers = e->tiers,
        .origins = e->origins,
        .overrides = e->overrides,
        .notes = e->notes,
        .layer_count = EXAMPLE_COUNT(e->layers) - 1,
        .draft_layer_count = 1,
        .attention_count = EXAMPLE_COUNT(e->attentions),
        .scorer_count = EXAMPLE_COUNT(e->scorers),
        .gemm_count = EXAMPLE_COUNT(e->gemms),
        .experts_count = EXAMPLE_COUNT(e->experts),
        .collective_count = EXAMPLE_COUNT(e->collectives),
        .collective_law_count = EXAMPLE_COUNT(e->laws),
        .group_count = EXAMPLE_COUNT(e->groups),
        .cache_count = EXAMPLE_COUNT(e->caches),
        .tier_count = EXAMPLE_COUNT(e->tiers),
        .origin_count = EXAMPLE_COUNT(e->origins),
        .override_count = EXAMPLE_COUNT(e->overrides),
        .note_count = EXAMPLE_COUNT(e->notes),
    };
}

/* The spec points into `e`, so an example is made where it stays. */
static inline void example_make(example *e) {
    example_attentions(e);
    example_collectives(e);
    example_layers(e);
    example_memory(e);
    example_notes(e);
    example_spec(e);
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
