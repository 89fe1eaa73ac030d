/* Many answers in one call, each as the function of one gives it; what is spared are calls and their arguments. */
#include "laws.h"

#include <stdio.h>
#include <string.h>

static pk_batch one_of(const pk_batches *batches, int64_t i) {
    int64_t first = batches->offsets[i];
    return (pk_batch){
        .struct_size = sizeof(pk_batch),
        .count = batches->offsets[i + 1] - first,
        .scheduled = batches->scheduled + first,
        .computed = batches->computed + first,
        .decode_threshold = batches->decode_threshold,
        .sm_budget = batches->sm_budget,
        .pad_tokens = batches->pad_tokens,
    };
}

static pk_status check_offsets(const pk_batches *batches, pk_error *error) {
    int64_t before = 0;
    for (int64_t i = 0; i <= batches->count; i++) {
        int64_t offset = batches->offsets[i];
        if (offset < before) {
            char field[64];
            (void)snprintf(field, sizeof field, "batches.offsets[%lld]", (long long)i);
            return pk__fail(error, PK_ARGUMENT, field, "the offset is %lld, after one of %lld; none may be less",
                            (long long)offset, (long long)before);
        }
        before = offset;
    }
    return PK_OK;
}

static pk_status check_arguments(const pk_kernel *kernel, const pk_batches *batches, const pk_estimates *estimates,
                                 pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (batches == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "batches", "batches is NULL");
    if (estimates == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "estimates", "estimates is NULL");
    pk_status status = pk__check_struct(batches->struct_size, batches->flags, sizeof *batches, "batches", error);
    if (status != PK_OK) return status;
    status = pk__check_struct(estimates->struct_size, estimates->flags, sizeof *estimates, "estimates", error);
    if (status != PK_OK) return status;
    if (batches->count < 0)
        return pk__fail(error, PK_ARGUMENT, "batches.count", "count is %lld, must be >= 0", (long long)batches->count);
    if (batches->count == 0) return PK_OK;
    if (batches->offsets == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "batches.offsets", "offsets is NULL");
    return check_offsets(batches, error);
}

/* PK_OK without looking at each batch when all requests together are within the limits of one. */
static bool all_are_ordinary(const pk_batches *batches) {
    int64_t first = batches->offsets[0], end = batches->offsets[batches->count];
    if (end - first > PK_MAX_REQUESTS || batches->scheduled == NULL || batches->computed == NULL) return false;
    if (batches->decode_threshold < 0 || batches->pad_tokens < 0 || batches->pad_tokens > PK_MAX_BATCH_TOKENS)
        return false;
    const int64_t *restrict scheduled = batches->scheduled + first, *restrict computed = batches->computed + first;
    uint64_t any = 0, tokens = (uint64_t)batches->pad_tokens;
    for (int64_t i = 0, count = end - first; i < count; i++) {
        any |= (uint64_t)scheduled[i] | (uint64_t)computed[i];
        tokens += (uint64_t)scheduled[i];
    }
    return any >> 29 == 0 && tokens <= PK_MAX_BATCH_TOKENS;
}

/* The first batch at fault is named by its index. */
static pk_status check_each(const pk_batches *batches, pk_error *error) {
    for (int64_t i = 0; i < batches->count; i++) {
        pk_batch batch = one_of(batches, i);
        pk_error found = PK_ERROR_INIT;
        pk_status status = pk_batch_check(&batch, &found);
        if (status == PK_OK) continue;
        char field[sizeof found.field];
        (void)snprintf(field, sizeof field, "batches[%lld]%.48s", (long long)i, found.field + strlen("batch"));
        return pk__fail(error, status, field, "%s", found.message);
    }
    return PK_OK;
}

static void store(const pk_estimate *estimate, const pk_estimates *out, int64_t i) {
    if (out->overlap_ns != NULL) out->overlap_ns[i] = estimate->overlap_ns;
    if (out->no_overlap_ns != NULL) out->no_overlap_ns[i] = estimate->no_overlap_ns;
    if (out->bottleneck != NULL) out->bottleneck[i] = (int8_t)estimate->bottleneck;
    if (out->per_resource_ns != NULL)
        memcpy(out->per_resource_ns + i * PK_RESOURCE_COUNT, estimate->per_resource_ns,
               sizeof estimate->per_resource_ns);
}

pk_status pk_step_time_many(const pk_kernel *kernel, const pk_batches *batches, const pk_estimates *estimates,
                            pk_error *error) {
    pk_status status = check_arguments(kernel, batches, estimates, error);
    if (status != PK_OK || batches->count == 0) return status;
    if (!all_are_ordinary(batches)) {
        status = check_each(batches, error);
        if (status != PK_OK) return status;
    }
    for (int64_t i = 0; i < batches->count; i++) {
        pk_batch batch = one_of(batches, i);
        pk__sums sums;
        pk_estimate estimate = PK_ESTIMATE_INIT;
        status = pk__scan_batch(&batch, kernel, &sums, error);
        if (status != PK_OK) return status; /* only when another thread edits the arrays */
        pk__price(kernel, &batch, &sums, &estimate);
        store(&estimate, estimates, i);
    }
    return PK_OK;
}

/* ---- sequences and transfers --------------------------------------------------------------------------------- */

static pk_status check_arrays(const pk_kernel *kernel, int64_t count, const int64_t *in, const int64_t *out,
                              const char *out_name, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (count < 0) return pk__fail(error, PK_ARGUMENT, "count", "count is %lld, must be >= 0", (long long)count);
    if (count == 0 || (in != NULL && out != NULL)) return PK_OK;
    const char *missing = in == NULL ? "tokens" : out_name;
    return pk__fail(error, PK_NULL_ARGUMENT, missing, "%s is NULL for %lld entries", missing, (long long)count);
}

pk_status pk_sequence_variable_bytes_many(const pk_kernel *kernel, int64_t count, const int64_t *tokens,
                                          int64_t *bytes, pk_error *error) {
    pk_status status = check_arrays(kernel, count, tokens, bytes, "bytes", error);
    if (status != PK_OK) return status;
    for (int64_t i = 0; i < count; i++) bytes[i] = pk_sequence_variable_bytes(kernel, tokens[i]);
    return PK_OK;
}

pk_status pk_pd_transfer_time_many(const pk_kernel *kernel, int64_t count, const int64_t *tokens,
                                   const pk_placement *source, const pk_placement *target, int64_t *times_ns,
                                   pk_error *error) {
    pk_status status = check_arrays(kernel, count, tokens, times_ns, "times_ns", error);
    if (status != PK_OK) return status;
    if (source == NULL || target == NULL) {
        const char *missing = source == NULL ? "source" : "target";
        return pk__fail(error, PK_NULL_ARGUMENT, missing, "%s is NULL", missing);
    }
    for (int64_t i = 0; i < count; i++) times_ns[i] = pk_pd_transfer_time_ns(kernel, tokens[i], source, target);
    return PK_OK;
}
