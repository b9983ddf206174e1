// The radix tree of the prefix cache (RadixAttention: Zheng et al., SGLang, NeurIPS 2024): a node
// is a unit of tokens, and a path from a root is a beginning of sequences.
//
//   root (salt, adapter, arithmetic) -> tokens [0, 16) -> tokens [16, 32) -> ...
//
// The tree knows the order of units and finds them; which pages a unit has is not its matter
// (cached_units.h). Units are compared token by token: equal hashes never make a hit. Ids and
// numbers only; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "kv/tier_pool.h"

namespace headrace {

// Prefixes are shared only inside one salt, adapter and arithmetic.
struct PrefixKey {
  std::string_view salt;
  uint64_t adapter = 0;     // 0: the base model
  uint64_t arithmetic = 0;  // what else decides the bits of pages: formats, types, sparse attention
  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

// How far a sequence's own tokens are in the tree: a cursor that PrefixCache::extend() moves.
struct PrefixPath {
  int32_t node = -1;
  uint32_t generation = 0;
  int32_t units = 0;
  bool lost = false;  // its node was evicted, or the tree is full: it adds nothing any more
};

class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;

  // A cache line: every step takes nodes in and evicts others, and finds both cold. So what the
  // other parts of the cache note of a unit lies beside its place in the tree.
  struct alignas(64) Node {
    int32_t parent = kNone;
    int32_t first_child = kNone, next = kNone, previous = kNone;  // siblings, newest first
    int32_t depth = 0;                                            // units from the root; a root: 0
    uint32_t generation = 0;                                      // of the node's uses
    uint64_t hash = 0;
    // EvictionCandidates: the worth of the unit's full-attention pages, and, per tier, the children
    // that have such pages that may go, and the unit's own.
    double worth = 0;
    uint32_t hits = 0;
    std::array<int32_t, kTierCount> loose_children{};
    std::array<int8_t, kTierCount> loose{};
    int8_t pages = 0;  // CachedUnits: pages that the unit has, in any tier
    bool used = false;
    bool locked = false;  // PrefixCache::acquire() is at work on it: it stays
    bool pinned = false;  // somebody asked to keep it
  };
  static_assert(sizeof(Node) == 64);

  // The beginning of a key's sequences.
  struct Root {
    int32_t node = kNone;
    std::string salt;
    uint64_t adapter = 0, arithmetic = 0;
    PrefixKey key() const { return {salt, adapter, arithmetic}; }
  };

  // At most `node_max` nodes. Hashes are cut to `hash_mask`, so that tests see them collide.
  PrefixTree(int32_t unit_tokens, int32_t node_max, uint64_t hash_mask);

  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  // Whether `node` is in the tree since it had this generation.
  bool is_current(int32_t node, uint32_t generation) const {
    return at(node).used && at(node).generation == generation;
  }
  TokenSpan tokens_of(int32_t node) const;
  int32_t unit_tokens() const { return unit_tokens_; }
  int32_t node_max() const { return node_max_; }
  int32_t count() const { return count_; }
  // Nodes that are or were in use are [0, end()).
  int32_t end() const { return static_cast<int32_t>(nodes_.size()); }

  // kNone: the tree has no such node.
  int32_t find_root(const PrefixKey& key) const;
  int32_t find_child(int32_t parent, TokenSpan unit) const;
  // With the unit's hash, hash_of(at(parent).hash, unit).
  int32_t find_child(int32_t parent, TokenSpan unit, uint64_t hash) const;
  // The child with the most tokens in common with `rest`, of the newest few; `length` becomes their
  // number, which is at least a quarter of a unit.
  int32_t best_partial_child(int32_t parent, TokenSpan rest, int32_t& length) const;
  uint64_t hash_of(uint64_t parent_hash, TokenSpan unit) const;
  // Fetches what find_child() reads first.
  void prefetch(uint64_t hash) const;
  std::vector<Root> roots() const;
  int32_t any_root() const { return roots_.empty() ? kNone : roots_.begin()->second; }

  // The key's root, which is made where there is none. kNone: the tree is full.
  int32_t make_root(const PrefixKey& key);
  // A child that the parent has not. kNone: the tree is full, or another unit has the same hash.
  int32_t add_child(int32_t parent, TokenSpan unit, uint64_t hash);
  // REQUIRES: no child
  void remove(int32_t node);

  // What is wrong where the node is not where its neighbours and the table say; empty: nothing.
  std::string_view fault_of(int32_t node) const;

 private:
  // Children by hash: open addressing, linear probing, at most half full. An entry has enough of
  // its node's hash to pass it by, and to know its home (of at most 2^32), without reading the
  // node.
  struct TableEntry {
    int32_t node = kNone;
    uint32_t hash_low = 0;
  };

  int32_t new_node();
  size_t table_find(uint64_t hash) const;  // its place, or the empty one where it would go
  void table_erase(uint64_t hash);

  const int32_t unit_tokens_;
  const int32_t node_max_;
  const uint64_t hash_mask_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // [nodes][unit_tokens]
  std::vector<int32_t> free_nodes_;
  std::vector<TableEntry> table_;
  std::unordered_map<std::string, int32_t> roots_;
  std::unordered_map<int32_t, std::string> root_names_;
  int32_t count_ = 0;
};

}  // namespace headrace
