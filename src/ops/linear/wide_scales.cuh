// How a warp of blocks_wide.cuh makes F16 weights of the quants of a stage: each lane decodes the
// scales of some parts of two rows, all lanes find them in shared memory, as pairs that multiply
// two quants at once.
#pragma once

#include "ops/linear/packed_stage.cuh"

namespace headrace::gpu {

// Minima of a lane's parts (columns of an operand A), of its two rows, as two numbers of F16 each.
// Multiplied by what columns of x mean.
template <int kType>
struct WideMeans {
  uint32_t most[2], rest[2];
};

// kApart: what quants of four bits have beside their scale (a minimum, a zero point) is a product
// of its own with the means of x, where instructions are short; else it is in the weights, where
// products are.
template <int kType, bool kApart>
struct WideScales {
  using Stage = PackedStage<kType>;
  static constexpr PackedFormat kOf = kFormat<kType>;
  // Quants of four bits are made pairs 16 + q / 64 and 1 + q / 64 by one operation, and weights by
  // one more, which takes the 16 and the 1 off, or by two, which have the rest as well.
  static constexpr bool kOwnPairs = kNibbles<kType>;
  static constexpr bool kMeans = kApart && kOwnPairs && (kOf.minimum || kOf.zero != 0);
  static_assert(!kMeans || (Stage::kParts == 8 && !(kOf.minimum && kOf.zero != 0)));
  // Weights are so much larger while they are multiplied: scales of small ones would else be below
  // what F16 holds in full.
  static constexpr float kRaised = kOwnPairs ? 4.0f : 64.0f;
  static constexpr float kScaleFactor = kOwnPairs ? 64.0f * kRaised : kRaised;
  static constexpr float kMinimumFactor = kMeans ? 32.0f * kRaised : kRaised;
  // [part][pair of rows] of the stage, a uint4: the scales of both rows, and 16 times them (where
  // minima are apart) or the minima; each twice.
  static constexpr int kBytes = Stage::kParts * 8 * static_cast<int>(sizeof(uint4));

  // Of the stage, to `shared`. REQUIRES: all lanes of the warp; none reads `shared` any more
  static __device__ __forceinline__ WideMeans<kType> share(const StageReader<kType>& stage,
                                                           std::byte* shared, int lane) {
    WideMeans<kType> means{};
    Part parts[Stage::kPartsOfLane];
#pragma unroll
    for (int i = 0; i < Stage::kPartsOfLane; ++i) {
      const int part = lane % 4 * Stage::kPartsOfLane + i;
      parts[i] = part_of(stage.raw(part));
      const __half2 scale = parts[i].scale;
      const __half2 other =
          kOwnPairs && kApart ? __hmul2(scale, __float2half2_rn(16.0f)) : parts[i].minimum;
      reinterpret_cast<uint4*>(shared)[part * 8 + lane / 4] = {low_twice(scale), high_twice(scale),
                                                               low_twice(other), high_twice(other)};
    }
    if constexpr (kMeans) {
      means = {
          {lows(parts[0].minimum, parts[1].minimum), highs(parts[0].minimum, parts[1].minimum)},
          {lows(parts[0].rest, parts[1].rest), highs(parts[0].rest, parts[1].rest)}};
    }
    __syncwarp();
    return means;
  }

  // The scales of a chunk, or of its first part.
  static __device__ __forceinline__ uint4 load(const std::byte* shared, int chunk, int lane) {
    return reinterpret_cast<const uint4*>(shared)[chunk * Stage::kPartsOfChunk * 8 + lane / 4];
  }

  // Weights of 32 columns as the A operand of two products of 16. `first`: as load() gives it.
  static __device__ __forceinline__ void unpack(uint32_t (&a)[2][4],
                                                const QuadDwords<kType> (&quads)[2],
                                                const uint4& first, const std::byte* shared,
                                                int chunk, int lane) {
    if constexpr (kOwnPairs) {
      own_pairs(a, 0, quads[0].low[0], first.x, first.z);
      own_pairs(a, 1, quads[1].low[0], first.y, first.w);
    } else {
      uint4 second = first;
      if constexpr (Stage::kPartsOfChunk == 2) {
        second = reinterpret_cast<const uint4*>(shared)[(chunk * 2 + 1) * 8 + lane / 4];
      }
      pairs<0>(a[0], quads, lane % 4, first);
      pairs<1>(a[1], quads, lane % 4, second);
    }
  }

 private:
  struct Part {
    __half2 scale, minimum, rest;  // of both rows; what F16 leaves of the minimum
  };

  static __device__ __forceinline__ uint32_t bits(__half2 pair) {
    return reinterpret_cast<const uint32_t&>(pair);
  }
  static __device__ __forceinline__ __half2 pair_of(uint32_t bits) {
    return reinterpret_cast<const __half2&>(bits);
  }
  static __device__ __forceinline__ uint32_t low_twice(__half2 pair) {
    return __byte_perm(bits(pair), 0, 0x1010);
  }
  static __device__ __forceinline__ uint32_t high_twice(__half2 pair) {
    return __byte_perm(bits(pair), 0, 0x3232);
  }
  static __device__ __forceinline__ uint32_t lows(__half2 a, __half2 b) {
    return __byte_perm(bits(a), bits(b), 0x5410);
  }
  static __device__ __forceinline__ uint32_t highs(__half2 a, __half2 b) {
    return __byte_perm(bits(a), bits(b), 0x7632);
  }
  // Integers up to 1023, 16 bits each, less `zero`.
  static __device__ __forceinline__ __half2 integers(uint32_t two, float zero = 0.0f) {
    return __hsub2(pair_of(two | 0x64006400), __float2half2_rn(1024.0f + zero));
  }

  static __device__ __forceinline__ Part part_of(const RawPair& raw) {
    const uint32_t low = __byte_perm(raw.low, 0, 0x4140), high = __byte_perm(raw.high, 0, 0x4140);
    const __half2 d = __hmul2(raw.d, __float2half2_rn(kScaleFactor));
    const auto minimum = [](__half2 of, float factor) {
      return __hmul2(of, __float2half2_rn(factor * kMinimumFactor));
    };
    if constexpr (kOf.part_scales == PartScales::kNone) {
      // Without minima of its own a type has its zero point's.
      constexpr float kZero = static_cast<float>(kOf.zero) * kMinimumFactor / kScaleFactor;
      return {d, kOf.minimum ? minimum(raw.e, 1.0f) : __hmul2(d, __float2half2_rn(-kZero)), {}};
    } else if constexpr (kOf.part_scales == PartScales::kSigned) {
      return {__hmul2(d, integers(low ^ 0x00800080, 128.0f)), {}, {}};
    } else if constexpr (kOf.part_scales == PartScales::kZeroPoint) {
      return with_minimum(d, minimum(raw.d, -1.0f), integers(low));
    } else if constexpr (kOf.part_scales == PartScales::kNibbles) {
      return with_minimum(__hmul2(d, integers(low & 0x000f000f)), minimum(raw.e, -1.0f),
                          integers(low >> 4 & 0x000f000f));
    } else {
      return with_minimum(__hmul2(d, integers((low & 0x000f000f) | (high & 0x00030003) << 4)),
                          minimum(raw.e, -1.0f),
                          integers((low >> 4 & 0x000f000f) | (high & 0x000c000c) << 2));
    }
  }
  static __device__ __forceinline__ Part with_minimum(__half2 scale, __half2 e, __half2 times) {
    const __half2 most = __hmul2(e, times);
    return {scale, most, __hfma2(e, times, __hneg2(most))};
  }

  // Of row `half` of the lane's two: columns 4c and 4c + 2, then 4c + 1 and 4c + 3. `other`: as
  // share() leaves it.
  static __device__ __forceinline__ void own_pairs(uint32_t (&a)[2][4], int half, uint32_t even,
                                                   uint32_t scale, uint32_t other) {
    const auto quants = [](uint32_t word, uint32_t mask, uint32_t bias) {  // (word & mask) | bias
      uint32_t result;
      asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bias));
      return result;
    };
    // `bias`: of the pair, `apart`: what the scale makes of it.
    const auto weights = [&](uint32_t pair, float bias, uint32_t apart) {
      if constexpr (kApart) {
        return bits(__hfma2(pair_of(pair), pair_of(scale), __hneg2(pair_of(apart))));
      } else {
        constexpr float kZero = kOf.minimum ? 0.0f : static_cast<float>(kOf.zero) / 64.0f;
        const __half2 quant = __hsub2(pair_of(pair), __float2half2_rn(bias + kZero));
        return bits(kOf.minimum ? __hfma2(quant, pair_of(scale), pair_of(other))
                                : __hmul2(quant, pair_of(scale)));
      }
    };
    const auto low = [&](uint32_t word) {
      return weights(quants(word, 0x000f000f, 0x4c004c00), 16.0f, other);
    };
    const auto high = [&](uint32_t word) {
      return weights(quants(word, 0x00f000f0, 0x3c003c00), 1.0f, scale);
    };
    const uint32_t odd = even >> 8;
    a[0][half] = low(even);
    a[0][2 + half] = low(odd);
    a[1][half] = high(even);
    a[1][2 + half] = high(odd);
  }

  template <int kQuads>
  static __device__ __forceinline__ void pairs(uint32_t (&a)[4],
                                               const QuadDwords<kType> (&quads)[2], int quad,
                                               const uint4& scales) {
    constexpr float kZero = 1024.0f + static_cast<float>(kOf.zero);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t stored = stored_quants<kType, kQuads>(quads[half], quad);
      const __half2 scale = pair_of(half == 0 ? scales.x : scales.y);
      const __half2 minimum = pair_of(half == 0 ? scales.z : scales.w);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const uint32_t biased = __byte_perm(stored, 0x64646464, odd == 0 ? 0x4240 : 0x4341);
        const __half2 quant = __hsub2(pair_of(biased), __float2half2_rn(kZero));
        a[2 * odd + half] =
            bits(kOf.minimum ? __hfma2(quant, scale, minimum) : __hmul2(quant, scale));
      }
    }
  }
};

}  // namespace headrace::gpu
