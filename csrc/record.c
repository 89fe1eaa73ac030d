/*
 * A spec as a record: little-endian bytes without pointers, the form in which it lies inside a kernel and in an image.
 * The tables of record_tables.h name every field of every struct once; reading and writing are one walk over them.
 *
 * A record is a run of sections, each padded to 8 bytes:
 *   u32 id, u32 element bytes, u64 count, then count elements of that many bytes
 * A section that this library does not know is skipped unless PK__MUST_KNOW is set in its id. Text is an offset and a
 * length into the section of texts, where it ends in a NUL.
 */
#include "record_tables.h"

#include <stdlib.h>
#include <string.h>

enum { SECTION_HEADER = 16 };

/* Rows [first, last) of a section, and the bytes of one element in the record. */
typedef struct span {
    uint32_t first, last;
    uint32_t size;
} span;

static span span_of(uint32_t section) {
    span rows = {0, 0, 0};
    while (rows.first < FIELD_COUNT && fields[rows.first].section != section) rows.first++;
    for (rows.last = rows.first; rows.last < FIELD_COUNT && fields[rows.last].section == section; rows.last++)
        rows.size += fields[rows.last].size;
    return rows;
}

uint32_t pk__record_covers(uint32_t array, uint32_t *element_size) {
    *element_size = 0;
    if (array > ARRAY_COUNT) return 0;
    uint32_t section = array == 0 ? (uint32_t)SPEC : arrays[array - 1].section, bytes = 0;
    *element_size = array == 0 ? (uint32_t)sizeof(pk_spec) : arrays[array - 1].element_size;
    span rows = span_of(section);
    for (uint32_t i = rows.first; i < rows.last; i++)
        bytes += fields[i].kind == TEXT ? (uint32_t)sizeof(const char *) : fields[i].size;
    if (array > 0) return bytes;
    /* struct_size and flags, and the arrays' pointers and counts; draft_layer_count is a field. */
    return bytes + 8 + ARRAY_COUNT * ((uint32_t)sizeof(void *) + 4);
}

/* ---- bytes --------------------------------------------------------------------------------------------------- */

void pk__put(unsigned char *at, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; i++) at[i] = (unsigned char)(value >> (8 * i));
}

uint64_t pk__get(const unsigned char *at, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | at[i];
    return value;
}

static uint32_t count_at(const pk_spec *spec, uint32_t offset) {
    uint32_t value;
    memcpy(&value, (const unsigned char *)spec + offset, sizeof value);
    return value;
}

static uint32_t count_of(const pk_spec *spec, const array_row *row) {
    return count_at(spec, row->count_at) + (row->also_at != 0 ? count_at(spec, row->also_at) : 0);
}

static const unsigned char *first_of(const pk_spec *spec, const array_row *row) {
    const unsigned char *first;
    memcpy(&first, (const unsigned char *)spec + row->pointer_at, sizeof first);
    return first;
}

static const char *text_of(const unsigned char *element, const field *row) {
    const char *text;
    memcpy(&text, element + row->offset, sizeof text);
    return text == NULL ? "" : text;
}

static size_t padded(size_t size) { return (size + 7) & ~(size_t)7; }

/* ---- writing ------------------------------------------------------------------------------------------------- */

static size_t texts_of_element(uint32_t section, const unsigned char *element) {
    size_t bytes = 0;
    span rows = span_of(section);
    for (uint32_t i = rows.first; i < rows.last; i++)
        if (fields[i].kind == TEXT) bytes += strlen(text_of(element, &fields[i])) + 1;
    return bytes;
}

static bool has_text(uint32_t section) { return section == SPEC || (section >= ORIGINS && section <= NOTES); }

static size_t text_bytes(const pk_spec *spec) {
    size_t bytes = texts_of_element(SPEC, (const unsigned char *)spec);
    for (uint32_t a = 0; a < ARRAY_COUNT; a++)
        for (uint32_t i = 0; has_text(arrays[a].section) && i < count_of(spec, &arrays[a]); i++)
            bytes += texts_of_element(arrays[a].section,
                                      first_of(spec, &arrays[a]) + (size_t)i * arrays[a].element_size);
    return bytes;
}

size_t pk__record_size(const pk_spec *spec) {
    size_t size = 2 * SECTION_HEADER + padded(span_of(SPEC).size) + padded(text_bytes(spec));
    for (uint32_t a = 0; a < ARRAY_COUNT; a++)
        if (count_of(spec, &arrays[a]) > 0)
            size += SECTION_HEADER + padded((size_t)count_of(spec, &arrays[a]) * span_of(arrays[a].section).size);
    return size;
}

typedef struct writer {
    unsigned char *at;    /* where the next section goes */
    unsigned char *texts; /* the contents of the section of texts */
    size_t text_size;
} writer;

static void write_number(unsigned char *at, const unsigned char *from, size_t size) {
    if (size == 4) {
        uint32_t value;
        memcpy(&value, from, sizeof value);
        pk__put(at, value, sizeof value);
    } else {
        uint64_t value;
        memcpy(&value, from, sizeof value);
        pk__put(at, value, sizeof value);
    }
}

static void write_text(writer *out, unsigned char *at, const char *text) {
    size_t length = strlen(text);
    pk__put(at, out->text_size, 4);
    pk__put(at + 4, length, 4);
    memcpy(out->texts + out->text_size, text, length + 1);
    out->text_size += length + 1;
}

static void write_section(writer *out, uint32_t section, const unsigned char *elements, uint32_t count,
                          size_t element_size) {
    span rows = span_of(section);
    pk__put(out->at, section, 4);
    pk__put(out->at + 4, rows.size, 4);
    pk__put(out->at + 8, count, 8);
    unsigned char *at = out->at + SECTION_HEADER;
    for (uint32_t e = 0; e < count; e++, elements += element_size)
        for (uint32_t i = rows.first; i < rows.last; at += fields[i].size, i++) {
            const unsigned char *from = elements + fields[i].offset;
            if (fields[i].kind == TEXT) write_text(out, at, text_of(elements, &fields[i]));
            else if (fields[i].kind == NAME) memcpy(at, from, strlen((const char *)from)); /* then zeros */
            else write_number(at, from, fields[i].size);
        }
    out->at += SECTION_HEADER + padded((size_t)count * rows.size);
}

void pk__record_write(const pk_spec *spec, unsigned char *record) {
    size_t texts = text_bytes(spec);
    pk__put(record, TEXTS, 4);
    pk__put(record + 4, 1, 4);
    pk__put(record + 8, texts, 8);
    writer out = {record + SECTION_HEADER + padded(texts), record + SECTION_HEADER, 0};
    write_section(&out, SPEC, (const unsigned char *)spec, 1, sizeof *spec);
    for (uint32_t a = 0; a < ARRAY_COUNT; a++)
        if (count_of(spec, &arrays[a]) > 0)
            write_section(&out, arrays[a].section, first_of(spec, &arrays[a]), count_of(spec, &arrays[a]),
                          arrays[a].element_size);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

/* A section of a record in memory; `elements` is NULL where the record has none. */
typedef struct section {
    const unsigned char *elements;
    uint32_t element_size;
    uint64_t count;
} section;

static pk_status malformed(pk_error *error, const char *name, const char *problem) {
    char where[48] = "image.";
    strcat(where, name);
    return pk__fail(error, PK_IMAGE_LAYOUT, where, "%s %s", where, problem);
}

static const char *name_of(uint32_t id) {
    for (uint32_t a = 0; a < ARRAY_COUNT; a++)
        if (arrays[a].section == id) return arrays[a].name;
    return id == SPEC ? "spec" : id == TEXTS ? "texts" : "section";
}

/* Takes the section at `at` in; its bytes with header and padding go to *size. */
static pk_status take_section(const unsigned char *at, size_t left, section found[SECTION_COUNT], size_t *size,
                              pk_error *error) {
    if (left < SECTION_HEADER) return malformed(error, "section", "begins within the last bytes of the image");
    uint32_t id = (uint32_t)pk__get(at, 4);
    section one = {at + SECTION_HEADER, (uint32_t)pk__get(at + 4, 4), pk__get(at + 8, 8)};
    size_t room = left - SECTION_HEADER;
    if (one.element_size == 0 || one.count > room / one.element_size)
        return malformed(error, name_of(id), "is larger than the rest of the image");
    *size = SECTION_HEADER + padded((size_t)one.count * one.element_size);
    if (*size > left) return malformed(error, name_of(id), "is larger than the rest of the image");
    if (id >= 1 && id < SECTION_COUNT) {
        if (found[id].elements != NULL) return malformed(error, name_of(id), "is there twice");
        found[id] = one;
    } else if (id & PK__MUST_KNOW) {
        return pk__fail(error, PK_IMAGE_VERSION, "image.section",
                        "section %u must be understood, and this library does not know it; use a newer one",
                        (unsigned)id);
    }
    return PK_OK;
}

/* How many leading rows of a section an element of `size` bytes holds; UINT32_MAX when it ends inside one. Rows that
 * an image of an earlier library lacks are 0. */
static uint32_t rows_within(span rows, uint32_t size) {
    uint32_t i = rows.first, bytes = 0;
    while (i < rows.last && bytes + fields[i].size <= size) bytes += fields[i++].size;
    return bytes == size ? i - rows.first : UINT32_MAX;
}

static pk_status read_text(const section *texts, const unsigned char *at, const char **text, pk_error *error) {
    uint64_t offset = pk__get(at, 4), length = pk__get(at + 4, 4);
    *text = "";
    if (texts->element_size == 1 && offset < texts->count && length < texts->count - offset &&
        memchr(texts->elements + offset, '\0', length + 1) == texts->elements + offset + length) {
        *text = (const char *)texts->elements + offset;
        return PK_OK;
    }
    return malformed(error, "texts", "do not hold a text that the image refers to");
}

static void read_number(const unsigned char *at, unsigned char *to, size_t size) {
    if (size == 4) {
        uint32_t value = (uint32_t)pk__get(at, 4);
        memcpy(to, &value, sizeof value);
    } else {
        uint64_t value = pk__get(at, 8);
        memcpy(to, &value, sizeof value);
    }
}

static pk_status read_elements(const section *from, const section *texts, uint32_t id, unsigned char *elements,
                               size_t element_size, pk_error *error) {
    span rows = span_of(id);
    uint32_t known = rows_within(rows, from->element_size);
    if (from->element_size > rows.size)
        return pk__fail(error, PK_IMAGE_VERSION, name_of(id),
                        "%s has %u bytes an element, this library knows %u; the image is of a newer one", name_of(id),
                        (unsigned)from->element_size, (unsigned)rows.size);
    if (known == UINT32_MAX) return malformed(error, name_of(id), "has elements that end inside a field");
    const unsigned char *at = from->elements;
    for (uint64_t e = 0; e < from->count; e++, elements += element_size)
        for (uint32_t i = rows.first; i < rows.first + known; at += fields[i].size, i++) {
            unsigned char *to = elements + fields[i].offset;
            if (fields[i].kind == NUMBER) read_number(at, to, fields[i].size);
            else if (fields[i].kind == NAME) memcpy(to, at, fields[i].size);
            else {
                const char *text;
                pk_status status = read_text(texts, at, &text, error);
                if (status != PK_OK) return status;
                memcpy(to, &text, sizeof text);
            }
        }
    return PK_OK;
}

static pk_status take_sections(const unsigned char *record, size_t size, section found[SECTION_COUNT],
                               pk_error *error) {
    for (size_t done = 0, step = 0; done < size; done += step) {
        pk_status status = take_section(record + done, size - done, found, &step, error);
        if (status != PK_OK) return status;
    }
    if (found[SPEC].count != 1) return malformed(error, "spec", "must be there once");
    for (uint32_t a = 0; a < ARRAY_COUNT; a++)
        if (found[arrays[a].section].count > PK__MAX_ARRAY)
            return pk__fail(error, PK_SPEC_LIMIT, arrays[a].name, "%s has %llu entries, at most %d are accepted",
                            arrays[a].name, (unsigned long long)found[arrays[a].section].count, PK__MAX_ARRAY);
    return PK_OK;
}

/* Points the spec at arrays that lie one behind the other in `memory`, and fills them. */
static pk_status read_arrays(const section found[SECTION_COUNT], unsigned char *memory, pk_spec *spec,
                             pk_error *error) {
    for (uint32_t a = 0; a < ARRAY_COUNT; a++) {
        const section *from = &found[arrays[a].section];
        if (from->count == 0) continue;
        pk_status status = read_elements(from, &found[TEXTS], arrays[a].section, memory, arrays[a].element_size, error);
        if (status != PK_OK) return status;
        uint32_t count = (uint32_t)from->count;
        memcpy((unsigned char *)spec + arrays[a].pointer_at, &memory, sizeof memory);
        memcpy((unsigned char *)spec + arrays[a].count_at, &count, sizeof count);
        memory += padded((size_t)count * arrays[a].element_size);
    }
    if (spec->draft_layer_count > spec->layer_count)
        return pk__fail(error, PK_SPEC_INDEX, "draft_layer_count", "draft_layer_count is %u, there are %u layers",
                        (unsigned)spec->draft_layer_count, (unsigned)spec->layer_count);
    spec->layer_count -= spec->draft_layer_count;
    return PK_OK;
}

pk_status pk__record_read(const unsigned char *record, size_t size, pk_spec *spec, void **memory, pk_error *error) {
    section found[SECTION_COUNT] = {{NULL, 0, 0}};
    *memory = NULL;
    *spec = (pk_spec){.struct_size = sizeof *spec};
    pk_status status = take_sections(record, size, found, error);
    if (status == PK_OK)
        status = read_elements(&found[SPEC], &found[TEXTS], SPEC, (unsigned char *)spec, sizeof *spec, error);
    if (status != PK_OK) return status;
    size_t bytes = 8;
    for (uint32_t a = 0; a < ARRAY_COUNT; a++)
        bytes += padded((size_t)found[arrays[a].section].count * arrays[a].element_size);
    *memory = calloc(1, bytes);
    if (*memory == NULL) return pk__fail(error, PK_NO_MEMORY, "image", "%zu bytes could not be allocated", bytes);
    return read_arrays(found, *memory, spec, error);
}

/* ---- looking things up in a record that this library wrote ----------------------------------------------------- */

/* The section of a kernel's own record, which is well-formed. */
static section own_section(const pk_kernel *kernel, uint32_t id) {
    const unsigned char *record = pk__at(kernel, kernel->record_at);
    for (size_t done = 0; done < kernel->record_size;) {
        section one = {record + done + SECTION_HEADER, (uint32_t)pk__get(record + done + 4, 4),
                       pk__get(record + done + 8, 8)};
        if (pk__get(record + done, 4) == id) return one;
        done += SECTION_HEADER + padded((size_t)one.count * one.element_size);
    }
    return (section){NULL, 0, 0};
}

/* Fills one element of a section; false where there is none of that index. */
static bool own_element(const pk_kernel *kernel, uint32_t id, size_t index, void *element) {
    section from = own_section(kernel, id), texts = own_section(kernel, TEXTS);
    if (index >= from.count) return false;
    from.elements += index * from.element_size;
    from.count = 1;
    return read_elements(&from, &texts, id, element, 0, NULL) == PK_OK;
}

size_t pk_origin_count(const pk_kernel *kernel) { return (size_t)own_section(kernel, ORIGINS).count; }
size_t pk_override_count(const pk_kernel *kernel) { return (size_t)own_section(kernel, OVERRIDES).count; }
size_t pk_note_count(const pk_kernel *kernel) { return (size_t)own_section(kernel, NOTES).count; }

pk_origin pk_origin_at(const pk_kernel *kernel, size_t index) {
    pk_origin origin = {NULL, NULL, NULL, NULL};
    (void)own_element(kernel, ORIGINS, index, &origin);
    return origin;
}

pk_override pk_override_at(const pk_kernel *kernel, size_t index) {
    pk_override override = {NULL, NULL, NULL, NULL};
    (void)own_element(kernel, OVERRIDES, index, &override);
    return override;
}

pk_note pk_note_at(const pk_kernel *kernel, size_t index) {
    pk_note note = {NULL, NULL};
    (void)own_element(kernel, NOTES, index, &note);
    return note;
}

pk_resolution pk_resolved(const pk_kernel *kernel) {
    pk_spec spec = PK_SPEC_INIT;
    (void)own_element(kernel, SPEC, 0, &spec);
    return spec.resolution;
}

/* ---- checking ------------------------------------------------------------------------------------------------ */

pk_status pk__check_texts(const pk_spec *spec, pk_error *error) {
    size_t total = 0;
    for (uint32_t a = 0; a <= ARRAY_COUNT; a++) {
        uint32_t id = a == 0 ? (uint32_t)SPEC : arrays[a - 1].section;
        if (!has_text(id)) continue;
        const unsigned char *element = a == 0 ? (const unsigned char *)spec : first_of(spec, &arrays[a - 1]);
        uint32_t count = a == 0 ? 1 : count_of(spec, &arrays[a - 1]);
        span rows = span_of(id);
        for (uint32_t e = 0; e < count; e++, element += a == 0 ? 0 : arrays[a - 1].element_size)
            for (uint32_t i = rows.first; i < rows.last; i++) {
                if (fields[i].kind != TEXT) continue;
                const char *text = text_of(element, &fields[i]);
                size_t length = 0;
                while (length <= PK_MAX_TEXT && text[length] != '\0') length++;
                total += length + 1;
                if (length > PK_MAX_TEXT || total > PK_MAX_ALL_TEXT)
                    return pk__fail(error, PK_SPEC_LIMIT, name_of(id),
                                    "%s[%u] holds more text than is accepted, %d bytes each and %d in all", name_of(id),
                                    (unsigned)e, PK_MAX_TEXT, PK_MAX_ALL_TEXT);
            }
    }
    return PK_OK;
}
