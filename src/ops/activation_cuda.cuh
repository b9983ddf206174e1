// The activations, of one value.
#pragma once

#include "ops/activation_row.h"

namespace headrace::gpu {

struct Silu {
  static __device__ float apply(float x) { return x / (1.0f + __expf(-x)); }
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

__device__ __forceinline__ float activated(Activation activation, float x) {
  if (activation == Activation::kSilu) return Silu::apply(x);
  return activation == Activation::kGeluTanh ? GeluTanh::apply(x) : GeluErf::apply(x);
}

}  // namespace headrace::gpu
