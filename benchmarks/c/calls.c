/* Kernels of real deployments, from the generated specs.h, and the batches that they price. */
#include "calls.h"

#include "specs.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4096, CONTEXT = 4096 };
static int64_t ones[MOST], contexts[MOST], mixed[MOST];

static pk_kernel *built(const pk_spec *spec) {
    pk_kernel *kernel = NULL;
    pk_error error = PK_ERROR_INIT;
    if (pk_kernel_new(spec, &kernel, &error) == PK_OK) return kernel;
    fprintf(stderr, "a benchmark's spec is refused: %s: %s\n", error.field, error.message);
    exit(1);
}

static pk_batch of(int64_t count, const int64_t *scheduled) {
    pk_batch batch = PK_BATCH_INIT;
    batch.count = count;
    batch.scheduled = scheduled;
    batch.computed = contexts;
    return batch;
}

/* The same kinds of layers, each three times as often. */
static pk_kernel *built_deeper(const pk_spec *spec) {
    pk_layer *layers = malloc(spec->layer_count * sizeof *layers);
    if (layers == NULL) exit(1);
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        layers[i] = spec->layers[i];
        layers[i].count *= 3;
    }
    pk_spec deeper = *spec;
    deeper.layers = layers;
    deeper.host.layers *= 3;
    deeper.host.segments *= 3;
    pk_kernel *kernel = built(&deeper);
    free(layers);
    return kernel;
}

int calls_make(call calls[CALLS_MAX]) {
    for (int i = 0; i < MOST; i++) {
        ones[i] = 1;
        contexts[i] = CONTEXT - 1 - i % 97;
        mixed[i] = i == 7 ? 512 : 1;
    }
    const pk_kernel *latent = built(&deepseek_v3), *windowed = built(&gpt_oss_120b), *dense = built(&llama_3_1_70b);
    const call made[] = {
        {"deepseek-v3, 1 decode", latent, of(1, ones)},
        {"deepseek-v3, 32 decodes", latent, of(32, ones)},
        {"deepseek-v3, 256 decodes", latent, of(256, ones)},
        {"deepseek-v3, 4096 decodes", latent, of(4096, ones)},
        {"deepseek-v3, 255 decodes and a prefill", latent, of(256, mixed)},
        {"llama-3.1-70b, 1 decode", dense, of(1, ones)},
        {"llama-3.1-70b of three times the layers, 1 decode", built_deeper(&llama_3_1_70b), of(1, ones)},
        {"llama-3.1-70b, 256 decodes", dense, of(256, ones)},
        {"gpt-oss-120b, 1 decode", windowed, of(1, ones)},
        {"gpt-oss-120b, 256 decodes", windowed, of(256, ones)},
        {"gpt-oss-120b, 255 decodes and a prefill", windowed, of(256, mixed)},
    };
    int count = (int)(sizeof made / sizeof made[0]);
    for (int i = 0; i < count; i++) calls[i] = made[i];
    return count;
}
