/* Times each call, or makes one of them once so that another program can count what it takes.
 *
 *     time_calls          prints the name of every call and the nanoseconds of its best run, tab-separated
 *     time_calls INDEX    makes that call ONCE; callgrind counts what happens inside it
 */
#define _POSIX_C_SOURCE 199309L
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static pk_estimate estimate = PK_ESTIMATE_INIT;

static void make(const call *one) {
    if (pk_step_time(one->kernel, &one->batch, &estimate, NULL) != PK_OK) exit(1);
}

/* The best of several runs of some milliseconds: what the call takes when nothing else disturbs it. */
static double best_ns(const call *one) {
    double best = 1e18;
    for (int run = 0; run < 20; run++) {
        int calls = 0;
        double start = now_ns(), elapsed = 0;
        for (; elapsed < 2e6; elapsed = now_ns() - start)
            for (int i = 0; i < 100; i++, calls++) make(one);
        if (elapsed / calls < best) best = elapsed / calls;
    }
    return best;
}

int main(int count, char **arguments) {
    static call calls[CALLS_MAX];
    int made = calls_make(calls);
    int only = count > 1 ? atoi(arguments[1]) : -1;
    for (int i = 0; i < made; i++) {
        if (only == i) {
            make(&calls[i]);
            printf("%s\n", calls[i].name);
        } else if (only < 0) {
            printf("%s\t%.1f\n", calls[i].name, best_ns(&calls[i]));
        }
    }
    return 0;
}
