/* Attention: decodes stream the KV cache (HBM), prefills multiply (SM). */
#include "internal.h"

int64_t pk_prefill_pairs4(int64_t scheduled, int64_t computed, int64_t window) {
    if (window <= 0) return 4 * scheduled * computed + 2 * scheduled * scheduled;
    /* The first `inside` queries see everything before them and half of themselves; the others see a full window. */
    int64_t room = window - computed;
    int64_t inside = room <= 0 ? 0 : pk__min(room, scheduled);
    return 4 * inside * (computed + 1) + 2 * inside * (inside - 1) - 2 * inside + 4 * (scheduled - inside) * window;
}

int64_t pk_read_entries(const pk_read_law *law, int64_t context) {
    if (law->law == PK_READ_ALL) return context;
    if (law->law == PK_READ_WINDOW) return pk__min(context, law->window);
    int64_t ratio = law->compress_ratio;
    int64_t selected = law->top_k > 0 ? pk__min((int64_t)law->top_k * ratio, context) : context;
    return pk__min(context * ratio, selected + pk__min(context, law->window) * ratio);
}

double pk__prefill_flops(const pk__attention *attention, const pk__step *step) {
    return (double)step->sums->pairs4[attention->window_slot] * attention->flops_per_pair4;
}

/* A kernel that takes prefills and decodes in one launch pays the larger of the two floors, not both. */
static void merge_floors(const pk__attention *attention, pk__charge *charge) {
    if (attention->decode_floor_s < attention->prefill_floor_s)
        charge->hbm -= attention->decode_floor_s;
    else
        charge->sm -= attention->prefill_floor_s;
}

pk__charge pk__attention_charge(const pk__attention *attention, const pk__step *step) {
    const pk__sums *sums = step->sums;
    bool decodes = sums->decodes > 0;
    bool prefills = sums->prefills > 0;
    bool has_rate = attention->decode.law == PK_DECODE_FLOOR_RATE;
    bool has_scale = attention->prefill.law == PK_PREFILL_FLOOR_RAMP;
    pk__charge charge = {0};
    if (decodes)
        charge.hbm = attention->decode_floor_s +
                     (double)sums->reads[attention->read_slot] * attention->decode_seconds_per_entry;
    if (prefills && has_scale) {
        double rate = step->attention_flop_rate * attention->prefill.work_scale;
        charge.sm = attention->prefill_floor_s + pk__flop_seconds(pk__prefill_flops(attention, step), rate) * step->derate;
    }
    if (decodes && prefills && attention->one_mixed_launch && has_rate && has_scale) merge_floors(attention, &charge);
    return charge;
}

double pk__scorer_seconds(const pk__scorer *scorer, const pk__step *step) {
    const pk_kernel *kernel = step->kernel;
    const pk__sums *sums = step->sums;
    if (sums->decodes == 0) return 0;
    int64_t scanned = sums->reads[0];
    /* Unlike what the attention reads, the bounds of a scan hold for the batch as a whole. */
    if (scorer->window > 0) scanned = pk__min(scanned, pk__multiply(scorer->window, sums->decodes));
    double entries = (double)scanned / scorer->compress_ratio;
    if (scorer->sharded && kernel->decode_ranks > 1)
        entries = (double)pk_decode_shard((int64_t)(entries + 0.5), kernel->decode_ranks, kernel->interleave);
    return scorer->floor_s + entries * scorer->seconds_per_entry;
}
