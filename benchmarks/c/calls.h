/* The hot calls that are measured, each a name and what it is called with; for programs that time them or have their
 * instructions counted. */
#ifndef CALLS_H
#define CALLS_H

#include "pykernel.h"

/* Of the last three, the one that is not NULL or empty decides which function is called. */
typedef struct call {
    const char *name;
    const pk_kernel *kernel;
    pk_batch batch;         /* pk_step_time */
    pk_batch_state *state;  /* pk_batch_state_step_time, and where it advances, pk_batch_state_advance before it */
    int advances;
    pk_batches batches;     /* pk_step_time_many */
} call;

enum { CALLS_MAX = 32 };

/* Makes every call of the suite; returns how many. They live as long as the process. */
int calls_make(call calls[CALLS_MAX]);

/* Makes one call; ends the process when it fails. */
void calls_run(const call *one);

#endif
