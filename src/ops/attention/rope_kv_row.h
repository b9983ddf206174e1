// What rope_kv hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/kv_format.h"

namespace headrace {

// One token of a cache of blocks of 16 tokens.
struct RopeKvRow {
  float* q;          // [query_heads, k_dim], then k [kv_heads, k_dim], v [kv_heads, v_dim]
  const float* cos;  // [pairs]
  const float* sin;  // [pairs]
  int64_t pairs;     // (i, i + pairs) of each head are rotated
  int64_t query_heads;
  int64_t kv_heads;
  int64_t k_dim, v_dim;  // multiples of 16
  // The parts of the token's block. Of each head numbers, [k_dim][16 tokens] and [16
  // tokens][v_dim], behind them the scales of formats that have some, [groups][16 tokens].
  std::byte* keys;
  std::byte* values;
  int64_t token;                // of the block
  KvFormat k_format, v_format;  // not kBF16
};

void rope_kv_row_avx512(const RopeKvRow& row);  // rope_kv_cpu_avx512.cc
void rope_kv_row_avx2(const RopeKvRow& row);    // rope_kv_cpu_avx2.cc

}  // namespace headrace
