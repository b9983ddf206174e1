// Stages of a packed group of 16 rows (packed_weight.h) on their way through shared memory, as a
// warp's ring keeps them (blocks_gemv.cuh, blocks_wide.cuh), and how a lane reads one.
#pragma once

#include "gpu/bulk_copy.cuh"
#include "ops/linear/blocks.h"
#include "ops/packing/packed_group.cuh"

namespace headrace::gpu {

// A stage: quants of some chunks of a group, then their scales, each as they lie in the group.
template <int kType>
struct PackedStage {
  static constexpr PackedFormat kOf = kFormat<kType>;
  static constexpr int kChunks = packed_stage_chunks(kOf.low_bits);
  static constexpr int kPartsOfChunk = 32 / kOf.part_columns;
  static constexpr int kParts = kChunks * kPartsOfChunk;
  static constexpr int kPartsOfLane = kParts / 4;
  static constexpr int kQuantBytes = kChunks * kOf.quant_bytes;
  static constexpr int kBlocks = 32 * kChunks / kOf.columns;
  static constexpr int kScaleBytes = kBlocks * (kOf.half_bytes + kOf.part_scale_bytes);
  static constexpr int kBytes = kQuantBytes + kScaleBytes;
  static_assert(kBlocks > 0 && kQuantBytes % 16 == 0 && kScaleBytes % 16 == 0);
};

// Words of shared memory in one access, which a compiler may take apart. Volatile: what they read
// changes.
__device__ __forceinline__ uint4 load_four(uint32_t address) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(address));
  return words;
}
__device__ __forceinline__ float2 load_two(uint32_t address) {
  float2 words;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(words.x), "=f"(words.y) : "r"(address));
  return words;
}

// What the scale of a part is made of, of two rows.
struct RawPair {
  __half2 d, e;
  uint32_t low, high;  // a byte a row
};

// What a lane reads of a stage. Its two rows of a group's 16 lie side by side, rows 2g and 2g + 1
// of lane 4g + c: as operands of a product they are rows g and g + 8, which is only a name.
template <int kType>
struct StageReader {
  using Stage = PackedStage<kType>;
  static constexpr PackedFormat kOf = kFormat<kType>;
  static constexpr int kPartsOfBlock = kOf.columns / kOf.part_columns;
  const std::byte* stage;
  int pair, quad;

  // As load_quads().
  __device__ __forceinline__ void quads(QuadDwords<kType> (&of)[2], int chunk) const {
    const auto* const dwords =
        reinterpret_cast<const uint2*>(stage + chunk * kOf.quant_bytes) + pair;
    const auto read = [&](int dword, auto member, int i) {
      const uint2 both = dwords[8 * dword];
      (of[0].*member)[i] = both.x;
      (of[1].*member)[i] = both.y;
    };
    using Dwords = QuadDwords<kType>;
    if constexpr (kOf.low_bits == 8) {
      read(quad, &Dwords::low, 0);
      read(4 + quad, &Dwords::low, 1);
    } else if constexpr (kOf.low_bits == 4) {
      read(quad, &Dwords::low, 0);
    } else {
      read(0, &Dwords::low, 0);
      read(1, &Dwords::low, 1);
    }
#pragma unroll
    for (int i = 0; i < Dwords::kHigh; ++i) read(kOf.low_bits + i, &Dwords::high, i);
  }

  // As load_scale(), of a part of the stage.
  __device__ __forceinline__ RawPair raw(int part_of_stage) const {
    const int block = part_of_stage / kPartsOfBlock, part = part_of_stage % kPartsOfBlock;
    return raw(block, part / 4, part % 4);
  }
  // Of part 4 fours + in_four of a block of the stage.
  __device__ __forceinline__ RawPair raw(int block, int fours, int in_four) const {
    const std::byte* const at =
        stage + Stage::kQuantBytes + block * (kOf.half_bytes + kOf.part_scale_bytes);
    const auto* const halves = reinterpret_cast<const __half2*>(at) + pair;
    const auto* const bytes = reinterpret_cast<const uint16_t*>(at + kOf.half_bytes) + pair;
    RawPair raw{};
    raw.d = halves[0];
    if constexpr (kOf.second_half) raw.e = halves[8];
    if constexpr (kOf.part_scales != PartScales::kNone) raw.low = bytes[8 * (4 * fours + in_four)];
    if constexpr (kOf.part_scales == PartScales::kSixBits) {
      raw.high = static_cast<uint32_t>(bytes[8 * (8 + in_four)]) >> (4 * fours);
    }
    return raw;
  }
  // As scale_of(), of both rows.
  __device__ __forceinline__ void scales(PartScale (&of)[2], int part_of_stage) const {
    scales(of, raw(part_of_stage));
  }
  // Of part `quad` of a round of four: all but the quad is known where it is compiled.
  __device__ __forceinline__ void scales_of_round(PartScale (&of)[2], int round) const {
    if constexpr (kPartsOfBlock == 1) {
      scales(of, raw(4 * round + quad, 0, 0));
    } else {
      static_assert(kPartsOfBlock % 4 == 0);
      constexpr int kRounds = kPartsOfBlock / 4;  // of a block
      scales(of, raw(round / kRounds, round % kRounds, quad));
    }
  }
  __device__ __forceinline__ static void scales(PartScale (&of)[2], const RawPair& pair) {
    const auto byte = [](uint32_t two, int i) { return static_cast<uint8_t>(two >> (8 * i)); };
    of[0] = scale_of<kType>({pair.d.x, pair.e.x, byte(pair.low, 0), byte(pair.high, 0)});
    of[1] = scale_of<kType>({pair.d.y, pair.e.y, byte(pair.low, 1), byte(pair.high, 1)});
  }
};

// Quants of four bits become F16 where they lie: 16 bits with the exponent of 1024, or 16 quants at
// a time of it. Of four columns these are the first and the third, then the others, and x comes in
// that order.
template <int kType>
inline constexpr bool kNibbles = kFormat<kType>.low_bits == 4 && kFormat<kType>.high_bits == 0 &&
                                 kFormat<kType>.quants == StoredQuants::kBinary;

template <int kType>
__device__ __forceinline__ void nibble_operand(uint32_t (&a)[2][4],
                                               const QuadDwords<kType> (&quads)[2]) {
  constexpr float kZero = static_cast<float>(kFormat<kType>.zero);
  constexpr uint32_t kLow = 0x000f000f, kHigh = 0x00f000f0;
  const auto biased = [](uint32_t word, uint32_t mask) {  // (word & mask) | bias
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(0x64006400));
    return result;
  };
  const auto less = [](uint32_t value_of) {
    const __half2 value =
        __hsub2(reinterpret_cast<const __half2&>(value_of), __float2half2_rn(1024.0f + kZero));
    return reinterpret_cast<const uint32_t&>(value);
  };
  const auto sixteenth = [](uint32_t value_of) {
    const __half2 value = __hfma2(reinterpret_cast<const __half2&>(value_of),
                                  __float2half2_rn(1.0f / 16.0f), __float2half2_rn(-64.0f - kZero));
    return reinterpret_cast<const uint32_t&>(value);
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t even = quads[half].low[0], odd = even >> 8;
    a[0][half] = less(biased(even, kLow));
    a[0][2 + half] = less(biased(odd, kLow));
    a[1][half] = sixteenth(biased(even, kHigh));
    a[1][2 + half] = sixteenth(biased(odd, kHigh));
  }
}

}  // namespace headrace::gpu
