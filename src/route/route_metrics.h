// What the router counts, as Prometheus text.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "route/worker_table.h"

namespace headrace {

// Any thread.
class RouteHistogram {
 public:
  static constexpr std::array<double, 19> kBounds = {5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 3.5e-4,
                                                     5e-4, 1e-3, 5e-3, 0.02, 0.05, 0.1,  0.25,
                                                     0.5,  1,    2.5,  5,    10};
  void add(double seconds);
  void append(std::string_view name, std::string_view help, std::string& out) const;

 private:
  std::array<std::atomic<int64_t>, kBounds.size() + 1> counts_{};
  std::atomic<double> sum_{0};
};

// Any thread.
struct RouteMetrics {
  RouteHistogram decision;  // who gets the request
  RouteHistogram before;    // from a request's last byte to its first at the worker's socket
  RouteHistogram recovery;  // from a fault to the next byte for the client
  std::atomic<int64_t> requests{0}, failed{0}, client_gone{0}, waited{0};

  std::string expose(std::span<const WorkerSnapshot> workers) const;
};

}  // namespace headrace
