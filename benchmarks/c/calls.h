/* The hot calls that are measured: a name and a closure each, shared by the program that times them and the one whose
 * instructions are counted. */
#ifndef CALLS_H
#define CALLS_H

#include "pykernel.h"

typedef struct call {
    const char *name;
    const pk_kernel *kernel;
    pk_batch batch;
} call;

enum { CALLS_MAX = 32 };

/* Makes every call of the suite; returns how many. They live as long as the process. */
int calls_make(call calls[CALLS_MAX]);

#endif
