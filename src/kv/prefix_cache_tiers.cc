// What leaves the pool and where it goes: candidates, eviction, tiers.
#include <algorithm>
#include <functional>
#include <string>

#include "base/check.h"
#include "kv/prefix_cache.h"

namespace headrace {

double PrefixCache::worth_of(int32_t node) const {
  return options_.rule({.tick = tick_,
                        .hits = at(node).hits + 1,
                        .position = (at(node).depth - 1) * unit_tokens_,
                        .floor = queues_[kPoolTier].last_worth()});
}

// Whether a page may go from where it is: nobody holds it.
bool PrefixCache::is_loose(TierPage place) const {
  return place.tier != kPoolTier || pool_.state(block_of(place)) == BlockState::kIdle;
}

void PrefixCache::page_idle(BlockId block) {
  const TierPage place{kPoolTier, block.value};
  const auto [node, slot] = owner(place);
  ++tick_;
  if (is_sliding(static_cast<size_t>(slot))) {
    queue(kPoolTier).push(page_handle(place), {at(node).pinned, worth_of(node)});
  } else {
    at(node).worth = worth_of(node);
    note_loose(node, kPoolTier, 1);
  }
}

void PrefixCache::page_held(BlockId block) {
  const TierPage place{kPoolTier, block.value};
  const auto [node, slot] = owner(place);
  if (is_sliding(static_cast<size_t>(slot))) {
    queue(kPoolTier).remove(page_handle(place));
  } else {
    note_loose(node, kPoolTier, -1);
  }
}

void PrefixCache::note_loose(int32_t node, int32_t tier, int32_t change) {
  const auto t = static_cast<size_t>(tier);
  const bool before = at(node).loose[t] > 0;
  at(node).loose[t] = static_cast<int8_t>(at(node).loose[t] + change);
  const bool after = at(node).loose[t] > 0;
  update_candidate(node, tier);
  const int32_t parent = at(node).parent;
  if (before == after || parent == kNone) return;
  at(parent).loose_children[t] += after ? 1 : -1;
  update_candidate(parent, tier);
}

// A node may go from a tier when it would give pages there and no child would give any.
void PrefixCache::update_candidate(int32_t node, int32_t tier) {
  const Node& n = at(node);
  const auto t = static_cast<size_t>(tier);
  if (n.loose[t] > 0 && n.loose_children[t] == 0) {
    queue(tier).push(node, {n.pinned, n.worth});
  } else {
    queue(tier).remove(node);
  }
}

// Frees at least one page of the tier. REQUIRES: something of it is loose
void PrefixCache::evict_from(int32_t tier) {
  const int32_t handle = queue(tier).pop();
  if (tier == kPoolTier) ++evictions_;
  if (handle < node_max_) return evict_node(handle, tier);
  const auto [node, slot] = owner({tier, handle - node_max_});
  if (demote(node, static_cast<size_t>(slot))) return;
  ++tier_counts_.dropped;
  drop_page(node, static_cast<size_t>(slot));
  prune(node);
}

// Most often the next to go is its parent, and then that one's: what their evictions read is
// fetched now. (A third of a step's time in the scheduler was waiting for it: of 30,000 pages
// nothing is in a near cache.)
void PrefixCache::prefetch_parents(int32_t node) const {
  const int32_t parent = at(node).parent;
  if (parent == kNone) return;
  prefetch_table(at(parent).hash);
  for (TierPage place : pages_of(parent)) {
    if (place.none()) continue;
    __builtin_prefetch(&owner(place));
    if (place.tier == kPoolTier) pool_.prefetch(block_of(place));
  }
  const int32_t next = at(parent).parent;
  if (next == kNone) return;
  __builtin_prefetch(&at(next));
  __builtin_prefetch(pages_of(next).data());
}

// Its full-attention pages go down together; where one cannot, the rest is of no use either.
void PrefixCache::evict_node(int32_t node, int32_t tier) {
  prefetch_parents(node);
  const uint32_t generation = at(node).generation;
  for (size_t slot = 0; slot < page_slots_.size(); ++slot) {
    const TierPage place = pages_of(node)[slot];
    if (is_sliding(slot) || place.none() || place.tier != tier || !is_loose(place)) continue;
    if (!demote(node, slot)) {
      ++tier_counts_.dropped;
      if (!at(node).locked) return remove_subtree(node);
      drop_page(node, slot);
    }
    if (!at(node).used || at(node).generation != generation) return;
  }
}

// Moves a page to the tier below. True: it has left its tier. False: it stays, there is no place
// for it below, or it is not worth one.
bool PrefixCache::demote(int32_t node, size_t slot) {
  const TierPage from = pages_of(node)[slot];
  const int32_t below = from.tier + 1;
  if (below > lowest_tier() || !is_worth_storing(node, below)) return false;
  const uint32_t generation = at(node).generation;
  if (!tier(below).has_room(step_)) {
    if (queue(below).size() == 0) return false;
    evict_from(below);
    // The prefix that went may have been the beginning of this one.
    if (!at(node).used || at(node).generation != generation) return true;
  }
  const std::optional<int32_t> page = tier(below).allocate(step_);
  if (!page) return false;
  const TierPage to{below, *page};
  detach(node, slot);
  if (from.tier != kPoolTier) tier(from.tier).release(from.page);
  attach(node, slot, to);
  moves_.stores.push_back({page_slots_[slot].group, from, to});
  ++tier_counts_.stored;
  return true;
}

// Loading the unit's pages again against computing its tokens again.
bool PrefixCache::is_worth_storing(int32_t node, int32_t tier) const {
  if (at(node).depth == 0) return false;
  if (seconds_per_token_ <= 0) return true;
  const double load = options_.tiers[static_cast<size_t>(tier) - 1].seconds_per_page *
                      static_cast<double>(page_slots_.size());
  return load < seconds_per_token_ * unit_tokens_;
}

// --- saving and restoring

std::vector<KeptUnit> PrefixCache::kept_units() const {
  std::vector<KeptUnit> units;
  struct Next {
    int32_t node, parent;
  };
  for (const auto& [root, name] : root_names_) {
    const size_t colon = name.find(':');
    const uint64_t adapter = std::stoull(name.substr(0, colon));
    std::vector<Next> next;
    const auto add_children = [&](int32_t node, int32_t index) {
      for (int32_t child = at(node).first_child; child != kNone; child = at(child).next) {
        next.push_back({child, index});
      }
    };
    add_children(root, -1);
    while (!next.empty()) {
      const auto [node, parent] = next.back();
      next.pop_back();
      KeptUnit unit{.parent = parent, .salt = name.substr(colon + 1), .adapter = adapter};
      const TokenSpan tokens = tokens_of(node);
      unit.tokens.assign(tokens.begin(), tokens.end());
      for (size_t slot = 0; slot < page_slots_.size(); ++slot) {
        const TierPage place = pages_of(node)[slot];
        if (!place.none()) unit.pages.push_back({static_cast<int32_t>(slot), place});
      }
      add_children(node, static_cast<int32_t>(units.size()));
      units.push_back(std::move(unit));
    }
  }
  return units;
}

std::optional<RestoredUnit> PrefixCache::restore_unit(const PrefixKey& key, int32_t parent,
                                                      TokenSpan tokens,
                                                      std::span<const int32_t> slots) {
  const auto unused = static_cast<size_t>(pool_.free_count() - pool_.idle_count());
  const bool makes_sense =
      tokens.size() == static_cast<size_t>(unit_tokens_) &&
      std::adjacent_find(slots.begin(), slots.end(), std::greater_equal<>()) == slots.end() &&
      (slots.empty() ||
       (slots.front() >= 0 && static_cast<size_t>(slots.back()) < page_slots_.size()));
  if (!makes_sense || slots.size() > unused) return std::nullopt;
  if (parent < 0) parent = make_root(key);
  if (parent == kNone || find_child(parent, tokens) != kNone) return std::nullopt;
  const int32_t node = add_child(parent, tokens, hash_of(at(parent).hash, tokens));
  if (node == kNone) {
    prune(parent);
    return std::nullopt;
  }
  RestoredUnit unit{.node = node, .pages = {}};
  for (int32_t slot : slots) {
    const BlockId page = pool_.allocate().value();
    pool_.publish(page);
    attach(node, static_cast<size_t>(slot), {kPoolTier, page.value});
    unit.pages.push_back(page);
  }
  for (BlockId page : unit.pages) pool_.release(page, Ticket());
  return unit;
}

int32_t PrefixCache::pages_in_tier(int32_t tier) const {
  if (tier > lowest_tier()) return 0;
  const TierPool& pages = tiers_[static_cast<size_t>(tier) - 1];
  return pages.total() - pages.free_count();
}

}  // namespace headrace
