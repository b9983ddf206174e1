#include "bench/route_replay.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace headrace::route_replay_test {
namespace {

void expect_prefixes_are_kept(const char* name, const RouteReplay& replays) {
  const double big = *replays.big_cache_hit_rate();
  const RouteReplay::Outcome aware = *replays.routed(RoutePolicyKind::kPrefixAware);
  const RouteReplay::Outcome blind = *replays.routed(RoutePolicyKind::kRoundRobin);
  std::printf(
      "%s: hit rate of one big cache %.3f, prefix-aware %.3f (%.2f of it), round robin %.3f; first "
      "token p50 %.1f and %.1f ms; requests of a worker %d to %d\n",
      name, big, aware.hit_rate, aware.hit_rate / big, blind.hit_rate, 1e3 * aware.ttft_p50,
      1e3 * blind.ttft_p50, aware.least, aware.most);
  EXPECT_GE(aware.hit_rate, 0.95 * big);
  EXPECT_LT(blind.hit_rate, 0.9 * aware.hit_rate);
  EXPECT_LE(2 * aware.ttft_p50, blind.ttft_p50);
  EXPECT_LE(aware.most, 2 * aware.least);  // nobody is left idle for it
}

TEST(RouteTrace, PrefixAwareKeepsTheHitsOfOneBigCacheOfAgents) {
  expect_prefixes_are_kept("agents", RouteReplay(*agents_trace(4000, 40, 1), 4, 64 << 10));
}

TEST(RouteTrace, PrefixAwareKeepsTheHitsOfOneBigCacheOfTalks) {
  expect_prefixes_are_kept("talks", RouteReplay(talks_trace(4000, 40, 1), 4, 64 << 10));
}

}  // namespace
}  // namespace headrace::route_replay_test
