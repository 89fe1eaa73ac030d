/*
 * Cost models as tables of functions: the table of a kernel, and the walk from a table to the base that answers what it
 * leaves out. One list names every function; tables, wrappers and checks are made of it.
 */
#include "internal.h"

/* X(result, name, (parameters behind the context), (the same as arguments)) */
#define FUNCTIONS(X)                                                                                                  \
    X(pk_status, step_time, (, const pk_batch *batch, pk_estimate *estimate, pk_error *error),                        \
      (, batch, estimate, error))                                                                                     \
    X(pk_status, fixed_bytes, (, pk_memory_breakdown *breakdown, pk_error *error), (, breakdown, error))              \
    X(int64_t, pre_snapshot_bytes, (), ())                                                                            \
    X(int64_t, sequence_variable_bytes, (, int64_t tokens), (, tokens))                                               \
    X(int64_t, sequence_bounded_bytes, (, int64_t in_flight), (, in_flight))                                          \
    X(int64_t, sequence_bounded_bytes_at, (, int64_t computed, int64_t in_flight), (, computed, in_flight))           \
    X(int64_t, sequence_fixed_bytes, (), ())                                                                          \
    X(int64_t, sequence_admission_bytes, (), ())                                                                      \
    X(int64_t, max_tokens_for, (, int64_t bytes), (, bytes))                                                          \
    X(pk_status, kv_capacity, (, int64_t device_bytes, double utilization, int64_t block,                             \
      pk_capacity *capacity, pk_error *error),                                                                        \
      (, device_bytes, utilization, block, capacity, error))                                                          \
    X(int64_t, tier_time_ns, (, const char *tier, int32_t direction, int64_t bytes, int64_t queue_depth),             \
      (, tier, direction, bytes, queue_depth))                                                                        \
    X(pk_status, pd_transfer_demand, (, int64_t tokens, const pk_placement *source,                                   \
      const pk_placement *target, pk_transfer_demand *demand, pk_error *error),                                       \
      (, tokens, source, target, demand, error))                                                                      \
    X(int64_t, admission_overhead_ns, (, int64_t prompt_tokens), (, prompt_tokens))                                   \
    X(int64_t, output_token_overhead_ns, (), ())                                                                      \
    X(int64_t, completion_overhead_ns, (), ())                                                                        \
    X(int64_t, capture_tokens, (), ())                                                                                \
    X(int32_t, uniform_graph_mode, (), ())                                                                            \
    X(int32_t, other_graph_mode, (), ())                                                                              \
    X(int64_t, decode_threshold, (), ())                                                                              \
    X(int32_t, decode_context_ranks, (), ())                                                                          \
    X(int32_t, prefill_context_ranks, (), ())                                                                         \
    X(pk_resolution, resolved, (), ())                                                                                \
    X(size_t, override_count, (), ())                                                                                 \
    X(pk_override, override_at, (, size_t index), (, index))                                                          \
    X(size_t, origin_count, (), ())                                                                                   \
    X(pk_origin, origin_at, (, size_t index), (, index))                                                              \
    X(const char *, text, (, const char *key), (, key))

#define SPREAD(...) __VA_ARGS__

/* ---- the table of a kernel ----------------------------------------------------------------------------------- */

/* The one function that takes a name where pk_kernel's takes an index. */
static int64_t tier_time_ns(const pk_kernel *kernel, const char *tier, int32_t direction, int64_t bytes,
                            int64_t queue_depth) {
    return pk_tier_time_ns(kernel, pk_find_tier(kernel, tier), direction, bytes, queue_depth);
}
#define pk_tier_time_ns tier_time_ns

#define OF_KERNEL(result, name, parameters, arguments)                                                                \
    static result of_##name(const void *context SPREAD parameters) { return pk_##name(context SPREAD arguments); }
FUNCTIONS(OF_KERNEL)

pk_status pk_model_of_kernel(const pk_kernel *kernel, pk_model *model, pk_error *error) {
    if (kernel == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "kernel", "kernel is NULL");
    if (model == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "model", "model is NULL");
    pk_status status = pk__check_struct(model->struct_size, model->flags, sizeof *model, "model", error);
    if (status != PK_OK) return status;
    *model = (pk_model){.struct_size = sizeof *model, .context = kernel};
#define SET(result, name, parameters, arguments) model->name = of_##name;
    FUNCTIONS(SET)
    return PK_OK;
}

/* ---- any table ----------------------------------------------------------------------------------------------- */

enum { DEEPEST = 16 }; /* bases below a model; a chain that is longer is taken for a circle */

static pk_status lacks(const char *name, pk_error *error) {
    return pk__fail(error, PK_MODEL, name, "the model does not answer %s, and has no base that does", name);
}

pk_status pk_model_check(const pk_model *model, pk_error *error) {
    if (model == NULL) return pk__fail(error, PK_NULL_ARGUMENT, "model", "model is NULL");
    const pk_model *last = model;
    for (int depth = 0; last != NULL; depth++, last = last->base) {
        pk_status status = pk__check_struct(last->struct_size, last->flags, sizeof *last, "model", error);
        if (status != PK_OK) return status;
        if (depth > DEEPEST) return pk__fail(error, PK_MODEL, "base", "more than %d models are based on another", DEEPEST);
    }
#define HAS(result, name, parameters, arguments)                                                                      \
    for (last = model; last != NULL && last->name == NULL;) last = last->base;                                        \
    if (last == NULL) return lacks(#name, error);
    FUNCTIONS(HAS)
    return PK_OK;
}

void pk_model_close(pk_model *model) {
    if (model == NULL) return;
    if (model->destroy != NULL) model->destroy(model->context);
    *model = (pk_model){.struct_size = model->struct_size};
}

#define ASK(result, name, parameters, arguments)                                                                      \
    result pk_model_##name(const pk_model *model SPREAD parameters) {                                                 \
        while (model->name == NULL) model = model->base;                                                              \
        return model->name(model->context SPREAD arguments);                                                          \
    }
FUNCTIONS(ASK)
