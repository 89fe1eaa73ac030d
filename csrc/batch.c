/* One scan over the requests of a step checks them and gathers the integer sums that the laws read. It has no branches,
 * so that compilers turn it into vector instructions; what it cannot rule out (prefills, requests that have nothing to
 * attend, values near the limits) and bounds on what a decode reads are walked over once more. */
#include "laws.h"

#include <stdio.h>

PK__INLINE pk_status check_header(const pk_batch *batch, pk_error *error) {
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

/* ---- the scan ------------------------------------------------------------------------------------------------ */

/* What one pass over the requests finds. Bits are gathered with OR and AND: no value is larger than the OR of all, all
 * are equal when OR and AND agree, and none is 0 unless the AND is. */
typedef struct findings {
    uint64_t any_scheduled, any_computed; /* OR */
    uint64_t every_scheduled;             /* AND */
    uint64_t scheduled, context;          /* sums */
} findings;

static inline findings look_over(const pk_batch *batch) {
    const int64_t *restrict scheduled = batch->scheduled, *restrict computed = batch->computed;
    uint64_t any_scheduled = 0, any_computed = 0, every_scheduled = ~(uint64_t)0, tokens = 0, context = 0;
    for (int64_t i = 0, count = batch->count; i < count; i++) {
        uint64_t s = (uint64_t)scheduled[i], c = (uint64_t)computed[i];
        any_scheduled |= s;
        any_computed |= c;
        every_scheduled &= s;
        tokens += s;
        context += s + c;
    }
    return (findings){any_scheduled, any_computed, every_scheduled, tokens, context};
}

/* Exact where look_over is only sure of values below 2^29. */
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
    bool fine = seen >> 31 == 0 && longest <= PK_MAX_REQUEST_TOKENS && tokens <= PK_MAX_BATCH_TOKENS;
    return fine ? PK_OK : explain(batch, error);
}

pk_status pk_batch_check(const pk_batch *batch, pk_error *error) {
    pk_status status = check_header(batch, error);
    if (status != PK_OK) return status;
    uint64_t sign = 0;
    if (batch->prompt_len != NULL)
        for (int64_t i = 0; i < batch->count; i++) sign |= (uint64_t)batch->prompt_len[i];
    if (batch->cached_tokens != NULL)
        for (int64_t i = 0; i < batch->count; i++) sign |= (uint64_t)batch->cached_tokens[i];
    return sign >> 63 == 0 ? check_requests(batch, error) : explain(batch, error);
}

/* ---- what decodes read under a bound ------------------------------------------------------------------------- */

static inline int64_t entries_of(const pk_kernel *kernel, const pk_read_law *law, int64_t context) {
    int64_t entries = pk__read_entries(law, context);
    if (!law->sharded || kernel->decode_ranks <= 1) return entries;
    /* Ranks share whole entries, so a fraction of one is rounded first; the shard then counts in entries. */
    int64_t ratio = law->law == PK_READ_SELECTED ? law->compress_ratio : 1;
    return pk__decode_shard((2 * entries + ratio) / (2 * ratio), kernel->decode_ranks, kernel->interleave);
}

/* Of every request, whether it decodes or not. */
static inline int64_t sum_entries_under(const pk_batch *batch, const pk_kernel *kernel, pk_read_law law) {
    int64_t entries = 0;
    for (int64_t i = 0, count = batch->count; i < count; i++)
        entries += entries_of(kernel, &law, batch->scheduled[i] + batch->computed[i]);
    return entries;
}

/* max(0, value - bound) without a branch or a comparison, for values below 2^63. */
static inline uint64_t beyond(uint64_t value, uint64_t bound) {
    uint64_t over = value - bound;
    return over & ((over >> 63) - 1);
}

/* sum over min(context, window): what the contexts fall short of the window. */
static int64_t sum_window(const pk_batch *batch, int64_t window) {
    const int64_t *restrict scheduled = batch->scheduled, *restrict computed = batch->computed;
    uint64_t short_of = 0;
    for (int64_t i = 0, count = batch->count; i < count; i++)
        short_of += beyond((uint64_t)window, (uint64_t)(scheduled[i] + computed[i]));
    return window * batch->count - (int64_t)short_of;
}

/* sum over pk__read_entries of a selection, of contexts that sum to `all`: one of up to `whole` tokens is read whole, of
 * a longer one what is selected and the window. */
static int64_t sum_selected(const pk_batch *batch, const pk_read_law *law, int64_t all) {
    const int64_t *restrict scheduled = batch->scheduled, *restrict computed = batch->computed;
    const int64_t ratio = law->compress_ratio, window = law->window * ratio;
    const int64_t selected = law->top_k > 0 ? law->top_k * ratio : INT64_MAX / 2;
    const int64_t whole = pk__min(ratio > 1 ? window / (ratio - 1) : PK_MAX_REQUEST_TOKENS, (selected + window) / ratio);
    uint64_t longer = 0, count = 0, unselected = 0;
    for (int64_t i = 0, requests = batch->count; i < requests; i++) {
        uint64_t context = (uint64_t)(scheduled[i] + computed[i]);
        uint64_t is_longer = ((uint64_t)whole - context) >> 63, mask = 0 - is_longer;
        count += is_longer;
        longer += context & mask;
        unselected += beyond(context, (uint64_t)selected) & mask;
    }
    return ratio * (all - (int64_t)longer) + (int64_t)(longer - unselected) + window * (int64_t)count;
}

/* The law is settled before the loop over the requests, so that each has a loop of its own. */
static int64_t sum_entries(const pk_batch *batch, const pk_kernel *kernel, pk_read_law law, int64_t context) {
    law.window = pk__min(law.window, PK_MAX_REQUEST_TOKENS);
    switch (law.sharded ? PK_READ_SELECTED + law.law : law.law) {
    case PK_READ_WINDOW:
        return sum_window(batch, law.window);
    case PK_READ_SELECTED:
        if (law.compress_ratio == 1 && law.window == 0 && law.top_k > 0) return sum_window(batch, law.top_k);
        return sum_selected(batch, &law, context);
    case PK_READ_SELECTED + PK_READ_ALL:
        law.law = PK_READ_ALL, law.sharded = 1;
        return sum_entries_under(batch, kernel, law);
    case PK_READ_SELECTED + PK_READ_WINDOW:
        law.law = PK_READ_WINDOW, law.sharded = 1;
        return sum_entries_under(batch, kernel, law);
    default:
        law.law = PK_READ_SELECTED, law.sharded = 1;
        return sum_entries_under(batch, kernel, law);
    }
}

/* ---- prefills and idle requests ------------------------------------------------------------------------------ */

/* What the busiest of the prefill-context ranks does of a prefill. */
static void share_prefill(const pk_kernel *kernel, int64_t scheduled, int64_t computed, pk__sums *sums) {
    pk_prefill_share share = pk_share_prefill(scheduled, computed, kernel->prefill_ranks, kernel->decode_ranks > 1);
    sums->local_tokens -= scheduled - share.tokens;
    sums->prefill_tokens += share.tokens;
    sums->pairs4[0] += share.pairs4;
    for (uint32_t slot = 1; slot < kernel->window_count; slot++)
        for (int run = 0; run < 2; run++)
            sums->pairs4[slot] +=
                pk__prefill_pairs4(share.run_tokens[run], share.run_computed[run], kernel->windows[slot]);
}

/* Takes a prefill out of the decodes' sums and adds it to its own. */
static void add_prefill(const pk_kernel *kernel, int64_t scheduled, int64_t computed, pk__sums *sums) {
    sums->prefills += 1;
    sums->decode_rows -= scheduled;
    for (uint32_t slot = 0; slot < kernel->read_count; slot++)
        sums->reads[slot] -= entries_of(kernel, &kernel->reads[slot], scheduled + computed);
    if (kernel->prefill_ranks > 1) {
        share_prefill(kernel, scheduled, computed, sums);
        return;
    }
    sums->prefill_tokens += scheduled;
    for (uint32_t slot = 0; slot < kernel->window_count; slot++)
        sums->pairs4[slot] += pk__prefill_pairs4(scheduled, computed, kernel->windows[slot]);
}

enum { BLOCK = 16 };

/* Whether each of a block of requests decodes at least a token. */
static inline bool all_decode(const int64_t *scheduled, int64_t threshold) {
    uint64_t any = 0, every = ~(uint64_t)0;
    for (int i = 0; i < BLOCK; i++) {
        any |= (uint64_t)scheduled[i];
        every &= (uint64_t)scheduled[i];
    }
    return any <= (uint64_t)threshold && every != 0;
}

/* Corrects sums in which every request counts as a decode. Prefills are few, so blocks of decodes are skipped. */
static void set_apart(const pk_batch *batch, const pk_kernel *kernel, pk__sums *sums) {
    for (uint32_t slot = 1; slot < kernel->window_count; slot++) sums->pairs4[slot] = 0;
    for (int64_t i = 0; i < batch->count;) {
        int64_t end = pk__min(i + BLOCK, batch->count);
        if (end - i == BLOCK && all_decode(batch->scheduled + i, batch->decode_threshold)) i = end;
        for (; i < end; i++) {
            int64_t scheduled = batch->scheduled[i], computed = batch->computed[i];
            if (scheduled > batch->decode_threshold) add_prefill(kernel, scheduled, computed, sums);
            sums->attending -= (scheduled | computed) == 0;
        }
    }
}

/* ---- all of it ----------------------------------------------------------------------------------------------- */

void pk__derive_sums(pk__sums *sums) {
    sums->decodes = sums->attending - sums->prefills;
    sums->sampled_rows = sums->decode_rows + sums->prefills;
}

pk_status pk__scan_batch(const pk_batch *batch, const pk_kernel *kernel, pk__sums *sums, pk_error *error) {
    pk_status status = check_header(batch, error);
    if (status != PK_OK) return status;
    findings found = look_over(batch);
    if ((found.any_scheduled | found.any_computed) >> 29 != 0 ||
        found.scheduled + (uint64_t)batch->pad_tokens > PK_MAX_BATCH_TOKENS) {
        status = check_requests(batch, error);
        if (status != PK_OK) return status;
    }
    const uint64_t width = (uint64_t)kernel->host.uniform_width;
    sums->scheduled = sums->local_tokens = sums->decode_rows = (int64_t)found.scheduled;
    sums->context = sums->reads[0] = (int64_t)found.context;
    sums->pad_tokens = batch->pad_tokens;
    sums->attending = batch->count;
    sums->any_computed = found.any_computed != 0;
    sums->uniform_decode = ((found.any_scheduled ^ width) | (found.every_scheduled ^ width)) == 0 || batch->count == 0;
    sums->prefills = sums->prefill_tokens = sums->pairs4[0] = 0;
    for (uint32_t slot = 1; slot < kernel->read_count; slot++)
        sums->reads[slot] = sum_entries(batch, kernel, kernel->reads[slot], sums->context);
    if (found.any_scheduled > (uint64_t)batch->decode_threshold || found.every_scheduled == 0)
        set_apart(batch, kernel, sums);
    pk__derive_sums(sums);
    return PK_OK;
}

/* ---- the speculator ------------------------------------------------------------------------------------------ */

/* Entries after `more` further tokens, of the requests that have anything to attend. */
static int64_t sum_entries_later(const pk_batch *batch, const pk_kernel *kernel, const pk_read_law *law, int64_t more) {
    int64_t entries = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t context = batch->scheduled[i] + batch->computed[i];
        if (context > 0) entries += entries_of(kernel, law, context + more);
    }
    return entries;
}

void pk__scan_draft(const pk_batch *batch, const pk_kernel *kernel, int32_t pass, const pk__sums *first,
                    pk__sums *sums) {
    int64_t attending = first->attending, more = pass - 1;
    *sums = (pk__sums){.any_computed = true, .attending = attending, .scheduled = attending};
    sums->context = first->context + attending * more;
    sums->local_tokens = sums->decodes = sums->decode_rows = sums->sampled_rows = attending;
    sums->reads[0] = sums->context;
    for (uint32_t slot = 1; slot < kernel->read_count; slot++)
        sums->reads[slot] = sum_entries_later(batch, kernel, &kernel->reads[slot], more);
}
