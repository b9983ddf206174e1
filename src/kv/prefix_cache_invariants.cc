// check_invariants() and check_path(): read everything, change nothing.
#include <algorithm>

#include <fmt/format.h>

#include "kv/prefix_cache.h"

namespace headrace {
namespace {

template <class... Args>
Status broken(fmt::format_string<Args...> format, Args&&... args) {
  return internal_error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

Status PrefixCache::check_invariants() const {
  int32_t nodes = 0;
  std::array<int32_t, kTierCount> candidates{}, kept{};
  for (int32_t node = 0; node < static_cast<int32_t>(nodes_.size()); ++node) {
    if (!at(node).used) continue;
    ++nodes;
    HR_RETURN_IF_ERROR(check_node(node));
    for (TierPage place : pages_of(node)) {
      if (place.none()) continue;
      const auto tier = static_cast<size_t>(place.tier);
      ++kept[tier];
      candidates[tier] += queues_[tier].contains(page_handle(place)) ? 1 : 0;
    }
    for (size_t tier = 0; tier < queues_.size(); ++tier) {
      candidates[tier] += queues_[tier].contains(node) ? 1 : 0;
    }
  }
  if (nodes != node_count_) return broken("{} nodes, {} are counted", nodes, node_count_);
  for (size_t tier = 0; tier < queues_.size(); ++tier) {
    if (candidates[tier] != queues_[tier].size()) {
      return broken("{} things of tier {} may go, {} are queued", candidates[tier], tier,
                    queues_[tier].size());
    }
  }
  int32_t kept_in_pool = 0;
  for (int32_t page = 0; page < pool_.total(); ++page) {
    kept_in_pool += pool_.is_kept(BlockId(page)) ? 1 : 0;
  }
  if (kept_in_pool != kept[kPoolTier]) {
    return broken("the pool keeps {} pages, the tree has {}", kept_in_pool, kept[kPoolTier]);
  }
  for (size_t tier = 1; tier < queues_.size(); ++tier) {
    if (pages_in_tier(static_cast<int32_t>(tier)) != kept[tier]) {
      return broken("tier {} holds {} pages, the tree has {}", tier,
                    pages_in_tier(static_cast<int32_t>(tier)), kept[tier]);
    }
  }
  return ok_status();
}

Status PrefixCache::check_node(int32_t node) const {
  const Node& n = at(node);
  int32_t pages = 0;
  std::array<int8_t, kTierCount> loose{};
  std::array<int32_t, kTierCount> loose_children{};
  for (size_t slot = 0; slot < page_slots_.size(); ++slot) {
    const TierPage place = pages_of(node)[slot];
    if (place.none()) continue;
    ++pages;
    if (owner(place).node != node || owner(place).slot != static_cast<int32_t>(slot)) {
      return broken("page {} of tier {} is in node {} and not its", place.page, place.tier, node);
    }
    if (place.tier == kPoolTier) {
      const BlockState state = pool_.state(block_of(place));
      if (!pool_.is_kept(block_of(place)) || state == BlockState::kFilling ||
          state == BlockState::kFree) {
        return broken("page {} can be found and is not kept, or not published", place.page);
      }
    }
    const auto tier = static_cast<size_t>(place.tier);
    if (!is_sliding(slot)) {
      if (is_loose(place)) ++loose[tier];
    } else if (is_loose(place) != queues_[tier].contains(page_handle(place))) {
      return broken("sliding page {} of tier {} is wrong in the queue", place.page, place.tier);
    }
  }
  for (int32_t child = n.first_child; child != kNone; child = at(child).next) {
    for (size_t tier = 0; tier < kTierCount; ++tier) {
      loose_children[tier] += at(child).loose[tier] > 0 ? 1 : 0;
    }
    if (!at(child).used || at(child).parent != node || at(child).depth != n.depth + 1) {
      return broken("node {} is not a child of {}", child, node);
    }
  }
  if (pages != n.pages || n.locked || loose != n.loose || loose_children != n.loose_children) {
    return broken("node {} counts {} pages, has {}; or is locked, or its loose pages are wrong",
                  node, n.pages, pages);
  }
  if (n.pinned != (pins_of_[static_cast<size_t>(node)] > 0)) {
    return broken("node {} has {} pins", node, pins_of_[static_cast<size_t>(node)]);
  }
  if (pages == 0 && n.first_child == kNone) return broken("node {} holds nothing", node);
  for (size_t tier = 0; tier < queues_.size(); ++tier) {
    if (queues_[tier].contains(node) != (loose[tier] > 0 && loose_children[tier] == 0)) {
      return broken("node {} is wrong in the queue of tier {}", node, tier);
    }
  }
  if (n.parent != kNone && find_child(n.parent, tokens_of(node)) != node) {
    return broken("node {} is not found", node);
  }
  return ok_status();
}

Status PrefixCache::check_path(const PrefixPath& path, TokenSpan tokens) const {
  if (path.lost || path.units == 0) return ok_status();
  const Node* n = &at(path.node);
  if (!n->used || n->generation != path.generation) return ok_status();  // lost, not noticed yet
  int32_t node = path.node;
  for (int32_t unit = path.units - 1; unit >= 0; --unit, node = at(node).parent) {
    const auto first = static_cast<size_t>(unit) * static_cast<size_t>(unit_tokens_);
    const TokenSpan own = tokens.subspan(first, static_cast<size_t>(unit_tokens_));
    if (!std::equal(own.begin(), own.end(), tokens_of(node).begin())) {
      return broken("node {} holds other tokens than unit {} of its sequence", node, unit);
    }
  }
  return ok_status();
}

}  // namespace headrace
