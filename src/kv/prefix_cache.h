// Prefix reuse: keys and values of token sequences that were computed before. A radix tree whose
// edges are whole units of tokens (RadixAttention: Zheng et al., SGLang, NeurIPS 2024); a node
// holds the pages of its unit in every KV group. Ids and counts only; one thread.
//
//   root (salt, adapter) -> tokens [0, 16) -> tokens [16, 32) -> ...
//
// Life of a page: its writer computes it; when the step that filled it was applied it is published
// and extend() puts it into the tree; other sequences share it; when its last holder lets go it is
// idle (block_pool.h), until somebody shares it again or its memory is needed.
//
// Eviction: leaves before their parents, by the worth that an EvictionRule gives. Pages of sliding
// groups go one by one: a prefix is a hit where the windows before its end are still there. What is
// evicted takes its subtree along: a holder below keeps its pages, they are only not found any
// more.
//
// A prefix is compared token by token: equal hashes never make a hit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/block_pool.h"
#include "kv/eviction_queue.h"
#include "kv/kv_group.h"
#include "kv/sequence_blocks.h"

namespace headrace {

// Prefixes are shared only inside one salt and adapter.
struct PrefixKey {
  std::string_view salt;
  uint64_t adapter = 0;  // 0: the base model
};

// The longest usable prefix: valid until the cache changes.
struct PrefixMatch {
  int32_t tokens = 0;          // [0, tokens) need not be computed
  std::vector<int32_t> nodes;  // from the root down; the last may be used in part
};

// How far a sequence's own tokens are in the tree: a cursor that extend() moves.
struct PrefixPath {
  int32_t node = -1;
  uint32_t generation = 0;
  int32_t units = 0;
  bool lost = false;  // its node was evicted, or the tree is full: it adds nothing any more
};

class PrefixCache final : private PageKeeper {
 public:
  // `pool` and `groups` outlive this object, and the pool is only used while it lives. `hash_mask`
  // makes hashes collide, for tests.
  PrefixCache(BlockPool& pool, std::span<const KvGroupSpec> groups, EvictionRule rule,
              uint64_t hash_mask = ~uint64_t{0});
  ~PrefixCache() override { pool_.set_keeper(nullptr); }

  // The longest prefix of `tokens`, of at most `tokens_max`. Inside a unit it is used from a
  // quarter of a unit on: its page is copied when it is written (SequenceBlocks::grow).
  PrefixMatch match(const PrefixKey& key, TokenSpan tokens, int32_t tokens_max) const;
  // The pages of a match, per group from the first that a later token attends to.
  std::vector<GroupBlocks> pages(const PrefixMatch& match) const;
  // How many of them cost nothing: they are not idle, so nobody could allocate them now.
  int32_t pages_in_use(const PrefixMatch& match) const;
  // Pages that are copied when the first token after the match is written.
  int32_t copies(const PrefixMatch& match) const;
  // A sequence begins with the match: notes the use. The caller shares pages().
  PrefixPath take(const PrefixMatch& match);

  // Puts unit `path.units` into the tree: `unit` are its tokens, `blocks` the sequence's pages.
  // REQUIRES: those pages are published (or not held: behind a window)
  void extend(const PrefixKey& key, PrefixPath& path, TokenSpan unit, const SequenceBlocks& blocks);
  // Takes units [units, path.units) and all below out of the tree: their content is not to be
  // trusted.
  void forget_from(PrefixPath& path, int32_t units);
  // Everything. Pages that are held stay with their holders.
  void clear();

  // Pinned prefixes are evicted after all others. They count pins and nest.
  void pin(const PrefixMatch& match);
  void unpin(const PrefixKey& key, TokenSpan tokens);

  int32_t unit_tokens() const { return unit_tokens_; }
  int32_t node_count() const { return node_count_; }
  uint64_t evictions() const { return evictions_; }
  uint64_t version() const { return version_; }  // a match holds while this does not change

  // Tree, table, pages and queue agree.
  Status check_invariants() const;
  // The path's nodes hold the first tokens of a sequence. O(path.units)
  Status check_path(const PrefixPath& path, TokenSpan tokens) const;

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    int32_t parent = kNone;
    int32_t first_child = kNone, next = kNone, previous = kNone;  // siblings, newest first
    int32_t depth = 0;                                            // units from the root; a root: 0
    uint32_t generation = 0;
    uint64_t hash = 0;
    int32_t pages = 0;          // kept for this unit
    int32_t idle_full = 0;      // of its full-attention pages, idle ones
    int32_t idle_children = 0;  // children with idle_full > 0
    uint32_t hits = 0;
    int32_t pins = 0;
    double worth = 0;
    bool used = false;
  };
  // Where a page of a unit belongs.
  struct PageSlot {
    int32_t group = 0;
    int32_t index = 0;  // in the unit
    bool sliding = false;
  };

  void page_idle(BlockId block) override;
  void page_held(BlockId block) override;
  void evict() override;

  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  TokenSpan tokens_of(int32_t node) const;
  std::span<BlockId> pages_of(int32_t node);
  std::span<const BlockId> pages_of(int32_t node) const;
  uint64_t hash_of(int32_t parent, TokenSpan unit) const;
  int32_t find_root(const PrefixKey& key) const;
  int32_t find_child(int32_t parent, TokenSpan unit) const;
  int32_t best_partial_child(int32_t parent, TokenSpan rest, int32_t& length) const;
  int32_t usable_length(std::span<const int32_t> nodes, int32_t tokens) const;
  template <class Visit>
  void for_each_page(const PrefixMatch& match, const Visit& visit) const;

  int32_t make_root(const PrefixKey& key);
  int32_t add_child(int32_t parent, TokenSpan unit);
  int32_t new_node();
  void fill_pages(int32_t node, const SequenceBlocks& blocks);
  void remove_subtree(int32_t node);
  void remove_node(int32_t node);
  void drop_page(int32_t node, size_t slot);
  void prune(int32_t node);  // nodes without page and child, upwards
  void update_candidate(int32_t node);
  void note_idle_full(int32_t node, int32_t change);
  double worth_of(int32_t node) const;
  void change_pins(std::span<const int32_t> nodes, int32_t change);
  int32_t page_handle(BlockId block) const { return node_max_ + block.value; }

  // Children by hash: open addressing, linear probing, at most half full.
  size_t table_find(uint64_t hash) const;  // its place, or the empty one where it would go
  void table_insert(uint64_t hash, int32_t node);
  void table_erase(uint64_t hash);

  BlockPool& pool_;
  const std::span<const KvGroupSpec> groups_;
  const EvictionRule rule_;
  const uint64_t hash_mask_;
  int32_t unit_tokens_ = 1;
  int32_t node_max_ = 0;
  std::vector<PageSlot> page_slots_;  // [pages of a unit]

  std::vector<Node> nodes_;
  std::vector<TokenId> unit_of_;  // [nodes][unit_tokens]
  std::vector<BlockId> page_of_;  // [nodes][pages of a unit]
  std::vector<int32_t> free_nodes_;
  std::vector<int32_t> table_;  // node or kNone
  std::unordered_map<std::string, int32_t> roots_;
  std::unordered_map<int32_t, std::string> root_names_;
  std::vector<int32_t> owner_;       // [blocks] node, or kNone
  std::vector<int32_t> owner_slot_;  // [blocks] in the node's pages
  EvictionQueue queue_;              // handles: nodes, then pages of sliding groups
  int32_t node_count_ = 0;
  uint64_t tick_ = 0;
  uint64_t version_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace headrace
