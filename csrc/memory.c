/* Memory: what a rank holds whatever runs, what a sequence keeps, and how many sequences fit. Bytes are added up as
 * doubles, exact below 2^53, and become an integer once, truncated. */
#include "internal.h"

/* ---- fixed bytes, at construction ---------------------------------------------------------------------------- */

/* Weights that tp divides are added up before they are divided, so that only the quotient can round. */
static double dense_bytes(const pk_spec *spec) {
    double divided = spec->head.stored_bytes + spec->memory.embedding_bytes, whole = 0;
    for (uint32_t i = 0; i < spec->layer_count + spec->draft_layer_count; i++) {
        divided += spec->layers[i].count * spec->layers[i].stored_bytes;
        whole += spec->layers[i].count * spec->layers[i].replicated_bytes;
    }
    return divided / spec->tensor_parallel + whole;
}

/* Of the experts of all layers: what the fullest rank holds, and how much of that are replicas. */
static void expert_bytes(const pk_spec *spec, double *held, double *replicas) {
    for (uint32_t i = 0; i < spec->layer_count + spec->draft_layer_count; i++) {
        const pk_layer *layer = &spec->layers[i];
        for (uint32_t j = 0; j < layer->experts_count; j++) {
            const pk_experts *experts = &spec->experts[layer->experts_first + j];
            double each = layer->count * experts->stored_bytes_per_expert;
            *held += each * experts->local / experts->shards;
            *replicas += each * experts->redundant / experts->ranks / experts->shards;
        }
    }
}

void pk__fold_memory(const pk_spec *spec, pk_kernel *kernel) {
    const pk_memory *memory = &spec->memory;
    double held = 0, replicas = 0;
    expert_bytes(spec, &held, &replicas);
    double rows = memory->activation_buffers * (double)memory->activation_tokens * (double)memory->activation_width;
    int64_t outside = pk__add(memory->communicator_bytes, memory->workspace_bytes);
    pk_memory_breakdown fixed = PK_MEMORY_BREAKDOWN_INIT;
    fixed.weights = pk__whole(dense_bytes(spec) + held - replicas);
    fixed.activation_peak = pk__max(pk__whole(rows * 2), memory->activation_floor_bytes);
    fixed.cuda_graph = memory->graph_bytes;
    fixed.eplb_redundant = pk__whole(replicas);
    fixed.comm_buffers = memory->inside_budget ? outside : 0;
    fixed.total = pk__add(pk__add(pk__add(fixed.weights, fixed.activation_peak), fixed.cuda_graph),
                          pk__add(fixed.eplb_redundant, fixed.comm_buffers));
    kernel->fixed = fixed;
    kernel->pre_snapshot_bytes = memory->inside_budget ? 0 : outside;
    kernel->memory = *memory;
}

pk_status pk_fixed_bytes(const pk_kernel *kernel, pk_memory_breakdown *breakdown, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (breakdown == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "breakdown", "breakdown is NULL");
    pk_status status = pk__check_struct(breakdown->struct_size, breakdown->flags, sizeof *breakdown, "breakdown", error);
    if (status == PK_OK) *breakdown = kernel->fixed;
    return status;
}

int64_t pk_pre_snapshot_bytes(const pk_kernel *kernel) { return kernel->pre_snapshot_bytes; }

/* ---- what a sequence keeps ----------------------------------------------------------------------------------- */

/* One page of a group, on this rank, in its own size. */
static double page_bytes(const pk_cache_group *group) {
    return group->layers * group->entry_bytes * (double)group->block / group->tokens_per_entry;
}

/* What a page costs: its own size, or the common one of a shared pool. */
static double page_charge(const pk_kernel *kernel, const pk_cache_group *group) {
    return kernel->memory.pool_block_bytes > 0 ? kernel->memory.pool_block_bytes : page_bytes(group);
}

static double paged_bytes(const pk_kernel *kernel, const pk_cache_group *group, int64_t tokens) {
    int64_t held = group->sharded ? pk__ceil_div(tokens, kernel->decode_ranks) : tokens;
    if (group->window > 0) held = pk__min(held, group->window);
    double pages = (double)pk__ceil_div(held, group->block);
    if (kernel->memory.pool_block_bytes > 0) return pages * kernel->memory.pool_block_bytes;
    return group->layers * group->entry_bytes * pages * (double)group->block / group->tokens_per_entry;
}

static int64_t checkpoint_bytes(const pk_cache_group *group, int64_t tokens) {
    double pages = (double)pk__ceil_div(tokens, group->block) + group->pages;
    return pk__whole(group->entry_bytes * pages * group->layers);
}

int64_t pk_sequence_variable_bytes(const pk_kernel *kernel, int64_t tokens) {
    if (tokens <= 0) return 0;
    double paged = 0;
    int64_t checkpoints = 0;
    for (uint32_t i = 0; i < kernel->cache_count; i++) {
        const pk_cache_group *group = &pk__caches(kernel)[i];
        if (group->kind == PK_CACHE_TOKENS) paged += paged_bytes(kernel, group, tokens);
        if (group->kind == PK_CACHE_CHECKPOINTS) checkpoints = pk__add(checkpoints, checkpoint_bytes(group, tokens));
    }
    return pk__add(pk__whole(paged), checkpoints);
}

/* Pages of a ring: the window less its newest token and what is in flight, and one more because a window may begin
 * inside a page; no more than `reached` tokens need. */
static double ring_pages(const pk_kernel *kernel, const pk_cache_group *group, int64_t reached, int64_t in_flight) {
    int64_t spanned = pk__add(group->window - 1, in_flight);
    if (kernel->memory.model_length > 0) spanned = pk__min(spanned, kernel->memory.model_length);
    int64_t full = pk__add(pk__ceil_div(spanned, group->block), 1);
    return (double)pk__min(full, pk__ceil_div(reached, group->block));
}

int64_t pk_sequence_bounded_bytes_at(const pk_kernel *kernel, int64_t computed, int64_t in_flight) {
    in_flight = pk__max(in_flight, 0);
    int64_t reached = pk__add(pk__max(computed, 0), in_flight);
    double bytes = 0;
    for (uint32_t i = 0; i < kernel->cache_count; i++) {
        const pk_cache_group *group = &pk__caches(kernel)[i];
        if (group->kind == PK_CACHE_STATE) bytes += group->entry_bytes * group->pages * group->layers;
        if (group->kind == PK_CACHE_RING)
            bytes += ring_pages(kernel, group, reached, in_flight) * page_charge(kernel, group);
    }
    return pk__whole(bytes);
}

int64_t pk_sequence_bounded_bytes(const pk_kernel *kernel, int64_t in_flight) {
    return pk_sequence_bounded_bytes_at(kernel, INT64_MAX, in_flight);
}

int64_t pk_sequence_fixed_bytes(const pk_kernel *kernel) {
    return pk_sequence_bounded_bytes(kernel, 1 + (int64_t)kernel->memory.draft_tokens);
}

int64_t pk_sequence_admission_bytes(const pk_kernel *kernel) {
    return pk_sequence_bounded_bytes(kernel, kernel->memory.in_flight_tokens);
}

/* ---- how much fits ------------------------------------------------------------------------------------------- */

/* By bisection, so that it is the inverse of the function itself, whatever groups there are and wherever it saturates. */
int64_t pk_max_tokens_for(const pk_kernel *kernel, int64_t bytes) {
    if (pk_sequence_variable_bytes(kernel, INT64_MAX) <= bytes) return INT64_MAX;
    int64_t fits = 0, too_many = INT64_MAX;
    while (too_many - fits > 1) {
        int64_t middle = fits + (too_many - fits) / 2;
        if (pk_sequence_variable_bytes(kernel, middle) <= bytes)
            fits = middle;
        else
            too_many = middle;
    }
    return fits;
}

int64_t pk_sequences_that_fit(const pk_kernel *kernel, int64_t bytes, int64_t tokens) {
    int64_t each = pk__add(pk_sequence_variable_bytes(kernel, tokens), pk_sequence_admission_bytes(kernel));
    return each == 0 ? INT64_MAX : pk__max(bytes, 0) / each;
}

/* Ranks over which a block of a sequence's tokens is spread. */
static int64_t block_ranks(const pk_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->cache_count; i++)
        if (pk__caches(kernel)[i].sharded) return kernel->decode_ranks;
    return 1;
}

static double gibibytes(int64_t bytes) { return (double)bytes / 0x1p30; }

static pk_status check_room(const pk_kernel *kernel, pk_capacity *room, pk_error *error) {
    int64_t fixed = kernel->fixed.total;
    if (fixed >= room->device_bytes)
        return pk__fail(error, PK_NO_ROOM, "fixed_bytes",
                        "the model does not fit: %.1f GiB (%lld bytes) are held before any sequence, the part has %.1f",
                        gibibytes(fixed), (long long)fixed, gibibytes(room->device_bytes));
    room->bytes = room->budget_bytes - fixed;
    if (room->bytes <= 0)
        return pk__fail(error, PK_NO_ROOM, "utilization",
                        "the model does not fit its budget: %.1f GiB (%lld bytes) are held before any sequence, the "
                        "budget is %.1f of the part's %.1f",
                        gibibytes(fixed), (long long)fixed, gibibytes(room->budget_bytes),
                        gibibytes(room->device_bytes));
    if (room->block_bytes > room->bytes)
        return pk__fail(error, PK_NO_ROOM, "block",
                        "the model leaves %lld bytes, which no block of %lld tokens fits in: it takes %lld",
                        (long long)room->bytes, (long long)room->block_tokens, (long long)room->block_bytes);
    return PK_OK;
}

static pk_status check_capacity_arguments(const pk_kernel *kernel, int64_t device_bytes, double utilization,
                                          int64_t block, const pk_capacity *capacity, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (capacity == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "capacity", "capacity is NULL");
    if (device_bytes < 0)
        return pk__fail(error, PK_ARGUMENT, "device_bytes", "device_bytes is %lld, must be above 0, or 0 for the part's",
                        (long long)device_bytes);
    if (!(utilization >= 0 && utilization <= 1))
        return pk__fail(error, PK_ARGUMENT, "utilization",
                        "utilization is %g, must be above 0 and at most 1, or 0 for the deployment's", utilization);
    if (block < 0)
        return pk__fail(error, PK_ARGUMENT, "block", "block is %lld, must be 1 or more, or 0 for the deployment's",
                        (long long)block);
    return pk__check_struct(capacity->struct_size, capacity->flags, sizeof *capacity, "capacity", error);
}

pk_status pk_kv_capacity(const pk_kernel *kernel, int64_t device_bytes, double utilization, int64_t block,
                         pk_capacity *capacity, pk_error *error) {
    pk_status status = check_capacity_arguments(kernel, device_bytes, utilization, block, capacity, error);
    if (status != PK_OK) return status;
    pk_capacity room = PK_CAPACITY_INIT;
    room.device_bytes = device_bytes > 0 ? device_bytes : kernel->memory.device_bytes;
    room.budget_bytes = pk__whole((double)room.device_bytes * (utilization > 0 ? utilization : kernel->memory.utilization));
    room.block_tokens = pk__multiply(block > 0 ? block : kernel->memory.block, block_ranks(kernel));
    room.block_bytes = pk_sequence_variable_bytes(kernel, room.block_tokens);
    status = check_room(kernel, &room, error);
    if (status != PK_OK) return status;
    room.blocks = room.block_bytes > 0 ? room.bytes / room.block_bytes : 0;
    room.tokens = room.block_bytes > 0 ? pk__multiply(room.blocks, room.block_tokens) : INT64_MAX;
    room.pre_snapshot_fits = kernel->pre_snapshot_bytes <= room.device_bytes - room.budget_bytes;
    *capacity = room;
    return PK_OK;
}

/* What of a sequence's caches a handoff moves: entries by the token, rings and state by the page, on every rank the
 * whole request, however many ranks share its decode. */
int64_t pk__handoff_bytes(const pk_kernel *kernel, int64_t tokens) {
    double bytes = 0;
    for (uint32_t i = 0; i < kernel->cache_count; i++) {
        const pk_cache_group *group = &pk__caches(kernel)[i];
        if (!group->handed_over) continue;
        if (group->kind == PK_CACHE_RING) {
            int64_t cap = pk__add(pk__ceil_div(group->window, group->block), 1);
            bytes += (double)pk__min(pk__ceil_div(tokens, group->block), cap) * page_bytes(group);
        } else if (group->kind == PK_CACHE_TOKENS) {
            int64_t held = group->window > 0 ? pk__min(tokens, group->window) : tokens;
            bytes += group->layers * group->entry_bytes * (double)held / group->tokens_per_entry;
        } else {
            bytes += group->entry_bytes * group->pages * group->layers;
        }
    }
    return pk__whole(bytes);
}
