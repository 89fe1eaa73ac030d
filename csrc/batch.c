/* One walk over the requests of a step: checks them and gathers the integer sums that the laws read. */
#include "internal.h"

#include <stdio.h>

static pk_status check_header(const pk_batch *batch, pk_error *error) {
    if (batch == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "batch", "batch is NULL");
    pk_status status = pk__check_struct(batch->struct_size, batch->flags, sizeof *batch, "batch", error);
    if (status != PK_OK) return status;
    if (batch->count < 0 || batch->count > PK_MAX_REQUESTS)
        return pk__fail(error, PK_BATCH_VALUE, "batch.count", "count is %lld, accepted is 0 to %d",
                        (long long)batch->count, PK_MAX_REQUESTS);
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

static int64_t entries_of(const pk_kernel *kernel, const pk_read_law *law, int64_t context) {
    int64_t entries = pk_read_entries(law, context);
    if (!law->sharded || kernel->decode_ranks <= 1) return entries;
    /* Ranks share whole entries, so a fraction of one is rounded first; the shard then counts in entries. */
    int64_t ratio = law->law == PK_READ_SELECTED ? law->compress_ratio : 1;
    return pk_decode_shard((2 * entries + ratio) / (2 * ratio), kernel->decode_ranks, kernel->interleave);
}

static void scan_requests(const pk_batch *batch, int64_t width, pk__sums *sums) {
    int64_t pairs4 = 0, context = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t scheduled = batch->scheduled[i], computed = batch->computed[i];
        sums->scheduled += scheduled;
        sums->uniform_decode &= scheduled == width;
        if (scheduled + computed == 0) continue; /* nothing to attend */
        sums->attending += 1;
        sums->any_computed |= computed > 0;
        if (scheduled > batch->decode_threshold) {
            sums->prefills += 1;
            sums->prefill_tokens += scheduled;
            pairs4 += pk_prefill_pairs4(scheduled, computed, 0);
        } else {
            sums->decodes += 1;
            sums->decode_rows += scheduled;
            context += scheduled + computed;
        }
    }
    sums->reads[0] = context;
    sums->pairs4[0] = pairs4;
    sums->local_tokens = sums->scheduled;
    sums->sampled_rows = sums->decode_rows + sums->prefills;
}

static int64_t sum_reads(const pk_batch *batch, const pk_kernel *kernel, const pk_read_law *law) {
    int64_t entries = 0;
    for (int64_t i = 0; i < batch->count; i++)
        if (batch->scheduled[i] <= batch->decode_threshold)
            entries += entries_of(kernel, law, batch->scheduled[i] + batch->computed[i]);
    return entries;
}

static int64_t sum_pairs4(const pk_batch *batch, int64_t window) {
    int64_t pairs4 = 0;
    for (int64_t i = 0; i < batch->count; i++)
        if (batch->scheduled[i] > batch->decode_threshold)
            pairs4 += pk_prefill_pairs4(batch->scheduled[i], batch->computed[i], window);
    return pairs4;
}

/* Prefill-context ranks share every prefill: the sums of the busiest rank replace those of the whole. */
static void share_prefills(const pk_batch *batch, const pk_kernel *kernel, pk__sums *sums) {
    int64_t whole = sums->prefill_tokens;
    sums->prefill_tokens = 0;
    for (uint32_t slot = 0; slot < kernel->window_count; slot++) sums->pairs4[slot] = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        if (batch->scheduled[i] <= batch->decode_threshold) continue;
        pk_prefill_share share = pk_share_prefill(batch->scheduled[i], batch->computed[i], kernel->prefill_ranks,
                                                  kernel->decode_ranks > 1);
        sums->prefill_tokens += share.tokens;
        sums->pairs4[0] += share.pairs4;
        for (uint32_t slot = 1; slot < kernel->window_count; slot++)
            for (int run = 0; run < 2; run++)
                sums->pairs4[slot] +=
                    pk_prefill_pairs4(share.run_tokens[run], share.run_computed[run], kernel->windows[slot]);
    }
    sums->local_tokens -= whole - sums->prefill_tokens;
}

pk_status pk__scan_batch(const pk_batch *batch, const pk_kernel *kernel, pk__sums *sums, pk_error *error) {
    pk_status status = pk_batch_check(batch, error);
    if (status != PK_OK) return status;
    *sums = (pk__sums){.pad_tokens = batch->pad_tokens, .uniform_decode = true};
    scan_requests(batch, kernel->host.uniform_width, sums);
    for (uint32_t slot = 1; slot < kernel->read_count; slot++)
        sums->reads[slot] = sum_reads(batch, kernel, &kernel->reads[slot]);
    if (kernel->prefill_ranks > 1)
        share_prefills(batch, kernel, sums);
    else
        for (uint32_t slot = 1; slot < kernel->window_count; slot++)
            sums->pairs4[slot] = sum_pairs4(batch, kernel->windows[slot]);
    return PK_OK;
}

void pk__scan_draft(const pk_batch *batch, const pk_kernel *kernel, int32_t pass, pk__sums *sums) {
    *sums = (pk__sums){.any_computed = true};
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t context = batch->scheduled[i] + batch->computed[i];
        if (context == 0) continue;
        sums->attending += 1;
        for (uint32_t slot = 0; slot < kernel->read_count; slot++)
            sums->reads[slot] += entries_of(kernel, &kernel->reads[slot], context + pass - 1);
    }
    sums->scheduled = sums->local_tokens = sums->attending;
    sums->decodes = sums->decode_rows = sums->sampled_rows = sums->attending;
}
