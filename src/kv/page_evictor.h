// Keeps the pages of the prefix cache for the pool and gives them up when it needs them: to the
// tier below where that pays and has room or something of less worth, or altogether, with all that
// follows in the tree. A holder below keeps its pages; they are only not found any more. Swapping a
// preempted sequence out is nothing else: its full pages are idle, and go down one by one as far as
// the pool needs them. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "kv/block_pool.h"
#include "kv/cached_units.h"
#include "kv/eviction_candidates.h"
#include "kv/lower_tiers.h"
#include "kv/prefix_tree.h"

namespace headrace {

class PageEvictor final : public PageKeeper {
 public:
  // All of these outlive this object.
  PageEvictor(PrefixTree& tree, CachedUnits& units, EvictionCandidates& candidates,
              LowerTiers& tiers, BlockPool& pool)
      : tree_(tree), units_(units), candidates_(candidates), tiers_(tiers), pool_(pool) {}

  void page_idle(BlockId block) override;
  void page_held(BlockId block) override;
  void evict() override { evict_from(kPoolTier); }
  // The next two store beside the plan's step: a page that is stored comes free when the step was
  // applied.
  // Gives up so many pages of the pool that nobody holds, the least worth first and none that is
  // pinned. Returns how many they are.
  int32_t evict_ahead(int32_t pages);
  // Of these nodes, from the last on, stores pages that nobody holds, pinned or not, where that
  // pays and there is room, until they are so many. Returns how many they are.
  int32_t store_ahead(std::span<const int32_t> nodes, int32_t pages);

  uint64_t evictions() const { return evictions_; }  // of units and pages from the pool

 private:
  void evict_from(int32_t tier);
  void evict_node(int32_t node, int32_t tier);
  bool demote(int32_t node, size_t slot);
  void move_down(int32_t node, size_t slot, TierPage to);
  bool is_worth_storing(int32_t node, int32_t tier) const;
  void prefetch_parents(int32_t node) const;

  PrefixTree& tree_;
  CachedUnits& units_;
  EvictionCandidates& candidates_;
  LowerTiers& tiers_;
  BlockPool& pool_;
  bool ahead_ = false;
  uint64_t evictions_ = 0;
};

}  // namespace headrace
