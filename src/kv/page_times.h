// How long pages of the prefix cache stay in the pool: as histograms, by the time of the plan in
// which something happens to a page. Nothing is decided by it. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace headrace {

// Upper bounds of seconds, as vLLM's dashboards have them.
inline constexpr std::array<double, 21> kPageTimeBounds = {.001, .002, .005, .01, .02, .05,  .1,
                                                           .2,   .5,   1,    2,   5,   10,   20,
                                                           30,   60,   120,  300, 600, 1200, 1800};

// [i]: of at most kPageTimeBounds[i] seconds and more than the bound before; the last: of more than
// all bounds.
struct SecondsHistogram {
  std::array<uint64_t, kPageTimeBounds.size() + 1> counts{};
  double sum = 0;

  void add(double seconds) {
    const auto* const bound =
        std::lower_bound(kPageTimeBounds.begin(), kPageTimeBounds.end(), seconds);
    ++counts[static_cast<size_t>(bound - kPageTimeBounds.begin())];
    sum += seconds;
  }
};

// Of pages that have left the pool, evicted or stored in a tier below: how long they were in the
// cache, and how long nobody had used them. Of pages that were used again: since when they were
// not.
struct PageTimeStats {
  SecondsHistogram lifetime, idle, reuse_gap;
};

class PageTimes {
 public:
  explicit PageTimes(int32_t pages) : pages_(static_cast<size_t>(pages)) {}

  void set_now(double seconds) { now_ = seconds; }
  // The page is in the cache from now on.
  void kept(BlockId block) { at(block) = {now_, now_}; }
  // A sequence begins with it.
  void used(BlockId block) {
    stats_.reuse_gap.add(now_ - at(block).used);
    at(block).used = now_;
  }
  // A sequence that had it has let go.
  void idle(BlockId block) { at(block).used = now_; }
  void evicted(BlockId block) {
    stats_.lifetime.add(now_ - at(block).kept);
    stats_.idle.add(now_ - at(block).used);
  }

  const PageTimeStats& stats() const { return stats_; }

 private:
  struct Page {
    double kept = 0, used = 0;  // seconds
  };
  Page& at(BlockId block) { return pages_[static_cast<size_t>(block.value)]; }

  std::vector<Page> pages_;
  double now_ = 0;
  PageTimeStats stats_;
};

}  // namespace headrace
