/*
 * pykernel: how long one step of an LLM-serving engine takes, and what it holds in memory.
 *
 * A simulator decides which requests run in a step; this library says what the step costs. A kernel prices one
 * pool of one deployment. It is built once from a pk_spec, a flat description of what the engine would run, and
 * answers from then on with pure functions: no state, no allocation, no locks, same input, same bits.
 *
 *     pk_error error = PK_ERROR_INIT;
 *     pk_kernel *kernel = NULL;
 *     if (pk_kernel_new(&spec, &kernel, &error) != PK_OK) { report(error.field, error.message); return; }
 *
 *     const int64_t scheduled[] = {1, 1, 512}, computed[] = {4095, 812, 0};
 *     pk_batch batch = PK_BATCH_INIT;
 *     batch.count = 3;
 *     batch.scheduled = scheduled;
 *     batch.computed = computed;
 *
 *     pk_estimate estimate = PK_ESTIMATE_INIT;
 *     if (pk_step_time(kernel, &batch, &estimate, &error) == PK_OK) clock += estimate.no_overlap_ns;
 *     pk_kernel_free(kernel);
 *
 * Conventions, said once:
 *
 *   units      durations are int64_t nanoseconds (suffix _ns), sizes are bytes, rates are bytes or FLOP per second.
 *              Everything is per rank (one GPU) unless a name says otherwise.
 *   widths     a parallel width that is not used is 1, never 0.
 *   structs    those that callers fill start with struct_size and flags. Set them with the _INIT macro: it fills in
 *              the size this header was compiled with; flags are reserved and must be 0. A library takes the sizes of
 *              its own header and refuses any other (PK_STRUCT_SIZE), so a caller compiled against another layout is
 *              told so, never misread. Before 1.0 a change of MINOR may change sizes, and the soname with them.
 *   errors     every function that can fail returns a pk_status and leaves its results untouched unless it is PK_OK.
 *              The pk_error argument may be NULL; one of another struct_size is left alone. "The argument errors" are
 *              PK_NULL_ARGUMENT, PK_STRUCT_SIZE, PK_RESERVED and PK_ARGUMENT.
 *   pointers   arguments are borrowed for the length of the call. Functions without a status take no NULL unless they
 *              say so. Nothing but a pk_kernel or a pk_batch_state is ever owned; text that a kernel hands out lives as
 *              long as the kernel. A NULL text in a spec is the empty text.
 *   threads    a pk_kernel is never written after pk_kernel_new returns: share it freely. Do not free it in use.
 *   numbers    NaN and infinity are refused in a spec. Durations saturate at INT64_MAX, they never wrap.
 *              Time is computed in double seconds and leaves by one truncation toward zero, so 972 launches of
 *              3,200 ns are 3,110,399 ns. Results are the same bits on every IEEE-754 platform.
 */
#ifndef PYKERNEL_H
#define PYKERNEL_H

#include <stddef.h> /* size_t */
#include <stdint.h> /* int64_t and its kin */

/* ---- visibility and attributes ------------------------------------------------------------------------------- */

#if defined(PK_CDEF)
#define PK_API
#define PK_PURE
#elif defined(_WIN32)
#define PK_API
#define PK_PURE
#elif defined(__GNUC__)
#define PK_API __attribute__((visibility("default")))
#define PK_PURE __attribute__((pure))
#else
#define PK_API
#define PK_PURE
#endif

#if defined(__cplusplus) && !defined(PK_CDEF)
extern "C" {
#endif

/* ---- version ------------------------------------------------------------------------------------------------- */

#ifndef PK_CDEF
#define PK_VERSION_MAJOR 0
#define PK_VERSION_MINOR 1
#define PK_VERSION_PATCH 0
#define PK_VERSION (PK_VERSION_MAJOR * 10000 + PK_VERSION_MINOR * 100 + PK_VERSION_PATCH)
#endif

/* The version of the library that runs, as MAJOR * 10000 + MINOR * 100 + PATCH; compare with PK_VERSION. */
PK_API uint32_t pk_version(void);

/* 1 when the library was built as it must be (no contraction of a * b + c, no fast-math), 0 when not: its results
 * would then differ between machines. The Python package refuses to load such a build. */
PK_API int32_t pk_arithmetic_is_exact(void);

/* ---- status and errors --------------------------------------------------------------------------------------- */

/* Values are pinned, in families of 10; new ones are added inside the gaps. X(name, value, sentence). */
#define PK_STATUS_MAP(X)                                                                                              \
    X(OK, 0, "success")                                                                                               \
    X(NULL_ARGUMENT, 10, "a required pointer is NULL")                                                                \
    X(STRUCT_SIZE, 11, "struct_size is none that this library knows; use the _INIT macro")                            \
    X(RESERVED, 12, "a reserved field or flag is not 0")                                                              \
    X(ARGUMENT, 13, "an argument is outside its range")                                                               \
    X(NO_MEMORY, 20, "memory could not be allocated")                                                                 \
    X(SPEC_VALUE, 30, "a field of the spec is outside its range")                                                     \
    X(SPEC_INDEX, 31, "a reference inside the spec points outside its array")                                         \
    X(SPEC_LAW, 32, "the spec names a law that this library does not have")                                           \
    X(SPEC_LIMIT, 33, "the spec is larger than this library supports")                                                \
    X(BATCH_VALUE, 40, "a request of the batch is outside its range")                                                 \
    X(BATCH_LIMIT, 41, "the batch holds more tokens than a step can")                                                 \
    X(NO_ROOM, 50, "the model leaves no room for a KV cache")                                                         \
    X(IMAGE_FOREIGN, 60, "this is no kernel image")                                                                   \
    X(IMAGE_VERSION, 61, "the image is of a format that this library does not read")                                  \
    X(IMAGE_SIZE, 62, "the image is cut short, or longer than it says")                                               \
    X(IMAGE_CHECKSUM, 63, "the image is damaged")                                                                     \
    X(IMAGE_LAYOUT, 64, "the image's checksum is right but its contents are not laid out as they must be")            \
    X(BUFFER, 65, "the buffer is too small for the result")                                                           \
    X(FILE, 66, "a file could not be read or written")                                                                \
    X(MODEL, 70, "a cost model could not be loaded, or lacks a function")

typedef enum pk_status {
#define PK_STATUS_ENUM(name, value, text) PK_##name = value,
    PK_STATUS_MAP(PK_STATUS_ENUM)
#undef PK_STATUS_ENUM
        PK_STATUS_MAX = 0x7fffffff
} pk_status;

/* The name of a status ("SPEC_VALUE") and its sentence; "UNKNOWN" for a value that is none. Static text. */
PK_API const char *pk_status_name(int32_t status);
PK_API const char *pk_status_text(int32_t status);

/* What went wrong, where. `field` is the dotted name of the argument or spec field ("layers[2].count"), `message` a
 * sentence with the value found and the values accepted. Both are NUL-terminated and empty after a success. */
typedef struct pk_error {
    uint32_t struct_size;
    int32_t status;
    char field[96];
    char message[256];
} pk_error;

#ifndef PK_CDEF
#define PK_ERROR_INIT {sizeof(pk_error), 0, {0}, {0}}
#endif

/* ---- resources ----------------------------------------------------------------------------------------------- */

/* What a step waits for. The order is part of the interface: it breaks ties of the bottleneck. */
typedef enum pk_resource {
    PK_SM = 0,          /* arithmetic, and collectives whose kernel occupies SMs */
    PK_HBM = 1,         /* device memory: weights, KV cache, norms */
    PK_NVLINK = 2,      /* collectives on a node, or inside one rack-scale NVLink domain */
    PK_NIC = 3,         /* collectives that leave the node */
    PK_PCIE = 4,        /* not used by a step */
    PK_COPY_ENGINE = 5, /* not used by a step */
    PK_HOST = 6,        /* launching the step; overlaps with nothing */
    PK_RESOURCE_COUNT = 7
} pk_resource;

/* ---- limits of a spec ---------------------------------------------------------------------------------------- */

enum {
    PK_MAX_READS = 16,           /* different read laws of one model, and different prefill windows */
    PK_MAX_COMPRESS_RATIO = 512, /* tokens that one entry of a compressed cache stands for */
    PK_MAX_CONTEXT_RANKS = 1024,
    PK_MAX_DRAFT_PASSES = 64
};

/* ---- spec: coefficient structs of the laws -------------------------------------------------------------------- */

/* Dense arithmetic. The fraction of peak that m tokens reach:
 *   PK_GEMM_TOKEN_RAMP  eps_max * m / (m + m_half); eps_max where m_half is 0
 *   PK_GEMM_SHAPE_RAMP  the same, times k / (k + k_half) and n / (n + n_half) of each matrix as one rank holds it */
enum { PK_GEMM_TOKEN_RAMP = 1, PK_GEMM_SHAPE_RAMP = 2 };
typedef struct pk_gemm_law {
    uint32_t law;
    uint32_t reserved;
    double eps_max; /* in (0, 1.5] */
    double m_half;  /* tokens, >= 0 */
    double n_half;  /* output width, >= 0; read under PK_GEMM_SHAPE_RAMP */
    double k_half;  /* input width, >= 0; read under PK_GEMM_SHAPE_RAMP */
} pk_gemm_law;

/* The cached tokens that one layer reads for a decoding request with c tokens of context:
 *   PK_READ_ALL       c
 *   PK_READ_WINDOW    min(c, window)
 *   PK_READ_SELECTED  min(c, min(top_k, c / compress_ratio) + min(c, window)); a top_k or window of 0 drops its term
 * Where `sharded`, decode-context-parallel ranks divide that number, interleaved; the fullest rank counts. */
enum { PK_READ_ALL = 1, PK_READ_WINDOW = 2, PK_READ_SELECTED = 3 };
typedef struct pk_read_law {
    uint32_t law;
    int32_t sharded;        /* 0 or 1 */
    int32_t top_k;          /* entries, >= 0; read under PK_READ_SELECTED */
    int32_t compress_ratio; /* tokens an entry stands for, 1 to PK_MAX_COMPRESS_RATIO; read under PK_READ_SELECTED */
    int64_t window;         /* tokens, >= 0 */
} pk_read_law;

/* Attention of decoding requests, in one layer, t cached tokens read of b bytes each:
 *   PK_DECODE_FLOOR_RATE  floor + t * b / rate, charged to HBM
 *   PK_DECODE_HBM         t * b at the device's memory rate, with the weights; no floor */
enum { PK_DECODE_FLOOR_RATE = 1, PK_DECODE_HBM = 2 };
typedef struct pk_decode_law {
    uint32_t law;
    uint32_t reserved;
    int64_t floor_ns;        /* once a layer and step, >= 0 */
    double bytes_per_second; /* > 0 under PK_DECODE_FLOOR_RATE */
} pk_decode_law;

/* Attention of prefilling requests, in one layer, F FLOP of causal scores and values:
 *   PK_PREFILL_FLOOR_RAMP  floor + F / (peak * efficiency(m) * work_scale), charged to SM
 *   PK_PREFILL_DENSE       F joins the layer's dense arithmetic; no floor */
enum { PK_PREFILL_FLOOR_RAMP = 1, PK_PREFILL_DENSE = 2 };
typedef struct pk_prefill_law {
    uint32_t law;
    uint32_t reserved;
    int64_t floor_ns;  /* once a layer and step, >= 0 */
    double work_scale; /* > 0 under PK_PREFILL_FLOOR_RAMP */
} pk_prefill_law;

/* A recurrent mixer, in one layer, m tokens:
 *   PK_RECURRENT_NONE        nothing
 *   PK_RECURRENT_FLOOR_RATE  floor + m / rate, charged to SM whatever SMs are withheld */
enum { PK_RECURRENT_NONE = 0, PK_RECURRENT_FLOOR_RATE = 1 };
typedef struct pk_recurrent_law {
    uint32_t law;
    uint32_t reserved;
    int64_t floor_ns;         /* once a layer and step, >= 0 */
    double tokens_per_second; /* > 0 under PK_RECURRENT_FLOOR_RATE */
} pk_recurrent_law;

/* A collective of b bytes; pk_collective_seconds:
 *   PK_COLLECTIVE_TWO_RATES  max(floor + b / transition, b / peak); without a transition rate max(floor, b / peak) */
enum { PK_COLLECTIVE_TWO_RATES = 1 };
typedef struct pk_collective_law {
    uint32_t law;
    uint32_t reserved;
    int64_t floor_ns;                   /* once a launch, >= 0 */
    double transition_bytes_per_second; /* 0 = none */
    double peak_bytes_per_second;       /* > 0 */
} pk_collective_law;

/* ---- spec: the deployment ------------------------------------------------------------------------------------- */

/* The ranks that take part in a collective, and how they lie on the nodes. */
typedef struct pk_group {
    int32_t width;         /* ranks, >= 1 */
    int32_t per_node;      /* most of its ranks that one node can hold, >= 1 */
    int32_t crosses_nodes; /* 1 when it leaves its node (or its rack, where a rack is one NVLink domain) */
    int32_t reserved;
} pk_group;

/* How much more a byte costs when the group crosses nodes. The factor scales bytes, not time:
 *   PK_SPAN_RING        ring algorithms: all-reduce, all-gather, reduce-scatter, gather-style dispatch
 *   PK_SPAN_ALL_TO_ALL  point-to-point dispatch of routed tokens */
enum { PK_SPAN_RING = 1, PK_SPAN_ALL_TO_ALL = 2 };

/* What a collective's bytes are counted by. Where the count is 0 the collective is not launched.
 *   PK_UNITS_TOKENS          rows of the forward pass on this rank, pad rows included
 *   PK_UNITS_DECODE_ROWS     tokens that decodes schedule
 *   PK_UNITS_CONTEXT_ROWS    all tokens scheduled, in a step where any request has computed tokens
 *   PK_UNITS_PREFILL_ROWS    tokens of prefills on this rank, times the prefill-context-parallel width
 *   PK_UNITS_CONTEXT_CHUNKS  computed tokens of prefills, gathered run by run in chunks of context_chunk tokens */
enum {
    PK_UNITS_TOKENS = 1,
    PK_UNITS_DECODE_ROWS = 2,
    PK_UNITS_CONTEXT_ROWS = 3,
    PK_UNITS_PREFILL_ROWS = 4,
    PK_UNITS_CONTEXT_CHUNKS = 5
};

/* One collective of a layer, each launch a separate evaluation of its law. */
typedef struct pk_collective {
    uint32_t law;          /* index into collective_laws */
    uint32_t group;        /* index into groups */
    uint32_t span;         /* PK_SPAN_* */
    uint32_t units;        /* PK_UNITS_* */
    int32_t on_sm;         /* 1 = charged to the SMs its kernel occupies, 0 = to its link */
    int32_t reserved;
    double bytes_per_unit; /* of the tensor counted, >= 0 */
} pk_collective;

/* The attention that holds a layer's KV cache. */
typedef struct pk_attention {
    int32_t query_heads;          /* of the whole model, >= 1 */
    int32_t head_dim;             /* elements; the width of the cached vector for latent attention */
    int64_t prefill_window;       /* tokens that a query of a prefill sees; 0 = all */
    double cache_bytes_per_token; /* what this layer keeps of one token on this rank */
    int32_t one_mixed_launch;     /* 1 when a step with prefills and decodes is one launch of this kernel */
    int32_t reserved;
    pk_read_law read;
    pk_decode_law decode;
    pk_prefill_law prefill;
} pk_attention;

/* A scorer that chooses what a layer's attention reads: it scans its own narrow cache when requests decode. */
typedef struct pk_scorer {
    double cache_bytes_per_token; /* of one token it scans */
    int64_t window;               /* tokens of each request at most; 0 = all. Bounds the sum over the requests */
    int32_t compress_ratio;       /* tokens an entry stands for, >= 1 */
    int32_t sharded;              /* 1 when decode-context-parallel ranks divide the scan */
    pk_decode_law decode;         /* PK_DECODE_FLOOR_RATE */
} pk_scorer;

/* The routed experts of a layer. Work is that of the fullest rank. */
typedef struct pk_experts {
    int32_t experts;                    /* physical, replicas included, >= 1 */
    int32_t local;                      /* held by the fullest rank, in [1, experts] */
    int32_t top_k;                      /* experts a token visits, in [1, experts] */
    int32_t shards;                     /* ranks that share one expert's weights, >= 1 */
    int32_t funnel;                     /* data-parallel replicas whose tokens meet here, >= 1 */
    int32_t token_slices;               /* ways those tokens' work is divided again, >= 1 */
    double flops_per_token_and_expert;  /* whole expert */
    double bytes_per_expert;            /* whole expert */
    double imbalance;                   /* factor on arithmetic for uneven routing, > 0 */
    double stored_bytes_per_expert;     /* whole expert as memory holds it, scales included */
    int32_t redundant;                  /* replicas among `experts`, in [0, experts) */
    int32_t ranks;                      /* that whole experts are dealt to, >= 1 */
} pk_experts;

/* One matrix of a layer, under PK_GEMM_SHAPE_RAMP. Widths are those one rank holds. */
typedef struct pk_gemm {
    double flops_per_token; /* whole model */
    double n;               /* output width, >= 0 */
    double k;               /* input width, >= 0 */
} pk_gemm;

/* A kind of layer and how often the stack holds it. Aggregates are of the whole model, before division by tp. */
typedef struct pk_layer {
    int32_t count;              /* >= 1 */
    uint32_t attention_first;   /* range in attentions; count 0 or 1 */
    uint32_t attention_count;
    uint32_t scorer_first;      /* range in scorers */
    uint32_t scorer_count;
    uint32_t gemm_first;        /* range in gemms: work beside dense_flops_per_token, priced by its shape */
    uint32_t gemm_count;
    uint32_t experts_first;     /* range in experts */
    uint32_t experts_count;
    uint32_t collective_first;  /* range in collectives */
    uint32_t collective_count;
    uint32_t reserved;
    double dense_flops_per_token;       /* GEMMs and shared experts on the token ramp */
    double dense_bytes;                 /* weights of everything but routed experts */
    double elementwise_bytes_per_token; /* norms and the like */
    pk_recurrent_law recurrent;
    double stored_bytes;     /* what memory holds of the weights that tp divides, scales included */
    double replicated_bytes; /* and of those that every rank holds whole */
} pk_layer;

/* The final norm and output projection, once a step.
 *   PK_HEAD_SAMPLED_ROWS  on each decode's tokens and one row of each prefill
 *   PK_HEAD_ALL_TOKENS    on every token of the step */
enum { PK_HEAD_SAMPLED_ROWS = 1, PK_HEAD_ALL_TOKENS = 2 };
typedef struct pk_head {
    uint32_t rows;               /* PK_HEAD_* */
    uint32_t has_gather;         /* 1 when logits are gathered over the tensor-parallel group */
    uint32_t gather_law;         /* index into collective_laws, read when has_gather */
    uint32_t gather_group;       /* index into groups, read when has_gather */
    double flops_per_row;        /* whole model; 0 without a head */
    double bytes;                /* whole model's weights */
    double gather_bytes_per_row; /* of the gathered logits */
    double stored_bytes;         /* what memory holds of the weights */
} pk_head;

/* How a step is launched, and what that costs the host. */
typedef enum pk_graph_mode {
    PK_GRAPH_NONE = 0,      /* no graph: one launch cost a layer */
    PK_GRAPH_PIECEWISE = 1, /* one replay a segment */
    PK_GRAPH_FULL = 2       /* one replay a step */
} pk_graph_mode;

typedef struct pk_host {
    int32_t uniform_mode;      /* pk_graph_mode of a uniform decode batch */
    int32_t other_mode;        /* pk_graph_mode of any other batch */
    int32_t uniform_width;     /* tokens every request schedules in a uniform decode, >= 1 */
    int32_t segments;          /* of a piecewise graph, >= 1 */
    int32_t layers;            /* of the stack, >= 1 */
    int32_t kernels;           /* launched in one step, >= 0 */
    int64_t capture_tokens;    /* largest step that runs as a graph; 0 = none */
    int64_t decode_threshold;  /* most tokens that a request schedules and is still a decode, >= 1 */
    int64_t replay_ns;         /* one graph replay */
    int64_t eager_layer_ns;    /* launching one layer without a graph */
    int64_t kernel_ns;         /* dispatching one kernel, in every mode */
    int64_t admission_request_ns; /* work outside the steps: taking in a request, */
    int64_t admission_token_ns;   /* and each token of its prompt; */
    int64_t output_token_ns;      /* handing out one token; */
    int64_t completion_ns;        /* ending a request */
} pk_host;

/* ---- spec: memory --------------------------------------------------------------------------------------------- */

/* What a sequence keeps in a group of equal layers, on one rank. p is the tokens held: the sequence's, or those of
 * the fullest decode-context-parallel rank where `sharded`, and `window` at most where that is > 0.
 *   PK_CACHE_TOKENS      an entry for every tokens_per_entry tokens of p, in whole pages of `block` tokens
 *   PK_CACHE_RING        pages for the last `window` tokens and those in flight, recycled
 *   PK_CACHE_STATE       `pages` pages of entry_bytes, however long the sequence
 *   PK_CACHE_CHECKPOINTS a page of entry_bytes for every `block` tokens, sharded or not, and `pages` more */
enum { PK_CACHE_TOKENS = 1, PK_CACHE_RING = 2, PK_CACHE_STATE = 3, PK_CACHE_CHECKPOINTS = 4 };
typedef struct pk_cache_group {
    uint32_t kind;            /* PK_CACHE_* */
    int32_t layers;           /* >= 1 */
    int32_t tokens_per_entry; /* >= 1 */
    int32_t sharded;          /* 1 when decode-context-parallel ranks divide the tokens; PK_CACHE_TOKENS */
    int32_t pages;            /* >= 0; PK_CACHE_STATE and PK_CACHE_CHECKPOINTS */
    int32_t handed_over;      /* 1 when it moves from a prefill to a decode pool */
    int64_t block;            /* tokens of a page, >= 1 */
    int64_t window;           /* tokens; 0 = all; >= 1 under PK_CACHE_RING */
    double entry_bytes;       /* of one entry, or one page of state, of one layer on this rank */
} pk_cache_group;

/* What a rank's memory holds beside weights and caches, and how much of it the engine uses. */
typedef struct pk_memory {
    int64_t device_bytes;           /* of the part, >= 1 */
    double utilization;             /* share of it that the engine plans with, in (0, 1] */
    double embedding_bytes;         /* of the whole vocabulary; 0 where the output projection is the same matrix */
    double activation_buffers;      /* live at the peak of a forward pass */
    int64_t activation_tokens;      /* rows of the widest step */
    int64_t activation_width;       /* elements of a row, at 16 bits */
    int64_t activation_floor_bytes; /* least scratch */
    int64_t graph_bytes;            /* captured graphs */
    int64_t communicator_bytes;     /* of the collectives' library */
    int64_t workspace_bytes;        /* of the engine */
    int32_t inside_budget;          /* 1 = those two are part of the fixed bytes, 0 = held before the budget is taken */
    int32_t draft_tokens;           /* of one request and step, >= 0 */
    int64_t block;                  /* tokens of a page of the KV cache, >= 1 */
    int64_t in_flight_tokens;       /* most that the engine schedules before it has settled any, >= 1 */
    int64_t model_length;           /* longest sequence, tokens; 0 = not known */
    double pool_block_bytes;        /* a page of any growing or ring group, where all share one pool; 0 = each its own */
} pk_memory;

/* ---- spec: transfers ------------------------------------------------------------------------------------------ */

/* A class of storage that cache blocks can be offloaded to. */
typedef struct pk_tier {
    char name[64]; /* NUL-terminated, not empty, no other tier's */
    double read_bytes_per_second;
    double write_bytes_per_second;
    double latency_us; /* least time of a transfer */
} pk_tier;

/* The links that cache blocks travel over. */
typedef struct pk_links {
    double host_bytes_per_second;   /* between a GPU and its host; 0 = not known, no bound */
    double node_bytes_per_second;   /* between the GPUs of a node, one direction; 0 = no bandwidth is stated */
    double fabric_bytes_per_second; /* between nodes; 0 = no bandwidth is stated */
    int64_t handoff_floor_ns;       /* least time of a prefill-to-decode handoff */
    int32_t rack_is_one_domain;     /* 1 when the nodes of a rack reach each other as the GPUs of a node do */
    int32_t reserved;
} pk_links;

/* ---- spec: what it stands for ---------------------------------------------------------------------------------- */

/* No price depends on anything in this part: it travels with a kernel, so that whoever gets one can ask what it is. All
 * text is NUL-terminated UTF-8 of at most PK_MAX_TEXT bytes, PK_MAX_ALL_TEXT in all. */
enum { PK_MAX_TEXT = 1 << 20, PK_MAX_ALL_TEXT = 1 << 26 };

/* What the engine would run. A width of 0 is not set. */
typedef struct pk_resolution {
    int32_t tensor_parallel;     /* ranks, >= 0 */
    int32_t data_parallel;       /* replicas, >= 0 */
    int32_t expert_parallel;     /* ranks, >= 0 */
    int32_t async_scheduling;    /* 0 or 1 */
    int32_t cascade_attention;   /* 0 or 1 */
    int32_t sequence_parallel_moe; /* 0 or 1 */
    const char *all_reduce_backend;
} pk_resolution;

/* Where one number of a kernel comes from. For an assumption `method` is "assumed" and `scope` reads
 * "<value>: <reason>". */
typedef struct pk_origin {
    const char *name;
    const char *set;
    const char *method;
    const char *scope;
} pk_origin;

/* A setting that the engine runs otherwise than requested, and why. */
typedef struct pk_override {
    const char *field;
    const char *requested;
    const char *resolved;
    const char *reason;
} pk_override;

/* Anything else, by key; see pk_text. The first of equal keys counts. */
typedef struct pk_note {
    const char *key;
    const char *value;
} pk_note;

/* ---- spec: measured laws --------------------------------------------------------------------------------------- */

/* Laws that are fitted to measured kernels, one by one, instead of to aggregates of a layer. Where a spec has them
 * they price every layer, the head and the host; the laws above then only say which layers read what. In all of them
 *
 *   norm(a, b) = (a^p + b^p)^(1/p) with p = exponent / 16, by pk_power
 *   peak_flops is that of the kernel's number format, B the spec's memory rate, S the SMs
 *   efficiencies are fractions of peak_flops and B; times are seconds
 *
 * and no kernel takes less than its FLOP at peak_flops or its bytes at B. */

/* A GEMM of m rows on a rank's n x k matrix:
 *   floor + depth * sqrt(k) + per_row * m + norm(arithmetic, weights) + activations, with
 *   arithmetic   2mnk / (peak * compute) * (1 + k_half / k) * (1 + wave * S * 128^2 / (mn))
 *   weights      bytes / (B * memory)
 *   activations  (input_passes * 2mk + output_passes * 2mn) / B */
typedef struct pk_matrix_law {
    uint32_t exponent; /* sixteenths, 1 to 256 */
    uint32_t reserved;
    double peak_flops;
    double compute, memory; /* in (0, 1] */
    double k_half, wave, input_passes, output_passes;
    double floor, depth, per_row;
} pk_matrix_law;

/* Attention of query rows that read t cached tokens together, over h KV heads of this rank:
 *   floor + (regroup where rows > 1) + norm(read + arithmetic, rows * (per_row + per_stream * h)), with
 *   read        bytes / (B * memory) * (1 + occupancy * S / (h * max(rows, t / 256)))
 *   arithmetic  FLOP / (peak * compute) */
typedef struct pk_stream_law {
    uint32_t exponent;
    uint32_t reserved;
    double peak_flops;
    double compute, memory, occupancy;
    double floor, per_row, per_stream;
    double regroup; /* copying the query heads of a group together, and their results back */
} pk_stream_law;

/* Attention of r prefills of t tokens together, over h heads of width d:
 *   floor + per_stream * r * h + norm(products, exponentials) * (1 + occupancy * S / tiles) + moved
 *   products      FLOP / (peak * compute)
 *   exponentials  FLOP / peak * head_half / d: one for each pair and head, whatever its width
 *   tiles         h * max(1, t / 128)
 *   moved         (query bytes / memory + kv_passes * KV bytes) / B */
typedef struct pk_tile_law {
    uint32_t exponent;
    uint32_t reserved;
    double peak_flops;
    double compute, memory, occupancy, head_half, kv_passes;
    double floor, per_stream;
} pk_tile_law;

/* Routed experts of the busiest rank: t tokens of all ranks, r token-expert pairs of its own, a experts that it reads:
 *   floor + ramp * t / (t + 16) + norm(arithmetic, weights) + moved, with
 *   arithmetic  FLOP a pair * (r + padding * a) / (peak * compute) * (1 + width_half / width)
 *   weights     a * bytes an expert / (B * memory)
 *   moved       (row_passes * 4r(hidden + width) + slot_passes * 2 * t * top_k * hidden) / B
 * Experts are not equally popular: popularity is gamma distributed with this shape, so that
 *   a = local * (1 - (1 + t * top_k / (experts * shape))^-shape), and the busiest rank has `busiest` times its share. */
typedef struct pk_expert_law {
    uint32_t exponent;
    uint32_t reserved;
    double peak_flops;
    double compute, memory, width_half, padding, row_passes, slot_passes;
    double floor, ramp;
} pk_expert_law;

/* A collective over n ranks: norm(floor + per_peer * (n - 1), bytes * volume * (n - 1) / n / bytes_per_second). */
typedef struct pk_link_law {
    uint32_t exponent;
    uint32_t reserved;
    double volume; /* crossings of a rank's link by each byte, before (n - 1) / n */
    double bytes_per_second;
    double floor, per_peer;
} pk_link_law;

/* A recurrent mixer: floor + (state_passes * state bytes + token_passes * token bytes) / B + FLOP / (peak * compute). */
typedef struct pk_mixer_law {
    uint32_t reserved[2];
    double peak_flops;
    double compute, state_passes, token_passes;
    double floor;
} pk_mixer_law;

/* One matrix as a rank holds it. */
typedef struct pk_matrix {
    uint32_t law; /* index into matrix_laws */
    int32_t reserved;
    double n, k, weight_bytes; /* weight_bytes of one weight, its scales included */
} pk_matrix;

/* What the measured laws ask beside of the attention, scorer, experts or collective of the same index. */
typedef struct pk_measured_attention {
    uint32_t decode_law;      /* index into stream_laws */
    uint32_t prefill_law;     /* index into tile_laws, or into stream_laws where prefill_streams */
    int32_t prefill_streams;  /* 1 where every query of a prefill gathers the entries it reads, as in a decode */
    int32_t reserved;
    double heads, kv_heads, head_dim;
    double decode_bytes, decode_flops; /* of one token read by one row */
    double prefill_flops;              /* of one query-key pair */
    double query_bytes, kv_bytes;      /* of one token of a prefill */
} pk_measured_attention;

typedef struct pk_measured_scorer {
    uint32_t law; /* index into stream_laws */
    int32_t reserved;
    double flops; /* of one score */
} pk_measured_scorer;

typedef struct pk_measured_experts {
    uint32_t law; /* index into expert_laws */
    int32_t reserved;
    double hidden, width;
    double flops_per_row;    /* of one token in one expert of this rank */
    double bytes_per_expert; /* that this rank holds */
    double shape, busiest;   /* of the routing, > 0 and >= 1 */
} pk_measured_experts;

/* The engine reduces tensors of up to most_bytes with a kernel of its own, of law `law`; larger ones are NCCL's, of law
 * large_law, and charged to the link. */
typedef struct pk_measured_collective {
    uint32_t law; /* index into link_laws */
    uint32_t large_law;
    double most_bytes;
} pk_measured_collective;

/* What they ask of the layer of the same index. */
typedef struct pk_measured_layer {
    uint32_t matrix_first; /* range in matrices */
    uint32_t matrix_count;
    uint32_t mixer;         /* 1 when a recurrent mixer runs */
    uint32_t decode_law;    /* index into mixer_laws, read when mixer */
    uint32_t prefill_law;   /* index into mixer_laws, read when mixer */
    uint32_t reserved;
    double state_bytes; /* of one request */
    double token_bytes; /* of one token */
    double token_flops; /* of one token */
} pk_measured_layer;

/* Host and small-kernel time that no kernel table holds, seconds. */
typedef struct pk_measured_host {
    double kernel_scale;       /* of every kernel's time, in (0, 2]: neighbours in a graph overlap their ends */
    double layer;              /* each layer of a step */
    double prompt_layer;       /* each layer of a step that prefills, beside that */
    double prompt_token;       /* each token that it prefills */
    double unprepared_step;    /* a step that the host could not prepare while the one before ran */
    double unprepared_request; /* each request of it */
} pk_measured_host;

/* One captured size of a graph, in tokens. */
typedef struct pk_capture_size {
    int64_t tokens;
} pk_capture_size;

typedef struct pk_measured {
    const pk_measured_layer *layers;           /* as many as the spec's layers, drafts included */
    const pk_measured_attention *attentions;   /* as many as the spec's */
    const pk_measured_scorer *scorers;         /* as many as the spec's */
    const pk_measured_experts *experts;        /* as many as the spec's */
    const pk_measured_collective *collectives; /* as many as the spec's */
    const pk_matrix *matrices;
    const pk_matrix_law *matrix_laws;
    const pk_stream_law *stream_laws;
    const pk_tile_law *tile_laws;
    const pk_expert_law *expert_laws;
    const pk_link_law *link_laws;
    const pk_mixer_law *mixer_laws;
    const pk_capture_size *capture_sizes; /* ascending; a graph runs the smallest that holds its tokens */
    uint32_t layer_count;
    uint32_t attention_count;
    uint32_t scorer_count;
    uint32_t experts_count;
    uint32_t collective_count;
    uint32_t matrix_count;
    uint32_t matrix_law_count;
    uint32_t stream_law_count;
    uint32_t tile_law_count;
    uint32_t expert_law_count;
    uint32_t link_law_count;
    uint32_t mixer_law_count;
    uint32_t capture_size_count;
    uint32_t present;        /* 1 = these laws price, 0 = there are none */
    uint32_t head_matrix;    /* index into matrices, read where the spec has a head */
    uint32_t gather_law;     /* index into link_laws, read where the head gathers */
    double bytes_per_second; /* B: of the part's memory, not derated */
    pk_measured_host host;
} pk_measured;

/* Everything a kernel's answers depend on but their arguments. Arrays are a pointer and a count; NULL with count 0. */
typedef struct pk_spec {
    uint32_t struct_size;
    uint32_t flags;

    int32_t tensor_parallel;          /* ranks that share every dense weight, >= 1 */
    int32_t prefill_context_parallel; /* ranks that share a prefill's tokens, 1 to PK_MAX_CONTEXT_RANKS */
    int32_t decode_context_parallel;  /* ranks that share a decode's KV cache, 1 to PK_MAX_CONTEXT_RANKS */
    int32_t interleave;               /* consecutive tokens that one such rank keeps, >= 1 */
    int64_t context_chunk;            /* tokens of prefix gathered at once, >= 1 */

    int32_t draft_passes; /* of the speculator after each step; 0 = none */
    int32_t sm_count;     /* of the part; 0 = not stated, an SM budget then changes nothing */

    double peak_flops;           /* dense FLOP/s in the served format, > 0 */
    double hbm_bytes_per_second; /* what the part delivers, > 0 */
    double link_ratio;           /* bandwidth on a node over bandwidth between nodes; 1 or below = no penalty */

    pk_gemm_law gemm;
    pk_host host;
    pk_head head;
    pk_memory memory;
    pk_links links;
    pk_resolution resolution;

    const pk_layer *layers; /* the stack's kinds, at least one, then those of the speculator */
    const pk_attention *attentions;
    const pk_scorer *scorers;
    const pk_gemm *gemms;
    const pk_experts *experts;
    const pk_collective *collectives;
    const pk_collective_law *collective_laws;
    const pk_group *groups;
    const pk_cache_group *caches;
    const pk_tier *tiers;
    const pk_origin *origins;
    const pk_override *overrides;
    const pk_note *notes;
    uint32_t layer_count;       /* of the stack */
    uint32_t draft_layer_count; /* of the speculator, behind them */
    uint32_t attention_count;
    uint32_t scorer_count;
    uint32_t gemm_count;
    uint32_t experts_count;
    uint32_t collective_count;
    uint32_t collective_law_count;
    uint32_t group_count;
    uint32_t cache_count;
    uint32_t tier_count;
    uint32_t origin_count;
    uint32_t override_count;
    uint32_t note_count;

    pk_measured measured; /* read where its `present` is 1; the laws above price everything otherwise */
} pk_spec;

#ifndef PK_CDEF
#ifdef __cplusplus
static inline pk_spec pk_spec_init(void) {
    pk_spec spec = {};
    spec.struct_size = sizeof spec;
    return spec;
}
#define PK_SPEC_INIT pk_spec_init()
#else
#define PK_SPEC_INIT {.struct_size = sizeof(pk_spec)}
#endif
#endif

/* ---- kernel -------------------------------------------------------------------------------------------------- */

/* A frozen kernel: one block of memory without pointers. */
typedef struct pk_kernel pk_kernel;

/* Checks every field of `spec`, folds what does not depend on the batch, and stores the kernel, the caller's to free,
 * in `*kernel`. The spec and its arrays may be freed afterwards. Fails with PK_SPEC_*, PK_NO_MEMORY and the argument
 * errors. */
PK_API pk_status pk_kernel_new(const pk_spec *spec, pk_kernel **kernel, pk_error *error);

/* Frees a kernel; NULL is allowed. No other thread may use it any more. */
PK_API void pk_kernel_free(pk_kernel *kernel);

/* Bytes of the kernel's block; 0 for NULL. Kernels of equal specs are equal byte for byte. */
PK_API PK_PURE size_t pk_kernel_size(const pk_kernel *kernel);

/* ---- image --------------------------------------------------------------------------------------------------- */

/* A kernel on its way to another process or machine: the spec it was built of, its text included, little-endian
 * wherever it is written, sealed by a checksum over every byte. A loaded kernel is built anew by pk_kernel_new's own
 * checks, so it equals the one saved byte for byte. docs/image.md describes the format. */

enum { PK_IMAGE_FORMAT = 1 };

/* Bytes of a kernel's image; 0 for NULL. */
PK_API PK_PURE size_t pk_image_size(const pk_kernel *kernel);

/* Writes the image to `capacity` bytes of memory, which may lie anywhere, and its size to `*size` (if not NULL), that
 * also on PK_BUFFER, which says that the capacity is smaller. Fails with the argument errors. */
PK_API pk_status pk_kernel_save(const pk_kernel *kernel, void *memory, size_t capacity, size_t *size, pk_error *error);

/* Makes a kernel, the caller's to free, of an image of exactly `size` bytes. Fails with PK_IMAGE_* (`field` is the part
 * of the image, "image.checksum"), with whatever pk_kernel_new fails with, and with the argument errors. */
PK_API pk_status pk_kernel_load(const void *memory, size_t size, pk_kernel **kernel, pk_error *error);

/* The same to and from the file at `path`; also fail with PK_FILE. A file that could not be written whole is removed. */
PK_API pk_status pk_kernel_save_file(const pk_kernel *kernel, const char *path, pk_error *error);
PK_API pk_status pk_kernel_load_file(const char *path, pk_kernel **kernel, pk_error *error);

/* ---- what a kernel stands for -------------------------------------------------------------------------------- */

/* `kernel` must not be NULL from here on, unless a status is returned. */

/* What the engine would run. */
PK_API PK_PURE pk_resolution pk_resolved(const pk_kernel *kernel);

/* The settings that the engine runs otherwise than requested. All members are NULL for an index that does not exist. */
PK_API PK_PURE size_t pk_override_count(const pk_kernel *kernel);
PK_API PK_PURE pk_override pk_override_at(const pk_kernel *kernel, size_t index);

/* Where every number comes from, the assumptions last. All members are NULL for an index that does not exist. */
PK_API PK_PURE size_t pk_origin_count(const pk_kernel *kernel);
PK_API PK_PURE pk_origin pk_origin_at(const pk_kernel *kernel, size_t index);

/* Of all origins, those that rest on evidence (measured, literature, vendor_spec), and those that are assumed. */
typedef struct pk_evidence {
    int64_t measured;
    int64_t total;
    int64_t assumed;
} pk_evidence;
PK_API PK_PURE pk_evidence pk_evidence_of(const pk_kernel *kernel);

/* The text under a key, NULL where there is none. Kernels that pykernel's resolver made have, among others:
 *   scenario, model, chip, role      the names of the documents, and the pool's role
 *   deployment                       the pool as stated, a JSON object
 *   engine.<setting>, parallel.<width>  each stated setting of the pool by its name ("engine.max_num_seqs"); blocks
 *                                    of settings by a further dot, flags as true or false
 *   assumed.<name>                   the value of each setting that was filled in ("assumed.block_size") */
PK_API PK_PURE const char *pk_text(const pk_kernel *kernel, const char *key);
PK_API PK_PURE size_t pk_note_count(const pk_kernel *kernel);
PK_API PK_PURE pk_note pk_note_at(const pk_kernel *kernel, size_t index);

/* A whole-number setting of the engine as a simulator needs it: what is stated under "engine.<name>", else what is
 * assumed under "assumed.<name>", else `otherwise`. */
PK_API PK_PURE int64_t pk_setting(const pk_kernel *kernel, const char *name, int64_t otherwise);

/* Largest step that runs as a graph, tokens; 0 when none does. */
PK_API PK_PURE int64_t pk_capture_tokens(const pk_kernel *kernel);

/* pk_graph_mode of a uniform decode batch, and of any other. */
PK_API PK_PURE int32_t pk_uniform_graph_mode(const pk_kernel *kernel);
PK_API PK_PURE int32_t pk_other_graph_mode(const pk_kernel *kernel);

/* Most tokens that a decoding request schedules in a step: what goes into pk_batch.decode_threshold. */
PK_API PK_PURE int64_t pk_decode_threshold(const pk_kernel *kernel);

/* Ranks that share a decode's KV cache, and a prefill's tokens; at least 1. */
PK_API PK_PURE int32_t pk_decode_context_ranks(const pk_kernel *kernel);
PK_API PK_PURE int32_t pk_prefill_context_ranks(const pk_kernel *kernel);

/* ---- batch --------------------------------------------------------------------------------------------------- */

enum {
    PK_MAX_REQUESTS = 4194304,          /* 2^22: requests of one step */
    PK_MAX_REQUEST_TOKENS = 1073741824, /* 2^30: computed + scheduled of one request */
    PK_MAX_BATCH_TOKENS = 1073741824    /* 2^30: all scheduled tokens and pad tokens of a step */
};

/* The requests of one step, one entry of each array a request.
 *
 *   scheduled      tokens the step runs for it, cached ones already taken off; > decode_threshold = a prefill
 *   computed       tokens already in its cache
 *   prompt_len     tokens of its prompt; may be NULL; no price depends on it, so only pk_batch_check reads it
 *   cached_tokens  prompt tokens found in the prefix cache; may be NULL; read like prompt_len
 *
 * All are >= 0. A batch without requests is legal: the step of an idle engine. */
typedef struct pk_batch {
    uint32_t struct_size;
    uint32_t flags;
    int64_t count;
    const int64_t *scheduled;
    const int64_t *computed;
    const int64_t *prompt_len;
    const int64_t *cached_tokens;
    int64_t decode_threshold; /* >= 0; at most this many tokens is a decode */
    int64_t sm_budget;        /* SMs left to the step; 0, negative or above the part's = all */
    int64_t pad_tokens;       /* >= 0; rows added so that data-parallel ranks run alike */
} pk_batch;

#ifndef PK_CDEF
#define PK_BATCH_INIT {sizeof(pk_batch), 0, 0, NULL, NULL, NULL, NULL, 1, 0, 0}
#endif

/* PK_OK when every number of the batch is in range; names the request and field at fault otherwise. pk_step_time then
 * takes the batch; it makes the same checks itself, but for the two arrays that it does not read. */
PK_API pk_status pk_batch_check(const pk_batch *batch, pk_error *error);

/* ---- step ---------------------------------------------------------------------------------------------------- */

/* Two bounds of a step's time. no_overlap_ns lets no two resources work at once and is the sum of per_resource_ns;
 * overlap_ns lets the resources of one layer work together. Measured steps lie nearer to no_overlap_ns. */
typedef struct pk_estimate {
    uint32_t struct_size;
    uint32_t flags;
    int64_t overlap_ns;
    int64_t no_overlap_ns;
    int64_t per_resource_ns[PK_RESOURCE_COUNT];
    int32_t bottleneck; /* pk_resource with the largest share */
    int32_t reserved;
} pk_estimate;

#ifndef PK_CDEF
#define PK_ESTIMATE_INIT {sizeof(pk_estimate), 0, 0, 0, {0}, 0, 0}
#endif

/* The price of one step. Every field of `*estimate` is written. Fails with PK_BATCH_* and the argument errors. */
PK_API pk_status pk_step_time(const pk_kernel *kernel, const pk_batch *batch, pk_estimate *estimate, pk_error *error);

/* ---- many steps ---------------------------------------------------------------------------------------------- */

/* Batches that lie in one set of arrays: batch i is the requests from offsets[i] to before offsets[i + 1]. Offsets are
 * >= 0 and never fall; a batch may be empty. The other fields are those of pk_batch, the same for every batch. */
typedef struct pk_batches {
    uint32_t struct_size;
    uint32_t flags;
    int64_t count;          /* of batches */
    const int64_t *offsets; /* count + 1 */
    const int64_t *scheduled;
    const int64_t *computed;
    int64_t decode_threshold;
    int64_t sm_budget;
    int64_t pad_tokens;
} pk_batches;

/* Where the prices of many batches go, an entry of each array a batch. NULL for what is not wanted. */
typedef struct pk_estimates {
    uint32_t struct_size;
    uint32_t flags;
    int64_t *overlap_ns;
    int64_t *no_overlap_ns;
    int64_t *per_resource_ns; /* PK_RESOURCE_COUNT entries a batch */
    int8_t *bottleneck;
} pk_estimates;

#ifndef PK_CDEF
#define PK_BATCHES_INIT {sizeof(pk_batches), 0, 0, NULL, NULL, NULL, 1, 0, 0}
#define PK_ESTIMATES_INIT {sizeof(pk_estimates), 0, NULL, NULL, NULL, NULL}
#endif

/* The prices that pk_step_time gives to each of the batches, bit for bit. Nothing is written unless all are in order;
 * the first at fault is named ("batches[7].scheduled[2]"). Fails as pk_step_time does. To use more threads, call it
 * from each with a part of the offsets and the matching part of the results. */
PK_API pk_status pk_step_time_many(const pk_kernel *kernel, const pk_batches *batches, const pk_estimates *estimates,
                                   pk_error *error);

/* ---- running batch ------------------------------------------------------------------------------------------- */

/* The requests that an engine runs step after step. The sums that a price is made of are kept up to date as requests
 * come, change and leave, so that pricing the next step takes the same few instructions for one request or thousands,
 * unless a law of the kernel bounds what each request counts for (a window, a selection, context parallelism): then
 * the requests are looked at again. Either way the price is that of pk_step_time, bit for bit.
 *
 * Unlike a kernel, a state is written by its functions, pricing included: one thread at a time. They fail with
 * PK_BATCH_* where a batch would be refused, PK_NO_MEMORY, and the argument errors, of which PK_ARGUMENT is also an id
 * that is none; the state then is as it was. */
typedef struct pk_batch_state pk_batch_state;

/* An empty one; decode_threshold as in pk_batch. */
PK_API pk_status pk_batch_state_new(int64_t decode_threshold, pk_batch_state **state, pk_error *error);

/* Frees a state; NULL is allowed. */
PK_API void pk_batch_state_free(pk_batch_state *state);

/* Adds a request and stores its id, which stays its own until it is removed; ids are small and used again. */
PK_API pk_status pk_batch_state_add(pk_batch_state *state, int64_t scheduled, int64_t computed, int64_t *id,
                                    pk_error *error);

/* Changes a request, as when the last chunk of its prompt is done and it starts to decode. */
PK_API pk_status pk_batch_state_set(pk_batch_state *state, int64_t id, int64_t scheduled, int64_t computed,
                                    pk_error *error);

/* What a request schedules and has computed by now. Results that are not wanted may be NULL. */
PK_API pk_status pk_batch_state_get(const pk_batch_state *state, int64_t id, int64_t *scheduled, int64_t *computed,
                                    pk_error *error);

/* Ends a request; a later one may get its id. */
PK_API pk_status pk_batch_state_remove(pk_batch_state *state, int64_t id, pk_error *error);

/* Every request computes what it schedules, `steps` times. */
PK_API pk_status pk_batch_state_advance(pk_batch_state *state, int64_t steps, pk_error *error);

/* What pk_batch holds beside requests; both are 0 until set. */
PK_API pk_status pk_batch_state_settings(pk_batch_state *state, int64_t sm_budget, int64_t pad_tokens, pk_error *error);

/* The requests as a batch, in no particular order. Its arrays are the state's own, valid until the next call that
 * takes the state. */
PK_API pk_status pk_batch_state_view(pk_batch_state *state, pk_batch *batch, pk_error *error);

/* The price of the next step. */
PK_API pk_status pk_batch_state_step_time(const pk_kernel *kernel, pk_batch_state *state, pk_estimate *estimate,
                                          pk_error *error);

/* ---- explanation --------------------------------------------------------------------------------------------- */

/* What one term of a step is. `index` of a term counts in the array of the spec that it came from. */
typedef enum pk_term_kind {
    PK_TERM_DENSE = 1,          /* arithmetic of GEMMs, shared experts and attention priced as dense (SM) */
    PK_TERM_PREFILL = 2,        /* attention of prefills (SM) */
    PK_TERM_DECODE = 3,         /* attention of decodes (HBM) */
    PK_TERM_SCORER = 4,         /* scan of an indexer (HBM) */
    PK_TERM_RECURRENT = 5,      /* recurrent mixer (SM) */
    PK_TERM_WEIGHTS = 6,        /* reading the weights (HBM) */
    PK_TERM_ELEMENTWISE = 7,    /* norms and the like (HBM) */
    PK_TERM_EXPERT_WORK = 8,    /* arithmetic of routed experts (SM), after the rest of the layer */
    PK_TERM_EXPERT_WEIGHTS = 9, /* weights of the routed experts that tokens woke (HBM), after the rest of the layer */
    PK_TERM_COLLECTIVE = 10,    /* one collective (its link, or SM) */
    PK_TERM_GATHER = 11,        /* gather of the logits (its link) */
    PK_TERM_GRAPH = 12,         /* replaying graphs, or launching layers without (host) */
    PK_TERM_DISPATCH = 13       /* dispatching kernels (host) */
} pk_term_kind;

/* Where a term belongs beside a layer of the spec. */
enum { PK_PART_HEAD = -1, PK_PART_HOST = -2 };

/* One term of a step. What does not apply to its kind is 0. */
typedef struct pk_term {
    int32_t part;       /* index into layers, or PK_PART_* */
    int32_t kind;       /* pk_term_kind */
    int32_t resource;   /* pk_resource it is charged to */
    int32_t index;      /* into attentions, scorers, experts or collectives; of PK_TERM_GRAPH the pk_graph_mode */
    int32_t draft_pass; /* 0 = the step, 1, 2, ... = the speculator's passes */
    int32_t launches;   /* of a collective's law, held at INT32_MAX */
    double times;       /* layers of this kind */
    double seconds;     /* of one layer */
    double flops;       /* of one layer, on this rank */
    double bytes;       /* of one layer, on this rank; the span factor of a collective included */
    double flop_rate;   /* FLOP/s that the work runs at, withheld SMs and work scale included */
    double floor_s;     /* what of `seconds` does not depend on the amount of work */
} pk_term;

/* The terms of a step, in the order in which they are added up: the sum of times * seconds over the terms of a
 * resource is what pk_step_time truncates. Writes at most `capacity` terms to `terms` (which may be NULL with a
 * capacity of 0) and always the number there are to `*count`. Fails as pk_step_time does. */
PK_API pk_status pk_step_explain(const pk_kernel *kernel, const pk_batch *batch, pk_term *terms, size_t capacity,
                                 size_t *count, pk_error *error);

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* The functions from here to the laws are of one rank, read nothing but their arguments, and take any value: negative
 * counts are 0, and what is too large for int64_t is INT64_MAX. `kernel` must not be NULL. */

/* Bytes that are held whatever runs. */
typedef struct pk_memory_breakdown {
    uint32_t struct_size;
    uint32_t flags;
    int64_t weights;         /* replicas of experts not counted */
    int64_t activation_peak; /* of the widest step */
    int64_t cuda_graph;
    int64_t eplb_redundant;  /* replicas of experts */
    int64_t comm_buffers;
    int64_t total;
} pk_memory_breakdown;

#ifndef PK_CDEF
#define PK_MEMORY_BREAKDOWN_INIT {sizeof(pk_memory_breakdown), 0, 0, 0, 0, 0, 0, 0}
#endif

/* What is taken from the engine's budget before any sequence. Fails with the argument errors. */
PK_API pk_status pk_fixed_bytes(const pk_kernel *kernel, pk_memory_breakdown *breakdown, pk_error *error);

/* What is held before the engine measures the memory that its budget is a share of. */
PK_API PK_PURE int64_t pk_pre_snapshot_bytes(const pk_kernel *kernel);

/* What a sequence of `tokens` tokens holds that grows with it, in whole pages. */
PK_API PK_PURE int64_t pk_sequence_variable_bytes(const pk_kernel *kernel, int64_t tokens);

/* The same of `count` sequences; bytes[i] belongs to tokens[i]. Fails with the argument errors. */
PK_API pk_status pk_sequence_variable_bytes_many(const pk_kernel *kernel, int64_t count, const int64_t *tokens,
                                                 int64_t *bytes, pk_error *error);

/* What a sequence holds that is bounded (recurrent state, rings of windows), with `in_flight` tokens scheduled but not
 * settled; _at: once only `computed` tokens have been computed. */
PK_API PK_PURE int64_t pk_sequence_bounded_bytes(const pk_kernel *kernel, int64_t in_flight);
PK_API PK_PURE int64_t pk_sequence_bounded_bytes_at(const pk_kernel *kernel, int64_t computed, int64_t in_flight);

/* The same with what one decode has in flight, and with the most that the engine ever has. */
PK_API PK_PURE int64_t pk_sequence_fixed_bytes(const pk_kernel *kernel);
PK_API PK_PURE int64_t pk_sequence_admission_bytes(const pk_kernel *kernel);

/* The longest sequence whose growing part fits in `bytes`; INT64_MAX where nothing grows past them. */
PK_API PK_PURE int64_t pk_max_tokens_for(const pk_kernel *kernel, int64_t bytes);

/* The room for sequences that a part's memory leaves. */
typedef struct pk_capacity {
    uint32_t struct_size;
    uint32_t flags;
    int64_t device_bytes;       /* of the part */
    int64_t budget_bytes;       /* that the engine uses of it */
    int64_t bytes;              /* of the budget, for sequences */
    int64_t block_bytes;        /* of one block of every growing cache */
    int64_t block_tokens;       /* of a sequence that such a block holds */
    int64_t blocks;             /* 0 where nothing grows */
    int64_t tokens;             /* in all blocks; INT64_MAX where nothing grows */
    int32_t pre_snapshot_fits;  /* 1 when what is held before the budget leaves the budget free */
    int32_t reserved;
} pk_capacity;

#ifndef PK_CDEF
#define PK_CAPACITY_INIT {sizeof(pk_capacity), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#endif

/* `device_bytes`, `utilization` and `block` take the place of the spec's; 0 keeps those. Fails with PK_NO_ROOM where
 * no block fits, naming what is too large, and with the argument errors. */
PK_API pk_status pk_kv_capacity(const pk_kernel *kernel, int64_t device_bytes, double utilization, int64_t block,
                                pk_capacity *capacity, pk_error *error);

/* How many sequences of `tokens` tokens fit in `bytes`, each admitted with all that the engine may have in flight. */
PK_API PK_PURE int64_t pk_sequences_that_fit(const pk_kernel *kernel, int64_t bytes, int64_t tokens);

/* ---- transfers ------------------------------------------------------------------------------------------------ */

/* Seen from the GPU: PK_TO_TIER writes, PK_FROM_TIER, and any other value, reads. */
enum { PK_TO_TIER = 1, PK_FROM_TIER = 2 };

/* The index of a tier by name; -1 when there is none. */
PK_API PK_PURE int32_t pk_find_tier(const pk_kernel *kernel, const char *name);

/* One of `queue_depth` equal transfers at once; a depth below 1 is 1. INT64_MAX for a tier that does not exist. */
PK_API PK_PURE int64_t pk_tier_time_ns(const pk_kernel *kernel, int32_t tier, int32_t direction, int64_t bytes,
                                       int64_t queue_depth);

/* Where a rank is. The pool is carried for the caller; no link depends on it. */
typedef struct pk_placement {
    int64_t node;
    int64_t rack;
    int32_t pool;
    int32_t reserved;
} pk_placement;

/* One link of a handoff. Kernels of one deployment name the same link by the same kind and place. */
typedef enum pk_link_kind {
    PK_LINK_NODE = 1, /* the NVLink of node `place` */
    PK_LINK_RACK = 2, /* that of rack `place`, one NVLink domain */
    PK_LINK_NIC = 3   /* what node `place` has to the fabric */
} pk_link_kind;
typedef struct pk_link_use {
    int32_t kind; /* pk_link_kind */
    int32_t reserved;
    int64_t place;
    double bytes_per_second;
} pk_link_use;

/* The caches of one request on their way from a prefill to a decode rank: what crosses every one of the links, and the
 * least time it takes. */
typedef struct pk_transfer_demand {
    uint32_t struct_size;
    uint32_t flags;
    int64_t bytes;
    int64_t floor_ns;
    int32_t link_count;
    int32_t reserved;
    pk_link_use links[2];
} pk_transfer_demand;

#ifndef PK_CDEF
#define PK_TRANSFER_DEMAND_INIT {sizeof(pk_transfer_demand), 0, 0, 0, 0, 0, {{0, 0, 0, 0}, {0, 0, 0, 0}}}
#endif

/* What a request of `tokens` tokens moves to a rank of this kernel's pool. Fails with the argument errors. */
PK_API pk_status pk_pd_transfer_demand(const pk_kernel *kernel, int64_t tokens, const pk_placement *source,
                                       const pk_placement *target, pk_transfer_demand *demand, pk_error *error);

/* PK_OK for a demand that a simulator can place on its links; an argument error naming what is wrong otherwise. */
PK_API pk_status pk_transfer_demand_check(const pk_transfer_demand *demand, pk_error *error);

/* How long a demand takes with nothing else on its links; INT64_MAX on a link without bandwidth. */
PK_API PK_PURE int64_t pk_alone_time_ns(const pk_transfer_demand *demand);

/* pk_alone_time_ns of pk_pd_transfer_demand. */
PK_API PK_PURE int64_t pk_pd_transfer_time_ns(const pk_kernel *kernel, int64_t tokens, const pk_placement *source,
                                              const pk_placement *target);

/* The same of `count` requests between the same two places; times_ns[i] belongs to tokens[i]. Fails with the argument
 * errors. */
PK_API pk_status pk_pd_transfer_time_many(const pk_kernel *kernel, int64_t count, const int64_t *tokens,
                                          const pk_placement *source, const pk_placement *target, int64_t *times_ns,
                                          pk_error *error);

/* ---- host work outside the steps ------------------------------------------------------------------------------ */

/* Before a request can be scheduled, without queueing; 0 for no tokens. */
PK_API PK_PURE int64_t pk_admission_overhead_ns(const pk_kernel *kernel, int64_t prompt_tokens);

/* For each token handed out, and when a request ends: the latter counts toward its own end alone. */
PK_API PK_PURE int64_t pk_output_token_overhead_ns(const pk_kernel *kernel);
PK_API PK_PURE int64_t pk_completion_overhead_ns(const pk_kernel *kernel);

/* ---- the laws, one by one ------------------------------------------------------------------------------------ */

/* These are the functions that pk_step_time is made of. Arguments must be as the structs above say; they are not
 * checked here. */

/* The conversion by which seconds become nanoseconds: truncated; NaN and negative are 0, too large is INT64_MAX. */
PK_API PK_PURE int64_t pk_nanoseconds(double seconds);

/* The fraction of peak FLOP/s that a step of `tokens` rows reaches; 0 for no rows. */
PK_API PK_PURE double pk_gemm_efficiency(const pk_gemm_law *law, double tokens);

/* The further fraction that a matrix of this shape reaches; 1 under PK_GEMM_TOKEN_RAMP. */
PK_API PK_PURE double pk_gemm_shape_factor(const pk_gemm_law *law, double n, double k);

/* Query-key pairs of a prefill of `scheduled` tokens after `computed` ones, times four: two FLOP for each of scores
 * and values. Every query sees the whole prefix and half of its chunk, or `window` tokens at most where it is > 0. */
PK_API PK_PURE int64_t pk_prefill_pairs4(int64_t scheduled, int64_t computed, int64_t window);

/* What one rank does of a prefill that `ranks` ranks share: the sequence is cut into 2 * ranks chunks and rank r takes
 * chunks r and 2 * ranks - 1 - r. `tokens` is the most that a rank takes, `pairs4` the most that a rank multiplies, and
 * the runs are the chunks (tokens, and tokens before them) of the rank that takes most. A prefill too short to fill
 * every chunk is done whole by every rank where `replicate_short` is not 0. */
typedef struct pk_prefill_share {
    int64_t tokens;
    int64_t pairs4;
    int64_t run_tokens[2];
    int64_t run_computed[2];
} pk_prefill_share;
PK_API pk_prefill_share pk_share_prefill(int64_t scheduled, int64_t computed, int32_t ranks, int32_t replicate_short);

/* Entries that one layer reads for a decode at `context` tokens, times compress_ratio under PK_READ_SELECTED. */
PK_API PK_PURE int64_t pk_read_entries(const pk_read_law *law, int64_t context);

/* Of `tokens` dealt to `ranks` ranks in turns of `interleave`, those of the fullest rank. */
PK_API PK_PURE int64_t pk_decode_shard(int64_t tokens, int32_t ranks, int32_t interleave);

/* base^exponent for base > 0, held between 0 and 2^1023; 0 for base <= 0. The same bits on every platform; its relative
 * error is below 1e-15 * (1 + |exponent * log2(base)|). */
PK_API PK_PURE double pk_power(double base, double exponent);

/* Seconds of one kernel under its measured law, before the roofline and the host's scale are applied. */
PK_API PK_PURE double pk_matrix_seconds(const pk_matrix_law *law, double bytes_per_second, double sms, double m, double n,
                                        double k, double weight_bytes);
PK_API PK_PURE double pk_stream_seconds(const pk_stream_law *law, double bytes_per_second, double sms, double rows,
                                        double tokens, double kv_heads, double bytes, double flops);
PK_API PK_PURE double pk_link_seconds(const pk_link_law *law, double ranks, double bytes);

/* Expected number of the `local` experts that `tokens` tokens touch, each visiting top_k of `experts` at random. */
PK_API PK_PURE double pk_experts_touched(int64_t tokens, int32_t experts, int32_t top_k, int32_t local);

/* Seconds of one collective of `bytes` bytes; the floor for none. */
PK_API PK_PURE double pk_collective_seconds(const pk_collective_law *law, double bytes);

/* Factor on the bytes of a collective of `group` under PK_SPAN_*; 1 for a group that stays on its node. */
PK_API PK_PURE double pk_span_factor(const pk_group *group, uint32_t span, double link_ratio);

/* ==== experimental ============================================================================================= */

/* What is below may change in any version. */

/* ---- cost models of other makes ------------------------------------------------------------------------------- */

/* A cost model as a table of functions: a kernel of this library, or a model of somebody else's. Each function answers
 * as the one named behind it, with the model's `context` for the kernel; it keeps to the conventions of this header
 * (pure, safe from many threads, results untouched on an error), and passes the laws of pk_check.h. A function that is
 * NULL is answered by the model that `base` points to, so a model that prices steps its own way sets step_time alone.
 *
 * A model in a shared library is found by one symbol, pk_model_open: of the type pk_model_open_function, it fills in a
 * table that was set with PK_MODEL_INIT. `base` is a complete model of the deployment to price, which lives as long as
 * the new one, or NULL when there is none; fail with PK_MODEL where it is needed. No function of this library need be
 * linked: base has them all. docs/embed.md shows a model and its use. */
typedef struct pk_model {
    uint32_t struct_size;
    uint32_t flags;
    const void *context;                 /* handed to every function */
    const struct pk_model *base;         /* answers for what is NULL; or NULL itself */
    void (*destroy)(const void *context); /* called once, by pk_model_close; may be NULL, base is not asked */

    pk_status (*step_time)(const void *context, const pk_batch *batch, pk_estimate *estimate, pk_error *error);

    pk_status (*fixed_bytes)(const void *context, pk_memory_breakdown *breakdown, pk_error *error);
    int64_t (*pre_snapshot_bytes)(const void *context);
    int64_t (*sequence_variable_bytes)(const void *context, int64_t tokens);
    int64_t (*sequence_bounded_bytes)(const void *context, int64_t in_flight);
    int64_t (*sequence_bounded_bytes_at)(const void *context, int64_t computed, int64_t in_flight);
    int64_t (*sequence_fixed_bytes)(const void *context);
    int64_t (*sequence_admission_bytes)(const void *context);
    int64_t (*max_tokens_for)(const void *context, int64_t bytes);
    pk_status (*kv_capacity)(const void *context, int64_t device_bytes, double utilization, int64_t block,
                             pk_capacity *capacity, pk_error *error);

    int64_t (*tier_time_ns)(const void *context, const char *tier, int32_t direction, int64_t bytes,
                            int64_t queue_depth); /* INT64_MAX for a tier that does not exist */
    pk_status (*pd_transfer_demand)(const void *context, int64_t tokens, const pk_placement *source,
                                    const pk_placement *target, pk_transfer_demand *demand, pk_error *error);
    int64_t (*admission_overhead_ns)(const void *context, int64_t prompt_tokens);
    int64_t (*output_token_overhead_ns)(const void *context);
    int64_t (*completion_overhead_ns)(const void *context);

    int64_t (*capture_tokens)(const void *context);
    int32_t (*uniform_graph_mode)(const void *context);
    int32_t (*other_graph_mode)(const void *context);
    int64_t (*decode_threshold)(const void *context);
    int32_t (*decode_context_ranks)(const void *context);
    int32_t (*prefill_context_ranks)(const void *context);

    pk_resolution (*resolved)(const void *context);
    size_t (*override_count)(const void *context);
    pk_override (*override_at)(const void *context, size_t index);
    size_t (*origin_count)(const void *context);
    pk_origin (*origin_at)(const void *context, size_t index);
    const char *(*text)(const void *context, const char *key);
} pk_model;

#ifndef PK_CDEF
#ifdef __cplusplus
static inline pk_model pk_model_init(void) {
    pk_model model = {};
    model.struct_size = sizeof model;
    return model;
}
#define PK_MODEL_INIT pk_model_init()
#else
#define PK_MODEL_INIT {.struct_size = sizeof(pk_model)}
#endif
#endif

typedef pk_status (*pk_model_open_function)(const pk_model *base, pk_model *model, pk_error *error);

/* Makes `*model` the table of a kernel, which stays the caller's and must outlive it. Fails with the argument errors. */
PK_API pk_status pk_model_of_kernel(const pk_kernel *kernel, pk_model *model, pk_error *error);

/* PK_OK when every function is there, or answered by a base; PK_MODEL naming the first that is not. A model that passes
 * may be given to the functions below, which check nothing more. */
PK_API pk_status pk_model_check(const pk_model *model, pk_error *error);

/* Ends a model; NULL and one that was never opened are allowed. The base is left alone. */
PK_API void pk_model_close(pk_model *model);

/* What the function of this name answers, here or in a base. */
PK_API pk_status pk_model_step_time(const pk_model *model, const pk_batch *batch, pk_estimate *estimate,
                                    pk_error *error);
PK_API pk_status pk_model_fixed_bytes(const pk_model *model, pk_memory_breakdown *breakdown, pk_error *error);
PK_API int64_t pk_model_pre_snapshot_bytes(const pk_model *model);
PK_API int64_t pk_model_sequence_variable_bytes(const pk_model *model, int64_t tokens);
PK_API int64_t pk_model_sequence_bounded_bytes(const pk_model *model, int64_t in_flight);
PK_API int64_t pk_model_sequence_bounded_bytes_at(const pk_model *model, int64_t computed, int64_t in_flight);
PK_API int64_t pk_model_sequence_fixed_bytes(const pk_model *model);
PK_API int64_t pk_model_sequence_admission_bytes(const pk_model *model);
PK_API int64_t pk_model_max_tokens_for(const pk_model *model, int64_t bytes);
PK_API pk_status pk_model_kv_capacity(const pk_model *model, int64_t device_bytes, double utilization, int64_t block,
                                      pk_capacity *capacity, pk_error *error);
PK_API int64_t pk_model_tier_time_ns(const pk_model *model, const char *tier, int32_t direction, int64_t bytes,
                                     int64_t queue_depth);
PK_API pk_status pk_model_pd_transfer_demand(const pk_model *model, int64_t tokens, const pk_placement *source,
                                             const pk_placement *target, pk_transfer_demand *demand, pk_error *error);
PK_API int64_t pk_model_admission_overhead_ns(const pk_model *model, int64_t prompt_tokens);
PK_API int64_t pk_model_output_token_overhead_ns(const pk_model *model);
PK_API int64_t pk_model_completion_overhead_ns(const pk_model *model);
PK_API int64_t pk_model_capture_tokens(const pk_model *model);
PK_API int32_t pk_model_uniform_graph_mode(const pk_model *model);
PK_API int32_t pk_model_other_graph_mode(const pk_model *model);
PK_API int64_t pk_model_decode_threshold(const pk_model *model);
PK_API int32_t pk_model_decode_context_ranks(const pk_model *model);
PK_API int32_t pk_model_prefill_context_ranks(const pk_model *model);
PK_API pk_resolution pk_model_resolved(const pk_model *model);
PK_API size_t pk_model_override_count(const pk_model *model);
PK_API pk_override pk_model_override_at(const pk_model *model, size_t index);
PK_API size_t pk_model_origin_count(const pk_model *model);
PK_API pk_origin pk_model_origin_at(const pk_model *model, size_t index);
PK_API const char *pk_model_text(const pk_model *model, const char *key);

#if defined(__cplusplus) && !defined(PK_CDEF)
}
#endif

#endif /* PYKERNEL_H */
