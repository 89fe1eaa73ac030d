/* Context parallelism: how ranks share the tokens of a prefill, and the cache of a decode. */
#include "laws.h"

/* Of a sequence cut into chunks of `size` tokens, chunk `index`, as far as the sequence reaches. */
static int64_t chunk_start(int64_t index, int64_t size, int64_t length) { return pk__min(index * size, length); }

static int64_t chunk_pairs4(int64_t start, int64_t tokens, int64_t computed) {
    if (tokens <= 0) return 0;
    /* Query number q of the sequence sees computed + q + 1/2 keys; this is the sum over the chunk, times four. */
    return 4 * tokens * (computed + 1) + 2 * (2 * start + tokens - 1) * tokens - 2 * tokens;
}

static pk_prefill_share whole(int64_t scheduled, int64_t computed) {
    return (pk_prefill_share){scheduled, pk__prefill_pairs4(scheduled, computed, 0), {scheduled, 0}, {computed, 0}};
}

pk_prefill_share pk_share_prefill(int64_t scheduled, int64_t computed, int32_t ranks, int32_t replicate_short) {
    if (ranks <= 1 || scheduled <= 0) return whole(scheduled, computed);
    int64_t chunks = 2 * (int64_t)ranks;
    int64_t size = (scheduled + chunks - 1) / chunks;
    if (replicate_short && (chunks - 1) * size >= scheduled) return whole(scheduled, computed);
    pk_prefill_share share = {0};
    for (int64_t rank = 0; rank < ranks; rank++) {
        const int64_t mine[2] = {rank, chunks - 1 - rank};
        int64_t start[2], tokens[2], pairs4 = 0;
        for (int i = 0; i < 2; i++) {
            start[i] = chunk_start(mine[i], size, scheduled);
            tokens[i] = pk__min(start[i] + size, scheduled) - start[i];
            pairs4 += chunk_pairs4(start[i], tokens[i], computed);
        }
        if (pairs4 > share.pairs4) share.pairs4 = pairs4;
        if (tokens[0] + tokens[1] <= share.tokens) continue;
        share.tokens = tokens[0] + tokens[1];
        for (int i = 0; i < 2; i++) {
            share.run_tokens[i] = tokens[i];
            share.run_computed[i] = computed + start[i];
        }
    }
    /* A rank that takes every token attends as one sequence does. */
    return share.tokens == scheduled ? whole(scheduled, computed) : share;
}

int64_t pk_decode_shard(int64_t tokens, int32_t ranks, int32_t interleave) {
    return pk__decode_shard(tokens, ranks, interleave);
}

int64_t pk__next_context_run(const pk_batch *batch, int64_t *from) {
    /* Prefills are packed by ascending scheduled tokens, those without context first among equals; each of those
     * ends a run. So a run is what lies between two of their lengths, and needs no sorting to find. */
    for (;;) {
        int64_t until = INT64_MAX, tokens = 0;
        bool more = false;
        for (int64_t i = 0; i < batch->count; i++) {
            int64_t scheduled = batch->scheduled[i];
            if (scheduled <= batch->decode_threshold || scheduled < *from) continue;
            if (batch->computed[i] == 0 && scheduled > *from) until = pk__min(until, scheduled);
        }
        for (int64_t i = 0; i < batch->count; i++) {
            int64_t scheduled = batch->scheduled[i];
            if (scheduled <= batch->decode_threshold || scheduled < *from) continue;
            more = true;
            if (scheduled < until) tokens += batch->computed[i];
        }
        *from = until;
        if (tokens > 0 || !more) return tokens;
    }
}
