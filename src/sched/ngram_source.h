// Proposes what followed the last tokens of a sequence where they stood before, in its prompt or in
// its own output (prompt look-up decoding, Saxena 2023; vLLM's and llama.cpp's "ngram").
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sched/draft_source.h"

namespace headrace {

class NgramSource final : public DraftSource {
 public:
  // REQUIRES: 1 <= lookup_min <= lookup_max
  NgramSource(int32_t lookup_min, int32_t lookup_max)
      : lookup_min_(lookup_min), lookup_max_(lookup_max) {}

  // Of the places where the last tokens stood before, the one with the longest match (at most
  // lookup_max tokens count), of these the latest. Looks at no more than kPlacesMax of them.
  void propose(Sequence& sequence, int32_t most, std::vector<TokenId>& proposed) override;

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
  void extend(Index& index, const Sequence& sequence) const;
  uint64_t run_before(const Index& index, int32_t end) const;
  int32_t match_length(const Index& index, int32_t end) const;

  const int32_t lookup_min_, lookup_max_;
};

}  // namespace headrace
