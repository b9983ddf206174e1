#include <array>

#include "ops/rows/scale_rows.h"

namespace headrace {
namespace {

// 16 rows of 576 columns take about 1 us: fewer are not worth a fork-join.
void reference(OpContext& context, const ScaleRowsArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 16, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      float* const x = f32_row(args.x, t);  // [D]
      const float* const added = args.added.data == nullptr ? nullptr : f32_row(args.added, t);
      for (int64_t i = 0; i < args.x.columns(); ++i) {
        x[i] = (added == nullptr ? x[i] : x[i] + added[i]) * args.scale / args.divisor;
      }
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const ScaleRowsArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.x.dtype == DType::kF32;
}

constexpr std::array kScaleRowsKernels = {
    Kernel<ScaleRowsArgs>{"scale_rows/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<ScaleRowsArgs> scale_rows_cpu_kernels() { return kScaleRowsKernels; }

}  // namespace headrace
