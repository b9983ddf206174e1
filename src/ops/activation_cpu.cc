#include <array>
#include <cmath>
#include <numbers>

#include "ops/activation.h"

namespace headrace {
namespace {

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::kGeluErf:
      return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
  }
  __builtin_unreachable();
}

void reference(OpContext&, const GatedActivationArgs& args) {
  const int64_t features = args.out.columns();
  for (int64_t t = 0; t < args.out.rows(); ++t) {
    const float* gate = f32_row(args.gate_up, t);  // [F]
    const float* up = gate + features;             // [F]
    float* out = f32_row(args.out, t);             // [F]
    for (int64_t i = 0; i < features; ++i) {
      out[i] = static_cast<float>(activate(args.activation, gate[i]) * up[i]);
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const GatedActivationArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kKernels = {
    Kernel<GatedActivationArgs>{"gated_activation/cpu/reference", any_cpu, reference},
};

}  // namespace

std::span<const Kernel<GatedActivationArgs>> gated_activation_cpu_kernels() { return kKernels; }

}  // namespace headrace
