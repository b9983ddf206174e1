#include "sched/draft_chances.h"

#include <algorithm>
#include <queue>

#include "base/check.h"

namespace headrace {

void MeasuredShare::note(double right, double memory) {
  weight = std::min(weight + 1, memory);
  mean += (right - mean) / weight;
}

DraftChances::DraftChances() {
  for (auto& at_depth : share_) {
    at_depth.fill({.mean = kLater, .weight = kPriorWeight});
    at_depth[0].mean = kFirst;
    at_depth[1].mean = kSecond;
  }
}

void DraftChances::note(int32_t depth, int32_t children, int32_t right) {
  auto& at_depth = share_[static_cast<size_t>(depth)];
  for (int32_t rank = 0; rank < children; ++rank) {
    at_depth[static_cast<size_t>(rank)].note(rank == right ? 1 : 0, kMemory);
    if (rank == right) return;
  }
}

std::array<double, kTreeWidthMax> DraftChances::at(int32_t depth, double shift) const {
  constexpr double kSure = 0.99;
  std::array<double, kTreeWidthMax> chances = {};
  double none_before = 1, before = 1;
  for (size_t rank = 0; rank < chances.size(); ++rank) {
    double share = share_[static_cast<size_t>(depth)][rank].mean;
    if (rank == 0) share = std::clamp(share + shift, 1 - kSure, kSure);
    before = chances[rank] = std::min(before, none_before * share);
    none_before *= 1 - share;
  }
  return chances;
}

namespace {

// A token that may be the next of a tree that grows.
struct Shoot {
  double chance = 0;   // of its path
  int32_t order = 0;   // of those alike the first comes first
  int32_t parent = 0;  // in the tree
  int32_t depth = 0, rank = 0;
  int32_t within = TokenTree::kBeforeAll;  // its place in the tree that it is grown in

  bool operator<(const Shoot& other) const {
    return chance != other.chance ? chance < other.chance : order > other.order;
  }
};

}  // namespace

// The next best token is behind one that is in the tree, or beside one, of the next rank.
DraftChances::Grown DraftChances::grow(const Bounds& bounds, double shift) const {
  CHECK(bounds.depth <= kProposedTokensMax && bounds.width <= kTreeWidthMax);
  std::vector<std::array<double, kTreeWidthMax>> chances;
  for (int32_t depth = 0; depth < bounds.depth; ++depth) chances.push_back(at(depth, shift));
  Grown grown;
  std::priority_queue<Shoot> shoots;
  int32_t order = 0;
  // Behind `within_parent` of the tree that it is grown in.
  const auto add = [&](int32_t parent, int32_t within_parent, int32_t depth, int32_t rank) {
    if (depth == bounds.depth || rank == bounds.width) return;
    Shoot shoot{.order = order++, .parent = parent, .depth = depth, .rank = rank};
    if (bounds.within != nullptr) {
      shoot.within = bounds.within->child(within_parent, rank);
      if (shoot.within == TokenTree::kBeforeAll) return;
    }
    const double before = parent < 0 ? 1 : grown.chances[static_cast<size_t>(parent)];
    shoot.chance = before * chances[static_cast<size_t>(depth)][static_cast<size_t>(rank)];
    shoots.push(shoot);
  };
  add(TokenTree::kBeforeAll, TokenTree::kBeforeAll, 0, 0);
  while (!shoots.empty() && grown.ranks.size() < bounds.tokens) {
    const Shoot shoot = shoots.top();
    shoots.pop();
    const int32_t at = grown.ranks.size();
    grown.ranks.tokens.push_back(shoot.rank);
    grown.ranks.parents.push_back(shoot.parent);
    grown.chances.push_back(shoot.chance);
    add(at, shoot.within, shoot.depth + 1, 0);
    const int32_t within_parent =
        bounds.within == nullptr ? TokenTree::kBeforeAll : bounds.within->parent(shoot.within);
    add(shoot.parent, within_parent, shoot.depth, shoot.rank + 1);
  }
  return grown;
}

}  // namespace headrace
