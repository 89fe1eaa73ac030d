/* Times each call, or makes one of them once so that another program can count what it takes.
 *
 *     time_calls          prints the name of every call and the nanoseconds of its best run, tab-separated
 *     time_calls INDEX    prints the name of that call and makes it once, or nothing when there is none
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

/* The best of several runs of some milliseconds: what the call takes when nothing else disturbs it. */
static double best_ns(const call *one) {
    double best = 1e18;
    for (int run = 0; run < 50; run++) {
        int calls = 0;
        double start = now_ns(), elapsed = 0;
        for (; elapsed < 1e6; elapsed = now_ns() - start)
            for (int i = 0; i < 50; i++, calls++) calls_run(one);
        if (elapsed / calls < best) best = elapsed / calls;
    }
    return best;
}

int main(int count, char **arguments) {
    static call calls[CALLS_MAX];
    int made = calls_make(calls);
    int only = count > 1 ? atoi(arguments[1]) : -1;
    for (int i = 0; i < made; i++) {
        if (only >= 0 && only != i) continue;
        if (only < 0) {
            printf("%s\t%.1f\n", calls[i].name, best_ns(&calls[i]));
        } else {
            printf("%s\n", calls[i].name);
            calls_run(&calls[i]);
        }
    }
    return 0;
}
