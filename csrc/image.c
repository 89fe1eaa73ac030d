/*
 * The image of a kernel: the header that seals a record (record.c), in memory and in a file. All numbers are
 * little-endian:
 *
 *    0  8 bytes  magic
 *    8  u32      format, PK_IMAGE_FORMAT
 *   12  u32      byte order, the bytes 4 3 2 1
 *   16  u64      size of the whole image
 *   24  u64      checksum of every byte but these eight
 *   32  u32      pk_version of the library that wrote it, for people
 *   36  u32      0
 *   40  ...      the record
 *
 * The magic holds a byte above 127, a line end of each kind and an end-of-file, so that a transfer that takes it for
 * text is noticed at once, as in PNG.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 40, CHECKSUM_AT = 24, BYTE_ORDER_MARK = 0x01020304 };

static const unsigned char magic[8] = {0x89, 'P', 'K', 'K', '\r', '\n', 0x1a, '\n'};

/* Every eight bytes are taken in by a step that is one-to-one in the state and in the bytes: damage within one word
 * always changes the result, any other but with a chance of 2^-64. */
uint64_t pk__checksum(const unsigned char *bytes, size_t size) {
    uint64_t state = (uint64_t)size ^ 0x9e3779b97f4a7c15u; /* the golden ratio, an odd number without a pattern */
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = i == CHECKSUM_AT ? 0 : pk__get(bytes + i, size - i < 8 ? size - i : 8);
        state = (state ^ word) * 0xff51afd7ed558ccdu; /* odd, as in the finisher of MurmurHash3 */
        state ^= state >> 32;
    }
    return state;
}

size_t pk_image_size(const pk_kernel *kernel) { return kernel == NULL ? 0 : HEADER + (size_t)kernel->record_size; }

pk_status pk_kernel_save(const pk_kernel *kernel, void *memory, size_t capacity, size_t *size, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (memory == NULL && capacity > 0)
        return pk__fail(error, PK_NULL_ARGUMENT, "memory", "memory is NULL with a capacity of %zu", capacity);
    size_t needed = pk_image_size(kernel);
    if (size != NULL) *size = needed;
    if (capacity < needed)
        return pk__fail(error, PK_BUFFER, "capacity", "capacity is %zu, the image has %zu bytes", capacity, needed);
    unsigned char *image = memory;
    memcpy(image, magic, sizeof magic);
    pk__put(image + 8, PK_IMAGE_FORMAT, 4);
    pk__put(image + 12, BYTE_ORDER_MARK, 4);
    pk__put(image + 16, needed, 8);
    pk__put(image + CHECKSUM_AT, 0, 8);
    pk__put(image + 32, PK_VERSION, 4);
    pk__put(image + 36, 0, 4);
    memcpy(image + HEADER, pk__at(kernel, kernel->record_at), kernel->record_size);
    pk__put(image + CHECKSUM_AT, pk__checksum(image, needed), 8);
    return PK_OK;
}

static pk_status check_header(const unsigned char *image, size_t size, pk_error *error) {
    size_t seen = size < sizeof magic ? size : sizeof magic;
    if (size == 0 || memcmp(image, magic, seen) != 0)
        return pk__fail(error, PK_IMAGE_FOREIGN, "image.magic", "the image.magic is none; this is no kernel image");
    if (size < HEADER)
        return pk__fail(error, PK_IMAGE_SIZE, "image.size", "the image.size is %zu bytes, the header alone has %d", size,
                        HEADER);
    uint64_t format = pk__get(image + 8, 4), stated = pk__get(image + 16, 8);
    if (pk__get(image + 12, 4) != BYTE_ORDER_MARK)
        return pk__fail(error, PK_IMAGE_VERSION, "image.byte_order", "the image.byte_order is none that is read");
    if (format != PK_IMAGE_FORMAT)
        return pk__fail(error, PK_IMAGE_VERSION, "image.format",
                        "the image.format is %llu, this library reads %d; compile the scenario again, or use a library "
                        "as new as the one that wrote it",
                        (unsigned long long)format, PK_IMAGE_FORMAT);
    if (stated != size)
        return pk__fail(error, PK_IMAGE_SIZE, "image.size", "the image.size is stated as %llu bytes, found are %zu",
                        (unsigned long long)stated, size);
    if (pk__get(image + CHECKSUM_AT, 8) != pk__checksum(image, size))
        return pk__fail(error, PK_IMAGE_CHECKSUM, "image.checksum", "the image.checksum is wrong; the image is damaged");
    if (pk__get(image + 36, 4) != 0)
        return pk__fail(error, PK_IMAGE_LAYOUT, "image.reserved", "image.reserved is not 0");
    return PK_OK;
}

pk_status pk_kernel_load(const void *memory, size_t size, pk_kernel **kernel, pk_error *error) {
    if (memory == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "memory", "memory is NULL");
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    pk_status status = check_header(memory, size, error);
    if (status != PK_OK) return status;
    pk_spec spec;
    void *arrays;
    status = pk__record_read((const unsigned char *)memory + HEADER, size - HEADER, &spec, &arrays, error);
    if (status == PK_OK) status = pk_kernel_new(&spec, kernel, error);
    free(arrays);
    return status;
}

/* ---- files --------------------------------------------------------------------------------------------------- */

static pk_status file_failed(pk_error *error, const char *path, const char *what) {
    return pk__fail(error, PK_FILE, "path", "path: %s cannot be %s: %s", path, what, strerror(errno));
}

pk_status pk_kernel_save_file(const pk_kernel *kernel, const char *path, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (path == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "path", "path is NULL");
    size_t size = pk_image_size(kernel);
    void *image = calloc(1, size);
    if (image == NULL) return pk__fail(error, PK_NO_MEMORY, "image", "%zu bytes could not be allocated", size);
    pk_status status = pk_kernel_save(kernel, image, size, NULL, error);
    FILE *file = status == PK_OK ? fopen(path, "wb") : NULL;
    if (status == PK_OK && file == NULL) status = file_failed(error, path, "written");
    if (file != NULL) {
        bool written = fwrite(image, 1, size, file) == size;
        if (fclose(file) != 0 || !written) {
            status = file_failed(error, path, "written");
            (void)remove(path);
        }
    }
    free(image);
    return status;
}

/* The whole of a file; *bytes is the caller's to free, also after a failure. */
static pk_status read_whole(FILE *file, const char *path, unsigned char **bytes, size_t *size, pk_error *error) {
    size_t room = 1 << 16;
    for (*size = 0, *bytes = NULL;; room *= 2) {
        unsigned char *larger = realloc(*bytes, room);
        if (larger == NULL) return pk__fail(error, PK_NO_MEMORY, "image", "%zu bytes could not be allocated", room);
        *bytes = larger;
        *size += fread(*bytes + *size, 1, room - *size, file);
        if (ferror(file)) return file_failed(error, path, "read");
        if (*size < room) return PK_OK;
        if (room > PK_MAX_ALL_TEXT * (size_t)4)
            return pk__fail(error, PK_IMAGE_SIZE, "image.size", "%s is larger than any image", path);
    }
}

pk_status pk_kernel_load_file(const char *path, pk_kernel **kernel, pk_error *error) {
    if (path == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "path", "path is NULL");
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    FILE *file = fopen(path, "rb");
    if (file == NULL) return file_failed(error, path, "read");
    unsigned char *bytes = NULL;
    size_t size = 0;
    pk_status status = read_whole(file, path, &bytes, &size, error);
    (void)fclose(file);
    if (status == PK_OK) status = pk_kernel_load(bytes, size, kernel, error);
    free(bytes);
    return status;
}
