/* What the Python extension has beside the public header; pykernel/_ffi_build.py compiles it in and declares it to cffi.
 *
 * Pricing from Python is faster through calls made for it: one argument takes half the time of four, and an array of
 * numbers is made sooner than a struct. A model in a shared library is opened here because cffi's API mode finds
 * functions only when it compiles. */
#ifndef PYKERNEL_BINDING_PYTHON_H
#define PYKERNEL_BINDING_PYTHON_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "pykernel.h"

/* A batch or a running batch, the other NULL, and its price: both bounds, the bottleneck, each resource's share. */
typedef struct pykernel_call {
    int64_t values[3 + PK_RESOURCE_COUNT];
    const pk_kernel *kernel;
    const pk_batch *batch;
    pk_batch_state *state;
} pykernel_call;

static void flatten(const pk_estimate *estimate, int64_t *values) {
    values[0] = estimate->overlap_ns;
    values[1] = estimate->no_overlap_ns;
    values[2] = estimate->bottleneck;
    for (int i = 0; i < PK_RESOURCE_COUNT; i++) values[3 + i] = estimate->per_resource_ns[i];
}

static int32_t pykernel_price_batch(const pk_kernel *kernel, const pk_batch *batch, int64_t *values) {
    pk_estimate estimate = PK_ESTIMATE_INIT;
    pk_status status = pk_step_time(kernel, batch, &estimate, NULL);
    if (status == PK_OK) flatten(&estimate, values);
    return (int32_t)status;
}

static int32_t pykernel_price(pykernel_call *call) {
    if (call->state == NULL) return pykernel_price_batch(call->kernel, call->batch, call->values);
    pk_estimate estimate = PK_ESTIMATE_INIT;
    pk_status status = pk_batch_state_step_time(call->kernel, call->state, &estimate, NULL);
    if (status == PK_OK) flatten(&estimate, call->values);
    return (int32_t)status;
}

/* The `pk_model_open` of a shared library, which stays loaded; NULL with a message when there is none. */
static pk_model_open_function pykernel_open_library(const char *path, char *message, size_t size) {
    pk_model_open_function open = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = NULL;
    if (library == NULL) {
        const char *reason = dlerror();
        snprintf(message, size, "cannot be loaded: %s", reason == NULL ? "no reason is given" : reason);
        return NULL;
    }
    symbol = dlsym(library, "pk_model_open");
    if (symbol == NULL) {
        snprintf(message, size, "has no function pk_model_open, by which pykernel.h finds a model");
        dlclose(library);
        return NULL;
    }
    memcpy(&open, &symbol, sizeof open); /* ISO C has no conversion from an object's address to a function's */
    return open;
}

#endif
