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
// Tiers: a page that the pool takes is stored in the tier below, when loading it again costs less
// than computing it, and the tier has room or something of less worth. It stays in the tree; a hit
// loads it into a page of the pool. A page is in one tier at a time. What is to be copied is
// collected in moves(). (Hierarchical caching as in AttentionStore, Gao et al., USENIX ATC 2024.)
// Swapping a preempted sequence out and in is nothing else: its full pages are idle, and go down
// one by one as far as the pool needs them.
//
// A prefix is compared token by token: equal hashes never make a hit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/block_pool.h"
#include "kv/eviction_queue.h"
#include "kv/kv_group.h"
#include "kv/sequence_blocks.h"
#include "kv/tier_pool.h"

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

// A match as a new sequence's beginning: its pages are held by it.
struct PrefixHold {
  std::vector<GroupBlocks> pages;  // for SequenceBlocks::adopt
  PrefixPath path;
  Ticket usable_after;  // the plan that loads the last of them
};

struct PrefixCacheOptions {
  EvictionRule rule = nullptr;
  std::vector<TierSpec> tiers;        // below the pool: host, disk
  uint64_t hash_mask = ~uint64_t{0};  // makes hashes collide, for tests
};

// What plans copy between tiers. Stores are done in order before anything else of the plan writes a
// page; loads after them, for later plans to use.
struct TierMoves {
  std::vector<PageMove> stores, loads;
};

// Pages that went down, came up, or were dropped for want of room or because computing is cheaper.
struct TierCounts {
  uint64_t stored = 0, loaded = 0, dropped = 0;
};

// A unit of the tree as it is saved and restored.
struct KeptUnit {
  struct Page {
    int32_t slot = 0;  // which of the unit's pages
    TierPage place;
  };
  int32_t parent = -1;  // index of its parent's unit; -1: it begins a sequence
  std::string salt;
  uint64_t adapter = 0;
  std::vector<TokenId> tokens;
  std::vector<Page> pages;
};
struct RestoredUnit {
  int32_t node = -1;
  std::vector<BlockId> pages;  // for the slots that were asked for
};

class PrefixCache final : private PageKeeper {
 public:
  // `pool` and `groups` outlive this object, and the pool is only used while it lives.
  PrefixCache(BlockPool& pool, std::span<const KvGroupSpec> groups, PrefixCacheOptions options);
  ~PrefixCache() override { pool_.set_keeper(nullptr); }

  // The longest prefix of `tokens`, of at most `tokens_max`. Inside a unit it is used from a
  // quarter of a unit on: its page is copied when it is written (SequenceBlocks::grow).
  PrefixMatch match(const PrefixKey& key, TokenSpan tokens, int32_t tokens_max) const;
  // Its pages that cost nothing: not idle and not in a tier, so nobody could allocate them now.
  int32_t pages_in_use(const PrefixMatch& match) const;
  // Its pages in lower tiers.
  int32_t pages_to_load(const PrefixMatch& match) const;
  // Pages that are copied when the first token after the match is written.
  int32_t copies(const PrefixMatch& match) const;
  // A sequence begins with the match. Takes pages_to_load() pages of the pool, loads them in this
  // plan, and notes the use. REQUIRES: pool.free_count() covers what is not in use
  PrefixHold acquire(const PrefixMatch& match);

  // Puts units from `path.units` on into the tree: `units` are their tokens, `blocks` the
  // sequence's pages. REQUIRES: whole units; those pages are published (or not held: behind a
  // window)
  void extend(const PrefixKey& key, PrefixPath& path, TokenSpan units,
              const SequenceBlocks& blocks);
  // Takes units [units, path.units) and all below out of the tree: their content is not to be
  // trusted.
  void forget_from(PrefixPath& path, int32_t units);
  // Everything. Pages that are held stay with their holders.
  void clear();

  // Pinned prefixes are evicted after all others. They count pins and nest.
  void pin(const PrefixMatch& match);
  void unpin(const PrefixKey& key, TokenSpan tokens);

  // --- tiers
  // Moves belong to plan `step` from now on.
  void begin_plan(Ticket step) { step_ = step; }
  TierMoves take_moves() { return std::exchange(moves_, {}); }
  // Of computing a token, as measured; 0: not known, storing is taken to be cheaper.
  void set_seconds_per_token(double seconds) { seconds_per_token_ = seconds; }
  const TierCounts& tier_counts() const { return tier_counts_; }
  // Pages in a lower tier.
  int32_t pages_in_tier(int32_t tier) const;

  // --- saving and restoring, while nothing runs
  std::vector<KeptUnit> kept_units() const;  // parents before children
  // Puts a unit below `parent` (a node that was restored; -1: at the beginning of `key`'s
  // sequences) with pages for `slots`, whose content is for the caller to bring. Empty: the pool
  // has no page that nobody uses, the tree has the unit, or the unit makes no sense.
  std::optional<RestoredUnit> restore_unit(const PrefixKey& key, int32_t parent, TokenSpan tokens,
                                           std::span<const int32_t> slots);

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
  // A cache line: every step takes nodes in and evicts others, and finds both cold.
  struct alignas(64) Node {
    int32_t parent = kNone;
    int32_t first_child = kNone, next = kNone, previous = kNone;  // siblings, newest first
    int32_t depth = 0;                                            // units from the root; a root: 0
    uint32_t generation = 0;
    uint64_t hash = 0;
    double worth = 0;
    uint32_t hits = 0;
    // Per tier: its children that have full-attention pages that may go (in the pool: idle ones),
    // and its own such pages.
    std::array<int32_t, kTierCount> loose_children{};
    std::array<int8_t, kTierCount> loose{};
    int8_t pages = 0;  // kept for this unit, in any tier
    bool used = false;
    bool locked = false;  // acquire() is at work on it: it stays
    bool pinned = false;  // pins_of_ > 0
  };
  static_assert(sizeof(Node) == 64);
  // Where a page of a unit belongs.
  struct PageSlot {
    int32_t group = 0;
    int32_t index = 0;  // in the unit
    bool sliding = false;
  };

  void page_idle(BlockId block) override;
  void page_held(BlockId block) override;
  void evict() override { evict_from(kPoolTier); }

  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  TokenSpan tokens_of(int32_t node) const;
  std::span<TierPage> pages_of(int32_t node);
  std::span<const TierPage> pages_of(int32_t node) const;
  BlockId block_of(TierPage place) const { return BlockId(place.page); }
  int32_t lowest_tier() const { return static_cast<int32_t>(tiers_.size()); }
  TierPool& tier(int32_t index) { return tiers_[static_cast<size_t>(index) - 1]; }
  uint64_t hash_of(uint64_t parent_hash, TokenSpan unit) const;
  int32_t find_root(const PrefixKey& key) const;
  int32_t find_child(int32_t parent, TokenSpan unit) const;
  int32_t find_child(int32_t parent, TokenSpan unit, uint64_t hash) const;
  int32_t best_partial_child(int32_t parent, TokenSpan rest, int32_t& length) const;
  int32_t usable_length(std::span<const int32_t> nodes, int32_t tokens) const;
  template <class Visit>
  void for_each_page(const PrefixMatch& match, const Visit& visit) const;

  int32_t make_root(const PrefixKey& key);
  int32_t add_child(int32_t parent, TokenSpan unit, uint64_t hash);
  void extend_unit(PrefixPath& path, TokenSpan unit, uint64_t hash, const SequenceBlocks& blocks);
  int32_t new_node();
  void fill_pages(int32_t node, const SequenceBlocks& blocks);
  void remove_subtree(int32_t node);
  void remove_node(int32_t node);
  void drop_page(int32_t node, size_t slot);
  void attach(int32_t node, size_t slot, TierPage place);
  void detach(int32_t node, size_t slot);
  void prune(int32_t node);  // nodes without page and child, upwards
  void evict_from(int32_t tier);
  void evict_node(int32_t node, int32_t tier);
  void prefetch_parents(int32_t node) const;
  bool demote(int32_t node, size_t slot);
  bool is_worth_storing(int32_t node, int32_t tier) const;
  void cut_costly_loads(PrefixMatch& match) const;
  bool is_loose(TierPage place) const;
  void update_candidate(int32_t node, int32_t tier);
  void note_loose(int32_t node, int32_t tier, int32_t change);
  double worth_of(int32_t node) const;
  void change_pins(std::span<const int32_t> nodes, int32_t change);
  int32_t page_handle(TierPage place) const { return node_max_ + place.page; }
  EvictionQueue& queue(int32_t tier) { return queues_[static_cast<size_t>(tier)]; }
  // What a page of a tier belongs to.
  struct Owner {
    int32_t node = kNone;
    int32_t slot = 0;
  };
  Owner& owner(TierPage place) {
    return owners_[static_cast<size_t>(place.tier)][static_cast<size_t>(place.page)];
  }
  const Owner& owner(TierPage place) const {
    return owners_[static_cast<size_t>(place.tier)][static_cast<size_t>(place.page)];
  }
  bool is_sliding(size_t slot) const { return page_slots_[slot].sliding; }
  Status check_node(int32_t node) const;

  // Children by hash: open addressing, linear probing, at most half full. An entry has enough of
  // its node's hash to pass it by, and to know its home (of at most 2^32), without reading the
  // node.
  struct TableEntry {
    int32_t node = kNone;
    uint32_t hash_low = 0;
  };
  size_t table_find(uint64_t hash) const;  // its place, or the empty one where it would go
  void prefetch_table(uint64_t hash) const;
  void table_insert(uint64_t hash, int32_t node);
  void table_erase(uint64_t hash);

  BlockPool& pool_;
  const std::span<const KvGroupSpec> groups_;
  const PrefixCacheOptions options_;
  int32_t unit_tokens_ = 1;
  int32_t node_max_ = 0;
  std::vector<PageSlot> page_slots_;  // [pages of a unit]

  std::vector<Node> nodes_;
  std::vector<int32_t> pins_of_;   // [nodes]
  std::vector<Ticket> loaded_in_;  // [nodes] the last plan that loads a page of it
  std::vector<TokenId> unit_of_;   // [nodes][unit_tokens]
  std::vector<TierPage> page_of_;  // [nodes][pages of a unit]
  std::vector<int32_t> free_nodes_;
  std::vector<TableEntry> table_;
  std::unordered_map<std::string, int32_t> roots_;
  std::unordered_map<int32_t, std::string> root_names_;
  std::vector<TierPool> tiers_;             // from the host's
  std::vector<std::vector<Owner>> owners_;  // [tiers, the pool first][pages]
  std::vector<EvictionQueue> queues_;  // the same; handles: nodes, then pages of sliding groups
  TierMoves moves_;
  TierCounts tier_counts_;
  Ticket step_;
  double seconds_per_token_ = 0;
  int32_t node_count_ = 0;
  uint64_t tick_ = 0;
  uint64_t version_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace headrace
