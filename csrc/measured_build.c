/* Freezes the measured part of a spec: its arrays, one behind the other, and the tables that prices are looked up in. */
#include "internal.h"

#include <string.h>

enum { PK__MAX_TABLE = 2048 };

/* Counts up to the widest graph are tabulated, within reason: beyond it a step takes milliseconds anyway. */
static uint32_t tabulated(const pk_measured *in) {
    if (in->capture_size_count == 0) return 0;
    int64_t widest = in->capture_sizes[in->capture_size_count - 1].tokens;
    return (uint32_t)pk__min(widest, PK__MAX_TABLE);
}

/* The tables behind the arrays. */
#define PK__MEASURED_TABLES(X)                                                                                        \
    X(dense, pk__work, (size_t)spec->measured.capture_size_count * pk__all_layers(spec))                              \
    X(routed, pk__work, ((size_t)tabulated(&spec->measured) + 1) * spec->experts_count)                               \
    X(headed, pk__work, (size_t)tabulated(&spec->measured) + 1)                                                       \
    X(prepared, pk__matrix, spec->measured.matrix_count)                                                              \
    X(collective_twins, uint32_t, spec->collective_count)                                                             \
    X(matrix_twins, uint32_t, spec->measured.matrix_count)                                                            \
    X(attention_twins, uint32_t, spec->attention_count)                                                               \
    X(expert_twins, uint32_t, spec->experts_count)

size_t pk__measured_size(const pk_spec *spec) {
    if (!spec->measured.present) return 0;
    size_t size = pk__aligned(sizeof(pk__measured));
#define PK__ADD(member, type, number) size = pk__aligned(size + (number) * sizeof(type));
    PK__MEASURED_ARRAYS(PK__ADD)
    PK__MEASURED_TABLES(PK__ADD)
#undef PK__ADD
    return size;
}

void pk__fold_measured(const pk_spec *spec, pk__measured *out) {
    const pk_measured *in = &spec->measured;
    unsigned char *block = (unsigned char *)out;
    size_t at = pk__aligned(sizeof *out);
    out->host = in->host;
    out->head_matrix = in->head_matrix;
    out->gather_law = in->gather_law;
    out->bytes_per_second = in->bytes_per_second;
    out->sms = spec->sm_count > 0 ? spec->sm_count : 1;
    out->capture_size_count = in->capture_size_count;
#define PK__COPY(member, type, number)                                                                                \
    out->member##_at = (uint32_t)at;                                                                                  \
    if ((number) > 0) memcpy(block + at, in->member, (number) * sizeof(type));                                        \
    at = pk__aligned(at + (number) * sizeof(type));
    PK__MEASURED_ARRAYS(PK__COPY)
#undef PK__COPY
    out->tabulated = tabulated(in);
    out->expert_sets = spec->experts_count;
    out->matrix_count = in->matrix_count;
    out->attention_count = spec->attention_count;
    out->collective_count = spec->collective_count;
#define PK__PLACE(member, type, number)                                                                               \
    out->member##_at = (uint32_t)at;                                                                                  \
    at = pk__aligned(at + (number) * sizeof(type));
    PK__MEASURED_TABLES(PK__PLACE)
#undef PK__PLACE
}
