/* Fuzz target: the image loader, on the bytes as they are and once more with a right checksum. */
#include "use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    (void)use_bytes(data, size);
    if (size < 40) return 0;
    unsigned char *sealed = malloc(size);
    memcpy(sealed, data, size);
    use_seal(sealed, size);
    (void)use_bytes(sealed, size);
    free(sealed);
    return 0;
}
