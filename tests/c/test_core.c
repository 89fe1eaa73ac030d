/*
 * The contract of pykernel.h, from C: ownership, errors, untouched results, purity. The prices themselves are tested
 * from Python; here is what only C sees, and what sanitizers with leak detection need a program without Python for.
 * test_c_core.py compiles test_*.c with the core's sources, and with calloc wrapped so that it can be made to fail.
 */
#include "check.h"
#include "example.h"

#include <stdio.h>
#include <stdlib.h>

static int passed, failed;
int check_memory_is_out;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) { return check_memory_is_out ? NULL : __real_calloc(count, size); }

void check_that(int holds, const char *condition, const char *file, int line) {
    if (holds) {
        passed++;
    } else {
        failed++;
        printf("%s:%d: does not hold: %s\n", file, line, condition);
    }
}

pk_kernel *check_example_kernel(void) {
    example e;
    example_make(&e);
    pk_kernel *kernel = NULL;
    pk_error error = PK_ERROR_INIT;
    if (pk_kernel_new(&e.spec, &kernel, &error) != PK_OK) {
        printf("the example is refused: %s: %s\n", error.field, error.message);
        exit(1);
    }
    return kernel;
}

int main(void) {
    test_spec();
    test_step();
    test_laws();
    test_image();
    test_memory();
    test_batch_state();
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
