// PenaltyCounts: how often a sequence has each token among those that its penalties look at: its
// output or, where they have a window, so many tokens that came last, of prompt and output alike. A
// token that comes costs one addition, and one that leaves the window another, however long it is.
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "ops/sampling/sample.h"

namespace headrace {

class PenaltyCounts {
 public:
  PenaltyCounts() = default;  // of no penalties: nothing is counted
  // Of a sequence that joins with `tokens`, the first `prompt` of them its prompt.
  PenaltyCounts(const SamplingParams& sampling, TokenSpan tokens, size_t prompt);

  // Behind each token that comes: `tokens` are all that the sequence has.
  void follow(TokenSpan tokens);
  // Each id once, in any order; until the next follow().
  std::span<const TokenCount> entries() const { return entries_; }

 private:
  void enter(TokenId token);
  void leave(TokenId token);

  size_t window_ = 0;  // 0: nothing is counted
  std::vector<TokenCount> entries_;
  std::unordered_map<TokenId, size_t> places_;  // in entries_
};

}  // namespace headrace
