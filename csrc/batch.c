/* One walk over the requests of a step: checks them and gathers the integer sums that the laws read. */
#include "internal.h"

#include <stdio.h>

static pk_status check_header(const pk_batch *batch, pk_error *error) {
    if (batch == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "batch", "batch is NULL");
    pk_status status = pk__check_struct(batch->struct_size, batch->flags, sizeof *batch, "batch", error);
    if (status != PK_OK) return status;
    if (batch->count < 0 || batch->count > PK_MAX_BATCH_TOKENS)
        return pk__fail(error, PK_BATCH_VALUE, "batch.count", "count is %lld, accepted is 0 to %d",
                        (long long)batch->count, PK_MAX_BATCH_TOKENS);
    if (batch->count > 0 && (batch->scheduled == NULL || batch->computed == NULL))
        return pk__fail(error, PK_NULL_ARGUMENT, batch->scheduled == NULL ? "batch.scheduled" : "batch.computed",
                        "the array is NULL for %lld requests", (long long)batch->count);
    if (batch->decode_threshold < 0)
        return pk__fail(error, PK_BATCH_VALUE, "batch.decode_threshold", "decode_threshold is %lld, must be >= 0",
                        (long long)batch->decode_threshold);
    if (batch->pad_tokens < 0 || batch->pad_tokens > PK_MAX_BATCH_TOKENS)
        return pk__fail(error, PK_BATCH_VALUE, "batch.pad_tokens", "pad_tokens is %lld, accepted is 0 to %d",
                        (long long)batch->pad_tokens, PK_MAX_BATCH_TOKENS);
    return PK_OK;
}

static pk_status bad_request(const char *array, int64_t index, int64_t value, const char *accepted, pk_error *error) {
    char field[64];
    (void)snprintf(field, sizeof field, "batch.%s[%lld]", array, (long long)index);
    return pk__fail(error, PK_BATCH_VALUE, field, "%s is %lld, %s", array, (long long)value, accepted);
}

/* Names the first request that is out of range. Only called once something is known to be wrong. */
static pk_status explain(const pk_batch *batch, pk_error *error) {
    int64_t tokens = batch->pad_tokens;
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t scheduled = batch->scheduled[i], computed = batch->computed[i];
        if (scheduled < 0 || scheduled > PK_MAX_REQUEST_TOKENS)
            return bad_request("scheduled", i, scheduled, "accepted is 0 to 2^30", error);
        if (computed < 0 || computed > PK_MAX_REQUEST_TOKENS - scheduled)
            return bad_request("computed", i, computed, "must be >= 0, and at most 2^30 with the scheduled tokens",
                               error);
        if (batch->prompt_len != NULL && batch->prompt_len[i] < 0)
            return bad_request("prompt_len", i, batch->prompt_len[i], "must be >= 0", error);
        if (batch->cached_tokens != NULL && batch->cached_tokens[i] < 0)
            return bad_request("cached_tokens", i, batch->cached_tokens[i], "must be >= 0", error);
        tokens += scheduled;
    }
    return pk__fail(error, PK_BATCH_LIMIT, "batch", "%lld tokens in one step, at most %d are accepted",
                    (long long)tokens, PK_MAX_BATCH_TOKENS);
}

static pk_status check_requests(const pk_batch *batch, pk_error *error) {
    /* A negative value or one of 2^31 and more leaves a bit in the upper half, so that one OR checks them all. */
    uint64_t seen = 0, longest = 0, tokens = (uint64_t)batch->pad_tokens;
    for (int64_t i = 0; i < batch->count; i++) {
        uint64_t scheduled = (uint64_t)batch->scheduled[i], computed = (uint64_t)batch->computed[i];
        uint64_t context = scheduled + computed;
        seen |= scheduled | computed;
        longest = context > longest ? context : longest;
        tokens += scheduled & 0xffffffffu;
    }
    uint64_t sign = 0;
    if (batch->prompt_len != NULL)
        for (int64_t i = 0; i < batch->count; i++) sign |= (uint64_t)batch->prompt_len[i];
    if (batch->cached_tokens != NULL)
        for (int64_t i = 0; i < batch->count; i++) sign |= (uint64_t)batch->cached_tokens[i];
    bool fine = seen >> 31 == 0 && longest <= PK_MAX_REQUEST_TOKENS && tokens <= PK_MAX_BATCH_TOKENS && sign >> 63 == 0;
    return fine ? PK_OK : explain(batch, error);
}

pk_status pk_batch_check(const pk_batch *batch, pk_error *error) {
    pk_status status = check_header(batch, error);
    return status != PK_OK ? status : check_requests(batch, error);
}

static void scan_requests(const pk_batch *batch, int64_t width, pk__sums *sums) {
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t scheduled = batch->scheduled[i], computed = batch->computed[i];
        sums->tokens += scheduled;
        sums->uniform_decode &= scheduled == width;
        if (scheduled + computed == 0) continue; /* a request with nothing to attend */
        if (scheduled > batch->decode_threshold) {
            sums->prefill_requests += 1;
            sums->prefill_pairs2 += scheduled * (2 * computed + scheduled);
            sums->sampled_rows += 1;
        } else {
            sums->decode_requests += 1;
            sums->decode_context += scheduled + computed;
            sums->sampled_rows += scheduled;
        }
    }
}

static void scan_window(const pk_batch *batch, int64_t window, int64_t *context, int64_t *pairs4) {
    int64_t read = 0, pairs = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t scheduled = batch->scheduled[i], computed = batch->computed[i];
        if (scheduled > batch->decode_threshold)
            pairs += pk_prefill_pairs4(scheduled, computed, window);
        else
            read += pk__min(scheduled + computed, window);
    }
    *context = read;
    *pairs4 = pairs;
}

pk_status pk__scan_batch(const pk_batch *batch, const pk_kernel *kernel, pk__sums *sums, pk_error *error) {
    pk_status status = pk_batch_check(batch, error);
    if (status != PK_OK) return status;
    *sums = (pk__sums){.uniform_decode = true};
    scan_requests(batch, kernel->host.uniform_width, sums);
    sums->padded_tokens = sums->tokens + batch->pad_tokens;
    for (int32_t slot = 0; slot < kernel->window_count; slot++)
        scan_window(batch, kernel->windows[slot], &sums->window_context[slot], &sums->window_pairs4[slot]);
    return PK_OK;
}
