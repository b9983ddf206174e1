// Embeddings of the last few tokens (Qwen 4), which are added to the N streams S of rows beside
// each other (parts/carried_rows.h). Of each length n from 2 to `size` the last n tokens t, of
// which those before an end of text count as such an end, have several hashes, each a row of a
// table:
//   (t_0 m_0 xor t_1 m_1 xor ... t_(n-1) m_(n-1)) mod (rows of the hash)
// These rows side by side are E:
//   g_j  = sigmoid(s(RMSNorm(K_j E)' RMSNorm(S_j) / sqrt(D))) V E,   s(x) = sign(x) sqrt(|x|)
//   S_j := S_j + g_j + silu(conv(RMSNorm(g_j)))
// where the convolution by channel has taps `size` rows apart. It keeps of a sequence the rows that
// the convolution reads, and the last size - 1 tokens. Of ranks each has all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "models/parts/carried_rows.h"
#include "models/parts/layer_part.h"

namespace headrace {

struct NgramSpec {
  CarriedSpec carried;
  int32_t size = 0;         // tokens of the longest
  int32_t width = 0;        // of E
  int32_t taps = 0;         // of the convolution
  int32_t table_parts = 1;  // the table lies in so many tensors, the last may have fewer rows
  int64_t table_rows = 0;   // of all parts
  TokenId end = 0;          // of a text
  float norm_eps = 0.0f;
  std::vector<uint64_t> multipliers = {};  // [size]
  std::vector<int32_t> hash_rows = {};     // [(size - 1) hashes of a length], by length

  int32_t hashes_of_length() const {
    return static_cast<int32_t>(std::ssize(hash_rows)) / (size - 1);
  }
};

// Of each row t of a sequence the rows of the table that its hashes say: `tokens` are those of the
// size - 1 before the first row, then of the rows. [rows, hashes]
std::vector<int64_t> ngram_rows(const NgramSpec& spec, std::span<const TokenId> tokens);

std::unique_ptr<Mixer> make_part(const NgramSpec& spec, int64_t hidden);

}  // namespace headrace
