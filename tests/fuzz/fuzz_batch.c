/* Fuzz target: batch pricing on the example kernel. The bytes are the settings, then two numbers a request. */
#include "use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static pk_kernel *kernel;
    enum { SETTINGS = 32, MOST = 256 };
    int64_t settings[4], scheduled[MOST], computed[MOST];
    if (size < SETTINGS) return 0;
    if (kernel == NULL) {
        example e;
        example_make(&e);
        MUST(pk_kernel_new(&e.spec, &kernel, NULL) == PK_OK);
    }
    memcpy(settings, data, sizeof settings);
    pk_batch batch = PK_BATCH_INIT;
    for (size_t at = SETTINGS; at + 16 <= size && batch.count < MOST; at += 16, batch.count++) {
        memcpy(&scheduled[batch.count], data + at, 8);
        memcpy(&computed[batch.count], data + at + 8, 8);
    }
    batch.scheduled = scheduled;
    batch.computed = computed;
    batch.prompt_len = settings[3] & 1 ? computed : NULL;
    batch.cached_tokens = settings[3] & 2 ? scheduled : NULL;
    batch.decode_threshold = settings[0];
    batch.sm_budget = settings[1];
    batch.pad_tokens = settings[2];
    use_batch(kernel, &batch);
    return 0;
}
