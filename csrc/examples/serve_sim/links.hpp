/*
 * The links of serve_sim: handoffs from prefill to decode engines, and how they share what they cross. What a handoff
 * moves over which links is the kernel's demand; when it ends depends on the others, which only the simulator knows.
 */
#ifndef SERVE_SIM_LINKS_HPP
#define SERVE_SIM_LINKS_HPP

#include "engine.hpp"

namespace serve {

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

} // namespace serve

#endif
