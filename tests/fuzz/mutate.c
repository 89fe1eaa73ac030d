/*
 * Random damage to valid images: mutate COUNT SEED [IMAGE...]. Each round changes an image (the example's, or one of the
 * files) in one to eight places; every second one gets a right checksum again, so that the checks of its contents decide
 * what becomes of it. Prints how many were refused and how many made a kernel.
 */
#include "use.h"

enum { MOST = 1 << 20 };

static uint64_t state;

static uint64_t random_bits(void) { /* xorshift64, Marsaglia 2003 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}
static size_t below(size_t bound) { return (size_t)((random_bits() >> 16) % bound); }

static size_t example_image(unsigned char *bytes) {
    example e;
    example_make(&e);
    pk_kernel *kernel = NULL;
    size_t size = 0;
    MUST(pk_kernel_new(&e.spec, &kernel, NULL) == PK_OK);
    MUST(pk_kernel_save(kernel, bytes, MOST, &size, NULL) == PK_OK);
    pk_kernel_free(kernel);
    return size;
}

static size_t read_image(const char *path, unsigned char *bytes) {
    FILE *file = fopen(path, "rb");
    MUST(file != NULL);
    size_t size = fread(bytes, 1, MOST, file);
    (void)fclose(file);
    return size;
}

/* Values that are at the edge of something more often than random ones are. */
static uint64_t odd_value(void) {
    static const uint64_t edges[] = {0,          1,          2,          0x7fffffff,         0x80000000,         0xffffffff,
                                     UINT64_MAX, (uint64_t)INT64_MAX,    0x7ff0000000000000, 0x7ff8000000000000, 0x3ff0000000000000,
                                     0x8000000000000000, 0x7fefffffffffffff, 4096,           4097,               15};
    return below(3) == 0 ? random_bits() : edges[below(EXAMPLE_COUNT(edges))];
}

/* One change; returns the size after it. */
static size_t damage(unsigned char *bytes, size_t size) {
    size_t at = below(size), length = 1 + below(16);
    if (at + length > size) length = size - at;
    switch (below(7)) {
    case 0: bytes[at] ^= (unsigned char)(1u << below(8)); return size;
    case 1: bytes[at] = (unsigned char)random_bits(); return size;
    case 2: /* a word */
        at = at / 4 * 4;
        if (at + 8 <= size) pk__put(bytes + at, odd_value(), below(2) ? 4 : 8);
        return size;
    case 3: memmove(bytes + at, bytes + at + length, size - at - length); return size - length;
    case 4: /* doubled */
        if (size + length > MOST) return size;
        memmove(bytes + at + length, bytes + at, size - at);
        return size + length;
    case 5: memset(bytes + at, 0, length); return size;
    default: return 40 + below(size - 40 > 0 ? size - 40 : 1) < size ? size - below(8) : size;
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long long count = atoll(argv[1]), kept = 0;
    state = (uint64_t)atoll(argv[2]) * 2654435761u + 88172645463325252u;
    unsigned char *original = malloc(MOST), *work = malloc(MOST);
    for (long long round = 0; round < count; round++) {
        int images = argc - 3;
        size_t pick = below((size_t)images + 4), size;
        size = (int)pick < images ? read_image(argv[3 + pick], original) : example_image(original);
        memcpy(work, original, size);
        for (size_t changes = 1 + below(1 + below(8)); changes > 0 && size > 48; changes--) size = damage(work, size);
        if (round % 2 == 0) use_seal(work, size);
        unsigned char *exact = malloc(size);
        memcpy(exact, work, size);
        int unchanged = size == pk__get(original + 16, 8) && memcmp(original, exact, size) == 0;
        int made = use_bytes(exact, size);
        MUST(round % 2 == 0 || !made || unchanged);
        kept += made;
        free(exact);
    }
    free(original);
    free(work);
    printf("%lld refused, %lld made a kernel\n", count - kept, kept);
    return 0;
}
