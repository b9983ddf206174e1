#include "route/route_metrics.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace headrace {
namespace {

void append_family(std::string& out, std::string_view name, std::string_view type,
                   std::string_view help) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <class Value>
void append_workers(std::string& out, std::span<const WorkerSnapshot> workers,
                    std::string_view name, std::string_view type, std::string_view help,
                    Value value) {
  append_family(out, name, type, help);
  for (const WorkerSnapshot& worker : workers) {
    fmt::format_to(std::back_inserter(out), "{}{{worker=\"{}:{}\"}} {}\n", name,
                   worker.target->host, worker.target->port, value(worker));
  }
}

}  // namespace

void RouteHistogram::add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  counts_[static_cast<size_t>(bound - kBounds.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(seconds, std::memory_order_relaxed);
}

void RouteHistogram::append(std::string_view name, std::string_view help, std::string& out) const {
  append_family(out, name, "histogram", help);
  int64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    fmt::format_to(std::back_inserter(out), "{}_bucket{{le=\"{}\"}} {}\n", name, bound, count);
  }
  fmt::format_to(std::back_inserter(out), "{}_sum {}\n{}_count {}\n", name, sum_.load(), name,
                 count);
}

std::string RouteMetrics::expose(std::span<const WorkerSnapshot> workers) const {
  std::string out;
  const auto counter = [&](std::string_view name, const std::atomic<int64_t>& value,
                           std::string_view help) {
    append_family(out, name, "counter", help);
    fmt::format_to(std::back_inserter(out), "{} {}\n", name, value.load());
  };
  counter("headrace_route_requests_total", requests, "Requests that were passed on.");
  counter("headrace_route_failed_total", failed, "Of them those that the router itself failed.");
  counter("headrace_route_client_gone_total", client_gone, "Clients that left before the end.");
  counter("headrace_route_waited_total", waited, "Requests that had to wait for a worker.");
  decision.append("headrace_route_decision_seconds", "Choice of a worker.", out);
  before.append("headrace_route_before_seconds",
                "From the last byte of a request to its first at a worker.", out);
  recovery.append("headrace_route_recovery_seconds",
                  "From a worker's fault to the next byte for the client.", out);
  using Worker = const WorkerSnapshot&;
  append_workers(out, workers, "headrace_route_worker_up", "gauge", "1: takes requests.",
                 [](Worker each) { return each.state == WorkerState::kUp ? 1 : 0; });
  append_workers(out, workers, "headrace_route_worker_in_flight", "gauge",
                 "Requests of this router there.", [](Worker each) { return each.in_flight; });
  append_workers(out, workers, "headrace_route_worker_load_tokens", "gauge",
                 "Tokens that it has to compute, estimated.",
                 [](Worker each) { return each.load_tokens; });
  append_workers(out, workers, "headrace_route_worker_prefix_blocks", "gauge",
                 "Blocks of text that its cache is thought to hold.",
                 [](Worker each) { return each.prefix_blocks; });
  append_workers(out, workers, "headrace_route_worker_requests_total", "counter",
                 "Requests sent there.", [](Worker each) { return each.counts.requests; });
  append_workers(out, workers, "headrace_route_worker_errors_total", "counter",
                 "Broken connections, silences and answers from 500 on.",
                 [](Worker each) { return each.counts.errors; });
  append_workers(out, workers, "headrace_route_worker_retries_total", "counter",
                 "Requests that were sent elsewhere after it failed them.",
                 [](Worker each) { return each.counts.retries; });
  append_workers(out, workers, "headrace_route_worker_resumes_total", "counter",
                 "Streams that went on elsewhere after it failed them.",
                 [](Worker each) { return each.counts.resumes; });
  return out;
}

}  // namespace headrace
