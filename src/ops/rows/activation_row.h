// What the activation ops hand to the kernels for one instruction set: plain data, no inline
// functions.
#pragma once

#include <cstdint>

namespace headrace {

enum class Activation {
  kSilu,          // x / (1 + exp(-x))
  kGeluTanh,      // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kGeluErf,       // x/2 (1 + erf(x / sqrt 2))
  kRelu,          // max(x, 0)
  kReluSquared,   // max(x, 0)^2
  kTanh,          // of products on a GPU an op of its own, as the next two
  kSigmoid,       // 1 / (1 + exp(-x))
  kXielu,         // of `parameters`, below; never gated
  kClampedSwish,  // gated: min(x, b) sigmoid(s min(x, b)) (clamp(up, -b, b) + 1)
};

// Of kClampedSwish, those of all published models (gpt-oss, MiniMax M3).
inline constexpr float kClampedSwishSlope = 1.702f, kClampedSwishBound = 7.0f;
struct ClampedSwishShape {
  float slope = kClampedSwishSlope, bound = kClampedSwishBound;
  bool is_usual() const { return slope == kClampedSwishSlope && bound == kClampedSwishBound; }
};

// Of kXielu (Huang and Schlag, 2024): above 0 p x^2 + b x, else n (exp(min(x, e)) - 1 - x) + b x.
struct XieluParameters {
  float p = 0, n = 0, b = 0, e = 0;
};

struct GatedActivationRow {
  const float* gate;  // [features]
  const float* up;    // [features], or null: out = act(gate)
  float* out;         // [features]
  int64_t features;
  Activation activation;
  XieluParameters xielu;
  ClampedSwishShape swish;
};

void gated_activation_row_avx512(const GatedActivationRow& row);  // activation_cpu_avx512.cc
void gated_activation_row_avx2(const GatedActivationRow& row);    // activation_cpu_avx2.cc

}  // namespace headrace
