/* Fuzz target: the spec validator. Ten bytes are one change to the example: a place among the numbers of its structs,
 * and a value of eight bytes. Pointers and counts are the caller's word, so they are left alone. */
#include "use.h"

#define PLACE(member) {(unsigned char *)&e->member, sizeof e->member}

static void change(example *e, size_t place, const uint8_t value[8]) {
    const struct {
        unsigned char *bytes;
        size_t size;
    } places[] = {
        {(unsigned char *)&e->spec.tensor_parallel, offsetof(pk_spec, resolution) - offsetof(pk_spec, tensor_parallel)},
        PLACE(layers), PLACE(attentions), PLACE(scorers), PLACE(gemms), PLACE(experts), PLACE(collectives), PLACE(laws),
        PLACE(groups), PLACE(caches), PLACE(tiers),
    };
    size_t total = 0;
    for (size_t i = 0; i < EXAMPLE_COUNT(places); i++) total += places[i].size;
    place = place * 4 % total;
    for (size_t i = 0; i < EXAMPLE_COUNT(places); place -= places[i].size, i++) {
        if (place >= places[i].size) continue;
        size_t room = places[i].size - place;
        memcpy(places[i].bytes + place, value, room < 8 ? room : 8);
        return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    example e;
    example_make(&e);
    for (size_t at = 0; at + 10 <= size; at += 10)
        change(&e, (size_t)data[at] | (size_t)data[at + 1] << 8, data + at + 2);
    pk_kernel *kernel = NULL;
    pk_error error = PK_ERROR_INIT;
    pk_status status = pk_kernel_new(&e.spec, &kernel, &error);
    if (status == PK_OK) use_kernel(kernel);
    else MUST(kernel == NULL && error.field[0] != '\0' && error.message[0] != '\0');
    pk_kernel_free(kernel);
    return 0;
}
