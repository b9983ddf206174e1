#include "kv/eviction_queue.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {
namespace {

// A token at this place costs about twice the first one: attention to what is before it costs as
// much as the matrices (a 1B model: near 8k tokens).
constexpr double kPositionOfDoubleCost = 8192;

double least_recently_used(const CachedUse& use) { return static_cast<double>(use.tick); }

double least_frequently_used(const CachedUse& use) {
  return use.floor + static_cast<double>(use.hits);
}

double least_cost_to_compute(const CachedUse& use) {
  return use.floor + static_cast<double>(use.hits) * (1 + use.position / kPositionOfDoubleCost);
}

struct RuleRow {
  std::string_view name;
  EvictionRule rule;
};

constexpr std::array kRules = {
    RuleRow{"lru", least_recently_used},
    RuleRow{"lfu", least_frequently_used},
    RuleRow{"cost", least_cost_to_compute},
};

}  // namespace

Result<EvictionRule> find_eviction_rule(std::string_view name) {
  for (const RuleRow& row : kRules) {
    if (row.name == name) return row.rule;
  }
  return invalid_argument(
      fmt::format("there is no rule of eviction \"{}\"; there are {}", name, eviction_rule_names()),
      "prefix_cache_eviction");
}

std::string eviction_rule_names() {
  std::string names;
  for (const RuleRow& row : kRules) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

bool EvictionQueue::later(const Entry& a, const Entry& b) {
  if (a.priority.pinned != b.priority.pinned) return a.priority.pinned;
  if (a.priority.worth != b.priority.worth) return a.priority.worth > b.priority.worth;
  return a.stamp > b.stamp;
}

void EvictionQueue::push(int32_t handle, Priority priority) {
  uint64_t& stamp = stamps_[static_cast<size_t>(handle)];
  if (stamp == 0) ++live_;
  stamp = next_stamp_++;
  heap_.push_back({priority, stamp, handle});
  std::push_heap(heap_.begin(), heap_.end(), later);
  // Dead entries stay at most as many as live ones: push is O(log n) in the mean.
  if (heap_.size() > 2 * static_cast<size_t>(live_) + 64) drop_dead();
}

void EvictionQueue::remove(int32_t handle) {
  uint64_t& stamp = stamps_[static_cast<size_t>(handle)];
  if (stamp == 0) return;
  stamp = 0;
  --live_;
}

int32_t EvictionQueue::pop() {
  CHECK(live_ > 0);
  while (true) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    if (!is_live(entry)) continue;
    remove(entry.handle);
    last_worth_ = entry.priority.worth;
    return entry.handle;
  }
}

bool EvictionQueue::first_is_pinned() {
  CHECK(live_ > 0);
  while (!is_live(heap_.front())) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
  return heap_.front().priority.pinned;
}

void EvictionQueue::drop_dead() {
  std::erase_if(heap_, [&](const Entry& entry) { return !is_live(entry); });
  std::make_heap(heap_.begin(), heap_.end(), later);
}

}  // namespace headrace
