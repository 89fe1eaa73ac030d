/*
 * The laws as a step evaluates them, inline so that pricing is one function without calls. Each is a pure function of
 * its folded coefficients and of sums of the batch; those that pykernel.h offers one by one are wrapped in the source
 * of their family. A new law is added here, beside the others, when a step needs it at every layer.
 */
#ifndef PK_LAWS_H
#define PK_LAWS_H

#include "internal.h"

PK__INLINE int64_t pk__nanoseconds(double seconds) { return pk__whole(seconds * 1e9); }

/* ---- dense arithmetic ---------------------------------------------------------------------------------------- */

PK__INLINE double pk__gemm_efficiency(const pk_gemm_law *law, double tokens) {
    if (!(tokens > 0)) return 0;
    return law->eps_max * tokens / (tokens + law->m_half);
}

PK__INLINE double pk__sm_derate(const pk_kernel *kernel, int64_t sm_budget) {
    if (sm_budget <= 0 || sm_budget >= kernel->sm_count) return 1;
    return (double)kernel->sm_count / (double)sm_budget;
}

/* Seconds of one FLOP; 0 where no tokens are, so that no work takes no time. */
PK__INLINE double pk__seconds_per_flop(double flop_rate, double derate) {
    return flop_rate > 0 ? derate / flop_rate : 0;
}

PK__INLINE double pk__dense_flops(const pk__layer *layer, const pk__step *step) {
    double flops = step->tokens * layer->flops_per_token;
    if (layer->attention_count == 0 || step->sums->prefills == 0) return flops;
    const pk__attention *attention = pk__attentions(step->kernel) + layer->attention_first;
    return flops + (double)step->sums->pairs4[attention->window_slot] * attention->dense_flops_per_pair4;
}

PK__INLINE void pk__step_of(const pk_kernel *kernel, const pk_batch *batch, const pk__sums *sums, pk__step *step) {
    step->kernel = kernel;
    step->batch = batch;
    step->sums = sums;
    step->rows = sums->local_tokens + sums->pad_tokens;
    step->tokens = (double)step->rows;
    step->local_tokens = (double)sums->local_tokens;
    step->derate = pk__sm_derate(kernel, batch->sm_budget);
    double rate = kernel->peak_flops * pk__gemm_efficiency(&kernel->gemm, step->tokens);
    step->seconds_per_flop = step->attention_seconds_per_flop = pk__seconds_per_flop(rate, step->derate);
    if (sums->pad_tokens == 0) return;
    rate = kernel->peak_flops * pk__gemm_efficiency(&kernel->gemm, step->local_tokens);
    step->attention_seconds_per_flop = pk__seconds_per_flop(rate, step->derate);
}

/* ---- attention ----------------------------------------------------------------------------------------------- */

PK__INLINE int64_t pk__prefill_pairs4(int64_t scheduled, int64_t computed, int64_t window) {
    if (window <= 0) return 4 * scheduled * computed + 2 * scheduled * scheduled;
    /* The first `inside` queries see everything before them and half of themselves; the others see a full window. */
    int64_t room = window - computed;
    int64_t inside = room <= 0 ? 0 : pk__min(room, scheduled);
    return 4 * inside * (computed + 1) + 2 * inside * (inside - 1) - 2 * inside + 4 * (scheduled - inside) * window;
}

PK__INLINE int64_t pk__read_entries(const pk_read_law *law, int64_t context) {
    if (law->law == PK_READ_ALL) return context;
    if (law->law == PK_READ_WINDOW) return pk__min(context, law->window);
    int64_t ratio = law->compress_ratio;
    int64_t selected = law->top_k > 0 ? pk__min((int64_t)law->top_k * ratio, context) : context;
    return pk__min(context * ratio, selected + pk__min(context, law->window) * ratio);
}

PK__INLINE int64_t pk__decode_shard(int64_t tokens, int32_t ranks, int32_t interleave) {
    if (ranks <= 1 || tokens <= 0) return tokens > 0 ? tokens : 0;
    int64_t turns = tokens / ((int64_t)interleave * ranks) * interleave;
    return turns + pk__min(tokens - turns * ranks, interleave);
}

PK__INLINE void pk__add_attention(const pk__attention *attention, const pk__step *step, pk__charge *charge) {
    const pk__sums *sums = step->sums;
    bool decodes = sums->decodes > 0;
    if (decodes)
        charge->seconds[PK_HBM] += attention->decode_floor_s +
                                   (double)sums->reads[attention->read_slot] * attention->decode_seconds_per_entry;
    if (sums->prefills == 0) return;
    double flops = (double)sums->pairs4[attention->window_slot] * attention->scaled_flops_per_pair4;
    charge->seconds[PK_SM] += attention->prefill_floor_s + flops * step->attention_seconds_per_flop;
    if (!decodes) return;
    charge->seconds[PK_SM] -= attention->mixed_spares_sm_s;
    charge->seconds[PK_HBM] -= attention->mixed_spares_hbm_s;
}

PK__INLINE double pk__scorer_seconds(const pk__scorer *scorer, const pk__step *step) {
    const pk_kernel *kernel = step->kernel;
    const pk__sums *sums = step->sums;
    if (sums->decodes == 0) return 0;
    int64_t scanned = sums->reads[0];
    /* Unlike what the attention reads, the bounds of a scan hold for the batch as a whole. */
    if (scorer->window > 0) scanned = pk__min(scanned, pk__multiply(scorer->window, sums->decodes));
    double entries = (double)scanned / scorer->compress_ratio;
    if (scorer->sharded && kernel->decode_ranks > 1)
        entries = (double)pk__decode_shard((int64_t)(entries + 0.5), kernel->decode_ranks, kernel->interleave);
    return scorer->floor_s + entries * scorer->seconds_per_entry;
}

/* ---- recurrent mixers ---------------------------------------------------------------------------------------- */

PK__INLINE double pk__recurrent_seconds(const pk__layer *layer, double tokens) {
    return layer->recurrent_floor_s + tokens * layer->recurrent_seconds_per_token;
}

/* ---- routed experts ------------------------------------------------------------------------------------------ */

/* base^exponent by squaring: the same bits everywhere, which libm's pow does not promise. */
PK__INLINE double pk__power(double base, int64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result *= base;
        base *= base;
    }
    return result;
}

/* The fraction of the experts that one token leaves alone. */
PK__INLINE double pk__experts_missed(int32_t experts, int32_t top_k) {
    return top_k >= experts ? 0 : (double)(experts - top_k) / (double)experts;
}

PK__INLINE double pk__experts_touched(const pk__experts *experts, const pk__step *step) {
    return experts->local * (1 - pk__power(experts->missed, step->rows * experts->funnel)); /* rows <= 2^30 */
}

PK__INLINE double pk__experts_work_seconds(const pk__experts *experts, const pk__step *step) {
    return step->tokens * experts->flops_per_token * step->seconds_per_flop;
}

/* ---- collectives --------------------------------------------------------------------------------------------- */

/* One launch over `units`: max(floor + units * ramp, units * peak). */
PK__INLINE double pk__launch_seconds(const pk__collective *collective, double units) {
    double ramp = collective->floor_s + units * collective->ramp_seconds_per_unit;
    double peak = units * collective->peak_seconds_per_unit;
    return ramp > peak ? ramp : peak;
}

/* What a collective counts in this step; 0 = it is not launched. PK_UNITS_CONTEXT_CHUNKS are counted run by run. */
PK__INLINE double pk__units(const pk__collective *collective, const pk__step *step) {
    const pk__sums *sums = step->sums;
    switch (collective->units) {
    case PK_UNITS_DECODE_ROWS:
        return (double)sums->decode_rows;
    case PK_UNITS_CONTEXT_ROWS:
        return sums->any_computed ? (double)sums->scheduled : 0;
    case PK_UNITS_PREFILL_ROWS:
        return (double)(sums->prefill_tokens * step->kernel->prefill_ranks);
    default:
        return step->tokens;
    }
}

/* `gathers` is whether context can be gathered in this step. A constant where it is called: gathering calls a function,
 * and even one that is never called costs the registers of the loop around it. */
PK__INLINE double pk__collective_seconds(const pk__collective *collective, const pk__step *step, bool gathers) {
    double units = step->tokens;
    if (collective->units != PK_UNITS_TOKENS) {
        if (collective->units == PK_UNITS_CONTEXT_CHUNKS)
            return gathers ? pk__context_traffic(collective, step).seconds : 0;
        units = pk__units(collective, step);
        if (!(units > 0)) return 0;
    }
    return pk__launch_seconds(collective, units);
}

/* Written out, so that the four sums stay in registers. */
PK__INLINE void pk__add_collective(const pk__collective *collective, double seconds, pk__charge *charge) {
    if (collective->resource == PK_NVLINK)
        charge->seconds[PK_NVLINK] += seconds;
    else if (collective->resource == PK_NIC)
        charge->seconds[PK_NIC] += seconds;
    else
        charge->seconds[PK_SM] += seconds;
}

/* Of the collectives of a layer from `index` to before `end`, how many are equal to the first and follow it. */
PK__INLINE uint32_t pk__equal_launches(const pk__collective *first, uint32_t index, uint32_t end) {
    return first->equals < end - index ? first->equals : end - index;
}

#endif /* PK_LAWS_H */
