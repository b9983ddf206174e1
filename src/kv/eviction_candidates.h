// What may go from each tier, the least worth first: pages that nobody holds ("loose" ones). The
// full-attention pages of a unit go together, and leaves before their parents; pages of sliding
// groups go one by one: a prefix is a hit where the windows before its end are still there.
// One thread; O(log n) of what may go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/eviction_queue.h"
#include "kv/prefix_tree.h"
#include "kv/tier_pool.h"

namespace headrace {

class EvictionCandidates {
 public:
  // One of both.
  struct Candidate {
    int32_t node = PrefixTree::kNone;  // its loose full-attention pages of the tier
    int32_t page = -1;                 // a page of a sliding group
  };

  // `tree` outlives this. `tier_pages`: pages of each tier, the pool first.
  EvictionCandidates(PrefixTree& tree, EvictionRule rule, std::span<const int32_t> tier_pages);

  // A page of the node has become loose, or is no longer.
  void add(int32_t node, TierPage page, bool sliding);
  void remove(int32_t node, TierPage page, bool sliding);
  // As add(), of a page of the pool whose last user has just let go.
  void add_used(int32_t node, TierPage page, bool sliding);
  // The node leaves the tree. REQUIRES: it has no page
  void forget(int32_t node);
  // The node, which has these pages, is pinned now or is no longer.
  void update_pinned(int32_t node, std::span<const TierPage> pages);

  // REQUIRES: size(tier) > 0
  Candidate pop(int32_t tier);
  bool first_is_pinned(int32_t tier) { return queue(tier).first_is_pinned(); }

  int32_t size(int32_t tier) const { return queues_[static_cast<size_t>(tier)].size(); }
  bool contains(int32_t node, int32_t tier) const {
    return queues_[static_cast<size_t>(tier)].contains(node);
  }
  bool contains(TierPage page) const {
    return queues_[static_cast<size_t>(page.tier)].contains(handle(page));
  }

 private:
  EvictionQueue& queue(int32_t tier) { return queues_[static_cast<size_t>(tier)]; }
  int32_t handle(TierPage page) const { return tree_.node_max() + page.page; }
  double worth_of(int32_t node) const;
  void push(int32_t node, TierPage page);
  void change_loose(int32_t node, int32_t tier, int32_t change);
  void update(int32_t node, int32_t tier);

  PrefixTree& tree_;
  const EvictionRule rule_;
  std::vector<EvictionQueue> queues_;  // [tiers]; handles: nodes, then pages of sliding groups
  uint64_t tick_ = 0;
};

}  // namespace headrace
