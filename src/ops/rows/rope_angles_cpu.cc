#include <array>
#include <cmath>

#include "ops/rows/rope_angles.h"

namespace headrace {
namespace {

// 64 rows of 32 angles take about 60 us: fewer are not worth a fork-join.
void reference(OpContext& context, const RopeAnglesArgs& args) {
  context.device.pool().parallel_for(args.cos.rows(), 64, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const double position = args.positions[static_cast<size_t>(t)];
      float* cos = f32_row(args.cos, t);  // [rope_dim / 2]
      float* sin = f32_row(args.sin, t);  // [rope_dim / 2]
      for (size_t i = 0; i < args.inv_freq.size(); ++i) {
        const double angle = position * args.inv_freq[i];
        cos[i] = static_cast<float>(std::cos(angle) * args.scale);
        sin[i] = static_cast<float>(std::sin(angle) * args.scale);
      }
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const RopeAnglesArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kRopeAnglesKernels = {
    Kernel<RopeAnglesArgs>{"rope_angles/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<RopeAnglesArgs> rope_angles_cpu_kernels() { return kRopeAnglesKernels; }

}  // namespace headrace
