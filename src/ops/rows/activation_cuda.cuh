// The activations, of one value.
#pragma once

#include <type_traits>

#include "gpu/exponential.cuh"
#include "ops/rows/activation_row.h"

namespace headrace::gpu {

// A denominator past 2^126 is one of 0.
struct Silu {
  static __device__ float apply(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
};
struct GeluTanh {
  static __device__ float apply(float x) {
    const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
  }
};
struct GeluErf {
  static __device__ float apply(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
  }
};

// A NaN stays one: fminf and fmaxf would drop it.
struct Relu {
  static __device__ float apply(float x) { return x < 0.0f ? 0.0f : x; }
};
struct ReluSquared {
  static __device__ float apply(float x) { return x < 0.0f ? 0.0f : x * x; }
};
struct ClampedSwish {
  static __device__ float apply(float x) {
    const float gate = x > kClampedSwishBound ? kClampedSwishBound : x;
    return __fdividef(gate, 1.0f + __expf(-kClampedSwishSlope * gate));
  }
  static __device__ float of_up(float up) {
    const float low = up < -kClampedSwishBound ? -kClampedSwishBound : up;
    return (low > kClampedSwishBound ? kClampedSwishBound : low) + 1.0f;
  }
};

// What a gate of `Act` multiplies.
template <class Act>
__device__ __forceinline__ float up_of(float up) {
  if constexpr (std::is_same_v<Act, ClampedSwish>) return Act::of_up(up);
  return up;
}

// Of one value; of kClampedSwish the gate's.
__device__ __forceinline__ float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return Silu::apply(x);
    case Activation::kGeluTanh:
      return GeluTanh::apply(x);
    case Activation::kRelu:
      return Relu::apply(x);
    case Activation::kReluSquared:
      return ReluSquared::apply(x);
    case Activation::kClampedSwish:
      return ClampedSwish::apply(x);
    case Activation::kGeluErf:
    case Activation::kXielu:  // of no gate; no product has the next two
    case Activation::kTanh:
    case Activation::kSigmoid:
      break;
  }
  return GeluErf::apply(x);
}
// What a gate multiplies.
__device__ __forceinline__ float gated_up(Activation activation, float up) {
  return activation == Activation::kClampedSwish ? ClampedSwish::of_up(up) : up;
}

// x sigmoid(x (linear + cubic x^2)): silu and the tanh form of gelu, as 1 + tanh(u) = 2 sigmoid(2
// u). The factors hold -log2 e.
struct SigmoidGate {
  float linear, cubic;

  static bool is(Activation activation) {
    return activation == Activation::kSilu || activation == Activation::kGeluTanh;
  }
  // REQUIRES: is(activation), or kClampedSwish, of which it is what is made of a clamped value
  static SigmoidGate of(Activation activation) {
    constexpr float kLog2E = 1.4426950408889634f, kSlope = 2 * 0.7978845608028654f;
    if (activation == Activation::kClampedSwish) return {-kLog2E * kClampedSwishSlope, 0.0f};
    if (activation == Activation::kSilu) return {-kLog2E, 0.0f};
    return {-kLog2E * kSlope, -kLog2E * kSlope * 0.044715f};
  }
};

// Of two values with three operations of the special unit in place of four: one reciprocal for
// both. Exponents end at 2^62, where a sigmoid is nothing beside any value that a product could
// have.
__device__ __forceinline__ float2 gated_pair(const SigmoidGate& gate, float2 x) {
  const auto denominator = [&](float value) {
    const float square = fminf(value * value, 1e30f);  // times a factor of 0
    return 1.0f + exp2_fast(fminf(value * fmaf(gate.cubic, square, gate.linear), 62.0f));
  };
  const float a = denominator(x.x), b = denominator(x.y);
  const float both = reciprocal_fast(a * b);
  return {x.x * b * both, x.y * a * both};
}

}  // namespace headrace::gpu
