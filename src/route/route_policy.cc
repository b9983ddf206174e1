#include "route/route_policy.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/rng.h"

namespace headrace {
namespace {

// A worker is crowded from this on: so many times the mean, and so many tokens more.
constexpr double kCrowdedShare = 1.5;
constexpr double kCrowdedTokens = 8192;

double crowded_from(std::span<const RouteCandidate> candidates) {
  double sum = 0;
  for (const RouteCandidate& each : candidates) sum += each.load_tokens;
  return kCrowdedShare * sum / static_cast<double>(candidates.size()) + kCrowdedTokens;
}

size_t least_loaded(std::span<const RouteCandidate> candidates, size_t first) {
  size_t best = first % candidates.size();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const size_t place = (first + i) % candidates.size();
    if (candidates[place].load_tokens < candidates[best].load_tokens) best = place;
  }
  return best;
}

class RoundRobinPolicy final : public RoutePolicy {
 public:
  size_t pick(const RequestFacts&, std::span<const RouteCandidate> candidates) override {
    return next_++ % candidates.size();
  }

 private:
  size_t next_ = 0;
};

class LeastLoadedPolicy final : public RoutePolicy {
 public:
  size_t pick(const RequestFacts&, std::span<const RouteCandidate> candidates) override {
    return least_loaded(candidates, next_++);  // equals take turns
  }

 private:
  size_t next_ = 0;
};

// The better of two that are drawn: where loads are told late, the least loaded one is everybody's
// choice and soon the most loaded (Mitzenmacher, 2000).
class PowerOfTwoPolicy final : public RoutePolicy {
 public:
  explicit PowerOfTwoPolicy(uint64_t seed) : rng_(seed) {}
  size_t pick(const RequestFacts&, std::span<const RouteCandidate> candidates) override {
    const size_t count = candidates.size();
    const size_t one = rng_.below(count);
    if (count == 1) return one;
    const size_t other = (one + 1 + rng_.below(count - 1)) % count;
    return candidates[other].load_tokens < candidates[one].load_tokens ? other : one;
  }

 private:
  Rng rng_;
};

// The least of what is to be computed anew and what is to be waited for; a crowded worker gets
// nothing while another is not, whatever it holds.
class PrefixAwarePolicy final : public RoutePolicy {
 public:
  size_t pick(const RequestFacts& request, std::span<const RouteCandidate> candidates) override {
    const double crowded = crowded_from(candidates);
    const size_t first = next_++ % candidates.size();
    size_t best = candidates.size();
    double best_cost = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const size_t place = (first + i) % candidates.size();
      const RouteCandidate& each = candidates[place];
      if (each.load_tokens > crowded) continue;
      const size_t held = each.prefixes ? each.prefixes->match(request.blocks) : 0;
      const double missing =
          static_cast<double>((request.blocks.size() - held) * kTokensPerRouteBlock);
      const double cost = missing + kLoadWeight * each.load_tokens;
      if (best == candidates.size() || cost < best_cost) {
        best = place;
        best_cost = cost;
      }
    }
    return best < candidates.size() ? best : least_loaded(candidates, first);
  }

 private:
  size_t next_ = 0;
};

// The fullest cache costs the most: what does not fit preempts. Loads break ties between caches
// that are equally full to a hundredth.
class LeastKvPolicy final : public RoutePolicy {
 public:
  size_t pick(const RequestFacts&, std::span<const RouteCandidate> candidates) override {
    const auto fullness = [](const RouteCandidate& each) {
      return std::pair(std::floor(each.kv_usage * 100), each.load_tokens);
    };
    size_t best = next_++ % candidates.size();
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (fullness(candidates[i]) < fullness(candidates[best])) best = i;
    }
    return best;
  }

 private:
  size_t next_ = 0;
};

// The first token is expected when what is ahead of it and what the cache lacks is computed, at the
// speed that this worker had lately. Of those who keep the promise the one whose cache lacks least,
// so that quick ones stay free for who needs them; if nobody does, the soonest.
class SloAwarePolicy final : public RoutePolicy {
 public:
  explicit SloAwarePolicy(double promised_seconds) : promised_(promised_seconds) {}
  size_t pick(const RequestFacts& request, std::span<const RouteCandidate> candidates) override {
    const size_t first = next_++ % candidates.size();
    size_t best = first;
    Expected least = expect(request, candidates[first]);
    for (size_t i = 1; i < candidates.size(); ++i) {
      const size_t place = (first + i) % candidates.size();
      const Expected other = expect(request, candidates[place]);
      if (!is_better(other, least)) continue;
      best = place;
      least = other;
    }
    return best;
  }

 private:
  struct Expected {
    double missing = 0;  // tokens
    double seconds = 0;  // until the first token
  };
  static Expected expect(const RequestFacts& request, const RouteCandidate& each) {
    const size_t held = each.prefixes ? each.prefixes->match(request.blocks) : 0;
    const double missing = static_cast<double>(request.prompt_tokens) -
                           static_cast<double>(held * kTokensPerRouteBlock);
    const double ahead = std::max(1.0, missing) + kLoadWeight * each.load_tokens;
    return {.missing = missing, .seconds = each.first_token_seconds * ahead};
  }
  bool is_better(const Expected& a, const Expected& b) const {
    const bool a_keeps = a.seconds <= promised_, b_keeps = b.seconds <= promised_;
    if (a_keeps != b_keeps) return a_keeps;
    if (!a_keeps) return a.seconds < b.seconds;
    return std::pair(a.missing, a.seconds) < std::pair(b.missing, b.seconds);
  }

  const double promised_;
  size_t next_ = 0;
};

// A session's worker by its name, as long as that is not crowded; without a name by what its
// prompt begins with.
class SessionPolicy final : public RoutePolicy {
 public:
  size_t pick(const RequestFacts& request, std::span<const RouteCandidate> candidates) override {
    if (request.session.empty()) return fallback_.pick(request, candidates);
    const size_t home = home_of(request.session, candidates);
    if (candidates[home].load_tokens <= crowded_from(candidates)) return home;
    return least_loaded(candidates, home);
  }

 private:
  PrefixAwarePolicy fallback_;
};

}  // namespace

size_t home_of(std::string_view key, std::span<const RouteCandidate> candidates) {
  const uint64_t hash = checksum64(std::as_bytes(std::span(key.data(), key.size())));
  const auto weight = [&](const RouteCandidate& each) { return mix64(hash ^ each.identity); };
  const auto best =
      std::max_element(candidates.begin(), candidates.end(),
                       [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
  return static_cast<size_t>(best - candidates.begin());
}

std::unique_ptr<RoutePolicy> make_route_policy(RoutePolicyKind kind,
                                               const RoutePolicyOptions& options) {
  switch (kind) {
    case RoutePolicyKind::kRoundRobin:
      return std::make_unique<RoundRobinPolicy>();
    case RoutePolicyKind::kLeastLoaded:
      return std::make_unique<LeastLoadedPolicy>();
    case RoutePolicyKind::kPowerOfTwo:
      return std::make_unique<PowerOfTwoPolicy>(options.seed);
    case RoutePolicyKind::kLeastKv:
      return std::make_unique<LeastKvPolicy>();
    case RoutePolicyKind::kSloAware:
      return std::make_unique<SloAwarePolicy>(options.first_token_seconds);
    case RoutePolicyKind::kPrefixAware:
      return std::make_unique<PrefixAwarePolicy>();
    case RoutePolicyKind::kSession:
      return std::make_unique<SessionPolicy>();
  }
  return nullptr;
}

}  // namespace headrace
