/* What a kernel stands for, where that takes more than a look into its record: text by key, and counts. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

const char *pk_text(const pk_kernel *kernel, const char *key) {
    size_t count = key == NULL ? 0 : pk_note_count(kernel);
    for (size_t i = 0; i < count; i++) {
        pk_note note = pk_note_at(kernel, i);
        if (note.key != NULL && strcmp(note.key, key) == 0) return note.value;
    }
    return NULL;
}

/* Reads a decimal number that fills the text; false for anything else, one too large for int64_t included. */
static bool whole_number(const char *text, int64_t *number) {
    bool negative = *text == '-';
    int64_t value = 0;
    if (negative) text++;
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        int digit = *text - '0';
        if (digit < 0 || digit > 9 || value > (INT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *number = negative ? -value : value;
    return true;
}

int64_t pk_setting(const pk_kernel *kernel, const char *name, int64_t otherwise) {
    static const char places[2][9] = {"engine.", "assumed."};
    for (int i = 0; name != NULL && i < 2; i++) {
        char key[128];
        int length = snprintf(key, sizeof key, "%s%s", places[i], name);
        const char *text = length > 0 && (size_t)length < sizeof key ? pk_text(kernel, key) : NULL;
        int64_t number;
        if (text != NULL && whole_number(text, &number)) return number;
    }
    return otherwise;
}

pk_evidence pk_evidence_of(const pk_kernel *kernel) {
    static const char evident[3][12] = {"measured", "literature", "vendor_spec"};
    pk_evidence evidence = {0, (int64_t)pk_origin_count(kernel), 0};
    for (int64_t i = 0; i < evidence.total; i++) {
        pk_origin origin = pk_origin_at(kernel, (size_t)i);
        if (origin.method == NULL) continue;
        for (int j = 0; j < 3; j++) evidence.measured += strcmp(origin.method, evident[j]) == 0;
        evidence.assumed += strcmp(origin.method, "assumed") == 0;
    }
    return evidence;
}

int64_t pk_capture_tokens(const pk_kernel *kernel) { return kernel->host.capture_tokens; }
int32_t pk_uniform_graph_mode(const pk_kernel *kernel) { return kernel->host.uniform_mode; }
int32_t pk_other_graph_mode(const pk_kernel *kernel) { return kernel->host.other_mode; }
int64_t pk_decode_threshold(const pk_kernel *kernel) { return kernel->host.decode_threshold; }
int32_t pk_decode_context_ranks(const pk_kernel *kernel) { return kernel->decode_ranks; }
int32_t pk_prefill_context_ranks(const pk_kernel *kernel) { return kernel->prefill_ranks; }
