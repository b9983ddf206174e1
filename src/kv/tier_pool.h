// Tiers below the pool: places for pages that the pool has no room for. Tier 0 is the pool itself,
// tier 1 host memory (page-locked where the device is a GPU), tier 2 a file. Ids and counts only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace headrace {

inline constexpr int32_t kPoolTier = 0, kHostTier = 1, kDiskTier = 2, kTierCount = 3;

// A page of a tier.
struct TierPage {
  int32_t tier = kPoolTier;
  int32_t page = -1;  // in [0, pages of the tier); -1: none
  bool none() const { return page < 0; }
  friend bool operator==(const TierPage&, const TierPage&) = default;
};

// The block of a page of the pool.
inline BlockId block_of(TierPage page) { return BlockId(page.page); }

// A page's content goes from one tier to another.
struct PageMove {
  int32_t group = 0;
  TierPage from, to;
};

// What the scheduler knows of a tier.
struct TierSpec {
  int32_t pages = 0;
  double seconds_per_page = 0;  // from the tier into the pool
};

// The free pages of one lower tier. A page whose content a plan loads is given to no other within
// that plan: loads come after stores. One thread; O(1).
class TierPool {
 public:
  explicit TierPool(int32_t pages);

  // A page to store to in plan `step`. Empty: none.
  std::optional<int32_t> allocate(Ticket step);
  void release(int32_t page) { free_.push_back(page); }
  // As release(), for plans after `step`, which still loads from it.
  void release_after(int32_t page, Ticket step);

  int32_t total() const { return total_; }
  // Free pages, also of those that plan `step` loads from.
  int32_t free_count() const { return static_cast<int32_t>(free_.size() + loading_.size()); }
  // What allocate(step) could give.
  bool has_room(Ticket step);

 private:
  int32_t total_;
  std::vector<int32_t> free_;     // a stack
  std::vector<int32_t> loading_;  // free after loading_step_
  Ticket loading_step_;
};

}  // namespace headrace
