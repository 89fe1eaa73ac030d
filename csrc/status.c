/* Status names, error texts and the arithmetic that must not overflow: what every other source leans on. */
#include "laws.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t pk_version(void) { return PK_VERSION; }

int32_t pk_arithmetic_is_exact(void) {
    /* (1 + e)^2 - (1 + 2e) is e^2 exactly, but 0 once the product is rounded on its own as C asks for. The operands
     * are volatile so that the compiler cannot work it out. */
    volatile double a = 1.0 + 0x1p-30, b = -(1.0 + 0x1p-29);
    volatile double fused_or_not = a * a + b;
    return fused_or_not == 0.0;
}

const char *pk_status_name(int32_t status) {
    switch (status) {
#define PK_STATUS_NAME(name, value, text)                                                                             \
    case value:                                                                                                       \
        return #name;
        PK_STATUS_MAP(PK_STATUS_NAME)
#undef PK_STATUS_NAME
    default:
        return "UNKNOWN";
    }
}

const char *pk_status_text(int32_t status) {
    switch (status) {
#define PK_STATUS_TEXT(name, value, text)                                                                             \
    case value:                                                                                                       \
        return text;
        PK_STATUS_MAP(PK_STATUS_TEXT)
#undef PK_STATUS_TEXT
    default:
        return "not a status of this library";
    }
}

pk_status pk__fail(pk_error *error, pk_status status, const char *field, const char *format, ...) {
    if (error != NULL && error->struct_size == sizeof *error) {
        error->status = (int32_t)status;
        (void)snprintf(error->field, sizeof error->field, "%s", field);
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
    }
    return status;
}

pk_status pk__bad_struct(uint32_t struct_size, uint32_t flags, size_t size, const char *name, pk_error *error) {
    if (struct_size != size)
        return pk__fail(error, PK_STRUCT_SIZE, name, "struct_size is %u, this library knows %zu; use the _INIT macro",
                        (unsigned)struct_size, size);
    return pk__fail(error, PK_RESERVED, name, "flags are %u, must be 0", (unsigned)flags);
}

int64_t pk_nanoseconds(double seconds) { return pk__nanoseconds(seconds); }
