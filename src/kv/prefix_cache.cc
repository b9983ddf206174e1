#include "kv/prefix_cache.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "base/rng.h"

namespace headrace {
namespace {

// Children of a node that are compared with a prompt's rest for a partial hit, newest first.
constexpr int kPartialCandidatesMax = 16;

// Tokens that all groups' pages divide.
int32_t common_unit(std::span<const KvGroupSpec> groups) {
  int32_t unit = 1;
  for (const KvGroupSpec& group : groups) unit = std::lcm(unit, group.block_tokens);
  return unit;
}

int32_t common_length(TokenSpan a, TokenSpan b) {
  const size_t most = std::min(a.size(), b.size());
  size_t length = 0;
  while (length < most && a[length] == b[length]) ++length;
  return static_cast<int32_t>(length);
}

std::string root_name(const PrefixKey& key) { return fmt::format("{}:{}", key.adapter, key.salt); }

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, std::span<const KvGroupSpec> groups,
                         PrefixCacheOptions options)
    : pool_(pool),
      groups_(groups),
      options_(std::move(options)),
      unit_tokens_(common_unit(groups)) {
  CHECK(options_.tiers.size() < kTierCount);
  std::vector<int32_t> tier_pages = {pool.total()};
  for (const TierSpec& spec : options_.tiers) {
    tiers_.emplace_back(spec.pages);
    tier_pages.push_back(spec.pages);
  }
  // A node has a page or a child; a root has a child.
  node_max_ = 2 * std::accumulate(tier_pages.begin(), tier_pages.end(), 0) + 1;
  for (int32_t pages : tier_pages) {
    owners_.emplace_back(static_cast<size_t>(pages));
    queues_.emplace_back(node_max_ + pages);
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    for (int32_t index = 0; index < unit_tokens_ / groups[group].block_tokens; ++index) {
      page_slots_.push_back(
          {static_cast<int32_t>(group), index, groups[group].kind == KvKind::kSliding});
    }
  }
  CHECK(page_slots_.size() <= INT8_MAX);
  size_t capacity = 16;
  while (capacity < 2 * static_cast<size_t>(node_max_)) capacity *= 2;
  table_.assign(capacity, {});
  pool_.set_keeper(this);
}

// --- reading

TokenSpan PrefixCache::tokens_of(int32_t node) const {
  const auto unit = static_cast<size_t>(unit_tokens_);
  return TokenSpan(unit_of_).subspan(static_cast<size_t>(node) * unit, unit);
}

std::span<TierPage> PrefixCache::pages_of(int32_t node) {
  const size_t count = page_slots_.size();
  return std::span(page_of_).subspan(static_cast<size_t>(node) * count, count);
}

std::span<const TierPage> PrefixCache::pages_of(int32_t node) const {
  const size_t count = page_slots_.size();
  return std::span(page_of_).subspan(static_cast<size_t>(node) * count, count);
}

// Two tokens a multiplication; the parent's makes equal units under different prefixes different.
// It does not depend on where the parent lies, so that those of a whole prompt can be computed, and
// their places fetched, before a node is read.
uint64_t PrefixCache::hash_of(uint64_t parent_hash, TokenSpan unit) const {
  uint64_t hash = parent_hash;
  for (size_t i = 0; i < unit.size(); i += 2) {
    const auto low = static_cast<uint32_t>(unit[i]);
    const auto high = i + 1 < unit.size() ? static_cast<uint32_t>(unit[i + 1]) : 0u;
    hash = (hash ^ (uint64_t{high} << 32 | low)) * 0x9ddfea08eb382d69ull;
    hash ^= hash >> 32;
  }
  return mix64(hash) & options_.hash_mask;
}

int32_t PrefixCache::find_root(const PrefixKey& key) const {
  const auto found = roots_.find(root_name(key));
  return found == roots_.end() ? kNone : found->second;
}

int32_t PrefixCache::find_child(int32_t parent, TokenSpan unit) const {
  return find_child(parent, unit, hash_of(at(parent).hash, unit));
}

int32_t PrefixCache::find_child(int32_t parent, TokenSpan unit, uint64_t hash) const {
  const int32_t node = table_[table_find(hash)].node;
  if (node == kNone || at(node).parent != parent) return kNone;
  return std::equal(unit.begin(), unit.end(), tokens_of(node).begin()) ? node : kNone;
}

// The child with the most tokens in common with `rest`, of the newest few.
int32_t PrefixCache::best_partial_child(int32_t parent, TokenSpan rest, int32_t& length) const {
  int32_t best = kNone;
  length = std::max(1, unit_tokens_ / 4) - 1;
  int candidates = 0;
  for (int32_t child = at(parent).first_child; child != kNone && candidates < kPartialCandidatesMax;
       child = at(child).next, ++candidates) {
    const int32_t common = common_length(tokens_of(child), rest);
    if (common <= length) continue;
    length = common;
    best = child;
  }
  return best;
}

PrefixMatch PrefixCache::match(const PrefixKey& key, TokenSpan tokens, int32_t tokens_max) const {
  PrefixMatch match;
  int32_t node = find_root(key);
  if (node == kNone) return match;
  const auto most = std::min(tokens.size(), static_cast<size_t>(std::max(0, tokens_max)));
  const auto unit = static_cast<size_t>(unit_tokens_);
  size_t length = 0;
  uint64_t hash = at(node).hash;
  while (length < most && length + unit <= tokens.size()) {
    hash = hash_of(hash, tokens.subspan(length, unit));
    const int32_t child = find_child(node, tokens.subspan(length, unit), hash);
    if (child == kNone) break;
    match.nodes.push_back(child);
    node = child;
    length += unit;
  }
  if (length < most) {
    int32_t common = 0;
    const int32_t partial = best_partial_child(node, tokens.subspan(length), common);
    if (partial != kNone) match.nodes.push_back(partial);
    if (partial != kNone) length += static_cast<size_t>(common);
  }
  match.tokens = usable_length(match.nodes, static_cast<int32_t>(std::min(length, most)));
  match.nodes.resize((static_cast<size_t>(match.tokens) + unit - 1) / unit);
  if (!tiers_.empty()) cut_costly_loads(match);
  return match;
}

// The longest prefix, `tokens` or whole units of it, whose windows are all there.
int32_t PrefixCache::usable_length(std::span<const int32_t> nodes, int32_t tokens) const {
  bool found = false;
  while (!found && tokens > 0) {
    found = true;
    const PrefixMatch match{
        tokens, {nodes.begin(), nodes.begin() + (tokens + unit_tokens_ - 1) / unit_tokens_}};
    int32_t shorter = tokens;
    for_each_page(match, [&](int32_t group, int32_t index, int32_t node, size_t slot) {
      if (pages_of(node)[slot].none()) {
        shorter = std::min(shorter, index * groups_[static_cast<size_t>(group)].block_tokens);
        found = false;
      }
    });
    // Any window that ends behind a missing page and begins before it has the same hole.
    if (!found) tokens = shorter / unit_tokens_ * unit_tokens_;
  }
  return tokens;
}

// Visits the pages that a token at match.tokens attends to, in every group: (group, index in the
// sequence's table, node, slot in the node).
template <class Visit>
void PrefixCache::for_each_page(const PrefixMatch& match, const Visit& visit) const {
  size_t slot = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t per_unit = unit_tokens_ / groups_[group].block_tokens;
    const int32_t end = pages_for(match.tokens, groups_[group].block_tokens);
    for (int32_t index = first_visible_page(groups_[group], match.tokens); index < end; ++index) {
      const int32_t node = match.nodes[static_cast<size_t>(index / per_unit)];
      visit(static_cast<int32_t>(group), index, node, slot + static_cast<size_t>(index % per_unit));
    }
    slot += static_cast<size_t>(per_unit);
  }
}

// A hit ends before what is cheaper to compute than to load.
void PrefixCache::cut_costly_loads(PrefixMatch& match) const {
  if (seconds_per_token_ <= 0) return;
  double load = 0;
  int32_t first_tokens = match.tokens;  // of the pages that are in the pool, from the beginning
  for_each_page(match, [&](int32_t group, int32_t index, int32_t node, size_t slot) {
    const TierPage place = pages_of(node)[slot];
    if (place.tier == kPoolTier) return;
    load += options_.tiers[static_cast<size_t>(place.tier) - 1].seconds_per_page;
    first_tokens = std::min(first_tokens, index * groups_[static_cast<size_t>(group)].block_tokens);
  });
  if (load <= seconds_per_token_ * (match.tokens - first_tokens)) return;
  match.tokens = usable_length(match.nodes, first_tokens / unit_tokens_ * unit_tokens_);
  match.nodes.resize(static_cast<size_t>(match.tokens / unit_tokens_));
}

int32_t PrefixCache::pages_in_use(const PrefixMatch& match) const {
  int32_t count = 0;
  for_each_page(match, [&](int32_t, int32_t, int32_t node, size_t slot) {
    if (!is_loose(pages_of(node)[slot])) ++count;
  });
  return count;
}

int32_t PrefixCache::pages_to_load(const PrefixMatch& match) const {
  if (tiers_.empty()) return 0;
  int32_t count = 0;
  for_each_page(match, [&](int32_t, int32_t, int32_t node, size_t slot) {
    if (pages_of(node)[slot].tier != kPoolTier) ++count;
  });
  return count;
}

int32_t PrefixCache::copies(const PrefixMatch& match) const {
  return static_cast<int32_t>(std::count_if(
      groups_.begin(), groups_.end(),
      [&](const KvGroupSpec& group) { return match.tokens % group.block_tokens != 0; }));
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
    ++at(node).hits;
    at(node).locked = true;
  }
  for_each_page(match, [&](int32_t group, int32_t index, int32_t node, size_t slot) {
    if (hold.pages.empty() || hold.pages.back().group != group) {
      hold.pages.push_back({group, index, {}});
    }
    std::vector<BlockId>& blocks = hold.pages.back().blocks;
    const TierPage place = pages_of(node)[slot];
    hold.usable_after = std::max(hold.usable_after, loaded_in_[static_cast<size_t>(node)]);
    blocks.push_back(place.tier == kPoolTier ? block_of(place) : kNoBlock);
    if (place.tier == kPoolTier) return pool_.share(block_of(place));
    loads.push_back({hold.pages.size() - 1, blocks.size() - 1, node, slot, place});
    detach(node, slot);
  });
  for (const Load& load : loads) {
    const std::optional<BlockId> block = pool_.allocate();
    CHECK_MSG(block.has_value(), "acquire() without enough free pages");
    pool_.publish(*block);
    attach(load.node, load.slot, {kPoolTier, block->value});
    loaded_in_[static_cast<size_t>(load.node)] = hold.usable_after = step_;
    hold.pages[load.table].blocks[load.entry] = *block;
    moves_.loads.push_back({page_slots_[load.slot].group, load.from, {kPoolTier, block->value}});
    tier(load.from.tier).release_after(load.from.page, step_);
    ++tier_counts_.loaded;
  }
  for (int32_t node : match.nodes) at(node).locked = false;
  PrefixPath& path = hold.path;
  path.units = match.tokens / unit_tokens_;
  if (path.units == 0) return hold;
  path.node = match.nodes[static_cast<size_t>(path.units) - 1];
  path.generation = at(path.node).generation;
  prune(match.nodes.back());
  return hold;
}

// --- growing

void PrefixCache::extend(const PrefixKey& key, PrefixPath& path, TokenSpan units,
                         const SequenceBlocks& blocks) {
  const auto unit = static_cast<size_t>(unit_tokens_);
  CHECK(!units.empty() && units.size() % unit == 0);
  if (path.lost) return;
  const int32_t parent = path.units == 0 ? make_root(key) : path.node;
  if (parent == kNone || (path.units > 0 && at(parent).generation != path.generation)) {
    path.lost = true;
    return;
  }
  path.node = parent;
  path.generation = at(parent).generation;
  uint64_t hash = hash_of(at(parent).hash, units.first(unit));
  for (size_t first = 0; first < units.size() && !path.lost; first += unit) {
    const uint64_t own = hash;
    if (first + unit < units.size()) {
      hash = hash_of(own, units.subspan(first + unit, unit));
      prefetch_table(hash);
    }
    extend_unit(path, units.subspan(first, unit), own, blocks);
  }
}

void PrefixCache::extend_unit(PrefixPath& path, TokenSpan unit, uint64_t hash,
                              const SequenceBlocks& blocks) {
  const int32_t parent = path.node;
  if (!at(parent).used || at(parent).generation != path.generation) {
    path.lost = true;
    return;
  }
  int32_t node = find_child(parent, unit, hash);
  if (node == kNone) node = add_child(parent, unit, hash);
  if (node == kNone) {
    path.lost = true;
    prune(parent);
    return;
  }
  path = {.node = node, .generation = at(node).generation, .units = path.units + 1};
  fill_pages(node, blocks);
  prune(node);
}

int32_t PrefixCache::make_root(const PrefixKey& key) {
  std::string name = root_name(key);
  const auto found = roots_.find(name);
  if (found != roots_.end()) return found->second;
  const int32_t root = new_node();
  if (root == kNone) return kNone;
  at(root).hash = mix64(static_cast<uint64_t>(root));
  root_names_.emplace(root, name);
  roots_.emplace(std::move(name), root);
  return root;
}

// kNone: the tree is full, or another unit has the same hash.
int32_t PrefixCache::add_child(int32_t parent, TokenSpan unit, uint64_t hash) {
  if (table_[table_find(hash)].node != kNone) return kNone;
  const int32_t child = new_node();
  if (child == kNone) return kNone;
  Node& node = at(child);
  node.parent = parent;
  node.depth = at(parent).depth + 1;
  node.hash = hash;
  node.next = at(parent).first_child;
  if (node.next != kNone) at(node.next).previous = child;
  at(parent).first_child = child;
  std::copy(unit.begin(), unit.end(),
            unit_of_.begin() + static_cast<ptrdiff_t>(child) * unit_tokens_);
  table_insert(hash, child);
  ++version_;
  return child;
}

int32_t PrefixCache::new_node() {
  int32_t node = kNone;
  if (!free_nodes_.empty()) {
    node = free_nodes_.back();
    free_nodes_.pop_back();
  } else if (static_cast<int32_t>(nodes_.size()) < node_max_) {
    node = static_cast<int32_t>(nodes_.size());
    nodes_.emplace_back();
    pins_of_.emplace_back();
    loaded_in_.emplace_back();
    unit_of_.resize(nodes_.size() * static_cast<size_t>(unit_tokens_));
    page_of_.resize(nodes_.size() * page_slots_.size());
  } else {
    return kNone;
  }
  at(node) = {.generation = at(node).generation + 1, .used = true};
  pins_of_[static_cast<size_t>(node)] = 0;
  loaded_in_[static_cast<size_t>(node)] = Ticket();
  ++node_count_;
  return node;
}

// Gives the node those of the sequence's pages that it lacks, or has in a lower tier.
void PrefixCache::fill_pages(int32_t node, const SequenceBlocks& blocks) {
  for (size_t slot = 0; slot < page_slots_.size(); ++slot) {
    const PageSlot& place = page_slots_[slot];
    const TierPage own = pages_of(node)[slot];
    if (!own.none() && own.tier == kPoolTier) continue;
    const int32_t per_unit = unit_tokens_ / groups_[static_cast<size_t>(place.group)].block_tokens;
    const auto index = static_cast<size_t>((at(node).depth - 1) * per_unit + place.index);
    const std::span<const BlockId> held = blocks.blocks(place.group);
    if (index >= held.size() || held[index] == kNoBlock) continue;
    const BlockId page = held[index];
    if (pool_.state(page) != BlockState::kPublished || pool_.is_kept(page)) continue;
    drop_page(node, slot);
    attach(node, slot, {kPoolTier, page.value});
  }
}

// The page at `place` is the node's from now on; in the pool it is held.
void PrefixCache::attach(int32_t node, size_t slot, TierPage place) {
  pages_of(node)[slot] = place;
  owner(place) = {node, static_cast<int32_t>(slot)};
  ++at(node).pages;
  ++version_;
  if (place.tier == kPoolTier) {
    pool_.keep(block_of(place));
  } else if (is_sliding(slot)) {
    queue(place.tier).push(page_handle(place), {at(node).pinned, worth_of(node)});
  } else {
    note_loose(node, place.tier, 1);
  }
}

// The node has it no longer. A page of the pool is its holders' alone, or free; that of another
// tier is for the caller to release.
void PrefixCache::detach(int32_t node, size_t slot) {
  const TierPage place = std::exchange(pages_of(node)[slot], TierPage{});
  if (is_sliding(slot)) {
    queue(place.tier).remove(page_handle(place));
  } else if (is_loose(place)) {
    note_loose(node, place.tier, -1);
  }
  owner(place) = {};
  if (place.tier == kPoolTier) pool_.forget(block_of(place));
  --at(node).pages;
  ++version_;
}

void PrefixCache::drop_page(int32_t node, size_t slot) {
  const TierPage place = pages_of(node)[slot];
  if (place.none()) return;
  detach(node, slot);
  if (place.tier != kPoolTier) tier(place.tier).release(place.page);
}

void PrefixCache::remove_subtree(int32_t node) {
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
void PrefixCache::remove_node(int32_t node) {
  for (size_t slot = 0; slot < page_slots_.size(); ++slot) drop_page(node, slot);
  for (EvictionQueue& queue : queues_) queue.remove(node);
  const Node& n = at(node);
  if (n.parent != kNone) {
    (n.previous == kNone ? at(n.parent).first_child : at(n.previous).next) = n.next;
    if (n.next != kNone) at(n.next).previous = n.previous;
    table_erase(n.hash);
  } else {
    const auto name = root_names_.find(node);
    roots_.erase(name->second);
    root_names_.erase(name);
  }
  at(node).used = false;
  free_nodes_.push_back(node);
  --node_count_;
  ++version_;
}

void PrefixCache::prune(int32_t node) {
  while (node != kNone && at(node).pages == 0 && at(node).first_child == kNone &&
         !at(node).locked) {
    const int32_t parent = at(node).parent;
    remove_node(node);
    node = parent;
  }
}

void PrefixCache::forget_from(PrefixPath& path, int32_t units) {
  const bool there =
      path.node != kNone && at(path.node).used && at(path.node).generation == path.generation;
  if (there && units < path.units) {
    int32_t node = path.node;
    while (at(node).depth > units + 1) node = at(node).parent;
    remove_subtree(node);
  }
  path.lost = true;
}

void PrefixCache::clear() {
  while (!roots_.empty()) remove_subtree(roots_.begin()->second);
}

// --- pins

void PrefixCache::pin(const PrefixMatch& match) { change_pins(match.nodes, 1); }

void PrefixCache::unpin(const PrefixKey& key, TokenSpan tokens) {
  std::vector<int32_t> nodes;
  int32_t node = find_root(key);
  const auto unit = static_cast<size_t>(unit_tokens_);
  for (size_t first = 0; node != kNone && first + unit <= tokens.size(); first += unit) {
    node = find_child(node, tokens.subspan(first, unit));
    if (node != kNone && at(node).pinned) nodes.push_back(node);
  }
  change_pins(nodes, -1);
}

void PrefixCache::change_pins(std::span<const int32_t> nodes, int32_t change) {
  for (int32_t node : nodes) {
    at(node).pinned = (pins_of_[static_cast<size_t>(node)] += change) > 0;
    for (int32_t tier = 0; tier <= lowest_tier(); ++tier) {
      if (queue(tier).contains(node)) update_candidate(node, tier);
    }
    for (TierPage place : pages_of(node)) {
      if (place.none() || !queue(place.tier).contains(page_handle(place))) continue;
      queue(place.tier).push(page_handle(place), {at(node).pinned, worth_of(node)});
    }
  }
}

// --- the table

size_t PrefixCache::table_find(uint64_t hash) const {
  const size_t mask = table_.size() - 1;
  const auto low = static_cast<uint32_t>(hash);
  size_t place = hash & mask;
  while (table_[place].node != kNone &&
         (table_[place].hash_low != low || at(table_[place].node).hash != hash)) {
    place = (place + 1) & mask;
  }
  return place;
}

void PrefixCache::prefetch_table(uint64_t hash) const {
  __builtin_prefetch(&table_[hash & (table_.size() - 1)]);
}

void PrefixCache::table_insert(uint64_t hash, int32_t node) {
  table_[table_find(hash)] = {node, static_cast<uint32_t>(hash)};
}

// Entries behind the hole that were pushed past it move back (Knuth, TAOCP 6.4, algorithm R).
void PrefixCache::table_erase(uint64_t hash) {
  const size_t mask = table_.size() - 1;
  size_t hole = table_find(hash);
  table_[hole] = {};
  for (size_t place = (hole + 1) & mask; table_[place].node != kNone; place = (place + 1) & mask) {
    const size_t home = table_[place].hash_low & mask;
    if (((place - home) & mask) < ((place - hole) & mask)) continue;
    table_[hole] = table_[place];
    table_[place] = {};
    hole = place;
  }
}

}  // namespace headrace
