#include "kv/cached_units.h"

#include <utility>

#include "base/check.h"

namespace headrace {

CachedUnits::CachedUnits(PrefixTree& tree, BlockPool& pool, LowerTiers& tiers,
                         EvictionCandidates& candidates, std::span<const KvGroupSpec> groups,
                         std::span<const int32_t> tier_pages)
    : tree_(tree), pool_(pool), tiers_(tiers), candidates_(candidates), times_(tier_pages.front()) {
  for (int32_t pages : tier_pages) owners_.emplace_back(static_cast<size_t>(pages));
  for (size_t group = 0; group < groups.size(); ++group) {
    for (int32_t index = 0; index < tree.unit_tokens() / groups[group].block_tokens; ++index) {
      slots_.push_back(
          {static_cast<int32_t>(group), index, groups[group].kind == KvKind::kSliding});
    }
  }
  CHECK(slots_.size() <= INT8_MAX);
}

int32_t CachedUnits::make_root(const PrefixKey& key) {
  const int32_t nodes = tree_.count();
  const int32_t root = tree_.make_root(key);
  if (tree_.count() > nodes) reset(root);
  return root;
}

int32_t CachedUnits::add_child(int32_t parent, TokenSpan unit, uint64_t hash) {
  const int32_t child = tree_.add_child(parent, unit, hash);
  if (child != kNone) reset(child);
  return child;
}

// Of a node that was made just now; one that was in use before has left no page.
void CachedUnits::reset(int32_t node) {
  const auto n = static_cast<size_t>(node);
  if (n >= pins_.size()) {
    pins_.resize(n + 1);
    loaded_in_.resize(n + 1);
    pages_.resize((n + 1) * slots_.size());
  }
  pins_[n] = 0;
  loaded_in_[n] = Ticket();
}

void CachedUnits::attach(int32_t node, size_t slot, TierPage page) {
  page_at(node, slot) = page;
  set_owner(page, {node, static_cast<int32_t>(slot)});
  ++at(node).pages;
  if (page.tier == kPoolTier) {
    pool_.keep(block_of(page));
    times_.kept(block_of(page));
  } else {
    candidates_.add(node, page, is_sliding(slot));
  }
}

void CachedUnits::detach(int32_t node, size_t slot) {
  const TierPage page = std::exchange(page_at(node, slot), TierPage{});
  if (is_loose(page)) {
    candidates_.remove(node, page, is_sliding(slot));
    if (page.tier == kPoolTier) times_.evicted(block_of(page));
  }
  set_owner(page, {});
  if (page.tier == kPoolTier) pool_.forget(block_of(page));
  --at(node).pages;
}

void CachedUnits::drop_page(int32_t node, size_t slot) {
  const TierPage page = page_at(node, slot);
  if (page.none()) return;
  detach(node, slot);
  if (page.tier != kPoolTier) tiers_.release(page);
}

void CachedUnits::prune(int32_t node) {
  while (node != kNone && at(node).pages == 0 && at(node).first_child == kNone &&
         !at(node).locked) {
    const int32_t parent = at(node).parent;
    remove_node(node);
    node = parent;
  }
}

void CachedUnits::remove_subtree(int32_t node) {
  const int32_t parent = at(node).parent;
  // Down to a leaf, remove it, and on from its parent.
  int32_t current = node;
  while (true) {
    if (at(current).first_child != kNone) {
      current = at(current).first_child;
      continue;
    }
    const int32_t up = at(current).parent;
    remove_node(current);
    if (current == node) break;
    current = up;
  }
  if (parent != kNone) prune(parent);
}

// REQUIRES: no child
void CachedUnits::remove_node(int32_t node) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) drop_page(node, slot);
  candidates_.forget(node);
  tree_.remove(node);
}

void CachedUnits::change_pins(std::span<const int32_t> nodes, int32_t change) {
  for (int32_t node : nodes) {
    at(node).pinned = (pins_[static_cast<size_t>(node)] += change) > 0;
    candidates_.update_pinned(node, pages_of(node));
  }
}

// --- checks

std::string_view CachedUnits::fault_of(int32_t node) const {
  const PrefixTree::Node& n = at(node);
  const std::span<const TierPage> own = pages_of(node);
  int32_t pages = 0;
  std::array<int8_t, kTierCount> loose{};
  for (size_t slot = 0; slot < own.size(); ++slot) {
    const TierPage page = own[slot];
    if (page.none()) continue;
    ++pages;
    if (!is_sliding(slot) && is_loose(page)) ++loose[static_cast<size_t>(page.tier)];
    const std::string_view fault = page_fault(node, slot, page);
    if (!fault.empty()) return fault;
  }
  if (pages != n.pages) return "has another number of pages than it counts";
  if (pages == 0 && n.first_child == kNone) return "holds nothing";
  if (n.locked) return "is locked";
  if (n.pinned != (pins_[static_cast<size_t>(node)] > 0)) return "is wrong about its pins";
  return loose_fault(node, loose);
}

std::string_view CachedUnits::page_fault(int32_t node, size_t slot, TierPage page) const {
  if (owner(page).node != node || owner(page).slot != static_cast<int32_t>(slot)) {
    return "has a page that belongs to another";
  }
  if (page.tier == kPoolTier) {
    const BlockState state = pool_.state(block_of(page));
    if (!pool_.is_kept(block_of(page)) || state == BlockState::kFilling ||
        state == BlockState::kFree) {
      return "has a page that is not kept, or not published";
    }
  }
  if (is_sliding(slot) && is_loose(page) != candidates_.contains(page)) {
    return "has a sliding page that is wrong in the queue";
  }
  return {};
}

// `loose`: the node's loose full-attention pages of each tier. It counts them and its children that
// have some, and is a candidate accordingly.
std::string_view CachedUnits::loose_fault(int32_t node,
                                          const std::array<int8_t, kTierCount>& loose) const {
  const PrefixTree::Node& n = at(node);
  std::array<int32_t, kTierCount> loose_children{};
  for (int32_t child = n.first_child; child != kNone; child = at(child).next) {
    for (size_t tier = 0; tier < kTierCount; ++tier) {
      loose_children[tier] += at(child).loose[tier] > 0 ? 1 : 0;
    }
  }
  if (loose != n.loose || loose_children != n.loose_children) {
    return "counts loose pages wrongly";
  }
  for (int32_t tier = 0; tier <= tiers_.lowest(); ++tier) {
    const auto t = static_cast<size_t>(tier);
    if (candidates_.contains(node, tier) != (loose[t] > 0 && loose_children[t] == 0)) {
      return "is wrong in the queue of a tier";
    }
  }
  return {};
}

}  // namespace headrace
