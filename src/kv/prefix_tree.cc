#include "kv/prefix_tree.h"

#include <algorithm>

#include "base/rng.h"

namespace headrace {
namespace {

// Children of a node that are compared with a prompt's rest for a partial hit, newest first.
constexpr int kPartialCandidatesMax = 16;

int32_t common_length(TokenSpan a, TokenSpan b) {
  const size_t most = std::min(a.size(), b.size());
  size_t length = 0;
  while (length < most && a[length] == b[length]) ++length;
  return static_cast<int32_t>(length);
}

std::string root_name(const PrefixKey& key) {
  std::string name = std::to_string(key.adapter);
  name += ':';
  name += std::to_string(key.arithmetic);
  name += ':';
  name += key.salt;
  return name;
}

}  // namespace

PrefixTree::PrefixTree(int32_t unit_tokens, int32_t node_max, uint64_t hash_mask)
    : unit_tokens_(unit_tokens), node_max_(node_max), hash_mask_(hash_mask) {
  size_t capacity = 16;
  while (capacity < 2 * static_cast<size_t>(node_max)) capacity *= 2;
  table_.assign(capacity, {});
}

// --- finding

TokenSpan PrefixTree::tokens_of(int32_t node) const {
  const auto unit = static_cast<size_t>(unit_tokens_);
  return TokenSpan(tokens_).subspan(static_cast<size_t>(node) * unit, unit);
}

// Two tokens a multiplication; the parent's makes equal units under different prefixes different.
// It does not depend on where the parent lies, so that those of a whole prompt can be computed, and
// their places fetched, before a node is read.
uint64_t PrefixTree::hash_of(uint64_t parent_hash, TokenSpan unit) const {
  uint64_t hash = parent_hash;
  for (size_t i = 0; i < unit.size(); i += 2) {
    const auto low = static_cast<uint32_t>(unit[i]);
    const auto high = i + 1 < unit.size() ? static_cast<uint32_t>(unit[i + 1]) : 0u;
    hash = (hash ^ (uint64_t{high} << 32 | low)) * 0x9ddfea08eb382d69ull;
    hash ^= hash >> 32;
  }
  return mix64(hash) & hash_mask_;
}

int32_t PrefixTree::find_root(const PrefixKey& key) const {
  const auto found = roots_.find(root_name(key));
  return found == roots_.end() ? kNone : found->second;
}

int32_t PrefixTree::find_child(int32_t parent, TokenSpan unit) const {
  return find_child(parent, unit, hash_of(at(parent).hash, unit));
}

int32_t PrefixTree::find_child(int32_t parent, TokenSpan unit, uint64_t hash) const {
  const int32_t node = table_[table_find(hash)].node;
  if (node == kNone || at(node).parent != parent) return kNone;
  return std::equal(unit.begin(), unit.end(), tokens_of(node).begin()) ? node : kNone;
}

int32_t PrefixTree::best_partial_child(int32_t parent, TokenSpan rest, int32_t& length) const {
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

std::vector<PrefixTree::Root> PrefixTree::roots() const {
  std::vector<Root> roots;
  for (const auto& [node, name] : root_names_) {
    const size_t first = name.find(':'), second = name.find(':', first + 1);
    roots.push_back({.node = node,
                     .salt = name.substr(second + 1),
                     .adapter = std::stoull(name.substr(0, first)),
                     .arithmetic = std::stoull(name.substr(first + 1, second - first - 1))});
  }
  return roots;
}

// --- growing and shrinking

int32_t PrefixTree::make_root(const PrefixKey& key) {
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

int32_t PrefixTree::add_child(int32_t parent, TokenSpan unit, uint64_t hash) {
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
            tokens_.begin() + static_cast<ptrdiff_t>(child) * unit_tokens_);
  table_[table_find(hash)] = {child, static_cast<uint32_t>(hash)};
  return child;
}

int32_t PrefixTree::new_node() {
  int32_t node = kNone;
  if (!free_nodes_.empty()) {
    node = free_nodes_.back();
    free_nodes_.pop_back();
  } else if (end() < node_max_) {
    node = end();
    nodes_.emplace_back();
    tokens_.resize(nodes_.size() * static_cast<size_t>(unit_tokens_));
  } else {
    return kNone;
  }
  at(node) = {.generation = at(node).generation + 1, .used = true};
  ++count_;
  return node;
}

void PrefixTree::remove(int32_t node) {
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
  --count_;
}

// --- the table

size_t PrefixTree::table_find(uint64_t hash) const {
  const size_t mask = table_.size() - 1;
  const auto low = static_cast<uint32_t>(hash);
  size_t place = hash & mask;
  while (table_[place].node != kNone &&
         (table_[place].hash_low != low || at(table_[place].node).hash != hash)) {
    place = (place + 1) & mask;
  }
  return place;
}

void PrefixTree::prefetch(uint64_t hash) const {
  __builtin_prefetch(&table_[hash & (table_.size() - 1)]);
}

// Entries behind the hole that were pushed past it move back (Knuth, TAOCP 6.4, algorithm R).
void PrefixTree::table_erase(uint64_t hash) {
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

std::string_view PrefixTree::fault_of(int32_t node) const {
  const Node& n = at(node);
  for (int32_t child = n.first_child; child != kNone; child = at(child).next) {
    if (!at(child).used || at(child).parent != node || at(child).depth != n.depth + 1) {
      return "has a child that is not its own";
    }
  }
  if (n.parent != kNone && find_child(n.parent, tokens_of(node)) != node) return "is not found";
  return {};
}

}  // namespace headrace
