// The tiers below the pool as the prefix cache uses them: room in each, the moves that plans are to
// make between them, and what a move costs. (Hierarchical caching as in AttentionStore, Gao et al.,
// USENIX ATC 2024.) Ids and counts only; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kv/tier_pool.h"

namespace headrace {

// What plans copy between tiers. Stores are done in order before anything else of the plan writes a
// page; stores ahead of need after them, of pages that nothing of the plan writes; then loads, for
// later plans to use.
struct TierMoves {
  std::vector<PageMove> stores, stores_ahead, loads;
};

// Pages that went down, came up, or were dropped for want of room or because computing is cheaper.
struct TierCounts {
  uint64_t stored = 0, loaded = 0, dropped = 0;
  // Of them, beside a plan that needed neither: for the others a step, or who joined, waited.
  uint64_t stored_ahead = 0, loaded_ahead = 0;
};

class LowerTiers {
 public:
  // `specs` from the tier next to the pool downwards; fewer than kTierCount.
  explicit LowerTiers(std::vector<TierSpec> specs);

  // Moves belong to plan `step` from now on.
  void begin_plan(Ticket step) { step_ = step; }
  Ticket step() const { return step_; }
  TierMoves take_moves() { return std::exchange(moves_, {}); }
  const TierCounts& counts() const { return counts_; }

  // Seconds that computing a token takes, as measured; 0: not known, storing is taken to be
  // cheaper.
  void set_seconds_per_token(double seconds) { seconds_per_token_ = seconds; }
  double seconds_per_token() const { return seconds_per_token_; }
  double seconds_per_page(int32_t tier) const { return specs_[index(tier)].seconds_per_page; }
  // Whether loading `pages` pages from the tier takes less than computing `tokens` tokens.
  bool is_worth_storing(int32_t tier, size_t pages, int32_t tokens) const;

  // Tiers are [1, lowest()]; 0: there is none.
  int32_t lowest() const { return static_cast<int32_t>(pools_.size()); }
  int32_t pages_in(int32_t tier) const;  // pages that are stored there; 0 where there is no tier
  bool has_room(int32_t tier) { return pools_[index(tier)].has_room(step_); }
  std::optional<int32_t> allocate(int32_t tier) { return pools_[index(tier)].allocate(step_); }
  void release(TierPage page) { pools_[index(page.tier)].release(page.page); }

  // This plan copies a page of `group` into a tier, or from a tier into the pool; what it loads
  // from is free for later plans.
  void store(int32_t group, TierPage from, TierPage to);
  void store_ahead(int32_t group, TierPage from, TierPage to);
  void load(int32_t group, TierPage from, TierPage to);
  void count_dropped() { ++counts_.dropped; }

 private:
  static size_t index(int32_t tier) { return static_cast<size_t>(tier) - 1; }

  const std::vector<TierSpec> specs_;
  std::vector<TierPool> pools_;
  TierMoves moves_;
  TierCounts counts_;
  Ticket step_;
  double seconds_per_token_ = 0;
};

}  // namespace headrace
