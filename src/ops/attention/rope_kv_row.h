// What rope_kv hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// One token of a cache of blocks of 16 tokens.
struct RopeKvRow {
  float* q;          // [query_heads, head_dim], then k [kv_heads, head_dim], v [kv_heads, head_dim]
  const float* cos;  // [pairs]
  const float* sin;  // [pairs]
  int64_t pairs;     // (i, i + pairs) of each head are rotated
  int64_t query_heads;
  int64_t kv_heads;
  int64_t head_dim;
  std::byte* key;  // component 0 of head 0 of this token in the K part: the next is 16 elements on
  std::byte* value;  // of this token in the V part: [head][16 tokens][d]
  bool half;         // the cache holds F16, else F32
};

void rope_kv_row_avx512(const RopeKvRow& row);  // rope_kv_cpu_avx512.cc
void rope_kv_row_avx2(const RopeKvRow& row);    // rope_kv_cpu_avx2.cc

}  // namespace headrace
