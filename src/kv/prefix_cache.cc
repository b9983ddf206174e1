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

template <class... Args>
Status broken(fmt::format_string<Args...> format, Args&&... args) {
  return internal_error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, std::span<const KvGroupSpec> groups, EvictionRule rule,
                         uint64_t hash_mask)
    : pool_(pool),
      groups_(groups),
      rule_(rule),
      hash_mask_(hash_mask),
      unit_tokens_(common_unit(groups)),
      // A node has a page or a child; a root has a child.
      node_max_(2 * pool.total() + 1),
      owner_(static_cast<size_t>(pool.total()), kNone),
      owner_slot_(static_cast<size_t>(pool.total()), 0),
      queue_(node_max_ + pool.total()) {
  for (size_t group = 0; group < groups.size(); ++group) {
    for (int32_t index = 0; index < unit_tokens_ / groups[group].block_tokens; ++index) {
      page_slots_.push_back(
          {static_cast<int32_t>(group), index, groups[group].kind == KvKind::kSliding});
    }
  }
  size_t capacity = 16;
  while (capacity < 2 * static_cast<size_t>(node_max_)) capacity *= 2;
  table_.assign(capacity, kNone);
  pool_.set_keeper(this);
}

// --- reading

TokenSpan PrefixCache::tokens_of(int32_t node) const {
  const auto unit = static_cast<size_t>(unit_tokens_);
  return TokenSpan(unit_of_).subspan(static_cast<size_t>(node) * unit, unit);
}

std::span<BlockId> PrefixCache::pages_of(int32_t node) {
  const size_t count = page_slots_.size();
  return std::span(page_of_).subspan(static_cast<size_t>(node) * count, count);
}

std::span<const BlockId> PrefixCache::pages_of(int32_t node) const {
  const size_t count = page_slots_.size();
  return std::span(page_of_).subspan(static_cast<size_t>(node) * count, count);
}

// Two tokens a multiplication; the parent makes equal units under different prefixes different.
uint64_t PrefixCache::hash_of(int32_t parent, TokenSpan unit) const {
  uint64_t hash = mix64(static_cast<uint64_t>(parent));
  for (size_t i = 0; i < unit.size(); i += 2) {
    const auto low = static_cast<uint32_t>(unit[i]);
    const auto high = i + 1 < unit.size() ? static_cast<uint32_t>(unit[i + 1]) : 0u;
    hash = (hash ^ (uint64_t{high} << 32 | low)) * 0x9ddfea08eb382d69ull;
    hash ^= hash >> 32;
  }
  return mix64(hash) & hash_mask_;
}

int32_t PrefixCache::find_root(const PrefixKey& key) const {
  const auto found = roots_.find(root_name(key));
  return found == roots_.end() ? kNone : found->second;
}

int32_t PrefixCache::find_child(int32_t parent, TokenSpan unit) const {
  const int32_t node = table_[table_find(hash_of(parent, unit))];
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
  while (length < most && length + unit <= tokens.size()) {
    const int32_t child = find_child(node, tokens.subspan(length, unit));
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
    for_each_page(match, [&](int32_t group, int32_t index, BlockId page) {
      if (page == kNoBlock) {
        shorter = std::min(shorter, index * groups_[static_cast<size_t>(group)].block_tokens);
        found = false;
      }
    });
    // Any window that ends behind a missing page and begins before it has the same hole.
    if (!found) tokens = shorter / unit_tokens_ * unit_tokens_;
  }
  return tokens;
}

// Visits the pages that a token at match.tokens attends to, in every group.
template <class Visit>
void PrefixCache::for_each_page(const PrefixMatch& match, const Visit& visit) const {
  size_t slot = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t per_unit = unit_tokens_ / groups_[group].block_tokens;
    const int32_t end = pages_for(match.tokens, groups_[group].block_tokens);
    for (int32_t index = first_visible_page(groups_[group], match.tokens); index < end; ++index) {
      const int32_t node = match.nodes[static_cast<size_t>(index / per_unit)];
      visit(static_cast<int32_t>(group), index,
            pages_of(node)[slot + static_cast<size_t>(index % per_unit)]);
    }
    slot += static_cast<size_t>(per_unit);
  }
}

std::vector<GroupBlocks> PrefixCache::pages(const PrefixMatch& match) const {
  std::vector<GroupBlocks> pages;
  for_each_page(match, [&](int32_t group, int32_t index, BlockId page) {
    if (pages.empty() || pages.back().group != group) pages.push_back({group, index, {}});
    pages.back().blocks.push_back(page);
  });
  return pages;
}

int32_t PrefixCache::pages_in_use(const PrefixMatch& match) const {
  int32_t count = 0;
  for_each_page(match, [&](int32_t, int32_t, BlockId page) {
    if (pool_.state(page) != BlockState::kIdle) ++count;
  });
  return count;
}

int32_t PrefixCache::copies(const PrefixMatch& match) const {
  return static_cast<int32_t>(std::count_if(
      groups_.begin(), groups_.end(),
      [&](const KvGroupSpec& group) { return match.tokens % group.block_tokens != 0; }));
}

PrefixPath PrefixCache::take(const PrefixMatch& match) {
  PrefixPath path;
  for (int32_t node : match.nodes) ++at(node).hits;
  path.units = match.tokens / unit_tokens_;
  if (path.units == 0) return path;
  path.node = match.nodes[static_cast<size_t>(path.units) - 1];
  path.generation = at(path.node).generation;
  return path;
}

// --- growing

void PrefixCache::extend(const PrefixKey& key, PrefixPath& path, TokenSpan unit,
                         const SequenceBlocks& blocks) {
  if (path.lost) return;
  CHECK(unit.size() == static_cast<size_t>(unit_tokens_));
  int32_t parent = path.node;
  if (path.units == 0) {
    parent = make_root(key);
  } else if (!at(parent).used || at(parent).generation != path.generation) {
    path.lost = true;
    return;
  }
  int32_t node = parent == kNone ? kNone : find_child(parent, unit);
  if (node == kNone && parent != kNone) node = add_child(parent, unit);
  if (node != kNone) {
    path = {.node = node, .generation = at(node).generation, .units = path.units + 1};
    fill_pages(node, blocks);
    prune(node);
  } else {
    path.lost = true;
    if (parent != kNone) prune(parent);
  }
}

int32_t PrefixCache::make_root(const PrefixKey& key) {
  std::string name = root_name(key);
  const auto found = roots_.find(name);
  if (found != roots_.end()) return found->second;
  const int32_t root = new_node();
  if (root == kNone) return kNone;
  root_names_.emplace(root, name);
  roots_.emplace(std::move(name), root);
  return root;
}

// kNone: the tree is full, or another unit has the same hash.
int32_t PrefixCache::add_child(int32_t parent, TokenSpan unit) {
  const uint64_t hash = hash_of(parent, unit);
  if (table_[table_find(hash)] != kNone) return kNone;
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
    unit_of_.resize(nodes_.size() * static_cast<size_t>(unit_tokens_));
    page_of_.resize(nodes_.size() * page_slots_.size(), kNoBlock);
  } else {
    return kNone;
  }
  at(node) = {.generation = at(node).generation + 1, .used = true};
  ++node_count_;
  return node;
}

// Gives the node those of the sequence's pages that it lacks.
void PrefixCache::fill_pages(int32_t node, const SequenceBlocks& blocks) {
  const std::span<BlockId> pages = pages_of(node);
  for (size_t slot = 0; slot < pages.size(); ++slot) {
    const PageSlot& place = page_slots_[slot];
    if (pages[slot] != kNoBlock) continue;
    const int32_t per_unit = unit_tokens_ / groups_[static_cast<size_t>(place.group)].block_tokens;
    const auto index = static_cast<size_t>((at(node).depth - 1) * per_unit + place.index);
    const std::span<const BlockId> held = blocks.blocks(place.group);
    if (index >= held.size() || held[index] == kNoBlock) continue;
    const BlockId page = held[index];
    if (pool_.state(page) != BlockState::kPublished || pool_.is_kept(page)) continue;
    pool_.keep(page);
    pages[slot] = page;
    owner_[static_cast<size_t>(page.value)] = node;
    owner_slot_[static_cast<size_t>(page.value)] = static_cast<int32_t>(slot);
    ++at(node).pages;
    ++version_;
  }
}

// --- idle pages and eviction

double PrefixCache::worth_of(int32_t node) const {
  return rule_({.tick = tick_,
                .hits = at(node).hits + 1,
                .position = (at(node).depth - 1) * unit_tokens_,
                .floor = queue_.last_worth()});
}

void PrefixCache::page_idle(BlockId block) {
  const auto page = static_cast<size_t>(block.value);
  const int32_t node = owner_[page];
  ++tick_;
  if (page_slots_[static_cast<size_t>(owner_slot_[page])].sliding) {
    queue_.push(page_handle(block), {at(node).pins > 0, worth_of(node)});
  } else {
    at(node).worth = worth_of(node);
    note_idle_full(node, 1);
  }
}

void PrefixCache::page_held(BlockId block) {
  const auto page = static_cast<size_t>(block.value);
  if (page_slots_[static_cast<size_t>(owner_slot_[page])].sliding) {
    queue_.remove(page_handle(block));
  } else {
    note_idle_full(owner_[page], -1);
  }
}

void PrefixCache::note_idle_full(int32_t node, int32_t change) {
  const bool before = at(node).idle_full > 0;
  at(node).idle_full += change;
  const bool after = at(node).idle_full > 0;
  update_candidate(node);
  const int32_t parent = at(node).parent;
  if (before == after || parent == kNone) return;
  at(parent).idle_children += after ? 1 : -1;
  update_candidate(parent);
}

// A node may go when it would give pages and no child would give any.
void PrefixCache::update_candidate(int32_t node) {
  const Node& n = at(node);
  if (n.idle_full > 0 && n.idle_children == 0) {
    queue_.push(node, {n.pins > 0, n.worth});
  } else {
    queue_.remove(node);
  }
}

void PrefixCache::evict() {
  const int32_t handle = queue_.pop();
  ++evictions_;
  if (handle < node_max_) {
    remove_subtree(handle);
    return;
  }
  const auto page = static_cast<size_t>(handle - node_max_);
  const int32_t node = owner_[page];
  drop_page(node, static_cast<size_t>(owner_slot_[page]));
  prune(node);
}

void PrefixCache::drop_page(int32_t node, size_t slot) {
  BlockId& page = pages_of(node)[slot];
  if (page == kNoBlock) return;
  const bool idle = pool_.state(page) == BlockState::kIdle;
  if (page_slots_[slot].sliding) {
    queue_.remove(page_handle(page));
  } else if (idle) {
    note_idle_full(node, -1);
  }
  owner_[static_cast<size_t>(page.value)] = kNone;
  pool_.forget(page);
  page = kNoBlock;
  --at(node).pages;
  ++version_;
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
  queue_.remove(node);
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
  while (node != kNone && at(node).pages == 0 && at(node).first_child == kNone) {
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
    if (node != kNone && at(node).pins > 0) nodes.push_back(node);
  }
  change_pins(nodes, -1);
}

void PrefixCache::change_pins(std::span<const int32_t> nodes, int32_t change) {
  for (int32_t node : nodes) {
    at(node).pins += change;
    if (queue_.contains(node)) update_candidate(node);
    for (BlockId page : pages_of(node)) {
      if (page == kNoBlock || !queue_.contains(page_handle(page))) continue;
      queue_.push(page_handle(page), {at(node).pins > 0, worth_of(node)});
    }
  }
}

// --- the table

size_t PrefixCache::table_find(uint64_t hash) const {
  const size_t mask = table_.size() - 1;
  size_t place = hash & mask;
  while (table_[place] != kNone && at(table_[place]).hash != hash) place = (place + 1) & mask;
  return place;
}

void PrefixCache::table_insert(uint64_t hash, int32_t node) { table_[table_find(hash)] = node; }

// Entries behind the hole that were pushed past it move back (Knuth, TAOCP 6.4, algorithm R).
void PrefixCache::table_erase(uint64_t hash) {
  const size_t mask = table_.size() - 1;
  size_t hole = table_find(hash);
  table_[hole] = kNone;
  for (size_t place = (hole + 1) & mask; table_[place] != kNone; place = (place + 1) & mask) {
    const size_t home = at(table_[place]).hash & mask;
    if (((place - home) & mask) < ((place - hole) & mask)) continue;
    table_[hole] = table_[place];
    table_[place] = kNone;
    hole = place;
  }
}

// --- invariants

Status PrefixCache::check_invariants() const {
  int32_t nodes = 0, candidates = 0;
  std::vector<int32_t> kept(static_cast<size_t>(pool_.total()), 0);
  for (int32_t node = 0; node < static_cast<int32_t>(nodes_.size()); ++node) {
    const Node& n = at(node);
    if (!n.used) continue;
    ++nodes;
    int32_t pages = 0, idle_full = 0, idle_children = 0;
    for (size_t slot = 0; slot < page_slots_.size(); ++slot) {
      const BlockId page = pages_of(node)[slot];
      if (page == kNoBlock) continue;
      ++pages;
      ++kept[static_cast<size_t>(page.value)];
      const BlockState state = pool_.state(page);
      const bool idle = state == BlockState::kIdle;
      if (!pool_.is_kept(page) || owner_[static_cast<size_t>(page.value)] != node) {
        return broken("page {} is in node {} and not kept for it", page.value, node);
      }
      if (state == BlockState::kFilling || state == BlockState::kFree) {
        return broken("page {} can be found and is not published", page.value);
      }
      if (!page_slots_[slot].sliding) {
        idle_full += idle ? 1 : 0;
      } else if (idle != queue_.contains(page_handle(page))) {
        return broken("sliding page {} is wrong in the queue", page.value);
      }
      candidates += queue_.contains(page_handle(page)) ? 1 : 0;
    }
    for (int32_t child = n.first_child; child != kNone; child = at(child).next) {
      idle_children += at(child).idle_full > 0 ? 1 : 0;
      if (!at(child).used || at(child).parent != node || at(child).depth != n.depth + 1) {
        return broken("node {} is not a child of {}", child, node);
      }
    }
    if (pages != n.pages || idle_full != n.idle_full || idle_children != n.idle_children) {
      return broken("node {} counts {} pages, {} idle, {} idle children; has {}, {}, {}", node,
                    n.pages, n.idle_full, n.idle_children, pages, idle_full, idle_children);
    }
    if (pages == 0 && n.first_child == kNone) return broken("node {} holds nothing", node);
    if (queue_.contains(node) != (idle_full > 0 && idle_children == 0)) {
      return broken("node {} is wrong in the queue", node);
    }
    candidates += queue_.contains(node) ? 1 : 0;
    if (n.parent != kNone && find_child(n.parent, tokens_of(node)) != node) {
      return broken("node {} is not found", node);
    }
  }
  if (nodes != node_count_) return broken("{} nodes, {} are counted", nodes, node_count_);
  if (candidates != queue_.size()) {
    return broken("{} things may go, {} are queued", candidates, queue_.size());
  }
  for (size_t page = 0; page < kept.size(); ++page) {
    const bool is_kept = pool_.is_kept(BlockId(static_cast<int32_t>(page)));
    if (kept[page] != (is_kept ? 1 : 0)) return broken("page {} is in {} nodes", page, kept[page]);
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
