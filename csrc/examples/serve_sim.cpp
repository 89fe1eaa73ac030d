/*
 * A discrete-event simulator of LLM serving on pykernel: continuous batching with chunked prefill, a KV cache sized from
 * the kernel, prefix-cache hits, preemption by recomputation, and prefill and decode on engines of their own.
 *
 *     serve_sim TRACE.csv KERNEL.pkk [options]                       every engine prefills and decodes
 *     serve_sim TRACE.csv DECODE.pkk --prefill PREFILL.pkk [options] handoffs over shared links
 *
 *     --cells N    independent copies of the engines, which take the requests in turn (default 1)
 *     --threads N  threads that the cells are dealt to; the results are the same for any number (default 1)
 *     --prefills N prefill engines of a cell that share one decode engine (default 2)
 *     --memory N   MiB of each part, in place of what the kernel's part has
 *     --overlap    advance the clock by the lower bound of a step instead of the upper
 *
 * The trace has a header line and five whole numbers a line:
 *     arrival_us,prompt_tokens,output_tokens,prefix_id,prefix_tokens
 * Requests with one prefix_id (not 0) begin with the same prefix_tokens tokens.
 *
 * The boundary: what runs when (queues, admission, eviction, sharing of links) is decided here. What anything costs in
 * time or bytes is asked of the kernel.
 */
#include <pykernel.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <queue>
#include <thread>
#include <vector>

using pykernel::Kernel;
using std::int64_t;
using std::size_t;

namespace {

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

struct Totals {
    int64_t steps = 0, peak_bytes = 0, capacity_bytes = 0, handoffs = 0;
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

[[noreturn]] void broken(const char *what) {
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
        if (found != prefixes_.end() && found->second.tokens < sequence->asked->prompt) {
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

/* Handoffs in flight. Those on one link share its bandwidth evenly; the slowest link of each decides. */
class Links {
  public:
    void add(Sequence *sequence, size_t source, const pk_transfer_demand &demand, int64_t now) {
        advance(now);
        flights_.push_back({sequence, source, demand, static_cast<double>(demand.bytes), now + demand.floor_ns});
    }

    /* When the next handoff ends if none begins before; -1 when there is none. */
    int64_t next(int64_t now) const {
        int64_t soonest = -1;
        for (const Flight &flight : flights_) {
            double ns = flight.left > 0 ? flight.left / rate(flight) * 1e9 : 0;
            int64_t end = std::max(now + static_cast<int64_t>(ns) + (flight.left > 0 ? 1 : 0), flight.not_before);
            if (soonest < 0 || end < soonest) soonest = end;
        }
        return soonest;
    }

    /* Calls `arrived(sequence, source)` for each handoff that has ended. */
    template <typename Arrived> void settle(int64_t now, Arrived arrived) {
        advance(now);
        for (size_t i = 0; i < flights_.size();) {
            if (flights_[i].left > 0 || flights_[i].not_before > now) {
                i++;
                continue;
            }
            Flight flight = flights_[i];
            flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(i));
            arrived(flight.sequence, flight.source);
        }
    }

  private:
    struct Flight {
        Sequence *sequence;
        size_t source;
        pk_transfer_demand demand;
        double left;
        int64_t not_before;
    };

    static bool same(const pk_link_use &a, const pk_link_use &b) { return a.kind == b.kind && a.place == b.place; }

    double rate(const Flight &flight) const {
        double slowest = 0;
        for (int32_t i = 0; i < flight.demand.link_count; i++) {
            int users = 0;
            for (const Flight &other : flights_)
                for (int32_t j = 0; other.left > 0 && j < other.demand.link_count; j++)
                    users += same(flight.demand.links[i], other.demand.links[j]);
            double share = flight.demand.links[i].bytes_per_second / std::max(users, 1);
            if (i == 0 || share < slowest) slowest = share;
        }
        return slowest;
    }

    void advance(int64_t now) {
        std::vector<double> rates;
        for (const Flight &flight : flights_) rates.push_back(flight.left > 0 ? rate(flight) : 0);
        for (size_t i = 0; i < flights_.size(); i++) {
            flights_[i].left -= rates[i] * static_cast<double>(now - then_) / 1e9;
            if (flights_[i].left < 1) flights_[i].left = 0; /* less than a byte */
        }
        then_ = now;
    }

    std::vector<Flight> flights_;
    int64_t then_ = 0;
};

/* Some engines, the links between them, and the requests that fall to them. With a prefill kernel, the last engine
 * decodes what the others have prefilled. */
class Cell {
  public:
    Cell(const Kernel &kernel, const Kernel *prefill, const Options &options, size_t index,
         const std::vector<Request> &requests, std::vector<Outcome> &outcomes)
        : kernel_(kernel), split_(prefill != nullptr), outcomes_(outcomes), front_(split_ ? *prefill : kernel) {
        for (int64_t i = 0; split_ && i < options.prefills; i++) engines_.emplace_back(*prefill, options);
        engines_.emplace_back(kernel, options);
        for (size_t i = index; i < requests.size(); i += static_cast<size_t>(options.cells)) {
            sequences_.emplace_back();
            sequences_.back().request = i;
            sequences_.back().asked = &requests[i];
            for (const Engine &engine : engines_)
                if (engine.bytes_of(requests[i].prompt + requests[i].output) > engine.capacity())
                    throw std::runtime_error("request " + std::to_string(i) + " is larger than the KV cache");
        }
    }

    Totals run() {
        for (Sequence &sequence : sequences_)
            at(sequence.asked->arrival_ns + front_.admission_overhead_ns(sequence.asked->prompt), ARRIVE, &sequence, 0);
        while (!events_.empty()) {
            Event event = events_.top();
            events_.pop();
            now_ = event.time;
            if (event.kind == ARRIVE) arrive(event.sequence);
            if (event.kind == STEP_ENDS) end_step(event.engine);
            if (event.kind == LINKS) links_.settle(now_, [this](Sequence *s, size_t source) { land(s, source); });
            hand_over();
            for (size_t i = 0; i < engines_.size(); i++) begin_step(i);
        }
        for (Engine &engine : engines_) {
            engine.drain();
            totals_.peak_bytes = std::max(totals_.peak_bytes, engine.peak());
            totals_.capacity_bytes = std::max(totals_.capacity_bytes, engine.capacity());
        }
        return totals_;
    }

  private:
    enum Kind { ARRIVE, STEP_ENDS, LINKS };
    struct Event {
        int64_t time;
        uint64_t order; /* of making, which decides between events of one time */
        Kind kind;
        Sequence *sequence;
        size_t engine;
        bool operator<(const Event &other) const {
            return time != other.time ? time > other.time : order > other.order;
        }
    };

    void at(int64_t time, Kind kind, Sequence *sequence, size_t engine) {
        events_.push({time, ++made_, kind, sequence, engine});
    }

    void arrive(Sequence *sequence) {
        size_t fronts = split_ ? engines_.size() - 1 : 1, least = 0;
        for (size_t i = 1; i < fronts; i++)
            if (engines_[i].load() < engines_[least].load()) least = i;
        engines_[least].enqueue(sequence);
    }

    void begin_step(size_t index) {
        if (engines_[index].busy()) return;
        int64_t duration = engines_[index].start(now_, outcomes_);
        if (duration == 0) return;
        totals_.steps++;
        at(now_ + duration, STEP_ENDS, nullptr, index);
    }

    void end_step(size_t index) {
        const Kernel &kernel = split_ && index + 1 < engines_.size() ? front_ : kernel_;
        engines_[index].finish(now_, [&](Sequence *sequence) {
            Outcome &outcome = outcomes_[sequence->request];
            outcome.tokens++;
            outcome.last_ns = now_ + kernel.output_token_overhead_ns();
            if (outcome.first_ns < 0) outcome.first_ns = outcome.last_ns;
            if (sequence->generated == sequence->asked->output) {
                outcome.end_ns = outcome.last_ns + kernel.completion_overhead_ns();
                engines_[index].release(sequence, now_);
                return false;
            }
            if (!split_ || index + 1 == engines_.size()) return true;
            ready_.emplace_back(sequence, index);
            return false;
        });
    }

    /* Starts handoffs in order, as long as the decode engine has room for what they bring. */
    void hand_over() {
        bool changed = false;
        while (!ready_.empty()) {
            auto [sequence, source] = ready_.front();
            Sequence arriving = *sequence; /* what it holds at the decode engine is kept apart from what it still holds */
            arriving.bytes = 0;
            arriving.prefix = nullptr;
            if (!engines_.back().hold(&arriving, sequence->computed)) break;
            pk_placement from = {static_cast<int64_t>(source), 0, 0, 0};
            pk_placement to = {static_cast<int64_t>(engines_.size()), 0, 1, 0};
            links_.add(sequence, source, kernel_.pd_transfer_demand(sequence->computed, from, to), now_);
            reserved_[sequence] = arriving.bytes;
            totals_.handoffs++;
            ready_.pop_front();
            changed = true;
        }
        int64_t next = links_.next(now_);
        if (next >= 0 && (changed || next != expected_)) {
            expected_ = next;
            at(next, LINKS, nullptr, 0);
        }
    }

    void land(Sequence *sequence, size_t source) {
        engines_[source].release(sequence, now_);
        sequence->bytes = reserved_[sequence];
        sequence->cached = 0;
        reserved_.erase(sequence);
        engines_.back().take_over(sequence);
    }

    const Kernel &kernel_;
    bool split_;
    std::vector<Outcome> &outcomes_;
    const Kernel &front_;
    std::deque<Engine> engines_;
    std::deque<Sequence> sequences_;
    std::priority_queue<Event> events_;
    std::deque<std::pair<Sequence *, size_t>> ready_;
    std::map<Sequence *, int64_t> reserved_;
    Links links_;
    Totals totals_;
    int64_t now_ = 0, expected_ = -1;
    uint64_t made_ = 0;
};

std::vector<Request> read_trace(const char *path) {
    std::ifstream file(path);
    std::string line;
    std::vector<Request> requests;
    if (!std::getline(file, line)) throw std::runtime_error(std::string(path) + " cannot be read");
    for (size_t number = 2; std::getline(file, line); number++) {
        int64_t field[5];
        const char *at = line.c_str();
        for (int64_t &value : field) {
            char *end = nullptr;
            value = std::strtoll(at, &end, 10);
            if (end == at || value < 0) throw std::runtime_error(std::string(path) + ":" + std::to_string(number) +
                                                                 ": five whole numbers are wanted, found " + line);
            at = *end == ',' ? end + 1 : end;
        }
        if (field[1] < 1 || field[2] < 1 || field[4] > field[1])
            throw std::runtime_error(std::string(path) + ":" + std::to_string(number) + ": prompt and output take at "
                                     "least 1 token, a prefix at most the prompt's");
        requests.push_back({field[0] * 1000, field[1], field[2], field[3], field[4]});
    }
    return requests;
}

/* The cells on so many threads; each writes outcomes of its own requests alone. */
Totals simulate(const Kernel &kernel, const Kernel *prefill, const Options &options,
                const std::vector<Request> &requests, std::vector<Outcome> &outcomes) {
    std::vector<Totals> totals(static_cast<size_t>(options.cells));
    std::atomic<size_t> next{0};
    auto work = [&] {
        for (size_t i = next++; i < totals.size(); i = next++)
            totals[i] = Cell(kernel, prefill, options, i, requests, outcomes).run();
    };
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < options.threads; i++) threads.emplace_back(work);
    work();
    for (std::thread &thread : threads) thread.join();
    Totals all;
    for (const Totals &one : totals) {
        all.steps += one.steps;
        all.handoffs += one.handoffs;
        all.peak_bytes = std::max(all.peak_bytes, one.peak_bytes);
        all.capacity_bytes = std::max(all.capacity_bytes, one.capacity_bytes);
    }
    return all;
}

void print_percentiles(const char *name, std::vector<int64_t> ns) {
    std::sort(ns.begin(), ns.end());
    std::printf("%-5s", name);
    for (int percent : {50, 90, 99})
        if (!ns.empty())
            std::printf("  p%d %10.3f ms", percent,
                        static_cast<double>(ns[(ns.size() - 1) * static_cast<size_t>(percent) / 100]) / 1e6);
    std::printf("\n");
}

/* Prints what came out, after holding it to what must: every request ended, and every token was handed out once. */
void report(const std::vector<Request> &requests, const std::vector<Outcome> &outcomes, const Totals &totals) {
    std::vector<int64_t> ttft, tpot, total;
    int64_t tokens = 0, cached = 0, preempted = 0, prompts = 0, end = 0;
    uint64_t digest = 14695981039346656037u; /* FNV-1a over all times */
    for (size_t i = 0; i < requests.size(); i++) {
        const Outcome &outcome = outcomes[i];
        if (outcome.end_ns < 0 || outcome.tokens != requests[i].output) broken("a request did not finish");
        ttft.push_back(outcome.first_ns - requests[i].arrival_ns);
        total.push_back(outcome.end_ns - requests[i].arrival_ns);
        if (outcome.tokens > 1) tpot.push_back((outcome.last_ns - outcome.first_ns) / (outcome.tokens - 1));
        tokens += outcome.tokens;
        prompts += requests[i].prompt;
        cached += outcome.cached;
        preempted += outcome.preempted;
        end = std::max(end, outcome.end_ns);
        for (int64_t time : {outcome.first_ns, outcome.last_ns, outcome.end_ns})
            digest = (digest ^ static_cast<uint64_t>(time)) * 1099511628211u;
    }
    double seconds = static_cast<double>(end) / 1e9;
    std::printf("requests %zu  steps %lld  handoffs %lld  preemptions %lld\n", requests.size(),
                static_cast<long long>(totals.steps), static_cast<long long>(totals.handoffs),
                static_cast<long long>(preempted));
    print_percentiles("ttft", ttft);
    print_percentiles("tpot", tpot);
    print_percentiles("total", total);
    std::printf("output %lld tokens, %.1f tokens/s; %.1f%% of prompt tokens cached; KV cache %.1f%% full at most\n",
                static_cast<long long>(tokens), static_cast<double>(tokens) / seconds,
                100.0 * static_cast<double>(cached) / static_cast<double>(prompts),
                100.0 * static_cast<double>(totals.peak_bytes) / static_cast<double>(totals.capacity_bytes));
    std::printf("digest %016llx\n", static_cast<unsigned long long>(digest));
}

} // namespace

int main(int argc, char **argv) {
    Options options;
    const char *prefill_path = nullptr;
    std::vector<const char *> paths;
    for (int i = 1; i < argc; i++) {
        std::string word = argv[i];
        int64_t *number = word == "--cells"      ? &options.cells
                          : word == "--threads"  ? &options.threads
                          : word == "--prefills" ? &options.prefills
                          : word == "--memory"   ? &options.memory
                                                 : nullptr;
        if (word == "--overlap") options.lower = true;
        else if (word == "--prefill" && i + 1 < argc) prefill_path = argv[++i];
        else if (number != nullptr && i + 1 < argc) *number = std::max(1LL, std::atoll(argv[++i]));
        else paths.push_back(argv[i]);
    }
    if (paths.size() != 2 || paths[0][0] == '-' || paths[1][0] == '-') {
        std::cerr << "usage: serve_sim TRACE.csv KERNEL.pkk [--prefill PREFILL.pkk] [--cells N] [--threads N] "
                     "[--prefills N] [--memory MIB] [--overlap]\n";
        return 2;
    }
    try {
        std::vector<Request> requests = read_trace(paths[0]);
        std::vector<Outcome> outcomes(requests.size());
        Kernel kernel = Kernel::load_file(paths[1]);
        std::unique_ptr<Kernel> prefill;
        if (prefill_path != nullptr) prefill = std::make_unique<Kernel>(Kernel::load_file(prefill_path));
        Totals totals = simulate(kernel, prefill.get(), options, requests, outcomes);
        report(requests, outcomes, totals);
    } catch (const std::exception &error) {
        std::cerr << "serve_sim: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
