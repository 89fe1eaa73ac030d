/*
 * What the fuzz targets share: a kernel that was accepted must go on to work. use_kernel asks it everything and ends
 * the process at the first answer that breaks a promise of pykernel.h.
 */
#ifndef USE_H
#define USE_H

#include "example.h"
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition) must((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
static inline void must(int holds, const char *condition, const char *file, int line) {
    if (holds) return;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

static inline void use_estimate(const pk_estimate *estimate) {
    int64_t sum = 0;
    for (int i = 0; i < PK_RESOURCE_COUNT; i++) {
        MUST(estimate->per_resource_ns[i] >= 0);
        sum = pk__add(sum, estimate->per_resource_ns[i]);
    }
    MUST(estimate->no_overlap_ns == sum);
    MUST(estimate->overlap_ns >= 0 && estimate->overlap_ns <= sum);
    MUST(estimate->bottleneck >= 0 && estimate->bottleneck < PK_RESOURCE_COUNT);
}

static inline void use_batch(const pk_kernel *kernel, const pk_batch *batch) {
    pk_error error = PK_ERROR_INIT;
    pk_estimate estimate = PK_ESTIMATE_INIT, again = PK_ESTIMATE_INIT;
    pk_status status = pk_step_time(kernel, batch, &estimate, &error);
    MUST(status == pk_batch_check(batch, NULL));
    if (status != PK_OK) {
        MUST(error.status == (int32_t)status && error.field[0] != '\0' && error.message[0] != '\0');
        MUST(estimate.no_overlap_ns == 0);
        return;
    }
    use_estimate(&estimate);
    MUST(pk_step_time(kernel, batch, &again, NULL) == PK_OK && memcmp(&estimate, &again, sizeof again) == 0);
    size_t count = 0;
    MUST(pk_step_explain(kernel, batch, NULL, 0, &count, NULL) == PK_OK);
    pk_term *terms = calloc(count + 1, sizeof *terms);
    MUST(pk_step_explain(kernel, batch, terms, count, &count, NULL) == PK_OK);
    for (size_t i = 0; i < count; i++) MUST(terms[i].seconds > 0 && terms[i].resource < PK_RESOURCE_COUNT);
    free(terms);
}

static inline void use_memory(const pk_kernel *kernel) {
    static const int64_t amounts[] = {INT64_MIN, -1, 0, 1, 15, 1000, 131072, INT64_MAX};
    pk_memory_breakdown held = PK_MEMORY_BREAKDOWN_INIT;
    MUST(pk_fixed_bytes(kernel, &held, NULL) == PK_OK && held.weights >= 0 && held.total >= held.weights);
    MUST(pk_pre_snapshot_bytes(kernel) >= 0 && pk_sequence_fixed_bytes(kernel) >= 0);
    pk_capacity capacity = PK_CAPACITY_INIT;
    (void)pk_kv_capacity(kernel, 0, 0, 0, &capacity, NULL);
    const pk_placement here = {0, 0, 0, 0}, there = {1, 1, 0, 0};
    for (int i = 0; i < 8; i++) {
        MUST(pk_sequence_variable_bytes(kernel, amounts[i]) >= 0);
        MUST(pk_sequence_bounded_bytes(kernel, amounts[i]) >= 0);
        MUST(pk_sequence_bounded_bytes_at(kernel, amounts[i], amounts[7 - i]) >= 0);
        MUST(pk_max_tokens_for(kernel, amounts[i]) >= 0 && pk_sequences_that_fit(kernel, amounts[i], 1000) >= 0);
        MUST(pk_tier_time_ns(kernel, i - 1, PK_TO_TIER, amounts[i], amounts[7 - i]) >= 0);
        MUST(pk_pd_transfer_time_ns(kernel, amounts[i], &here, &there) >= 0);
        MUST(pk_pd_transfer_time_ns(kernel, amounts[i], &here, &here) >= 0);
        MUST(pk_admission_overhead_ns(kernel, amounts[i]) >= 0);
    }
}

static inline void use_text(const pk_kernel *kernel) {
    size_t length = 0;
    for (size_t i = 0; i < pk_origin_count(kernel); i++) length += strlen(pk_origin_at(kernel, i).scope);
    for (size_t i = 0; i < pk_override_count(kernel); i++) length += strlen(pk_override_at(kernel, i).reason);
    for (size_t i = 0; i < pk_note_count(kernel); i++) length += strlen(pk_note_at(kernel, i).value);
    MUST(length <= pk_image_size(kernel) && pk_resolved(kernel).all_reduce_backend != NULL);
    pk_evidence evidence = pk_evidence_of(kernel);
    MUST(evidence.measured + evidence.assumed <= evidence.total);
}

/* The image of a kernel loads as a kernel that equals it. */
static inline void use_image(const pk_kernel *kernel) {
    size_t size = pk_image_size(kernel);
    unsigned char *image = malloc(size);
    pk_kernel *loaded = NULL;
    MUST(pk_kernel_save(kernel, image, size, NULL, NULL) == PK_OK);
    MUST(pk_kernel_load(image, size, &loaded, NULL) == PK_OK);
    MUST(pk_kernel_size(kernel) == pk_kernel_size(loaded) && memcmp(kernel, loaded, pk_kernel_size(kernel)) == 0);
    pk_kernel_free(loaded);
    free(image);
}

static inline void use_kernel(const pk_kernel *kernel) {
    for (uint32_t seed = 0; seed < 3; seed++) {
        example_batch one;
        example_batch_make(&one, seed + 1);
        use_batch(kernel, &one.batch);
    }
    pk_batch idle = PK_BATCH_INIT;
    use_batch(kernel, &idle);
    const int64_t most[] = {1, PK_MAX_REQUEST_TOKENS / 2}, before[] = {PK_MAX_REQUEST_TOKENS - 1, 0};
    pk_batch largest = PK_BATCH_INIT;
    largest.count = 2;
    largest.scheduled = most;
    largest.computed = before;
    largest.sm_budget = 1;
    use_batch(kernel, &largest);
    use_memory(kernel);
    use_text(kernel);
    use_image(kernel);
}

/* Loads bytes as an image, from memory that ends where they end. 1 when they made a kernel, which is then used. */
static inline int use_bytes(const unsigned char *bytes, size_t size) {
    pk_kernel *const before = (pk_kernel *)(uintptr_t)8;
    pk_kernel *kernel = before;
    pk_error error = PK_ERROR_INIT;
    pk_status status = pk_kernel_load(bytes, size, &kernel, &error);
    if (status != PK_OK) {
        MUST(kernel == before && error.status == (int32_t)status);
        MUST(error.field[0] != '\0' && error.message[0] != '\0');
        return 0;
    }
    use_kernel(kernel);
    pk_kernel_free(kernel);
    return 1;
}

static inline void use_seal(unsigned char *bytes, size_t size) {
    pk__put(bytes + 16, size, 8);
    pk__put(bytes + 24, pk__checksum(bytes, size), 8);
}

#endif
