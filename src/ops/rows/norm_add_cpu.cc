#include <array>
#include <cmath>

#include "ops/rows/norm_add.h"

namespace headrace {
namespace {

// `x`, `y` [G].
void add_group(const NormAddArgs& args, float* x, const float* y) {
  double sum = 0;
  for (int64_t i = 0; i < args.group; ++i) {
    const float scaled = y[i] * args.scale;
    sum += double{scaled} * scaled;
  }
  const double mean = sum / static_cast<double>(args.group);
  const auto size = static_cast<float>(1.0 / std::sqrt(mean + double{args.eps}));
  for (int64_t i = 0; i < args.group; ++i) {
    x[i] = (y[i] * args.scale * size * args.weight[i] + x[i]) * args.factor;
  }
}

// Four rows of 8,960 columns take some 30 us: fewer are not worth a fork-join.
void reference(OpContext& context, const NormAddArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 4, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      for (int64_t at = 0; at < args.x.columns(); at += args.group) {
        add_group(args, f32_row(args.x, t) + at, f32_row(args.y, t) + at);
      }
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const NormAddArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.x.dtype == DType::kF32;
}

constexpr std::array kNormAddKernels = {
    Kernel<NormAddArgs>{"norm_add/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<NormAddArgs> norm_add_cpu_kernels() { return kNormAddKernels; }

}  // namespace headrace
