// Element types, plain and block-quantised. A block type packs `block_elements` consecutive
// elements of a row into `block_bytes` bytes, as GGUF files do. What blocks mean: block_quants.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headrace {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI8,
  kU8,
  kQ8_0,    // 32 x int8, f16 scale d: w = d q
  kQ4_0,    // 32 x 4 bits, f16 scale d: w = d (q - 8)
  kQ4_1,    // 32 x 4 bits, f16 scale d and minimum m: w = d q + m
  kQ5_0,    // 32 x 5 bits: w = d (q - 16)
  kQ5_1,    // 32 x 5 bits: w = d q + m
  kIQ4_NL,  // 32 x 4 bits, the indices of 16 unevenly spaced integers: w = d v[q]
  // Blocks of 256 whose parts have integer scales s (and minima m) under one or two f16 of all.
  kQ2_K,    // parts of 16, 2 bits, s and m of 4 bits: w = (d s) q - (e m)
  kQ3_K,    // parts of 16, 3 bits, s of 6 bits: w = (d (s - 32)) (q - 4)
  kQ4_K,    // parts of 32, 4 bits, s and m of 6 bits: w = (d s) q - (e m)
  kQ5_K,    // parts of 32, 5 bits, s and m of 6 bits: w = (d s) q - (e m)
  kQ6_K,    // parts of 16, 6 bits, s an int8: w = (d s) (q - 32)
  kIQ4_XS,  // parts of 32, indices as of IQ4_NL, s of 6 bits: w = (d (s - 32)) v[q]
  // No GGUF type: what 4-bit weights of Hugging Face files are read as (weights/hub_matrix.h).
  kQ4_Z,  // 32 x 4 bits, f16 scale d, 8-bit zero point z: w = d (q - z)
  // Nor this: what MXFP4 is read as (weights/mxfp4.h).
  kE2M1,  // 32 x 4 bits, the indices of twice e2m1's numbers, f16 scale d: w = d v[q]
  // Numbers of weights on a GPU, which have a scale a row beside them
  // (ops/packing/packed_weight.h).
  kF8,  // e4m3 (float8.h)
};

struct DTypeInfo {
  std::string_view name;
  int32_t block_elements;
  int32_t block_bytes;
};

inline constexpr std::array<DTypeInfo, 21> kDTypeInfo = {
    {{"F32", 1, 4},      {"F16", 1, 2},        {"BF16", 1, 2},     {"I32", 1, 4},
     {"I8", 1, 1},       {"U8", 1, 1},         {"Q8_0", 32, 34},   {"Q4_0", 32, 18},
     {"Q4_1", 32, 20},   {"Q5_0", 32, 22},     {"Q5_1", 32, 24},   {"IQ4_NL", 32, 18},
     {"Q2_K", 256, 84},  {"Q3_K", 256, 110},   {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
     {"Q6_K", 256, 210}, {"IQ4_XS", 256, 136}, {"Q4_Z", 32, 20},   {"E2M1", 32, 18},
     {"F8_E4M3", 1, 1}}};

constexpr const DTypeInfo& dtype_info(DType dtype) {
  return kDTypeInfo[static_cast<size_t>(dtype)];
}
constexpr std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
constexpr bool is_quantised(DType dtype) { return dtype_info(dtype).block_elements > 1; }
inline constexpr int32_t kBlockElementsMax = 256;

// Bytes of `elements` consecutive elements of a row; empty when the count is negative, no whole
// number of blocks, or the product leaves int64.
constexpr std::optional<int64_t> row_bytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  if (elements < 0 || elements % info.block_elements != 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / info.block_elements, int64_t{info.block_bytes}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace headrace
