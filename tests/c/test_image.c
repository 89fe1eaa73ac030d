/* The image: what is saved comes back equal, whatever is not a whole image is refused with its part named, and nothing
 * that damage can do to one goes unnoticed. */
#include "check.h"
#include "example.h"

#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct image {
    unsigned char *bytes;
    size_t size;
} image;

static image saved(const pk_kernel *kernel) {
    image made = {NULL, pk_image_size(kernel)};
    made.bytes = malloc(made.size);
    size_t size = 0;
    CHECK(pk_kernel_save(kernel, made.bytes, made.size, &size, NULL) == PK_OK && size == made.size);
    return made;
}

static image example_image(void) {
    pk_kernel *kernel = check_example_kernel();
    image made = saved(kernel);
    pk_kernel_free(kernel);
    return made;
}

/* A copy of exactly this size, so that a sanitizer sees any byte read behind it. */
static pk_status load_copy(const unsigned char *bytes, size_t size, pk_kernel **kernel, pk_error *error) {
    unsigned char *copy = malloc(size > 0 ? size : 1);
    if (size > 0) memcpy(copy, bytes, size);
    pk_status status = pk_kernel_load(copy, size, kernel, error);
    free(copy);
    return status;
}

static void reseal(image *one) {
    pk__put(one->bytes + 16, one->size, 8);
    pk__put(one->bytes + 24, pk__checksum(one->bytes, one->size), 8);
}

/* Loading fails with this status and field, leaves the kernel pointer alone, and says why. */
static void refuses(const unsigned char *bytes, size_t size, pk_status status, const char *field, int line) {
    pk_kernel *const before = (pk_kernel *)&check_memory_is_out;
    pk_kernel *kernel = before;
    pk_error error = PK_ERROR_INIT;
    pk_status found = load_copy(bytes, size, &kernel, &error);
    int as_stated = found == status && strcmp(error.field, field) == 0 && kernel == before;
    if (!as_stated)
        printf("found %s \"%s\" instead of %s\n", pk_status_name((int32_t)found), error.field,
               pk_status_name((int32_t)status));
    check_that(as_stated, field, __FILE__, line);
    check_that(error.message[0] != '\0', "the error says something", __FILE__, line);
    if (kernel != before) pk_kernel_free(kernel);
}

static void every_field_of_a_spec_is_in_the_record(void) {
    uint32_t size = 1;
    for (uint32_t array = 0; size > 0; array++) {
        uint32_t covered = pk__record_covers(array, &size);
        if (covered != size) printf("struct %u: %u of %u bytes\n", (unsigned)array, (unsigned)covered, (unsigned)size);
        CHECK(covered == size);
    }
}

static void a_loaded_kernel_is_equal_byte_for_byte(void) {
    pk_kernel *kernel = check_example_kernel(), *loaded = NULL;
    image first = saved(kernel);
    CHECK(load_copy(first.bytes, first.size, &loaded, NULL) == PK_OK);
    CHECK(pk_kernel_size(kernel) == pk_kernel_size(loaded));
    CHECK(memcmp(kernel, loaded, pk_kernel_size(kernel)) == 0);
    image second = saved(loaded);
    CHECK(second.size == first.size && memcmp(first.bytes, second.bytes, first.size) == 0);
    free(first.bytes);
    free(second.bytes);
    pk_kernel_free(kernel);
    pk_kernel_free(loaded);
}

static void a_kernel_says_what_it_stands_for(void) {
    pk_kernel *kernel = check_example_kernel();
    pk_resolution resolution = pk_resolved(kernel);
    CHECK(resolution.tensor_parallel == 4 && resolution.expert_parallel == 16 && resolution.async_scheduling == 1);
    CHECK(strcmp(resolution.all_reduce_backend, "nccl") == 0);
    CHECK(pk_origin_count(kernel) == 3 && pk_override_count(kernel) == 1 && pk_note_count(kernel) == 5);
    CHECK(strcmp(pk_origin_at(kernel, 1).method, "vendor_spec") == 0 && *pk_origin_at(kernel, 1).scope == '\0');
    CHECK(pk_origin_at(kernel, 3).name == NULL && pk_note_at(kernel, 5).key == NULL);
    CHECK(pk_override_at(kernel, 1).reason == NULL);
    CHECK(strcmp(pk_override_at(kernel, 0).reason, "caf\xc3\xa9") == 0);
    pk_evidence evidence = pk_evidence_of(kernel);
    CHECK(evidence.measured == 2 && evidence.total == 3 && evidence.assumed == 1);
    CHECK(strcmp(pk_text(kernel, "model"), "example") == 0);
    CHECK(pk_text(kernel, "mode") == NULL && pk_text(kernel, NULL) == NULL);
    CHECK(pk_setting(kernel, "max_num_seqs", -1) == 256);
    CHECK(pk_setting(kernel, "block_size", -1) == 16);
    CHECK(pk_setting(kernel, "cache_dtype", -1) == -1);
    CHECK(pk_setting(kernel, "nothing", 7) == 7 && pk_setting(kernel, NULL, 7) == 7);
    CHECK(pk_capture_tokens(kernel) == 512 && pk_decode_threshold(kernel) == 1);
    CHECK(pk_uniform_graph_mode(kernel) == PK_GRAPH_FULL && pk_other_graph_mode(kernel) == PK_GRAPH_PIECEWISE);
    CHECK(pk_decode_context_ranks(kernel) == 4 && pk_prefill_context_ranks(kernel) == 2);
    pk_kernel_free(kernel);
}

static void text_is_optional_and_bounded(void) {
    example e;
    example_make(&e);
    e.spec.resolution.all_reduce_backend = NULL;
    e.origins[0].scope = NULL;
    pk_kernel *kernel = NULL;
    CHECK(pk_kernel_new(&e.spec, &kernel, NULL) == PK_OK);
    CHECK(*pk_resolved(kernel).all_reduce_backend == '\0' && *pk_origin_at(kernel, 0).scope == '\0');
    pk_kernel_free(kernel);
    char *text = malloc(PK_MAX_TEXT + 2);
    memset(text, 'x', PK_MAX_TEXT + 1);
    text[PK_MAX_TEXT] = '\0';
    e.notes[0].value = text;
    CHECK(pk_kernel_new(&e.spec, &kernel, NULL) == PK_OK);
    CHECK(strcmp(pk_text(kernel, "model"), text) == 0);
    pk_kernel_free(kernel);
    text[PK_MAX_TEXT] = 'x';
    text[PK_MAX_TEXT + 1] = '\0';
    pk_error error = PK_ERROR_INIT;
    CHECK(pk_kernel_new(&e.spec, &kernel, &error) == PK_SPEC_LIMIT && strcmp(error.field, "notes") == 0);
    free(text);
}

static void every_truncation_is_refused(void) {
    image whole = example_image();
    for (size_t size = 0; size < whole.size; size++) {
        pk_kernel *kernel = NULL;
        pk_error error = PK_ERROR_INIT;
        pk_status status = load_copy(whole.bytes, size, &kernel, &error);
        CHECK(status == (size == 0 ? PK_IMAGE_FOREIGN : PK_IMAGE_SIZE) && kernel == NULL && error.field[0] != '\0');
        image cut = {whole.bytes, size};
        if (size < 40) continue;
        unsigned char header[40];
        memcpy(header, whole.bytes, sizeof header);
        reseal(&cut); /* the contents decide: no section may be missing a part */
        status = load_copy(cut.bytes, cut.size, &kernel, &error);
        if (status == PK_OK) pk_kernel_free(kernel); /* cut between sections, of what may be missing */
        CHECK(error.field[0] != '\0');
        memcpy(whole.bytes, header, sizeof header);
    }
    refuses(whole.bytes, whole.size - 1, PK_IMAGE_SIZE, "image.size", __LINE__);
    free(whole.bytes);
}

static void every_changed_byte_is_noticed(void) {
    image whole = example_image();
    for (size_t i = 0; i < whole.size; i++)
        for (int bit = 0; bit < 8; bit++) {
            if (i == 32 || i == 33 || i > 200) bit = 7; /* a bit of most bytes, every bit of the header */
            whole.bytes[i] ^= (unsigned char)(1 << bit);
            pk_kernel *kernel = NULL;
            CHECK(load_copy(whole.bytes, whole.size, &kernel, NULL) != PK_OK && kernel == NULL);
            whole.bytes[i] ^= (unsigned char)(1 << bit);
        }
    free(whole.bytes);
}

static void what_is_wrong_with_an_image_is_named(void) {
    image one = example_image();
    refuses((const unsigned char *)"kind: Scenario\n", 15, PK_IMAGE_FOREIGN, "image.magic", __LINE__);
    refuses(one.bytes, 39, PK_IMAGE_SIZE, "image.size", __LINE__);
    one.bytes[8] = 2;
    refuses(one.bytes, one.size, PK_IMAGE_VERSION, "image.format", __LINE__);
    one.bytes[8] = 1;
    one.bytes[12] ^= 5; /* 1 2 3 4 would be the other way round */
    refuses(one.bytes, one.size, PK_IMAGE_VERSION, "image.byte_order", __LINE__);
    one.bytes[12] ^= 5;
    one.bytes[one.size - 1] ^= 1;
    refuses(one.bytes, one.size, PK_IMAGE_CHECKSUM, "image.checksum", __LINE__);
    one.bytes[one.size - 1] ^= 1;
    one.bytes[36] = 1;
    reseal(&one);
    refuses(one.bytes, one.size, PK_IMAGE_LAYOUT, "image.reserved", __LINE__);
    one.bytes[36] = 0;
    reseal(&one);
    pk_kernel *kernel = NULL;
    CHECK(load_copy(one.bytes, one.size, &kernel, NULL) == PK_OK);
    pk_kernel_free(kernel);
    free(one.bytes);
}

/* The example's image with a section appended. */
static image with_section(uint32_t id, uint32_t element_size, uint64_t count) {
    image one = example_image();
    size_t room = 16 + ((size_t)(element_size * count) + 7) / 8 * 8;
    one.bytes = realloc(one.bytes, one.size + room);
    memset(one.bytes + one.size, 1, room);
    pk__put(one.bytes + one.size, id, 4);
    pk__put(one.bytes + one.size + 4, element_size, 4);
    pk__put(one.bytes + one.size + 8, count, 8);
    one.size += room;
    reseal(&one);
    return one;
}

static void a_section_of_a_later_library_is_skipped_unless_it_must_be_known(void) {
    image optional = with_section(77, 3, 5), required = with_section(PK__MUST_KNOW | 77, 3, 5);
    image twice = with_section(3, 4, 1);
    pk_kernel *kernel = NULL, *plain = check_example_kernel();
    CHECK(load_copy(optional.bytes, optional.size, &kernel, NULL) == PK_OK);
    CHECK(memcmp(kernel, plain, pk_kernel_size(plain)) == 0);
    refuses(required.bytes, required.size, PK_IMAGE_VERSION, "image.section", __LINE__);
    refuses(twice.bytes, twice.size, PK_IMAGE_LAYOUT, "image.layers", __LINE__);
    pk_kernel_free(kernel);
    pk_kernel_free(plain);
    free(optional.bytes);
    free(required.bytes);
    free(twice.bytes);
}

/* Where the first section of this id begins. */
static size_t section_at(const image *one, uint32_t id) {
    size_t at = 40;
    while (pk__get(one->bytes + at, 4) != id)
        at += 16 + (size_t)(pk__get(one->bytes + at + 4, 4) * pk__get(one->bytes + at + 8, 8) + 7) / 8 * 8;
    return at;
}

static void values_are_validated_as_those_of_a_spec(void) {
    image one = example_image();
    size_t layers = section_at(&one, 3), stride = pk__get(one.bytes + layers + 4, 4);
    unsigned char *count = one.bytes + layers + 16 + 2 * stride;
    pk__put(count, 0, 4);
    reseal(&one);
    refuses(one.bytes, one.size, PK_SPEC_VALUE, "layers[2].count", __LINE__);
    pk__put(count, 2, 4);
    unsigned char *groups = one.bytes + section_at(&one, 10);
    pk__put(groups + 8, 3, 8); /* over the next section */
    reseal(&one);
    pk_kernel *kernel = NULL;
    CHECK(load_copy(one.bytes, one.size, &kernel, NULL) == PK_IMAGE_LAYOUT && kernel == NULL);
    pk__put(groups + 8, UINT64_MAX, 8);
    reseal(&one);
    refuses(one.bytes, one.size, PK_IMAGE_LAYOUT, "image.groups", __LINE__);
    pk__put(groups + 8, 2, 8);
    pk__put(groups + 4, 15, 4); /* within the last field */
    reseal(&one);
    refuses(one.bytes, one.size, PK_IMAGE_LAYOUT, "image.groups", __LINE__);
    free(one.bytes);
}

static void an_image_needs_memory_and_arguments(void) {
    image one = example_image();
    pk_kernel *kernel = NULL;
    pk_error error = PK_ERROR_INIT;
    check_memory_is_out = 1;
    CHECK(pk_kernel_load(one.bytes, one.size, &kernel, &error) == PK_NO_MEMORY && kernel == NULL);
    check_memory_is_out = 0;
    CHECK(pk_kernel_load(NULL, 5, &kernel, &error) == PK_NULL_ARGUMENT);
    CHECK(pk_kernel_load(one.bytes, one.size, NULL, &error) == PK_NULL_ARGUMENT);
    CHECK(pk_kernel_save(NULL, one.bytes, one.size, NULL, &error) == PK_NULL_ARGUMENT);
    CHECK(pk_kernel_load(one.bytes, one.size, &kernel, NULL) == PK_OK);
    size_t size = 0;
    CHECK(pk_kernel_save(kernel, NULL, 0, &size, &error) == PK_BUFFER && size == one.size);
    CHECK(pk_kernel_save(kernel, NULL, 1, &size, &error) == PK_NULL_ARGUMENT);
    CHECK(pk_kernel_save(kernel, one.bytes, one.size - 1, &size, &error) == PK_BUFFER);
    CHECK(strcmp(error.field, "capacity") == 0);
    CHECK(pk_image_size(NULL) == 0 && pk_kernel_size(NULL) == 0);
    pk_kernel_free(kernel);
    free(one.bytes);
}

static void an_image_goes_through_a_file(void) {
    const char *path = "check-image.pkk";
    pk_kernel *kernel = check_example_kernel(), *loaded = NULL;
    pk_error error = PK_ERROR_INIT;
    CHECK(pk_kernel_save_file(kernel, path, &error) == PK_OK);
    CHECK(pk_kernel_load_file(path, &loaded, &error) == PK_OK);
    CHECK(memcmp(kernel, loaded, pk_kernel_size(kernel)) == 0);
    CHECK(remove(path) == 0);
    CHECK(pk_kernel_load_file(path, &loaded, &error) == PK_FILE && strcmp(error.field, "path") == 0);
    CHECK(pk_kernel_save_file(kernel, "no/such/folder/x.pkk", &error) == PK_FILE);
    CHECK(pk_kernel_save_file(kernel, NULL, &error) == PK_NULL_ARGUMENT);
    CHECK(pk_kernel_load_file(NULL, &loaded, &error) == PK_NULL_ARGUMENT);
    CHECK(pk_kernel_load_file(".", &kernel, &error) != PK_OK);
    pk_kernel_free(kernel);
    pk_kernel_free(loaded);
}

void test_image(void) {
    every_field_of_a_spec_is_in_the_record();
    a_loaded_kernel_is_equal_byte_for_byte();
    a_kernel_says_what_it_stands_for();
    text_is_optional_and_bounded();
    every_truncation_is_refused();
    every_changed_byte_is_noticed();
    what_is_wrong_with_an_image_is_named();
    a_section_of_a_later_library_is_skipped_unless_it_must_be_known();
    values_are_validated_as_those_of_a_spec();
    an_image_needs_memory_and_arguments();
    an_image_goes_through_a_file();
}
