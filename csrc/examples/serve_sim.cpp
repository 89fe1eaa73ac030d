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
 * time or bytes is asked of the kernel. engine.hpp is where it is asked for steps and memory, links.hpp for handoffs,
 * cell.hpp for what the host does around them; this file reads the trace, runs the cells on threads and reports.
 */
#include "serve_sim/cell.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <thread>

using namespace serve;

namespace {

constexpr int64_t MOST_TRACED = std::numeric_limits<int64_t>::max() / 1000; /* microseconds that fit as nanoseconds */

/* Reads a whole number from 0 to `most` at the start of a text; where it ends, nullptr for anything else. */
const char *whole_number(const char *text, int64_t most, int64_t &value) {
    char *end = nullptr;
    value = std::strtoll(text, &end, 10);
    return end == text || value < 0 || value > most ? nullptr : end;
}

std::vector<Request> read_trace(const char *path) {
    std::ifstream file(path);
    std::string line;
    std::vector<Request> requests;
    if (!std::getline(file, line)) throw std::runtime_error(std::string(path) + " cannot be read");
    for (size_t number = 2; std::getline(file, line); number++) {
        std::string where = std::string(path) + ":" + std::to_string(number) + ": ";
        int64_t field[5];
        const char *at = line.c_str();
        for (int64_t &value : field) {
            at = whole_number(at, MOST_TRACED, value);
            if (at == nullptr) throw std::runtime_error(where + "five whole numbers are wanted, found " + line);
            if (*at == ',') at++;
        }
        if (field[1] < 1 || field[2] < 1 || field[4] > field[1])
            throw std::runtime_error(where + "prompt and output take at least 1 token, a prefix at most the prompt's");
        requests.push_back({field[0] * 1000, field[1], field[2], field[3], field[4]});
    }
    if (requests.empty()) throw std::runtime_error(std::string(path) + " has no requests");
    return requests;
}

/* The cells on so many threads; each writes outcomes of its own requests alone. */
Totals simulate(const Kernel &kernel, const Kernel *prefill, const Options &options,
                const std::vector<Request> &requests, std::vector<Outcome> &outcomes) {
    size_t cells = static_cast<size_t>(options.cells);
    std::vector<Totals> totals(cells);
    std::vector<std::exception_ptr> failures(cells); /* none may leave its thread */
    std::atomic<size_t> next{0};
    auto work = [&] {
        for (size_t i = next++; i < cells; i = next++) {
            try {
                totals[i] = Cell(kernel, prefill, options, i, requests, outcomes).run();
            } catch (...) {
                failures[i] = std::current_exception();
            }
        }
    };
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < std::min(options.threads, options.cells); i++) threads.emplace_back(work);
    work();
    for (std::thread &thread : threads) thread.join();
    for (const std::exception_ptr &failure : failures)
        if (failure) std::rethrow_exception(failure);
    Totals all;
    for (const Totals &one : totals) {
        all.steps += one.steps;
        all.handoffs += one.handoffs;
        all.peak_bytes = std::max(all.peak_bytes, one.peak_bytes);
        all.capacity_bytes = std::max(all.capacity_bytes, one.capacity_bytes);
    }
    return all;
}

/* By nearest rank: the least time that at least so many percent keep within. */
void print_percentiles(const char *name, std::vector<int64_t> ns) {
    std::sort(ns.begin(), ns.end());
    std::printf("%-5s", name);
    for (int percent : {50, 90, 99})
        if (!ns.empty())
            std::printf("  p%d %10.3f ms", percent,
                        static_cast<double>(ns[(ns.size() * static_cast<size_t>(percent) + 99) / 100 - 1]) / 1e6);
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

struct Arguments {
    Options options;
    const char *trace = nullptr, *kernel = nullptr, *prefill = nullptr;
};

/* False for a command line that is none. */
bool parse(int argc, char **argv, Arguments &arguments) {
    Options &options = arguments.options;
    std::vector<const char *> paths;
    for (int i = 1; i < argc; i++) {
        std::string word = argv[i];
        int64_t *number = word == "--cells"      ? &options.cells
                          : word == "--threads"  ? &options.threads
                          : word == "--prefills" ? &options.prefills
                          : word == "--memory"   ? &options.memory
                                                 : nullptr;
        if (word == "--overlap") options.lower = true;
        else if (word == "--prefill" && i + 1 < argc) arguments.prefill = argv[++i];
        else if (number != nullptr && i + 1 < argc) {
            const char *end = whole_number(argv[++i], 1 << 30, *number);
            if (end == nullptr || *end != '\0' || *number < 1) return false;
        } else if (word[0] == '-') return false;
        else paths.push_back(argv[i]);
    }
    if (paths.size() != 2) return false;
    arguments.trace = paths[0];
    arguments.kernel = paths[1];
    return true;
}

} // namespace

int main(int argc, char **argv) {
    Arguments arguments;
    if (!parse(argc, argv, arguments)) {
        std::cerr << "usage: serve_sim TRACE.csv KERNEL.pkk [--prefill PREFILL.pkk] [--cells N] [--threads N] "
                     "[--prefills N] [--memory MIB] [--overlap]\n";
        return 2;
    }
    try {
        std::vector<Request> requests = read_trace(arguments.trace);
        std::vector<Outcome> outcomes(requests.size());
        Kernel kernel = Kernel::load_file(arguments.kernel);
        std::unique_ptr<Kernel> prefill;
        if (arguments.prefill != nullptr) prefill = std::make_unique<Kernel>(Kernel::load_file(arguments.prefill));
        report(requests, outcomes, simulate(kernel, prefill.get(), arguments.options, requests, outcomes));
    } catch (const std::exception &error) {
        std::cerr << "serve_sim: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
