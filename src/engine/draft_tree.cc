#include "engine/draft_tree.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace headrace {

int32_t DraftTree::wanted(int32_t before) const {
  if (form_.ranks.empty()) return form_.width;
  return form_.ranks.child_count(before < 0 ? kBeforeAll : node(before).in_form);
}

void DraftTree::add(int32_t before, std::span<const Candidate> candidates) {
  const bool first = before == kBeforeAll;
  const int32_t depth = first ? 0 : node(before).depth + 1;
  const double chance = first ? 1 : node(before).chance;
  const int32_t in_form = first ? kBeforeAll : node(before).in_form;
  const auto count = std::min<int32_t>(wanted(before), static_cast<int32_t>(candidates.size()));
  if (depth == form_.depth) return;
  for (int32_t rank = 0; rank < count; ++rank) {
    const Candidate& candidate = candidates[static_cast<size_t>(rank)];
    nodes_.push_back({.token = candidate.token,
                      .parent = before,
                      .depth = depth,
                      .rank = rank,
                      .chance = chance * candidate.chance,
                      .ends = candidate.ends});
    if (!form_.ranks.empty()) nodes_.back().in_form = form_.ranks.child(in_form, rank);
  }
}

// The likeliest, of those alike the earlier: so none comes before what it stands behind.
std::vector<int32_t> DraftTree::best(int32_t count) const {
  std::vector<int32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  if (order.size() <= static_cast<size_t>(count)) return order;
  std::ranges::stable_sort(order,
                           [&](int32_t a, int32_t b) { return node(a).chance > node(b).chance; });
  order.resize(static_cast<size_t>(count));
  return order;
}

// What will not be proposed is not gone on from: what stands behind it is no likelier.
std::span<const int32_t> DraftTree::go_on() {
  going_.clear();
  const size_t first = std::exchange(last_depth_, nodes_.size());
  const bool told = !form_.ranks.empty();
  for (size_t i = first; i < nodes_.size(); ++i) {
    const Node& leaf = nodes_[i];
    if (leaf.depth + 1 == form_.depth || leaf.ends) continue;
    if (told && form_.ranks.child_count(leaf.in_form) == 0) continue;
    going_.push_back(static_cast<int32_t>(i));
  }
  std::ranges::stable_sort(going_,
                           [&](int32_t a, int32_t b) { return node(a).chance > node(b).chance; });
  if (!going_.empty() && node(going_.front()).chance < chance_min_) going_.clear();
  if (!told && going_.size() > 1) {
    const std::vector<int32_t> kept = best(tokens_max_);
    std::erase_if(going_, [&](int32_t at) { return std::ranges::find(kept, at) == kept.end(); });
  }
  const auto room = static_cast<size_t>(tokens_max_) - paths_.size();
  const auto most = std::min(room, told ? room : static_cast<size_t>(form_.width));
  if (going_.size() > most) going_.resize(most);
  for (const int32_t at : going_) {
    Node& leaf = nodes_[static_cast<size_t>(at)];
    leaf.computed = static_cast<int32_t>(paths_.size());
    const uint64_t before =
        leaf.parent == kBeforeAll ? 0 : paths_[static_cast<size_t>(node(leaf.parent).computed)];
    paths_.push_back(before | uint64_t{1} << leaf.computed);
    branches_ = branches_ || std::popcount(paths_.back()) <= leaf.computed;
  }
  return going_;
}

std::span<const uint64_t> DraftTree::paths(int32_t at) const {
  if (!branches_) return {};
  return std::span(paths_).first(static_cast<size_t>(at) + 1);
}

const TokenTree& DraftTree::propose() {
  CHECK(proposed_.empty());
  node_of_ = best(tokens_max_);
  std::vector<int32_t> now(nodes_.size(), kBeforeAll);
  for (const int32_t at : node_of_) {
    now[static_cast<size_t>(at)] = proposed_.size();
    const int32_t before = node(at).parent;
    proposed_.tokens.push_back(node(at).token);
    proposed_.parents.push_back(before == kBeforeAll ? before : now[static_cast<size_t>(before)]);
  }
  proposed_.forget_parents_of_chain();
  return proposed_;
}

std::vector<int32_t> DraftTree::computed_path(std::span<const TokenId> accepted) const {
  std::vector<int32_t> path;
  int32_t last = kBeforeAll;
  for (const TokenId token : accepted) {
    last = proposed_.child(last, token);
    CHECK(last != kBeforeAll);
    const int32_t computed = node(node_of_[static_cast<size_t>(last)]).computed;
    if (computed < 0) break;
    path.push_back(computed);
  }
  return path;
}

}  // namespace headrace
