// Units of the prefix tree with their pages: which page, in which tier, belongs to which unit, and
// back. A unit has a page or a child, or it leaves the tree. A page is in one tier at a time; one
// of the pool is kept there (block_pool.h) for as long as a unit has it. Ids and counts only; one
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kv/block_pool.h"
#include "kv/eviction_candidates.h"
#include "kv/kv_group.h"
#include "kv/lower_tiers.h"
#include "kv/page_times.h"
#include "kv/prefix_tree.h"
#include "kv/tier_pool.h"

namespace headrace {

class CachedUnits {
 public:
  // Where a page of a unit belongs.
  struct Slot {
    int32_t group = 0;
    int32_t index = 0;  // in the unit
    bool sliding = false;
  };
  // What a page belongs to.
  struct Owner {
    int32_t node = PrefixTree::kNone;
    int32_t slot = 0;
  };

  // All of these outlive this object.
  CachedUnits(PrefixTree& tree, BlockPool& pool, LowerTiers& tiers, EvictionCandidates& candidates,
              std::span<const KvGroupSpec> groups, std::span<const int32_t> tier_pages);

  std::span<const Slot> slots() const { return slots_; }
  bool is_sliding(size_t slot) const { return slots_[slot].sliding; }
  // [slots()]; none() where the unit has no page.
  std::span<const TierPage> pages_of(int32_t node) const {
    return std::span(pages_).subspan(static_cast<size_t>(node) * slots_.size(), slots_.size());
  }
  const Owner& owner(TierPage page) const {
    return owners_[static_cast<size_t>(page.tier)][static_cast<size_t>(page.page)];
  }
  // Whether the page may go from where it is: nobody holds it.
  bool is_loose(TierPage page) const {
    return page.tier != kPoolTier || pool_.state(block_of(page)) == BlockState::kIdle;
  }
  // The last plan that loads a page of the unit.
  Ticket loaded_in(int32_t node) const { return loaded_in_[static_cast<size_t>(node)]; }
  void set_loaded_in(int32_t node, Ticket step) { loaded_in_[static_cast<size_t>(node)] = step; }

  // As PrefixTree::make_root() and add_child(); the new unit has no page yet.
  int32_t make_root(const PrefixKey& key);
  int32_t add_child(int32_t parent, TokenSpan unit, uint64_t hash);
  // The page is the unit's from now on. REQUIRES: the unit has none for the slot
  void attach(int32_t node, size_t slot, TierPage page);
  // The unit has it no longer. A page of the pool is its holders' alone, or free; that of another
  // tier is for the caller to release.
  void detach(int32_t node, size_t slot);
  // detach(), and a lower tier's page is released. Nothing where the unit has no page.
  void drop_page(int32_t node, size_t slot);
  // Removes the node if it has neither page nor child, and then its parents likewise.
  void prune(int32_t node);
  // Pages that are held stay with their holders. Prunes the parents.
  void remove_subtree(int32_t node);
  void change_pins(std::span<const int32_t> nodes, int32_t change);

  // Of pages of the pool: what was attached, used and given up, when. The caller tells the time,
  // and which are used.
  PageTimes& times() { return times_; }
  const PageTimes& times() const { return times_; }

  // What is wrong where counts, pages and candidates of the node do not agree; empty: nothing.
  std::string_view fault_of(int32_t node) const;

 private:
  static constexpr int32_t kNone = PrefixTree::kNone;

  PrefixTree::Node& at(int32_t node) { return tree_.at(node); }
  const PrefixTree::Node& at(int32_t node) const { return tree_.at(node); }
  TierPage& page_at(int32_t node, size_t slot) {
    return pages_[static_cast<size_t>(node) * slots_.size() + slot];
  }
  void set_owner(TierPage page, Owner owner) {
    owners_[static_cast<size_t>(page.tier)][static_cast<size_t>(page.page)] = owner;
  }
  void reset(int32_t node);
  void remove_node(int32_t node);
  std::string_view page_fault(int32_t node, size_t slot, TierPage page) const;
  std::string_view loose_fault(int32_t node, const std::array<int8_t, kTierCount>& loose) const;

  PrefixTree& tree_;
  BlockPool& pool_;
  LowerTiers& tiers_;
  EvictionCandidates& candidates_;
  std::vector<Slot> slots_;                 // [pages of a unit]
  std::vector<int32_t> pins_;               // [nodes]
  std::vector<Ticket> loaded_in_;           // [nodes]
  std::vector<TierPage> pages_;             // [nodes][slots]
  std::vector<std::vector<Owner>> owners_;  // [tiers, the pool first][pages]
  PageTimes times_;
};

}  // namespace headrace
