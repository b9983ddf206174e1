// One layer's keys and values in the paged cache: where they are and how a block is laid out.
//
// A block is a page of `block_tokens` tokens of one sequence; block b of the layer starts at
// base + b * block_stride:
//   K part  [head][d][token]   CPU: keys transposed, so that the 16 tokens of a block are 16 SIMD
//                              lanes and q k' needs no horizontal sum
//           [head][token][d]   CUDA: as values, a row of a tile is one key
//   V part  [head][token][d]   v_offset bytes after the K part
// A slot is block * block_tokens + token: the place of one token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/half.h"

namespace headrace {

enum class KeyLayout {
  kTransposed,  // [head][d][token]
  kRows,        // [head][token][d]
};

struct KvLayerView {
  DType dtype = DType::kF16;  // F32, F16 or BF16
  KeyLayout keys = KeyLayout::kTransposed;
  std::byte* base = nullptr;  // K part of block 0 of this layer; 64-byte aligned
  int64_t block_stride = 0;   // bytes from one block to the next
  int64_t v_offset = 0;       // bytes from a block's K part to its V part
  int32_t block_tokens = 16;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};

// Bytes of the K part (and as many of the V part) of one layer's block.
inline int64_t kv_part_bytes(const KvLayerView& kv) {
  return int64_t{kv.block_tokens} * kv.kv_heads * kv.head_dim * dtype_info(kv.dtype).block_bytes;
}

// Address of component d of the key or value of (slot, head).
inline std::byte* key_at(const KvLayerView& kv, int64_t slot, int32_t head, int32_t d) {
  const int64_t token = slot % kv.block_tokens;
  const int64_t element = kv.keys == KeyLayout::kRows
                              ? (int64_t{head} * kv.block_tokens + token) * kv.head_dim + d
                              : (int64_t{head} * kv.head_dim + d) * kv.block_tokens + token;
  return kv.base + slot / kv.block_tokens * kv.block_stride +
         element * dtype_info(kv.dtype).block_bytes;
}
inline std::byte* value_at(const KvLayerView& kv, int64_t slot, int32_t head, int32_t d) {
  const int64_t token = slot % kv.block_tokens;
  const int64_t element = (int64_t{head} * kv.block_tokens + token) * kv.head_dim + d;
  return kv.base + slot / kv.block_tokens * kv.block_stride + kv.v_offset +
         element * dtype_info(kv.dtype).block_bytes;
}

// One element of the cache to and from f32. REQUIRES: dtype is F32, F16 or BF16
inline float load_kv(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) return *reinterpret_cast<const float*>(at);
  const uint16_t bits = *reinterpret_cast<const uint16_t*>(at);
  return dtype == DType::kF16 ? half_to_float(bits) : bfloat16_to_float(bits);
}
inline void store_kv(DType dtype, float value, std::byte* at) {
  if (dtype == DType::kF32) {
    *reinterpret_cast<float*>(at) = value;
  } else {
    *reinterpret_cast<uint16_t*>(at) =
        dtype == DType::kF16 ? float_to_half(value) : float_to_bfloat16(value);
  }
}

}  // namespace headrace
