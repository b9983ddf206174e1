// Looks prefixes up in the cache: the longest that is usable, and what using it takes of the pool.
// Changes nothing. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/cached_units.h"
#include "kv/kv_group.h"
#include "kv/lower_tiers.h"
#include "kv/prefix_tree.h"
#include "kv/state_checkpoints.h"

namespace headrace {

// The longest usable prefix: valid until the cache changes.
struct PrefixMatch {
  int32_t tokens = 0;  // [0, tokens) need not be computed
  // Of whole units, how far keys and values would reach: beyond `tokens` where no checkpoint of the
  // state is there.
  int32_t kv_tokens = 0;
  std::vector<int32_t> nodes;  // from the root down; the last may be used in part
};

class PrefixFinder {
 public:
  // All of these outlive this object.
  // `states` null: sequences keep no states, and a match may end anywhere.
  PrefixFinder(const PrefixTree& tree, const CachedUnits& units, const LowerTiers& tiers,
               std::span<const KvGroupSpec> groups, const StateCheckpoints* states)
      : tree_(tree), units_(units), tiers_(tiers), groups_(groups), states_(states) {}

  // As the methods of PrefixCache with these names.
  PrefixMatch match(const PrefixKey& key, TokenSpan tokens, int32_t tokens_max) const;
  int32_t pages_in_use(const PrefixMatch& match) const;
  int32_t pages_to_load(const PrefixMatch& match) const;
  int32_t copies(const PrefixMatch& match) const;

  // Visits the pages that a token at `tokens`, behind these nodes, attends to in every group:
  // (group, index in the sequence's table, node, slot in the node).
  template <class Visit>
  void for_each_page(int32_t tokens, std::span<const int32_t> nodes, const Visit& visit) const {
    size_t slot = 0;
    for (size_t group = 0; group < groups_.size(); ++group) {
      const int32_t per_unit = tree_.unit_tokens() / groups_[group].block_tokens;
      const int32_t end = pages_for(tokens, groups_[group].block_tokens);
      for (int32_t index = first_visible_page(groups_[group], tokens); index < end; ++index) {
        const int32_t node = nodes[static_cast<size_t>(index / per_unit)];
        visit(static_cast<int32_t>(group), index, node,
              slot + static_cast<size_t>(index % per_unit));
      }
      slot += static_cast<size_t>(per_unit);
    }
  }

 private:
  int32_t usable_length(std::span<const int32_t> nodes, int32_t tokens) const;
  int32_t checkpointed_length(std::span<const int32_t> nodes, int32_t tokens) const;
  void cut_costly_loads(PrefixMatch& match) const;

  const PrefixTree& tree_;
  const CachedUnits& units_;
  const LowerTiers& tiers_;
  const std::span<const KvGroupSpec> groups_;
  const StateCheckpoints* const states_;
};

}  // namespace headrace
