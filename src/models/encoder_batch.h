// The tokens of one pass of an encoder.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "ops/attention/full_attention.h"

namespace headrace {

// T tokens of S texts, one behind the other. A pair of texts is one here.
struct EncoderBatch {
  std::span<const TokenId> tokens;         // [T]
  std::span<const RowSequence> sequences;  // [S], each of 1 to length_max rows
  // [S]: how many rows at a text's end have the second token type; empty: none of any.
  std::span<const int32_t> second_rows = {};
};

}  // namespace headrace
