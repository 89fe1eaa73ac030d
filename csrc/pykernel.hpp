/*
 * pykernel for C++17: the functions of pykernel.h with ownership, values and exceptions.
 *
 *     pykernel::Kernel kernel = pykernel::Kernel::load_file("kernel.pkk");
 *     pykernel::Batch batch;
 *     batch.add(1, 4095).add(1, 812).add(512, 0);
 *     clock_ns += kernel.step_time(batch).no_overlap_ns;
 *
 * Nothing here computes: each member calls the C function of the same name, where units and ranges are documented. What
 * in C returns a status throws pykernel::Error here; nothing else throws but std::bad_alloc. A Kernel may be shared
 * between threads as in C, and is moved, never copied; give it away with std::move, or share a std::shared_ptr to it.
 * What owns nothing and has no face here (the array forms, single laws) is called as in C, with get().
 */
#ifndef PYKERNEL_HPP
#define PYKERNEL_HPP

#include "pykernel.h"

#include <cstddef>     /* std::size_t */
#include <cstdint>     /* std::int64_t */
#include <memory>      /* std::unique_ptr */
#include <optional>    /* std::optional */
#include <stdexcept>   /* std::runtime_error */
#include <string>      /* std::string */
#include <string_view> /* std::string_view */
#include <utility>     /* std::pair */
#include <vector>      /* std::vector */

namespace pykernel {

/* What a C function refused: its status, the field at fault, and the sentence as what(). */
class Error : public std::runtime_error {
  public:
    explicit Error(const pk_error &error)
        : std::runtime_error(error.message[0] != '\0' ? error.message : pk_status_text(error.status)),
          status_(static_cast<pk_status>(error.status)), field_(error.field) {}
    pk_status status() const noexcept { return status_; }
    const std::string &field() const noexcept { return field_; }

  private:
    pk_status status_;
    std::string field_;
};

namespace detail {
/* Collects the error of one call, and throws it. */
struct Call {
    pk_error error = PK_ERROR_INIT;
    void check(pk_status status) {
        if (status == PK_OK) return;
        error.status = static_cast<std::int32_t>(status);
        throw Error(error);
    }
};
} // namespace detail

/* The requests of one step, in arrays that keep their memory from step to step: clear() and add() allocate nothing
 * once the largest batch has been seen. */
class Batch {
  public:
    explicit Batch(std::int64_t threshold = 1) : decode_threshold(threshold) {}

    std::int64_t decode_threshold;
    std::int64_t sm_budget = 0;
    std::int64_t pad_tokens = 0;

    /* One request: `scheduled` tokens after `computed` ones. */
    Batch &add(std::int64_t scheduled, std::int64_t computed, std::int64_t prompt_len = 0,
               std::int64_t cached_tokens = 0) {
        scheduled_.push_back(scheduled);
        computed_.push_back(computed);
        prompt_len_.push_back(prompt_len);
        cached_tokens_.push_back(cached_tokens);
        return *this;
    }
    void clear() noexcept {
        scheduled_.clear();
        computed_.clear();
        prompt_len_.clear();
        cached_tokens_.clear();
    }
    std::size_t size() const noexcept { return scheduled_.size(); }
    bool empty() const noexcept { return scheduled_.empty(); }

    /* The struct of the C functions; valid until the batch changes. */
    pk_batch c() const noexcept {
        pk_batch batch = PK_BATCH_INIT;
        batch.count = static_cast<std::int64_t>(scheduled_.size());
        batch.scheduled = scheduled_.data();
        batch.computed = computed_.data();
        batch.prompt_len = prompt_len_.data();
        batch.cached_tokens = cached_tokens_.data();
        batch.decode_threshold = decode_threshold;
        batch.sm_budget = sm_budget;
        batch.pad_tokens = pad_tokens;
        return batch;
    }

  private:
    std::vector<std::int64_t> scheduled_, computed_, prompt_len_, cached_tokens_;
};

/* The requests that an engine runs step after step, told what changes: the next step of thousands is priced in the time
 * of one where the laws allow. Unlike a Kernel, for one thread at a time. */
class BatchState {
  public:
    explicit BatchState(std::int64_t decode_threshold = 1) {
        pk_batch_state *made = nullptr;
        detail::Call call;
        call.check(pk_batch_state_new(decode_threshold, &made, &call.error));
        state_.reset(made);
    }

    /* Adds a request; its id. */
    std::int64_t add(std::int64_t scheduled, std::int64_t computed) {
        std::int64_t id = 0;
        detail::Call call;
        call.check(pk_batch_state_add(get(), scheduled, computed, &id, &call.error));
        return id;
    }
    void set(std::int64_t id, std::int64_t scheduled, std::int64_t computed) {
        detail::Call call;
        call.check(pk_batch_state_set(get(), id, scheduled, computed, &call.error));
    }
    void remove(std::int64_t id) {
        detail::Call call;
        call.check(pk_batch_state_remove(get(), id, &call.error));
    }
    void advance(std::int64_t steps = 1) {
        detail::Call call;
        call.check(pk_batch_state_advance(get(), steps, &call.error));
    }
    void settings(std::int64_t sm_budget, std::int64_t pad_tokens) {
        detail::Call call;
        call.check(pk_batch_state_settings(get(), sm_budget, pad_tokens, &call.error));
    }
    /* What a request schedules, and what it has computed by now. */
    std::pair<std::int64_t, std::int64_t> request(std::int64_t id) const {
        std::pair<std::int64_t, std::int64_t> found;
        detail::Call call;
        call.check(pk_batch_state_get(get(), id, &found.first, &found.second, &call.error));
        return found;
    }
    /* The requests as a batch of the C functions; valid until the state is used again. */
    pk_batch view() {
        pk_batch batch = PK_BATCH_INIT;
        detail::Call call;
        call.check(pk_batch_state_view(get(), &batch, &call.error));
        return batch;
    }

    pk_batch_state *get() const noexcept { return state_.get(); }

  private:
    struct Free {
        void operator()(pk_batch_state *state) const noexcept { pk_batch_state_free(state); }
    };
    std::unique_ptr<pk_batch_state, Free> state_;
};

class Kernel {
  public:
    explicit Kernel(const pk_spec &spec) {
        pk_kernel *made = nullptr;
        detail::Call call;
        call.check(pk_kernel_new(&spec, &made, &call.error));
        kernel_.reset(made);
    }
    /* Takes over a kernel that C code made. */
    explicit Kernel(pk_kernel *owned) noexcept : kernel_(owned) {}

    static Kernel load(const void *image, std::size_t size) {
        pk_kernel *made = nullptr;
        detail::Call call;
        call.check(pk_kernel_load(image, size, &made, &call.error));
        return Kernel(made);
    }
    static Kernel load_file(const std::string &path) {
        pk_kernel *made = nullptr;
        detail::Call call;
        call.check(pk_kernel_load_file(path.c_str(), &made, &call.error));
        return Kernel(made);
    }
    std::vector<unsigned char> save() const {
        std::vector<unsigned char> image(pk_image_size(get()));
        detail::Call call;
        call.check(pk_kernel_save(get(), image.data(), image.size(), nullptr, &call.error));
        return image;
    }
    void save_file(const std::string &path) const {
        detail::Call call;
        call.check(pk_kernel_save_file(get(), path.c_str(), &call.error));
    }

    const pk_kernel *get() const noexcept { return kernel_.get(); }
    pk_kernel *release() noexcept { return kernel_.release(); }

    /* ---- step */
    pk_estimate step_time(const pk_batch &batch) const {
        pk_estimate estimate = PK_ESTIMATE_INIT;
        detail::Call call;
        call.check(pk_step_time(get(), &batch, &estimate, &call.error));
        return estimate;
    }
    pk_estimate step_time(const Batch &batch) const { return step_time(batch.c()); }
    pk_estimate step_time(BatchState &state) const {
        pk_estimate estimate = PK_ESTIMATE_INIT;
        detail::Call call;
        call.check(pk_batch_state_step_time(get(), state.get(), &estimate, &call.error));
        return estimate;
    }
    std::vector<pk_term> step_explain(const pk_batch &batch) const {
        std::size_t count = 0;
        detail::Call call;
        call.check(pk_step_explain(get(), &batch, nullptr, 0, &count, &call.error));
        std::vector<pk_term> terms(count);
        call.check(pk_step_explain(get(), &batch, terms.data(), count, &count, &call.error));
        return terms;
    }
    std::vector<pk_term> step_explain(const Batch &batch) const { return step_explain(batch.c()); }

    /* ---- memory and sequences */
    pk_memory_breakdown fixed_bytes() const {
        pk_memory_breakdown breakdown = PK_MEMORY_BREAKDOWN_INIT;
        detail::Call call;
        call.check(pk_fixed_bytes(get(), &breakdown, &call.error));
        return breakdown;
    }
    std::int64_t pre_snapshot_bytes() const noexcept { return pk_pre_snapshot_bytes(get()); }
    std::int64_t sequence_variable_bytes(std::int64_t tokens) const noexcept {
        return pk_sequence_variable_bytes(get(), tokens);
    }
    std::int64_t sequence_bounded_bytes(std::int64_t in_flight) const noexcept {
        return pk_sequence_bounded_bytes(get(), in_flight);
    }
    std::int64_t sequence_bounded_bytes_at(std::int64_t computed, std::int64_t in_flight) const noexcept {
        return pk_sequence_bounded_bytes_at(get(), computed, in_flight);
    }
    std::int64_t sequence_fixed_bytes() const noexcept { return pk_sequence_fixed_bytes(get()); }
    std::int64_t sequence_admission_bytes() const noexcept { return pk_sequence_admission_bytes(get()); }
    std::int64_t max_tokens_for(std::int64_t bytes) const noexcept { return pk_max_tokens_for(get(), bytes); }
    pk_capacity kv_capacity(std::int64_t device_bytes = 0, double utilization = 0, std::int64_t block = 0) const {
        pk_capacity capacity = PK_CAPACITY_INIT;
        detail::Call call;
        call.check(pk_kv_capacity(get(), device_bytes, utilization, block, &capacity, &call.error));
        return capacity;
    }

    /* ---- transfers and host work */
    std::int64_t tier_time_ns(const char *tier, std::int32_t direction, std::int64_t bytes,
                              std::int64_t queue_depth = 1) const noexcept {
        return pk_tier_time_ns(get(), pk_find_tier(get(), tier), direction, bytes, queue_depth);
    }
    pk_transfer_demand pd_transfer_demand(std::int64_t tokens, const pk_placement &source,
                                          const pk_placement &target) const {
        pk_transfer_demand demand = PK_TRANSFER_DEMAND_INIT;
        detail::Call call;
        call.check(pk_pd_transfer_demand(get(), tokens, &source, &target, &demand, &call.error));
        return demand;
    }
    std::int64_t pd_transfer_time_ns(std::int64_t tokens, const pk_placement &source,
                                     const pk_placement &target) const noexcept {
        return pk_pd_transfer_time_ns(get(), tokens, &source, &target);
    }
    std::int64_t admission_overhead_ns(std::int64_t prompt_tokens) const noexcept {
        return pk_admission_overhead_ns(get(), prompt_tokens);
    }
    std::int64_t output_token_overhead_ns() const noexcept { return pk_output_token_overhead_ns(get()); }
    std::int64_t completion_overhead_ns() const noexcept { return pk_completion_overhead_ns(get()); }

    /* ---- what it stands for; text lives as long as the kernel */
    pk_resolution resolved() const noexcept { return pk_resolved(get()); }
    std::vector<pk_override> overrides() const {
        std::vector<pk_override> all(pk_override_count(get()));
        for (std::size_t i = 0; i < all.size(); i++) all[i] = pk_override_at(get(), i);
        return all;
    }
    std::vector<pk_origin> provenance() const {
        std::vector<pk_origin> all(pk_origin_count(get()));
        for (std::size_t i = 0; i < all.size(); i++) all[i] = pk_origin_at(get(), i);
        return all;
    }
    pk_evidence evidence() const noexcept { return pk_evidence_of(get()); }
    std::optional<std::string_view> text(const char *key) const noexcept {
        const char *found = pk_text(get(), key);
        return found == nullptr ? std::nullopt : std::optional<std::string_view>(found);
    }
    std::int64_t setting(const char *name, std::int64_t otherwise) const noexcept {
        return pk_setting(get(), name, otherwise);
    }
    std::int64_t capture_tokens() const noexcept { return pk_capture_tokens(get()); }
    pk_graph_mode uniform_graph_mode() const noexcept {
        return static_cast<pk_graph_mode>(pk_uniform_graph_mode(get()));
    }
    pk_graph_mode other_graph_mode() const noexcept { return static_cast<pk_graph_mode>(pk_other_graph_mode(get())); }
    std::int64_t decode_threshold() const noexcept { return pk_decode_threshold(get()); }
    std::int32_t decode_context_ranks() const noexcept { return pk_decode_context_ranks(get()); }
    std::int32_t prefill_context_ranks() const noexcept { return pk_prefill_context_ranks(get()); }

  private:
    struct Free {
        void operator()(pk_kernel *kernel) const noexcept { pk_kernel_free(kernel); }
    };
    std::unique_ptr<pk_kernel, Free> kernel_;
};

/* A cost model of any make (experimental): that of a kernel, or one that `open` makes, as pk_model_open of a shared
 * library does. What it is based on must outlive it. Beside step_time, ask it with pk_model_* and get(). */
class Model {
  public:
    explicit Model(const Kernel &kernel) {
        detail::Call call;
        call.check(pk_model_of_kernel(kernel.get(), &model_, &call.error));
    }
    explicit Model(pk_model_open_function open, const pk_model *base = nullptr) {
        detail::Call call;
        call.check(open(base, &model_, &call.error));
        pk_status status = pk_model_check(&model_, &call.error);
        if (status != PK_OK) pk_model_close(&model_);
        call.check(status);
    }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;
    ~Model() { pk_model_close(&model_); }

    const pk_model *get() const noexcept { return &model_; }
    pk_estimate step_time(const pk_batch &batch) const {
        pk_estimate estimate = PK_ESTIMATE_INIT;
        detail::Call call;
        call.check(pk_model_step_time(&model_, &batch, &estimate, &call.error));
        return estimate;
    }
    pk_estimate step_time(const Batch &batch) const { return step_time(batch.c()); }

  private:
    pk_model model_ = PK_MODEL_INIT;
};

} // namespace pykernel

#endif /* PYKERNEL_HPP */
