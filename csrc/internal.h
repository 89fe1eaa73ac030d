/*
 * What the sources of the core share: the frozen kernel, the sums of a batch, and the internal half of the laws.
 * Nothing here is visible outside the library.
 */
#ifndef PK_INTERNAL_H
#define PK_INTERNAL_H

#include "pykernel.h"

#include <stdbool.h>

#if defined(__FAST_MATH__)
#error "the core must not be built with fast-math: results would depend on the compiler"
#endif

/* PK__INLINE is inlined wherever a step is priced: a call for each kind of layer would cost as much as the layer.
 * PK__APART is what few steps need, kept out of the way of the others. */
#if defined(__GNUC__)
#define PK__INLINE static inline __attribute__((always_inline))
#define PK__APART static __attribute__((noinline))
#else
#define PK__INLINE static inline
#define PK__APART static
#endif

/* ---- errors -------------------------------------------------------------------------------------------------- */

/* Fills *error (if any) and returns the status, so that a check reads `return pk__fail(...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
pk_status pk__fail(pk_error *error, pk_status status, const char *field, const char *format, ...);

/* PK_OK when a caller's struct can be used. `size` is the library's own. */
pk_status pk__bad_struct(uint32_t struct_size, uint32_t flags, size_t size, const char *name, pk_error *error);
static inline pk_status pk__check_struct(uint32_t struct_size, uint32_t flags, size_t size, const char *name,
                                         pk_error *error) {
    return struct_size == size && flags == 0 ? PK_OK : pk__bad_struct(struct_size, flags, size, name, error);
}

/* ---- integers ------------------------------------------------------------------------------------------------ */

/* a + b and a * b for non-negative operands, held at INT64_MAX. */
static inline int64_t pk__add(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }
static inline int64_t pk__multiply(int64_t a, int64_t b) { return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b; }

static inline int64_t pk__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t pk__max(int64_t a, int64_t b) { return a > b ? a : b; }

/* a / b rounded up, for a >= 0 and b >= 1. */
static inline int64_t pk__ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* A count of bytes, truncated; NaN and negative are 0, too large is INT64_MAX. */
static inline int64_t pk__whole(double value) {
    if (!(value > 0)) return 0;
    return value >= 0x1p63 ? INT64_MAX : (int64_t)value;
}

static inline double pk__seconds(int64_t ns) { return (double)ns / 1e9; }

/* Offsets within a frozen kernel. */
static inline size_t pk__aligned(size_t offset) { return (offset + 15) & ~(size_t)15; }
static inline uint32_t pk__all_layers(const pk_spec *spec) { return spec->layer_count + spec->draft_layer_count; }

/* ---- the frozen kernel --------------------------------------------------------------------------------------- */

/* A collective with its law, span and link worked in: seconds by units, one launch. */
typedef struct pk__collective {
    double floor_s;
    double ramp_seconds_per_unit; /* on top of the floor; 0 without a transition rate */
    double peak_seconds_per_unit;
    double bytes_per_unit; /* span factor included */
    double ranks;          /* of its group */
    uint32_t units;        /* PK_UNITS_*; 0 = no collective */
    int32_t resource;
    uint32_t equals; /* itself and the entries right behind it that are the same: one evaluation serves them */
    uint32_t reserved;
} pk__collective;

typedef struct pk__attention {
    double decode_floor_s;
    double decode_seconds_per_entry; /* of one cached token read, or of the fraction the read law counts in */
    double decode_bytes_per_second;  /* what those seconds rest on */
    double prefill_floor_s;
    double flops_per_pair4;        /* prefill FLOP of this rank for pairs4 = 1 */
    double scaled_flops_per_pair4; /* over the work scale; 0 under PK_PREFILL_DENSE */
    double dense_flops_per_pair4;  /* what joins the dense arithmetic; 0 under PK_PREFILL_FLOOR_RAMP */
    double work_scale;
    /* A kernel that takes prefills and decodes in one launch pays the larger floor, not both: the smaller, else 0. */
    double mixed_spares_sm_s, mixed_spares_hbm_s;
    uint32_t read_slot; /* into the sums of a batch */
    uint32_t window_slot;
    double read_unit; /* what the sums of its read law count an entry as */
} pk__attention;

typedef struct pk__scorer {
    double floor_s;
    double seconds_per_entry;
    double bytes_per_second;
    int64_t window;
    int32_t compress_ratio;
    int32_t sharded;
} pk__scorer;

typedef struct pk__experts {
    double flops_per_token; /* of the fullest rank, for one token before the funnel */
    double bytes_per_expert;
    double seconds_per_expert; /* of reading its weights */
    double missed;             /* fraction of the experts that one token leaves alone */
    double local;
    int64_t funnel;
    double experts, top_k; /* of the layer; what a token visits */
} pk__experts;

typedef struct pk__layer {
    double count;
    double flops_per_token; /* of this rank, as priced: matrices priced by shape count for more than they are */
    double work_per_token;  /* FLOP of this rank, all matrices counting for what they are */
    double weight_seconds, weight_bytes;
    double elementwise_seconds_per_token, elementwise_bytes_per_token;
    double recurrent_floor_s, recurrent_seconds_per_token; /* 0 without a recurrent mixer */
    uint32_t attention_first, attention_count;
    uint32_t scorer_first, scorer_count;
    uint32_t experts_first, experts_count;
    uint32_t collective_first, collective_count;
} pk__layer;

typedef struct pk__head {
    double flops_per_row;
    double read_seconds;
    pk__collective gather;
    uint32_t rows;
    uint32_t present;
} pk__head;

/* One block: this struct, then the arrays at their offsets. Slot 0 of reads is the whole context, unsharded; slot 0
 * of windows is no window. */
struct pk_kernel {
    uint64_t size;
    int32_t sm_count;
    int32_t draft_passes;
    int32_t prefill_ranks;
    int32_t decode_ranks;
    int32_t interleave;
    uint32_t read_count, window_count;
    uint32_t gathers_context; /* 1 when a collective counts PK_UNITS_CONTEXT_CHUNKS */
    uint32_t layer_count, draft_layer_count;
    uint32_t cache_count, tier_count;
    uint32_t layers_at, attentions_at, scorers_at, experts_at, collectives_at, caches_at, tiers_at;
    uint32_t record_at, record_size; /* the spec that the kernel was built of, as record.c writes it */
    uint32_t measured_at; /* of a pk__measured; 0 = none */
    int64_t context_chunk;
    double peak_flops;
    double hbm_bytes_per_second;
    pk_gemm_law gemm;
    pk_host host;
    int64_t graph_ns[3]; /* launch term by pk_graph_mode */
    int64_t dispatch_ns; /* of the kernels, in every mode */
    pk_read_law reads[PK_MAX_READS];
    int64_t windows[PK_MAX_READS];
    pk__head head;
    pk_memory_breakdown fixed;
    int64_t pre_snapshot_bytes;
    pk_memory memory;
    pk_links links;
};

static inline const void *pk__at(const pk_kernel *kernel, uint32_t offset) {
    return (const unsigned char *)kernel + offset;
}
static inline const pk__layer *pk__layers(const pk_kernel *kernel) { return pk__at(kernel, kernel->layers_at); }
static inline const pk__attention *pk__attentions(const pk_kernel *kernel) {
    return pk__at(kernel, kernel->attentions_at);
}
static inline const pk__scorer *pk__scorers(const pk_kernel *kernel) { return pk__at(kernel, kernel->scorers_at); }
static inline const pk__experts *pk__expert_sets(const pk_kernel *kernel) { return pk__at(kernel, kernel->experts_at); }
static inline const pk__collective *pk__collectives(const pk_kernel *kernel) {
    return pk__at(kernel, kernel->collectives_at);
}

static inline const pk_cache_group *pk__caches(const pk_kernel *kernel) { return pk__at(kernel, kernel->caches_at); }
static inline const pk_tier *pk__tiers(const pk_kernel *kernel) { return pk__at(kernel, kernel->tiers_at); }

/* The fixed bytes of a checked spec. */
void pk__fold_memory(const pk_spec *spec, pk_kernel *kernel);

/* What a handoff of a sequence of `tokens` tokens moves to this rank. */
int64_t pk__handoff_bytes(const pk_kernel *kernel, int64_t tokens);

/* ---- the record of a spec ------------------------------------------------------------------------------------ */

enum {
    PK__MAX_ARRAY = 4096, /* entries of any array of a spec; large models have a few dozen */
    PK__MUST_KNOW = 0x40000000 /* in the id of a section: a reader that does not know it must refuse the image */
};

/* Little-endian bytes of a number, and back. */
void pk__put(unsigned char *at, uint64_t value, size_t size);
uint64_t pk__get(const unsigned char *at, size_t size);

/* The checksum of an image, its own eight bytes taken as 0. */
uint64_t pk__checksum(const unsigned char *bytes, size_t size);

/* Bytes of a checked spec's record, and the record, written over zeros. */
size_t pk__record_size(const pk_spec *spec);
void pk__record_write(const pk_spec *spec, unsigned char *record);

/* The spec of a record, not checked. Its text lies in the record, its arrays in *memory, to be freed in any case. */
pk_status pk__record_read(const unsigned char *record, size_t size, pk_spec *spec, void **memory, pk_error *error);

/* PK_OK when the texts of a spec are not too long; its arrays have been checked. */
pk_status pk__check_texts(const pk_spec *spec, pk_error *error);

/* Bytes of a struct of the spec (0 = pk_spec, 1, 2, ... = the structs of its arrays) that the record's tables name, and
 * its size. Equal when no field is forgotten; for the tests. */
uint32_t pk__record_covers(uint32_t array, uint32_t *element_size);

/* PK_OK when every field of the spec is within its range. */
pk_status pk__check_spec(const pk_spec *spec, pk_error *error);

/* ---- the sums of a batch ------------------------------------------------------------------------------------- */

/* Integer sums over the requests of a step: order plays no part, nothing rounds, nothing overflows (the limits of
 * pk_batch see to that). */
typedef struct pk__sums {
    int64_t scheduled;       /* tokens, of all requests */
    int64_t context;         /* scheduled and computed tokens, of all requests */
    int64_t pad_tokens;
    int64_t local_tokens;    /* scheduled, less what other prefill-context ranks take */
    int64_t sampled_rows;
    int64_t attending;       /* requests with anything to attend */
    int64_t decodes;         /* requests */
    int64_t decode_rows;     /* their tokens */
    int64_t prefills;        /* requests */
    int64_t prefill_tokens;  /* of this rank */
    bool any_computed;       /* whether any request has computed tokens */
    bool uniform_decode;     /* takes the uniform column of the graph modes; an empty list does */
    int64_t reads[PK_MAX_READS];   /* entries that decodes read, by read law */
    int64_t pairs4[PK_MAX_READS];  /* of prefills, times four, by window; without prefills only slot 0 is set */
} pk__sums;

/* Checks a batch and sums it up. */
pk_status pk__scan_batch(const pk_batch *batch, const pk_kernel *kernel, pk__sums *sums, pk_error *error);

/* Fills the fields that follow from the others. */
void pk__derive_sums(pk__sums *sums);

/* Whether a law bounds what each request counts for, so that sums over all do not settle the price. */
static inline bool pk__needs_requests(const pk_kernel *kernel, const pk__sums *sums) {
    if (kernel->read_count > 1) return true;
    return sums->prefills > 0 && (kernel->window_count > 1 || kernel->prefill_ranks > 1 || kernel->gathers_context);
}

/* The sums of the speculator's pass `pass` (2, 3, ...) after the step: one token for each attending request. */
void pk__scan_draft(const pk_batch *batch, const pk_kernel *kernel, int32_t pass, const pk__sums *first,
                    pk__sums *sums);

/* The next run of prefill context that is gathered together: the computed tokens of the prefills that schedule at
 * least *from tokens, up to the next prefill without context. Returns its tokens, 0 after the last run, and moves
 * *from on. */
int64_t pk__next_context_run(const pk_batch *batch, int64_t *from);

/* ---- a step -------------------------------------------------------------------------------------------------- */

/* What every law of a step reads. */
typedef struct pk__step {
    const pk_kernel *kernel;
    const pk_batch *batch;
    const pk__sums *sums;
    int64_t rows;            /* of the forward pass on this rank, pad rows included */
    double tokens;           /* the same as a number */
    double local_tokens;     /* the same without the pad rows */
    double derate;           /* all SMs over those left, >= 1 */
    double seconds_per_flop; /* at that many rows, on the SMs left; 0 for none */
    double attention_seconds_per_flop; /* the same without the pad rows */
} pk__step;

/* Seconds by resource, those that depend on the batch: PK_SM, PK_HBM, PK_NVLINK, PK_NIC. */
enum { PK__CHARGED = 4 };
typedef struct pk__charge {
    double seconds[PK__CHARGED];
} pk__charge;

/* The step that the speculator's pass `pass` runs after `first`; its sums are kept in *sums. */
void pk__draft_step(const pk__step *first, int32_t pass, pk__sums *sums, pk__step *step);
int64_t pk__head_rows(const pk__step *step);
double pk__head_flop_seconds(const pk__step *step, double rows);

/* What a collective launches in a step: how often, and how many bytes in all. */
typedef struct pk__traffic {
    double launches;
    double bytes;
    double seconds;
} pk__traffic;
pk__traffic pk__context_traffic(const pk__collective *collective, const pk__step *step);

/* The pk_graph_mode that a step runs in. */
int32_t pk__graph_mode(const pk_kernel *kernel, const pk__sums *sums);
int64_t pk__graph_ns(const pk_kernel *kernel, const pk__sums *sums);

/* Prices a batch by its sums; the batch itself is read where a law needs the requests again. */
void pk__price(const pk_kernel *kernel, const pk_batch *batch, const pk__sums *sums, pk_estimate *estimate);

/* ---- measured laws (measured.c, measured_build.c) -------------------------------------------------------------- */

/* The frozen form of pk_measured: this struct, then its arrays at their offsets from its beginning. */
typedef struct pk__measured {
    pk_measured_host host;
    uint32_t layers_at, attentions_at, scorers_at, experts_at, collectives_at, matrices_at;
    uint32_t matrix_laws_at, stream_laws_at, tile_laws_at, expert_laws_at, link_laws_at, mixer_laws_at;
    uint32_t capture_sizes_at, capture_size_count;
    uint32_t head_matrix, gather_law;
    /* Work that depends on nothing but a count, tabulated: see pk__tabulate. */
    uint32_t dense_at, routed_at, headed_at, tabulated, expert_sets, reserved;
    /* For each matrix, attention, set of experts and collective, the first of its array that equals it: they are priced
     * once. */
    uint32_t matrix_twins_at, attention_twins_at, expert_twins_at, collective_twins_at;
    uint32_t prepared_at, matrix_count, attention_count, collective_count;
    double bytes_per_second;
    double sms;
} pk__measured;

/* Seconds by resource of kernels one after another, and the work behind them. Withheld SMs slow `sm` down, but no
 * collective. */
typedef struct pk__work {
    double sm, hbm;
    double link_sm, nvlink, nic;
    double flops, link_bytes;
} pk__work;

/* A matrix with its law worked in. */
typedef struct pk__matrix {
    double start, per_row; /* seconds beside the norm */
    double arithmetic_per_row, wave_rows, weights;
    double exponent, inverse_exponent;
    double flops_per_row, peak_flops, bytes;
} pk__matrix;

/* Every array of pk_measured, in the order in which it is frozen: member, element type, number of elements. */
#define PK__MEASURED_ARRAYS(X)                                                                                        \
    X(layers, pk_measured_layer, pk__all_layers(spec))                                                                \
    X(attentions, pk_measured_attention, spec->attention_count)                                                       \
    X(scorers, pk_measured_scorer, spec->scorer_count)                                                                \
    X(experts, pk_measured_experts, spec->experts_count)                                                              \
    X(collectives, pk_measured_collective, spec->collective_count)                                                    \
    X(matrices, pk_matrix, spec->measured.matrix_count)                                                               \
    X(matrix_laws, pk_matrix_law, spec->measured.matrix_law_count)                                                    \
    X(stream_laws, pk_stream_law, spec->measured.stream_law_count)                                                    \
    X(tile_laws, pk_tile_law, spec->measured.tile_law_count)                                                          \
    X(expert_laws, pk_expert_law, spec->measured.expert_law_count)                                                    \
    X(link_laws, pk_link_law, spec->measured.link_law_count)                                                          \
    X(mixer_laws, pk_mixer_law, spec->measured.mixer_law_count)                                                       \
    X(capture_sizes, pk_capture_size, spec->measured.capture_size_count)

/* Bytes of the frozen form of spec->measured; 0 without one. */
size_t pk__measured_size(const pk_spec *spec);
void pk__fold_measured(const pk_spec *spec, pk__measured *out);
/* Fills the tables: dense work of every layer at every captured size, routed work and the head at every count up to
 * `tabulated`. A price looks up what it can and computes the rest by the same functions, to the same bits. */
void pk__tabulate(pk_kernel *kernel);
pk_status pk__check_measured(const pk_spec *spec, pk_error *error);
/* Overlapped seconds of the layers and of the head; adds to the totals. */
double pk__price_measured_layers(const pk__layer *layers, uint32_t count, const pk__step *step, pk__charge *total);
double pk__price_measured_head(const pk__step *step, int64_t rows, pk__charge *total);
/* What one term of a layer (PK_TERM_DENSE stands for its matrices and norms) or the head takes, to explain a price. */
pk__work pk__measured_part(const pk__step *step, uint32_t index, int32_t kind, uint32_t i);
pk__work pk__measured_head_work(const pk__step *step, int64_t rows);
int64_t pk__measured_host_ns(const pk_kernel *kernel, const pk__sums *sums);

static inline const pk__measured *pk__measured_of(const pk_kernel *kernel) {
    return pk__at(kernel, kernel->measured_at);
}

#endif /* PK_INTERNAL_H */
