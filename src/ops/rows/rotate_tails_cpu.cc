#include <array>

#include "ops/rows/rotate_tails.h"

namespace headrace {
namespace {

void rotate_row(const RotateTailsArgs& args, int64_t t) {
  const int64_t pairs = args.cos.columns();
  const float* const cos = f32_row(args.cos, t);
  const float* const sin = f32_row(args.sin, t);
  const float sign = args.backwards ? -1.0f : 1.0f;
  float* const row = f32_row(args.x, t);
  for (int64_t end = args.head_dim; end <= args.x.columns(); end += args.head_dim) {
    float* const tail = row + end - 2 * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      const float a = tail[2 * i], b = tail[2 * i + 1], s = sign * sin[i];
      tail[2 * i] = a * cos[i] - b * s;
      tail[2 * i + 1] = b * cos[i] + a * s;
    }
  }
}

// Eight rows of 64 heads take some 10 us: fewer are not worth a fork-join.
void reference(OpContext& context, const RotateTailsArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) rotate_row(args, t);
  });
}

bool any_cpu(const DeviceTraits& traits, const RotateTailsArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kRotateTailsKernels = {
    Kernel<RotateTailsArgs>{"rotate_tails/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<RotateTailsArgs> rotate_tails_cpu_kernels() { return kRotateTailsKernels; }

}  // namespace headrace
