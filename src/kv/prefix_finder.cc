#include "kv/prefix_finder.h"

#include <algorithm>

namespace headrace {

PrefixMatch PrefixFinder::match(const PrefixKey& key, TokenSpan tokens, int32_t tokens_max) const {
  constexpr int32_t kNone = PrefixTree::kNone;
  PrefixMatch match;
  int32_t node = tree_.find_root(key);
  if (node == kNone) return match;
  const auto most = std::min(tokens.size(), static_cast<size_t>(std::max(0, tokens_max)));
  const auto unit = static_cast<size_t>(tree_.unit_tokens());
  size_t length = 0;
  uint64_t hash = tree_.at(node).hash;
  while (length < most && length + unit <= tokens.size()) {
    hash = tree_.hash_of(hash, tokens.subspan(length, unit));
    const int32_t child = tree_.find_child(node, tokens.subspan(length, unit), hash);
    if (child == kNone) break;
    match.nodes.push_back(child);
    node = child;
    length += unit;
  }
  if (length < most && states_ == nullptr) {
    int32_t common = 0;
    const int32_t partial = tree_.best_partial_child(node, tokens.subspan(length), common);
    if (partial != kNone) match.nodes.push_back(partial);
    if (partial != kNone) length += static_cast<size_t>(common);
  }
  match.tokens = usable_length(match.nodes, static_cast<int32_t>(std::min(length, most)));
  match.kv_tokens = match.tokens / tree_.unit_tokens() * tree_.unit_tokens();
  if (states_ != nullptr) match.tokens = checkpointed_length(match.nodes, match.kv_tokens);
  match.nodes.resize((static_cast<size_t>(match.tokens) + unit - 1) / unit);
  if (tiers_.lowest() > kPoolTier) cut_costly_loads(match);
  return match;
}

// The longest prefix, `tokens` or whole units of it, whose windows are all there.
int32_t PrefixFinder::usable_length(std::span<const int32_t> nodes, int32_t tokens) const {
  const int32_t unit = tree_.unit_tokens();
  bool found = false;
  while (!found && tokens > 0) {
    found = true;
    int32_t shorter = tokens;
    for_each_page(tokens, nodes, [&](int32_t group, int32_t index, int32_t node, size_t slot) {
      if (units_.pages_of(node)[slot].none()) {
        shorter = std::min(shorter, index * groups_[static_cast<size_t>(group)].block_tokens);
        found = false;
      }
    });
    // Any window that ends behind a missing page and begins before it has the same hole.
    if (!found) tokens = shorter / unit * unit;
  }
  return tokens;
}

// The longest prefix, whole units of `tokens`, behind which a state is saved and whose windows are
// all there.
int32_t PrefixFinder::checkpointed_length(std::span<const int32_t> nodes, int32_t tokens) const {
  const int32_t unit = tree_.unit_tokens();
  for (; tokens > 0; tokens -= unit) {
    const int32_t last = nodes[static_cast<size_t>(tokens / unit) - 1];
    if (states_->of(last) && usable_length(nodes, tokens) == tokens) break;
  }
  return tokens;
}

// A hit ends before what is cheaper to compute than to load.
void PrefixFinder::cut_costly_loads(PrefixMatch& match) const {
  if (tiers_.seconds_per_token() <= 0) return;
  const int32_t unit = tree_.unit_tokens();
  double load = 0;
  int32_t first_tokens = match.tokens;  // of the pages that are in the pool, from the beginning
  for_each_page(
      match.tokens, match.nodes, [&](int32_t group, int32_t index, int32_t node, size_t slot) {
        const TierPage page = units_.pages_of(node)[slot];
        if (page.tier == kPoolTier) return;
        load += tiers_.seconds_per_page(page.tier);
        first_tokens =
            std::min(first_tokens, index * groups_[static_cast<size_t>(group)].block_tokens);
      });
  if (load <= tiers_.seconds_per_token() * (match.tokens - first_tokens)) return;
  match.tokens = usable_length(match.nodes, first_tokens / unit * unit);
  match.nodes.resize(static_cast<size_t>(match.tokens / unit));
}

int32_t PrefixFinder::pages_in_use(const PrefixMatch& match) const {
  int32_t count = 0;
  for_each_page(match.tokens, match.nodes, [&](int32_t, int32_t, int32_t node, size_t slot) {
    if (!units_.is_loose(units_.pages_of(node)[slot])) ++count;
  });
  return count;
}

int32_t PrefixFinder::pages_to_load(const PrefixMatch& match) const {
  if (tiers_.lowest() == kPoolTier) return 0;
  int32_t count = 0;
  for_each_page(match.tokens, match.nodes, [&](int32_t, int32_t, int32_t node, size_t slot) {
    if (units_.pages_of(node)[slot].tier != kPoolTier) ++count;
  });
  return count;
}

int32_t PrefixFinder::copies(const PrefixMatch& match) const {
  return static_cast<int32_t>(std::count_if(
      groups_.begin(), groups_.end(),
      [&](const KvGroupSpec& group) { return match.tokens % group.block_tokens != 0; }));
}

}  // namespace headrace
