/*
 * Loads a kernel that `pykernel compile` wrote, prices one step of it, and prints where the time goes.
 *
 *     pykernel compile deepseek-v3-h200-fp8-tp8 -o kernel.pkk
 *     cc embed.c $(pykernel --cflags --libs) -o embed && ./embed kernel.pkk
 */
#include <pykernel.h>

#include <inttypes.h>
#include <stdio.h>

static const char *const NAMES[PK_RESOURCE_COUNT] = {"sm", "hbm", "nvlink", "nic", "pcie", "copy_engine", "host"};

static int failed(const pk_error *error) {
    fprintf(stderr, "%s: %s\n", pk_status_name(error->status), error->message);
    return 1;
}

static void print_estimate(const pk_estimate *estimate) {
    printf("overlap     %" PRId64 " ns\n", estimate->overlap_ns);
    printf("no overlap  %" PRId64 " ns\n", estimate->no_overlap_ns);
    for (int i = 0; i < PK_RESOURCE_COUNT; i++)
        if (estimate->per_resource_ns[i] > 0)
            printf("  %-10s%" PRId64 " ns%s\n", NAMES[i], estimate->per_resource_ns[i],
                   i == estimate->bottleneck ? "  (bottleneck)" : "");
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: embed KERNEL.pkk\n");
        return 2;
    }
    pk_error error = PK_ERROR_INIT;
    pk_kernel *kernel = NULL;
    if (pk_kernel_load_file(argv[1], &kernel, &error) != PK_OK) return failed(&error);

    const char *model = pk_text(kernel, "model"), *chip = pk_text(kernel, "chip");
    pk_evidence evidence = pk_evidence_of(kernel);
    printf("%s on %s, %" PRId64 " of %" PRId64 " numbers with evidence\n", model != NULL ? model : "a model",
           chip != NULL ? chip : "a part", evidence.measured, evidence.total);

    /* Three requests: two that decode, and one with the first 512 tokens of its prompt. */
    const int64_t scheduled[] = {1, 1, 512}, computed[] = {4095, 812, 0};
    pk_batch batch = PK_BATCH_INIT;
    batch.count = 3;
    batch.scheduled = scheduled;
    batch.computed = computed;
    batch.decode_threshold = pk_decode_threshold(kernel);

    pk_estimate estimate = PK_ESTIMATE_INIT;
    pk_status status = pk_step_time(kernel, &batch, &estimate, &error);
    if (status == PK_OK) print_estimate(&estimate);
    pk_kernel_free(kernel);
    return status == PK_OK ? 0 : failed(&error);
}
