#include "kv/cached_units.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {

CachedUnits::CachedUnits(PrefixTree& tree, BlockPool& pool, LowerTiers& tiers,
                         EvictionCandidates& candidates, std::span<const KvGroupSpec> groups,
                         std::span<const int32_t> tier_pages)
    : tree_(tree), pool_(pool), tiers_(tiers), candidates_(candidates) {
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
  } else {
    candidates_.add(node, page, is_sliding(slot));
  }
}

void CachedUnits::detach(int32_t node, size_t slot) {
  const TierPage page = std::exchange(page_at(node, slot), TierPage{});
  if (is_loose(page)) candidates_.remove(node, page, is_sliding(slot));
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

Status CachedUnits::check_node(int32_t node) const {
  const PrefixTree::Node& n = at(node);
  int32_t pages = 0;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (pages_of(node)[slot].none()) continue;
    ++pages;
    HR_RETURN_IF_ERROR(check_page(node, slot));
  }
  if (pages != n.pages || n.locked) {
    return internal_error(
        fmt::format("node {} counts {} pages, has {}; or is locked", node, n.pages, pages));
  }
  if (n.pinned != (pins_[static_cast<size_t>(node)] > 0)) {
    return internal_error(
        fmt::format("node {} has {} pins", node, pins_[static_cast<size_t>(node)]));
  }
  if (pages == 0 && n.first_child == kNone) {
    return internal_error(fmt::format("node {} holds nothing", node));
  }
  return check_loose(node);
}

Status CachedUnits::check_page(int32_t node, size_t slot) const {
  const TierPage page = pages_of(node)[slot];
  if (owner(page).node != node || owner(page).slot != static_cast<int32_t>(slot)) {
    return internal_error(
        fmt::format("page {} of tier {} is in node {} and not its", page.page, page.tier, node));
  }
  if (page.tier == kPoolTier) {
    const BlockState state = pool_.state(block_of(page));
    if (!pool_.is_kept(block_of(page)) || state == BlockState::kFilling ||
        state == BlockState::kFree) {
      return internal_error(
          fmt::format("page {} can be found and is not kept, or not published", page.page));
    }
  }
  if (is_sliding(slot) && is_loose(page) != candidates_.contains(page)) {
    return internal_error(
        fmt::format("sliding page {} of tier {} is wrong in the queue", page.page, page.tier));
  }
  return ok_status();
}

// The node's loose pages and children are as it counts them, and it is a candidate accordingly.
Status CachedUnits::check_loose(int32_t node) const {
  const PrefixTree::Node& n = at(node);
  std::array<int8_t, kTierCount> loose{};
  std::array<int32_t, kTierCount> loose_children{};
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const TierPage page = pages_of(node)[slot];
    if (page.none() || is_sliding(slot) || !is_loose(page)) continue;
    ++loose[static_cast<size_t>(page.tier)];
  }
  for (int32_t child = n.first_child; child != kNone; child = at(child).next) {
    for (size_t tier = 0; tier < kTierCount; ++tier) {
      loose_children[tier] += at(child).loose[tier] > 0 ? 1 : 0;
    }
  }
  if (loose != n.loose || loose_children != n.loose_children) {
    return internal_error(fmt::format("node {} counts its loose pages wrongly", node));
  }
  for (int32_t tier = 0; tier <= tiers_.lowest(); ++tier) {
    const auto t = static_cast<size_t>(tier);
    if (candidates_.contains(node, tier) != (loose[t] > 0 && loose_children[t] == 0)) {
      return internal_error(fmt::format("node {} is wrong in the queue of tier {}", node, tier));
    }
  }
  return ok_status();
}

}  // namespace headrace
