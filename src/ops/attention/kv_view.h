// One layer's keys and values in the paged cache: where they are and how a block is laid out.
//
// A block is a page of `block_tokens` tokens of one sequence; block b of the layer starts at
// base + b * block_stride:
//   K part  [head][d][token]   CPU: keys transposed, so that the 16 tokens of a block are 16 SIMD
//                              lanes and q k' needs no horizontal sum
//           [head][token][d]   CUDA: as values, a row of a tile is one key
//   V part  [head][token][d]   v_offset bytes after the K part; none where values are part of keys
//   index   [d][token]         index_offset bytes after the K part: a key of sparse attention's
//                              index (select_keys.h); none where index_dim is 0
//   sources [token][number]    f32, source_offset bytes after the K part: what keys of several
//                              tokens are made of (compress_keys.h); none where source_dim is 0
// Where `rate` is above 1, a block has no keys of tokens: each run of so many tokens of the text
// has one, whose place is that of the run's last token: key place / rate of the block. A head of a
// format with scales has them behind its numbers, [group of components][token]. Heads of some
// formats have an order of their own (column_place()). A slot is block * block_tokens + token: the
// place of one token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/round_up.h"
#include "ops/attention/kv_format.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace headrace {

enum class KeyLayout {
  kTransposed,  // [head][d][token]
  kRows,        // [head][token][d]
};

struct KvLayerView {
  KvFormat k_format = KvFormat::kF16;
  KvFormat v_format = KvFormat::kF16;
  KeyLayout keys = KeyLayout::kTransposed;
  bool v_aliases_k = false;   // a value is the first v_dim components of its key: a latent
  std::byte* base = nullptr;  // K part of block 0 of this layer; 32-byte aligned
  // Of numbers in columns: memory for as many blocks of a layer in the 16-bit type of the
  // activations, K part, V part (unpacked_kv()). Prefill tiles read what attention() unpacks there;
  // what is left in it means nothing, so that all layers share it. Null: attention() has its slow
  // kernel.
  std::byte* unpacked = nullptr;
  int64_t block_stride = 0;  // bytes from one block to the next
  int64_t v_offset = 0;      // bytes from a block's K part to its V part
  int32_t block_tokens = 16;
  int32_t kv_heads = 0;
  int32_t k_dim = 0;
  int32_t v_dim = 0;
  int32_t index_dim = 0;     // > 0: components of a token's key in the index
  int64_t index_offset = 0;  // bytes from a block's K part to its index part
  int32_t source_dim = 0;    // > 0: numbers of a token's sources
  int64_t source_offset = 0;
  int32_t rate = 1;  // tokens that share a key. CPU
};

// Keys in a block.
inline int32_t block_keys(const KvLayerView& kv) {
  return static_cast<int32_t>(divide_up(kv.block_tokens, kv.rate));
}

// The format of plain elements of a type. REQUIRES: F32, F16 or BF16
inline KvFormat kv_format(DType dtype) {
  if (dtype == DType::kF32) return KvFormat::kF32;
  CHECK(dtype == DType::kF16 || dtype == DType::kBF16);
  return dtype == DType::kF16 ? KvFormat::kF16 : KvFormat::kBF16;
}
// Of a number without its share of a scale.
inline DType kv_element(KvFormat format) {
  constexpr DType kElements[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                                 DType::kU8,  DType::kI8,  DType::kI8,   DType::kI8};
  return kElements[static_cast<size_t>(format)];
}
inline bool has_4_bits(KvFormat format) {
  return format == KvFormat::kInt4 || format == KvFormat::kInt4Head;
}
inline bool has_scales(KvFormat format) {
  return format == KvFormat::kInt8 || format == KvFormat::kInt8Head || has_4_bits(format);
}
// Whether keys are kept, and queries asked, transformed (mix_head()).
inline bool mixes_keys(KvFormat format) { return format == KvFormat::kInt4Head; }
// Components that share a scale.
inline int32_t kv_group(KvFormat format, int32_t dim) {
  return format == KvFormat::kInt8 || format == KvFormat::kInt4 ? kKvGroup : dim;
}
inline int32_t kv_groups(KvFormat format, int32_t dim) {
  if (dim == 0) return 0;  // a layer that keeps nothing
  return (dim + kv_group(format, dim) - 1) / kv_group(format, dim);
}
// Whether numbers lie as column_place() says: of GPUs alone.
inline bool lies_in_columns(KvFormat format) {
  return format == KvFormat::kFp8 || format == KvFormat::kInt8Head || format == KvFormat::kInt4Head;
}

// Bytes of one head of a block: numbers, then scales.
inline int64_t kv_number_bytes(KvFormat format, int32_t dim, int32_t block_tokens) {
  if (has_4_bits(format)) {
    const int32_t column = lies_in_columns(format) ? kKvColumnOf4Bits : kKvColumn;
    return int64_t{block_tokens} * ((dim + column - 1) / column) * column / 2;
  }
  return int64_t{block_tokens} * dim * dtype_info(kv_element(format)).block_bytes;
}
inline int64_t kv_head_bytes(KvFormat format, int32_t dim, int32_t block_tokens) {
  const int64_t scales =
      has_scales(format) ? int64_t{block_tokens} * kv_groups(format, dim) * 2 : 0;
  return kv_number_bytes(format, dim, block_tokens) + scales;
}
// Bytes of the parts of one layer's block.
inline int64_t k_part_bytes(const KvLayerView& kv) {
  return kv.kv_heads * kv_head_bytes(kv.k_format, kv.k_dim, block_keys(kv));
}
inline int64_t v_part_bytes(const KvLayerView& kv) {
  return kv.v_aliases_k ? 0 : kv.kv_heads * kv_head_bytes(kv.v_format, kv.v_dim, block_keys(kv));
}
// What an index asks of a key is yes or no, so that its keys have 16 bits where others have fewer.
inline KvFormat index_format(const KvLayerView& kv) {
  return kv.k_format == KvFormat::kF32 ? KvFormat::kF32 : KvFormat::kF16;
}
inline int64_t index_part_bytes(const KvLayerView& kv) {
  return kv.index_dim == 0 ? 0 : kv_head_bytes(index_format(kv), kv.index_dim, block_keys(kv));
}
// What parts begin on that kernels read in vectors, or numbers of 32 bits.
inline constexpr int64_t kPartAlignment = 32;
inline int64_t source_part_offset(const KvLayerView& kv) {
  return round_up(kv.index_offset + index_part_bytes(kv), kPartAlignment);
}
inline int64_t source_part_bytes(const KvLayerView& kv) {
  return int64_t{kv.block_tokens} * kv.source_dim * static_cast<int64_t>(sizeof(float));
}
// Of all that a layer keeps in a block. Of fewer keys than SIMD lanes it ends where another layer's
// part may begin.
inline int64_t layer_part_bytes(const KvLayerView& kv) {
  if (kv.source_dim > 0) return kv.source_offset + source_part_bytes(kv);
  const int64_t bytes = k_part_bytes(kv) + v_part_bytes(kv) + index_part_bytes(kv);
  return kv.rate == 1 ? bytes : round_up(bytes, kPartAlignment);
}

// Keys and values alike: `dim` components each in this format, the V part behind the K part. Base
// and stride are the caller's.
inline KvLayerView alike_kv(KvFormat format, KeyLayout keys, int32_t kv_heads, int32_t dim) {
  KvLayerView kv{.k_format = format,
                 .v_format = format,
                 .keys = keys,
                 .kv_heads = kv_heads,
                 .k_dim = dim,
                 .v_dim = dim};
  kv.v_offset = k_part_bytes(kv);
  return kv;
}
inline KvLayerView alike_kv(DType dtype, KeyLayout keys, int32_t kv_heads, int32_t dim) {
  return alike_kv(kv_format(dtype), keys, kv_heads, dim);
}
// Whether keys and values are plain elements of this type, apart from each other.
inline bool all_plain(const KvLayerView& kv, DType dtype) {
  return !has_scales(kv.k_format) && kv_element(kv.k_format) == dtype &&
         kv.v_format == kv.k_format && !kv.v_aliases_k;
}
// Whether keys and values are alike: plain elements of this type, as many of both.
inline bool alike_and_plain(const KvLayerView& kv, DType dtype) {
  return all_plain(kv, dtype) && kv.v_dim == kv.k_dim;
}

// Whether they are alike in columns.
inline bool alike_in_columns(const KvLayerView& kv) {
  return lies_in_columns(kv.k_format) && kv.v_format == kv.k_format && kv.v_dim == kv.k_dim &&
         !kv.v_aliases_k;
}
// The blocks of `kv`, which are alike in columns, as plain elements of a type.
inline KvLayerView unpacked_kv(const KvLayerView& kv, DType dtype) {
  KvLayerView plain = alike_kv(dtype, kv.keys, kv.kv_heads, kv.k_dim);
  plain.block_tokens = kv.block_tokens;
  plain.v_offset = k_part_bytes(plain);
  plain.base = kv.unpacked;
  plain.block_stride = 2 * plain.v_offset;
  return plain;
}

// One head of a block: numbers at `at`, `token_step` and `dim_step` elements apart.
struct KvHeadView {
  KvFormat format;
  std::byte* at;  // of token 0
  int32_t dim;
  int32_t block_tokens;
  int32_t token_step, dim_step;

  std::byte* number(int64_t token, int32_t d) const {
    if (has_4_bits(format)) return half_byte(token, d).at;
    if (lies_in_columns(format)) return at + column_place(dim, block_tokens, token, d);
    return at + (token * token_step + int64_t{d} * dim_step) *
                    dtype_info(kv_element(format)).block_bytes;
  }
  // Of 4 bits: the byte, and whether its upper half. Both halves are of one token, which is written
  // alone. On a CPU the 16 tokens of two components of keys are 16 bytes, the first one's in the
  // lower halves; 16 components of a value are 8 bytes, the first 8 in the lower halves.
  struct HalfByte {
    std::byte* at;
    bool upper;
  };
  HalfByte half_byte(int64_t token, int32_t d) const {
    if (lies_in_columns(format)) {
      const int64_t column = d / kKvColumnOf4Bits;
      return {at + (column * block_tokens + token) * kKvColumn + d % kKvColumnOf4Bits / 2,
              d % 2 == 1};
    }
    if (token_step == 1) return {at + int64_t{d} / 2 * block_tokens + token, d % 2 == 1};
    const int64_t columns = (dim + kKvColumn - 1) / kKvColumn;
    return {at + (token * columns + d / kKvColumn) * 8 + d % 8, d % 16 >= 8};
  }
  uint16_t* scale(int64_t token, int32_t d) const {  // BF16
    return reinterpret_cast<uint16_t*>(at + kv_number_bytes(format, dim, block_tokens)) +
           int64_t{d} / kv_group(format, dim) * block_tokens + token;
  }
};
inline KvHeadView k_head(const KvLayerView& kv, int64_t block, int32_t head) {
  const bool rows = kv.keys == KeyLayout::kRows;
  return {.format = kv.k_format,
          .at = kv.base + block * kv.block_stride +
                head * kv_head_bytes(kv.k_format, kv.k_dim, block_keys(kv)),
          .dim = kv.k_dim,
          .block_tokens = block_keys(kv),
          .token_step = rows ? kv.k_dim : 1,
          .dim_step = rows ? 1 : block_keys(kv)};
}
inline KvHeadView v_head(const KvLayerView& kv, int64_t block, int32_t head) {
  if (kv.v_aliases_k) return k_head(kv, block, head);
  return {.format = kv.v_format,
          .at = kv.base + block * kv.block_stride + kv.v_offset +
                head * kv_head_bytes(kv.v_format, kv.v_dim, block_keys(kv)),
          .dim = kv.v_dim,
          .block_tokens = block_keys(kv),
          .token_step = kv.v_dim,
          .dim_step = 1};
}
// Of the index. REQUIRES: index_dim > 0
inline KvHeadView index_head(const KvLayerView& kv, int64_t block) {
  return {.format = index_format(kv),
          .at = kv.base + block * kv.block_stride + kv.index_offset,
          .dim = kv.index_dim,
          .block_tokens = block_keys(kv),
          .token_step = 1,
          .dim_step = block_keys(kv)};
}
// The sources of a token. REQUIRES: source_dim > 0
inline float* sources_of(const KvLayerView& kv, int64_t block, int64_t token) {
  std::byte* const part = kv.base + block * kv.block_stride + kv.source_offset;
  return reinterpret_cast<float*>(part) + token * kv.source_dim;
}

// Address of component d of the key or value of (slot, head).
inline std::byte* key_at(const KvLayerView& kv, int64_t slot, int32_t head, int32_t d) {
  return k_head(kv, slot / kv.block_tokens, head).number(slot % kv.block_tokens, d);
}
inline std::byte* value_at(const KvLayerView& kv, int64_t slot, int32_t head, int32_t d) {
  return v_head(kv, slot / kv.block_tokens, head).number(slot % kv.block_tokens, d);
}

// One plain element of the cache to and from f32. REQUIRES: dtype is F32, F16 or BF16
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
