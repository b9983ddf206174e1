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

enum class RoutePolicyKind {
  kRoundRobin,
  kLeastLoaded,
  kLeastKv,
  kPowerOfTwo,
  kPrefixAware,
  kSloAware,
  kSession
};
inline constexpr Named<RoutePolicyKind> kRoutePolicyNames[] = {
    {"prefix-aware", RoutePolicyKind::kPrefixAware},
    {"session", RoutePolicyKind::kSession},
    {"slo-aware", RoutePolicyKind::kSloAware},
    {"least-loaded", RoutePolicyKind::kLeastLoaded},
    {"least-kv", RoutePolicyKind::kLeastKv},
    {"power-of-two", RoutePolicyKind::kPowerOfTwo},
    {"round-robin", RoutePolicyKind::kRoundRobin}};

// A token of a step's batch delays others by so much of what a token of a prompt costs.
inline constexpr double kLoadWeight = 0.125;

struct RouteCandidate {
  uint64_t identity = 0;  // of the worker's address: the same after a restart
  // Tokens that it has still to compute, as far as the router knows, beside what it says of
  // others'.
  double load_tokens = 0;
  const PrefixIndex* prefixes = nullptr;
  double kv_usage = 0;             // of its cache, of 0 to 1, as it said last
  double first_token_seconds = 0;  // that a token ahead of a first one has taken lately; 0: unknown
};

struct RoutePolicyOptions {
  uint64_t seed = 1;                 // of the random ones
  double first_token_seconds = 0.5;  // what slo-aware promises
};

// One thread at a time.
class RoutePolicy {
 public:
  virtual ~RoutePolicy() = default;
  // The place of a candidate. REQUIRES: there is one
  virtual size_t pick(const RequestFacts& request, std::span<const RouteCandidate> candidates) = 0;
};

std::unique_ptr<RoutePolicy> make_route_policy(RoutePolicyKind kind,
                                               const RoutePolicyOptions& options);

// Rendezvous hashing: for each key an order of the workers that only those which come and go change
// (Thaler and Ravishankar, 1998). The place of the first. REQUIRES: there is a candidate
size_t home_of(std::string_view key, std::span<const RouteCandidate> candidates);

}  // namespace headrace
