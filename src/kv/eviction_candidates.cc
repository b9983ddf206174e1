#include "kv/eviction_candidates.h"

namespace headrace {

EvictionCandidates::EvictionCandidates(PrefixTree& tree, EvictionRule rule,
                                       std::span<const int32_t> tier_pages)
    : tree_(tree), rule_(rule) {
  for (int32_t pages : tier_pages) queues_.emplace_back(tree.node_max() + pages);
}

void EvictionCandidates::add(int32_t node, TierPage page, bool sliding) {
  if (sliding) return push(node, page);
  change_loose(node, page.tier, 1);
}

void EvictionCandidates::remove(int32_t node, TierPage page, bool sliding) {
  if (sliding) return queue(page.tier).remove(handle(page));
  change_loose(node, page.tier, -1);
}

void EvictionCandidates::add_used(int32_t node, TierPage page, bool sliding) {
  ++tick_;
  if (!sliding) tree_.at(node).worth = worth_of(node);
  add(node, page, sliding);
}

void EvictionCandidates::forget(int32_t node) {
  for (EvictionQueue& queue : queues_) queue.remove(node);
}

void EvictionCandidates::update_pinned(int32_t node, std::span<const TierPage> pages) {
  for (int32_t tier = 0; tier < static_cast<int32_t>(queues_.size()); ++tier) {
    if (contains(node, tier)) update(node, tier);
  }
  for (TierPage page : pages) {
    if (!page.none() && contains(page)) push(node, page);
  }
}

EvictionCandidates::Candidate EvictionCandidates::pop(int32_t tier) {
  const int32_t handle = queue(tier).pop();
  if (handle < tree_.node_max()) return {.node = handle};
  return {.page = handle - tree_.node_max()};
}

double EvictionCandidates::worth_of(int32_t node) const {
  const PrefixTree::Node& n = tree_.at(node);
  return rule_({.tick = tick_,
                .hits = n.hits + 1,
                .position = (n.depth - 1) * tree_.unit_tokens(),
                .floor = queues_[kPoolTier].last_worth()});
}

void EvictionCandidates::push(int32_t node, TierPage page) {
  queue(page.tier).push(handle(page), {tree_.at(node).pinned, worth_of(node)});
}

void EvictionCandidates::change_loose(int32_t node, int32_t tier, int32_t change) {
  const auto t = static_cast<size_t>(tier);
  PrefixTree::Node& n = tree_.at(node);
  const bool before = n.loose[t] > 0;
  n.loose[t] = static_cast<int8_t>(n.loose[t] + change);
  const bool after = n.loose[t] > 0;
  update(node, tier);
  if (before == after || n.parent == PrefixTree::kNone) return;
  tree_.at(n.parent).loose_children[t] += after ? 1 : -1;
  update(n.parent, tier);
}

// A node may go from a tier when it would give pages there and no child would give any.
void EvictionCandidates::update(int32_t node, int32_t tier) {
  const PrefixTree::Node& n = tree_.at(node);
  const auto t = static_cast<size_t>(tier);
  if (n.loose[t] > 0 && n.loose_children[t] == 0) {
    queue(tier).push(node, {n.pinned, n.worth});
  } else {
    queue(tier).remove(node);
  }
}

}  // namespace headrace
