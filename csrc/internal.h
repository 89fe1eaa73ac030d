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

/* ---- errors -------------------------------------------------------------------------------------------------- */

/* Fills *error (if any) and returns the status, so that a check reads `return pk__fail(...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
pk_status pk__fail(pk_error *error, pk_status status, const char *field, const char *format, ...);

/* PK_OK when a caller's struct can be used. `size` is the library's own. */
pk_status pk__check_struct(uint32_t struct_size, uint32_t flags, size_t size, const char *name, pk_error *error);

/* ---- integers ------------------------------------------------------------------------------------------------ */

/* a + b and a * b for non-negative operands, held at INT64_MAX. */
int64_t pk__add(int64_t a, int64_t b);
int64_t pk__multiply(int64_t a, int64_t b);

static inline int64_t pk__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t pk__max(int64_t a, int64_t b) { return a > b ? a : b; }

/* a / b rounded up, for a >= 0 and b >= 1. */
static inline int64_t pk__ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* A count of bytes, truncated; NaN and negative are 0, too large is INT64_MAX. */
int64_t pk__whole(double bytes);

static inline double pk__seconds(int64_t ns) { return (double)ns / 1e9; }

/* ---- the frozen kernel --------------------------------------------------------------------------------------- */

/* A collective with its law, span and link worked in. */
typedef struct pk__collective {
    pk_collective_law law;
    double bytes_per_unit; /* span factor included */
    uint32_t units;        /* PK_UNITS_*; 0 = no collective */
    int32_t resource;
} pk__collective;

typedef struct pk__attention {
    pk_decode_law decode;
    pk_prefill_law prefill;
    double decode_floor_s;
    double decode_seconds_per_entry; /* of one cached token read, or of the fraction the read law counts in */
    double prefill_floor_s;
    double flops_per_pair4; /* prefill FLOP of this rank for pairs4 = 1 */
    uint32_t read_slot;     /* into the sums of a batch */
    uint32_t window_slot;
    uint32_t one_mixed_launch;
    uint32_t reserved;
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
    int32_t experts;
    int32_t local;
    int32_t top_k;
    int32_t funnel;
} pk__experts;

typedef struct pk__layer {
    double count;
    double flops_per_token; /* of this rank; matrices priced by shape count for more than they are */
    double weight_bytes;
    double elementwise_bytes_per_token;
    pk_recurrent_law recurrent;
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
    uint32_t layer_count, draft_layer_count;
    uint32_t cache_count, tier_count;
    uint32_t layers_at, attentions_at, scorers_at, experts_at, collectives_at, caches_at, tiers_at;
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

/* PK_OK when every field of the spec is within its range. */
pk_status pk__check_spec(const pk_spec *spec, pk_error *error);

/* ---- the sums of a batch ------------------------------------------------------------------------------------- */

/* Integer sums over the requests of a step: order plays no part, nothing rounds, nothing overflows (the limits of
 * pk_batch see to that). */
typedef struct pk__sums {
    int64_t scheduled;       /* tokens, of all requests */
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
    int64_t pairs4[PK_MAX_READS];  /* query-key pairs of prefills times four, by window */
} pk__sums;

pk_status pk__scan_batch(const pk_batch *batch, const pk_kernel *kernel, pk__sums *sums, pk_error *error);

/* The sums of the speculator's pass `pass` (2, 3, ...) after the step: one token for each attending request. */
void pk__scan_draft(const pk_batch *batch, const pk_kernel *kernel, int32_t pass, pk__sums *sums);

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
    double tokens;              /* rows of the forward pass on this rank, pad rows included */
    double flop_rate;           /* FLOP/s at that many rows; 0 for none */
    double attention_flop_rate; /* the same without the pad rows */
    double derate;              /* all SMs over those left, >= 1 */
} pk__step;

pk__step pk__step_of(const pk_kernel *kernel, const pk_batch *batch, const pk__sums *sums);

/* Seconds by resource. */
typedef struct pk__charge {
    double sm, hbm, nvlink, nic;
} pk__charge;

/* Seconds of `flops` at `rate`; 0 for no work, whatever the rate. */
static inline double pk__flop_seconds(double flops, double rate) { return flops > 0 ? flops / rate : 0; }

double pk__sm_derate(const pk_kernel *kernel, int64_t sm_budget);
double pk__dense_flops(const pk__layer *layer, const pk__step *step);
double pk__prefill_flops(const pk__attention *attention, const pk__step *step);
pk__charge pk__attention_charge(const pk__attention *attention, const pk__step *step);
double pk__scorer_seconds(const pk__scorer *scorer, const pk__step *step);
double pk__recurrent_seconds(const pk_recurrent_law *law, double tokens);
pk__charge pk__experts_charge(const pk__experts *experts, const pk__step *step);
double pk__experts_bytes(const pk__experts *experts, const pk__step *step);

/* What a collective launches in a step: how often, and how many bytes in all. */
typedef struct pk__traffic {
    double launches;
    double bytes;
    double seconds;
} pk__traffic;
pk__traffic pk__collective_traffic(const pk__collective *collective, const pk__step *step);
void pk__add_collective(const pk__collective *collective, double seconds, pk__charge *charge);
/* The pk_graph_mode that a step runs in. */
int32_t pk__graph_mode(const pk_kernel *kernel, const pk__sums *sums);
int64_t pk__graph_ns(const pk_kernel *kernel, const pk__sums *sums);

/* The step that the speculator's pass `pass` runs after `first`; its sums are kept in *sums. */
pk__step pk__draft_step(const pk__step *first, int32_t pass, pk__sums *sums);
int64_t pk__head_rows(const pk__step *step);
pk__charge pk__head_charge(const pk__step *step, int64_t rows);

#endif /* PK_INTERNAL_H */
