#include <array>
#include <cmath>

#include "ops/rms_norm.h"

namespace headrace {
namespace {

void reference(OpContext&, const RmsNormArgs& args) {
  const int64_t columns = args.x.columns();
  for (int64_t t = 0; t < args.x.rows(); ++t) {
    float* x = f32_row(args.x, t);      // [D]
    float* out = f32_row(args.out, t);  // [D]
    if (args.residual.data != nullptr) {
      const float* residual = f32_row(args.residual, t);  // [D]
      for (int64_t i = 0; i < columns; ++i) x[i] += residual[i];
    }
    double sum = 0.0;
    for (int64_t i = 0; i < columns; ++i) sum += static_cast<double>(x[i]) * x[i];
    const double rms = std::sqrt(sum / static_cast<double>(columns) + args.eps);
    for (int64_t i = 0; i < columns; ++i) out[i] = static_cast<float>(x[i] / rms * args.weight[i]);
  }
}

bool any_cpu(const DeviceTraits& traits, const RmsNormArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.x.dtype == DType::kF32;
}

constexpr std::array kKernels = {
    Kernel<RmsNormArgs>{"rms_norm/cpu/reference", any_cpu, reference},
};

}  // namespace

std::span<const Kernel<RmsNormArgs>> rms_norm_cpu_kernels() { return kKernels; }

}  // namespace headrace
