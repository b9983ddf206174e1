// How CUDA threads read a packed group of 16 rows (packed_weight.h has the layout).
//
// A warp takes 32 columns of the group at a time. With g = lane / 4 and c = lane % 4, a lane reads
// rows g and g + 8 and of them quads c and c + 4: columns 4c to 4c + 3 and 16 + 4c to 16 + 4c + 3.
// That is the A operand of two m16n8k16 products (gpu/mma.cuh) whose B operand is read in the same
// order of columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gpu/mma.cuh"
#include "ops/packing/packed_format.h"

namespace headrace::gpu {

// By its row of HR_BLOCK_TYPES.
template <int kType>
inline constexpr PackedFormat kFormat = kPackedFormats[kType];

// A block type's group in device memory.
struct PackedGroup {
  const std::byte* data;
  int32_t scales_at;  // bytes before the scales
};

template <int kType>
__device__ __forceinline__ const std::byte* scales_of_block(const PackedGroup& group, int block) {
  return group.data + group.scales_at +
         static_cast<int64_t>(block) *
             (kFormat<kType>.half_bytes + kFormat<kType>.part_scale_bytes);
}

// --- quants ---

// The dwords that hold quads `quad` and 4 + quad of one row's 32 columns.
template <int kType>
struct QuadDwords {
  static constexpr int kLow = kFormat<kType>.low_bits == 4 ? 1 : 2;
  static constexpr int kHigh = kFormat<kType>.high_bits;
  uint32_t low[kLow];
  uint32_t high[kHigh == 0 ? 1 : kHigh];
};

template <int kType>
__device__ __forceinline__ QuadDwords<kType> load_quads(const PackedGroup& group, int chunk,
                                                        int row, int quad) {
  constexpr int kLowBits = kFormat<kType>.low_bits;
  const auto* dwords = reinterpret_cast<const uint32_t*>(
                           group.data + static_cast<int64_t>(chunk) * kFormat<kType>.quant_bytes) +
                       row;
  const auto load = [&](int dword) { return __ldg(dwords + 16 * dword); };
  QuadDwords<kType> quads{};
  if constexpr (kLowBits == 8) {
    quads.low[0] = load(quad);
    quads.low[1] = load(4 + quad);
  } else if constexpr (kLowBits == 4) {
    quads.low[0] = load(quad);
  } else {
    quads.low[0] = load(0);
    quads.low[1] = load(1);
  }
#pragma unroll
  for (int i = 0; i < QuadDwords<kType>::kHigh; ++i) quads.high[i] = load(kLowBits + i);
  return quads;
}

// kStoredValues as words.
struct StoredWords {
  uint32_t of[4];
};
consteval StoredWords stored_words(StoredQuants quants) {
  StoredWords words{};
  for (int i = 0; i < 16; ++i) {
    const uint32_t value = kStoredValues[static_cast<int>(quants)].of[i];
    words.of[i / 4] |= value << (8 * (i % 4));
  }
  return words;
}
template <StoredQuants kQuants>
inline constexpr StoredWords kStoredWords = stored_words(kQuants);

// Of four indices 0 to 15, a byte each, the quants that they stand for.
template <StoredQuants kQuants>
__device__ __forceinline__ uint32_t quants_of_indices(uint32_t indices) {
  constexpr uint32_t kTable[4] = {kStoredWords<kQuants>.of[0], kStoredWords<kQuants>.of[1],
                                  kStoredWords<kQuants>.of[2], kStoredWords<kQuants>.of[3]};
  const uint32_t pairs = indices | indices >> 4;
  const uint32_t selector = __byte_perm(pairs, 0, 0x4420) & 0x7777;
  const uint32_t lower = __byte_perm(kTable[0], kTable[1], selector);
  const uint32_t upper = __byte_perm(kTable[2], kTable[3], selector);
  const uint32_t in_upper = ((indices & 0x08080808) >> 3) * 0xff;
  return (lower & ~in_upper) | (upper & in_upper);
}

// The low bits of quad `quad` (kHalf 0) or 4 + quad (kHalf 1), a byte each.
template <int kType, int kHalf>
__device__ __forceinline__ uint32_t low_bits(const QuadDwords<kType>& quads, int quad) {
  if constexpr (kFormat<kType>.low_bits == 8) {
    return quads.low[kHalf];
  } else if constexpr (kFormat<kType>.low_bits == 4) {
    return (quads.low[0] >> (4 * kHalf)) & 0x0f0f0f0f;
  } else {
    return (quads.low[kHalf] >> (2 * quad)) & 0x03030303;
  }
}

// Its four stored quants, a byte each.
template <int kType, int kHalf>
__device__ __forceinline__ uint32_t stored_quants(const QuadDwords<kType>& quads, int quad) {
  constexpr PackedFormat kOf = kFormat<kType>;
  const uint32_t low = low_bits<kType, kHalf>(quads, quad);
  if constexpr (kOf.quants != StoredQuants::kBinary) {
    return quants_of_indices<kOf.quants>(low);
  } else if constexpr (kOf.high_bits == 1) {
    return low | ((quads.high[0] >> (quad + 4 * kHalf)) & 0x01010101) << kOf.low_bits;
  } else if constexpr (kOf.high_bits == 2) {
    return low | ((quads.high[kHalf] >> (2 * quad)) & 0x03030303) << kOf.low_bits;
  } else {
    return low;
  }
}

// Byte i of `stored` less the zero point, as a float: exact.
template <int kType>
__device__ __forceinline__ float quant(uint32_t stored, int i) {
  constexpr float kBias = 0x1p23f + static_cast<float>(kFormat<kType>.zero);
  return __uint_as_float(__byte_perm(stored, 0x4b000000, 0x7540 + i)) - kBias;
}

// Whether every stored quant is below 128.
template <int kType>
inline constexpr bool kSmallQuants =
    kFormat<kType>.low_bits < 8 && kFormat<kType>.quants != StoredQuants::kIq4Index;

// Bytes 2 kPair and 2 kPair + 1 of `stored` less the zero point, as a pair of T (f16 or bf16):
// exact, since both hold integers up to 128.
template <class T, int kType, int kPair>
__device__ __forceinline__ uint32_t quant_pair(uint32_t stored) {
  constexpr uint32_t kBytes = kPair == 0 ? 0x4140 : 0x4342;  // a byte under one of the bias, twice
  constexpr float kZero = static_cast<float>(kFormat<kType>.zero);
  if constexpr (std::is_same_v<T, __half>) {
    const uint32_t biased = __byte_perm(stored, 0x64646464, kBytes);  // 1024 + quant
    const __half2 value =
        __hsub2(reinterpret_cast<const __half2&>(biased), __float2half2_rn(1024.0f + kZero));
    return reinterpret_cast<const uint32_t&>(value);
  } else if constexpr (kSmallQuants<kType>) {
    const uint32_t biased = __byte_perm(stored, 0x43434343, kBytes);  // 128 + quant
    const __nv_bfloat162 value = __hsub2(reinterpret_cast<const __nv_bfloat162&>(biased),
                                         __float2bfloat162_rn(128.0f + kZero));
    return reinterpret_cast<const uint32_t&>(value);
  } else {
    return packed<T>(quant<kType>(stored, 2 * kPair), quant<kType>(stored, 2 * kPair + 1));
  }
}

// --- scales ---

// A part's column is scale * quant + minimum.
struct PartScale {
  float scale, minimum;
};

// What a part's scale is made of, as it lies in memory.
struct RawScale {
  __half d, e;
  uint8_t low, high;
};

template <int kType>
__device__ __forceinline__ RawScale load_scale(const std::byte* block_scales, int row, int part) {
  constexpr PackedFormat kOf = kFormat<kType>;
  const auto* halves = reinterpret_cast<const __half*>(block_scales) + row;
  const auto* bytes = reinterpret_cast<const uint8_t*>(block_scales) + kOf.half_bytes + row;
  RawScale raw{};
  raw.d = __ldg(halves);
  if constexpr (kOf.second_half) raw.e = __ldg(halves + 16);
  if constexpr (kOf.part_scales != PartScales::kNone) raw.low = __ldg(bytes + 16 * part);
  if constexpr (kOf.part_scales == PartScales::kSixBits) {
    raw.high = static_cast<uint8_t>(__ldg(bytes + 16 * (8 + part % 4)) >> (part / 4 * 4));
  }
  return raw;
}

// An integer below 2^23 as a float, without the unit that converts integers, which is slow.
__device__ __forceinline__ float small_integer(uint32_t value) {
  return __uint_as_float(value | 0x4b000000) - 0x1p23f;
}

template <int kType>
__device__ __forceinline__ PartScale scale_of(const RawScale& raw) {
  constexpr PackedFormat kOf = kFormat<kType>;
  const uint32_t bits = raw.low, more = raw.high;
  const float d = __half2float(raw.d), e = __half2float(raw.e);
  if constexpr (kOf.part_scales == PartScales::kNone) {
    return {d, e};
  } else if constexpr (kOf.part_scales == PartScales::kSigned) {
    return {d * (small_integer(bits ^ 128) - 128.0f), 0.0f};
  } else if constexpr (kOf.part_scales == PartScales::kZeroPoint) {
    return {d, -(d * small_integer(bits))};
  } else if constexpr (kOf.part_scales == PartScales::kNibbles) {
    return {d * small_integer(bits & 15), -(e * small_integer(bits >> 4))};
  } else {
    return {d * small_integer((bits & 15) | (more & 3) << 4),
            -(e * small_integer(bits >> 4 | (more & 12) << 2))};
  }
}

// --- a warp's step ---

// A warp reads a group in steps of a few chunks of 32 columns, which lie in one block or are whole
// blocks.
template <int kType>
struct GroupStep {
  static constexpr PackedFormat kOf = kFormat<kType>;
  static constexpr int kChunks =
      kOf.columns == 256 && QuadDwords<kType>::kLow + QuadDwords<kType>::kHigh == 1 ? 8 : 4;
  static constexpr int kColumns = 32 * kChunks;
  static constexpr int kPartsOfChunk = 32 / kOf.part_columns;
  static constexpr int kParts = kChunks * kPartsOfChunk;
  static constexpr int kPartsOfLane = kParts / 4;

  QuadDwords<kType> quads[kChunks][2];  // of rows g and g + 8
  RawScale raw[kPartsOfLane][2];        // of parts c kPartsOfLane and on, of both rows

  // `chunks`: of the group; a step at its end repeats the last.
  __device__ __forceinline__ void load(const PackedGroup& group, int step, int chunks, int lane) {
    const int row = lane / 4, quad = lane % 4;
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const int chunk = min(step * kChunks + j, chunks - 1);
      quads[j][0] = load_quads<kType>(group, chunk, row, quad);
      quads[j][1] = load_quads<kType>(group, chunk, row + 8, quad);
    }
#pragma unroll
    for (int i = 0; i < kPartsOfLane; ++i) {
      const int part = quad * kPartsOfLane + i;  // of the step
      const int chunk = min(step * kChunks + part / kPartsOfChunk, chunks - 1);
      const int first_column = 32 * chunk + part % kPartsOfChunk * kOf.part_columns;
      const std::byte* scales = scales_of_block<kType>(group, first_column / kOf.columns);
      const int part_of_block = first_column % kOf.columns / kOf.part_columns;
      raw[i][0] = load_scale<kType>(scales, row, part_of_block);
      raw[i][1] = load_scale<kType>(scales, row + 8, part_of_block);
    }
  }
};

// The scales of one of a step's parts, of rows g and g + 8, from the lane that read them.
struct RowScales {
  PartScale of[2];
};
template <int kPartsOfLane, bool kMinimum>
__device__ __forceinline__ RowScales share_scales(const PartScale (&own)[kPartsOfLane][2],
                                                  int part) {
  const int from = part / kPartsOfLane, i = part % kPartsOfLane;
  RowScales scales;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    scales.of[half].scale = __shfl_sync(0xffffffffu, own[i][half].scale, from, 4);
    scales.of[half].minimum =
        kMinimum ? __shfl_sync(0xffffffffu, own[i][half].minimum, from, 4) : 0.0f;
  }
  return scales;
}

}  // namespace headrace::gpu
