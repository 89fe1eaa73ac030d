/* Kernels of real deployments, from the generated specs.h, and the batches that they price. */
#include "calls.h"

#include "specs.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4096, CONTEXT = 4096, MANY = 1000, EACH = 32 };
static int64_t ones[MANY * EACH], contexts[MANY * EACH], mixed[MOST], burst[MOST], offsets[MANY + 1];
static int64_t overlap_ns[MANY], no_overlap_ns[MANY], per_resource_ns[MANY * PK_RESOURCE_COUNT];
static int8_t bottleneck[MANY];

static void fail(const char *what, const pk_error *error) {
    fprintf(stderr, "a benchmark's %s is refused: %s: %s\n", what, error->field, error->message);
    exit(1);
}

static pk_kernel *built(const pk_spec *spec) {
    pk_kernel *kernel = NULL;
    pk_error error = PK_ERROR_INIT;
    if (pk_kernel_new(spec, &kernel, &error) != PK_OK) fail("spec", &error);
    return kernel;
}

static pk_kernel *loaded(const unsigned char *image, size_t size) {
    pk_kernel *kernel = NULL;
    pk_error error = PK_ERROR_INIT;
    if (pk_kernel_load(image, size, &kernel, &error) != PK_OK) fail("image", &error);
    return kernel;
}

/* The same kinds of layers, each three times as often. */
static pk_kernel *built_deeper(const pk_spec *spec) {
    pk_layer layers[16];
    if (spec->layer_count > 16) exit(1);
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        layers[i] = spec->layers[i];
        layers[i].count *= 3;
    }
    pk_spec deeper = *spec;
    deeper.layers = layers;
    deeper.host.layers *= 3;
    deeper.host.segments *= 3;
    return built(&deeper);
}

static pk_batch of(int64_t count, const int64_t *scheduled) {
    pk_batch batch = PK_BATCH_INIT;
    batch.count = count;
    batch.scheduled = scheduled;
    batch.computed = contexts;
    return batch;
}

static pk_batch_state *running(int64_t count) {
    pk_batch_state *state = NULL;
    pk_error error = PK_ERROR_INIT;
    int64_t id;
    if (pk_batch_state_new(1, &state, &error) != PK_OK) fail("running batch", &error);
    for (int64_t i = 0; i < count; i++)
        if (pk_batch_state_add(state, 1, contexts[i], &id, &error) != PK_OK) fail("request", &error);
    return state;
}

int calls_make(call calls[CALLS_MAX]) {
    for (int i = 0; i < MANY * EACH; i++) {
        ones[i] = 1;
        contexts[i] = CONTEXT - 1 - i % 97;
    }
    for (int i = 0; i < MOST; i++) {
        mixed[i] = i == 7 ? 512 : 1;
        burst[i] = i < 32 ? 64 : 1;
    }
    const pk_kernel *measured_latent = loaded(calibrated_deepseek_v3, sizeof calibrated_deepseek_v3);
    const pk_kernel *measured_windowed = loaded(calibrated_gpt_oss_120b, sizeof calibrated_gpt_oss_120b);
    const pk_kernel *measured_sparse = loaded(calibrated_deepseek_v4_pro, sizeof calibrated_deepseek_v4_pro);
    for (int i = 0; i <= MANY; i++) offsets[i] = i * EACH;
    const pk_batches many = {sizeof many, 0, MANY, offsets, ones, contexts, 1, 0, 0};
    const pk_kernel *latent = built(&deepseek_v3), *windowed = built(&gpt_oss_120b), *dense = built(&llama_3_1_70b);
    const call made[] = {
        {.name = "deepseek-v3: 1 decode", .kernel = latent, .batch = of(1, ones)},
        {.name = "deepseek-v3: 32 decodes", .kernel = latent, .batch = of(32, ones)},
        {.name = "deepseek-v3: 256 decodes", .kernel = latent, .batch = of(256, ones)},
        {.name = "deepseek-v3: 4096 decodes", .kernel = latent, .batch = of(4096, ones)},
        {.name = "deepseek-v3: 255 decodes and a prefill", .kernel = latent, .batch = of(256, mixed)},
        {.name = "deepseek-v3: next step of 1 running decode", .kernel = latent, .state = running(1)},
        {.name = "deepseek-v3: next step of 4096 running decodes", .kernel = latent, .state = running(4096)},
        {.name = "deepseek-v3: 4096 running decodes advance and step",
         .kernel = latent,
         .state = running(4096),
         .advances = 1},
        {.name = "deepseek-v3: 1000 batches of 32 decodes", .kernel = latent, .batches = many},
        {.name = "llama-3.1-70b: 1 decode", .kernel = dense, .batch = of(1, ones)},
        {.name = "llama-3.1-70b, three times as deep: 1 decode",
         .kernel = built_deeper(&llama_3_1_70b),
         .batch = of(1, ones)},
        {.name = "llama-3.1-70b: 256 decodes", .kernel = dense, .batch = of(256, ones)},
        {.name = "gpt-oss-120b: 1 decode", .kernel = windowed, .batch = of(1, ones)},
        {.name = "gpt-oss-120b: 256 decodes", .kernel = windowed, .batch = of(256, ones)},
        {.name = "gpt-oss-120b: 255 decodes and a prefill", .kernel = windowed, .batch = of(256, mixed)},
        {.name = "gpt-oss-120b: next step of 256 running decodes", .kernel = windowed, .state = running(256)},
        {.name = "calibrated deepseek-v3: 256 decodes", .kernel = measured_latent, .batch = of(256, ones)},
        {.name = "calibrated deepseek-v3: 255 decodes and a prefill", .kernel = measured_latent, .batch = of(256, mixed)},
        {.name = "calibrated gpt-oss-120b: 255 decodes and a prefill",
         .kernel = measured_windowed,
         .batch = of(256, mixed)},
        {.name = "calibrated deepseek-v4-pro: 256 decodes", .kernel = measured_sparse, .batch = of(256, ones)},
        {.name = "calibrated deepseek-v4-pro: 255 decodes and a prefill",
         .kernel = measured_sparse,
         .batch = of(256, mixed)},
        {.name = "calibrated deepseek-v4-pro: 224 decodes and 32 prefills",
         .kernel = measured_sparse,
         .batch = of(256, burst)},
    };
    int count = (int)(sizeof made / sizeof made[0]);
    for (int i = 0; i < count; i++) calls[i] = made[i];
    return count;
}

void calls_run(const call *one) {
    static pk_estimate estimate = PK_ESTIMATE_INIT;
    static const pk_estimates results = {sizeof results, 0, overlap_ns, no_overlap_ns, per_resource_ns, bottleneck};
    pk_status status = PK_OK;
    if (one->state != NULL) {
        if (one->advances) status = pk_batch_state_advance(one->state, 1, NULL);
        if (status == PK_OK) status = pk_batch_state_step_time(one->kernel, one->state, &estimate, NULL);
    } else if (one->batches.count > 0) {
        status = pk_step_time_many(one->kernel, &one->batches, &results, NULL);
    } else {
        status = pk_step_time(one->kernel, &one->batch, &estimate, NULL);
    }
    if (status != PK_OK) exit(1);
}
