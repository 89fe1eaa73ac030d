/* A running batch: requests that come, grow and leave, with the sums that a price needs kept as they do. The arrays of
 * the requests are brought up to date only where a law has to look at each of them. */
#include "laws.h"

#include <stdlib.h>
#include <string.h>

/* Requests lie side by side in arrays; ids lead to their places, so that the last request can fill a gap. */
struct pk_batch_state {
    pk_batch batch; /* of the arrays; its computed tokens are `lag` steps old */
    int64_t capacity;
    int64_t lag;
    int64_t *scheduled, *computed; /* computed tokens `lag` steps ago, less than 0 for a request that came since */
    int64_t *id_at;                /* by place */
    int64_t *place_of;             /* by id; -2 - the next free id where the id is not in use */
    int64_t free_id, last_id;      /* the first free id, -1 for none; ids in use or freed are those before last_id */
    int64_t longest, widest;       /* no context and no scheduled tokens are more; exact after look_again */
    int64_t tokens, squares;       /* sums over all requests: scheduled, and its square */
    int64_t context, idle;
    int64_t prefills, prefill_tokens, prefill_squares, prefill_context, pairs4; /* over the prefills */
};

static void count(pk_batch_state *state, int64_t scheduled, int64_t computed, int64_t times) {
    state->tokens += times * scheduled;
    state->squares += times * scheduled * scheduled;
    state->context += times * (scheduled + computed);
    state->idle += times * ((scheduled | computed) == 0);
    if (scheduled <= state->batch.decode_threshold) return;
    state->prefills += times;
    state->prefill_tokens += times * scheduled;
    state->prefill_squares += times * scheduled * scheduled;
    state->prefill_context += times * (scheduled + computed);
    state->pairs4 += times * pk__prefill_pairs4(scheduled, computed, 0);
}

/* ---- coming and going ---------------------------------------------------------------------------------------- */

pk_status pk_batch_state_new(int64_t decode_threshold, pk_batch_state **state, pk_error *error) {
    if (state == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "state", "state is NULL");
    if (decode_threshold < 0)
        return pk__fail(error, PK_ARGUMENT, "decode_threshold", "decode_threshold is %lld, must be >= 0",
                        (long long)decode_threshold);
    pk_batch_state *made = calloc(1, sizeof *made);
    if (made == NULL) return pk__fail(error, PK_NO_MEMORY, "state", "%zu bytes could not be allocated", sizeof *made);
    made->batch.struct_size = sizeof made->batch;
    made->batch.decode_threshold = decode_threshold;
    made->free_id = -1;
    *state = made;
    return PK_OK;
}

void pk_batch_state_free(pk_batch_state *state) {
    if (state != NULL) free(state->scheduled);
    free(state);
}

/* One block holds the four arrays. */
static pk_status grow(pk_batch_state *state, pk_error *error) {
    int64_t capacity = state->capacity < 64 ? 64 : 2 * state->capacity, count = state->batch.count;
    int64_t *block = calloc((size_t)capacity, 4 * sizeof *block);
    if (block == NULL)
        return pk__fail(error, PK_NO_MEMORY, "state", "room for %lld requests could not be allocated",
                        (long long)capacity);
    int64_t *old[4] = {state->scheduled, state->computed, state->id_at, state->place_of};
    int64_t used[4] = {count, count, count, state->last_id};
    for (int i = 0; i < 4; i++)
        if (used[i] > 0) memcpy(block + i * capacity, old[i], (size_t)used[i] * sizeof *block);
    free(state->scheduled);
    state->capacity = capacity;
    state->batch.scheduled = state->scheduled = block;
    state->batch.computed = state->computed = block + capacity;
    state->id_at = block + 2 * capacity;
    state->place_of = block + 3 * capacity;
    return PK_OK;
}

static pk_status check_request(const pk_batch_state *state, int64_t scheduled, int64_t computed, int64_t instead_of,
                               pk_error *error) {
    if (scheduled < 0 || scheduled > PK_MAX_REQUEST_TOKENS)
        return pk__fail(error, PK_BATCH_VALUE, "scheduled", "scheduled is %lld, accepted is 0 to 2^30",
                        (long long)scheduled);
    if (computed < 0 || computed > PK_MAX_REQUEST_TOKENS - scheduled)
        return pk__fail(error, PK_BATCH_VALUE, "computed",
                        "computed is %lld, must be >= 0, and at most 2^30 with the scheduled tokens",
                        (long long)computed);
    int64_t tokens = state->tokens - instead_of + scheduled;
    if (tokens <= PK_MAX_BATCH_TOKENS) return PK_OK;
    return pk__fail(error, PK_BATCH_LIMIT, "scheduled", "%lld tokens in one step, at most %d are accepted",
                    (long long)tokens, PK_MAX_BATCH_TOKENS);
}

static void put(pk_batch_state *state, int64_t place, int64_t scheduled, int64_t computed) {
    state->scheduled[place] = scheduled;
    state->computed[place] = computed - scheduled * state->lag;
    if (scheduled > state->widest) state->widest = scheduled;
    if (scheduled + computed > state->longest) state->longest = scheduled + computed;
    count(state, scheduled, computed, 1);
}

pk_status pk_batch_state_add(pk_batch_state *state, int64_t scheduled, int64_t computed, int64_t *id,
                             pk_error *error) {
    if (state == NULL || id == NULL) {
        const char *missing = state == NULL ? "state" : "id";
        return pk__fail(error, PK_NULL_ARGUMENT, missing, "%s is NULL", missing);
    }
    pk_status status = check_request(state, scheduled, computed, 0, error);
    if (status != PK_OK) return status;
    if (state->batch.count == PK_MAX_REQUESTS)
        return pk__fail(error, PK_BATCH_LIMIT, "state", "there are %d requests, no more are accepted", PK_MAX_REQUESTS);
    if (state->batch.count == state->capacity) {
        status = grow(state, error);
        if (status != PK_OK) return status;
    }
    int64_t place = state->batch.count++, taken = state->free_id;
    if (taken >= 0)
        state->free_id = -2 - state->place_of[taken];
    else
        taken = state->last_id++;
    state->place_of[taken] = place;
    state->id_at[place] = taken;
    put(state, place, scheduled, computed);
    *id = taken;
    return PK_OK;
}

/* The place of a request, or a failure that names the id. */
static pk_status find(const pk_batch_state *state, int64_t id, int64_t *place, pk_error *error) {
    if (state == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "state", "state is NULL");
    if (id < 0 || id >= state->last_id || state->place_of[id] < 0)
        return pk__fail(error, PK_ARGUMENT, "id", "id is %lld, no request of this batch has it", (long long)id);
    *place = state->place_of[id];
    return PK_OK;
}

static int64_t computed_at(const pk_batch_state *state, int64_t place) {
    return state->computed[place] + state->scheduled[place] * state->lag;
}

pk_status pk_batch_state_get(const pk_batch_state *state, int64_t id, int64_t *scheduled, int64_t *computed,
                             pk_error *error) {
    int64_t place = 0;
    pk_status status = find(state, id, &place, error);
    if (status != PK_OK) return status;
    if (scheduled != NULL) *scheduled = state->scheduled[place];
    if (computed != NULL) *computed = computed_at(state, place);
    return PK_OK;
}

pk_status pk_batch_state_set(pk_batch_state *state, int64_t id, int64_t scheduled, int64_t computed,
                             pk_error *error) {
    int64_t place = 0;
    pk_status status = find(state, id, &place, error);
    if (status != PK_OK) return status;
    status = check_request(state, scheduled, computed, state->scheduled[place], error);
    if (status != PK_OK) return status;
    count(state, state->scheduled[place], computed_at(state, place), -1);
    put(state, place, scheduled, computed);
    return PK_OK;
}

pk_status pk_batch_state_remove(pk_batch_state *state, int64_t id, pk_error *error) {
    int64_t place = 0;
    pk_status status = find(state, id, &place, error);
    if (status != PK_OK) return status;
    count(state, state->scheduled[place], computed_at(state, place), -1);
    int64_t last = --state->batch.count;
    state->scheduled[place] = state->scheduled[last];
    state->computed[place] = state->computed[last];
    state->id_at[place] = state->id_at[last];
    state->place_of[state->id_at[place]] = place;
    state->place_of[id] = -2 - state->free_id;
    state->free_id = id;
    return PK_OK;
}

/* ---- growing ------------------------------------------------------------------------------------------------- */

static void catch_up(pk_batch_state *state) {
    if (state->lag == 0) return;
    for (int64_t i = 0; i < state->batch.count; i++) state->computed[i] += state->scheduled[i] * state->lag;
    state->lag = 0;
}

/* Exact bounds, and whether `steps` more steps keep every request within its limit. */
static pk_status look_again(pk_batch_state *state, int64_t steps, pk_error *error) {
    catch_up(state);
    int64_t longest = 0, widest = 0;
    for (int64_t i = 0; i < state->batch.count; i++) {
        int64_t scheduled = state->scheduled[i], context = scheduled + state->computed[i];
        if (scheduled > 0 && steps > (PK_MAX_REQUEST_TOKENS - context) / scheduled)
            return pk__fail(error, PK_BATCH_VALUE, "steps",
                            "after %lld steps, request %lld of %lld tokens, %lld more a step, passes 2^30",
                            (long long)steps, (long long)state->id_at[i], (long long)context, (long long)scheduled);
        if (scheduled > widest) widest = scheduled;
        if (context > longest) longest = context;
    }
    state->longest = longest;
    state->widest = widest;
    return PK_OK;
}

pk_status pk_batch_state_advance(pk_batch_state *state, int64_t steps, pk_error *error) {
    if (state == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "state", "state is NULL");
    if (steps < 0) return pk__fail(error, PK_ARGUMENT, "steps", "steps is %lld, must be >= 0", (long long)steps);
    if (state->tokens == 0) return PK_OK;
    bool surely_fits = steps <= (PK_MAX_REQUEST_TOKENS - state->longest) / state->widest;
    if (!surely_fits || state->lag > PK_MAX_REQUEST_TOKENS - steps) {
        pk_status status = look_again(state, steps, error);
        if (status != PK_OK) return status;
    }
    state->lag += steps;
    state->longest = pk__min(state->longest + steps * state->widest, PK_MAX_REQUEST_TOKENS);
    state->context += steps * state->tokens;
    state->prefill_context += steps * state->prefill_tokens;
    state->pairs4 += 4 * steps * state->prefill_squares;
    return PK_OK;
}

/* ---- pricing ------------------------------------------------------------------------------------------------- */

pk_status pk_batch_state_settings(pk_batch_state *state, int64_t sm_budget, int64_t pad_tokens, pk_error *error) {
    if (state == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "state", "state is NULL");
    if (pad_tokens < 0 || pad_tokens > PK_MAX_BATCH_TOKENS)
        return pk__fail(error, PK_ARGUMENT, "pad_tokens", "pad_tokens is %lld, accepted is 0 to %d",
                        (long long)pad_tokens, PK_MAX_BATCH_TOKENS);
    state->batch.sm_budget = sm_budget;
    state->batch.pad_tokens = pad_tokens;
    return PK_OK;
}

pk_status pk_batch_state_view(pk_batch_state *state, pk_batch *batch, pk_error *error) {
    if (state == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "state", "state is NULL");
    if (batch == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "batch", "batch is NULL");
    pk_status status = pk__check_struct(batch->struct_size, batch->flags, sizeof *batch, "batch", error);
    if (status != PK_OK) return status;
    catch_up(state);
    *batch = state->batch;
    return PK_OK;
}

static void sum_up(const pk_batch_state *state, const pk_kernel *kernel, pk__sums *sums) {
    int64_t count = state->batch.count, width = kernel->host.uniform_width;
    sums->scheduled = sums->local_tokens = state->tokens;
    sums->context = state->context;
    sums->pad_tokens = state->batch.pad_tokens;
    sums->attending = count - state->idle;
    sums->prefills = state->prefills;
    sums->prefill_tokens = state->prefill_tokens;
    sums->decode_rows = state->tokens - state->prefill_tokens;
    sums->any_computed = state->context > state->tokens;
    /* All are `width` where the sum of (scheduled - width)^2 is 0. */
    sums->uniform_decode = state->tokens == count * width && state->squares == width * state->tokens;
    sums->reads[0] = state->context - state->prefill_context;
    sums->pairs4[0] = state->pairs4;
    pk__derive_sums(sums);
}

pk_status pk_batch_state_step_time(const pk_kernel *kernel, pk_batch_state *state, pk_estimate *estimate,
                                   pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (state == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "state", "state is NULL");
    if (estimate == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "estimate", "estimate is NULL");
    pk_status status = pk__check_struct(estimate->struct_size, estimate->flags, sizeof *estimate, "estimate", error);
    if (status != PK_OK) return status;
    if (state->tokens + state->batch.pad_tokens > PK_MAX_BATCH_TOKENS)
        return pk__fail(error, PK_BATCH_LIMIT, "state", "%lld tokens in one step, at most %d are accepted",
                        (long long)(state->tokens + state->batch.pad_tokens), PK_MAX_BATCH_TOKENS);
    pk__sums sums;
    sum_up(state, kernel, &sums);
    if (pk__needs_requests(kernel, &sums)) {
        catch_up(state);
        status = pk__scan_batch(&state->batch, kernel, &sums, error);
        if (status != PK_OK) return status;
    }
    pk__price(kernel, &state->batch, &sums, estimate);
    return PK_OK;
}
