/*
 * One engine of serve_sim: the queue, which sequences run in the next step, and the KV cache that they hold. Time and
 * bytes are the kernel's answers; who is admitted, preempted or evicted is decided here.
 */
#ifndef SERVE_SIM_ENGINE_HPP
#define SERVE_SIM_ENGINE_HPP

#include <pykernel.hpp>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <utility>
#include <vector>

namespace serve {

using pykernel::Kernel;
using std::int64_t;
using std::size_t;

/* What the command line says. */
struct Options {
    int64_t cells = 1, threads = 1, prefills = 2, memory = 0;
    bool lower = false;
};

struct Request {
    int64_t arrival_ns, prompt, output, prefix, prefix_tokens;
};

/* When things happened to a request. */
struct Outcome {
    int64_t first_ns = -1, last_ns = -1, end_ns = -1, tokens = 0, cached = 0, preempted = 0;
};

/* Tokens that several requests begin with, held once. */
struct Prefix {
    int64_t tokens = 0, bytes = 0, users = 0, last_used = 0;
};

/* A request inside an engine. All of prompt + generated but the newest token must be computed before another follows. */
struct Sequence {
    size_t request = 0;
    const Request *asked = nullptr;
    int64_t generated = 0, computed = 0, cached = 0, bytes = 0;
    Prefix *prefix = nullptr;

    int64_t remaining() const { return asked->prompt + generated - computed; }
    int64_t shared() const { return prefix == nullptr ? 0 : prefix->tokens; }
};

[[noreturn]] inline void broken(const char *what) {
    std::cerr << "serve_sim: " << what << "\n";
    std::abort();
}

/* One engine: a queue, the running sequences, and the memory they hold. */
class Engine {
  public:
    Engine(const Kernel &kernel, const Options &options)
        : kernel_(kernel), batch_(kernel.decode_threshold()), lower_(options.lower) {
        capacity_ = kernel.kv_capacity(options.memory << 20);
        max_tokens_ = kernel.setting("max_num_batched_tokens", 8192);
        max_sequences_ = static_cast<size_t>(kernel.setting("max_num_seqs", 256));
    }

    int64_t capacity() const { return capacity_.bytes; }
    int64_t held() const { return held_; }
    int64_t peak() const { return peak_; }
    bool busy() const { return !step_.empty(); }
    size_t load() const { return waiting_.size() + running_.size(); }
    void enqueue(Sequence *sequence) { waiting_.push_back(sequence); }

    /* What a sequence of so many tokens takes, alone. */
    int64_t bytes_of(int64_t tokens) const {
        return kernel_.sequence_variable_bytes(tokens) + kernel_.sequence_admission_bytes();
    }

    /* Takes memory for `tokens` tokens of a sequence, from unused prefixes if need be; false without room. */
    bool hold(Sequence *sequence, int64_t tokens) {
        int64_t more = bytes_of(tokens) - kernel_.sequence_variable_bytes(sequence->shared()) - sequence->bytes;
        if (more > 0 && !make_room(more)) return false;
        if (more > 0) {
            sequence->bytes += more;
            held_ += more;
            peak_ = std::max(peak_, held_);
        }
        if (held_ > capacity_.bytes) broken("more of the KV cache is held than there is");
        return true;
    }

    void release(Sequence *sequence, int64_t now) {
        held_ -= sequence->bytes;
        sequence->bytes = 0;
        if (sequence->prefix != nullptr) {
            sequence->prefix->users--;
            sequence->prefix->last_used = now;
        }
        sequence->prefix = nullptr;
    }

    /* A sequence that another engine has prefilled and whose memory is held here. */
    void take_over(Sequence *sequence) { running_.push_back(sequence); }

    /* Decides the next step and returns its duration; 0 when there is nothing to run. */
    int64_t start(int64_t now, std::vector<Outcome> &outcomes) {
        int64_t budget = max_tokens_;
        bool preempted = false;
        batch_.clear();
        for (size_t i = 0; i < running_.size() && budget > 0; i++)
            if (!schedule_running(i, budget, now, outcomes, preempted)) break;
        while (!preempted && !waiting_.empty() && running_.size() < max_sequences_ && budget > 0)
            if (!admit(budget, outcomes)) break;
        if (step_.empty()) return 0;
        pk_estimate estimate = kernel_.step_time(batch_);
        return lower_ ? estimate.overlap_ns : estimate.no_overlap_ns;
    }

    /* Ends the step: calls `token` for every sequence that got one, which says whether it goes on running here. */
    template <typename Token> void finish(int64_t now, Token token) {
        std::vector<std::pair<Sequence *, int64_t>> done;
        done.swap(step_);
        for (auto [sequence, scheduled] : done) {
            sequence->computed += scheduled;
            keep_prefix(sequence, now);
            if (sequence->remaining() > 0) continue;
            sequence->generated++;
            if (!token(sequence)) running_.erase(std::find(running_.begin(), running_.end(), sequence));
        }
    }

    /* Gives up every prefix; nothing may be held then. */
    void drain() {
        for (auto &[id, prefix] : prefixes_) held_ -= prefix.bytes;
        prefixes_.clear();
        if (held_ != 0 || load() != 0) broken("memory or requests are left over");
    }

  private:
    void put(Sequence *sequence, int64_t scheduled, int64_t &budget) {
        batch_.add(scheduled, sequence->computed, sequence->asked->prompt, sequence->cached);
        step_.emplace_back(sequence, scheduled);
        budget -= scheduled;
    }

    /* The running sequence at `index`; the youngest ones make room where it is short. */
    bool schedule_running(size_t index, int64_t &budget, int64_t now, std::vector<Outcome> &outcomes, bool &preempted) {
        Sequence *sequence = running_[index];
        int64_t scheduled = std::min(sequence->remaining(), budget);
        while (!hold(sequence, sequence->computed + scheduled)) {
            Sequence *youngest = running_.back();
            running_.pop_back();
            release(youngest, now);
            youngest->computed = youngest->cached = 0;
            outcomes[youngest->request].preempted++;
            waiting_.push_front(youngest);
            preempted = true;
            if (youngest == sequence) return false;
        }
        put(sequence, scheduled, budget);
        return true;
    }

    /* The first waiting sequence, if there is room for what it runs now. */
    bool admit(int64_t &budget, std::vector<Outcome> &outcomes) {
        Sequence *sequence = waiting_.front();
        auto found = sequence->computed == 0 ? prefixes_.find(sequence->asked->prefix) : prefixes_.end();
        if (found != prefixes_.end() && found->second.tokens <= sequence->asked->prefix_tokens &&
            found->second.tokens < sequence->asked->prompt) {
            sequence->prefix = &found->second;
            sequence->prefix->users++; /* first, so that making room does not evict it */
            sequence->computed = sequence->cached = found->second.tokens;
        }
        int64_t scheduled = std::min(sequence->remaining(), budget);
        if (!hold(sequence, sequence->computed + scheduled)) {
            if (sequence->prefix != nullptr) sequence->prefix->users--;
            sequence->prefix = nullptr;
            sequence->computed = sequence->cached = 0;
            return false;
        }
        outcomes[sequence->request].cached = std::max(outcomes[sequence->request].cached, sequence->cached);
        waiting_.pop_front();
        running_.push_back(sequence);
        put(sequence, scheduled, budget);
        return true;
    }

    /* Once a prefix is computed, its whole blocks change hands: from the sequence to the cache. */
    void keep_prefix(Sequence *sequence, int64_t now) {
        const Request *asked = sequence->asked;
        if (asked->prefix == 0 || capacity_.blocks == 0 || sequence->prefix != nullptr) return;
        int64_t tokens = asked->prefix_tokens / capacity_.block_tokens * capacity_.block_tokens;
        if (tokens == 0 || sequence->computed < tokens || prefixes_.count(asked->prefix) != 0) return;
        Prefix &prefix = prefixes_[asked->prefix];
        prefix = {tokens, kernel_.sequence_variable_bytes(tokens), 1, now};
        sequence->bytes -= prefix.bytes;
        sequence->prefix = &prefix;
    }

    bool make_room(int64_t bytes) {
        while (held_ + bytes > capacity_.bytes) {
            auto oldest = prefixes_.end();
            for (auto one = prefixes_.begin(); one != prefixes_.end(); ++one)
                if (one->second.users == 0 &&
                    (oldest == prefixes_.end() || one->second.last_used < oldest->second.last_used))
                    oldest = one;
            if (oldest == prefixes_.end()) return false;
            held_ -= oldest->second.bytes;
            prefixes_.erase(oldest);
        }
        return true;
    }

    const Kernel &kernel_;
    pykernel::Batch batch_;
    bool lower_;
    pk_capacity capacity_;
    int64_t max_tokens_, held_ = 0, peak_ = 0;
    size_t max_sequences_;
    std::deque<Sequence *> waiting_;
    std::vector<Sequence *> running_;
    std::vector<std::pair<Sequence *, int64_t>> step_;
    std::map<int64_t, Prefix> prefixes_; /* pointers into it stay good */
};

} // namespace serve

#endif
