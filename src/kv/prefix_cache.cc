#include "kv/prefix_cache.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {
namespace {

// Tokens that all groups' pages divide.
int32_t common_unit(std::span<const KvGroupSpec> groups) {
  int32_t unit = 1;
  for (const KvGroupSpec& group : groups) unit = std::lcm(unit, group.block_tokens);
  return unit;
}

// [tiers, the pool first]
std::vector<int32_t> pages_per_tier(const BlockPool& pool, std::span<const TierSpec> tiers) {
  std::vector<int32_t> pages = {pool.total()};
  for (const TierSpec& tier : tiers) pages.push_back(tier.pages);
  return pages;
}

// A node has a page or a child; a root has a child.
int32_t nodes_for(std::span<const int32_t> tier_pages) {
  return 2 * std::accumulate(tier_pages.begin(), tier_pages.end(), 0) + 1;
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, std::span<const KvGroupSpec> groups,
                         PrefixCacheOptions options)
    : pool_(pool),
      groups_(groups),
      tree_(common_unit(groups), nodes_for(pages_per_tier(pool, options.tiers)), options.hash_mask),
      tiers_(options.tiers),
      candidates_(tree_, options.rule, pages_per_tier(pool, options.tiers)),
      units_(tree_, pool, tiers_, candidates_, groups, pages_per_tier(pool, options.tiers)),
      states_(tree_, options.checkpoints.value_or(0)),
      finder_(tree_, units_, tiers_, groups, options.checkpoints ? &states_ : nullptr),
      evictor_(tree_, units_, candidates_, tiers_, pool) {
  pool_.set_keeper(&evictor_);
}

// Pages in lower tiers leave their place before any page is allocated: to make room the pool may
// store others there.
PrefixHold PrefixCache::acquire(const PrefixMatch& match) {
  struct Load {
    size_t table, entry;  // in hold.pages
    int32_t node;
    size_t slot;
    TierPage from;
  };
  PrefixHold hold;
  std::vector<Load> loads;
  for (int32_t node : match.nodes) {
    ++tree_.at(node).hits;
    tree_.at(node).locked = true;
  }
  finder_.for_each_page(
      match.tokens, match.nodes, [&](int32_t group, int32_t index, int32_t node, size_t slot) {
        if (hold.pages.empty() || hold.pages.back().group != group) {
          hold.pages.push_back({group, index, {}});
        }
        std::vector<BlockId>& blocks = hold.pages.back().blocks;
        const TierPage place = units_.pages_of(node)[slot];
        hold.usable_after = std::max(hold.usable_after, units_.loaded_in(node));
        blocks.push_back(place.tier == kPoolTier ? block_of(place) : kNoBlock);
        if (place.tier == kPoolTier) units_.times().used(block_of(place));
        if (place.tier == kPoolTier) return pool_.share(block_of(place));
        loads.push_back({hold.pages.size() - 1, blocks.size() - 1, node, slot, place});
        units_.detach(node, slot);
      });
  for (const Load& load : loads) {
    const std::optional<BlockId> block = pool_.allocate();
    CHECK_MSG(block.has_value(), "acquire() without enough free pages");
    pool_.publish(*block);
    const TierPage to{kPoolTier, block->value};
    units_.attach(load.node, load.slot, to);
    units_.set_loaded_in(load.node, tiers_.step());
    hold.usable_after = tiers_.step();
    hold.pages[load.table].blocks[load.entry] = *block;
    tiers_.load(units_.slots()[load.slot].group, load.from, to);
  }
  for (int32_t node : match.nodes) tree_.at(node).locked = false;
  PrefixPath& path = hold.path;
  path.units = match.tokens / tree_.unit_tokens();
  if (path.units == 0) return hold;
  path.node = match.nodes[static_cast<size_t>(path.units) - 1];
  path.generation = tree_.at(path.node).generation;
  hold.checkpoint = states_.of(path.node);
  states_.note_use(path.node);
  units_.prune(match.nodes.back());
  return hold;
}

// --- growing

void PrefixCache::extend(const PrefixKey& key, PrefixPath& path, TokenSpan units,
                         const SequenceBlocks& blocks) {
  const auto unit = static_cast<size_t>(tree_.unit_tokens());
  CHECK(!units.empty() && units.size() % unit == 0);
  if (path.lost) return;
  const int32_t parent = path.units == 0 ? units_.make_root(key) : path.node;
  if (parent == kNone || (path.units > 0 && tree_.at(parent).generation != path.generation)) {
    path.lost = true;
    return;
  }
  path.node = parent;
  path.generation = tree_.at(parent).generation;
  uint64_t hash = tree_.hash_of(tree_.at(parent).hash, units.first(unit));
  for (size_t first = 0; first < units.size() && !path.lost; first += unit) {
    const uint64_t own = hash;
    if (first + unit < units.size()) {
      hash = tree_.hash_of(own, units.subspan(first + unit, unit));
      tree_.prefetch(hash);
    }
    extend_unit(path, units.subspan(first, unit), own, blocks);
  }
}

void PrefixCache::extend_unit(PrefixPath& path, TokenSpan unit, uint64_t hash,
                              const SequenceBlocks& blocks) {
  const int32_t parent = path.node;
  if (!tree_.is_current(parent, path.generation)) {
    path.lost = true;
    return;
  }
  int32_t node = tree_.find_child(parent, unit, hash);
  if (node == kNone) node = units_.add_child(parent, unit, hash);
  if (node == kNone) {
    path.lost = true;
    units_.prune(parent);
    return;
  }
  path = {.node = node, .generation = tree_.at(node).generation, .units = path.units + 1};
  fill_pages(node, blocks);
  units_.prune(node);
}

// Gives the node those of the sequence's pages that it lacks, or has in a lower tier.
void PrefixCache::fill_pages(int32_t node, const SequenceBlocks& blocks) {
  for (size_t slot = 0; slot < units_.slots().size(); ++slot) {
    const CachedUnits::Slot& place = units_.slots()[slot];
    const TierPage own = units_.pages_of(node)[slot];
    if (!own.none() && own.tier == kPoolTier) continue;
    const int32_t per_unit =
        tree_.unit_tokens() / groups_[static_cast<size_t>(place.group)].block_tokens;
    const auto index = static_cast<size_t>((tree_.at(node).depth - 1) * per_unit + place.index);
    const std::span<const BlockId> held = blocks.blocks(place.group);
    if (index >= held.size() || held[index] == kNoBlock) continue;
    const BlockId page = held[index];
    if (pool_.state(page) != BlockState::kPublished || pool_.is_kept(page)) continue;
    units_.drop_page(node, slot);
    units_.attach(node, slot, {kPoolTier, page.value});
  }
}

std::optional<AttachedCheckpoint> PrefixCache::attach_checkpoint(CheckpointId checkpoint,
                                                                 const PrefixPath& path,
                                                                 int32_t tokens) {
  PrefixPath unit = path;
  const bool there = !path.lost && path.units * unit_tokens() >= tokens &&
                     tree_.is_current(path.node, path.generation);
  if (!there) {
    states_.give_back(checkpoint);
    return std::nullopt;
  }
  for (; unit.units * unit_tokens() > tokens; --unit.units) unit.node = tree_.at(unit.node).parent;
  return states_.attach(checkpoint, unit.node);
}

void PrefixCache::forget_from(PrefixPath& path, int32_t units) {
  const bool there = path.node != kNone && tree_.is_current(path.node, path.generation);
  if (there && units < path.units) {
    int32_t node = path.node;
    while (tree_.at(node).depth > units + 1) node = tree_.at(node).parent;
    units_.remove_subtree(node);
  }
  path.lost = true;
}

int32_t PrefixCache::units_of_checkpoint_before(const PrefixPath& path, int32_t units) const {
  const bool there = path.node != kNone && tree_.is_current(path.node, path.generation);
  if (!there) return units;
  int32_t node = path.node;
  while (tree_.at(node).depth > 0 && (tree_.at(node).depth >= units || !states_.of(node))) {
    node = tree_.at(node).parent;
  }
  return tree_.at(node).depth;
}

void PrefixCache::clear() {
  for (int32_t root = tree_.any_root(); root != kNone; root = tree_.any_root()) {
    units_.remove_subtree(root);
  }
}

void PrefixCache::unpin(const PrefixKey& key, TokenSpan tokens) {
  std::vector<int32_t> nodes;
  int32_t node = tree_.find_root(key);
  const auto unit = static_cast<size_t>(tree_.unit_tokens());
  for (size_t first = 0; node != kNone && first + unit <= tokens.size(); first += unit) {
    node = tree_.find_child(node, tokens.subspan(first, unit));
    if (node != kNone && tree_.at(node).pinned) nodes.push_back(node);
  }
  units_.change_pins(nodes, -1);
}

// --- saving and restoring

std::vector<KeptUnit> PrefixCache::kept_units() const {
  std::vector<KeptUnit> units;
  struct Next {
    int32_t node, parent;
  };
  for (const PrefixTree::Root& root : tree_.roots()) {
    std::vector<Next> next;
    const auto add_children = [&](int32_t node, int32_t index) {
      for (int32_t child = tree_.at(node).first_child; child != kNone;
           child = tree_.at(child).next) {
        next.push_back({child, index});
      }
    };
    add_children(root.node, -1);
    while (!next.empty()) {
      const auto [node, parent] = next.back();
      next.pop_back();
      KeptUnit unit{.parent = parent,
                    .salt = root.salt,
                    .adapter = root.adapter,
                    .arithmetic = root.arithmetic};
      const TokenSpan tokens = tree_.tokens_of(node);
      unit.tokens.assign(tokens.begin(), tokens.end());
      for (size_t slot = 0; slot < units_.slots().size(); ++slot) {
        const TierPage page = units_.pages_of(node)[slot];
        if (!page.none()) unit.pages.push_back({static_cast<int32_t>(slot), page});
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
      tokens.size() == static_cast<size_t>(unit_tokens()) &&
      std::adjacent_find(slots.begin(), slots.end(), std::greater_equal<>()) == slots.end() &&
      (slots.empty() ||
       (slots.front() >= 0 && static_cast<size_t>(slots.back()) < units_.slots().size()));
  if (!makes_sense || slots.size() > unused) return std::nullopt;
  if (parent < 0) parent = units_.make_root(key);
  if (parent == kNone || tree_.find_child(parent, tokens) != kNone) return std::nullopt;
  const int32_t node =
      units_.add_child(parent, tokens, tree_.hash_of(tree_.at(parent).hash, tokens));
  if (node == kNone) {
    units_.prune(parent);
    return std::nullopt;
  }
  RestoredUnit unit{.node = node, .pages = {}};
  for (int32_t slot : slots) {
    const BlockId page = pool_.allocate().value();
    pool_.publish(page);
    units_.attach(node, static_cast<size_t>(slot), {kPoolTier, page.value});
    unit.pages.push_back(page);
  }
  for (BlockId page : unit.pages) pool_.release(page, Ticket());
  return unit;
}

// --- checks

Status PrefixCache::check_invariants() const {
  int32_t nodes = 0;
  std::vector<int32_t> candidates(static_cast<size_t>(tiers_.lowest()) + 1);
  std::vector<int32_t> kept(candidates.size());
  for (int32_t node = 0; node < tree_.end(); ++node) {
    if (!tree_.at(node).used) continue;
    ++nodes;
    std::string_view fault = tree_.fault_of(node);
    if (fault.empty()) fault = units_.fault_of(node);
    if (!fault.empty()) return internal_error(fmt::format("node {} {}", node, fault));
    for (TierPage page : units_.pages_of(node)) {
      if (page.none()) continue;
      ++kept[static_cast<size_t>(page.tier)];
      candidates[static_cast<size_t>(page.tier)] += candidates_.contains(page) ? 1 : 0;
    }
    for (size_t tier = 0; tier < candidates.size(); ++tier) {
      candidates[tier] += candidates_.contains(node, static_cast<int32_t>(tier)) ? 1 : 0;
    }
  }
  if (nodes != tree_.count()) {
    return internal_error(fmt::format("{} nodes, {} are counted", nodes, tree_.count()));
  }
  for (size_t tier = 0; tier < candidates.size(); ++tier) {
    const int32_t queued = candidates_.size(static_cast<int32_t>(tier));
    if (candidates[tier] != queued) {
      return internal_error(fmt::format("{} things of tier {} may go, {} are queued",
                                        candidates[tier], tier, queued));
    }
  }
  return check_tiers(kept);
}

// `kept`: pages that units have in each tier.
Status PrefixCache::check_tiers(std::span<const int32_t> kept) const {
  int32_t kept_in_pool = 0;
  for (int32_t page = 0; page < pool_.total(); ++page) {
    kept_in_pool += pool_.is_kept(BlockId(page)) ? 1 : 0;
  }
  if (kept_in_pool != kept[kPoolTier]) {
    return internal_error(
        fmt::format("the pool keeps {} pages, the tree has {}", kept_in_pool, kept[kPoolTier]));
  }
  for (int32_t tier = 1; tier <= tiers_.lowest(); ++tier) {
    const int32_t pages = kept[static_cast<size_t>(tier)];
    if (pages_in_tier(tier) != pages) {
      return internal_error(
          fmt::format("tier {} holds {} pages, the tree has {}", tier, pages_in_tier(tier), pages));
    }
  }
  return ok_status();
}

Status PrefixCache::check_path(const PrefixPath& path, TokenSpan tokens) const {
  if (path.lost || path.units == 0) return ok_status();
  if (!tree_.is_current(path.node, path.generation)) return ok_status();  // lost, not noticed yet
  int32_t node = path.node;
  for (int32_t unit = path.units - 1; unit >= 0; --unit, node = tree_.at(node).parent) {
    const auto size = static_cast<size_t>(unit_tokens());
    const TokenSpan own = tokens.subspan(static_cast<size_t>(unit) * size, size);
    if (!std::equal(own.begin(), own.end(), tree_.tokens_of(node).begin())) {
      return internal_error(
          fmt::format("node {} holds other tokens than unit {} of its sequence", node, unit));
    }
  }
  return ok_status();
}

}  // namespace headrace
