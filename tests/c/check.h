/* The smallest test harness that counts: CHECK(condition) goes on after a failure, test_core.c reports at the end. */
#ifndef CHECK_H
#define CHECK_H

#include "pykernel.h"

#define CHECK(condition) check_that((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
void check_that(int holds, const char *condition, const char *file, int line);

/* While it is not 0, the core's calloc returns NULL. */
extern int check_memory_is_out;

/* The kernel of example.h, to be freed. */
pk_kernel *check_example_kernel(void);

void test_spec(void);
void test_step(void);
void test_laws(void);
void test_image(void);
void test_memory(void);
void test_batch_state(void);

#endif
