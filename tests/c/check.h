/* The smallest test harness that counts: CHECK(condition) goes on after a failure, check_report() ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int check_passed, check_failed;

#define CHECK(condition) check_that((condition) ? 1 : 0, #condition, __FILE__, __LINE__)

static inline void check_that(int holds, const char *condition, const char *file, int line) {
    if (holds) {
        check_passed++;
    } else {
        check_failed++;
        printf("%s:%d: does not hold: %s\n", file, line, condition);
    }
}

static inline int check_report(void) {
    printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed > 0;
}

#endif
