#include "kv/tier_pool.h"

#include "base/check.h"

namespace headrace {

TierPool::TierPool(int32_t pages) : total_(pages) {
  CHECK(pages >= 0);
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

bool TierPool::has_room(Ticket step) {
  if (loading_step_ < step) {
    free_.insert(free_.end(), loading_.begin(), loading_.end());
    loading_.clear();
  }
  return !free_.empty();
}

std::optional<int32_t> TierPool::allocate(Ticket step) {
  if (!has_room(step)) return std::nullopt;
  const int32_t page = free_.back();
  free_.pop_back();
  return page;
}

void TierPool::release_after(int32_t page, Ticket step) {
  (void)has_room(step);  // what earlier plans loaded is free now
  loading_.push_back(page);
  loading_step_ = step;
}

}  // namespace headrace
