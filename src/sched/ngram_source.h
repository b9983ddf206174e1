// Proposes what followed the last tokens of a sequence where they stood before, in its prompt or in
// its own output (prompt look-up decoding, Saxena 2023; vLLM's and llama.cpp's "ngram").
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sched/draft_source.h"

namespace headrace {

class NgramSource final : public DraftSource {
 public:
  // `tree_width`: branches that go on from one token, at most. REQUIRES: 1 <= lookup_min <=
  // lookup_max, 1 <= tree_width
  NgramSource(int32_t lookup_min, int32_t lookup_max, int32_t tree_width)
      : lookup_min_(lookup_min), lookup_max_(lookup_max), tree_width_(tree_width) {}

  // Of the places where the last tokens stood before, what follows the one with the longest match
  // (at most lookup_max tokens count), of these the latest. Of a tree that comes first, then what
  // follows the others where it differs, the most frequent first. Looks at no more than kPlacesMax
  // of them.
  void propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) override;

 private:
  static constexpr int kPlacesMax = 32;

  // Where each run of lookup_min tokens ended last, and from each place the one before it: the
  // chains of an LZ77 compressor. Some 50 bytes a token where no run comes twice, on the heap and
  // in no plan of memory.
  struct Index final : DraftMemory {
    std::unordered_map<uint64_t, int32_t> last;  // hash of the run -> one past its end
    std::vector<int32_t> before;                 // [end] -> the end of the same run before; 0: none
    std::vector<TokenId> tokens;                 // all that is known
  };
  // Where the last tokens stood before: one past their end there, and how many they are.
  struct Place {
    int32_t end, same;
  };
  void extend(Index& index, const Sequence& sequence) const;
  std::vector<Place> find_places(const Index& index) const;
  void merge(const Index& index, std::span<const Place> places, const ProposalBounds& bounds,
             TokenTree& proposed) const;
  uint64_t run_before(const Index& index, int32_t end) const;
  int32_t match_length(const Index& index, int32_t end) const;

  const int32_t lookup_min_, lookup_max_, tree_width_;
};

}  // namespace headrace
