// The loop of byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909), for any kind of symbol:
// of all adjacent pairs, the one with the lowest rank is merged first, the leftmost of equals.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

namespace headrace {

inline constexpr uint32_t kNoMerge = UINT32_MAX;

// What becomes of two neighbours. rank == kNoMerge: they stay two.
template <class Symbol>
struct PairMerge {
  uint32_t rank = kNoMerge;
  Symbol product{};
};

// Pieces of up to this many symbols (nearly all words) are merged by scanning an array on the
// stack; longer ones through a heap.
inline constexpr size_t kShortPiece = 32;

// REQUIRES: symbols.size() <= kShortPiece. `find(left, right)` gives a PairMerge; `emit(symbol)` is
// called for what is left, in order.
template <class Symbol, class Find, class Emit>
void merge_short(std::span<const Symbol> symbols, const Find& find, const Emit& emit) {
  std::array<Symbol, kShortPiece> left;
  std::array<uint32_t, kShortPiece> ranks;  // ranks[i], products[i]: of the pair (i, i + 1)
  std::array<Symbol, kShortPiece> products;
  size_t count = symbols.size();
  std::copy(symbols.begin(), symbols.end(), left.begin());
  const auto look_up = [&](size_t i) {
    const PairMerge<Symbol> merge = find(left[i], left[i + 1]);
    ranks[i] = merge.rank;
    products[i] = merge.product;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.begin() + (count - 1));
    if (*best == kNoMerge) break;
    const size_t at = static_cast<size_t>(best - ranks.begin());
    left[at] = products[at];
    std::copy(left.begin() + at + 2, left.begin() + count, left.begin() + at + 1);
    std::copy(ranks.begin() + at + 1, ranks.begin() + (count - 1), ranks.begin() + at);
    std::copy(products.begin() + at + 1, products.begin() + (count - 1), products.begin() + at);
    --count;
    if (at > 0) look_up(at - 1);
    if (at + 1 < count) look_up(at);
  }
  for (size_t i = 0; i < count; ++i) emit(left[i]);
}

// The same for any number of symbols below 2^32 - 1. O(n log n).
template <class Symbol, class Find, class Emit>
void merge_long(std::span<const Symbol> symbols, const Find& find, const Emit& emit) {
  struct Node {
    Symbol symbol;
    uint32_t previous, next;  // index; the end is the node count
    uint32_t rank;            // with the next node; of a node that is gone: kNoMerge
  };
  const uint32_t end = static_cast<uint32_t>(symbols.size());
  std::vector<Node> nodes(symbols.size());
  for (uint32_t i = 0; i < end; ++i) {
    nodes[i] = {symbols[i], i == 0 ? end : i - 1, i + 1, kNoMerge};
  }
  std::vector<uint64_t> initial;  // rank << 32 | index of the left symbol
  initial.reserve(symbols.size());
  for (uint32_t i = 0; i + 1 < end; ++i) {
    nodes[i].rank = find(nodes[i].symbol, nodes[i + 1].symbol).rank;
    if (nodes[i].rank != kNoMerge) initial.push_back(uint64_t{nodes[i].rank} << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(initial));
  const auto look_up = [&](uint32_t i) {
    if (i == end) return;
    Node& node = nodes[i];
    node.rank = node.next == end ? kNoMerge : find(node.symbol, nodes[node.next].symbol).rank;
    if (node.rank != kNoMerge) queue.push(uint64_t{node.rank} << 32 | i);
  };
  while (!queue.empty()) {
    const uint32_t rank = static_cast<uint32_t>(queue.top() >> 32);
    const uint32_t at = static_cast<uint32_t>(queue.top());
    queue.pop();
    Node& left = nodes[at];
    if (left.rank != rank) continue;  // that pair is gone, or is another one now
    Node& right = nodes[left.next];
    left.symbol = find(left.symbol, right.symbol).product;
    left.next = right.next;
    right.rank = kNoMerge;
    if (left.next != end) nodes[left.next].previous = at;
    look_up(left.previous);
    look_up(at);
  }
  for (uint32_t i = 0; i != end; i = nodes[i].next) emit(nodes[i].symbol);
}

template <class Symbol, class Find, class Emit>
void merge_symbols(std::span<const Symbol> symbols, const Find& find, const Emit& emit) {
  if (symbols.size() <= kShortPiece) {
    merge_short(symbols, find, emit);
  } else {
    merge_long(symbols, find, emit);
  }
}

}  // namespace headrace
