// Prefix reuse: keys and values of token sequences that were computed before, as a radix tree whose
// nodes are units of tokens with their pages in every KV group. Ids and counts only; one thread.
//
// Life of a page: its writer computes it; when the step that filled it was applied it is published
// and extend() puts it into the tree; other sequences share it; when its last holder lets go it is
// idle (block_pool.h), until somebody shares it again or its memory is needed. Then it is stored in
// the tier below, where that pays, and stays in the tree; a hit loads it into a page of the pool.
//
// The parts:
//   PrefixTree          the order of units; finds them by their tokens
//   CachedUnits         which page, in which tier, belongs to which unit
//   EvictionCandidates  what nobody holds, the least worth first
//   LowerTiers          room below the pool, and the copies that plans are to make
//   PageEvictor         gives pages up when the pool needs them
//   StateCheckpoints    states that are saved behind units, of models that keep such
//   PrefixFinder        looks up, changes nothing
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/block_pool.h"
#include "kv/cached_units.h"
#include "kv/eviction_candidates.h"
#include "kv/eviction_queue.h"
#include "kv/kv_group.h"
#include "kv/lower_tiers.h"
#include "kv/page_evictor.h"
#include "kv/prefix_finder.h"
#include "kv/prefix_tree.h"
#include "kv/sequence_blocks.h"
#include "kv/state_checkpoints.h"
#include "kv/tier_pool.h"

namespace headrace {

// A match as a new sequence's beginning: its pages are held by it.
struct PrefixHold {
  std::vector<GroupBlocks> pages;  // for SequenceBlocks::adopt
  PrefixPath path;
  Ticket usable_after;                     // the plan that loads the last of them
  std::optional<CheckpointId> checkpoint;  // the state to begin with, where sequences keep one
};

struct PrefixCacheOptions {
  EvictionRule rule = nullptr;
  std::vector<TierSpec> tiers;  // below the pool: host, disk
  // Sequences keep states, of which so many can be saved; nullopt: they keep none. Not with tiers.
  std::optional<int32_t> checkpoints = {};
  uint64_t hash_mask = ~uint64_t{0};  // makes hashes collide, for tests
};

// A unit of the tree as it is saved and restored.
struct KeptUnit {
  struct Page {
    int32_t slot = 0;  // which of the unit's pages
    TierPage place;
  };
  int32_t parent = -1;  // index of its parent's unit; -1: it begins a sequence
  std::string salt;
  uint64_t adapter = 0, arithmetic = 0;
  std::vector<TokenId> tokens;
  std::vector<Page> pages;
};
struct RestoredUnit {
  int32_t node = -1;
  std::vector<BlockId> pages;  // for the slots that were asked for
};

class PrefixCache {
 public:
  // `pool` and `groups` outlive this object, and the pool is only used while it lives.
  PrefixCache(BlockPool& pool, std::span<const KvGroupSpec> groups, PrefixCacheOptions options);
  ~PrefixCache() { pool_.set_keeper(nullptr); }

  // The longest prefix of `tokens`, of at most `tokens_max`. Inside a unit it is used from a
  // quarter of a unit on: its page is copied when it is written (SequenceBlocks::grow).
  PrefixMatch match(const PrefixKey& key, TokenSpan tokens, int32_t tokens_max) const {
    return finder_.match(key, tokens, tokens_max);
  }
  // Pages of the match that cost nothing: not idle and not in a tier, so nobody could allocate them
  // now.
  int32_t pages_in_use(const PrefixMatch& match) const { return finder_.pages_in_use(match); }
  // Pages of the match that are in lower tiers.
  int32_t pages_to_load(const PrefixMatch& match) const { return finder_.pages_to_load(match); }
  // Pages that are copied when the first token after the match is written.
  int32_t copies(const PrefixMatch& match) const { return finder_.copies(match); }
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
  // The units of the path, fewer than `units`, behind which its deepest checkpoint of those stands;
  // 0: none does. `units` where the path is not in the tree any more.
  int32_t units_of_checkpoint_before(const PrefixPath& path, int32_t units) const;
  // Takes everything out of the tree. Pages that are held stay with their holders.
  void clear();

  // As PageEvictor::evict_ahead() and store_ahead(), of the match.
  int32_t evict_ahead(int32_t pages) { return evictor_.evict_ahead(pages); }
  int32_t store_ahead(const PrefixMatch& match, int32_t pages) {
    return evictor_.store_ahead(match.nodes, pages);
  }

  // Pinned prefixes are evicted after all others. The cache counts pins, so that they nest.
  void pin(const PrefixMatch& match) { units_.change_pins(match.nodes, 1); }
  void unpin(const PrefixKey& key, TokenSpan tokens);

  // --- states, of models that keep such
  // As StateCheckpoints::take() and take_for_answer().
  std::optional<CheckpointId> take_checkpoint() { return states_.take(); }
  std::optional<CheckpointId> take_checkpoint_for_answer(
      const std::optional<AttachedCheckpoint>& own) {
    return states_.take_for_answer(own);
  }
  // The state of a sequence of that path, behind its first `tokens`, was saved there: it is
  // attached to its unit, if the path has come that far and the unit has none. Else it is given
  // back. REQUIRES: whole units
  std::optional<AttachedCheckpoint> attach_checkpoint(CheckpointId checkpoint,
                                                      const PrefixPath& path, int32_t tokens);
  void give_back_checkpoint(CheckpointId checkpoint) { states_.give_back(checkpoint); }
  // As StateCheckpoints::drop().
  void drop_checkpoint(const AttachedCheckpoint& attached) { states_.drop(attached); }
  const StateCheckpoints& checkpoints() const { return states_; }

  // --- tiers, as the methods of LowerTiers with these names
  void begin_plan(Ticket step) { tiers_.begin_plan(step); }
  TierMoves take_moves() { return tiers_.take_moves(); }
  void set_seconds_per_token(double seconds) { tiers_.set_seconds_per_token(seconds); }
  const TierCounts& tier_counts() const { return tiers_.counts(); }
  int32_t pages_in_tier(int32_t tier) const { return tiers_.pages_in(tier); }

  // --- saving and restoring, while nothing runs
  std::vector<KeptUnit> kept_units() const;  // parents before children
  // Puts a unit below `parent` (a node that was restored; -1: at the beginning of `key`'s
  // sequences) with pages for `slots`, whose content is for the caller to bring. Empty: the pool
  // has no page that nobody uses, the tree has the unit, or the unit makes no sense.
  std::optional<RestoredUnit> restore_unit(const PrefixKey& key, int32_t parent, TokenSpan tokens,
                                           std::span<const int32_t> slots);

  int32_t unit_tokens() const { return tree_.unit_tokens(); }
  int32_t node_count() const { return tree_.count(); }
  uint64_t evictions() const { return evictor_.evictions(); }
  // How long pages stay, by the times that it is told.
  void set_now(double seconds) { units_.times().set_now(seconds); }
  const PageTimeStats& page_times() const { return units_.times().stats(); }

  // Tree, table, pages and queues agree.
  Status check_invariants() const;
  // The path's nodes hold the first tokens of a sequence. O(path.units)
  Status check_path(const PrefixPath& path, TokenSpan tokens) const;

 private:
  static constexpr int32_t kNone = PrefixTree::kNone;

  void extend_unit(PrefixPath& path, TokenSpan unit, uint64_t hash, const SequenceBlocks& blocks);
  void fill_pages(int32_t node, const SequenceBlocks& blocks);
  Status check_tiers(std::span<const int32_t> kept) const;

  BlockPool& pool_;
  const std::span<const KvGroupSpec> groups_;
  PrefixTree tree_;
  LowerTiers tiers_;
  EvictionCandidates candidates_;
  CachedUnits units_;
  StateCheckpoints states_;
  PrefixFinder finder_;
  PageEvictor evictor_;
};

}  // namespace headrace
