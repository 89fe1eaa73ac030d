/*
 * A cost model in C: a step takes what it takes to read the weights and the KV cache, and to multiply. Three numbers of
 * a datasheet and no fitted coefficient make it a baseline, and an example of how a model of your own looks:
 *
 *     cc -shared -fPIC -O2 -ffp-contract=off linear.c $(pykernel --cflags) -o linear.so
 *     pykernel price deepseek-v3-h200-fp8-tp8 --decode 32x4096 --model ./linear.so
 *
 * Over a kernel it prices the kernel's deployment: weights and cache of one rank are asked of it, and everything but the
 * step is answered by it. On its own it prices an 8-billion-parameter model at 16 bits on one part.
 */
#include <pykernel.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct linear {
    const pk_model *base; /* or NULL */
    double weight_bytes;  /* of one rank */
    double kv_bytes;      /* of one token, on one rank */
} linear;

/* NVIDIA H100 SXM datasheet: dense BF16 without sparsity, HBM3, and streaming multiprocessors. */
static const double FLOPS = 989.4e12, BYTES_PER_SECOND = 3.35e12;
static const int64_t SM_COUNT = 132;
static const int64_t LAUNCH_NS = 100000; /* of a step; a round figure */

/* ---- the step ------------------------------------------------------------------------------------------------ */

static int64_t ns(double seconds) { return seconds < 9e9 ? (int64_t)(seconds * 1e9) : (int64_t)9e18 / 4; }

static pk_status refuse(pk_error *error, pk_status status, const char *field) {
    if (error != NULL) {
        error->status = (int32_t)status;
        size_t i = 0;
        for (; field[i] != '\0' && i + 1 < sizeof error->field; i++) error->message[i] = error->field[i] = field[i];
        error->message[i] = error->field[i] = '\0';
    }
    return status;
}

static pk_status step_time(const void *context, const pk_batch *batch, pk_estimate *estimate, pk_error *error) {
    const linear *model = context;
    if (batch->struct_size != sizeof *batch) return refuse(error, PK_STRUCT_SIZE, "batch");
    double tokens = (double)(batch->pad_tokens > 0 ? batch->pad_tokens : 0), cached = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        if (batch->scheduled[i] < 0) return refuse(error, PK_BATCH_VALUE, "batch.scheduled is negative");
        if (batch->computed[i] < 0) return refuse(error, PK_BATCH_VALUE, "batch.computed is negative");
        tokens += (double)batch->scheduled[i];
        cached += (double)batch->scheduled[i] + (double)batch->computed[i];
    }
    /* Two FLOP for each weight of 2 bytes and token, on the SMs that the step is given. */
    double work = tokens * model->weight_bytes / FLOPS;
    if (batch->sm_budget > 0 && batch->sm_budget < SM_COUNT) work *= (double)SM_COUNT / (double)batch->sm_budget;
    double read = tokens > 0 ? (model->weight_bytes + cached * model->kv_bytes) / BYTES_PER_SECOND : 0;
    pk_estimate result = PK_ESTIMATE_INIT;
    result.per_resource_ns[PK_SM] = ns(work);
    result.per_resource_ns[PK_HBM] = ns(read);
    result.per_resource_ns[PK_HOST] = LAUNCH_NS;
    int64_t slower = result.per_resource_ns[PK_SM], faster = result.per_resource_ns[PK_HBM];
    result.bottleneck = PK_SM;
    if (faster > slower) {
        slower = result.per_resource_ns[PK_HBM];
        faster = result.per_resource_ns[PK_SM];
        result.bottleneck = PK_HBM;
    }
    if (slower < LAUNCH_NS) result.bottleneck = PK_HOST;
    result.overlap_ns = slower + LAUNCH_NS;
    result.no_overlap_ns = slower + faster + LAUNCH_NS;
    *estimate = result;
    return PK_OK;
}

/* ---- the rest, for a model on its own -------------------------------------------------------------------------- */

enum { BLOCK = 16 };
static const int64_t DEVICE_BYTES = (int64_t)80 << 30;

static int64_t blocks(int64_t tokens) { return tokens <= 0 ? 0 : (tokens - 1) / BLOCK + 1; }

static pk_status fixed_bytes(const void *context, pk_memory_breakdown *breakdown, pk_error *error) {
    const linear *model = context;
    if (breakdown->struct_size != sizeof *breakdown) return refuse(error, PK_STRUCT_SIZE, "breakdown");
    pk_memory_breakdown result = PK_MEMORY_BREAKDOWN_INIT;
    result.weights = result.total = (int64_t)model->weight_bytes;
    *breakdown = result;
    return PK_OK;
}

static int64_t block_bytes(const linear *model) { return (int64_t)model->kv_bytes * BLOCK; }

static int64_t variable_bytes(const void *context, int64_t tokens) {
    int64_t each = block_bytes(context), number = blocks(tokens);
    return number > INT64_MAX / each ? INT64_MAX : number * each;
}

static int64_t max_tokens_for(const void *context, int64_t bytes) {
    int64_t number = bytes <= 0 ? 0 : bytes / block_bytes(context);
    return number > INT64_MAX / BLOCK ? INT64_MAX : number * BLOCK;
}

static int64_t nothing(const void *context) {
    (void)context;
    return 0;
}
static int64_t nothing_of(const void *context, int64_t amount) {
    (void)context, (void)amount;
    return 0;
}
static int64_t nothing_at(const void *context, int64_t computed, int64_t in_flight) {
    (void)context, (void)computed, (void)in_flight;
    return 0;
}

static pk_status kv_capacity(const void *context, int64_t device_bytes, double utilization, int64_t block,
                             pk_capacity *capacity, pk_error *error) {
    const linear *model = context;
    if (capacity->struct_size != sizeof *capacity) return refuse(error, PK_STRUCT_SIZE, "capacity");
    if (device_bytes < 0 || block < 0 || !(utilization >= 0 && utilization <= 1))
        return refuse(error, PK_ARGUMENT, "capacity");
    pk_capacity result = PK_CAPACITY_INIT;
    result.device_bytes = device_bytes > 0 ? device_bytes : DEVICE_BYTES;
    result.budget_bytes = (int64_t)((double)result.device_bytes * (utilization > 0 ? utilization : 0.9));
    result.bytes = result.budget_bytes - (int64_t)model->weight_bytes;
    result.block_tokens = block > 0 ? block : BLOCK;
    result.block_bytes = (int64_t)model->kv_bytes * result.block_tokens;
    if (result.bytes < result.block_bytes) return refuse(error, PK_NO_ROOM, "the weights leave no room");
    result.blocks = result.bytes / result.block_bytes;
    result.tokens = result.blocks * result.block_tokens;
    result.pre_snapshot_fits = 1;
    *capacity = result;
    return PK_OK;
}

static int64_t no_tier(const void *context, const char *tier, int32_t direction, int64_t bytes, int64_t depth) {
    (void)context, (void)tier, (void)direction, (void)bytes, (void)depth;
    return INT64_MAX;
}

/* Over one link of 50 GB/s a node, whatever the placements: a round figure for 400 Gbit/s. */
static pk_status demand_of(const void *context, int64_t tokens, const pk_placement *source, const pk_placement *target,
                           pk_transfer_demand *demand, pk_error *error) {
    const linear *model = context;
    if (demand->struct_size != sizeof *demand) return refuse(error, PK_STRUCT_SIZE, "demand");
    pk_transfer_demand result = PK_TRANSFER_DEMAND_INIT;
    if (tokens > 0) result.bytes = (int64_t)((double)tokens * model->kv_bytes);
    result.links[0].kind = result.links[1].kind = PK_LINK_NIC;
    result.links[0].place = source->node;
    result.links[1].place = target->node;
    result.links[0].bytes_per_second = result.links[1].bytes_per_second = 50e9;
    result.link_count = source->node == target->node ? 1 : 2;
    *demand = result;
    return PK_OK;
}

static int32_t no_graph(const void *context) {
    (void)context;
    return PK_GRAPH_NONE;
}
static int64_t one_token(const void *context) {
    (void)context;
    return 1;
}
static int32_t one_rank(const void *context) {
    (void)context;
    return 1;
}
static pk_resolution resolved(const void *context) {
    (void)context;
    pk_resolution one = {1, 1, 1, 0, 0, 0, "none"};
    return one;
}
static size_t none(const void *context) {
    (void)context;
    return 0;
}
static pk_override no_override(const void *context, size_t index) {
    (void)context, (void)index;
    pk_override nothing_overridden = {NULL, NULL, NULL, NULL};
    return nothing_overridden;
}

/* ---- where the numbers come from --------------------------------------------------------------------------------- */

static const char *const ORIGINS[3][4] = {
    {"dense_flops", "linear", "vendor_spec", "NVIDIA H100 SXM"},
    {"hbm_bandwidth", "linear", "vendor_spec", "NVIDIA H100 SXM"},
    {"launch", "linear", "assumed", "100 us: a round figure"},
};
enum { OWN = sizeof ORIGINS / sizeof ORIGINS[0] };

/* Whether the base tells that it lacks a coefficient of its laws of a step, which are not ours. */
static bool lacked_by_its_step(pk_origin origin) {
    static const char *const laws[] = {"attention_", "host_launch_", "host_replay_", "moe_routing_", "recurrent_"};
    if (strncmp(origin.scope, "absent: ", 8) != 0) return false;
    for (size_t i = 0; i < sizeof laws / sizeof laws[0]; i++)
        if (strncmp(origin.name, laws[i], strlen(laws[i])) == 0) return true;
    return false;
}
/* Our own, then those of the base, which still answers everything but the step. Returns the one of that index, or all
 * names NULL past the last; *count is how many were passed. */
static pk_origin origin_of(const linear *model, size_t index, size_t *count) {
    pk_origin origin = {NULL, NULL, NULL, NULL};
    *count = OWN;
    if (index < OWN) {
        origin.name = ORIGINS[index][0];
        origin.set = ORIGINS[index][1];
        origin.method = ORIGINS[index][2];
        origin.scope = ORIGINS[index][3];
        return origin;
    }
    size_t all = model->base != NULL ? model->base->origin_count(model->base->context) : 0;
    for (size_t i = 0; i < all; i++) {
        pk_origin next = model->base->origin_at(model->base->context, i);
        if (lacked_by_its_step(next)) continue;
        if ((*count)++ == index) return next;
    }
    return origin;
}
static size_t origin_count(const void *context) {
    size_t count;
    (void)origin_of(context, SIZE_MAX, &count);
    return count;
}
static pk_origin origin_at(const void *context, size_t index) {
    size_t passed;
    return origin_of(context, index, &passed);
}
static const char *no_text(const void *context, const char *key) {
    (void)context, (void)key;
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static void stand_alone(pk_model *model, linear *self) {
    self->weight_bytes = 16e9;
    self->kv_bytes = 131072; /* 32 layers, 8 heads of 128, keys and values at 16 bits */
    model->fixed_bytes = fixed_bytes;
    model->pre_snapshot_bytes = nothing;
    model->sequence_variable_bytes = variable_bytes;
    model->sequence_bounded_bytes = nothing_of;
    model->sequence_bounded_bytes_at = nothing_at;
    model->sequence_fixed_bytes = nothing;
    model->sequence_admission_bytes = nothing;
    model->max_tokens_for = max_tokens_for;
    model->kv_capacity = kv_capacity;
    model->tier_time_ns = no_tier;
    model->pd_transfer_demand = demand_of;
    model->admission_overhead_ns = nothing_of;
    model->output_token_overhead_ns = nothing;
    model->completion_overhead_ns = nothing;
    model->capture_tokens = nothing;
    model->uniform_graph_mode = no_graph;
    model->other_graph_mode = no_graph;
    model->decode_threshold = one_token;
    model->decode_context_ranks = one_rank;
    model->prefill_context_ranks = one_rank;
    model->resolved = resolved;
    model->override_count = none;
    model->override_at = no_override;
    model->text = no_text;
}

/* What the base's memory says about one rank. 1024 tokens even out the blocks. */
static pk_status over(const pk_model *base, linear *self, pk_error *error) {
    pk_memory_breakdown held = PK_MEMORY_BREAKDOWN_INIT;
    pk_status status = base->fixed_bytes(base->context, &held, error);
    if (status != PK_OK) return status;
    self->base = base;
    self->weight_bytes = (double)held.weights;
    self->kv_bytes = (double)base->sequence_variable_bytes(base->context, 1024) / 1024;
    return PK_OK;
}

static void destroy(const void *context) { free((void *)(uintptr_t)context); }

PK_API pk_status pk_model_open(const pk_model *base, pk_model *model, pk_error *error);
pk_status pk_model_open(const pk_model *base, pk_model *model, pk_error *error) {
    if (model->struct_size != sizeof *model) return refuse(error, PK_STRUCT_SIZE, "model");
    linear *self = calloc(1, sizeof *self);
    if (self == NULL) return refuse(error, PK_NO_MEMORY, "model");
    if (base == NULL) {
        stand_alone(model, self);
    } else {
        pk_status status = over(base, self, error);
        if (status != PK_OK) {
            free(self);
            return status;
        }
    }
    model->context = self;
    model->base = base;
    model->destroy = destroy;
    model->step_time = step_time;
    model->origin_count = origin_count;
    model->origin_at = origin_at;
    return PK_OK;
}
