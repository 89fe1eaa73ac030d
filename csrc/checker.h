/* What checks of a spec share: the first fault found is kept, with the name of its field. */
#ifndef PYKERNEL_CHECKER_H
#define PYKERNEL_CHECKER_H

#include "internal.h"

#include <stdio.h>

/* Where a check stands: the element of the spec it is looking at, and the first fault. */
typedef struct checker {
    pk_error *error;
    pk_status status;
    char place[64]; /* "layers[2].", empty at the top */
} checker;

static inline void enter(checker *check, const char *array, uint32_t index) {
    (void)snprintf(check->place, sizeof check->place, "%s[%u].", array, (unsigned)index);
}

static inline void enter_part(checker *check, const char *part) {
    (void)snprintf(check->place, sizeof check->place, "%s.", part);
}

static inline void leave(checker *check) { check->place[0] = '\0'; }

static inline void field_name(const checker *check, const char *field, char *name, size_t size) {
    (void)snprintf(name, size, "%s%s", check->place, field);
}

static inline void integer_in(checker *check, const char *field, int64_t value, int64_t low, int64_t high) {
    if (check->status != PK_OK || (value >= low && value <= high)) return;
    char name[96];
    field_name(check, field, name, sizeof name);
    check->status = pk__fail(check->error, PK_SPEC_VALUE, name, "%s is %lld, accepted is %lld to %lld", name,
                             (long long)value, (long long)low, (long long)high);
}

/* Written so that NaN fails. */
static inline void number_in(checker *check, const char *field, double value, double low, double high) {
    if (check->status != PK_OK || (value >= low && value <= high)) return;
    char name[96];
    field_name(check, field, name, sizeof name);
    check->status = pk__fail(check->error, PK_SPEC_VALUE, name, "%s is %g, accepted is %g to %g", name, value, low, high);
}

static inline void positive(checker *check, const char *field, double value) { number_in(check, field, value, 1e-30, 1e30); }
static inline void not_negative(checker *check, const char *field, double value) { number_in(check, field, value, 0, 1e30); }
static inline void count(checker *check, const char *field, int64_t value) { integer_in(check, field, value, 1, INT32_MAX); }
static inline void flag(checker *check, const char *field, int64_t value) { integer_in(check, field, value, 0, 1); }
static inline void unused(checker *check, const char *field, int64_t value) { integer_in(check, field, value, 0, 0); }

/* A floor or launch cost: up to 1,000 seconds. */
static inline void duration(checker *check, const char *field, int64_t value) {
    integer_in(check, field, value, 0, 1000000000000);
}

static inline void law_in(checker *check, const char *field, uint32_t law, uint32_t known) {
    if (check->status != PK_OK || (law >= 1 && law <= known)) return;
    char name[96];
    field_name(check, field, name, sizeof name);
    check->status = pk__fail(check->error, PK_SPEC_LAW, name, "%s is %u, this library knows 1 to %u", name,
                             (unsigned)law, (unsigned)known);
}

static inline void index_in(checker *check, const char *field, uint32_t index, uint32_t size) {
    if (check->status != PK_OK || index < size) return;
    char name[96];
    field_name(check, field, name, sizeof name);
    check->status = pk__fail(check->error, PK_SPEC_INDEX, name, "%s is %u, the array has %u entries", name,
                             (unsigned)index, (unsigned)size);
}

static inline void range_in(checker *check, const char *field, uint32_t first, uint32_t number, uint32_t size) {
    if (check->status != PK_OK || (number <= size && first <= size - number)) return;
    char name[96];
    field_name(check, field, name, sizeof name);
    check->status = pk__fail(check->error, PK_SPEC_INDEX, name, "%s is %u and its count %u, the array has %u entries",
                             name, (unsigned)first, (unsigned)number, (unsigned)size);
}

/* An array of `number` elements; large models have a few dozen, so the limit only catches rubbish. */
static inline void array(checker *check, const char *field, const void *first, uint32_t number) {
    if (check->status != PK_OK) return;
    if (number > PK__MAX_ARRAY)
        check->status = pk__fail(check->error, PK_SPEC_LIMIT, field, "%s has %u entries, at most %d are accepted", field,
                                 (unsigned)number, PK__MAX_ARRAY);
    else if (number > 0 && first == NULL)
        check->status = pk__fail(check->error, PK_NULL_ARGUMENT, field, "%s is NULL for %u entries", field,
                                 (unsigned)number);
}

#endif
