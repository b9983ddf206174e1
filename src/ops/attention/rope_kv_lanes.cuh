// Norm and rotation of a 16-bit head whose halves rotate, in the registers of kLanes lanes, 8
// elements each: the element that one rotates with is in the lane half a head away. Whoever makes
// queries and keys on CUDA makes them here, so that they have the same bits.
#pragma once

#include "gpu/vector.cuh"
#include "ops/cuda_launch.cuh"

namespace headrace::gpu {

inline constexpr int kRopeLaneElements = 8;

template <class T, int kLanes>
struct RopeLane {
  using Elements = Vector<T, kRopeLaneElements>;
  using Floats = Vector<float, kRopeLaneElements>;
  static constexpr int kDim = kLanes * kRopeLaneElements;

  // Of the pairs that a lane's elements are part of.
  struct Angles {
    Floats cos, sin;

    // `cos`, `sin` [kDim / 2]: of the head's position.
    __device__ __forceinline__ static Angles load(const float* cos, const float* sin, int lane) {
      const int first = lane * kRopeLaneElements % (kDim / 2);
      return {Floats::load(cos + first), Floats::load(sin + first)};
    }
  };

  // Rotates a head of which this lane has elements [8 lane, 8 lane + 8), after a norm with the
  // head's weights `norm` [kDim] where the warp's heads are `normed`, and before it is mixed
  // (mix_head()) where heads are `kMixed`; a value stays as it is. All lanes of a warp.
  template <bool kMixed = false>
  __device__ __forceinline__ static void turn(Elements& elements, int lane, const Angles& angles,
                                              bool normed, const float* norm, float norm_eps,
                                              bool is_value) {
    float values[kRopeLaneElements], squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kRopeLaneElements; ++i) {
      values[i] = to_float(elements.values[i]);
      squares += values[i] * values[i];
    }
    if (normed) {
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2) {
        squares += __shfl_xor_sync(0xffffffffu, squares, distance);
      }
      const float factor = rsqrtf(squares / static_cast<float>(kDim) + norm_eps);
      const Floats weights = Floats::load(norm + lane * kRopeLaneElements);
#pragma unroll
      for (int i = 0; i < kRopeLaneElements; ++i) values[i] *= factor * weights.values[i];
    }
    const bool first_half = lane < kLanes / 2;
#pragma unroll
    for (int i = 0; i < kRopeLaneElements; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, values[i], kLanes / 2);
      const float turned = first_half
                               ? values[i] * angles.cos.values[i] - other * angles.sin.values[i]
                               : values[i] * angles.cos.values[i] + other * angles.sin.values[i];
      if constexpr (kMixed) {
        values[i] = turned;
      } else if (!is_value) {
        elements.values[i] = from_float<T>(turned);
      }
    }
    if constexpr (kMixed) {
      mix(values, lane);
#pragma unroll
      for (int i = 0; i < kRopeLaneElements; ++i) {
        if (!is_value) elements.values[i] = from_float<T>(values[i]);
      }
    }
  }

  // mix_head() (kv_numbers.h) of a head that is shared out as above.
  __device__ __forceinline__ static void mix(float (&values)[kRopeLaneElements], int lane) {
#pragma unroll
    for (int distance = 1; distance < kRopeLaneElements; distance *= 2) {
#pragma unroll
      for (int i = 0; i < kRopeLaneElements; ++i) {
        if ((i & distance) != 0) continue;
        const float a = values[i], b = values[i + distance];
        values[i] = a + b;
        values[i + distance] = a - b;
      }
    }
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
#pragma unroll
      for (int i = 0; i < kRopeLaneElements; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, values[i], distance);
        values[i] = (lane & distance) != 0 ? other - values[i] : values[i] + other;
      }
    }
    const float factor = 1.0f / sqrtf(static_cast<float>(kDim));
#pragma unroll
    for (int i = 0; i < kRopeLaneElements; ++i) values[i] *= factor;
  }
};

}  // namespace headrace::gpu
