/* Prints, bit for bit, what the core makes of many batches; builds that differ in anything but the answer agree. */
#include "example.h"
#include "pykernel.h"

#include <inttypes.h>
#include <stdio.h>

static void print_estimate(const pk_kernel *kernel, uint32_t seed) {
    example_batch b;
    example_batch_make(&b, seed);
    pk_estimate estimate = PK_ESTIMATE_INIT;
    (void)pk_step_time(kernel, &b.batch, &estimate, NULL);
    printf("%" PRIu32 ": %" PRIx64 " %" PRIx64, seed, (uint64_t)estimate.overlap_ns, (uint64_t)estimate.no_overlap_ns);
    for (int i = 0; i < PK_RESOURCE_COUNT; i++) printf(" %" PRIx64, (uint64_t)estimate.per_resource_ns[i]);
    printf(" %d\n", (int)estimate.bottleneck);
}

static void print_laws(const example *e, uint32_t seed) {
    uint32_t state = seed;
    int64_t tokens = example_random(&state) % 10000;
    double bytes = example_random(&state) * 3.7;
    printf("%a %a %a %a %a\n", pk_gemm_efficiency(&e->spec.gemm, (double)tokens),
           pk_gemm_shape_factor(&e->spec.gemm, bytes, (double)tokens), pk_experts_touched(tokens, 128, 6, 8),
           pk_collective_seconds(&e->laws[1], bytes), pk_span_factor(&e->groups[1], PK_SPAN_RING, 1 + bytes));
}

/* Memory and transfers, at sizes whose last bits count. */
static void print_memory(const pk_kernel *kernel, uint32_t seed) {
    uint32_t state = seed;
    int64_t tokens = (int64_t)example_random(&state) << example_random(&state) % 38;
    int64_t bytes = pk_sequence_variable_bytes(kernel, tokens);
    pk_placement source = {0, 0, 0, 0}, target = {(int64_t)(seed % 2), 0, 1, 0};
    pk_capacity capacity = PK_CAPACITY_INIT;
    (void)pk_kv_capacity(kernel, 0, 0.8 + seed * 1e-4, 0, &capacity, NULL);
    printf("%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", bytes,
           pk_max_tokens_for(kernel, bytes - 1), pk_sequence_bounded_bytes_at(kernel, tokens, tokens / 3),
           capacity.bytes, pk_tier_time_ns(kernel, 1, PK_TO_TIER, bytes, (int64_t)(seed % 9)),
           pk_pd_transfer_time_ns(kernel, tokens, &source, &target), pk_admission_overhead_ns(kernel, tokens));
}

/* A part so slow that a step takes weeks: nanoseconds then hold nearly every bit of the seconds they came from, which
 * truncation would hide at a usual 20 ms. */
static void slow_down(example *e) {
    const double slowness = 1e8;
    e->spec.peak_flops /= slowness;
    e->spec.hbm_bytes_per_second /= slowness;
    for (int i = 0; i < 3; i++) e->attentions[i].decode.bytes_per_second /= slowness;
    for (int i = 0; i < 2; i++) {
        e->laws[i].transition_bytes_per_second /= slowness;
        e->laws[i].peak_bytes_per_second /= slowness;
    }
    e->scorers[0].decode.bytes_per_second /= slowness;
    e->layers[2].recurrent.tokens_per_second /= slowness;
}

int main(void) {
    example e;
    example_make(&e);
    slow_down(&e);
    for (int variant = 0; variant < 3; variant++) {
        e.attentions[0].decode.law = variant == 1 ? PK_DECODE_HBM : PK_DECODE_FLOOR_RATE;
        e.attentions[0].prefill.law = variant == 2 ? PK_PREFILL_DENSE : PK_PREFILL_FLOOR_RAMP;
        pk_kernel *kernel = NULL;
        if (pk_kernel_new(&e.spec, &kernel, NULL) != PK_OK) return 1;
        for (uint32_t seed = 0; seed < 3334; seed++) print_estimate(kernel, seed);
        pk_kernel_free(kernel);
    }
    for (uint32_t seed = 0; seed < 1000; seed++) print_laws(&e, seed);
    pk_kernel *kernel = NULL;
    if (pk_kernel_new(&e.spec, &kernel, NULL) != PK_OK) return 1;
    for (uint32_t seed = 0; seed < 1000; seed++) print_memory(kernel, seed);
    pk_kernel_free(kernel);
    return 0;
}
