// Tokens that may follow a sequence, which one step verifies together: a chain, or a tree whose
// branches go on from one token in several ways (SpecInfer, Miao et al. 2024).
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace headrace {

struct TokenTree {
  static constexpr int32_t kBeforeAll = -1;
  static constexpr int32_t kTokensMax = 64;  // a path is a word of bits

  std::vector<TokenId> tokens;
  // [tokens] the one that each stands behind, which comes earlier in the list: kBeforeAll, the
  // sequence's last token. Empty: each stands behind the one before it, a chain.
  std::vector<int32_t> parents = {};

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  bool empty() const { return tokens.empty(); }
  bool is_chain() const { return parents.empty(); }
  int32_t parent(int32_t i) const { return is_chain() ? i - 1 : parents[static_cast<size_t>(i)]; }
  TokenId token(int32_t i) const { return tokens[static_cast<size_t>(i)]; }

  // How many tokens of it stand before token i.
  int32_t depth(int32_t i) const {
    if (is_chain()) return i;
    int32_t before = 0;
    while ((i = parent(i)) != kBeforeAll) ++before;
    return before;
  }
  // Those on the path to token i, itself included: bit j is token j. REQUIRES: size() <= kTokensMax
  uint64_t path(int32_t i) const {
    uint64_t bits = 0;
    for (; i != kBeforeAll; i = parent(i)) bits |= uint64_t{1} << i;
    return bits;
  }
  // The token `token` behind token `before`; kBeforeAll: none.
  int32_t child(int32_t before, TokenId token) const {
    for (int32_t i = before + 1; i < size(); ++i) {
      if (parent(i) == before && tokens[static_cast<size_t>(i)] == token) return i;
    }
    return kBeforeAll;
  }
  // How many stand behind token `before`.
  int32_t child_count(int32_t before) const {
    int32_t count = 0;
    for (int32_t i = before + 1; i < size(); ++i) count += parent(i) == before ? 1 : 0;
    return count;
  }
  bool goes_on(int32_t i) const { return is_chain() ? i + 1 < size() : child_count(i) > 0; }
  bool forks(int32_t i) const { return !is_chain() && child_count(i) > 1; }
  // How many children of the same token come before token i.
  int32_t rank(int32_t i) const {
    int32_t rank = 0;
    for (int32_t j = parent(i) + 1; j < i; ++j) rank += parent(j) == parent(i) ? 1 : 0;
    return rank;
  }

  // Keeps what `kept` [tokens] says, of which what it stands behind is kept too.
  void keep(const std::vector<bool>& kept) {
    std::vector<int32_t> now(tokens.size());
    int32_t count = 0;
    for (int32_t i = 0; i < size(); ++i) {
      const auto at = static_cast<size_t>(i);
      if (!kept[at]) continue;
      const int32_t before = parent(i);
      CHECK(before == kBeforeAll || kept[static_cast<size_t>(before)]);
      const auto to = static_cast<size_t>(count);
      tokens[to] = tokens[at];
      if (!is_chain())
        parents[to] = before == kBeforeAll ? before : now[static_cast<size_t>(before)];
      now[at] = count++;
    }
    cut(count);
    forget_parents_of_chain();
  }
  void clear() {
    tokens.clear();
    parents.clear();
  }
  // Lets go of all but the first `count` tokens.
  void cut(int32_t count) {
    tokens.resize(static_cast<size_t>(count));
    if (!is_chain()) parents.resize(tokens.size());
  }
  // A chain where it has one branch.
  void forget_parents_of_chain() {
    for (int32_t i = 0; i < size(); ++i) {
      if (parent(i) != i - 1) return;
    }
    parents.clear();
  }
  // Whether parents come before their children and no two children of one token are alike.
  bool valid() const {
    if (is_chain()) return true;
    if (parents.size() != tokens.size() || size() > kTokensMax) return false;
    for (int32_t i = 0; i < size(); ++i) {
      const int32_t before = parent(i);
      if (before < kBeforeAll || before >= i || child(before, token(i)) != i) return false;
    }
    return true;
  }

  friend bool operator==(const TokenTree&, const TokenTree&) = default;
};

}  // namespace headrace
