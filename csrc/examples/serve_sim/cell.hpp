/*
 * A cell of serve_sim: some engines, the links between them, and the events that move its clock.
 */
#ifndef SERVE_SIM_CELL_HPP
#define SERVE_SIM_CELL_HPP

#include "engine.hpp"
#include "links.hpp"

#include <queue>
#include <stdexcept>
#include <string>

namespace serve {

struct Totals {
    int64_t steps = 0, peak_bytes = 0, capacity_bytes = 0, handoffs = 0;
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

} // namespace serve

#endif
