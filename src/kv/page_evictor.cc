#include "kv/page_evictor.h"

#include <optional>

namespace headrace {

void PageEvictor::page_idle(BlockId block) {
  const TierPage page{kPoolTier, block.value};
  const auto [node, slot] = units_.owner(page);
  candidates_.add_used(node, page, units_.is_sliding(static_cast<size_t>(slot)));
  units_.times().idle(block);
}

void PageEvictor::page_held(BlockId block) {
  const TierPage page{kPoolTier, block.value};
  const auto [node, slot] = units_.owner(page);
  candidates_.remove(node, page, units_.is_sliding(static_cast<size_t>(slot)));
}

// Frees at least one page of the tier. REQUIRES: something of it is loose
void PageEvictor::evict_from(int32_t tier) {
  const EvictionCandidates::Candidate candidate = candidates_.pop(tier);
  if (tier == kPoolTier) ++evictions_;
  if (candidate.node != PrefixTree::kNone) return evict_node(candidate.node, tier);
  const auto [node, slot] = units_.owner({tier, candidate.page});
  if (demote(node, static_cast<size_t>(slot))) return;
  tiers_.count_dropped();
  units_.drop_page(node, static_cast<size_t>(slot));
  units_.prune(node);
}

// Its full-attention pages go down together; where one cannot, the rest is of no use either.
void PageEvictor::evict_node(int32_t node, int32_t tier) {
  prefetch_parents(node);
  const uint32_t generation = tree_.at(node).generation;
  for (size_t slot = 0; slot < units_.slots().size(); ++slot) {
    const TierPage page = units_.pages_of(node)[slot];
    if (units_.is_sliding(slot) || page.none() || page.tier != tier || !units_.is_loose(page)) {
      continue;
    }
    if (!demote(node, slot)) {
      tiers_.count_dropped();
      if (!tree_.at(node).locked) return units_.remove_subtree(node);
      units_.drop_page(node, slot);
    }
    if (!tree_.is_current(node, generation)) return;
  }
}

// Moves a page to the tier below. True: it has left its tier. False: it stays, there is no place
// for it below, or it is not worth one.
bool PageEvictor::demote(int32_t node, size_t slot) {
  const TierPage from = units_.pages_of(node)[slot];
  const int32_t below = from.tier + 1;
  if (below > tiers_.lowest() || !is_worth_storing(node, below)) return false;
  const uint32_t generation = tree_.at(node).generation;
  if (!tiers_.has_room(below)) {
    if (candidates_.size(below) == 0) return false;
    evict_from(below);
    // The prefix that went may have been the beginning of this one.
    if (!tree_.is_current(node, generation)) return true;
  }
  const std::optional<int32_t> place = tiers_.allocate(below);
  if (!place) return false;
  move_down(node, slot, {below, *place});
  return true;
}

// A copy beside the step is a holder of its page until the step was applied.
void PageEvictor::move_down(int32_t node, size_t slot, TierPage to) {
  const TierPage from = units_.pages_of(node)[slot];
  const bool held = ahead_ && from.tier == kPoolTier;
  if (held) {
    units_.times().evicted(block_of(from));
    pool_.share(block_of(from));
  }
  units_.detach(node, slot);
  if (from.tier != kPoolTier) tiers_.release(from);
  units_.attach(node, slot, to);
  const int32_t group = units_.slots()[slot].group;
  if (!ahead_) return tiers_.store(group, from, to);
  tiers_.store_ahead(group, from, to);
  if (held) pool_.release(block_of(from), tiers_.step());
}

int32_t PageEvictor::evict_ahead(int32_t pages) {
  const int32_t before = pool_.idle_count();
  ahead_ = true;
  while (before - pool_.idle_count() < pages && candidates_.size(kPoolTier) > 0 &&
         !candidates_.first_is_pinned(kPoolTier)) {
    evict_from(kPoolTier);
  }
  ahead_ = false;
  return before - pool_.idle_count();
}

int32_t PageEvictor::store_ahead(std::span<const int32_t> nodes, int32_t pages) {
  int32_t stored = 0;
  ahead_ = true;
  for (size_t i = nodes.size(); i-- > 0 && stored < pages;) {
    const uint32_t generation = tree_.at(nodes[i]).generation;
    for (size_t slot = 0; slot < units_.slots().size(); ++slot) {
      const TierPage page = units_.pages_of(nodes[i])[slot];
      if (page.none() || page.tier != kPoolTier || !units_.is_loose(page)) continue;
      if (demote(nodes[i], slot)) ++stored;
      if (!tree_.is_current(nodes[i], generation)) break;
    }
  }
  ahead_ = false;
  return stored;
}

// Loading the unit's pages again against computing its tokens again.
bool PageEvictor::is_worth_storing(int32_t node, int32_t tier) const {
  return tree_.at(node).depth > 0 &&
         tiers_.is_worth_storing(tier, units_.slots().size(), tree_.unit_tokens());
}

// Most often the next to go is its parent, and then that one's: what their evictions read is
// fetched now. (A third of a step's time in the scheduler was waiting for it: of 30,000 pages
// nothing is in a near cache.)
void PageEvictor::prefetch_parents(int32_t node) const {
  const int32_t parent = tree_.at(node).parent;
  if (parent == PrefixTree::kNone) return;
  tree_.prefetch(tree_.at(parent).hash);
  for (TierPage page : units_.pages_of(parent)) {
    if (page.none()) continue;
    __builtin_prefetch(&units_.owner(page));
    if (page.tier == kPoolTier) pool_.prefetch(block_of(page));
  }
  const int32_t next = tree_.at(parent).parent;
  if (next == PrefixTree::kNone) return;
  __builtin_prefetch(&tree_.at(next));
  __builtin_prefetch(units_.pages_of(next).data());
}

}  // namespace headrace
