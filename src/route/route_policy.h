// Who gets a request: a pure choice among the workers that may have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/named.h"
#include "route/prefix_index.h"
#include "route/request_facts.h"

namespace headrace {

enum class RoutePolicyKind { kRoundRobin, kLeastLoaded, kPowerOfTwo, kPrefixAware, kSession };
inline constexpr Named<RoutePolicyKind> kRoutePolicyNames[] = {
    {"prefix-aware", RoutePolicyKind::kPrefixAware},
    {"session", RoutePolicyKind::kSession},
    {"least-loaded", RoutePolicyKind::kLeastLoaded},
    {"power-of-two", RoutePolicyKind::kPowerOfTwo},
    {"round-robin", RoutePolicyKind::kRoundRobin}};

struct RouteCandidate {
  uint64_t identity = 0;  // of the worker's address: the same after a restart
  // Tokens that it has still to compute, as far as the router knows, beside what it says of
  // others'.
  double load_tokens = 0;
  const PrefixIndex* prefixes = nullptr;
};

// One thread at a time.
class RoutePolicy {
 public:
  virtual ~RoutePolicy() = default;
  // The place of a candidate. REQUIRES: there is one
  virtual size_t pick(const RequestFacts& request, std::span<const RouteCandidate> candidates) = 0;
};

// `seed`: of the random ones.
std::unique_ptr<RoutePolicy> make_route_policy(RoutePolicyKind kind, uint64_t seed);

// Rendezvous hashing: for each key an order of the workers that only those which come and go change
// (Thaler and Ravishankar, 1998). The place of the first. REQUIRES: there is a candidate
size_t home_of(std::string_view key, std::span<const RouteCandidate> candidates);

}  // namespace headrace
