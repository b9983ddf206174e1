#include "kv/lower_tiers.h"

#include "base/check.h"

namespace headrace {

LowerTiers::LowerTiers(std::vector<TierSpec> specs) : specs_(std::move(specs)) {
  CHECK(specs_.size() < kTierCount);
  for (const TierSpec& spec : specs_) pools_.emplace_back(spec.pages);
}

bool LowerTiers::is_worth_storing(int32_t tier, size_t pages, int32_t tokens) const {
  if (seconds_per_token_ <= 0) return true;
  return seconds_per_page(tier) * static_cast<double>(pages) < seconds_per_token_ * tokens;
}

int32_t LowerTiers::pages_in(int32_t tier) const {
  if (tier > lowest()) return 0;
  const TierPool& pages = pools_[index(tier)];
  return pages.total() - pages.free_count();
}

void LowerTiers::store(int32_t group, TierPage from, TierPage to) {
  moves_.stores.push_back({group, from, to});
  ++counts_.stored;
}

void LowerTiers::store_ahead(int32_t group, TierPage from, TierPage to) {
  moves_.stores_ahead.push_back({group, from, to});
  ++counts_.stored;
  ++counts_.stored_ahead;
}

void LowerTiers::load(int32_t group, TierPage from, TierPage to) {
  moves_.loads.push_back({group, from, to});
  pools_[index(from.tier)].release_after(from.page, step_);
  ++counts_.loaded;
}

}  // namespace headrace
