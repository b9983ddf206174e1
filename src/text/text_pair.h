// Two texts as one row of ids, as Hugging Face's tokenizers join them for a cross-encoder.
#pragma once

#include <cstddef>
#include <vector>

#include "base/ids.h"
#include "text/vocab.h"

namespace headrace {

struct PairLengths {
  size_t first = 0, second = 0;
  bool operator==(const PairLengths&) const = default;
};

// How many ids of each stay where both may have `most` together: truncation by "longest_first", as
// the Rust library has it. The longer text loses its end, down to the other's length; then both.
PairLengths longest_first(PairLengths lengths, size_t most);

std::vector<TokenId> join_pair(const PairFrame& frame, TokenSpan first, TokenSpan second);

}  // namespace headrace
